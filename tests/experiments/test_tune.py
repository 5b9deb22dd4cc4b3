"""Tuning: bits come off within the budget, and the file compiles to what was said."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CheckFailed, CimError
from cimtool.base.folders import POINTS, read_sealed, sealed_text
from cimtool.base.toml_files import toml_text
from cimtool.demo.data import DemoFiles
from cimtool.experiments.compiled import PointEvaluator
from cimtool.experiments.engine import PointFolder
from cimtool.experiments.points import with_layers
from cimtool.experiments.tuned import Tuned
from cimtool.experiments.tuning_start import halves
from cimtool.loading.embeddings import Embeddings
from cimtool.report.terminal import terminal

BUDGET = 1.0
CALIBRATION = 96
"""Rows of the small model's training rows that calibrate it."""


def tune(files: DemoFiles, output: Path, **changed: Any) -> Tuned:
    options: dict[str, Any] = {
        "calibration": files.calibration,
        "data": files.eval,
        "target": "isaac-rram-128",
        "budget": {"logit_rmse": BUDGET},
        "objective": "conversions",
        "output": output,
    }
    return api.tune(files.projectors, files.poly, **(options | changed))


@pytest.fixture(scope="module")
def tuned(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return tune(small_trunk, tmp_path_factory.mktemp("tuned") / "bits.toml")


@pytest.mark.thorough("a whole search; a smaller one is in the snapshots")
def test_it_costs_less_and_holds_the_budget_where_it_was_chosen(tuned: Tuned) -> None:
    assert max(tuned.chosen["logit_rmse"], tuned.held_out["logit_rmse"]) <= BUDGET
    assert tuned.chosen_cost["conversions"] < tuned.start_cost["conversions"]
    for step in tuned.steps:
        assert step.kept == (
            step.outcome.error is None and step.outcome.metrics["logit_rmse"] <= BUDGET
        )
    costs = [step.cost["conversions"] for step in tuned.steps if step.kept]
    assert costs == sorted(costs, reverse=True)


def verified(files: DemoFiles, tuned: Tuned, data: Any, folder: Path) -> dict[str, Any]:
    """The report of `verify` on the bundle of a tuned file."""
    built = api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target="isaac-rram-128",
        settings=tuned.written,
        output=folder / "bundle",
    )
    return api.verify(built.folder, data, report=folder / "report").to_json()


@pytest.mark.thorough("a whole search; a smaller one is in the snapshots")
def test_compile_takes_the_file_and_verify_measures_what_was_said(
    tuned: Tuned, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = small_trunk
    built = api.prepare(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target="isaac-rram-128",
        settings=tuned.written,
    )
    for layer, bits in tuned.bits.items():
        own = built.settings.of_layer(layer)
        assert (own.weight_bits, own.activation_bits) == tuple(bits.values())
    report = verified(files, tuned, files.eval, tmp_path)
    found, worth = report["metrics"], report["worth"]
    assert {name: tuned.on_all[name] for name in found} == pytest.approx(found, rel=1e-5)
    chosen = tuned.outcome.worth
    assert chosen is not None
    assert chosen.sampled is not None
    assert chosen.of_float is not None
    for own, of_report in (
        (chosen.sampled.centred, worth["sampled"]["centred"]),
        (chosen.sampled.whole, worth["sampled"]["whole"]),
        (chosen.of_float.loss, worth["of_float"]["loss"]),
    ):
        assert vars(own) == pytest.approx({name: of_report[name] for name in vars(own)}, rel=1e-4)


@pytest.mark.thorough("a whole tuning; the command's own test is in the first tier")
@pytest.mark.parametrize("seed", range(2))
def test_verify_measures_the_budget_as_kept(
    seed: int, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """On random rows, each half of which ranks better in half of the gallery than in the whole."""
    with np.load(small_trunk.train) as rows:
        drawn = CALIBRATION + np.random.default_rng(seed).permutation(400)[:100]
        data = {name: rows[name][drawn] for name in rows.files}
    budget = {"r1_loss": 0.06, "top1_agreement_loss": 0.2}
    low = {"weight_bits": 6, "activation_bits": 7}  # to have few steps
    found = tune(small_trunk, tmp_path / "bits.toml", data=data, budget=budget, **low)
    assert any(step.kept for step in found.steps)
    metrics = verified(small_trunk, found, data, tmp_path)["metrics"]
    assert all(metrics[name] <= most for name, most in budget.items())
    assert metrics["r1_loss"] == pytest.approx(found.on_all["r1_loss"])


@pytest.mark.thorough("a whole tuning; the command's own test is in the first tier")
def test_products_of_a_score_in_the_memory_are_tuned_and_left_out(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """The file compiles, and programs, to the arrays that were counted."""
    files = small_trunk
    low: dict[str, Any] = {"weight_bits": 8, "activation_bits": 8, "accumulator_bits": 48}
    found = tune(
        files, tmp_path / "bits.toml", objective="arrays", score_mapping="in-memory", **low
    )
    products = {name: one for name, one in found.bits.items() if name.startswith("score.")}
    assert {"weight_bits": 0} in products.values()
    assert "left out                -\n" in terminal(found.document(), verbose=True)
    assert max(found.on_all["logit_rmse"], found.chosen["logit_rmse"]) <= BUDGET
    built = api.compile(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        target="isaac-rram-128",
        settings=found.written,
        output=tmp_path / "bundle",
    )
    programmed = api.program(built.folder, files.eval, output=tmp_path / "programmed").bundle
    arrays = api.cost(programmed.folder).floorplan.arrays
    assert arrays == found.chosen_cost["arrays"] < found.start_cost["arrays"]
    report = api.verify(programmed.folder, files.eval, report=tmp_path / "report")
    metrics = report.to_json()["metrics"]
    assert metrics["logit_rmse"] == pytest.approx(found.on_all["logit_rmse"], rel=1e-5)


@pytest.mark.thorough("a whole search; a smaller one is in the snapshots")
def test_what_is_printed_names_the_way_and_the_truth(tuned: Tuned) -> None:
    text, short = terminal(tuned.document(), verbose=True), terminal(tuned.document())
    assert f"least conversions for logit_rmse <= {BUDGET:g}" in text
    assert "chosen, held-out queries" in text
    assert "chosen, all queries" in text
    high = tuned.intervals["logit_rmse"][1]
    assert ("logit_rmse may be above 1 on other queries" in text) == (high > BUDGET)
    low = replace(tuned, budget={"logit_rmse": tuned.on_all["logit_rmse"]})
    assert f"its interval over these reaches {high:.4g}" in " ".join(
        terminal(low.document(), verbose=True).split()
    )
    assert f"wrote {tuned.written}" in text
    assert ("\nSteps\n" in short, "\nSteps\n" in text) == (
        False,
        True,
    )
    assert {"bits", "steps", "held_out", "on_all", "taken_back"} <= set(tuned.to_json())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            {"budget": {"logit_rmse": 1e-9}},
            "budget logit_rmse=1e-09: the highest bits give",
            marks=pytest.mark.thorough("compiles the highest bits before it can say so"),
        ),
        ({"budget": {"logit_rms": 1.0}}, 'did you mean "logit_rmse"?'),
        ({"budget": {}}, "budget is missing"),
        (
            {"target": "ideal", "objective": "conversions"},
            "objective conversions: target ideal converts nothing; expected objective arrays",
        ),
        (
            {"target": "ideal", "objective": "query_energy=1,arrays=2"},
            "objective query_energy: target ideal gives no query energy",
        ),
        ({"objective": "energy"}, 'objective cost "energy" is not known'),
        ({"objective": "arrays=-1"}, "objective arrays=-1: a weight is a number above 0"),
        ({"gallery": 1}, "gallery is 1; expected 2 to 1,000,000,000,000 items"),
        ({"gallery": 10**12 + 1}, "gallery is 1,000,000,000,001; expected 2 to 1,000,000,000,000"),
        ({"output": Path("bits.json")}, "bits.json: the output is a .toml file"),
    ],
)
def test_a_mistake_is_one_sentence(
    change: dict[str, Any], sentence: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with pytest.raises(CimError) as caught:
        tune(small_trunk, **({"output": tmp_path / "bits.toml"} | change))
    assert sentence in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough("a whole tuning; the command's own test is in the first tier")
def test_steps_that_miss_the_budget_on_held_out_queries_are_taken_back(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as rows:
        other = {name: rows[name].copy() for name in rows.files}
    for value in other.values():
        value[1::2] *= 1.05  # the second half errs more than the first, on which bits are chosen
    found = tune(small_trunk, tmp_path / "bits.toml", data=other)
    assert 0 < found.taken_back <= sum(step.kept for step in found.steps)
    assert max(found.chosen["logit_rmse"], found.held_out["logit_rmse"]) <= BUDGET
    kept = [step.outcome.metrics for step in found.steps if step.kept]
    assert found.chosen == [found.start, *kept][-1 - found.taken_back]
    assert "taken back: over the budget on held-out queries or on all" in terminal(
        found.document(), verbose=True
    )


@pytest.mark.thorough("a whole search; a smaller one is in the snapshots")
@pytest.mark.parametrize(
    ("kept", "back", "line"),
    [
        (1, 1, "the only kept step was taken back: over the budget"),
        (6, 1, "the last of 6 kept steps was taken back: over the budget"),
        (6, 2, "the last 2 of 6 kept steps were taken back: over the budget"),
    ],
)
def test_steps_are_counted_in_words(tuned: Tuned, kept: int, back: int, line: str) -> None:
    step = next(one for one in tuned.steps if one.kept)
    text = terminal(replace(tuned, steps=[step] * kept, taken_back=back).document(), verbose=True)
    assert line in " ".join(text.split())


def test_halves_are_queries_of_other_videos() -> None:
    right = np.array([0, 1, 2, 3, 4, 4, 1])
    rows = np.zeros((7, 1), np.float32), np.zeros((5, 1), np.float32)
    first, second = halves(Embeddings(*rows, right))
    assert (first.videos.tolist(), second.videos.tolist()) == ([0, 2, 4], [1, 3])
    assert (first.texts.tolist(), second.texts.tolist()) == ([0, 2, 4, 5], [1, 3, 6])


@pytest.mark.parametrize(
    ("right", "videos", "counts"),
    [([0, 1], 2, "2 texts and 2 videos"), ([0, 0, 2, 3], 4, "4 texts and 4 videos")],
)
def test_a_half_of_hardly_any_queries_is_refused(
    right: list[int], videos: int, counts: str
) -> None:
    rows = (np.zeros((count, 1), np.float32) for count in (len(right), videos))
    with pytest.raises(CimError, match=rf"^e\.npz: {counts} are too few: .* fewer than 2 queries"):
        halves(Embeddings(*rows, np.array(right), file="e.npz"))


def test_the_file_keeps_what_was_given_and_ends_with_the_layers() -> None:
    given = {
        "calibrator": "percentile",
        "layers": {"text.fc1": {"adc_bits": 6}, "text.*": {"adc_bits": 7}},
    }
    text = toml_text(with_layers(given, {"text.fc1": {"weight_bits": 5, "activation_bits": 8}}))
    read = tomllib.loads(text)
    assert list(read["layers"]) == ["text.*", "text.fc1"]
    assert read["layers"]["text.fc1"] == {"adc_bits": 6, "weight_bits": 5, "activation_bits": 8}
    assert read["calibrator"] == "percentile"


def test_a_budget_of_recall_on_items_without_labels_is_refused(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        data = {"rows": held["text"]}
    with pytest.raises(CimError, match=r"budget r1_loss: .* so no item is right for any query"):
        tune(small_trunk, tmp_path / "b.toml", data=data, budget={"r1_loss": 0.1})
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough("a whole tuning; the command's own test is in the first tier")
def test_budgets_and_limits_on_labelled_rows_are_of_the_others_of_a_class(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """An item that found itself would have a recall of 1 and lose none of it at 2 bits."""
    labels = np.arange(40) % 8
    centres = np.random.default_rng(0).normal(size=(8, 24))
    noise = np.random.default_rng(1).normal(size=(40, 24))
    data = {"rows": (centres[labels] + 0.9 * noise).astype(np.float32), "labels": labels}
    budget = {"map_loss": 0.1, "r1_loss": 0.2}
    low = {"weight_bits": 4, "activation_bits": 5}  # to have few steps
    found = tune(small_trunk, tmp_path / "bits.toml", data=data, budget=budget, **low)
    assert any(step.kept for step in found.steps)
    assert found.on_all["r1_text_to_video"] < 1
    metrics = verified(small_trunk, found, data, tmp_path)["metrics"]
    assert {name: found.on_all[name] for name in budget} == pytest.approx(
        {name: metrics[name] for name in budget},
        rel=1e-5,
    )
    assert all(metrics[name] <= most for name, most in budget.items())
    assert metrics["map_loss"] != 0  # fewer bits may also gain a little
    for name in budget:
        below = {name: metrics[name] - 1e-3}
        if below[name] > 0:
            with pytest.raises(CheckFailed, match=f"^{name} is "):
                api.verify(tmp_path / "bundle", data, report=tmp_path / "again", max_drift=below)


SMALL = {"weight_bits": 2, "activation_bits": 4, "budget": {"centred_rmse": 99.0}}
"""A search of few choices."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(scope="module")
def searched(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("search")
    tune(small_trunk, place / "bits.toml", folder=place / "whole", **SMALL)
    return place / "whole"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The choices that are compiled and measured in this process."""
    builds, evaluate = list[Any](), PointEvaluator.evaluate_on
    monkeypatch.setattr(
        PointEvaluator, "evaluate_on", lambda s, b, c: builds.append(b) or evaluate(s, b, c)
    )
    return builds


@pytest.mark.thorough("a search twice")
def test_an_interrupted_search_goes_on_where_it_was(
    searched: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
    measured: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep, all_ = PointFolder.keep, len(list((searched / POINTS).iterdir()))

    def stop_after_five(self: PointFolder[Any], *given: Any) -> None:
        if len(list((tmp_path / "cut" / POINTS).glob("*"))) == 5:
            raise KeyboardInterrupt
        keep(self, *given)

    # The settings file is the same, because results name it.
    settings = searched.parent / "bits.toml"
    with monkeypatch.context() as patched:
        patched.setattr(PointFolder, "keep", stop_after_five)
        with pytest.raises(KeyboardInterrupt):
            tune(small_trunk, settings, folder=tmp_path / "cut", **SMALL)
    assert not (tmp_path / "cut" / "results.json").exists()
    del measured[:]
    found = tune(small_trunk, settings, folder=tmp_path / "cut", **SMALL)
    assert (found.resumed, len(measured)) == (5, all_ - 5)
    assert contents(tmp_path / "cut") == contents(searched)
    again = tune(small_trunk, settings, folder=tmp_path / "cut", **SMALL)
    assert (again.resumed, len(measured)) == (all_, all_ - 5)
    assert "tune.html" in terminal(again.of_this_run())
    assert again.to_json() == found.to_json() == tune(small_trunk, settings, **SMALL).to_json()


@pytest.mark.thorough("a search twice")
def test_workers_measure_the_same(searched: Path, small_trunk: DemoFiles, tmp_path: Path) -> None:
    settings = searched.parent / "bits.toml"
    tune(small_trunk, settings, folder=tmp_path / "two", jobs=2, **SMALL)
    assert contents(tmp_path / "two") == contents(searched)
    with pytest.raises(CimError, match="jobs and dask are both given"):
        tune(small_trunk, settings, jobs=2, dask="tcp://127.0.0.1:1", **SMALL)


@pytest.mark.thorough("a whole search; a smaller one is in the snapshots")
def test_another_budget_uses_what_was_measured_and_a_damaged_choice_is_not(
    searched: Path, small_trunk: DemoFiles, tmp_path: Path, measured: list[Any]
) -> None:
    folder, settings = tmp_path / "folder", tmp_path / "bits.toml"
    shutil.copytree(searched, folder)
    files = sorted((folder / POINTS).iterdir())
    files[0].write_bytes(files[0].read_bytes()[:-40])
    values = read_sealed(files[1])
    del values["sha256"], values["held_out"]["metrics"]["centred_rmse"]
    files[1].write_text(sealed_text(values))
    found = tune(small_trunk, settings, folder=folder, **SMALL)
    assert (found.resumed, len(measured)) == (len(files) - 2, 2)
    assert [f.read_bytes() for f in files] == [
        f.read_bytes() for f in sorted((searched / POINTS).iterdir())
    ]
    del measured[:]
    wide = {**SMALL, "budget": {"centred_rmse": 999.0}}
    assert tune(small_trunk, settings, folder=folder, **wide).resumed == len(files)
    assert not measured
    values = read_sealed(files[0])
    del values["sha256"], values["on_all"]["metrics"]["r1_loss"]
    files[0].write_text(sealed_text(values))
    other = {**SMALL, "budget": {"centred_rmse": 999.0, "r1_loss": 1.0}}
    assert tune(small_trunk, settings, folder=folder, **other).resumed == len(files) - 1
    assert len(measured) == 1


@pytest.mark.thorough("a whole search; sweeps refuse the same in the first tier")
def test_a_folder_of_another_tuning_or_experiment_is_refused(
    searched: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        data = {name: rows[:30] for name, rows in held.items()}
    before = contents(searched)
    with pytest.raises(CimError, match="holds a tuning with another evaluation data; expected a"):
        tune(small_trunk, tmp_path / "bits.toml", folder=searched, **SMALL, data=data)
    assert contents(searched) == before
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(CimError, match="exists and holds no tuning, so nothing is written there"):
        tune(small_trunk, tmp_path / "bits.toml", folder=tmp_path, **SMALL)
    assert set(contents(tmp_path)) == {"sweep.json"}
