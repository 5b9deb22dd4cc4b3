"""Rebuild the weights of a hand-off and recompute every tap, from FORMAT.md and layout.json alone.

    python examples/handoff/read_handoff.py FOLDER

needs numpy. It reads arrays like those of the reference bundle (KNOWN). Names are FORMAT.md's.
"""

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

folder = Path(sys.argv[1])
layout = json.loads((folder / "layout.json").read_text())
images = json.loads((folder / "images/images.json").read_text())["layers"]
KNOWN = {"polarities": 1, "baseline": 0, "unit": 0, "reference": 0, "flags": 1, "magnitude": 0}
KNOWN |= {"rounding": 0, "sum_places": 0, "reference_places": 0, "references": 1, "leak": 0}
at: Any = {}  # the fields of the last line of each word of steps.txt
compared, differing = Counter[str](), Counter[str]()


def numbers(name: str, **names: Any) -> Any:
    """The numbers of a file, with its axes."""
    file, extents = layout["files"][name], layout["layers"][at["layer"]["layer"]]["extents"]
    bits, digits = file["bits"], -(-file["bits"] // 4)
    lines = (folder / file["path"].format(**names)).read_text().split()
    found = [int(line[e - digits : e], 16) for line in lines for e in range(len(line), 0, -digits)]
    axes = file["axes"] + ([file["lanes"]] if "lanes" in file else [])
    signed = [number - (number >> bits - 1 << bits) for number in found]
    return np.array(signed).reshape(-1, *[extents[axis] for axis in axes[1:]])


def cells(name: str, array: str, bits: int, places: int) -> Any:
    """The numbers [lines, places] of a file of cells or flags."""
    text = (folder / layout["cells"][name].format(array=array)).read_text()
    lines = [int(line, 16) for line in text.split()]
    return np.array([[x >> bits * p & (1 << bits) - 1 for p in range(places)] for x in lines])


def compare(tap: str, found: Any, lanes: Any = slice(None), **names: Any) -> None:
    wrong = numbers(tap, **names)[..., lanes] != found
    compared[tap] += wrong.size
    differing[tap] += int(wrong.sum())


for line in (folder / "steps.txt").read_text().splitlines():
    word, *texts = line.split()
    fields = zip(layout["steps"][word], texts, strict=True)
    one: Any = {key: x if key in layout["words"] else int(x) for key, x in fields}
    at[word] = one
    if any(one.get(key, value) != value for key, value in KNOWN.items()):
        sys.exit(f"{line}: this reader knows arrays with {KNOWN} alone")
    if word == "layer":
        at["slice_lines"], at["cycle_lines"] = [], []
        total = np.zeros((one["vectors"], one["columns"]), int)
        weights = np.zeros((one["rows"], one["columns"]), "<i8")
    elif word in ("slice", "cycle"):
        at[f"{word}_lines"].append((one["sign"] << one["shift"], one))
    elif word == "read":
        cell, of_array, of_band = at["cells"], {"array": one["array"]}, {"band": one["band"]}
        rows, columns = slice(one["start"], one["stop"]), slice(one["first"], one["end"])
        width, worth = (
            one["end"] - one["first"],
            np.array([value for value, _ in at["slice_lines"]]),
        )
        A = numbers("inputs", group=one["group"], **of_band)[:, rows] + at["inputs"]["addend"]
        cut = [A >> cycle["shift"] & (1 << cycle["bits"]) - 1 for _, cycle in at["cycle_lines"]]
        digits = np.stack(cut, axis=1)
        lanes = slice(width * len(worth))  # those of weights: lane = weight x slices + slice
        held = cells("path", bits=cell["bits"], places=lanes.stop, **of_array)[rows]
        sums, R = digits @ held, digits.sum(axis=2)[..., None]
        step = np.tile(numbers("steps", layer=at["layer"]["layer"])[:, 0], width)
        rounded = (2 * sums + step) // (2 * np.maximum(step, 1))
        clipped = np.clip(rounded, at["converter"]["lo"], at["converter"]["hi"])
        codes, values = np.where(step, clipped, sums), np.where(step, clipped * step, sums)
        flags = cells("flags", bits=1, places=lanes.stop, **of_array)[int(one["group"][1:])]
        values = np.where(flags, cell["complement"] * R - values, values)
        of_cycles = values.reshape(*R.shape[:2], width, -1) @ worth - cell["offset"] * R
        added = np.tensordot(of_cycles, [value for value, _ in at["cycle_lines"]], (1, 0))
        compare("digits", digits, rows, group=one["group"], **of_band)
        for tap, found in (("sums", sums), ("codes", codes), ("shift_add", added)):
            compare(tap, found, slice(found.shape[-1]), group=one["group"], **of_array)
        total[:, columns] += added
        digit = np.where(flags, cell["complement"] - held, held).reshape(len(held), width, -1)
        top = int(one["band"].rsplit("/r", 1)[1]) * at["array"]["rows"]
        weights[top + rows.start : top + rows.stop, columns] = digit @ worth - cell["offset"]
    elif word == "sum":
        compare("layer_sum", total + numbers("bias", **one), **one)
        digest = hashlib.sha256(weights.tobytes()).hexdigest()
        compared["weights"] += weights.size
        differing["weights"] += digest != images[one["layer"]]["weights_sha256"]
    elif word == "requantise":
        place, x = {"requantisation": one["requantisation"]}, total + numbers("bias", **at["sum"])
        for stage in numbers("affine", **place) if one["stages"] else ():
            x = np.clip(x * stage[:, 0] + stage[:, 1], stage[:, 2], stage[:, 3])
        factor, shift, lo, hi = (numbers(x, **place) for x in ("multiplier", "shift", "lo", "hi"))
        directed = numbers("requantiser_in", **place)
        for tap, given in (("requantised", x), ("requantiser_out", directed)):
            rounded = given * factor + (1 << shift >> 1) >> shift
            compare(tap, np.clip(rounded, lo, hi), **place)
for tap, count in compared.items():
    print(f"{tap}: {count} compared, {differing[tap]} differ")
sys.exit(bool(sum(differing.values())) or not compared)
