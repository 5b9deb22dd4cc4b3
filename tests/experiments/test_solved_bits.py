"""Bits from an integer programme: their error, their cost, and goals that nothing reaches."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from target_files import eight_bits_at_most

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.base.progress import Say, silent
from cimtool.bundle.bit_choice import DriftGoal
from cimtool.bundle.compilation import Compilation
from cimtool.demo.data import DemoFiles
from cimtool.experiments import solved_bits
from cimtool.experiments.drift_goals import ErrorWithin, GoalError, Half, LeastError, kept
from cimtool.experiments.solved_bits import (
    MU,
    MULTIPLIED,
    STORED,
    VARIANCE,
    BitSolver,
    EachRound,
)
from cimtool.experiments.widths import LayerCosts, Width
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Program
from cimtool.loading.embeddings import read_data
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job, Pass
from cimtool.passes.pipeline import compile_program, run_passes

TARGET = "isaac-rram-128"
ROWS = 256


def prepared(files: DemoFiles, drift: str, **options: Any) -> Compilation:
    given = {"calibration": files.calibration, "target": TARGET, "drift": drift}
    return api.prepare(files.projectors, files.poly, **{**given, **options})


def told(found: Compilation) -> list[str]:
    """The sentences on the choice."""
    begin = next(i for i, one in enumerate(found.notes) if one.startswith("bits by drift"))
    return list(found.notes[begin:])


def changed_conversions(costs: str) -> tuple[int, int]:
    """The conversions with the chosen bits, and with those given, of the sentence on costs."""
    found = re.search(r"conversions ([\d,]+) in place of ([\d,]+)", costs)
    assert found is not None
    chosen, given = (int(one.replace(",", "")) for one in found.groups())
    return chosen, given


@pytest.fixture(scope="module")
def search(small_trunk: DemoFiles) -> BitSolver:
    """A search for the least error, after all its rounds."""
    model = ModelSource(small_trunk.projectors, small_trunk.poly).load(silent)
    data = read_data(small_trunk.calibration, model)
    rows = Half.of(model, data)
    start = Configuration.of(TARGET, None, {})
    job = Job(start.settings, rows.text, rows.video, silent, data.file)
    found = BitSolver(model, start, (rows, rows), LeastError(), (job, job))
    found.run(silent)
    return found


def test_the_least_error_costs_no_more_and_is_less(search: BitSolver) -> None:
    found, given = search.found(), search.given
    assert found is not None
    assert found.square < 0.5 * given.square
    assert found.costs.keys() == given.costs.keys() == {
        "arrays", "conversions", "energy", STORED, MULTIPLIED,
    }  # fmt: skip
    for name, cost in given.costs.items():
        assert found.costs[name] <= cost * (1 + 1e-9)


def test_errors_of_parts_add_in_the_mean_square(search: BitSolver) -> None:
    for one in search.rounds:
        assert sum(one.squares.values()) == pytest.approx(one.square, rel=0.6)


def test_no_affordable_change_of_one_width_is_predicted_to_err_less(search: BitSolver) -> None:
    near = search.rounds[-1]
    best = search._solved(near, None)
    assert best is not None

    def error(bits: solved_bits.BitAssignment) -> float:
        return sum(search._latest[width] * 4.0**-own for width, own in bits.items())

    tried = 0
    for width, own in best.items():
        for now in (own - 1, own + 1):
            other = {**best, width: now}
            costs = search._costs(other)
            if abs(now - near.bits[width]) > solved_bits.REACH or not 4 <= now <= 14:
                continue
            if all(costs[name] <= cost for name, cost in search.given.costs.items()):
                tried += 1
                assert error(other) >= error(best) * (1 - 1e-9)
    assert tried > len(best) / 2


def test_compile_takes_the_bits_and_says_what_they_do(small_trunk: DemoFiles) -> None:
    found, given = prepared(small_trunk, "least"), prepared(small_trunk, "given")
    said, costs, bits, *_ = told(found)
    assert said.startswith("bits by drift least: centred_rmse is ")
    assert " pairs of calibration rows that did not choose; with the bits as given it is " in said
    assert costs.startswith("costs of a text and a video: ")
    assert (
        re.search(r"energy [\d,]+ pJ in place of [\d,]+ pJ", costs)
        or "energy" in (costs.partition("the same ")[2])
    )
    assert bits.startswith("bits of weights x inputs, of mu x variance: text.fc1 ")
    assert found.settings.layers
    assert not given.settings.layers


def rows_of(files: DemoFiles, folder: Path, count: int) -> Path:
    """Calibration rows of both modalities, drawn again until there are `count`."""
    place = np.random.default_rng(0).integers(0, 64, count)
    with np.load(files.calibration) as held:
        text, video = (held[m][place] + 1e-3 * np.arange(count)[:, None] for m in held)
    np.savez(folder / "rows.npz", text=text.astype(np.float32), video=video.astype(np.float32))
    return folder / "rows.npz"


@pytest.mark.thorough("a whole search by the default's name")
def test_bits_are_chosen_where_nobody_gives_them(
    small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solved_bits, "ROUNDS", 2)
    rows = rows_of(small_trunk, tmp_path, ROWS)
    settings = tmp_path / "settings.toml"
    settings.write_text('[layers."text.fc1"]\nweight_bits = 8\n')
    chosen = {}
    for name, own in {
        "nothing": {}, "another setting": {"adc_bits": 8}, "bits": {"weight_bits": 8},
        "those of a layer": {"settings": settings}, "given": {"drift": "given"},
    }.items():  # fmt: skip
        options = {"calibration": rows, "target": TARGET} | own
        notes = api.prepare(small_trunk.projectors, small_trunk.poly, **options).notes
        chosen[name] = any(one.startswith("bits by drift least: ") for one in notes)
    assert [name for name, own in chosen.items() if own] == ["nothing", "another setting"]


def test_of_too_few_rows_the_bits_of_the_target_stay(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    rows = rows_of(small_trunk, tmp_path, 31)
    found = api.prepare(small_trunk.projectors, small_trunk.poly, calibration=rows, target=TARGET)
    assert not found.settings.layers
    (said,) = (one for one in found.notes if one.startswith("bits are those of the target: "))
    assert "has 31 texts and 31 videos that calibrate" in said
    assert said.endswith("expected at least 32 of each")


def test_where_no_bits_can_be_chosen_a_note_says_why(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    rows = rows_of(small_trunk, tmp_path, ROWS)
    with np.load(rows) as held:
        one_half = 2 * (np.arange(ROWS) // 2)
        np.savez(rows, **held, text_to_video=one_half)
    found = api.prepare(small_trunk.projectors, small_trunk.poly, calibration=rows, target=TARGET)
    assert any(
        one.startswith("bits are those of the target: drift least") and "at least 32 of" in one
        for one in found.notes
    )


def test_projectors_of_one_modality_keep_the_same_bits(small_trunk: DemoFiles) -> None:
    """Both read the same rows, so that a half is measured alike whichever side it is on."""
    model = ModelSource(small_trunk.projectors, small_trunk.poly).load(silent)
    rows = Half.of(model, read_data(small_trunk.calibration, model))
    start = Configuration.of(TARGET, None, {})
    job = Job(start.settings, rows.text, rows.video, silent)
    found = {}
    for alike in (False, True):
        search = BitSolver(model, start, (rows, rows), LeastError(), (job, job), alike=alike)
        bits = search._solved(search.given, None)
        assert bits is not None
        costs = search._costs(bits)
        assert all(costs[name] <= cost * (1 + 1e-9) for name, cost in search.given.costs.items())
        options = search._options(bits)
        found[alike] = {
            name: tuple(options[f"{side}.{name}"] for side in ("text", "video"))
            for name in ("fc1", "fc2", "mu", "logvar")
        }
        assert bits != search.given.bits
    assert all(text == video for text, video in found[True].values())
    assert any(text != video for text, video in found[False].values())


@pytest.mark.thorough("the same once more")
def test_it_repeats(small_trunk: DemoFiles) -> None:
    one, other = (prepared(small_trunk, "least") for _ in range(2))
    assert one.settings == other.settings
    assert one.notes == other.notes


@pytest.mark.thorough("the other goal, of the same rounds")
def test_the_least_cost_within_an_error(small_trunk: DemoFiles) -> None:
    wide = prepared(small_trunk, "logit_rmse=1.0")
    near = prepared(small_trunk, "logit_rmse=0.1")
    conversions = []
    for limit, found in ((1.0, wide), (0.1, near)):
        said, costs, *_ = told(found)
        assert float(said.split(" is ")[1].split(" ")[0]) <= limit
        choosing = said.split("on those that chose ")[1]
        assert float(choosing.split(", ")[1].split("]")[0]) <= limit
        assert f"(logit_rmse={limit} is {limit:g}; " in said
        chosen, given = changed_conversions(costs)
        conversions.append(chosen)
        assert chosen != given
    assert conversions[0] < conversions[1]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs of all compilations of a search of one round, in their order.

    The passes that no bits change run before, once for each set of rows; they have no source yet.
    """
    found: list[Job] = []

    def noted(passes: Sequence[Pass], program: Program, job: Job, say: Say) -> Any:
        if job.source is not None:
            found.append(job)
        return run_passes(passes, program, job, say)

    monkeypatch.setattr(solved_bits, "ROUNDS", 1)
    monkeypatch.setattr(solved_bits, "run_passes", noted)
    return found


def limited_to(search: BitSolver, limit: float, factor: float = 1.0) -> BitSolver:
    """A search for an error, all calibration rows times a factor."""
    text, video = (
        rows * np.float32(factor) for rows in (search.whole.job.text, search.whole.job.video)
    )
    job = replace(search.whole.job, text=text, video=video)
    criterion = ErrorWithin("logit_rmse", limit)
    return BitSolver(search.model, search.start, search.halves, criterion, (search.trial.job, job))


@pytest.mark.thorough("a compilation of all rows")
def test_a_limit_holds_for_the_model_that_all_rows_make(search: BitSolver) -> None:
    same, wide = limited_to(search, 1.0), limited_to(search, 1.0, factor=16.0)
    for one, other in zip(same.given.errors, wide.given.errors, strict=True):
        assert other.error.value > 2 * one.error.value  # ranges of all rows are too wide


@pytest.mark.thorough("a compilation of all rows")
def test_the_model_of_all_rows_is_compiled_as_the_bundle_will_be(
    small_trunk: DemoFiles, tmp_path: Path, jobs: list[Job]
) -> None:
    with np.load(small_trunk.calibration) as held:
        count = len(held["video"])
        right = np.roll(np.arange(count), 1)[: len(held["text"])]
        np.savez(tmp_path / "pairs.npz", **held, text_to_video=right)
    prepared(small_trunk, "logit_rmse=50", calibration=tmp_path / "pairs.npz")
    half, whole = jobs
    assert half.text_to_video is None
    assert len(half.video) == count // 2
    assert whole.text_to_video is not None
    assert whole.text_to_video.tolist() == right.tolist()
    assert len(whole.video) == count


@pytest.mark.thorough("rounds of a limit")
def test_a_round_that_other_rows_refuse_is_left_for_a_dearer_one(search: BitSolver) -> None:
    """The cheapest round keeps a limit where it was chosen, and is refused by the other rows."""
    limited = limited_to(search, 1.0)
    dear = limited.given
    (here, there), cheap_costs = dear.errors, {k: v / 2 for k, v in dear.costs.items()}
    assert kept(dear.errors)
    refused: GoalError = replace(there, share=Change(1.01, 0.9, 1.1))
    cheap = replace(dear, costs=cheap_costs, errors=(here, refused))
    limited.rounds.append(cheap)
    assert limited.found() is dear
    said = next(limited.notes(DriftGoal.of("logit_rmse=1")))
    assert said.startswith("drift logit_rmse=1: bits at 0.50 times these costs, in the mean, keep")
    limited.rounds[1] = replace(cheap, errors=dear.errors)
    assert limited.found() is limited.rounds[1]


@pytest.mark.thorough("a whole search for another goal")
def test_bits_lose_no_more_answers_than_asked_for(
    small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solved_bits, "ROUNDS", 3)
    rows = rows_of(small_trunk, tmp_path, ROWS)
    found = prepared(small_trunk, "r1_loss=0.1", calibration=rows)
    said, costs, *_ = told(found)
    assert said.startswith("bits by drift r1_loss=0.1: r1_loss is ")
    assert " on 128 x 128 pairs of calibration rows that did not choose (r1_loss=0.1 is 0.1" in said
    chosen, given = changed_conversions(costs)
    assert chosen < given


def test_the_features_share_their_bits_where_the_variance_is_stored(search: BitSolver) -> None:
    found = search.found()
    assert found is not None
    assert search.reads_variance
    mu, variance = found.bits[MU], found.bits[VARIANCE]
    assert mu + variance <= 16
    assert mu * mu + 4 * mu * variance <= 8 * 8 + 4 * 8 * 8


@pytest.mark.thorough(
    "a search to its end before the refusal", quick=("mc=10", "least", "best", "r1_loss")
)
@pytest.mark.parametrize(
    ("drift", "options", "sentence"),
    [
        (
            "logit_rmse=1e-9",
            {},
            r"drift logit_rmse=1e-9: logit_rmse of .* is asked for, and th",
        ),
        ("least", {"score_mapping": "in-memory"}, "drift least: bits are chosen for a digital sc"),
        ("mc=10", {"head": "cosine", "poly": None}, "drift mc=10: Monte Carlo needs a head that"),
        ("best", {}, "drift is best; expected least, given, mc=K"),
        (
            "r1_loss=0.01",
            {},
            r"drift r1_loss=0.01: a loss of 0.07397 may hide from 48 pairs, half of those of .*; "
            r"expected a larger loss, or at least 736 calibration pairs",
        ),
    ],
)
def test_goals_that_cannot_be_are_refused(
    drift: str, options: dict[str, Any], sentence: str, small_trunk: DemoFiles
) -> None:
    given = {"calibration": small_trunk.calibration, "target": TARGET, "drift": drift}
    given |= {"poly": small_trunk.poly} | options
    with pytest.raises(CimError, match=sentence):
        api.prepare(small_trunk.projectors, **given)


def test_few_calibration_rows_are_refused(small_trunk: DemoFiles, tmp_path: Path) -> None:
    with np.load(small_trunk.calibration) as held:
        np.savez(tmp_path / "few.npz", text=held["text"][:31], video=held["video"][:31])
    with pytest.raises(CimError, match=r"31 texts and 31 videos that calibrate.*at least 32 of e"):
        prepared(small_trunk, "least", calibration=tmp_path / "few.npz")


@pytest.mark.thorough("two searches with rounding that learns")
def test_rows_for_which_weights_are_rounded_are_no_rows_that_choose(
    small_trunk: DemoFiles, tmp_path: Path, jobs: list[Job]
) -> None:
    """Half of the rows rounds weights; of the others each quarter has its part."""
    with np.load(small_trunk.calibration) as held:
        count = len(held["text"])
        text = held["text"]
        np.savez(tmp_path / "few.npz", text=text[:63], video=held["video"][:63])
    found = prepared(small_trunk, "least", weight_rounding="gptq")
    for job in jobs:
        np.testing.assert_array_equal(job.text, text[::2])
    assert any(f" on {count // 4} x {count // 4} pairs " in one for one in found.notes)
    with pytest.raises(CimError, match="a quarter of them chooses the bits; expected at least 64"):
        prepared(small_trunk, "least", weight_rounding="gptq", calibration=tmp_path / "few.npz")


@pytest.mark.thorough("rounds a model's weights by `gptq` four times, which takes seconds")
def test_rounds_share_gradients_and_are_the_same_as_each_alone(search: BitSolver) -> None:
    settings = search.start.settings.model_copy(update={"weight_rounding": "gptq"})
    job, program = replace(search.trial.job, settings=settings), search.model.program
    rounds = EachRound(program, job)
    for bits in (8, 5):
        own = settings.model_copy(update={"weight_bits": bits, "activation_bits": bits + 1})
        alone = compile_program(program, replace(job, settings=own), silent)[-1].program
        shared = rounds.compiled(own)[-1].program
        for graph, other in zip(alone.graphs, shared.graphs, strict=True):
            layers, others = (one.operations(CrossbarMvm) for one in (graph, other))
            assert layers.keys() == others.keys()
            for name, layer in layers.items():
                np.testing.assert_array_equal(layer.weight, others[name].weight)
                np.testing.assert_array_equal(layer.scale, others[name].scale)


@pytest.mark.thorough("rounds a model's weights by `gptq` twice, which takes seconds")
def test_weights_err_more_on_rows_that_did_not_round_them(search: BitSolver) -> None:
    """The rows that rounded tell too little of the weights, and nothing wrong of the inputs."""
    settings = search.start.settings.model_copy(update={"weight_rounding": "gptq"})
    start, rows = replace(search.start, settings=settings), search.rows
    seen, unseen = (replace(rows, text=rows.text[k::2], video=rows.video[k::2]) for k in (0, 1))
    job = replace(search.whole.job, text=seen.text, video=seen.video)
    squares = [
        BitSolver(search.model, start, (part, part), LeastError(), (job, job)).given.squares
        for part in (seen, unseen)
    ]
    growth = {}
    for key in ("weight_bits", "activation_bits"):
        before, after = (sum(v for width, v in one.items() if width.key == key) for one in squares)
        growth[key] = after / before
    assert growth["weight_bits"] > 1.25 * growth["activation_bits"]


def test_bits_that_cannot_be_bettered_are_kept(search: BitSolver) -> None:
    jobs = search.trial.job, search.whole.job
    only = BitSolver(search.model, search.start, search.halves, LeastError(), jobs)
    found = only.found()
    assert found is only.given
    assert only.configured(found.bits) is search.start
    said = next(only.notes(DriftGoal.of("least")))
    assert said.startswith(
        "drift least: no bits do better than those given, which are kept; centred_rmse is "
    )
    assert not any(one.startswith("costs") for one in only.notes(DriftGoal.of("least")))


@pytest.mark.thorough("a whole search on another target")
def test_weights_get_only_bits_that_their_code_has(small_trunk: DemoFiles) -> None:
    own = {"target": "dcim-28nm-isscc22", "encoding": "mxfp", "weight_bits": 6}
    found = prepared(small_trunk, "least", **own)
    layers = [one for one in found.settings.layers if one.weight_bits is not None]
    assert layers
    assert {one.weight_bits for one in layers} <= {4, 6}
    costs = LayerCosts.of(found.stages[-1].program, Configuration.of(own.pop("target"), None, own))
    (first, *_) = costs.layers
    assert costs.below(Width(first, "weight_bits"), 6) == (4,)
    assert costs.below(Width(first, "activation_bits"), 4) == (3, 2)


@pytest.mark.thorough("a whole search on another target")
def test_layers_get_no_more_bits_than_the_hardware_takes(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    def most(target: str | Path) -> int:
        found = prepared(small_trunk, "least", target=target, weight_bits=8, input_bits=8)
        own = [found.settings.of_layer(one) for one in ("text.fc1", "text.fc2", "text.mu")]
        return max(max(one.weight_bits, one.input_bits) for one in own)

    assert most("ideal") > 8
    assert most(eight_bits_at_most(tmp_path)) == 8


def test_the_solver_prints_nothing(
    search: BitSolver, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line on stdout would stand in what a caller reads as JSON."""
    solve = optimize.milp

    def loud(*args: Any, **options: Any) -> Any:
        ctypes.CDLL(None).puts(b"HighsMipSolverData::transformNewIntegerFeasibleSolution")
        return solve(*args, **options)

    monkeypatch.setattr(optimize, "milp", loud)
    assert search._solved(search.given, None) is not None
    assert capfd.readouterr().out == ""
