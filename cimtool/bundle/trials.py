"""Scores of a bundle on dies: every one of them, and what the median and the worst keep."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.progress import Say
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.dies import NoiseOptions, conditions_of, dies
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.queries import retrieval
from cimtool.simulation.compensation import ReadoutCost
from cimtool.simulation.simulator import Simulator

MEDIAN, WORST = 50.0, 5.0
"""Percentiles over dies: of what is better when higher; of errors 50 and 100 - 5."""


def simulate_trials(
    bundle: Bundle, perfect: Simulator, data: Embeddings, options: NoiseOptions, say: Say
) -> dict[str, Array]:
    """Noise-free `scores` [n, m] and those of dies: `trial_scores` [T, n, m], float32.

    With `trial_rmse` [T], the root mean square difference of the two, and where the right pairs are
    known `trial_r1` [T, 2], R@1 from text to video and back. Tells what compensation takes.
    """
    conditions = conditions_of(bundle, options)
    text, video = (perfect.encode(m, getattr(data, m)) for m in MODALITIES)
    scores = perfect.score(text, video, np.float32)
    found: dict[str, Array] = {"scores": scores}
    trials = np.empty((options.trials, *scores.shape), np.float32)
    for index, die in enumerate(dies(bundle, conditions, options.trials)):
        say(f"die {index + 1} of {options.trials}: encoding and scoring")
        trials[index] = Simulator(die.program).scores(data.text, data.video)
        if index == 0 and die.readout.products:
            say(readout_sentence(conditions.compensation, die.readout))
    found["trial_scores"] = trials
    errors = (one.astype(np.float64) - scores for one in trials)
    found["trial_rmse"] = np.array([np.sqrt(np.mean(np.square(error))) for error in errors])
    if data.text_to_video is not None:
        both = [retrieval(one, data.text_to_video) for one in trials]
        found["trial_r1"] = np.array([(one.text_to_video.r1, one.video_to_text.r1) for one in both])
    return found


def trial_summary(found: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """Median and worst twentieth over dies of what `simulate_trials` returned, by metric."""
    metrics = {"rmse": (found["trial_rmse"], 100 - WORST)}
    if "trial_r1" in found:
        names = ("r1_text_to_video", "r1_video_to_text")
        metrics |= {n: (of, WORST) for n, of in zip(names, found["trial_r1"].T, strict=True)}
    return {
        name: {
            "median": float(np.percentile(of_dies, MEDIAN)),
            f"percentile_{worst:g}": float(np.percentile(of_dies, worst)),
        }
        for name, (of_dies, worst) in metrics.items()
    }


METRIC_NAMES = {
    "rmse": "RMSE from the noise-free scores",
    "r1_text_to_video": "R@1 text to video",
    "r1_video_to_text": "R@1 video to text",
}


def trial_sentences(found: Mapping[str, Array]) -> tuple[str, ...]:
    """The same for a reader, a line a metric."""
    said = [f"{dies_text(len(found['trial_scores']))}:"]
    for name, values in trial_summary(found).items():
        (_, median), (worst, value) = values.items()
        percentile = f"{worst.removeprefix('percentile_')}th percentile"
        said.append(f"  {METRIC_NAMES[name]}: median {median:.4g}, {percentile} {value:.4g}")
    return tuple(said)


def readout_sentence(compensation: str, readout: ReadoutCost) -> str:
    """What the readout of drift compensation takes."""
    return (
        f"Drift compensation ({compensation}) reads {readout.products} products of layers back on "
        f"each die, {readout.conversions:,} conversions"
    )


def dies_text(count: int) -> str:
    """How many dies."""
    return f"{count} {'die' if count == 1 else 'dies'}"
