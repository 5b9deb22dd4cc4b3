"""A gallery in the arrays: the digital score itself where nothing is lost, measured where it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.target import load_target
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import Graph, Program, features_of
from cimtool.ir.surrogate import Polynomial
from cimtool.ir.types import integer
from cimtool.passes import gallery
from cimtool.passes.gallery import (
    COMPONENTS_LAYER,
    distance_graph,
    fit_gallery,
    program_gallery,
    score_layers,
)
from cimtool.passes.pipeline import compile_program
from cimtool.simulation.simulator import Features, Simulator

HEAD = PcmePoly(Polynomial(2, (-0.1, 0.002, 1e-4, -1e-5, 2e-6), 0.3))


@dataclass(frozen=True)
class Compiled:
    """A small program, both sides' integer features and the digital scores of all pairs."""

    program: Program
    text: Features
    video: Features
    digital: Array

    def inputs(self) -> dict[str, Array]:
        return {f"text.{name}": value for name, value in self.text.items()}

    def programmed(self, **flags: object) -> tuple[Graph, Settings]:
        target = str(flags.pop("target", "ideal"))
        own = resolve(load_target(target), None, flags)
        return program_gallery(self.program.score, self.video, own), own


@pytest.fixture(scope="module")
def small(models: SimpleNamespace) -> Compiled:
    return compiled(models)


def compiled(models: SimpleNamespace, **flags: object) -> Compiled:
    job = models.job(*models.data, **flags)
    program = compile_program(models.small, job, lambda text: None)[-1].program
    simulator = Simulator(program)
    text = simulator.encode("text", job.text)
    video = simulator.encode("video", job.video[:31])
    return Compiled(program, text, video, simulator.score(text, video))


def layers(graph: Graph) -> dict[str, CrossbarMvm]:
    return {n.name: n.op for n in graph.nodes if isinstance(n.op, CrossbarMvm)}


ENCODINGS = ("differential", "offset", "offset-flip", "twos-complement")
arrays = st.fixed_dictionaries(
    {
        "encoding": st.sampled_from(ENCODINGS),
        "input_encoding": st.sampled_from(["twos-complement", "offset", "bipolar"]),
        "cell_bits": st.integers(1, 8),
        "dac_bits": st.integers(1, 16),
        "array": st.sampled_from(["3x40", "4x128", "64x64"]),
        "rows_active": st.sampled_from([None, 1, 3]),
        "adc_on": st.sampled_from(["difference", "polarity"]),
        "shift_add": st.sampled_from(["digital", "analog"]),
    }
).filter(
    lambda flags: (
        (flags["adc_on"] == "difference" or flags["encoding"] == "differential")
        and (flags["shift_add"] == "digital" or flags["encoding"] != "twos-complement")
    )
)


@settings(max_examples=examples(40))
@given(flags=arrays)
def test_lossless_arrays_give_the_digital_score(small: Compiled, flags: dict[str, object]) -> None:
    graph, _ = small.programmed(**flags)
    assert tuple(f"score.{name}" for name in layers(graph)) == score_layers(HEAD, "in-memory")
    fast = Simulator(replace(small.program, score=graph)).score(small.text)
    np.testing.assert_array_equal(fast, small.digital)
    np.testing.assert_array_equal(graph.run(small.inputs())["logit"], small.digital)


@pytest.mark.parametrize("bits", [4, 10, 13, 16])
def test_wider_features_take_more_slices(models: SimpleNamespace, bits: int) -> None:
    wide = compiled(models, feature_bits=bits, accumulator_bits=63)
    graph, _ = wide.programmed(accumulator_bits=63, cell_bits=4, encoding="offset")
    np.testing.assert_array_equal(graph.run(wide.inputs())["logit"], wide.digital)
    squares = layers(graph)["s.mu2"]
    values = int(np.abs(squares.weight).max())
    assert squares.crossbar.slices == -(-(values.bit_length() + 1) // 4)


def test_what_is_stored(small: Compiled) -> None:
    graph, _ = small.programmed()
    found = layers(graph)
    mu, s = small.video["mu"], small.video["s"]
    for name, stored in {
        "mu.mu": mu, "mus.mu": mu, "s.s_mu2.s": s, "s.mu2": mu * mu, "mu.mus": mu * s,
    }.items():  # fmt: skip
        np.testing.assert_array_equal(found[name].weight, stored.T, err_msg=name)
    assert set(graph.inputs) == {"text.mu", "text.s", "text.ed_self", "text.vd_self"}
    text = small.text["mu"] ** 2
    driven = Simulator(replace(small.program, score=graph))
    (_, values), *_ = driven.iter_score(small.text, None, ["s.s_mu2.s.query"])
    share = (values["s.s_mu2.s.query"] - text) / np.maximum(small.text["s"], 1)
    assert len(np.unique(share[small.text["s"] > 0])) == 1


def test_one_item_and_equal_items(small: Compiled) -> None:
    first = {name: value[:1] for name, value in small.video.items()}
    equal = {name: np.repeat(value, 3, axis=0) for name, value in first.items()}
    for items, columns in ((first, [0]), (equal, [0, 0, 0])):
        own = resolve(load_target("isaac-rram-128"), None, {})
        graph = program_gallery(small.program.score, items, own)
        assert replace(small.program, score=graph).gallery_items == len(columns)
        found = graph.run(small.inputs())["logit"]
        np.testing.assert_array_equal(found, small.digital[:, columns])


def coarse(small: Compiled, bits: int, **flags: object) -> Graph:
    graph, _ = small.programmed(target="hermes-pcm-14nm", adc_bits=bits, **flags)
    return fit_gallery(graph, small.text)


def test_converters_that_round_cost_less_the_more_bits_they_have(small: Compiled) -> None:
    errors = []
    for bits in (3, 5, 8):
        found = coarse(small, bits).run(small.inputs())["logit"]
        errors.append(float(np.square(found - small.digital).mean()))
    assert errors == sorted(errors, reverse=True)
    assert 0 < errors[-1] < errors[0] < small.digital.var()


def test_the_mean_error_of_each_item_is_taken_off(small: Compiled) -> None:
    graph, _ = small.programmed(target="hermes-pcm-14nm", adc_bits=4)
    fitted = fit_gallery(graph, small.text)
    names = list(layers(fitted))
    assert not all(op.exact for op in layers(fitted).values())
    before, after = (
        next(Simulator(replace(small.program, score=g)).iter_score(small.text, None, names))[1]
        for g in (graph, fitted)
    )
    for name in names:
        assert (np.abs((after[name] - before[name]).mean(axis=0)) <= 0.51).all(), name


def test_steps_from_some_items_hold_for_all(
    small: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "FIT_ITEMS", 5)
    graph = coarse(small, 8, cell_bits=2)
    found = Simulator(replace(small.program, score=graph)).score(small.text)
    np.testing.assert_array_equal(found, graph.run(small.inputs())["logit"])
    error = np.sqrt(np.square(found - small.digital).mean())
    assert error < 0.2 * small.digital.std()


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
@pytest.mark.parametrize("bits", [None, 4])
def test_the_emitted_file_agrees(small: Compiled, level: str, bits: int | None) -> None:
    graph, _ = small.programmed(target="isaac-rram-128", adc_bits=bits or "lossless")
    graph = fit_gallery(graph, small.text)
    session = Session(file_bytes(onnx_model(graph)), level)  # type: ignore[arg-type]
    assert set(session.inputs) == {"text_mu", "text_s", "text_ed_self", "text_vd_self"}
    feeds = {f"text_{name}": value for name, value in small.text.items()}
    np.testing.assert_array_equal(session.run(feeds)["logit"], graph.run(small.inputs())["logit"])


def test_the_shortlist_graph_is_the_digital_ed(small: Compiled) -> None:
    own = resolve(load_target("isaac-rram-128"), None, {})
    graph = program_gallery(distance_graph(small.program.score), small.video, own)
    stored = [f"shortlist.{name}" for name in layers(graph)]
    assert (*stored, COMPONENTS_LAYER) == score_layers(HEAD, "hybrid")
    both = small.inputs() | {f"video.{name}": value for name, value in small.video.items()}
    exact = replace(small.program.score, outputs={"ed": "ed"}).run(both)["ed"]
    np.testing.assert_array_equal(graph.run(small.inputs())["ed"], exact)


def test_a_polynomial_without_ed_has_no_shortlist(small: Compiled) -> None:
    score = small.program.score
    without = replace(score, nodes=tuple(n for n in score.nodes if n.name != "ed"))
    with pytest.raises(CimError, match="score_mapping = hybrid: the score does not use ed"):
        distance_graph(without)


def test_an_array_too_narrow_for_one_value_is_refused(small: Compiled) -> None:
    with pytest.raises(CimError, match=r"score\.s\.mu2: an array of 16 columns is too narrow: one"):
        small.programmed(array="64x16", cell_bits=1)


def test_sums_must_fit_the_accumulator(small: Compiled) -> None:
    with pytest.raises(CimError, match=r"score\..*: its sums need \d+ bits and the accumulator"):
        small.programmed(accumulator_bits=12)


def test_a_layer_of_the_score_has_its_own_converters(small: Compiled) -> None:
    own = resolve(load_target("hermes-pcm-14nm"), None, {"layers": {"score.mu.*": {"adc_bits": 4}}})
    graph = program_gallery(small.program.score, small.video, own)
    bits = {name: op.crossbar.converter.bits for name, op in layers(graph).items()}
    assert bits == {"mu.mu": 4, "mu.mus": 4, "s.s_mu2.s": 8, "s.mu2": 8, "mus.mu": 8}


def test_bounds_hold_for_the_extremes(small: Compiled) -> None:
    graph = coarse(small, 5)
    ends = {
        name: np.stack([np.broadcast_to(b, known.shape[1:] or ()) for b in (known.lo, known.hi)])
        for name, known in graph.inputs.items()
    }
    names = [*layers(graph), "ed", "vd"]
    values = Simulator(replace(small.program, score=graph))
    (_, found), *_ = values.iter_score(features_of(small.program.text, ends), None, names)
    for name in names:
        known = graph.types[name]
        assert integer(known.shape, known.lo, known.hi, 1.0).is_integer
        assert (found[name] >= known.lo).all(), name
        assert (found[name] <= known.hi).all(), name


def test_steps_leave_room_for_the_right_item(small: Compiled) -> None:
    # Items near zero make small sums; the right ones are not among them.
    faint = {name: value // 8 for name, value in small.video.items()}
    own = resolve(load_target("hermes-pcm-14nm"), None, {"adc_bits": 5})
    graph = program_gallery(small.program.score, faint, own)
    right = program_gallery(small.program.score, small.video, own)
    steps = []
    for matches in (None, right):
        (step,) = layers(fit_gallery(graph, small.text, matches))["mu.mu"].steps
        assert step is not None
        steps.append(step)
    assert steps[0] < steps[1]
