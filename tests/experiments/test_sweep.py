"""The walk of a sweep: shared work once, points kept as they come, independent results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.folders import POINTS, read_sealed, sealed_text
from cimtool.demo.data import DemoFiles
from cimtool.experiments import compiled, references
from cimtool.experiments.compiled import PointEvaluator
from cimtool.experiments.dies import die_request
from cimtool.experiments.engine import PointFolder, PointsFailed
from cimtool.experiments.references import REFERENCES, SweepReferences
from cimtool.experiments.sweep import Sweep
from cimtool.loading.embeddings import embeddings_in
from cimtool.report.terminal import terminal
from cimtool.simulation.simulator import Simulator
from cimtool.verification.stages import encode, real_means

RunSweep = Callable[..., Sweep]
GRID = {"weight_bits": [4, 8], "adc_bits": [4, 8]}


@pytest.fixture(scope="module")
def swept(sweep_small: RunSweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_small(tmp_path_factory.mktemp("sweeps") / "four", GRID)


def folder_of(sweep: Sweep) -> Path:
    return sweep.written[0].parent


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.thorough("a sweep beside a compilation")
def test_a_point_is_what_compile_makes(swept: Sweep, small_trunk: DemoFiles) -> None:
    files = small_trunk
    compiled = api.prepare(
        files.projectors, files.poly, calibration=files.calibration,
        target="isaac-rram-128", weight_bits=4, adc_bits=8,
    )  # fmt: skip
    data, program = embeddings_in(files.eval), compiled.stages[-1].program
    scores, head = Simulator(program).scores(data.text, data.video), compiled.model.head
    means = real_means(program, encode(Simulator(program), data))
    file = folder_of(swept) / REFERENCES
    references = SweepReferences.of_file(swept.reference, data.truth, file)
    assert references is not None
    assert swept.points[1].named == {"weight_bits": 4, "adc_bits": 8}
    assert swept.outcomes[1].metrics == references.metrics(
        references.measured(scores, *means, head)
    )
    low, high = swept.outcomes[1].intervals["r1_loss"]
    assert low <= swept.outcomes[1].metrics["r1_loss"] <= high
    assert set(compiled.notes) == set(swept.outcomes[1].notes)
    plan = api.cost(
        compiled.write(folder_of(swept).parent / "bundle").folder, gallery=scores.shape[1]
    )
    assert swept.outcomes[1].cost["arrays"] == plan.floorplan.arrays
    assert plan.query is not None
    assert swept.outcomes[1].cost["energy_pj"] == plan.query.energy_pj.value


@pytest.mark.thorough("more of the same kind")
def test_a_score_in_the_memory_holds_the_evaluation_videos(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = small_trunk
    grid = {"score_mapping": ["digital", "in-memory", "hybrid"], "adc_bits": [3]}
    digital, memory, hybrid = sweep_small(tmp_path / "s", grid).outcomes
    assert hybrid.metrics["logit_rmse"] == digital.metrics["logit_rmse"]
    assert hybrid.cost["arrays"] > digital.cost["arrays"]
    made = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        output=tmp_path / "made", score_mapping="in-memory", adc_bits=3,
    )  # fmt: skip
    programmed = api.program(made.folder, files.eval, output=tmp_path / "programmed").bundle
    file, changed = (tmp_path / "s" / name for name in (REFERENCES, "changed.safetensors"))
    data = embeddings_in(files.eval)
    references = SweepReferences.of_file("exact", data.truth, file)
    assert references is not None
    content = file.read_bytes()
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert SweepReferences.of_file("exact", data.truth, changed) is None
    save_file({"floats": torch.zeros(2, dtype=torch.float8_e4m3fn)}, changed)
    assert SweepReferences.of_file("exact", data.truth, changed) is None
    scores, head = api.simulate(programmed.folder, files.eval)["scores"], programmed.model.head
    means = real_means(programmed.program, encode(Simulator(programmed.program), data))
    assert memory.metrics == references.metrics(references.measured(scores, *means, head))
    assert memory.metrics != digital.metrics
    assert memory.cost["arrays"] == api.cost(programmed.folder).floorplan.arrays
    assert memory.cost["arrays"] > digital.cost["arrays"]


@pytest.mark.thorough("more of the same kind")
def test_bits_of_the_products_of_a_score_in_the_memory(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """A point is what compile, program and cost make of the same settings."""
    key, files = 'layers."score.s.*".weight_bits', small_trunk
    grid = {"score_mapping": ["in-memory"], "adc_bits": ["lossless"], key: [0, 4, 16]}
    left_out, four, whole = sweep_small(tmp_path / "s", grid).outcomes
    cells = [one.cost["conversions"] + one.cost["cells"] for one in (left_out, four, whole)]
    assert cells == sorted(cells)
    assert cells[0] < cells[2]
    (tmp_path / "own.toml").write_text('[layers."score.s.*"]\nweight_bits = 4\n')
    made = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        output=tmp_path / "made", settings=tmp_path / "own.toml", score_mapping="in-memory",
        adc_bits="lossless",
    )  # fmt: skip
    programmed = api.program(made.folder, files.eval, output=tmp_path / "programmed").bundle
    report = api.verify(programmed.folder, files.eval, report=tmp_path / "report").to_json()
    assert report["metrics"]["r1_loss"] == pytest.approx(four.metrics["r1_loss"])
    assert four.cost["arrays"] == api.cost(programmed.folder).floorplan.arrays
    assert whole.metrics["logit_rmse"] != four.metrics["logit_rmse"]


def test_the_reference_is_the_exact_score(swept: Sweep) -> None:
    assert swept.reference == "exact"
    assert list(swept.baselines) == ["polynomial", "Monte Carlo (K=10)", "raw rows, int8"]
    assert swept.baselines["polynomial"]["float_rmse"] == 0
    assert swept.baselines["polynomial"]["logit_rmse"] > 0
    drifts = [outcome.metrics["logit_rmse"] for outcome in swept.outcomes]
    assert len(set(drifts)) == len(drifts), "settings that change nothing would say nothing"


def test_results_are_the_same_in_several_processes_and_after_a_stop(
    swept: Sweep, sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_small(tmp_path / "two", GRID, jobs=2)
    keep = PointFolder.keep

    def stop_after_two(self: PointFolder, *arguments: Any) -> None:
        if len(list((self.path / POINTS).glob("*"))) == 2:
            raise KeyboardInterrupt
        keep(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(PointFolder, "keep", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            sweep_small(tmp_path / "stopped", GRID)
    computed = []
    with monkeypatch.context() as patched:
        evaluate = PointEvaluator.evaluate
        patched.setattr(PointEvaluator, "evaluate", lambda *a: computed.append(a) or evaluate(*a))
        patched.setattr(references, "references", None)  # those of the first run must do
        resumed = sweep_small(tmp_path / "stopped", GRID)
        assert (len(computed), resumed.resumed) == (2, 2)
        again = sweep_small(tmp_path / "stopped", GRID)
        assert (len(computed), again.resumed) == (2, 4)
    expected = contents(folder_of(swept))
    assert len(expected) == 5 + 4
    assert contents(tmp_path / "two") == expected
    assert contents(tmp_path / "stopped") == expected


@pytest.mark.thorough("more of the same kind")
def test_a_wider_grid_goes_on_in_the_same_folder(swept: Sweep, sweep_small: RunSweep) -> None:
    wider = sweep_small(folder_of(swept).parent / "wider", {"weight_bits": [8]})
    wider = sweep_small(folder_of(wider), {"weight_bits": [8, 6], "adc_bits": [8]})
    assert (wider.resumed, len(wider.points)) == (1, 2), "8 bits are the target's own"


@pytest.mark.thorough("a sweep more")
@pytest.mark.parametrize("forged", [None, "much"], ids=["lacks", "word"])
def test_a_sealed_point_of_other_costs_is_computed_anew(
    sweep_small: RunSweep, tmp_path: Path, forged: str | None
) -> None:
    first = sweep_small(tmp_path / "s", {"weight_bits": [8]})
    (file,) = (folder_of(first) / POINTS).glob("*.json")
    whole, values = file.read_bytes(), read_sealed(file)
    values["cost"] |= {"energy_pj": forged}
    if forged is None:
        del values["cost"]["energy_missing"]
    file.write_text(sealed_text(values))
    again = sweep_small(folder_of(first), {"weight_bits": [8]})
    assert (again.resumed, again.failed) == (0, 0)
    assert file.read_bytes() == whole


@pytest.mark.thorough("kills a real sweep")
def test_a_killed_sweep_goes_on_where_it_was(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    grid = {"weight_bits": [4, 6, 8], "calibrator": ["minmax", "percentile"]}
    texts = [f"{key}={','.join(map(str, values))}" for key, values in grid.items()]
    command = [
        sys.executable, "-m", "cimtool", "sweep", "--projectors", small_trunk.projectors,
        "--poly", small_trunk.poly, "--calibration", small_trunk.calibration,
        "--data", small_trunk.eval, "--target", "isaac-rram-128", "--jobs", "2",
        "-o", tmp_path / "sweep", "--grid", texts[0], "--grid", texts[1],
    ]  # fmt: skip
    with subprocess.Popen([*map(str, command)], start_new_session=True) as process:
        deadline = time.monotonic() + 100
        while not list((tmp_path / "sweep" / POINTS).glob("*.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    kept = {file: file.read_bytes() for file in (tmp_path / "sweep" / POINTS).glob("*.json")}
    assert 0 < len(kept) < 6
    resumed = sweep_small(tmp_path / "sweep", grid)
    assert (resumed.resumed, resumed.failed) == (len(kept), 0)
    assert not list((tmp_path / "sweep").glob(".*")), "what the killed run left is gone"
    assert {file: file.read_bytes() for file in kept} == kept


@pytest.mark.thorough("the command's own test is in the first tier")
def test_failed_points_are_told_and_the_others_go_on(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"encoding": ["offset-flip", "twos-complement"], "accumulator_bits": [32, 8]}
    with pytest.raises(PointsFailed, match="sweep: 3 of 4 points failed") as caught:
        sweep_small(tmp_path / "sweep", grid)
    assert caught.value.exit_status == 1
    found = caught.value.found
    errors = [outcome.error for outcome in found.outcomes]
    assert errors[0] is None
    assert "accumulator_bits" in str(errors[1]) or "accumulator" in str(errors[1])
    assert 'encoding = "twos-complement" adds digitally' in str(errors[2])
    values = json.loads((tmp_path / "sweep" / "results.json").read_text())
    assert [point["state"] for point in values["points"]] == ["done", *["failed"] * 3]
    files = list((tmp_path / "sweep" / POINTS).iterdir())
    assert len(files) == 2, "what contradicts itself was never begun"

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(compiled, "estimate", broken)
    with pytest.raises(PointsFailed) as caught:
        sweep_small(tmp_path / "faulty", {"weight_bits": [4]})
    assert caught.value.found.outcomes[0].error == (
        "a fault in cimtool itself (RuntimeError: broken)"
    )
    monkeypatch.undo()
    assert sweep_small(tmp_path / "faulty", {"weight_bits": [4]}).failed == 0, "it is tried again"


@pytest.mark.parametrize("what", ["evaluation data", "calibration data", "model", "reference"])
def test_a_folder_of_another_sweep_is_refused(
    what: str, swept: Sweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = small_trunk
    with np.load(files.eval) as held:
        data = {name: held[name] for name in held.files}
    with np.load(files.calibration) as held:
        calibration = {name: held[name] for name in held.files}
    options: dict[str, Any] = {}
    if what == "evaluation data":
        data = {name: rows[:30] for name, rows in data.items()}
    elif what == "calibration data":
        calibration = {name: rows[:90] for name, rows in calibration.items()}
    elif what == "model":
        options["a"] = 0.2
    else:
        poly = json.loads(files.poly.read_text())
        options["poly"] = tmp_path / "poly.json"
        options["poly"].write_text(json.dumps({**poly, "a": None, "b": None}))
    before = contents(folder_of(swept))
    named = "model" if what == "reference" else what
    with pytest.raises(CimError, match=f"four: holds a sweep with another {named}; expected a new"):
        api.sweep(
            files.projectors, **{"poly": files.poly, **options}, calibration=calibration,
            data=data, grid=GRID, target="isaac-rram-128", output=folder_of(swept),
        )  # fmt: skip
    assert contents(folder_of(swept)) == before


def test_a_folder_of_something_else_is_refused(sweep_small: RunSweep, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CimError, match="exists and holds no sweep, so nothing is written there"):
        sweep_small(tmp_path, {"weight_bits": [4]})
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_layers_that_the_model_lacks_are_refused_first(
    sweep_small: RunSweep, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=r'grid layers."text.nope".weight_bits: matches no layer'):
        sweep_small(tmp_path / "s", {'layers."text.nope".weight_bits': [4]})
    assert not (tmp_path / "s").exists()


@pytest.mark.thorough("more of the same kind")
def test_files_of_an_earlier_grid_and_budget_go(sweep_small: RunSweep, tmp_path: Path) -> None:
    budget = {"logit_rmse": 100.0}
    sweep_small(tmp_path, {"target.rows_active": [64]}, budget=budget)
    assert (tmp_path / "chosen-target.toml").is_file()
    sweep_small(tmp_path, {"weight_bits": [8]}, budget=budget, table="parquet")
    assert not (tmp_path / "chosen-target.toml").exists()
    assert {file.name for file in tmp_path.glob("results.*")} == {"results.json", "results.parquet"}


@pytest.mark.thorough("a sweep more")
def test_no_comparable_cost_names_no_point(sweep_small: RunSweep, tmp_path: Path) -> None:
    grid = {"array": ["64x64", "128x128"]}
    found = sweep_small(tmp_path, grid, target="ideal", budget={"logit_rmse": 100.0})
    assert found.to_json()["budget"] == {
        "limits": {"logit_rmse": 100.0}, "min_yield": None, "point": None, "cheapest_by": None,
        "within": 2, "command": None,
    }  # fmt: skip
    assert "2 points within logit_rmse=100: none is named, because no cost" in terminal(
        found.document()
    )


def test_calibration_rows_are_not_evaluated(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=r"96 of its 96 text rows .* calibration_rows drop or allow"):
        sweep_small(tmp_path / "s", {"weight_bits": [4]}, data=small_trunk.calibration)
    assert not (tmp_path / "s").exists()
    one = {"text": np.ones((1, 24), np.float32), "video": np.ones((1, 24), np.float32)}
    with pytest.raises(CimError, match="text has 1 row; expected at least 2"):
        sweep_small(tmp_path / "s", {"weight_bits": [4]}, data=one)
    found = sweep_small(
        tmp_path / "s", {"weight_bits": [4]}, data=small_trunk.calibration,
        calibration_rows="allow",
    )  # fmt: skip
    assert found.failed == 0


@pytest.mark.thorough("more of the same kind")
def test_dies_are_drawn_where_there_is_noise(sweep_small: RunSweep, tmp_path: Path) -> None:
    grid = {"target": ["ideal", "hermes-pcm-14nm"]}
    options = {"trials": 3, "times": ["1h", "1y"]}
    found = sweep_small(tmp_path / "one", grid, **options)
    quiet, noisy = found.outcomes
    assert quiet.dies == ()
    assert 'target "ideal" has no [noise], so no dies were drawn' in quiet.notes
    assert [one["time"] for one in noisy.dies] == ["1 h", "1 y"]
    for one in noisy.dies:
        assert one["logit_rmse"]["worst"] > one["logit_rmse"]["median"]
        assert one["r1_loss"]["worst"] >= one["r1_loss"]["median"]
        assert one["r1_text_to_video"]["worst"] <= one["r1_text_to_video"]["median"]
    early, late = (one["logit_rmse"]["median"] for one in noisy.dies)
    assert noisy.metrics["logit_rmse"] < early < late
    again = sweep_small(tmp_path / "two", grid, **options, jobs=2)
    assert again.outcomes == found.outcomes
    other = sweep_small(tmp_path / "one", grid, **options, seed=1)
    assert other.outcomes[1].dies != noisy.dies


@pytest.mark.thorough("a sweep more")
def test_a_time_that_a_noise_does_not_know_is_a_note(sweep_small: RunSweep, tmp_path: Path) -> None:
    grid = {"target": ["neurram-rram-130nm"]}
    found = sweep_small(tmp_path / "s", grid, trials=1, times=["7y"])
    (outcome,) = found.outcomes
    assert outcome.dies == ()
    assert any("no dies were drawn: time is 7y" in note for note in outcome.notes)


@pytest.mark.parametrize(
    ("trials", "times", "seed", "message"),
    [
        (None, ["1h"], 0, "times applies only to dies; expected trials"),
        (0, [], 0, "trials is 0; expected 1 to"),
        (2, ["1x"], 0, "time is 1x; expected a time"),
        (2, ["60m", "1h"], 0, "repeats"),
        (2, [], -1, "seed is -1"),
    ],
)
def test_a_wrong_request_of_dies_is_refused(
    trials: int | None, times: list[str], seed: int, message: str
) -> None:
    with pytest.raises(CimError, match=message):
        die_request(trials, times, seed)


def test_no_point_within_the_budget_is_a_failed_check(swept: Sweep, sweep_small: RunSweep) -> None:
    with pytest.raises(PointsFailed, match=r"no point is within the budget logit_rmse=1e-09"):
        sweep_small(
            folder_of(swept).parent / "b", {"weight_bits": [4]}, budget={"logit_rmse": 1e-9}
        )


def alone(files: DemoFiles, labelled: bool) -> dict[str, Any]:
    """The small model's evaluation texts as items of one modality, in classes of two near ones."""
    with np.load(files.eval) as held:
        rows = held["text"]
    near = rows + 0.7 * np.random.default_rng(0).normal(size=rows.shape)
    values = {"rows": np.concatenate([rows, near]).astype(np.float32)}
    return values | ({"labels": np.tile(np.arange(len(rows)), 2)} if labelled else {})


@pytest.mark.thorough("a sweep more; reports of such items are in the first tier")
def test_items_of_one_modality_do_not_find_themselves(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files, data = small_trunk, alone(small_trunk, labelled=True)
    found = sweep_small(tmp_path / "s", {"weight_bits": [8]}, data=data)
    score, *_ = api.evaluate(data, files.projectors, poly=files.poly, resamples=2).scores
    for way in ("text_to_video", "video_to_text"):
        for name in ("r1", "map"):
            key = f"{name}_{way}"
            assert found.baselines["polynomial"][key] == score.metrics[key]
    assert found.outcomes[0].metrics["map_loss"] < 0.1


def test_items_without_labels_have_no_retrieval(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    data = alone(small_trunk, labelled=False)
    found = sweep_small(tmp_path / "s", {"weight_bits": [8]}, data=data, trials=2)
    assert found.outcomes[0].metrics["logit_rmse"] > 0
    assert "r1_loss" not in found.outcomes[0].metrics
    assert "RMSE" in terminal(found.document(), verbose=True)
    with pytest.raises(CimError, match=r"budget r1_loss: .* holds items of one modality"):
        sweep_small(tmp_path / "t", {"weight_bits": [8]}, data=data, budget={"r1_loss": 0.1})
    assert not (tmp_path / "t").exists()


@pytest.mark.thorough("two sweeps")
def test_judgements_say_what_is_right_and_make_another_sweep(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    qrels, folder, grid = tmp_path / "q.txt", tmp_path / "sweep", {"weight_bits": [8]}
    qrels.write_text("".join(f"{i} 0 {j} 2\n" for i in range(30) for j in (i, 39 - i)))
    (judged,) = sweep_small(folder, grid, qrels=qrels).outcomes
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="isaac-rram-128", output=tmp_path / "b", weight_bits=8,
    )  # fmt: skip
    (score, *_) = api.evaluate(small_trunk.eval, bundle.folder, qrels=qrels, resamples=2).scores
    for way in ("text_to_video", "video_to_text"):
        for name in ("r1", "map", "ndcg10"):
            key = f"{name}_{way}"
            assert judged.metrics[key] == score.metrics[key]
    with pytest.raises(CimError, match="holds a sweep with another evaluation data"):
        sweep_small(folder, grid)
