"""Every implementation of the integer contract gives the same integers, on random layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from cimtool.arrays import Array, IntArray
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Level, Session
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mul, Sum
from cimtool.ir.format import integer_limits, ratio
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import Type, real
from cimtool.simulate import Runner, run

NO_VNNI = Path(__file__).parents[1] / "no_vnni.py"
ENCODINGS = ("differential", "offset", "offset-flip", "twos-complement")
INPUT_ENCODINGS = ("unsigned", "twos-complement", "offset", "bipolar")
LEVELS: tuple[Level, ...] = ("disable", "basic", "extended", "all")
BLOCKS, BLOCK = 8, 40


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
    K, N = int(rng.choice([1, 2, 7, 17])), int(rng.choice([1, 2, 6]))
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


def random_case(seed: int) -> Case:
    """One layer behind a quantiser, alone or followed by what a projector does next."""
    rng = np.random.default_rng(seed)
    layer = random_layer(rng, random_crossbar(rng))
    K = layer.weight.shape[0]
    lo, hi = input_limits(layer.crossbar)
    builder = Builder("text", {"x": real(("n", K))})
    scale = np.exp2(rng.integers(-2, 3, K)) if rng.integers(2) else np.ones(())
    sums = builder.add("fc", layer, builder.add("x.codes", Quantize(scale, lo, hi), "x"))
    outputs = {"sums": sums}
    if rng.integers(2):
        mu = builder.add("mu", random_requant(rng, builder.types[sums]), sums)
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


@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_implementations_agree(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        case = random_case(seed)
        expected = run(case.graph, {"x": case.rows})
        assert_equal(expected, Runner(case.graph).run({"x": case.rows}), seed)
        model = onnx_model(case.graph)
        assert_equal(expected, Session(file_bytes(model)).run({"x": case.rows}), seed)
        values = ReferenceEvaluator(model).run(None, {"x": case.rows})
        names = [output.name for output in model.graph.output]
        assert_equal(expected, dict(zip(names, values, strict=True)), seed)


def test_optimisation_levels_and_threads_agree() -> None:
    for seed in range(0, BLOCKS * BLOCK, 8):
        case = random_case(seed)
        expected = run(case.graph, {"x": case.rows})
        data = file_bytes(onnx_model(case.graph))
        for level in LEVELS:
            for threads in (1, 2):
                found = Session(data, level, threads).run({"x": case.rows})
                assert_equal(expected, found, seed)


def test_random_cases_reach_every_form() -> None:
    """The seeds above clip, round, complement, go beyond bytes and beyond 32 bits."""
    seen: Counter[str] = Counter()
    for seed in range(BLOCKS * BLOCK):
        case = random_case(seed)
        op = case.graph.by_name["fc"].op
        assert isinstance(op, CrossbarMvm)
        seen[op.crossbar.encoding] += 1
        seen[f"inputs {op.crossbar.input_encoding}"] += 1
        seen[f"{op.crossbar.rounding} {op.exact}"] += 1
        codes = case.graph.by_name["x.codes"].op.run(case.rows)
        largest = np.abs(op.run(codes)).max()
        seen[f"wide {op.exact}"] += int(largest > 2**31)
        seen["changed"] += int((op.run(codes) != codes @ op.weight + op.bias).any())
        seen["mixed"] += int(None in op.steps and not op.exact)
    expected = [*ENCODINGS, *(f"inputs {i}" for i in INPUT_ENCODINGS), "changed", "mixed"]
    expected += [f"{r} False" for r in ("half-up", "half-even", "floor")]
    assert min(seen[name] for name in expected) >= 15, seen
    assert min(seen["wide True"], seen["wide False"]) >= 1, seen
