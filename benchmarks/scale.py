"""Time of the simulator's work as inputs, dimensions, layers, cycles, pairs or threads grow.

Each curve doubles one extent and leaves the others; it ends where a call takes LONGEST, or where
there are no more (32 slices x cycles of 8 bits, dimensions that fit the memory). The exponent is
the slope of log time over log extent, of the whole curve and of its upper half: 1 is linear, 2 is
expected where the work is a square.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import THREADS, Row, parser, report, side_by_side, use_threads
from layers import BITS, CONVERTER, kernels, limits

from cimtool.base.threads import map_rows
from cimtool.hardware.crossbar import Crossbar, RowTiling
from cimtool.hardware.input_codes import Unsigned
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import Offset
from cimtool.ir.types import integer
from cimtool.report.charts import Points, curves
from cimtool.report.svg import as_file, tick_text
from cimtool.simulation.kernels.products import PairProduct
from cimtool.simulation.simulator import THREAD_ROWS

Array = np.ndarray[Any, Any]
Work = Callable[[], object]

LONGEST = 2.0
"""Seconds of a call at which a curve ends."""

INPUTS, WIDTH, ROWS = 256, 1024, 128
"""Inputs and dimensions where they are not what grows; rows of an array."""

SLICES, CYCLES = 4, 1
"""Slices of a weight and cycles of an input where they are not what grows."""

WIDE = 8192
"""Dimensions at most: a layer takes 3 GB as the readable operations hold it, and four times as much
for each doubling."""


@dataclass(frozen=True)
class Curve:
    """The name of what grows, the exponent expected, the work at each size, and its `threads`."""

    name: str
    expected: float
    work: Callable[[int], Work]
    sizes: Sequence[int]
    threads: Callable[[int], int] = lambda size: THREADS


def doubling(first: int, last: int) -> list[int]:
    """The first size, twice that, and so on to the last."""
    return list(itertools.takewhile(lambda n: n <= last, (first << i for i in itertools.count())))


def layer(width: int, slices: int = SLICES, cycles: int = CYCLES) -> CrossbarMvm:
    """A square layer of random weights, whose converters round."""
    inputs = Unsigned(BITS, BITS // cycles)
    crossbar = Crossbar(Offset(BITS, BITS // slices), inputs, 62, CONVERTER, RowTiling(ROWS))
    weight = np.random.default_rng(0).integers(-127, 127, (width, width), endpoint=True)
    sums = ROWS * ((1 << BITS // slices) - 1) * ((1 << BITS // cycles) - 1)
    step = AdcReferences.from_zero(1 << max(sums.bit_length() - BITS, 1))
    bias, scale = np.zeros(width, np.int64), np.ones(width)
    return CrossbarMvm(StoredWeights(weight, crossbar), bias, scale, (step,) * slices)


def encoding(ops: Sequence[CrossbarMvm], count: int) -> Work:
    """All layers on so many inputs each, blocks of rows side by side, as the simulator does it."""
    run = kernels(list(ops))
    width = len(ops[0].weight)
    x = np.random.default_rng(1).integers(*limits(ops[0].crossbar), (count, width), np.uint8)
    return lambda: map_rows(lambda rows: [kernel(x[rows]) for kernel in run], count, THREAD_ROWS)


def pairs(count: int) -> Work:
    """All inner products of so many texts and as many videos, of 8 bits."""
    known = integer(("n", WIDTH), -127, 127, 1.0)
    texts, videos = np.random.default_rng(2).integers(-127, 127, (2, count, WIDTH), np.int8)
    product = PairProduct((known, known), np.int32)
    return lambda: product(texts, videos)


def sliced(conversions: int) -> Work:
    """A layer of so many slices times cycles."""
    slices = min(conversions, 4)
    return encoding([layer(WIDTH, slices, conversions // slices)], INPUTS)


def all_curves() -> Iterator[Curve]:
    """Every curve."""
    one = layer(WIDTH)
    cores = os.cpu_count() or 1
    yield Curve("inputs", 1, lambda n: encoding([one], n), doubling(32, 1 << 17))
    yield Curve("dimensions", 2, lambda d: encoding([layer(d)], INPUTS), doubling(128, WIDE))
    yield Curve("layers", 1, lambda n: encoding([one] * n, INPUTS), doubling(1, 1024))
    yield Curve("slices x cycles", 1, sliced, doubling(1, 32))
    yield Curve("texts x videos", 2, pairs, doubling(64, 1 << 15))
    threads = doubling(1, cores)
    work = encoding([one], 16 * INPUTS)
    yield Curve("threads", -1, lambda n: work, threads, lambda n: n)


def measured(curve: Curve, rounds: int) -> dict[int, float]:
    """Best seconds by size, until one takes LONGEST."""
    found: dict[int, float] = {}
    for size in curve.sizes:
        use_threads(curve.threads(size))
        work = curve.work(size)
        found[size] = side_by_side({"": work}, rounds)[""]
        if found[size] > LONGEST:
            break
    use_threads()
    return found


def exponent(taken: Mapping[int, float]) -> float:
    """The slope of log time over log size; NaN of one size alone."""
    if len(taken) < 2:
        return math.nan
    sizes, seconds = (np.log(np.array(list(side))) for side in (taken.keys(), taken.values()))
    return float(np.polyfit(sizes, seconds, 1)[0])


def row(curve: Curve, taken: Mapping[int, float]) -> Row:
    """One row of the table."""
    sizes = list(taken)
    upper = {size: taken[size] for size in sizes[(len(sizes) - 1) // 2 :]}
    return {
        "what grows": curve.name,
        "from": sizes[0],
        "ms": taken[sizes[0]] * 1e3,
        "to": sizes[-1],
        "ms there": taken[sizes[-1]] * 1e3,
        "exponent": round(exponent(taken), 2),
        "of the upper half": round(exponent(upper), 2),
        "expected": curve.expected,
    }


PICTURES = {
    "scale-layers.svg": ("inputs", "dimensions", "layers", "slices x cycles"),
    "scale-pairs.svg": ("texts x videos", "threads"),
}
"""Files of pictures, and their curves."""


def picture(found: Mapping[str, Mapping[int, float]]) -> str:
    """Curves on logarithmic axes: milliseconds over the multiple of the smallest size."""
    lines = [
        Points(name, [(size / min(taken), 1e3 * seconds) for size, seconds in taken.items()])
        for name, taken in found.items()
    ]
    label = "Milliseconds of the simulator's work as one extent grows, on logarithmic axes"
    drawn = curves(lines, "times the smallest size", "ms", label, tick_text, log_y=True)
    return as_file(drawn)


def main() -> None:
    own: argparse.ArgumentParser = parser(str(__doc__), rounds=5)
    own.add_argument("--svg", type=Path, metavar="FOLDER", help="write the pictures there")
    options = own.parse_args()
    found, rows = {}, []
    for curve in all_curves():
        found[curve.name] = measured(curve, options.rounds)
        rows.append(row(curve, found[curve.name]))
    if options.svg is not None:
        options.svg.mkdir(parents=True, exist_ok=True)
        for file, names in PICTURES.items():
            drawn = picture({name: found[name] for name in names})
            (options.svg / file).write_text(drawn, "utf-8")
    notes = [
        f"{name}, ms: {', '.join(f'{size} {1e3 * s:.3g}' for size, s in taken.items())}"
        for name, taken in found.items()
    ]
    report("scale", rows, options.json, notes)


if __name__ == "__main__":
    main()
