"""Rebuild the weights of a hand-off and recompute its taps, from its files alone.

    python tests/kits/handoff_reader.py FOLDER

It was written from FORMAT.md and layout.json, for every kind of array;
`examples/handoff/read_handoff.py` is for the simplest. It prints how many numbers it compared,
and each file in which some differ; then it ends with status 1. Names are those of FORMAT.md.
"""

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace as Fields
from typing import Any

import numpy as np

folder = Path(sys.argv[1])
layout = json.loads((folder / "layout.json").read_text())
images = json.loads((folder / "images/images.json").read_text())["layers"]
order, compared, differing = layout["cells"], Counter[str](), Counter[str]()
reverse = slice(None, None, -1 if order["pair"] == "negative-first" else 1)
WEIGHT = ("weight", "slice", "polarity")
coded: dict[int, Any] = {}  # sums of codes in a search, by the first item of an array
at: Any = Fields()  # the fields of the last line of each word of steps.txt


def numbers(name: str, stages: Any = 0, **names: str) -> Any:
    """The numbers of a file, with its axes."""
    file, extents = layout["files"][name], at.extent | {"stage": stages}
    lanes, bits = extents.get(file.get("lanes"), 1), file["bits"]
    digits, lines = -(-bits // 4), (folder / file["path"].format(**names)).read_text().split()
    found = [int(line[k * digits : (k + 1) * digits], 16) for line in lines for k in range(lanes)]
    shape = [extents[axis] for axis in file["axes"]]
    wide = np.array(found, np.uint64).reshape(*shape, lanes)[..., ::-1] << np.uint64(64 - bits)
    return (wide.view(np.int64) >> 64 - bits).reshape(*shape, *[lanes] * ("lanes" in file))


def words(name: str, places: int, bits: int, array: str) -> Any:
    """The numbers [lines, places] of some bits in a file of cells or flags."""
    base, step = 16 if order["digits"] == "hex" else 2, -1 if "lsb" in order["bit_order"] else 1
    found, width = [], order.get("word_bits", places * bits)
    for line in (folder / order[name].format(array=array)).read_text().splitlines():
        text = "".join(f"{int(word, base):0{width}b}"[::step] for word in line.split())
        found.append([int(text[p * bits : (p + 1) * bits][::step], 2) for p in range(places)])
    return np.array(found)


def compare(tap: str, found: Any, used: Any = slice(None), **names: str) -> None:
    """Compare the used numbers of the last axis with those of the tap's file."""
    wrong = (found != numbers(tap, **names))[..., used]
    compared[tap], differing[tap] = compared[tap] + wrong.size, differing[tap] + int(wrong.sum())
    if wrong.any():
        print(f"{layout['files'][tap]['path'].format(**names)}: {wrong.sum()} differ")


def convert(sums: Any, step: Any, offset: Any, table: Any) -> Any:
    """The codes of sums, and the values that they stand for."""
    one, size = at.converter, np.where(step, step, 1)
    P, code, value = (sums << one.reference_places) - offset, sums, 0
    if one.kind == 1:
        whole, twice = P // size, 2 * (P % size)
        even = (twice > size) | (twice == size) & (whole % 2 == 1)
        code = np.clip(whole + [twice >= size, even, 0][one.rounding], one.lo, one.hi)
        value = code * size + offset
    elif one.kind > 1:
        T, level = (table_of[table] for table_of in at.tables)
        place = (P[..., None] << one.threshold_places >= T * size[..., None]).sum(-1)
        level = np.broadcast_to(level, (*place.shape, level.shape[-1]))
        value = np.take_along_axis(level, place[..., None], -1)[..., 0] * size + offset
        code = place + one.lo
    return np.where(step == 0, sums, code), np.where(step == 0, sums << one.reference_places, value)


def program(array: str, **_: int) -> Any:
    """The cells [row, column of weights] of an array, and those of its other columns."""
    cells = words("path", at.array.columns, at.cells.bits, array)
    cells = cells[::-1] if order["order"] == "descending" else cells
    lines, axes = at.extent["row"] * at.cells.height, [*order["rows"], *order["columns"]]
    own = np.prod([at.extent[axis] for axis in order["columns"]])
    held = cells[:lines, :own].reshape([at.extent[axis] for axis in axes])
    held = held.transpose([axes.index(axis) for axis in ("row", "weight", "slice", "pair")])
    held, places = held[..., reverse], at.cells.by_polarity + 1
    signed = np.array([one.signed for one in at.slices[::places]])[:, None]
    held = np.where(signed & held >> at.cells.bits - 1, held - (1 << at.cells.bits), held)
    if at.cells.polarities > places:
        held = held[..., :1] - held[..., 1:]
    return held.reshape(len(held), -1), cells[: lines : at.cells.height, own:]


def read(array: str, group: str, band: str, start: int, stop: int, **line: int) -> Any:
    """Compare the taps of a row group of an array; return what it adds to sums, and its weights."""
    cell, converter, rows, slices = at.cells, at.converter, slice(start, stop), len(at.slices)
    names, of_rows = {"array": array, "group": group}, {"band": band, "group": group}
    A = numbers("inputs", **of_rows)[:, rows] + at.inputs.addend
    size, sign = (np.abs(A), np.sign(A)) if at.inputs.magnitude else (A, 1)
    cut = [size >> one.shift & ((1 << one.bits) - 1 if one.bits else -1) for one in at.cycles]
    driven, places = (
        np.zeros((len(A), len(cut), at.extent["row"]), int),
        line["end"] - line["first"],
    )
    driven[..., rows] = digits = np.stack([sign * one for one in cut], axis=1)
    compare("digits", driven, rows, **of_rows)
    # Of each lane the column of weights, the converted slice, and whether a weight is there.
    columns = np.arange(at.extent["weight"] * slices).reshape([at.extent[a] for a in WEIGHT])
    column = columns[..., reverse].transpose([WEIGHT.index(a) for a in layout["lanes"]]).ravel()
    k = np.append(column % slices, np.full(cell.unit, slices))
    used = np.append(column // slices < places, np.full(cell.unit, True))
    cells = at.held[rows][:, column] - (at.beside[rows, -1:] if cell.reference else 0)
    cells = np.hstack([cells, at.beside[rows, : cell.unit] - cell.baseline])
    D, of_weight = digits.sum(2), k < slices  # the unit column neither shifts nor leaks
    L = converter.leak * (D + line["idle"] * np.array([one.zero for one in at.cycles]))
    sums = (digits @ cells << converter.sum_places * of_weight) + L[..., None] * of_weight
    cycle = np.arange(len(cut))[:, None] % converter.references
    step = at.steps[k, cycle] if converter.kind else np.zeros(sums.shape[1:], int)
    offset = numbers("offsets", **names)[cycle[:, 0]] if "offsets" in at.files else 0
    table = k * converter.references + cycle if converter.kind == 3 else 0 * (k + cycle)
    codes, values = convert(sums, step, offset, table)
    compare("sums", sums, used, **names)
    compare("codes", codes, used, **names)
    fine, back, shape = converter.reference_places, np.argsort(column), (-1, slices)
    R = (values[..., -1] if cell.unit else D << fine) << converter.sum_places
    corrected = values[..., back] - (L << fine)[..., None]
    digit = at.held[rows] - cell.baseline
    if cell.flags:
        flags = words("flags", len(column) // at.extent["polarity"], 1, at.program.array)
        flags = np.repeat(flags[int(group[1:])], at.extent["polarity"])[back] == 1
        corrected = np.where(flags, (cell.complement * R)[..., None] - corrected, corrected)
        digit = np.where(flags, cell.complement - digit, digit)
    counts = np.array([one.sign * one.factor << one.shift for one in at.slices])
    of_cycle = np.array([one.sign << one.shift for one in at.cycles])[:, None]
    added = corrected.reshape(*R.shape, *shape) @ counts - cell.offset * R[..., None]
    added = (added * of_cycle).sum(1)
    compare("shift_add", added, np.arange(places), **names)
    weights = digit.reshape(len(digit), *shape) @ counts - cell.offset
    return added[:, :places], weights[:, :places]


for line in (folder / "steps.txt").read_text().splitlines():
    word, *texts = line.split()
    named = zip(layout["steps"][word], texts, strict=True)
    one: Any = {name: text if name in layout["words"] else int(text) for name, text in named}
    setattr(at, word, Fields(**one))
    if word == "layer":
        name, at.slices, at.cycles = one["layer"], [], []
        at.extent, at.files = (layout["layers"][name][key] for key in ("extents", "files"))
        total = np.zeros((one["vectors"], one["columns"]), int)
        weights = np.zeros((one["rows"], one["columns"]), "<i8")
    elif word == "converter" and one["kind"]:
        at.steps = numbers("steps", layer=name)
        at.tables = [numbers(t, layer=name) for t in ("thresholds", "levels") if t in at.files]
    elif word in ("slice", "cycle"):
        (at.slices if word == "slice" else at.cycles).append(Fields(**one))
    elif word == "program":
        at.held, at.beside = program(**one)
    elif word == "read":
        top, held = int(one["band"].rsplit("/r", 1)[1]) * at.extent["row"], at.read
        added, of_rows = read(**one)
        total[:, held.first : held.end] += added
        weights[top + held.start : top + held.stop, held.first : held.end] = of_rows
    elif word == "sum":
        places = at.converter.sum_places + at.converter.reference_places
        sums = (total + (1 << places >> 1) >> places) + numbers("bias", layer=name)
        compare("layer_sum", sums, layer=name)
        if name in images:  # else the layer drives the cells of another
            digest = hashlib.sha256(weights.tobytes()).hexdigest()
            compared["weights"] += weights.size
            if digest != images[name]["weights_sha256"]:
                differing["weights"] += 1
                print(f"{name}: the weights differ")
    elif word == "requantise":
        place, x, stages = one["requantisation"], sums, one["stages"]
        for stage in numbers("affine", stages, requantisation=place) if stages else ():
            x = np.clip(x * stage[:, 0] + stage[:, 1], stage[:, 2], stage[:, 3])
        after = (numbers(n, requantisation=place) for n in ("multiplier", "shift", "lo", "hi"))
        multiplier, shift, lo, hi = after
        directed = numbers("requantiser_in", requantisation=place)
        for tap, given in (("requantised", x), ("requantiser_out", directed)):
            found = np.clip(given * multiplier + (1 << shift - 1) >> shift, lo, hi)
            compare(tap, found, requantisation=place)
    elif word == "search":
        at.extent, coded = layout["searches"][one["search"]]["extents"], {}
    elif word == "store":
        at.words = numbers("cam_cells", **one)
    elif word == "match":
        first, items = one["first"], np.arange(one["end"] - one["first"])
        apart = np.abs(numbers("cam_queries", **one)[:, None] - at.words) * (at.words >= 0)
        distances = [apart > 0, apart, apart**2][at.search.distance].sum(2)
        codes = np.minimum(distances // at.search.step, at.search.top)
        compare("cam_distances", distances, items, **one)
        compare("cam_codes", codes, items, **one)
        coded[first] = coded.get(first, 0) + codes[:, items]
    elif word == "rank":
        sums = np.hstack(list(coded.values()))
        estimates = sums * numbers("cam_factor", **one) + numbers("cam_offset", **one)
        listed = np.argsort(estimates, axis=1, kind="stable")[:, : at.extent["place"]]
        compare("cam_sums", sums, **one)
        compare("cam_estimates", estimates, **one)
        compare("cam_shortlist", listed, **one)
for tap, count in compared.items():
    print(f"{tap}: {count} compared, {differing[tap]} differ")
sys.exit(any(differing.values()) or not compared)
