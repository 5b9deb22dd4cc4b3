"""Bounds of scores: measured on held-out pairs, told in a report, proved for all inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.ir.arithmetic import Clip, scalar
from cimtool.ir.program import Graph
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.reference.conformal import independent_pairs, rank_margins
from cimtool.report.terminal import terminal
from cimtool.simulation.simulator import Simulator
from cimtool.verification.bounds import measure_bounds, rounded_up, worst_case
from cimtool.verification.options import DriftOptions
from cimtool.verification.report import report_schema
from cimtool.verification.run import verify_bundle

from .conftest import MakeBundle, pairs


def scores_of(bundle: Bundle, data: Embeddings, stage: str = "trained") -> list[np.ndarray]:
    """Compiled scores, and those of a stage in real numbers."""
    before = next(one.program for one in bundle.stages if one.name == stage)
    found = []
    for program in (bundle.program, before):
        one = Simulator(program)
        found.append(one.score(one.encode("text", data.text), one.encode("video", data.video)))
    return found


def test_bounds_are_order_statistics_of_errors_of_the_drawn_pairs(
    bundle: Bundle, data: Embeddings
) -> None:
    compiled, trained = scores_of(bundle, data)
    found = measure_bounds(bundle, data, compiled, 0.9, seed=3)
    drawn, errors = independent_pairs(data.truth, 3), np.abs(compiled - trained)
    random = np.sort([errors[t, v] for t, v in drawn.random])
    right = np.sort([errors[t, v] for t, v in drawn.right])
    margins = np.sort(rank_margins(compiled[drawn.texts], trained[drawn.texts]))
    assert (found.random.units, found.random.bound) == (20, random[19 - 1])  # ceil(0.9 * 21)
    assert found.right is not None
    assert (found.right.units, found.right.bound) == (40, right[37 - 1])  # ceil(0.9 * 41)
    assert (found.ranks.units, found.ranks.bound) == (40, margins[37 - 1])
    assert found.largest == errors.max()


def test_the_report_states_the_bounds(bundle: Bundle, data: Embeddings, tmp_path: Path) -> None:
    report = verify_bundle(bundle, data, options=DriftOptions(bound=0.9), folder=tmp_path)
    found = report.sections["bounds"]
    values = json.loads((tmp_path / "report.json").read_text())
    assert list(Draft202012Validator(report_schema()).iter_errors(values)) == []
    told = values["sections"]["bounds"]
    assert told["bundle"] == bundle.manifest["sha256"]
    for name in ("random", "right", "ranks"):
        bound = getattr(found, name).bound
        assert bound <= told[name]["bound"] <= bound * (1 + 1e-5)
    shown = terminal(report.document(), verbose=True)
    assert "90% of the pairs of a new text and a new video err at most" in shown
    assert "wider than all scores measured" in terminal(report.document(), verbose=True)


def test_without_the_option_the_report_has_no_bounds(bundle: Bundle, data: Embeddings) -> None:
    assert "bounds" not in verify_bundle(bundle, data).sections


def test_items_of_one_modality_have_no_right_pairs(bundle: Bundle, data: Embeddings) -> None:
    alone = replace(data, alone=True, video=data.text)
    compiled, _ = scores_of(bundle, alone)
    found = measure_bounds(bundle, alone, compiled, 0.9, seed=0)
    assert found.right is None
    assert found.random.units == 20
    assert found.ranks.bound < found.score_range  # no item was ranked against itself


@pytest.mark.parametrize("bound", [0.0, 1.0, 95.0, -0.5, float("nan")])
def test_a_bound_is_a_share(bound: float, bundle: Bundle, data: Embeddings) -> None:
    with pytest.raises(CimError, match=r"bound is .*; expected a share above 0 and below 1"):
        verify_bundle(bundle, data, options=DriftOptions(bound=bound))


def test_rows_of_the_calibration_give_no_bound(bundle: Bundle) -> None:
    seen = embeddings_of(pairs(64), "pairs")
    said = "expected unseen rows, which bound is for, or calibration_rows drop"
    with pytest.raises(CimError, match=said):
        verify_bundle(bundle, seen, options=DriftOptions(bound=0.9, calibration_rows="allow"))


def test_too_few_rows_are_refused(bundle: Bundle, data: Embeddings) -> None:
    said = (
        "bound 0.99 takes 99 pairs that share no row; pairs has 20: expected 198 right pairs or "
        "more, or a lower bound"
    )
    with pytest.raises(CimError, match=said):
        verify_bundle(bundle, data, options=DriftOptions(bound=0.99))


def score_graphs(bundle: Bundle) -> tuple[Graph, Graph]:
    """The score in multiply-accumulates, and compiled."""
    lowered = next(one.program for one in bundle.stages if one.name == "lowered")
    return lowered.score, bundle.program.score


MAKES: dict[str, Callable[[MakeBundle], Bundle]] = {
    "polynomial": lambda make: make("bounded"),
    "csd": lambda make: make("csd", polynomial=None, head="csd", a=0.1, b=0.0),
    "cosine": lambda make: make("cosine", polynomial=None, head="cosine"),
    "4 bits": lambda make: make("few", target="isaac-rram-128", weight_bits=4, adc_bits=6),
}


@pytest.fixture(scope="module", params=MAKES)
def limited(request: pytest.FixtureRequest, make_bundle: MakeBundle) -> Bundle:
    return MAKES[request.param](make_bundle)


@pytest.mark.thorough("one make stands for the others", quick=("4 bits",))
@given(seed=st.integers(0, 1 << 20), size=st.sampled_from([0.0, 0.3, 1.0, 5.0, 100.0, 1e6]))
def test_the_worst_case_is_never_broken(limited: Bundle, seed: int, size: float) -> None:
    """Not by rows far beyond the calibration's either."""
    rows = pairs(12, seed=seed)
    data = embeddings_of({name: size * one for name, one in rows.items()})
    compiled, lowered = scores_of(limited, data, "lowered")
    worst = worst_case(*score_graphs(limited))
    assert worst is not None
    assert np.abs(compiled - lowered).max() <= worst


def test_a_score_that_nothing_limits_has_no_worst_case(bundle: Bundle) -> None:
    lowered, compiled = score_graphs(bundle)
    endless = replace(
        lowered,
        nodes=tuple(
            replace(node, op=Clip(scalar(-np.inf), scalar(np.inf)))
            if isinstance(node.op, Clip)
            else node
            for node in lowered.nodes
        ),
    )
    assert worst_case(endless, compiled) is None


@given(value=st.floats(0, 1e12), digits=st.integers(1, 8))
def test_numbers_are_rounded_up(value: float, digits: int) -> None:
    found = rounded_up(value, digits)
    assert value <= found <= value * (1 + 10.0 ** (1 - digits)) + 1e-300
    assert found == float(f"{found:.{digits}g}")


def test_new_rows_keep_the_bounds(make_bundle: MakeBundle) -> None:
    """Of 400 new random pairs about 360 do at 90%; fewer than 320 are a chance of 1e-4."""
    bundle = make_bundle("covered", target="isaac-rram-128", weight_bits=4)
    known, new = (embeddings_of(pairs(800, seed=seed), "pairs") for seed in (21, 22))
    found = measure_bounds(bundle, known, scores_of(bundle, known)[0], 0.9, seed=0)
    compiled, trained = scores_of(bundle, new)
    drawn = independent_pairs(new.truth, 0)
    errors = np.abs(compiled - trained)[drawn.random[:, 0], drawn.random[:, 1]]
    assert 320 <= np.count_nonzero(errors <= found.random.bound) < 400


@pytest.mark.thorough("two bundles more; the command's own test is in the first tier")
def test_files_of_bounds_are_of_the_bundle(
    bundle: Bundle, make_bundle: MakeBundle, data: Embeddings, tmp_path: Path
) -> None:
    verify_bundle(bundle, data, options=DriftOptions(bound=0.9), folder=tmp_path)
    file = tmp_path / "report.json"
    other = make_bundle("other", weight_bits=5)
    rows = {"text": data.text, "video": data.video}
    with pytest.raises(CimError, match="its bounds are of another bundle than"):
        api.simulate(other.folder, rows, bounds=file)
    bounds = json.loads(file.read_text())["sections"]["bounds"]
    for key, value, said in (
        ("random", None, "random of its bounds is no table"),
        ("ranks", {"bound": -1.0}, "bound of its bounds is -1.0"),
        ("videos", 0, "videos of its bounds is 0"),
        ("confidence", "0.9", "confidence of its bounds is '0.9'"),
    ):
        changed = tmp_path / "changed.json"
        changed.write_text(json.dumps({"sections": {"bounds": bounds | {key: value}}}))
        with pytest.raises(CimError, match=said):
            api.simulate(bundle.folder, rows, bounds=changed)
    verify_bundle(bundle, data, folder=tmp_path)
    with pytest.raises(CimError, match="holds no bounds; expected the report of `verify` with"):
        api.simulate(bundle.folder, rows, bounds=file)
