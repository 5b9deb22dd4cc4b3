"""A compiled program as a C model: encoders, the score of a pair, and a gallery in the arrays.

Values of a score that depend on one item only are computed once and kept with its features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.errors import CimError
from cimtool.base.escapes import c_comment
from cimtool.handoff.c.operations import append
from cimtool.handoff.c.writer import (
    CInputs,
    ConstantTables,
    CValue,
    FunctionWriter,
    Identifiers,
    kind_of,
    literal,
)
from cimtool.handoff.stimuli import input_stores
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import item_products
from cimtool.ir.integer import Dequantize, Quantize
from cimtool.ir.program import MODALITIES, Graph, Node, Program, as_inputs
from cimtool.ir.types import Type
from cimtool.report.page import render_text

Phase = str
"""The function call in which a value is computed.

`text` or `video`: for an item; `pair`: for a pair; `query`: for a query; `gallery`: for a block of
the gallery.
"""


@dataclass(frozen=True)
class Seen:
    """A value that the model computes and shows by `CIM_SEE`."""

    graph: str
    value: str
    phase: Phase

    @property
    def name(self) -> str:
        """The value's name in reports."""
        return f"{self.graph}.{self.value}"


@dataclass(frozen=True)
class CModel:
    """The sources of a model, its constants, and the values that it computes, in this order."""

    header: str
    source: str
    tables: ConstantTables
    seen: tuple[Seen, ...]

    @property
    def weights(self) -> bytes:
        """The constants as a file: little-endian."""
        return b"".join(stored.tobytes() for _, _, _, stored in self.tables.items())

    @property
    def weights_header(self) -> str:
        """The constants as a C struct with the same layout as the file."""
        members, numbers = [], []
        for name, kind, _, stored in self.tables.items():
            members.append(f"    {kind} {name.lower()}[{stored.size}];")
            as_text = literal if kind == "int64_t" else str
            flat = [as_text(one) for one in stored.reshape(-1).tolist()]
            lines = (", ".join(flat[i : i + 16]) for i in range(0, len(flat), 16))
            numbers.append("    {" + ",\n     ".join(lines) + "}")
        given = {"members": members, "numbers": numbers}
        return render_text("cimtool.handoff", "weights.h", **given) + "\n"


def c_model(program: Program, name: str) -> CModel:
    """The C model of a compiled program, called `name` in its comments.

    Raises CimError, which names the operation that the model does not cover.
    """
    model = _Model(program)
    for graph in (program.text, program.video):
        model.projector(graph)
    if program.gallery_items is None:
        model.score(program.score)
    gallery = program.shortlist if program.gallery_items is None else program.score
    if gallery is not None:
        model.gallery(gallery)
    return model.finished(name)


class _Model:
    """Collects the functions of a model."""

    def __init__(self, program: Program):
        self.program = program
        self.tables = ConstantTables()
        self.seen: list[Seen] = []
        self.definitions: list[str] = []
        self.functions: list[str] = []
        self.header: list[str] = []
        self.fields: dict[str, list[CValue]] = {name: [] for name in MODALITIES}
        self.field_names = {name: Identifiers() for name in MODALITIES}
        self.items: dict[str, CValue] = {}
        """The values that an item keeps, by their names in the score."""
        ops = [op for graph in program.graphs for op in graph.operations(CrossbarMvm).values()]
        heights = [g.stop - g.start for op in ops if not op.exact for g in op.stored.groups]
        self.group_rows = max(heights, default=1)

    def projector(self, graph: Graph) -> None:
        """`MODALITY_encode`: from the codes of an embedding to the features of an item."""
        m = graph.name
        writer = FunctionWriter(f"{m}_encode", self.tables, rows=True)
        values: dict[str, CValue] = {}
        names = {name: self.field_names[m].new(name) for name in graph.outputs}
        fields = {value: names[name] for name, value in graph.outputs.items()}
        stores = input_stores(graph)
        for node in graph.nodes:
            if isinstance(node.op, Quantize):
                if node.name not in stores or len(graph.types[node.name].shape) != 2:
                    raise CimError(f"{graph.layer(node)}: expected one row of inputs")
                width, before = graph.extent(node.name), [*stores].index(node.name)
                values[node.name] = CInputs(
                    "x", f"{m}_code", str(width), stride=width * len(stores), place=width * before
                )
                continue
            if node.name in graph.embeddings:
                raise CimError(f"{graph.layer(node)}: expected the input as one row")
            place = fields.get(node.name)
            self._emit(writer, graph, node, values, m, place)
        self._header_of_codes(graph, stores)
        for name, value in graph.outputs.items():
            held = values[value]
            if (held.holder, held.own) != ("item", names[name]):
                kind = kind_of(graph.types[value])
                writer.place = CValue(names[name], kind, held.count, "item")
                held = writer.each(held.element)
            self.items[f"{m}.{name}"] = replace(held, rows=False)
        writer.each_item(f"{m}_prepare(weights, item + i);")
        writer.lines = [
            "for (int32_t at = 0; at < items; at += CIM_ITEMS) {",
            "    int32_t end = items - at < CIM_ITEMS ? items : at + CIM_ITEMS;",
            *(f"    {line}" for line in writer.lines),
            "}",
        ]
        self.fields[m] += writer.fields
        arguments = f"const void *weights, const {m}_code *x, {m}_item *item, int32_t items"
        self._prepared(m)
        self._function(writer, "void", arguments)

    def _header_of_codes(self, graph: Graph, stores: Mapping[str, Quantize]) -> None:
        """The codes of a row: of several stores those of one after those of another."""
        m, known = graph.name, [graph.types[name] for name in stores]
        width = graph.extent(next(iter(stores)))
        numbers = [
            f"{float(unit).hex()}f"
            for one in stores.values()
            for unit in np.broadcast_to(one.scale, (width,))
        ]
        lines = (", ".join(numbers[i : i + 4]) for i in range(0, len(numbers), 4))
        # Layers take codes of this kind, so codes need no copy.
        narrow = all(kind_of(one) in ("int8_t", "uint8_t", "int16_t") for one in known)
        ends = [(one.lo, one.hi) for one in stores.values()]
        spans = ", then ".join(f"{lo} .. {hi}" for lo, hi in ends)
        where = ""
        if len(stores) > 1:
            where = (
                f"\n * The embedding's {width} numbers come {len(stores)} times in a row, with the "
                "limits in this order."
            )
        limits = ", ".join(
            f"{m.upper()}_{end}{'' if place == 1 else f'_{place}'} = {value}"
            for place, own in enumerate(ends, 1)
            for end, value in zip(("LO", "HI"), own, strict=True)
        )
        self.header.append(
            f"/* Codes of {m} embeddings: a number over its unit, rounded half to even, clipped\n"
            f" * to {spans}; divide in float by {m.upper()}_UNITS.{where} */\n"
            f"enum {{ {m.upper()}_WIDTH = {width * len(stores)}, {limits} }};\n"
            f"#define {m.upper()}_UNITS {{ \\\n    "
            + ", \\\n    ".join(lines)
            + f"}}\ntypedef {'int16_t' if narrow else 'int32_t'} {m}_code;"
        )

    def _prepared(self, m: str) -> None:
        """`MODALITY_prepare`: the values that the score of a pair reads and one item determines."""
        graph, writer = self.program.score, FunctionWriter(f"{m}_prepare", self.tables)
        writer.lines.append("(void)item;")
        if self.program.gallery_items is None:
            sides = self._sides(graph)
            read = {
                name
                for node in graph.nodes
                if len(sides[node.name]) > 1
                for name in node.inputs
                if sides[name] == {m}
            }
            values = {name: self.items[name] for name in graph.inputs if sides[name] == {m}}
            for node in graph.nodes:
                if sides[node.name] == {m}:
                    kept = node.name in read
                    own = self.field_names[m].new(f"{node.name}_") if kept else None
                    value = self._emit(writer, graph, node, values, m, own)
                    if own and not value.holder:
                        writer.place = CValue(own, value.kind, value.count, "item")
                        values[node.name] = writer.each(value.element)
            self.items |= values
        self.fields[m] += writer.fields
        self._function(writer, "void", f"const void *weights, {m}_item *item")

    def score(self, graph: Graph) -> None:
        """`pair_logit`: the integer logit of a text and a video."""
        sides, writer = self._sides(graph), FunctionWriter("pair_logit", self.tables)
        values = {
            name: replace(value, holder=m)
            for name, value in self.items.items()
            for m in sides[name]
            if value.holder
        }
        for node in graph.nodes:
            if len(sides[node.name]) > 1:
                self._emit(writer, graph, node, values, "pair")
        last = values[graph.outputs["logit"]]
        writer.lines.append(f"return {last.element};")
        self.header.append(_unit(graph, "pair_logit") + "#define MODEL_PAIRS")
        arguments = "const void *weights, const text_item *text, const video_item *video"
        self._function(writer, last.kind, arguments)

    def gallery(self, graph: Graph) -> None:
        """`gallery_scores`: scores of a text for all items in the arrays, block by block."""
        writer = FunctionWriter("gallery_scores", self.tables)
        values = {
            name: replace(value, holder="text")
            for name, value in self.items.items()
            if name in graph.inputs
        }
        ((output, last),) = graph.outputs.items()
        items = int(graph.types[last].shape[1])
        of_items = _of_items(graph, items)
        for node in graph.nodes:
            if node.name not in of_items:
                self._emit(writer, graph, node, values, "query")
        outer, writer.lines = writer.lines, []
        writer.start = "first"
        for node in graph.nodes:
            if node.name in of_items:
                self._emit(writer, graph, node, values, "gallery")
        found = values[last]
        inner = [
            f"int32_t n = {items} - first < CIM_BLOCK ? {items} - first : CIM_BLOCK;",
            *writer.lines,
            f"for (int32_t j = 0; j < n; j++) out[first + j] = {found.element};",
        ]
        writer.lines = [
            *outer,
            f"for (int32_t first = 0; first < {items}; first += CIM_BLOCK) {{",
            *(f"    {line}" for line in inner),
            "}",
        ]
        what = (
            _unit(graph, "gallery_scores")
            if output == "logit"
            else ("/* gallery_scores: the distances ed by which a shortlist is drawn up. */\n")
        )
        self.header.append(
            f"{what}#define MODEL_GALLERY {items}\ntypedef {found.kind} model_gallery;"
        )
        arguments = "const void *weights, const text_item *text, model_gallery *out"
        self._function(writer, "void", arguments)

    def _emit(
        self,
        writer: FunctionWriter,
        graph: Graph,
        node: Node,
        values: dict[str, CValue],
        phase: Phase,
        field: str | None = None,
    ) -> CValue:
        """Append one node's statements; its value joins `values`. `field` makes it the item's."""
        known = graph.types[node.name]
        writer.layer = graph.layer(node)
        if len(known.shape) > 2:
            raise writer.refuse(f"a value of {len(known.shape)} axes")
        kind = "int64_t" if not known.is_integer else kind_of(known)
        count = "n" if phase == "gallery" else _count(known)
        inputs = [values[name] for name in node.inputs]
        if isinstance(node.op, Dequantize):
            values[node.name] = inputs[0]
            return inputs[0]
        if field is None:
            writer.place = CValue(writer.local(node.name), kind, count)
        else:
            writer.place = CValue(field, kind, count, "item")
        types = tuple(graph.types[name] for name in node.inputs)
        value = append(writer, node.op, types, inputs)
        values[node.name] = value
        if value not in inputs:
            of = f"item{' + i' * writer.rows}" if phase in MODALITIES else "0"
            writer.each_item(f"CIM_SEE({len(self.seen)}, {of}, {count or 1}, {value.element});")
            self.seen.append(Seen(graph.name, node.name, phase))
        return value

    def _sides(self, graph: Graph) -> Mapping[str, frozenset[str]]:
        """The modalities on which each value of a score depends."""
        sides: dict[str, frozenset[str]] = {}
        for projector in (self.program.text, self.program.video):
            sides |= as_inputs(
                projector.name, dict.fromkeys(projector.outputs, frozenset({projector.name}))
            )
        for node in graph.nodes:
            sides[node.name] = frozenset().union(*(sides[name] for name in node.inputs))
        return sides

    def _function(self, writer: FunctionWriter, result: str, arguments: str) -> None:
        self.definitions += writer.definitions
        signature = f"{result} {writer.name}({arguments})"
        self.header.append(f"{signature};")
        lines = ["(void)weights;", *writer.pointers(), *writer.lines]
        body = "\n".join(f"    {line}" for line in lines)
        self.functions.append(f"{signature} {{\n{body}\n}}\n")

    def finished(self, name: str) -> CModel:
        """The sources."""
        source = render_text(
            "cimtool.handoff",
            "model.c",
            name=c_comment(name),
            group_rows=self.group_rows,
            tables=self.tables,
            definitions=[*self.definitions, *self.functions],
        )
        header = render_text(
            "cimtool.handoff",
            "model.h",
            name=c_comment(name),
            tables=self.tables,
            fields=self.fields,
            declarations=self.header,
        )
        return CModel(f"{header}\n", f"{source}\n", self.tables, tuple(self.seen))


def _count(known: Type) -> str:
    """The count of numbers in a value of one item; empty for a single number."""
    shape = known.shape
    return str(shape[1]) if len(shape) == 2 and isinstance(shape[1], int) and shape[1] > 1 else ""


def _of_items(graph: Graph, items: int) -> set[str]:
    """The values of a score in the memory that have a number for each item."""
    found: set[str] = set()
    products = {*item_products(graph), *graph.operations(CellDistance)}
    for node in graph.nodes:
        shape = graph.types[node.name].shape
        joined = (
            len(shape) == 2
            and shape[1] == items > 1
            and all(not _count(graph.types[name]) for name in node.inputs)
        )
        if node.name in products or joined or not found.isdisjoint(node.inputs):
            found.add(node.name)
    return found


def _unit(graph: Graph, function: str) -> str:
    """The comment with the unit of a logit."""
    (op,) = graph.operations(Dequantize).values()
    exponent = int(np.log2(float(np.asarray(op.scale))))
    return f"/* {function}: logits in units of 2^{exponent}. */\n"
