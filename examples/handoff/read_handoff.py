"""Rebuild the weights of a hand-off and recompute all of its taps, from its files alone.

    python examples/handoff/read_handoff.py FOLDER

It was written from FORMAT.md and layout.json, which `cimtool export --format handoff` writes, and
needs numpy. It prints how many numbers it compared; if one differs, it ends with status 1.
"""

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1])
layout = json.loads((folder / "layout.json").read_text())
images = json.loads((folder / "images/images.json").read_text())["layers"]
order, compared, differing = layout["cells"], Counter(), Counter()
reverse = slice(None, None, -1 if order["pair"] == "negative-first" else 1)
at = {}  # the fields of the last line of each word of steps.txt, by name


def numbers(name, stages=0, **names):
    """The numbers of a file, with its axes."""
    file, extents = layout["files"][name], extent | {"stage": stages}
    lanes, bits = file["lanes"] and extents[file["lanes"]] or 1, file["bits"]
    digits, lines = -(-bits // 4), (folder / file["path"].format(**names)).read_text().split()
    found = [int(line[k * digits : (k + 1) * digits], 16) for line in lines for k in range(lanes)]
    shape = [extents[axis] for axis in file["axes"]]
    wide = np.array(found, np.uint64).reshape(*shape, lanes)[..., ::-1] << np.uint64(64 - bits)
    return (wide.view(np.int64) >> 64 - bits).reshape(*shape, *[lanes] * bool(file["lanes"]))


def words(name, places, bits, array):
    """The numbers [lines, places] of some bits in a file of cells or flags."""
    base, step = 16 if order["digits"] == "hex" else 2, -1 if "lsb" in order["bit_order"] else 1
    found, width = [], order["word_bits"] or places * bits
    for line in (folder / order[name].format(array=array)).read_text().splitlines():
        text = "".join(f"{int(word, base):0{width}b}"[::step] for word in line.split())
        found.append([int(text[p * bits : (p + 1) * bits][::step], 2) for p in range(places)])
    return np.array(found)


def compare(tap, found, shown):
    """Count the numbers that differ."""
    compared[tap] += found.size
    differing[tap] += int((found != shown.reshape(found.shape)).sum())


def convert(total, step, offset, table):
    """The codes of sums, and the values that they stand for."""
    one = at["converter"]
    fine, size, code, value = (
        (total << one["reference_places"]) - offset,
        np.where(step, step, 1),
        0,
        0,
    )
    if one["kind"] == 1:
        whole, twice = fine // size, 2 * (fine % size)
        up = [twice >= size, (twice > size) | (twice == size) & (whole % 2 == 1), 0][
            one["rounding"]
        ]
        code = np.clip(whole + up, one["lo"], one["hi"])
        value = code * size
    elif one["kind"] > 1:
        thresholds, levels = (tables[name][table] for name in ("thresholds", "levels"))
        fine_steps = fine[..., None] << one["threshold_places"]
        code = (fine_steps >= thresholds * size[..., None]).sum(-1)
        value = (
            np.take_along_axis(
                np.broadcast_to(levels, (*code.shape, levels.shape[-1])), code[..., None], -1
            )[..., 0]
            * size
        )
        code = code + one["lo"]
    exact = (step == 0) | (one["kind"] == 0)
    return np.where(exact, total, code), np.where(
        exact, total << one["reference_places"], value + offset
    )


def program(array, **_):
    """The cells [row, weight, converted slice] of an array, and those of its other columns."""
    cells = words("path", at["array"]["columns"], cell["bits"], array)
    cells = cells[::-1] if order["order"] == "descending" else cells
    lines, axes = extent["row"] * cell["height"], [*order["rows"], *order["columns"]]
    own = np.prod([extent[axis] for axis in order["columns"]])
    whole = cells[:lines, :own].reshape([extent[axis] for axis in axes])
    held = whole.transpose([axes.index(axis) for axis in ("row", "weight", "slice", "pair")])[
        ..., reverse
    ]
    signed = np.array([one["signed"] for one in slices[:: 1 + cell["by_polarity"]]])[:, None]
    held = np.where(signed & held >> cell["bits"] - 1, held - (1 << cell["bits"]), held)
    if cell["polarities"] == 2 and not cell["by_polarity"]:
        held = held[..., :1] - held[..., 1:]
    return held.reshape(len(held), -1), cells[: lines : cell["height"], own:]


def read(array, group, band, start, stop, idle, first, end):
    """Compare all taps of a row group of an array; return its part of sums, and its weights."""
    names, rows = {"array": array, "group": group}, slice(start, stop)
    x = numbers("inputs", band=band, group=group)[:, rows] + at["inputs"]["addend"]
    size, sign = (np.abs(x), np.sign(x)) if at["inputs"]["magnitude"] else (x, 1)
    cut = [size >> one["shift"] & ((1 << one["bits"]) - 1 if one["bits"] else -1) for one in cycles]
    digits = np.stack([sign * one for one in cut], axis=1)
    compare("digits", digits, numbers("digits", band=band, group=group)[..., rows])
    # Lanes: columns of weights in their order, then the unit column, which neither shifts nor leaks.
    grid = np.arange(extent["weight"] * len(slices)).reshape([extent[axis] for axis in WEIGHT])
    place = grid[..., reverse].transpose([WEIGHT.index(axis) for axis in layout["lanes"]]).ravel()
    converter = np.append(place % len(slices), [len(slices)] * cell["unit"]).astype(int)
    used = np.append(place // len(slices) < end - first, [True] * cell["unit"]).astype(bool)
    weighs = converter < len(slices)
    common = beside[rows, -1:] if cell["reference"] else 0
    columns = np.hstack(
        [held[rows][:, place] - common, beside[rows, : cell["unit"]] - cell["baseline"]]
    )
    driven = digits.sum(2)
    leak = at["converter"]["leak"] * (driven + idle * np.array([one["zero"] for one in cycles]))
    sums = (digits @ columns << at["converter"]["sum_places"] * weighs) + leak[..., None] * weighs
    reference = np.arange(len(cycles))[:, None] % at["converter"]["references"]
    offset = numbers("offsets", **names)[reference[:, 0]] if "offsets" in files else 0
    step = steps[converter, reference] if at["converter"]["kind"] else np.zeros(sums.shape[1:], int)
    table = (
        0 if at["converter"]["kind"] < 3 else converter * at["converter"]["references"] + reference
    )
    codes, values = convert(sums, step, offset, table)
    compare("sums", sums[..., used], numbers("sums", **names)[..., used])
    compare("codes", codes[..., used], numbers("codes", **names)[..., used])
    # Back to weights and slices; values have the binary places of references too.
    fine, shape = (
        at["converter"]["reference_places"],
        (-1, len(cycles), extent["weight"], len(slices)),
    )
    row_sum = (values[..., -1] if cell["unit"] else driven << fine) << at["converter"]["sum_places"]
    values = values[..., np.argsort(place)].reshape(shape) - (leak << fine)[..., None, None]
    digit = held[rows].reshape(-1, *shape[2:]) - cell["baseline"]
    if cell["flags"]:
        flags = words("flags", len(place) // extent["polarity"], 1, at["program"]["array"])
        flags = np.repeat(flags[int(group[1:])], extent["polarity"])[np.argsort(place)] == 1
        flags = flags.reshape(shape[2:])
        values = np.where(flags, (cell["complement"] * row_sum)[..., None, None] - values, values)
        digit = np.where(flags, cell["complement"] - digit, digit)
    counts = np.array([one["sign"] * one["factor"] << one["shift"] for one in slices])
    of_cycle = np.array([one["sign"] << one["shift"] for one in cycles])[:, None]
    added = ((values @ counts - cell["offset"] * row_sum[..., None]) * of_cycle).sum(1)[
        :, : end - first
    ]
    compare("shift_add", added, numbers("shift_add", **names)[:, : end - first])
    return added, (digit @ counts - cell["offset"])[:, : end - first]


WEIGHT = ("weight", "slice", "polarity")
for line in (folder / "steps.txt").read_text().splitlines():
    word, *fields = line.split()
    named = zip(layout["steps"][word], fields)
    one = at[word] = {name: text if name in layout["words"] else int(text) for name, text in named}
    if word == "layer":
        name, slices, cycles = one["layer"], [], []
        extent, files = layout["layers"][name]["extents"], layout["layers"][name]["files"]
        total = np.zeros((one["vectors"], one["columns"]), int)
        weights = np.zeros((one["rows"], one["columns"]), "<i8")
    elif word == "cells":
        cell = one
    elif word == "converter" and one["kind"]:
        steps = numbers("steps", layer=name)
        tables = {t: numbers(t, layer=name) for t in ("thresholds", "levels") if t in files}
    elif word in ("slice", "cycle"):
        (slices if word == "slice" else cycles).append(one)
    elif word == "program":
        held, beside = program(**one)
    elif word == "read":
        added, of_rows = read(**one)
        total[:, one["first"] : one["end"]] += added
        top = int(one["band"].rsplit("/r", 1)[1]) * extent["row"]
        weights[top + one["start"] : top + one["stop"], one["first"] : one["end"]] = of_rows
    elif word == "sum":
        places = at["converter"]["sum_places"] + at["converter"]["reference_places"]
        sums = (total + (1 << places >> 1) >> places) + numbers("bias", layer=name)
        compare("layer_sum", sums, numbers("layer_sum", layer=name))
        if name in images:  # a layer that drives the cells of another has none of its own
            wrong = hashlib.sha256(weights.tobytes()).hexdigest() != images[name]["weights_sha256"]
            compared["weights"] += weights.size
            differing["weights"] += int(wrong)
    elif word == "requantise":
        place, x = one["requantisation"], sums
        if one["stages"]:
            for stage in numbers("affine", one["stages"], requantisation=place):
                x = np.clip(x * stage[:, 0] + stage[:, 1], stage[:, 2], stage[:, 3])
        after = (numbers(n, requantisation=place) for n in ("multiplier", "shift", "lo", "hi"))
        multiplier, shift, lo, hi = after
        for tap, x in (
            ("requantised", x),
            ("requantiser_out", numbers("requantiser_in", requantisation=place)),
        ):
            y = np.clip(x * multiplier + (1 << shift - 1) >> shift, lo, hi)
            compare(tap, y, numbers(tap, requantisation=place))
for tap in compared:
    print(f"{tap}: {compared[tap]} compared, {differing[tap]} differ")
sys.exit(any(differing.values()) or not compared)
