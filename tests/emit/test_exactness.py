"""Every implementation of the integer contract gives the same integers, on random layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from crossbars import at_steps, changed, crossbar_of
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator
from random_layers import (
    ANALOG,
    ENCODINGS,
    INPUT_ENCODINGS,
    input_limits,
    integers,
    random_crossbar,
    random_layer,
)

from cimtool.api import prepare
from cimtool.base.arrays import Array
from cimtool.bundle.serial import Constants, ConstantTable, program_text, read_program
from cimtool.demo.data import DemoFiles
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import OptimizationLevel, Session
from cimtool.hardware.converters import Formula
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Mul, Sum
from cimtool.ir.format import Rounding, integer_limits, ratio
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import Type, real
from cimtool.simulation.simulator import Runner

LEVELS: tuple[OptimizationLevel, ...] = ("disable", "basic", "extended", "all")
BLOCKS, BLOCK = 30, 24
DEVICES = ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))


@dataclass(frozen=True)
class Case:
    """A graph and the rows it is run on."""

    graph: Graph
    rows: Array


def random_requant(rng: np.random.Generator, known: Type) -> Requant:
    """A requantisation to 2..16 bits, per tensor or per channel."""
    count = known.lo.size if rng.integers(2) else 1
    magnitude = max(int(known.magnitude), 1)
    target = Fraction(int(rng.integers(1 << 8, 1 << 20)), 1 << 12) / magnitude
    ratios = [ratio(target * int(rng.integers(1, 4)), magnitude) for _ in range(count)]
    shape = (count,) if count > 1 else ()
    multiplier = np.array([r.multiplier for r in ratios], np.int64).reshape(shape)
    shift = np.array([r.shift for r in ratios], np.int64).reshape(shape)
    lo, hi = integer_limits(int(rng.integers(2, 17)), known.signed)
    return Requant(multiplier, shift, lo, hi, np.ones(()))


def layer_case(layer: CrossbarMvm, scale: Array, rows: Array) -> Case:
    """A layer alone behind a quantiser."""
    builder = layer_builder(layer, scale)
    return Case(builder.graph({"sums": "fc"}), rows)


def layer_builder(layer: CrossbarMvm, scale: Array) -> Builder:
    """`x` quantised to what the layer's inputs carry, then the layer."""
    builder = Builder("text", {"x": real(("n", layer.weight.shape[0]))})
    codes = builder.add("x.codes", Quantize(scale, *input_limits(layer.crossbar)), "x")
    builder.add("fc", layer, codes)
    return builder


def random_case(seed: int) -> Case:
    """One layer behind a quantiser, alone or followed by what a projector does next."""
    rng = np.random.default_rng(seed)
    layer = random_layer(rng, random_crossbar(rng))
    K = layer.weight.shape[0]
    lo, hi = input_limits(layer.crossbar)
    scale = np.exp2(rng.integers(-2, 3, K)) if rng.integers(2) else np.ones(())
    builder = layer_builder(layer, scale)
    outputs = {"sums": "fc"}
    if rng.integers(2):
        mu = builder.add("mu", random_requant(rng, builder.types["fc"]), "fc")
        energy = builder.add("energy", Sum(), builder.add("squares", Mul(), mu, mu))
        outputs = {"mu": mu, "energy": energy}
    rows = integers(rng, lo, hi, (int(rng.choice([1, 2, 5])), K)) * scale
    if rng.integers(2):
        rows = rows * 1.25  # halves to round, and values to clip
    return Case(builder.graph(outputs), rows.astype(np.float32))


def assert_equal(expected: dict[str, Array], found: dict[str, Array], seed: int) -> None:
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"seed {seed}, {name}")


def assert_agree(case: Case, seed: int) -> None:
    """The readable operations, the fast ones, torch's, ONNX Runtime and ONNX's evaluator."""
    expected = case.graph.run({"x": case.rows})
    assert_equal(expected, Runner(case.graph).run({"x": case.rows}), seed)
    for device in DEVICES:
        assert_equal(expected, Runner(case.graph, device=device).run({"x": case.rows}), seed)
    model = onnx_model(case.graph)
    assert_equal(expected, Session(file_bytes(model)).run({"x": case.rows}), seed)
    values = ReferenceEvaluator(model).run(None, {"x": case.rows})
    names = [output.name for output in model.graph.output]
    assert_equal(expected, dict(zip(names, values, strict=True)), seed)


@pytest.mark.thorough(
    "every form of a layer; the block that has most of them is in the first tier", quick=("08]",)
)
@pytest.mark.parametrize("block", range(BLOCKS), ids="{:02}".format)
def test_all_implementations_agree(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert_agree(random_case(seed), seed)


@pytest.mark.thorough(
    "all pairs of codes; a diagonal is in the first tier",
    quick=(
        "unsigned-differential-",
        "twos-complement-offset-None",
        "offset-offset-flip-",
        "bipolar-centred-",
        "unsigned-ternary-16",
    ),
)
@pytest.mark.parametrize("adc_bits", [None, 16])
@pytest.mark.parametrize("encoding", ANALOG)
@pytest.mark.parametrize("input_encoding", INPUT_ENCODINGS)
def test_sums_beyond_32_bits_agree(
    encoding: str, input_encoding: str, adc_bits: int | None
) -> None:
    for cell_bits, dac_bits, coarse in ((8, 16, 12), (3, 3, 1)):
        cells = 1 if encoding == "ternary" else cell_bits
        crossbar = crossbar_of(
            None, cells, dac_bits, encoding, 16, input_encoding, 16, adc_bits, "half-up", 62
        )
        step = None if adc_bits is None else coarse
        weight = np.full((40, 2), 2**15 - 1)
        weight[:, 1] *= -1
        stored, steps = (
            StoredWeights(weight, crossbar),
            at_steps(crossbar, (step,) * crossbar.slices),
        )
        layer = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), steps)
        lo, hi = input_limits(crossbar)
        case = layer_case(layer, np.ones(()), np.array([[lo] * 40, [hi] * 40], np.float32))
        assert np.abs(case.graph.run({"x": case.rows})["sums"]).max() > 2**31
        assert_agree(case, 0)


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize(("adc_bits", "step"), [(1, 0), (4, 20), (16, 16), (16, 20)])
def test_column_sums_beyond_32_bits_agree(rounding: Rounding, adc_bits: int, step: int) -> None:
    rng = np.random.default_rng(adc_bits + step)
    weight = rng.integers(-(2**15) + 1, 2**15, (300, 3))
    weight[:, 0], weight[:, 1] = 2**15 - 1, -(2**15) + 1
    for encoding in ("differential", "offset-flip"):
        crossbar = crossbar_of(None, 8, 16, encoding, 16, "bipolar", 16, adc_bits, rounding, 62)
        stored = StoredWeights(weight, crossbar)
        layer = CrossbarMvm(
            stored, np.zeros(3, np.int64), np.ones(3), at_steps(crossbar, (step, step))
        )
        lo, hi = input_limits(crossbar)
        rows = rng.integers(lo, hi + 1, (4, 300)).astype(np.float32)
        rows[0], rows[1], rows[2] = hi, lo, 0
        assert_agree(layer_case(layer, np.ones(()), rows), 0)


@pytest.mark.thorough("every form of a layer; each kernel has some in the first tier")
def test_optimisation_levels_and_threads_agree() -> None:
    for seed in range(0, BLOCKS * BLOCK, 10):
        case = random_case(seed)
        expected = case.graph.run({"x": case.rows})
        data = file_bytes(onnx_model(case.graph))
        for level in LEVELS:
            for threads in (1, 2):
                found = Session(data, level, threads).run({"x": case.rows})
                assert_equal(expected, found, seed)


FEATURES = (
    "half-up", "half-even", "floor", "table", "rows active", "polarity", "analog", "unit column",
    "reference column", "leak", "idle rows", "wide converter", "narrow converter", "slice",
    "column", "gain", "cycle", "levels",
)  # fmt: skip


def features(crossbar: Crossbar) -> list[str]:
    """Those of FEATURES that a converting crossbar has."""
    converter = crossbar.converter
    present = {
        converter.rounding if isinstance(converter, Formula) else "table": True,
        "rows active": crossbar.tiling.active is not None,
        "polarity": crossbar.columns_by_polarity,
        "analog": crossbar.shift_add == "analog",
        "unit column": crossbar.unit_column,
        "reference column": crossbar.weights.reference_column,
        "leak": crossbar.column_leak > 0,
        "idle rows": crossbar.column_leak > 0 and crossbar.tiling.idle(7).any(),
        "wide converter": converter.bits == 16,
        "narrow converter": converter.bits == 1,
        crossbar.references: True,
    }
    return [name for name, has in present.items() if has]


@pytest.mark.thorough("it counts the forms of every block")
def test_random_cases_reach_every_form() -> None:
    """The seeds above clip, round, complement and mix."""
    seen: Counter[str] = Counter()
    for seed in range(BLOCKS * BLOCK):
        case = random_case(seed)
        op = case.graph.by_name["fc"].op
        assert isinstance(op, CrossbarMvm)
        seen[op.crossbar.weights.name] += 1
        seen[f"inputs {op.crossbar.inputs.name}"] += 1
        for converting in [] if op.exact else features(op.crossbar):
            seen[converting] += 1
        codes = case.graph.by_name["x.codes"].op.run(case.rows)
        seen["changed"] += int((op.run(codes) != codes @ op.weight + op.bias).any())
        seen["mixed"] += int(None in op.references[: op.crossbar.slices] and not op.exact)
    expected = [*ENCODINGS, *(f"inputs {i}" for i in INPUT_ENCODINGS), "changed", "mixed"]
    expected += FEATURES
    assert min(seen[name] for name in expected) >= 15, seen


@pytest.mark.thorough("one form of a group stands for the others", quick=("unit column",))
@pytest.mark.parametrize("form", ["leak", "unit column", "table", "polarity"])
def test_a_row_group_is_one_call_of_few_nodes(form: str) -> None:
    """28 row groups of 256 rows make a full-size projector: 2,000 nodes in all, 70 a group."""
    plain = crossbar_of(250, 2, 1, "offset-flip", 8, "offset", 8, 5, "half-even", 62)
    forms = {
        "leak": changed(plain, leak=900, unused_rows="driven", cell_bits=8, input_bits=16),
        "unit column": changed(plain, offset_sum="unit-column"),
        "table": changed(plain, rounding=None, transfer=tuple(range(8, 31 * 16, 16)), leak=900),
        "polarity": changed(plain, encoding="differential", adc_on="polarity", cell_bits=1),
    }
    hardware = forms[form]
    weight = np.random.default_rng(0).integers(-127, 128, (2048, 2))
    steps = tuple(range(12, 12 + hardware.slices))
    unit_step = 3 if hardware.unit_column else None
    stored = StoredWeights(weight, hardware)
    layer = CrossbarMvm(
        stored, np.zeros(2, np.int64), np.ones(2), at_steps(hardware, steps, unit_step)
    )
    case = layer_case(layer, np.ones(()), np.ones((2, 2048), np.float32))
    model = onnx_model(case.graph)
    calls = [node for node in model.graph.node if node.op_type.startswith("RowGroupAdc")]
    assert len(calls) == 9
    assert len(inline_local_functions(model).graph.node) < 9 * 70
    assert_agree(case, 0)


DESIGNS = {
    "rows active": {"rows_active": 7},
    "polarity": {"encoding": "differential", "adc_on": "polarity"},
    "analog": {"encoding": "differential", "shift_add": "analog"},
    "unit column": {"offset_sum": "unit-column"},
    "reference column": {"encoding": "centred", "references": "column"},
    "leak": {"on_off_ratio": 15.0, "unused_rows": "driven", "input_encoding": "offset"},
    "table": {},
}


@pytest.mark.thorough("each way of converting", quick=("reference column", "table"))
@pytest.mark.parametrize("design", DESIGNS)
def test_a_compiled_model_agrees_whatever_converts(
    design: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """Trained weights, converters fitted on data: simulator, reference and ONNX Runtime."""
    target: str | Path = "isaac-rram-128"
    if design == "table":
        target = tmp_path / "measured.toml"
        thresholds = [round(code + 0.5 + 0.3 * (-1) ** code, 3) for code in range(7)]
        target.write_text(
            'base = "isaac-rram-128"\nname = "measured"\ntitle = "Measured"\nfigures = []\n'
            f"[adc]\nbits = 3\ntransfer = {thresholds}\n"
        )
    files = small_trunk
    choices = DESIGNS[design] if design == "table" else {"adc_bits": 3, **DESIGNS[design]}
    made = prepare(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        drift="given",
        target=target,
        **choices,
    )
    with np.load(files.eval) as stored:
        rows = stored["text"][:9]
    program, arrays = made.stages[-1].program, ConstantTable()
    graph = read_program(
        program_text(program, arrays), Constants(arrays.arrays), "program.json"
    ).text
    ops = [node.op for node in graph.nodes if isinstance(node.op, CrossbarMvm)]
    assert all(design in features(op.crossbar) for op in ops)
    assert not any(op.exact for op in ops)
    expected = program.text.run({"x": rows})
    assert_equal(expected, graph.run({"x": rows}), 0)
    assert_equal(expected, Runner(graph).run({"x": rows}), 0)
    data = file_bytes(onnx_model(graph))
    for level in LEVELS:
        assert_equal(expected, Session(data, level).run({"x": rows}), 0)
