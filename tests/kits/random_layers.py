"""Random layers on crossbars, with everything that the integer contract has."""

from __future__ import annotations

import numpy as np
from crossbars import at_steps, crossbar_of
from random_crossbars import random_levels, random_transfer

from cimtool.base.arrays import IntArray
from cimtool.hardware.crossbar import Crossbar, leak_of
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import WeightCode

ANALOG = ("differential", "offset", "offset-flip", "centred", "ternary")
ENCODINGS = (*ANALOG, "twos-complement", "sign-magnitude", "mxint", "mxfp")
WIDTHS = {"mxint": range(2, 9), "mxfp": (4, 6)}
INPUT_ENCODINGS = ("unsigned", "twos-complement", "offset", "bipolar")


def input_limits(crossbar: Crossbar) -> tuple[int, int]:
    """The inputs that an encoding can carry."""
    top = 1 << crossbar.inputs.bits
    if crossbar.inputs.name == "unsigned":
        return 0, top - 1
    if crossbar.inputs.name == "bipolar":
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


def random_crossbar(rng: np.random.Generator, encodings: tuple[str, ...] = ENCODINGS) -> Crossbar:
    """Any array, mostly of 8 bits and less, with any of the features of converters and cells."""
    encoding = str(rng.choice(encodings))
    digital = encoding not in ANALOG
    adc_bits = None if digital or rng.integers(5) == 0 else int(rng.integers(1, 17))
    rows = rng.choice(np.array([None, 1, 2, 3, 5, 8]))
    cell_bits = 1 if encoding == "ternary" else int(rng.integers(1, 9))
    offset_sum = str(rng.choice(["digital", "digital", "unit-column"]))
    leaking = not digital and offset_sum == "digital" and rng.integers(3) > 0
    ratio_of = float(rng.choice([1.01, 1.5, 10.0, 99.0, 1e4]))
    transfer = None
    references = str(rng.choice(["fixed", "fixed", "slice", "column", "gain", "cycle", "levels"]))
    if adc_bits is not None and adc_bits <= 10 and rng.integers(4) == 0:
        transfer = random_transfer(rng, adc_bits)
    weight_bits = rng.integers(2, 9) if rng.integers(4) else rng.integers(9, 17)
    if encoding in WIDTHS:
        weight_bits = rng.choice(WIDTHS[encoding])
    return crossbar_of(
        rows=rows,
        cell_bits=cell_bits,
        dac_bits=int(rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 16])),
        encoding=encoding,
        weight_bits=int(weight_bits),
        input_encoding=str(rng.choice(INPUT_ENCODINGS)),
        input_bits=int(rng.integers(2, 9) if rng.integers(4) else rng.integers(9, 17)),
        adc_bits=adc_bits,
        rounding=None if transfer else str(rng.choice(["half-up", "half-even", "floor"])),
        accumulator_bits=62,
        rows_active=None if rng.integers(2) else int(rng.integers(1, (rows or 8) + 1)),
        adc_on=str(rng.choice(["difference", "polarity"])),
        shift_add=str(rng.choice(["digital", "digital", "analog"])),
        offset_sum=offset_sum,
        leak=leak_of(ratio_of, cell_bits) if leaking else 0,
        unused_rows=str(rng.choice(["off", "driven", "driven"])),
        transfer=transfer,
        references=references,
    )


def random_references(
    rng: np.random.Generator,
    around: tuple[AdcReferences | None, ...],
    crossbar: Crossbar,
    rows: int,
    columns: int,
) -> tuple[AdcReferences | None, ...]:
    """References with any steps near those, and steps and offsets of columns, slices, or none."""
    groups = len(crossbar.tiling.groups(rows))
    found: list[AdcReferences | None] = []
    for k, one in enumerate(around):
        if one is None:
            found.append(None)
            continue
        width = columns if k < crossbar.reference_of(crossbar.slices, 0) else 1
        shapes = [(1, 1), (groups, width), (1, width)]
        of_steps = shapes[rng.integers(3) if crossbar.scope.gains else 0]
        step, shape = rng.integers(1, 2 * one.step.item() + 1, of_steps), shapes[rng.integers(3)]
        if crossbar.scope.gains and rng.integers(4) == 0:
            step = 1 << rng.integers(0, 1 + one.step.item().bit_length(), of_steps)
        reach = int(rng.integers(3)) * int(step.max()) * (1 << crossbar.converter.bits) // 2
        offset = rng.integers(-reach, reach + 1, shape)
        levels = random_levels(rng, crossbar.law) if crossbar.scope.levels else None
        found.append(AdcReferences(step, offset, levels))
    return tuple(found)


def random_layer(rng: np.random.Generator, crossbar: Crossbar) -> CrossbarMvm:
    """A layer whose converters clip, round, or do neither, slice by slice."""
    K, N = int(rng.choice([1, 2, 7, 17, 40])), int(rng.choice([1, 2, 6]))
    steps: tuple[int | None, ...] = (None,) * crossbar.slices
    unit_step = None
    if crossbar.converter.bits is not None:
        same = bool(rng.integers(2))
        *drawn, unit = (random_step(rng, crossbar) for _ in (*steps, 0))
        steps = (drawn[0],) * len(drawn) if same else tuple(drawn)
        unit_step = unit if crossbar.unit_column else None
    weight = random_weights(rng, crossbar.weights, (K, N))
    references = at_steps(crossbar, steps, unit_step)
    if crossbar.reference_bits:
        references = random_references(rng, references, crossbar, K, N)
    bias = rng.integers(-1000, 1000, N) * int(rng.integers(2))
    return CrossbarMvm(StoredWeights(weight, crossbar), bias, np.ones(N), references)


def random_weights(rng: np.random.Generator, code: WeightCode, shape: tuple[int, int]) -> IntArray:
    """Weights [K, N] that a code holds; 32 rows of a column share an exponent where it has such."""
    top, name = 1 << code.bits - 1, code.name
    if name == "mxfp":
        magnitudes = {m << e for m in range(1 << code.bits - 2) for e in range(3)}
        values = np.array(sorted(magnitudes | {-m for m in magnitudes}))
        weight = values[integers(rng, 0, len(values) - 1, shape)]
    else:
        lowest = 1 - top if code.symmetric else -top
        weight = integers(rng, lowest + (name == "mxint"), top - 1, shape)
    if name in WIDTHS:
        exponents = integers(rng, 0, 3, (-(-shape[0] // 32), shape[1]))
        weight = weight << np.repeat(exponents, 32, axis=0)[: shape[0]]
    return weight


def random_step(rng: np.random.Generator, crossbar: Crossbar) -> int | None:
    """A step around those that fit small layers; None once in four times."""
    if rng.integers(4) == 0:
        return None
    finest = rng.integers(2) * crossbar.fraction_bits
    return int(finest + rng.integers(10))
