"""Every implementation of the integer contract gives the same integers, on random layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from cimtool.arrays import Array, IntArray
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Level, Session
from cimtool.hardware.crossbar import Crossbar, Encoding, InputEncoding
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mul, Sum
from cimtool.ir.format import Rounding, integer_limits, ratio
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import Type, real
from cimtool.simulator import Runner, run

ENCODINGS: tuple[Encoding, ...] = ("differential", "offset", "offset-flip", "twos-complement")
INPUT_ENCODINGS: tuple[InputEncoding, ...] = ("unsigned", "twos-complement", "offset", "bipolar")
LEVELS: tuple[Level, ...] = ("disable", "basic", "extended", "all")
BLOCKS, BLOCK = 8, 50


@dataclass(frozen=True)
class Case:
    """A graph and the rows it is run on."""

    graph: Graph
    rows: Array


def input_limits(crossbar: Crossbar) -> tuple[int, int]:
    """The inputs that an encoding can carry."""
    top = 1 << crossbar.input_bits
    if crossbar.input_encoding == "unsigned":
        return 0, top - 1
    if crossbar.input_encoding == "bipolar":
        return 1 - top // 2, top // 2 - 1
    return -top // 2, top // 2 - 1


def integers(rng: np.random.Generator, lo: int, hi: int, shape: tuple[int, ...]) -> IntArray:
    """Random integers: uniform, near zero, or all at the ends of the range."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.choice(np.array([lo, hi]), shape)
    if kind == 1:
        return np.clip(rng.integers(-2, 3, shape), lo, hi)
    if kind == 2:
        return np.full(shape, rng.choice([lo, hi]))
    return rng.integers(lo, hi, shape, endpoint=True)


def random_crossbar(rng: np.random.Generator) -> Crossbar:
    """Any array, mostly of 8 bits and less."""
    encoding = str(rng.choice(ENCODINGS))
    lossless = encoding == "twos-complement" or rng.integers(5) == 0
    return Crossbar(
        rows=rng.choice(np.array([None, 1, 2, 3, 5, 8])),
        cell_bits=int(rng.integers(1, 9)),
        dac_bits=int(rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 16])),
        encoding=encoding,  # type: ignore[arg-type]
        weight_bits=int(rng.integers(2, 9) if rng.integers(4) else rng.integers(9, 17)),
        input_encoding=str(rng.choice(INPUT_ENCODINGS)),  # type: ignore[arg-type]
        input_bits=int(rng.integers(2, 9) if rng.integers(4) else rng.integers(9, 17)),
        adc_bits=None if lossless else int(rng.integers(1, 11)),
        rounding=str(rng.choice(["half-up", "half-even", "floor"])),  # type: ignore[arg-type]
        accumulator_bits=62,
    )


def random_layer(rng: np.random.Generator, crossbar: Crossbar) -> CrossbarMvm:
    """A layer whose converters clip, round, or do neither, slice by slice."""
    K, N = int(rng.choice([1, 2, 7, 17, 40])), int(rng.choice([1, 2, 6]))
    top = 1 << crossbar.weight_bits - 1
    lowest = 1 - top if crossbar.encoding == "differential" else -top
    steps: tuple[int | None, ...] = (None,) * crossbar.slices
    if crossbar.adc_bits is not None:
        same = bool(rng.integers(2))
        drawn = [None if rng.integers(4) == 0 else int(rng.integers(10)) for _ in steps]
        steps = (drawn[0],) * len(drawn) if same else tuple(drawn)
    weight = integers(rng, lowest, top - 1, (K, N))
    bias = rng.integers(-1000, 1000, N) * int(rng.integers(2))
    return CrossbarMvm(weight, bias, np.ones(N), crossbar, steps)


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
    """The readable operations, the fast ones, ONNX Runtime and ONNX's evaluator."""
    expected = run(case.graph, {"x": case.rows})
    assert_equal(expected, Runner(case.graph).run({"x": case.rows}), seed)
    model = onnx_model(case.graph)
    assert_equal(expected, Session(file_bytes(model)).run({"x": case.rows}), seed)
    values = ReferenceEvaluator(model).run(None, {"x": case.rows})
    names = [output.name for output in model.graph.output]
    assert_equal(expected, dict(zip(names, values, strict=True)), seed)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_implementations_agree(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert_agree(random_case(seed), seed)


@pytest.mark.parametrize("adc_bits", [None, 16])
@pytest.mark.parametrize("encoding", ENCODINGS[:3])
@pytest.mark.parametrize("input_encoding", INPUT_ENCODINGS)
def test_sums_beyond_32_bits_agree(
    encoding: Encoding, input_encoding: InputEncoding, adc_bits: int | None
) -> None:
    for cell_bits, dac_bits, coarse in ((8, 16, 12), (3, 3, 1)):
        crossbar = Crossbar(
            None, cell_bits, dac_bits, encoding, 16, input_encoding, 16, adc_bits, "half-up", 62
        )
        step = None if adc_bits is None else coarse
        weight = np.full((40, 2), 2**15 - 1)
        weight[:, 1] *= -1
        layer = CrossbarMvm(
            weight, np.zeros(2, np.int64), np.ones(2), crossbar, (step,) * crossbar.slices
        )
        lo, hi = input_limits(crossbar)
        case = layer_case(layer, np.ones(()), np.array([[lo] * 40, [hi] * 40], np.float32))
        assert np.abs(run(case.graph, {"x": case.rows})["sums"]).max() > 2**31
        assert_agree(case, 0)


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize(("adc_bits", "step"), [(1, 0), (4, 20), (16, 16), (16, 20)])
def test_column_sums_beyond_32_bits_agree(rounding: Rounding, adc_bits: int, step: int) -> None:
    rng = np.random.default_rng(adc_bits + step)
    weight = rng.integers(-(2**15) + 1, 2**15, (300, 3))
    weight[:, 0], weight[:, 1] = 2**15 - 1, -(2**15) + 1
    for encoding in ("differential", "offset-flip"):
        crossbar = Crossbar(None, 8, 16, encoding, 16, "bipolar", 16, adc_bits, rounding, 62)
        layer = CrossbarMvm(weight, np.zeros(3, np.int64), np.ones(3), crossbar, (step, step))
        lo, hi = input_limits(crossbar)
        rows = rng.integers(lo, hi + 1, (4, 300)).astype(np.float32)
        rows[0], rows[1], rows[2] = hi, lo, 0
        assert_agree(layer_case(layer, np.ones(()), rows), 0)


def test_optimisation_levels_and_threads_agree() -> None:
    for seed in range(0, BLOCKS * BLOCK, 10):
        case = random_case(seed)
        expected = run(case.graph, {"x": case.rows})
        data = file_bytes(onnx_model(case.graph))
        for level in LEVELS:
            for threads in (1, 2):
                found = Session(data, level, threads).run({"x": case.rows})
                assert_equal(expected, found, seed)


def test_random_cases_reach_every_form() -> None:
    """The seeds above clip, round, complement and mix."""
    seen: Counter[str] = Counter()
    for seed in range(BLOCKS * BLOCK):
        case = random_case(seed)
        op = case.graph.by_name["fc"].op
        assert isinstance(op, CrossbarMvm)
        seen[op.crossbar.encoding] += 1
        seen[f"inputs {op.crossbar.input_encoding}"] += 1
        seen[f"{op.crossbar.rounding} {op.exact}"] += 1
        codes = case.graph.by_name["x.codes"].op.run(case.rows)
        seen["changed"] += int((op.run(codes) != codes @ op.weight + op.bias).any())
        seen["mixed"] += int(None in op.steps and not op.exact)
    expected = [*ENCODINGS, *(f"inputs {i}" for i in INPUT_ENCODINGS), "changed", "mixed"]
    expected += [f"{r} False" for r in ("half-up", "half-even", "floor")]
    assert min(seen[name] for name in expected) >= 15, seen
