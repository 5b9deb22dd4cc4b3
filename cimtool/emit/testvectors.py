"""Test vectors for a chip's test bench: stimuli, and the numbers that its taps must show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError
from cimtool.base.named import nearest
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.serial import narrowed
from cimtool.emit.taps import (
    Taps,
    converted_columns,
    layer_sum,
    sum_bits,
    taps,
    worst_column,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.program import MODALITIES, Graph, Node, Program
from cimtool.ir.types import Type
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Runner, Simulator

LAYOUT, README = "layout.json", "README.txt"
FIXED_ROWS, RANDOM_ROWS, REAL_ROWS = 8, 2, 2
SEED = 0
LARGEST = 1 << 30
"""Bytes that an export may take; layers are chosen where all of them would take more."""


@dataclass(frozen=True)
class ArrayFiles:
    """One array as it is written: `NAME.npy`, and `NAME.mem` with one number a line, row by row.

    A line of `NAME.mem` is two's complement of `bits` bits in `ceil(bits / 4)` hex digits, as
    `$readmemh` reads it, in the order of `axes`, the last the fastest.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    bits: int
    signed: bool
    what: str


@dataclass(frozen=True)
class Request:
    """What to export: layers whose name matches `layers`, and rows of embeddings to add."""

    layers: str = "*"
    inputs: Embeddings | None = None


class Folder:
    """A folder of arrays with its layout."""

    def __init__(self, path: Path):
        self.path = path
        self.arrays: list[ArrayFiles] = []
        self.layers: dict[str, Any] = {}
        self.stimuli: dict[str, Any] = {}

    def add(
        self, name: str, values: IntArray, axes: str, bits: int, signed: bool, what: str
    ) -> None:
        """Write one array of integers that fit `bits`."""
        described = ArrayFiles(name, tuple(axes.split()), values.shape, bits, signed, what)
        np.save(self.path / f"{name}.npy", narrowed(values))
        (self.path / f"{name}.mem").write_bytes(hex_lines(values, bits))
        self.arrays.append(described)

    def finish(self, program: str) -> None:
        """Write the layout and its explanation."""
        layout = {
            "bundle": program,
            "stimuli": self.stimuli,
            "layers": self.layers,
            "files": {one.name: asdict(one) for one in self.arrays},
        }
        (self.path / LAYOUT).write_text(json.dumps(layout, indent=1) + "\n", "utf-8")
        lines = [f"{one.name}: {one.what} [{' x '.join(one.axes)}]" for one in self.arrays]
        (self.path / README).write_text(EXPLANATION + "\n".join(lines) + "\n", "utf-8")


EXPLANATION = """\
Test vectors of a compiled program: what goes in, and what must be seen on the way.

Every array is there twice, with the same numbers in the same order:
  NAME.npy  for NumPy
  NAME.mem  for $readmemh: one number a line, two's complement of `bits` bits in hex, the last
            axis the fastest
layout.json says the axes, shape, bits and signedness of each, the row groups, steps and shifts of
each layer, and what each stimulus (the first axis of a layer's arrays) is.

Of each layer:
  inputs      what the layer gets
  digits      tap 1: what each cycle drives
  sums        tap 2: exact column sums, in 2^-fraction_bits of a digit; columns are those of slice
              0, slice 1, ..., and the unit column last, where there is one
  codes       tap 3: what converters make of the sums; of a column without a step the sum itself
  shift_add   tap 4: what each row group adds to the layer's sum, its corrections included
  layer_sum   all row groups, rounded to whole numbers, with the bias
  NODE        tap 5: after requantisation

End to end: MODALITY.codes are quantised embeddings, MODALITY.FEATURE what the projector returns
for them, score.logit the integer logit of each pair of text and video rows.

"""


def hex_lines(values: IntArray, bits: int) -> bytes:
    """One line of two's complement hex for each number, in C order."""
    digits = -(-bits // 4)
    flat = values.reshape(-1).astype(np.int64).view(np.uint64)
    if bits < 64:
        flat = flat & np.uint64((1 << bits) - 1)
    lines = np.full((flat.size, digits + 1), ord("\n"), np.uint8)
    letters = np.frombuffer(b"0123456789abcdef", np.uint8)
    for place in range(digits):
        lines[:, digits - 1 - place] = letters[(flat >> np.uint64(4 * place)) & np.uint64(15)]
    return lines.tobytes()


def write_testvectors(bundle: Bundle, request: Request, path: Path) -> None:
    """Write test vectors of a bundle into an empty folder.

    Raises CimError where no layer has such a name, or they would take more than LARGEST bytes.
    """
    program = bundle.program
    chosen = _chosen(program, request.layers)
    real = _real_rows(program, request.inputs)
    folder = Folder(path)
    vectors = FIXED_ROWS + RANDOM_ROWS + (REAL_ROWS if real else 0)
    size = sum(_size(op, vectors) for _, _, op in chosen)
    if size > LARGEST:
        raise ArgumentError(
            "test vectors of {} layers would take {:.1f} GB; choose layers that take less than "
            '1.1 GB, as by {layers} "text.mu"',
            len(chosen),
            size / 1e9,
        )
    for graph, node, op in chosen:
        _write_layer(folder, graph, node, op, real)
    _write_ends(folder, program, request.inputs)
    folder.finish(bundle.model.name)


Chosen = tuple[Graph, Node, CrossbarMvm]


def _chosen(program: Program, pattern: str) -> list[Chosen]:
    layers = [
        (graph, node, node.op)
        for graph in (program.text, program.video)
        for node in graph.nodes
        if isinstance(node.op, CrossbarMvm)
    ]
    names = [graph.layer(node) for graph, node, _ in layers]
    found = [one for one, name in zip(layers, names, strict=True) if fnmatchcase(name, pattern)]
    if not found:
        raise ArgumentError(
            '{layers} "{}" matches no layer; expected one of {}{}',
            pattern,
            ", ".join(names),
            nearest(pattern, names),
        )
    return found


def _real_rows(program: Program, inputs: Embeddings | None) -> Mapping[str, Mapping[str, Array]]:
    """The values of every node of both projectors for the first rows of embeddings."""
    if inputs is None:
        return {}
    rows = {"text": inputs.text[:REAL_ROWS], "video": inputs.video[:REAL_ROWS]}
    return {
        graph.name: Runner(graph, fast=False).values(
            {"x": rows[graph.name]}, ["x", *(node.name for node in graph.nodes)]
        )
        for graph in (program.text, program.video)
    }


def _stimuli(
    graph: Graph, node: Node, op: CrossbarMvm, real: Mapping[str, Mapping[str, Array]]
) -> tuple[IntArray, list[str]]:
    """Inputs [n, K] of a layer, within the range that it is proved to get, and their names."""
    known, rows = graph.types[node.inputs[0]], len(op.weight)
    lo, hi = int(known.lo.max()), int(known.hi.min())
    zero = np.full(rows, min(max(0, lo), hi))
    odd = np.arange(rows) % 2 == 1
    first, last = zero.copy(), zero.copy()
    first[0], last[-1] = hi, hi
    named = {
        "zero": zero,
        "largest": np.full(rows, hi),
        "smallest": np.full(rows, lo),
        "one hot, first row": first,
        "one hot, last row": last,
        "checkerboard, odd rows": np.where(odd, hi, lo),
        "checkerboard, even rows": np.where(odd, lo, hi),
        "worst-case column": worst_column(op, lo, hi),
    }
    rng = np.random.default_rng(SEED)
    for index in range(RANDOM_ROWS):
        named[f"random {index}"] = rng.integers(lo, hi, rows, endpoint=True)
    for index, row in enumerate(real[graph.name][node.inputs[0]] if real else []):
        named[f"real row {index}"] = row
    return np.stack(list(named.values())), list(named)


def _size(op: CrossbarMvm, vectors: int) -> int:
    """Bytes that a layer takes, nearly: its column sums and codes, in both files."""
    crossbar, width = op.crossbar, op.weight.shape[1]
    columns = width * crossbar.slices + crossbar.unit_column
    count = len(op.stored.groups) * len(crossbar.cycles) * columns
    bits = sum_bits(op)
    code = crossbar.converter.bits or bits
    each = sum(-(-b // 8) + -(-b // 4) + 1 for b in (bits, code))
    return int(vectors * count * each)


def _write_layer(
    folder: Folder,
    graph: Graph,
    node: Node,
    op: CrossbarMvm,
    real: Mapping[str, Mapping[str, Array]],
) -> None:
    name = graph.layer(node)
    x, stimuli = _stimuli(graph, node, op, real)
    found = taps(op, x)
    total = layer_sum(op, found.shift_add)
    folder.stimuli[name] = stimuli
    folder.layers[name] = _described(op)
    known = graph.types[node.inputs[0]]
    folder.add(f"{name}.inputs", x, "vector row", known.bits, known.signed, "inputs")
    for tap, values, axes, bits, signed, what in _taps(op, found):
        folder.add(f"{name}.{tap}", values, axes, bits, signed, what)
    if op.crossbar.weights.complements:
        flags = np.stack([s.flipped for s in op.stored.slices], axis=1)
        what = "which columns hold complements: they count cell_maximum * sum of digits - sum"
        axes = "group slice column"
        folder.add(f"{name}.flipped", flags.astype(np.int64), axes, 1, False, what)
    bits = graph.types[node.name].bits + 1
    folder.add(f"{name}.layer_sum", total, "vector column", bits, True, "all row groups and bias")
    for after, values in _requantised(graph, node, total):
        known = graph.types[after]
        file, what = f"{name}.requantised.{after}", f"tap 5, after requantisation of {name}"
        folder.add(file, values, "vector column", known.bits, known.signed, what)


def _requantised(graph: Graph, layer: Node, total: IntArray) -> Iterator[tuple[str, IntArray]]:
    """The first requantised values behind a layer, through what takes its sums alone."""
    values = {layer.name: total}
    for node in graph.nodes:
        if len(node.inputs) == 1 and node.inputs[0] in values:
            found = node.op.run(values[node.inputs[0]])
            if isinstance(node.op, Requant):
                yield node.name, found
            else:
                values[node.name] = found


def _taps(op: CrossbarMvm, found: Taps) -> Iterator[tuple[str, IntArray, str, int, bool, str]]:
    crossbar = op.crossbar
    lo, hi = crossbar.digit_limits
    digit_bits = max(hi.bit_length(), (-lo).bit_length()) + (lo < 0)
    signed = crossbar.signed_sums
    bits = sum_bits(op)
    all_converted = all(step is not None for _, step in converted_columns(op))
    code_bits = (crossbar.converter.bits if all_converted else None) or bits
    wide = int(np.abs(found.shift_add).max()).bit_length() + 1
    wide = min(64, max(wide, crossbar.accumulator_bits + crossbar.fraction_bits))
    columns = "vector group cycle column"
    yield "digits", found.digits, "vector cycle row", digit_bits, lo < 0, "tap 1, digits driven"
    yield "sums", found.sums, columns, bits, True, "tap 2, column sums"
    yield "codes", found.codes, columns, code_bits, signed or code_bits == bits, "tap 3, codes"
    what = "tap 4, after shift-and-add"
    yield "shift_add", found.shift_add, "vector group column", wide, True, what


def _described(op: CrossbarMvm) -> dict[str, Any]:
    """What a test bench must know of a layer beside its arrays."""
    crossbar, stored = op.crossbar, op.stored
    return {
        "rows": len(op.weight),
        "columns": op.weight.shape[1],
        "row_groups": [[group.start, group.stop] for group in stored.groups],
        "idle_rows": stored.idle_rows.tolist(),
        "fraction_bits": crossbar.fraction_bits,
        "slices": [
            {"shift": s.shift, "sign": s.sign, "step": step}
            for s, step in zip(stored.slices, op.steps, strict=True)
        ],
        "unit_step": op.unit_step,
        "cycles": [{"shift": cycle.shift, "sign": cycle.sign} for cycle in crossbar.cycles],
        "crossbar": crossbar.to_json(),
    }


def _write_ends(folder: Folder, program: Program, inputs: Embeddings | None) -> None:
    """Write codes of embeddings, the features they give, and the logits of all pairs."""
    simulator = Simulator(program, fast=False)
    features = {}
    for graph in (program.text, program.video):
        node, op = _quantizer(graph)
        known = graph.types[node.name]
        codes = _embedding_codes(graph, op, known, inputs)
        rows = (codes * op.scale).astype(np.float32)
        features[graph.name] = simulator.encode(graph.name, rows)
        what = f"quantised embeddings of {graph.name}"
        folder.add(f"{graph.name}.codes", codes, "vector row", known.bits, known.signed, what)
        for name, values in features[graph.name].items():
            known = graph.types[graph.outputs[name]]
            axes = "vector" if values.ndim == 1 else "vector dimension"
            file = f"{graph.name}.{name}"
            folder.add(file, values, axes, known.bits, known.signed, f"the feature {name}")
    if program.gallery_items is None:
        value = _logit(program.score)
        known = program.score.types[value]
        text, video = (features[m] for m in MODALITIES)
        blocks = simulator.iter_score(text, video, [value])
        logits = np.concatenate([found[value] for _, found in blocks])
        axes = "text_vector video_vector"
        folder.add("score.logit", logits, axes, known.bits, known.signed, "integer logits")


def _quantizer(graph: Graph) -> tuple[Node, Quantize]:
    for node in graph.nodes:
        if isinstance(node.op, Quantize):
            return node, node.op
    raise TypeError(f"{graph.name} quantises no embeddings")


def _embedding_codes(
    graph: Graph, op: Quantize, known: Type, inputs: Embeddings | None
) -> IntArray:
    width = int(known.shape[1])
    rng = np.random.default_rng(SEED)
    rows = [np.full(width, code) for code in (0, op.hi, op.lo)]
    rows += [rng.integers(op.lo, op.hi, width, endpoint=True) for _ in range(RANDOM_ROWS)]
    codes = np.stack(rows)
    if inputs is None:
        return codes
    real = {"text": inputs.text, "video": inputs.video}[graph.name][:REAL_ROWS]
    return np.concatenate([codes, op.run(real)])


def _logit(score: Graph) -> str:
    """The value that becomes the logit: the integer before its unit is multiplied on."""
    node = score.by_name[score.outputs["logit"]]
    op: Op = node.op
    if not isinstance(op, Dequantize):
        raise TypeError("the score's output is no dequantised integer")
    return node.inputs[0]
