"""Dies in a report: percentiles, rows of the table, the sentences, the scores' file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError, CimWarning
from cimtool.base.progress import silent
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.reference.bootstrap import Samples
from cimtool.reference.metrics import on_grid
from cimtool.reference.queries import Queries, metrics
from cimtool.report.markdown import markdown
from cimtool.report.terminal import terminal
from cimtool.simulation.simulator import Simulator
from cimtool.verification.answers import survival_sentence, verdict
from cimtool.verification.drift import DriftTable
from cimtool.verification.headline import with_dies
from cimtool.verification.noisy import measure_chip, over_dies
from cimtool.verification.sensitivity import advice, next_change
from cimtool.verification.stages import encode, real_means

DIES = NoiseOptions(trials=4, time="1h")
HEAD: Any = SimpleNamespace(surrogate="polynomial", measure="logit")


@pytest.fixture(scope="module")
def analog(make_bundle: object) -> object:
    return make_bundle("analog", target="hermes-pcm-14nm")  # type: ignore[operator]


@pytest.fixture(scope="module")
def report(analog: object, data: object, tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("report")
    found = api.verify(analog.folder, data, samples=4, report=folder, noise=DIES)  # type: ignore[attr-defined,arg-type]
    return SimpleNamespace(found=found, folder=folder)


def die(i: int) -> Queries:
    """100 texts; die i of 21 is 0.1 i off, below, and finds 50 + i of them."""
    off = np.full(100, 0.1 * i)
    found = np.where(np.arange(100) < 50 + i, 1.0, 0.0)
    text = {
        "logit_squares": off**2, "centred_squares": off**2, "bias": -off, "largest": 2 * off,
        "spread": np.ones(100), "same_best": found, "spearman": found,
        "rank": np.where(found > 0, 1.0, 20.0), "step_squares": off**2,
    }  # fmt: skip
    video = {"same_best": np.ones(100), "rank": np.full(100, 10.0 * i)}
    return Queries(text, {**video, "centred_squares": (2 * off) ** 2, "spread": np.ones(100)})


def test_errors_are_bad_when_high_and_recall_when_low() -> None:
    once = Samples.once(100, 100)
    dies = lambda samples: [metrics(die(i), samples) for i in range(21)]  # noqa: E731
    worst = over_dies(dies, 5.0, once)
    expected = {
        "step_rmse": 1.9,
        "logit_rmse": 1.9,
        "centred_rmse": 3.8,
        "max_abs": 3.8,
        "bias": -1.9,
        "top1_agreement": 0.51,
        "r1_text_to_video": 0.51,
        "median_rank_video_to_text": 190.0,
    }
    for name, value in expected.items():
        assert worst[name] == pytest.approx([value]), name
    median = over_dies(dies, 50.0, once)
    assert median["step_rmse"] == pytest.approx([1.0])
    assert "cosine_gap" not in median


def test_the_report_has_a_row_of_the_median_die_and_one_of_the_worst(report: object) -> None:
    found = report.found  # type: ignore[attr-defined]
    shown = [one.stage for one in found.drift.shown]
    assert shown[-2:] == ["noisy 1 h, median", "noisy 1 h, worst"]
    assert found.drift.rows[-1].stage == "ONNX Runtime"
    median, worst = found.drift.noisy[-1].rows
    interval = worst.intervals["logit_rmse"]
    assert interval.low <= worst.metrics["logit_rmse"] <= interval.high
    assert median.losses["r1_loss"].value >= 0
    assert worst.metrics["step_rmse"] >= median.metrics["step_rmse"] > 0
    assert worst.metrics["logit_rmse"] >= median.metrics["logit_rmse"]
    assert found.drift.final.stage == "ONNX Runtime"


def test_every_form_of_the_report_shows_them(report: object) -> None:
    found = report.found  # type: ignore[attr-defined]
    page = (report.folder / "report.html").read_text()  # type: ignore[attr-defined]
    for text in (terminal(found.document(), 200, verbose=True), markdown(found.document()), page):
        assert "noisy 1 h, median" in text
        assert "noisy 1 h, worst" in text
        assert "On 4 dies read 1 h after programming" in " ".join(text.split())
    values = found.to_json()["noisy"][-1]
    assert (values["trials"], values["seconds"], values["compensation"]) == (4, 3600.0, "none")


def test_the_headline_says_what_the_chip_keeps(report: object) -> None:
    sentences = report.found.headline.sentences  # type: ignore[attr-defined]
    first, said = (one for one in sentences if one.startswith("On 4 dies"))
    assert "read 0 s after programming" in first
    assert "read 1 h after programming" in said
    assert "keeps" in said
    assert "of the noise-free R@1" in said


def test_what_the_dies_lose_is_said_first(report: object) -> None:
    found = report.found  # type: ignore[attr-defined]
    medians = (one.median for one in found.drift.noisy)
    worst = max(medians, key=lambda row: row.losses["r1_loss"].value)
    assert survival_sentence(found).startswith(f"On a chip ({worst.stage}) it ")
    assert f"{100 * worst.losses['r1_loss'].value:.1f} [" in survival_sentence(found)
    assert verdict(found) == "bits agree"


def test_noise_that_adds_more_than_any_step_is_the_cause(report: object) -> None:
    found = report.found  # type: ignore[attr-defined]
    dies, final = found.drift.noisy, found.drift.final
    first = replace(
        found.headline, cause="quantized", cause_centred_rmse=0.0, surrogate_broken=False
    )
    noisy = with_dies(first, dies, final, "logit")
    late = dies[-1].median
    assert (noisy.cause, noisy.cause_before) == (late.stage, "ONNX Runtime")
    error = noisy.cause_centred_rmse
    assert error == late.metrics["step_centred_rmse"]
    assert f"Noise of the devices adds more than any step: centred RMSE {error:.4g}." in (
        noisy.sentences
    )
    parts = found.causes.sensitivity
    said = next_change(HEAD, replace(found.drift, headline=noisy), parts)
    assert "try another compensation than none" in said
    quiet = with_dies(replace(first, cause_centred_rmse=1e9), dies, final, "logit")
    assert quiet.cause == "quantized"
    broken = with_dies(replace(first, surrogate_broken=True), dies, final, "logit")
    assert broken.cause == "quantized"


def test_a_surrogate_is_advised_on_where_it_dominates(report: object) -> None:
    found = report.found  # type: ignore[attr-defined]
    tie = replace(
        found.headline, cause="polynomial", surrogate_broken=False, surrogate_centred_rmse=0.10,
        float_centred_rmse=0.09,
    )  # fmt: skip
    fit = "fit another polynomial: no hardware setting improves the surrogate"
    parts = found.causes.sensitivity
    for changed, said in (
        (tie, advice(parts)),
        (replace(tie, surrogate_centred_rmse=0.19), fit),
        (replace(tie, surrogate_broken=True), fit),
    ):
        drift = replace(found.drift, headline=changed, noisy=())
        assert next_change(HEAD, drift, parts) == said


def test_of_few_dies_the_worst_is_told_and_of_many_the_worst_twentieth(report: object) -> None:
    one = report.found.drift.noisy[-1]  # type: ignore[attr-defined]
    (few,) = one.sentences(report.found.drift.final, "logit")  # type: ignore[attr-defined]
    assert "; the worst of them is " in few
    (many,) = replace(one, trials=20, percentile=5.0).sentences(report.found.drift.final, "logit")  # type: ignore[attr-defined]
    assert "one die in twenty is worse than" in many


@pytest.mark.thorough("a second report of dies")
def test_limits_are_of_the_noise_free_model(analog: object, data: object, report: object) -> None:
    plain = api.verify(analog.folder, data, samples=4, report=report.folder)  # type: ignore[attr-defined,arg-type]
    assert plain.checks.metrics == report.found.checks.metrics  # type: ignore[attr-defined]
    assert plain.drift.noisy == ()


def test_scores_of_dies_are_written_beside_the_noise_free_ones(
    analog: object, data: object, tmp_path: Path
) -> None:
    folder = analog.folder  # type: ignore[attr-defined]
    found = api.simulate(folder, data, output=tmp_path / "s.npz", noise=DIES)  # type: ignore[arg-type]
    with np.load(tmp_path / "s.npz") as written:
        assert list(written) == ["scores", "trial_scores", "trial_rmse", "trial_r1"]
        np.testing.assert_array_equal(written["trial_scores"], found["trial_scores"])
    plain = api.simulate(folder, data)["scores"]  # type: ignore[arg-type]
    np.testing.assert_array_equal(found["scores"], plain)
    trials = found["trial_scores"]
    assert trials.shape == (4, *plain.shape)
    assert trials.dtype == np.float32
    assert (trials[0] != trials[1]).any()
    expected = np.sqrt(np.mean((trials.astype(float) - plain) ** 2, axis=(1, 2)))
    np.testing.assert_allclose(found["trial_rmse"], expected)
    right = np.argmax(trials[2], axis=1) == np.arange(len(plain))
    assert found["trial_r1"][2, 0] == pytest.approx(right.mean())


def test_a_die_does_not_depend_on_how_many_are_drawn_or_on_the_rows(
    analog: object, data: object
) -> None:
    folder, rows = analog.folder, {"text": data.text, "video": data.video}  # type: ignore[attr-defined]
    model = NoiseOptions(trials=3, model="neurram", time="1d")
    four = api.simulate(folder, rows, noise=model)["trial_scores"]
    again = api.simulate(folder, rows, noise=NoiseOptions(2, 0, "1d", "none", "neurram"))
    np.testing.assert_array_equal(again["trial_scores"], four[:2])
    some = {"text": data.text[::-3], "video": data.video[5:]}  # type: ignore[attr-defined]
    part = api.simulate(folder, some, noise=model)["trial_scores"]
    np.testing.assert_array_equal(part, four[:, ::-3, 5:])
    other = api.simulate(folder, rows, noise=NoiseOptions(1, 1, "1d", "none", "neurram"))
    assert (other["trial_scores"][0] != four[0]).any()


def test_compensation_says_what_it_took(analog: object, data: object) -> None:
    said: list[str] = []
    options = NoiseOptions(1, time="1d", compensation="global")
    api.simulate(analog.folder, data, noise=options, say=said.append)  # type: ignore[attr-defined,arg-type]
    (cost,) = (one for one in said if "reads" in one)
    # Eight layers, 32 known inputs, read twice.
    assert cost.startswith("Drift compensation (global) reads 512 products of layers back")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trials": 0}, "trials is 0; expected 1 to"),
        ({"seed": -1}, "seed is -1; expected a number of at least 0"),
        ({"time": "soon"}, "time is soon; expected a time of at most 100y"),
        ({"compensation": "row"}, 'compensation "row" is not known: column, global, none'),
        ({"model": "hermes"}, 'noise model "hermes" is not known'),
        ({"model": "neurram", "time": "1h"}, "time is 1h; this noise was fitted after 1s, 1d"),
    ],
)
def test_bad_requests_are_one_sentence(
    analog: object, data: object, options: dict[str, object], said: str
) -> None:
    for function in (api.simulate, api.verify):
        with pytest.raises(CimError) as caught:
            function(analog.folder, data, noise=NoiseOptions(**options))  # type: ignore[attr-defined,arg-type,operator]
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_target_without_noise_says_so(bundle: object, data: object) -> None:
    with pytest.raises(CimError, match=r'target "ideal" has no \[noise\].*noise_model'):
        api.simulate(bundle.folder, data, noise=DIES)  # type: ignore[attr-defined,arg-type]


def test_best_scores_of_dies_are_not_asked_for(analog: object, data: object) -> None:
    with pytest.raises(CimError, match=r"top keeps the best of noise-free scores"):
        api.simulate(analog.folder, data, top=3, noise=DIES)  # type: ignore[attr-defined,arg-type]


def test_digital_arrays_have_no_noise(make_bundle: object, data: object) -> None:
    digital = make_bundle("digital", target="colonnade-65nm")  # type: ignore[operator]
    with (
        pytest.warns(CimWarning, match="digital SRAM, which have no conductance to program"),
        pytest.raises(CimError, match=r"text\.fc1: its arrays add digitally"),
    ):
        api.simulate(digital.folder, data, noise=NoiseOptions(1, model="pcm-generic"))


def test_a_measured_chip_is_one_row(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    bundle = read_bundle(small_bundle)
    export_bundle(bundle, "conductances", tmp_path / "mine")
    data = api.read_data(small_trunk.eval, bundle.model)
    simulator = Simulator(bundle.program)
    features = encode(simulator, data)
    scores = on_grid(simulator.score(features["text"], features["video"]))
    table = DriftTable(data.truth, None)
    table.add("compiled", scores, *real_means(bundle.program, features))
    found = measure_chip(bundle, tmp_path / "mine", data, table, 0, silent)
    (row,) = found.rows
    assert (row.stage, row.metrics["step_rmse"], found.chip) == ("chip mine", 0.0, "mine")
    (sentence,) = found.sentences(row, "logit")
    assert sentence.startswith("The measured chip mine keeps 100.0% of the noise-free R@1 (")
    assert sentence.endswith(" and is 0 (centred logit RMSE) from the noise-free model.")
