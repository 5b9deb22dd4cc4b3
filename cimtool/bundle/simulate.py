"""Scores of texts against videos on the bit-accurate simulator: all, the best, on dies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.files import check_output, keeping_inputs, require_kept, unwritable
from cimtool.base.modality_names import Modalities, item_names
from cimtool.base.options import EMBEDDINGS, FILE, NPZ, Topic, option, optional, takes
from cimtool.base.partial import partial_folder, partial_of
from cimtool.base.progress import Countdown, Say, silent
from cimtool.bundle.bounds import read_bounds, require_few, with_certain
from cimtool.bundle.bundle import Bundle, BundleLike, Gallery
from cimtool.bundle.chip import check_one_source, chip_die
from cimtool.bundle.dies import (
    MEDIAN,
    WORST,
    DrawnOrMeasured,
    NoiseOptions,
    conditions_of,
    dies,
    readout_sentence,
)
from cimtool.bundle.matcher import Matcher, check_gallery, load
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, File, read_data, read_rows
from cimtool.reference.measures import WAYS
from cimtool.reference.retrieval import retrieval
from cimtool.simulation.die_program import DieProgram
from cimtool.simulation.simulator import Features, Simulator

RECALL_AT = 10
"""The number of best items in the recall of a shortlist."""


class SimulateOptions(DrawnOrMeasured):
    """The options of `simulate`."""

    bundle: BundleLike = option(
        "The bundle's folder.", FILE, positional=True, argument="BUNDLE", place="bundle"
    )
    inputs: EmbeddingsLike = option("Embeddings to score.", EMBEDDINGS, positional=True)
    output: File | None = optional("File of the scores.", NPZ, short="o")
    top: int | None = optional("Keep only the K best videos of each text.", "K")
    bounds: File | None = optional(
        "The report.json of `cimtool verify` with a bound: adds its bound, and certain ranks.",
        FILE,
        topic=Topic.MEASUREMENT,
    )
    device: str | None = optional(
        "Compute with torch on cpu, cuda or cuda:N.", "NAME", topic=Topic.WORKERS
    )


@keeping_inputs
@takes(SimulateOptions)
def simulate(options: SimulateOptions, say: Say = silent) -> dict[str, Array]:
    """Score all texts against all videos on the bit-accurate simulator.

    Returns `scores` float32 [n, m], or with `top` `top_index` and `top_score` [n, top] of each
    text's best videos, computed without the n x m scores; writes them as an `.npz` to `output`.
    `device` as in `load`. If the bundle holds a gallery, only the texts are read: `top_index` are
    ids of its items, and `items` [m] are the ids of the columns of `scores`. A hybrid score returns
    the best items of each shortlist, or without `top` the whole shortlist.

    `bounds` adds `bound`, the error of each score from the float score that `verify` states in that
    report, and with `top` `certain` [n, top]: true at rank r if the float score has the r best
    videos above all others too.

    With `noise`, arrays of the dies are added: `trial_scores` [T, n, m], `trial_rmse` [T] against
    the noise-free scores and, if the right pairs are known, `trial_r1` [T, 2]. For a hybrid score
    these are `trial_index` [T, n, K], `trial_recall` [T], the share of queries whose best item is
    on the shortlist, and `trial_r1` [T, 1]. A measured `chip` (a folder, see `docs/noise.md`)
    counts as one die. Raises CimError for a bundle or inputs that don't fit, and for `top` with
    dies unless the score is hybrid.
    """
    return run_simulation(options, say).arrays


@dataclass(frozen=True, eq=False)
class Simulation:
    """The arrays that `simulate` returns, and the bundle that was run.

    `called` are the names of both modalities: the inputs' names with dies, else the model's.
    """

    arrays: dict[str, Array]
    bundle: Bundle
    called: Modalities


def run_simulation(options: SimulateOptions, say: Say) -> Simulation:
    """Simulate as `simulate` does; returns also the bundle and the names of both modalities."""
    inputs, output, top = options.inputs, options.output, options.top
    noise, chip = options.noise, options.chip
    if output is not None:
        check_output(Path(output), ".npz")
    check_one_source(noise, chip)
    if options.bounds is not None and not (noise is None and chip is None):
        raise ArgumentError(
            "{bounds} are of noise-free scores; expected it without {}",
            Argument("chip" if noise is None else "noise"),
        )
    matcher = load(options.bundle, options.device)
    called = matcher.bundle.model.called
    if options.bounds is not None and matcher.bundle.gallery is not None:
        raise ArgumentError(
            "{bounds} are not known for {}, which holds a gallery; expected a bundle without one",
            matcher.bundle.folder,
        )
    if noise is not None:
        data = _data_of_dies(matcher, inputs, top, "noise")
        found, called = _on_drawn(matcher, data, top, noise, say), data.called
    elif chip is not None:
        data = _data_of_dies(matcher, inputs, top, "chip")
        found, called = _on_chip(matcher, data, top, Path(chip), say), data.called
    elif matcher.bundle.gallery is None:
        file = None if options.bounds is None else Path(options.bounds)
        found = _all_pairs(matcher, inputs, top, file, say)
    else:
        found = _against_gallery(matcher, matcher.bundle.gallery, inputs, top, say)
    if output is not None:
        write_scores(Path(output), found)
    return Simulation(found, matcher.bundle, called)


def _on_drawn(
    matcher: Matcher, data: Embeddings, top: int | None, options: NoiseOptions, say: Say
) -> dict[str, Array]:
    """Noise-free scores and scores on drawn dies; says the cost of drift compensation."""
    conditions = conditions_of(matcher.bundle, options)

    def drawn() -> Iterator[DieProgram]:
        countdown = Countdown(say)
        for index, die in enumerate(dies(matcher.bundle, conditions, options.trials), 1):
            if index == 1 and die.readout.products:
                say(readout_sentence(conditions.compensation, die.readout))
            yield die
            countdown.tell(f"die {index} of {options.trials}: scored", index, options.trials)

    return _on_dies(matcher, data, drawn(), options.trials, top)


def _on_chip(
    matcher: Matcher, data: Embeddings, top: int | None, chip: Path, say: Say
) -> dict[str, Array]:
    """Noise-free scores and scores on a measured chip; says which cells were measured."""
    say(f"chip {chip}: reading")
    die, sentence = chip_die(matcher.bundle, chip)
    say(sentence)
    return _on_dies(matcher, data, iter([die]), 1, top)


def _data_of_dies(
    matcher: Matcher, inputs: EmbeddingsLike, top: int | None, argument: str
) -> Embeddings:
    gallery = matcher.bundle.gallery
    if top is not None and (gallery is None or gallery.shortlist is None):
        raise ArgumentError(
            "{top} keeps the best of noise-free scores; expected it without {}", Argument(argument)
        )
    data = read_data(inputs, matcher.bundle.model)
    check_gallery(matcher.bundle, data)
    return data


def _on_dies(
    matcher: Matcher, data: Embeddings, dies: Iterator[DieProgram], count: int, top: int | None
) -> dict[str, Array]:
    """Noise-free scores and scores on `count` dies."""
    gallery = matcher.bundle.gallery
    if gallery is not None and gallery.shortlist is not None:
        return _shortlists_on_dies(matcher, data, dies, gallery.shortlist, top)
    scores = matcher.simulator.scores(data.text, data.video).astype(np.float32)
    trials = np.empty((count, *scores.shape), np.float32)
    for index, die in enumerate(dies):
        trials[index] = Simulator(die.program).scores(data.text, data.video)
    errors = (one.astype(np.float64) - scores for one in trials)
    rmse = np.array([np.sqrt(np.mean(np.square(error))) for error in errors])
    found: dict[str, Array] = {"scores": scores, "trial_scores": trials, "trial_rmse": rmse}
    if gallery is not None:
        found["items"] = matcher.bundle.items
    if data.text_to_video is not None and data.truth.ranks:
        both = [retrieval(one, data.truth) for one in trials]
        found["trial_r1"] = np.array([[one[f"r1_{way}"] for way in WAYS] for one in both])
    return found


def _shortlists_on_dies(
    matcher: Matcher, data: Embeddings, dies: Iterator[DieProgram], length: int, top: int | None
) -> dict[str, Array]:
    """Noise-free answers, and for each die the answers, their R@1 and the shortlists' recall.

    A shortlist is scored with the items' digital features, which noise does not change.
    """
    items, ids = matcher.bundle.gallery_features, matcher.bundle.items
    text = matcher.simulator.encode("text", data.text)
    found = hybrid_scores(matcher.simulator, text, items, length, top)
    best = best_scores(matcher.simulator, text, items, 1)["top_index"]
    trials: dict[str, list[Any]] = {"index": [], "recall": [], "r1": []}
    for die in dies:
        one = shortlist_on(Simulator(die.program), data, items, length, best)
        trials["index"].append(ids[one.index[:, :top]])
        trials["recall"].append(one.recall)
        trials["r1"] += [] if one.r1 is None else [[one.r1]]
    return {
        "top_index": ids[found["top_index"]],
        "top_score": found["top_score"],
        **{f"trial_{name}": np.array(values) for name, values in trials.items() if values},
    }


LEFT_OUT = -np.inf
"""The score of an item that is not on the shortlist."""


@dataclass(frozen=True, eq=False)
class ShortlistOn:
    """The answers of shortlists on one simulator: `index` [n, L], best first.

    `recall` is the share of queries whose best item is on the shortlist. `r1` is R@1 text to video
    of the answers, None if the right items are not known.
    """

    index: IntArray
    recall: float
    r1: float | None


def shortlist_on(
    simulator: Simulator, data: Embeddings, items: Features, length: int, best: IntArray
) -> ShortlistOn:
    """Answer the texts of `data`; `best` [n, 1] are their best items by the noise-free score."""
    text = simulator.encode("text", data.text)
    found = hybrid_scores(simulator, text, items, length, None)
    index: IntArray = found["top_index"]
    recall = float((index == best).any(axis=1).mean())
    if data.text_to_video is None or not data.truth.ranks:
        return ShortlistOn(index, recall, None)
    scores = np.full((len(index), len(items["mu"])), LEFT_OUT)
    np.put_along_axis(scores, index, found["top_score"].astype(np.float64), axis=1)
    return ShortlistOn(index, recall, retrieval(scores, data.truth)[f"r1_{WAYS[0]}"])


def _against_gallery(
    matcher: Matcher, gallery: Gallery, inputs: EmbeddingsLike, top: int | None, say: Say
) -> dict[str, Array]:
    rows = read_rows(inputs, "text", matcher.bundle.model)
    say(f"encoding {len(rows)} texts")
    text = matcher.simulator.encode("text", rows)
    say(f"scoring {len(rows)} texts against {gallery.items} items in the memory")
    ids = matcher.bundle.items
    if gallery.shortlist is not None:
        items = matcher.bundle.gallery_features
        best = hybrid_scores(matcher.simulator, text, items, gallery.shortlist, top)
    elif top is not None:
        best = best_scores(matcher.simulator, text, None, top)
    else:
        return {"scores": matcher.score(text), "items": ids}
    return best | {"top_index": ids[best["top_index"]]}


def _all_pairs(
    matcher: Matcher, inputs: EmbeddingsLike, top: int | None, file: Path | None, say: Say
) -> dict[str, Array]:
    """All scores, or the best of each text; with the bounds of a report `file`, if one is given."""
    bounds = None if file is None else read_bounds(file, matcher.bundle)
    read = read_data(inputs, matcher.bundle.model)
    say(f"encoding {read.counted}")
    text, video = (matcher.simulator.encode(m, getattr(read, m)) for m in MODALITIES)
    say(f"scoring {len(read.text)} x {len(read.video)} pairs")
    stated = {} if bounds is None else {"bound": np.array(bounds.score)}
    if top is None:
        return {"scores": matcher.score(text, video)} | stated
    items = item_names(read.called)[1]
    if bounds is None or file is None:
        return best_scores(matcher.simulator, text, video, top, items)
    require_few(len(read.video), bounds, file)
    # The next item says how far the last rank leads; a `top` beyond all is refused as it is.
    more = top + 1 if 1 <= top < len(read.video) else top
    best = best_scores(matcher.simulator, text, video, more, items)
    return with_certain(best, top, bounds.margin) | stated


def best_scores(
    simulator: Simulator, text: Features, video: Features | None, top: int, items: str = "items"
) -> dict[str, Array]:
    """Each text's best videos, best first: `top_index` int64, `top_score` float32, both [n, top].

    Of equal scores, the lower row comes first. At most a block of the n x m scores is in memory. If
    the program holds its gallery, `video` is not used. Raises CimError unless `top` is 1 to m; the
    sentence calls the videos `items`.
    """
    videos = simulator.columns(video)
    if not 1 <= top <= videos:
        raise ArgumentError("{top} is {}; expected 1 to {}, the number of {}", top, videos, items)
    indices, scores = [], []
    for _, part in simulator.iter_score(text, video):
        logit = part["logit"].astype(np.float32)
        best = np.stack([best_places(row, top) for row in logit])
        indices.append(best)
        scores.append(np.take_along_axis(logit, best, axis=1))
    return {"top_index": np.concatenate(indices), "top_score": np.concatenate(scores)}


def best_places(logit: Array, top: int) -> IntArray:
    """The places of the `top` largest, best first; of equal scores, the lower place first."""
    least = np.partition(logit, len(logit) - top)[len(logit) - top]
    near = np.flatnonzero(logit >= least)
    best: IntArray = near[np.argsort(-logit[near], kind="stable")[:top]]
    return best


def hybrid_scores(
    simulator: Simulator, text: Features, gallery: Features, shortlist: int, top: int | None
) -> dict[str, Array]:
    """Each text's best items on its shortlist, exactly scored; arrays as from `best_scores`.

    The shortlist has the items with the smallest `ed` in the memory; other items have no score.
    `gallery` has the items' features. Without `top`, the whole shortlist is returned. Raises
    CimError unless `top` is 1 to `shortlist`.
    """
    top = shortlist if top is None else top
    if not 1 <= top <= shortlist:
        raise ArgumentError(
            "{top} is {}; expected 1 to {}, the items of a shortlist", top, shortlist
        )
    indices: list[Array] = []
    scores: list[Array] = []
    for block, ed in simulator.iter_distances(text):
        for row, near in enumerate(nearest_items(ed, shortlist), block.start):
            near = np.sort(near)
            query = {name: value[row : row + 1] for name, value in text.items()}
            items = {name: value[near] for name, value in gallery.items()}
            logit = simulator.score(query, items, np.float32)[0]
            best = np.argsort(-logit, kind="stable")[:top]
            indices.append(near[best].astype(np.int64))
            scores.append(logit[best])
    return {"top_index": np.stack(indices), "top_score": np.stack(scores)}


def nearest_items(ed: Array, shortlist: int) -> Array:
    """The items [n, shortlist] with the smallest `ed` [n, M]; of equal `ed`, lower rows first."""
    return np.stack([best_places(-row, shortlist) for row in ed])


def listed_items(simulator: Simulator, text: Features, items: int, length: int) -> BoolArray:
    """The `length` items of the `items` [n, m] nearest to each text, by distances in the arrays."""
    listed = np.zeros((len(text["mu"]), items), bool)
    for block, ed in simulator.iter_distances(text):
        np.put_along_axis(listed[block], nearest_items(ed, length), True, axis=1)
    return listed


def left_by(listed: BoolArray, scores: Array) -> Array:
    """Scores [n, m] of which items that are not `listed` come last."""
    found: Array = np.where(listed, scores, scores.min() - 1)
    return found


def write_scores(file: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an `.npz` next to `file`, then rename it to `file`.

    The same arrays give the same bytes. Raises CimError if `file` cannot be written.
    """
    check_output(file, ".npz")
    require_kept(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial_folder(file.parent, partial_of(file.name)) as beside:
            partial = beside / file.name
            np.savez(partial, **arrays)  # type: ignore[arg-type]
            os.replace(partial, file)
    except OSError as error:
        raise unwritable(file, error) from error


@dataclass(frozen=True)
class Percentiles:
    """The median of a metric over dies, and its value at the percentile of the worst 5%."""

    median: float
    percentile: float
    worst: float

    @classmethod
    def of(cls, values: FloatArray, percentile: float) -> Percentiles:
        """Compute both from one value per die [T]."""
        median, worst = (float(np.percentile(values, at)) for at in (MEDIAN, percentile))
        return cls(median, percentile, worst)

    def to_json(self) -> dict[str, float]:
        """Plain values by name."""
        return {"median": self.median, f"percentile_{self.percentile:g}": self.worst}


def trial_summary(found: Mapping[str, Array]) -> dict[str, Percentiles]:
    """The median and the worst 5% over dies, by metric, of the arrays that `simulate` returned."""
    summary = {}
    if "trial_rmse" in found:
        summary["rmse"] = Percentiles.of(found["trial_rmse"], 100 - WORST)
    if "trial_recall" in found:
        summary["recall"] = Percentiles.of(found["trial_recall"], WORST)
    if "trial_r1" in found:
        both = zip(WAYS, found["trial_r1"].T, strict=False)  # a shortlist answers only texts
        summary |= {f"r1_{way}": Percentiles.of(values, WORST) for way, values in both}
    return summary


def recall(
    exact: FloatArray, programmed: Simulator, queries: Features, shortlist: int
) -> tuple[float, float]:
    """The recall of shortlists: shares of the best items by the digital scores `exact` [n, M].

    Returns the share of queries whose best item is on the shortlist, and the share of the queries'
    RECALL_AT best items that are.
    """
    best = best_items(exact)
    held = np.empty(best.shape, bool)
    for rows, ed in programmed.iter_distances(queries):
        near = nearest_items(ed, shortlist)
        held[rows] = (best[rows][:, :, None] == near[:, None, :]).any(axis=2)
    return float(held[:, 0].mean()), float(held.mean())


def best_items(scores: FloatArray) -> IntArray:
    """The RECALL_AT best items [n, k] by scores [n, M]; of equal scores, the lower row first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :RECALL_AT]
