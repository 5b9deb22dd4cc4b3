"""Programs as readable JSON, one node per line, with their arrays in a table of constants.

A program that is read is checked: ValueError, and so CimError, for anything that the compiler
never writes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from cimtool.base.arrays import LARGEST_NUMBER, Array, FloatArray, narrow
from cimtool.base.errors import CimError
from cimtool.base.escapes import require_name
from cimtool.base.json_files import parse_json
from cimtool.base.plugins import OWN, origin_of_module
from cimtool.base.threads import map_rows
from cimtool.base.typed_fields import made_of
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir import integer, quantized, source  # noqa: F401  (importing operations registers them)
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.op import IF_GIVEN, UNSTORED, Op
from cimtool.ir.program import Graph, Node, Program, features_of, score_inputs
from cimtool.ir.types import Shape, Type, rows_of_item, shape_text, type_text

STORED_INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64)


class ConstantTable:
    """Arrays by name, each kept once and in the narrowest type that holds it exactly."""

    def __init__(self, shared: Mapping[str, str] | None = None):
        self.arrays: dict[str, Array] = {}
        self.names: dict[str, str] = dict(shared or {})
        self._scaled_by: dict[str, tuple[str, str]] = {}  # base and factors, by digest

    def add(self, name: str, array: Array) -> str:
        """Keep an array; return the name of an equal array if there is one, else `name`."""
        packed = np.ascontiguousarray(narrowed(array))
        return self._kept(name, packed, _digest(packed))

    def _kept(self, name: str, packed: Array, digest: str) -> str:
        if digest not in self.names:
            self.names[digest] = name
            self.arrays[name] = packed
        return self.names[digest]

    def encoded(self, name: str, array: Array) -> dict[str, str]:
        """Keep an array as `add` does, or as a kept array with its columns times `factors`.

        The product has the same bits. Folding a batch normalisation into a layer multiplies each
        column of its weights, so the unfolded weights and factors give the folded weights.
        """
        packed = np.ascontiguousarray(narrowed(array))
        digest = _digest(packed)
        if digest not in self._scaled_by:
            found = None if digest in self.names else self._scaled(packed)
            if found is None:
                return {"constant": self._kept(name, packed, digest)}
            self._scaled_by[digest] = found[0], self.add(f"{name}.factors", found[1])
        return dict(zip(("constant", "factors"), self._scaled_by[digest], strict=True))

    def _scaled(self, packed: Array) -> tuple[str, FloatArray] | None:
        """The name of a kept array and the column factors that turn it into `packed`, if any."""
        if packed.dtype != np.float32 or packed.ndim != 2 or packed.size < SMALLEST_SCALED:
            return None
        taken = {base for base, _ in self._scaled_by.values()}  # `Constants.scaled` allows one set
        for name, base in self.arrays.items():
            if name in taken or base.dtype != np.float32 or base.shape != packed.shape:
                continue
            if (factors := column_factors(base, packed)) is not None:
                return name, factors
        return None


def _digest(packed: Array) -> str:
    header = f"{packed.dtype.str}{packed.shape}".encode()
    return hashlib.sha256(header + packed.tobytes()).hexdigest()


SMALLEST_SCALED = 64
"""Arrays with fewer elements are stored whole: factors would save nothing."""

FACTOR_ROWS = 64
"""Rows per block: a block fits a core's cache, and the first one rules out most arrays."""


def column_factors(base: Array, wanted: Array) -> FloatArray | None:
    """Factors f [c] for which `scaled_columns(base, f)` is float32 `wanted` [r, c], bit for bit.

    None if there are none. The factors that round to an element form an interval. A column's factor
    lies in the intervals of all its elements; the middle of their intersection is returned.
    """

    def allowed(rows: slice) -> tuple[FloatArray, FloatArray]:
        return _factors_allowed(base[rows], wanted[rows])

    def same(rows: slice) -> bool:
        return np.array_equal(scaled_columns(base[rows], factors), wanted[rows])

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = allowed(slice(FACTOR_ROWS))
        if (low > high).any():
            return None
        lows, highs = zip(*map_rows(allowed, len(base), FACTOR_ROWS), strict=True)
        low, high = np.max(lows, axis=0), np.min(highs, axis=0)
        factors = np.where(np.isfinite(low), (low + high) / 2, 0.0)
        return factors if all(map_rows(same, len(base), FACTOR_ROWS)) else None


def _factors_allowed(base: Array, wanted: Array) -> tuple[FloatArray, FloatArray]:
    """The least and the largest factor [c] that all elements of a column allow."""
    half = np.spacing(np.abs(wanted)).astype(np.float64) / 2
    ends = [(wanted + sign * half) / base for sign in (-1, 1)]
    here = (base != 0) & (wanted != 0)
    low: FloatArray = np.where(here, np.minimum(*ends), -np.inf).max(axis=0)
    high: FloatArray = np.where(here, np.maximum(*ends), np.inf).min(axis=0)
    return low, high


def scaled_columns(base: Array, factors: Array) -> Array:
    """`base` [r, c] times `factors` [c], computed in float64 and rounded to float32."""
    return (base.astype(np.float64) * factors).astype(np.float32)


def narrowed(array: Array) -> Array:
    """The array in the narrowest type that holds every element exactly."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        return single if np.array_equal(single, array) else array
    if array.dtype.kind == "i":
        return narrow(array, STORED_INTEGERS)
    return array


def as_computed(array: Array) -> Array:
    """The array in the type that programs compute with: int64, float64 or bool."""
    wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind)
    return array if wide is None else array.astype(wide)


@dataclass(frozen=True, eq=False)
class Constants:
    """Arrays of a bundle's files by name; values computed from them are shared by all programs."""

    arrays: Mapping[str, Array]
    _made: dict[str, Array] = field(default_factory=dict)
    _stored: dict[tuple[str, str], StoredWeights] = field(default_factory=dict)
    _scaled: dict[str, str] = field(default_factory=dict)

    def joined(self, others: Mapping[str, Array]) -> Constants:
        """These arrays and others; values already computed from these are kept."""
        return Constants({**self.arrays, **others}, self._made, self._stored, self._scaled)

    def array(self, name: str) -> Array:
        """The array in the type of `as_computed`; KeyError if it is missing."""
        if name not in self._made:
            self._made[name] = as_computed(self.arrays[name])
        return self._made[name]

    def scaled(self, name: str, factors: str) -> Array:
        """An array's columns times factors, in the type of `as_computed`.

        KeyError if either is missing; ValueError if their extents don't match, or if the array
        already has another set of factors.
        """
        base, by = self.arrays[name], self.array(factors)
        if self._scaled.setdefault(name, factors) != factors:
            raise ValueError(f"{name} has two sets of factors")
        if base.ndim != 2 or by.shape != base.shape[1:]:
            raise ValueError(f"{factors} are not factors of the columns of {name}")
        key = f"{name} times {factors}"
        if key not in self._made:
            self._made[key] = as_computed(scaled_columns(base, by))
        return self._made[key]

    def stored(self, name: str, crossbar: Mapping[str, Any]) -> StoredWeights:
        """Weights in the cells of a crossbar; KeyError if the array is missing."""
        key = name, _json(crossbar)
        if key not in self._stored:
            self._stored[key] = made_of(
                StoredWeights,
                {"weight": self.array(name), "crossbar": Crossbar.from_json(crossbar)},
            )
        return self._stored[key]


def program_text(program: Program, constants: ConstantTable, prefix: str = "") -> str:
    """A program as JSON text, one node per line; its arrays are added to `constants`."""
    graphs = [graph_text(graph, constants, f"{prefix}{graph.name}") for graph in program.graphs]
    return "{\n" + ",\n".join(graphs) + "\n}\n"


def graph_text(graph: Graph, constants: ConstantTable, key: str) -> str:
    """A graph's entry in a program's JSON text; the names of its arrays begin with `key`."""
    inputs = ",\n      ".join(
        f"{_json(name)}: {_json(_fields_json(known, constants, f'{key}.{name}'))}"
        for name, known in graph.inputs.items()
    )
    nodes = ",\n      ".join(_json(_node_json(graph, node, constants, key)) for node in graph.nodes)
    return (
        f"  {_json(graph.name)}: {{\n"
        f'    "inputs": {{\n      {inputs}\n    }},\n'
        f'    "nodes": [\n      {nodes}\n    ],\n'
        f'    "outputs": {_json(dict(graph.outputs))}\n  }}'
    )


def read_program(text: str | bytes, constants: Constants, file: str) -> Program:
    """The program of a JSON text; raises CimError as `program_of` does."""
    try:
        values = parse_json(text)
    except ValueError as error:
        raise _unreadable(file, error) from error
    return program_of(values, constants, file)


def program_of(values: Mapping[str, Any], constants: Constants, file: str) -> Program:
    """The program of plain values; its types are inferred and compared with the stated types.

    Raises CimError for a program that this version does not write: a field of the wrong type, a
    node before its inputs, constants whose extents don't fit the layer, a type that is not the
    inferred type.
    """
    try:
        with np.errstate(over="raise", invalid="raise"):  # the compiler's numbers do neither
            names = (*ENTRIES, *_further(values))
            graphs = [_graph(name, values[name], constants) for name in names]
            _require_meeting(graphs)
    except (CimError, *MALFORMED) as error:
        raise _unreadable(file, error) from error
    return Program(*graphs)


def _unreadable(file: str, error: Exception) -> CimError:
    return CimError(
        f"{file}: is not a program that this version of cimtool can read ({error}); compile again"
    )


MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""Errors that malformed values raise while a program is made of them."""

ENTRIES = ("text", "video", "score")
"""The graphs of every program; a hybrid program also has a shortlist."""


def _further(values: Mapping[str, Any]) -> list[str]:
    further = [name for name in values if name not in ENTRIES]
    if further not in ([], ["shortlist"]):
        raise ValueError(f"it has graphs {', '.join(further)}")
    return further


def _graph(name: str, values: Mapping[str, Any], constants: Constants) -> Graph:
    """A graph; ValueError if its nodes are not in order, or a type differs from its line.

    CimError if an input, a node or an output has no valid name.
    """
    _require_names(name, values)
    inputs = {
        key: made_of(Type, _fields(known, constants, f"{name}.{key}"))
        for key, known in values["inputs"].items()
    }
    outputs = {**values["outputs"]}
    nodes = tuple(_node(line, constants, name) for line in values["nodes"])
    known = set(inputs)
    for node in nodes:
        if node.name in known or not known.issuperset(node.inputs):
            raise ValueError(f"{name}.{node.name} is twice, or before its inputs")
        known.add(node.name)
    if not known.issuperset(outputs.values()):
        raise ValueError(f"an output of {name} is no value of it")
    graph = Graph(name, inputs, nodes, outputs)
    _require_read(graph)
    for node, line in zip(nodes, values["nodes"], strict=True):
        _require_sound(graph, node, line["type"])
    return graph


def _require_names(graph: str, values: Mapping[str, Any]) -> None:
    for key in ("inputs", "outputs"):
        for name in values[key]:
            require_name(name, f"a name in {graph}.{key}")
    for index, line in enumerate(values["nodes"]):
        require_name(line["name"], f"{graph}.nodes[{index}].name")


_json = json.JSONEncoder(allow_nan=False).encode


def _node_json(graph: Graph, node: Node, constants: ConstantTable, prefix: str) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op.name,
        "inputs": list(node.inputs),
        "fields": _fields_json(node.op, constants, f"{prefix}.{node.name}"),
        "type": type_text(graph.types[node.name]),
    }


def _node(line: Mapping[str, Any], constants: Constants, graph: str) -> Node:
    kind = Op.named(line["op"], "operation")
    op = made_of(kind, _fields(line["fields"], constants, f"{graph}.{line['name']}"))
    return made_of(Node, {"name": line["name"], "op": op, "inputs": tuple(line["inputs"])})


def _fields_json(value: Any, constants: ConstantTable, name: str) -> dict[str, Any]:
    """The fields of an operation or a type, as a file keeps them."""
    stored = {
        one.name: getattr(value, one.name)
        for one in fields(value)
        if one.metadata != UNSTORED and (one.metadata != IF_GIVEN or getattr(value, one.name))
    }
    _require_fields(stored, name)
    return {key: _encoded(field, constants, f"{name}.{key}") for key, field in stored.items()}


def _fields(values: Mapping[str, Any], constants: Constants, name: str) -> dict[str, Any]:
    """The fields of an operation or a type, read from a file's values."""
    found = {key: _decoded(value, constants) for key, value in values.items()}
    _require_fields(found, name)
    return found


def _require_fields(values: Mapping[str, Any], name: str) -> None:
    for key, value in values.items():
        _require_numbers(value, f"{name}.{key}", LIMITS.get(key, ORDINARY))


ORDINARY = (-LARGEST_NUMBER, LARGEST_NUMBER)
"""The least and the largest number that most fields may hold."""

MOST = float(np.finfo(np.float64).max)

LIMITS = {"lo": (-np.inf, MOST), "hi": (-MOST, np.inf), "mask": (-np.inf, LARGEST_NUMBER)}
"""Limits of the other fields, by name.

A bound of a value may be infinite, for example of exp. A mask holds -inf for tokens to leave out.
"""


def _require_numbers(value: Any, name: str, limits: tuple[float, float] = ORDINARY) -> None:
    """Raise CimError, which gives `name`, if a field's numbers are outside the limits."""
    if isinstance(value, tuple):
        for i, item in enumerate(value):
            _require_numbers(item, f"{name}.{i}", limits)
    elif isinstance(value, AdcReferences):
        of_levels = () if value.levels is None else (value.levels.thresholds, value.levels.levels)
        _require_numbers((value.step, value.offset, *of_levels), name)
    elif isinstance(value, np.ndarray | np.generic | float):
        numbers = np.asarray(value)
        if numbers.dtype.kind == "f":
            right = (numbers >= limits[0]) & (numbers <= limits[1])
            if not right.all():
                raise CimError(
                    f"{name} holds {numbers[~right].flat[0]:.4g}; expected numbers from "
                    f"{limits[0]:.4g} to {limits[1]:.4g}"
                )


def _encoded(value: Any, constants: ConstantTable, name: str) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        if value.ndim:
            return constants.encoded(name, np.asarray(value))
        return {"number": _number(value.item())}
    if isinstance(value, StoredWeights):
        weight = _encoded(value.weight, constants, name)
        return {"stored": weight, "crossbar": value.crossbar.to_json()}
    if isinstance(value, AdcReferences):
        offset = 0 if value.counts_from_zero else _encoded(value.offset, constants, name)
        levels = {} if value.levels is None else {"levels": _levels(value.levels, constants, name)}
        step = int(value.step[0, 0])
        if value.step.size > 1:
            step = _encoded(value.step, constants, f"{name}.step")
        return {"step": step, "offset": offset} | levels
    if isinstance(value, tuple):
        return [_encoded(item, constants, f"{name}.{i}") for i, item in enumerate(value)]
    return value


def _levels(law: StaircaseLaw, constants: ConstantTable, name: str) -> dict[str, Any]:
    """The thresholds and levels of a slice's converter."""
    numbers = {key: getattr(law, key) for key in ("thresholds", "levels")}
    kept = {key: _encoded(n, constants, f"{name}.{key}") for key, n in numbers.items()}
    return {"lo": law.lo, "places": law.places} | kept


def _number(value: float) -> float | str:
    return value if isinstance(value, int) or math.isfinite(value) else str(value)


def _decoded(value: Any, constants: Constants) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(item, constants) for item in value)
    if not isinstance(value, dict):
        return value
    if "factors" in value:
        return constants.scaled(value["constant"], value["factors"])
    if "constant" in value:
        return constants.array(value["constant"])
    if "number" in value:
        number = value["number"]
        return np.asarray(number if isinstance(number, int) else float(number))
    if "step" in value:
        step = value["step"]
        references = AdcReferences.from_zero(step if isinstance(step, int) else 1)
        if not isinstance(step, int):
            references = replace(references, step=_decoded(step, constants))
        if value["offset"] != 0:
            references = replace(references, offset=_decoded(value["offset"], constants))
        if "levels" not in value:
            return references
        levels = {key: _decoded(one, constants) for key, one in value["levels"].items()}
        return replace(references, levels=StaircaseLaw(**levels))
    return constants.stored(value["stored"]["constant"], value["crossbar"])


def _require_read(graph: Graph) -> None:
    """Raise ValueError if no output depends on a node."""
    read = set(graph.pruned().nodes)
    for node in graph.nodes:
        if node not in read:
            raise ValueError(f"nothing reads {graph.layer(node)}")


def _require_sound(graph: Graph, node: Node, said: str) -> None:
    """Raise ValueError unless a node's line states its type and its operation computes it."""
    _require_type(graph, node, said)
    _require_kinds(graph, node)
    _require_run(graph, node)


def _require_type(graph: Graph, node: Node, said: str) -> None:
    """Raise ValueError unless a node's type is sound and is the type that its line states."""
    known = graph.types[node.name]
    width = known.shape[-1] if known.shape else 1
    parts = (known.lo, known.hi, *(() if known.scale is None else (known.scale,)))
    if isinstance(width, int):
        for part in parts:
            if np.broadcast_shapes(np.shape(part), (width,)) != (width,):
                raise ValueError(f"{graph.layer(node)} has constants of other extents")
    if type_text(known) != said:
        raise ValueError(f"{graph.layer(node)} is {type_text(known)}, where its line says {said}")


EXAMPLE_ROWS = {"n": 2, "m": 3}
"""Rows of the values with which an operation is tried, by the symbol in a shape."""

MOST_NUMBERS = 1 << 24
"""Numbers that a value with EXAMPLE_ROWS may hold at most."""


WHOLE, REAL = frozenset({"places"}), frozenset({"scale", "weight_scale"})
"""Constants that are always integers, and constants that are always real numbers."""


def _require_kinds(graph: Graph, node: Node) -> None:
    """Raise ValueError for an integer constant that should be real, or the reverse.

    A plug-in's operation may have constants of any kind.
    """
    if origin_of_module(type(node.op).__module__) != OWN:
        return
    of_integers = graph.types[node.name].is_integer
    kept: Any = node.op  # a dataclass, as all operations are
    for one in fields(kept):
        value = getattr(kept, one.name)
        whole = one.name in WHOLE or (of_integers and one.name not in REAL)
        for array in value if isinstance(value, tuple) else (value,):
            if isinstance(array, np.ndarray) and array.dtype.kind != ("i" if whole else "f"):
                kind = "integers" if whole else "real numbers"
                raise ValueError(
                    f"{graph.layer(node)}.{one.name} is of {array.dtype}; expected {kind}"
                )


def _require_run(graph: Graph, node: Node) -> None:
    """Raise ValueError unless an operation computes the shape and kind of number that it infers.

    It runs on a few rows, as near 0 as their bounds allow. Operations with weights don't run: that
    would take long, and they infer their type from the weights.
    """
    if isinstance(node.op, Mvm | CrossbarMvm | CellDistance):
        return
    known = graph.types[node.name]
    with np.errstate(all="ignore"):
        found = np.asarray(node.op.run(*(_example(graph.types[i]) for i in node.inputs)))
    if found.shape != _extents(known.shape) or (found.dtype.kind == "i") != known.is_integer:
        raise ValueError(
            f"{graph.layer(node)} gives {found.dtype} {list(found.shape)} for {type_text(known)}"
        )


def _example(known: Type) -> Array:
    """An example value of a type."""
    kind = np.int64 if known.is_integer else np.float64
    return np.broadcast_to(np.clip(kind(0), known.lo, known.hi), _extents(known.shape)).astype(kind)


def _extents(shape: Shape) -> tuple[int, ...]:
    """A shape with EXAMPLE_ROWS for its symbols; ValueError above MOST_NUMBERS."""
    found = []
    for extent in shape:
        rows, symbol = (extent, "") if isinstance(extent, int) else rows_of_item(extent)
        found.append(rows * EXAMPLE_ROWS.get(symbol, 1))
    if math.prod(found) > MOST_NUMBERS:
        raise ValueError(f"{shape_text(shape)} has more numbers than a value of a program")
    return tuple(found)


def _require_meeting(graphs: Sequence[Graph]) -> None:
    """Raise ValueError unless score and shortlist take outputs of the projectors, which include mu.

    The score must return a logit [texts, videos] or [texts, items]; a shortlist returns one value
    of the same shape.
    """
    text, video, *scores = graphs
    for projector in (text, video):
        if "mu" not in projector.outputs:
            raise ValueError(f"{projector.name} returns {', '.join(projector.outputs)} and no mu")
        taken = {name: known.shape for name, known in projector.inputs.items()}
        if list(taken) != ["x"] or len(taken["x"]) != 2 or not isinstance(taken["x"][1], int):
            raise ValueError(f"{projector.name} takes {', '.join(taken)}; expected rows x")
        for name, value in {**{"x": "x"}, **projector.outputs}.items():
            shape = projector.types[value].shape
            if shape[:1] != ("n",) or "m" in shape:
                raise ValueError(f"{projector.name}.{name} is {shape_text(shape)}; expected n rows")
    returned = score_inputs(text, video)
    for score in scores:
        if len(score.outputs) != 1 or (score.name == "score" and "logit" not in score.outputs):
            raise ValueError(f"{score.name} returns {', '.join(score.outputs)}; expected one value")
        (value,) = score.outputs.values()
        shape = score.types[value].shape
        of_pairs = bool(features_of(video, score.inputs))
        if len(shape) != 2 or shape[0] != "n" or of_pairs != (shape[1] == "m"):
            raise ValueError(f"{score.name} returns {shape_text(shape)}: of no texts and items")
        for name, known in score.inputs.items():
            if name not in returned or type_text(returned[name]) != type_text(known):
                raise ValueError(f"{score.name} takes {name}, {type_text(known)}, of no projector")
