"""Programs as readable JSON, one node a line, with their arrays in a table of constants."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from cimtool.base.arrays import LARGEST_NUMBER, Array, FloatArray, narrow
from cimtool.base.errors import CimError
from cimtool.base.escapes import require_name
from cimtool.base.json_files import parse_json
from cimtool.base.threads import map_rows
from cimtool.base.typed_fields import made_of
from cimtool.bundle.program_checks import require_meeting, require_read, require_sound
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir import integer, quantized, source  # noqa: F401  (importing operations registers them)
from cimtool.ir.op import UNSTORED, Op
from cimtool.ir.program import Graph, Node, Program
from cimtool.ir.types import Type, type_text

STORED_INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64)


class ConstantTable:
    """Arrays by name, each kept once and in the narrowest type that holds it exactly."""

    def __init__(self, shared: Mapping[str, str] | None = None):
        self.arrays: dict[str, Array] = {}
        self.names: dict[str, str] = dict(shared or {})
        self._scaled_by: dict[str, tuple[str, str]] = {}  # base and factors, by digest

    def add(self, name: str, array: Array) -> str:
        """Keep an array; returns the name under which an equal one is already known, or `name`."""
        packed = np.ascontiguousarray(narrowed(array))
        return self._kept(name, packed, _digest(packed))

    def _kept(self, name: str, packed: Array, digest: str) -> str:
        if digest not in self.names:
            self.names[digest] = name
            self.arrays[name] = packed
        return self.names[digest]

    def encoded(self, name: str, array: Array) -> dict[str, str]:
        """Keep an array as `add` does, or as another one's columns times `factors`, bit for bit.

        Batch normalisation folded into a layer multiplies each column of its weights.
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
        """The name of a kept array and the factors of its columns that make another one, if any."""
        if packed.dtype != np.float32 or packed.ndim != 2 or packed.size < SMALLEST_SCALED:
            return None
        taken = {base for base, _ in self._scaled_by.values()}  # a reader makes one of each
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
"""Elements of an array below which its own copy is as small as factors."""

FACTOR_ROWS = 64
"""Rows that are compared at once: they stay in a core's cache, and tell most others apart."""


def column_factors(base: Array, wanted: Array) -> FloatArray | None:
    """Factors f [c] with `scaled_columns(base, f)` the float32 `wanted` [r, c], to the last bit.

    None where there are none. Each element allows the factors that round to it, an interval; a
    column's is in all of its own, and here their middle.
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
    """The least and the largest factor [c] of each column that all of its elements allow."""
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
    """The array in the types that programs compute in: int64, float64, bool."""
    wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind)
    return array if wide is None else array.astype(wide)


@dataclass(frozen=True, eq=False)
class Constants:
    """Arrays of a bundle's files by name; what is made of them is made once for all programs."""

    arrays: Mapping[str, Array]
    _made: dict[str, Array] = field(default_factory=dict)
    _stored: dict[tuple[str, str], StoredWeights] = field(default_factory=dict)
    _scaled: dict[str, str] = field(default_factory=dict)

    def joined(self, others: Mapping[str, Array]) -> Constants:
        """These and others, with what was made of these already."""
        return Constants({**self.arrays, **others}, self._made, self._stored, self._scaled)

    def array(self, name: str) -> Array:
        """The array as it is computed with; KeyError where there is none."""
        if name not in self._made:
            self._made[name] = as_computed(self.arrays[name])
        return self._made[name]

    def scaled(self, name: str, factors: str) -> Array:
        """Another array's columns times factors, as it is computed with; KeyError without them.

        ValueError for other extents, and for a second set of factors of the same array.
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
        """Weights in the cells of a crossbar; KeyError where there are none."""
        key = name, _json(crossbar)
        if key not in self._stored:
            self._stored[key] = made_of(
                StoredWeights,
                {"weight": self.array(name), "crossbar": Crossbar.from_json(crossbar)},
            )
        return self._stored[key]


def program_text(program: Program, constants: ConstantTable, prefix: str = "") -> str:
    """A program as JSON text, one node a line; arrays go to `constants`."""
    graphs = [graph_text(graph, constants, f"{prefix}{graph.name}") for graph in program.graphs]
    return "{\n" + ",\n".join(graphs) + "\n}\n"


def graph_text(graph: Graph, constants: ConstantTable, key: str) -> str:
    """One graph's entry of a program's JSON text; `key` begins the names of its arrays."""
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
    """The program of a JSON text; CimError as `program_of` raises."""
    try:
        values = parse_json(text)
    except ValueError as error:
        raise _unreadable(file, error) from error
    return program_of(values, constants, file)


def program_of(values: Mapping[str, Any], constants: Constants, file: str) -> Program:
    """The program of plain values, its types inferred and compared with those that they say.

    Raises CimError where it is not one that this version writes: a field of another type, a node
    before its inputs, constants whose extents are not the layer's, a type that does not follow.
    """
    try:
        with np.errstate(over="raise", invalid="raise"):  # no numbers that a compiler wrote
            names = (*ENTRIES, *_further(values))
            graphs = [_graph(name, values[name], constants) for name in names]
            require_meeting(graphs)
    except (CimError, *MALFORMED) as error:
        raise _unreadable(file, error) from error
    return Program(*graphs)


def _unreadable(file: str, error: Exception) -> CimError:
    return CimError(
        f"{file}: is no program that this version of cimtool can read ({error}); compile again"
    )


MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""Errors that values of other forms raise where a program is made of them."""

ENTRIES = ("text", "video", "score")
"""The graphs of every program; a hybrid one has a shortlist's beside."""


def _further(values: Mapping[str, Any]) -> list[str]:
    further = [name for name in values if name not in ENTRIES]
    if further not in ([], ["shortlist"]):
        raise ValueError(f"it has graphs {', '.join(further)}")
    return further


def _graph(name: str, values: Mapping[str, Any], constants: Constants) -> Graph:
    """One graph; ValueError where it is not in order or has other types than its lines say.

    CimError where an input, a node or an output has no name.
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
    require_read(graph)
    for node, line in zip(nodes, values["nodes"], strict=True):
        require_sound(graph, node, line["type"])
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
    """The fields of an operation or a type that a file keeps."""
    stored = {
        one.name: getattr(value, one.name) for one in fields(value) if one.metadata != UNSTORED
    }
    _require_fields(stored, name)
    return {key: _encoded(field, constants, f"{name}.{key}") for key, field in stored.items()}


def _fields(values: Mapping[str, Any], constants: Constants, name: str) -> dict[str, Any]:
    """The fields of an operation or a type as a file keeps them."""
    found = {key: _decoded(value, constants) for key, value in values.items()}
    _require_fields(found, name)
    return found


def _require_fields(values: Mapping[str, Any], name: str) -> None:
    for key, value in values.items():
        _require_numbers(value, f"{name}.{key}", LIMITS.get(key, ORDINARY))


ORDINARY = (-LARGEST_NUMBER, LARGEST_NUMBER)
"""The least and the largest number of most fields."""

MOST = float(np.finfo(np.float64).max)

LIMITS = {"lo": (-np.inf, MOST), "hi": (-MOST, np.inf), "mask": (-np.inf, LARGEST_NUMBER)}
"""Those of others, by the field's name.

Bounds of exp, proved of all inputs, are near none, which is infinite; so is what leaves out tokens.
"""


def _require_numbers(value: Any, name: str, limits: tuple[float, float] = ORDINARY) -> None:
    """Raise CimError, which says the name, where a field's numbers are beyond limits."""
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
        return {"step": value.step, "offset": offset} | levels
    if isinstance(value, tuple):
        return [_encoded(item, constants, f"{name}.{i}") for i, item in enumerate(value)]
    return value


def _levels(law: StaircaseLaw, constants: ConstantTable, name: str) -> dict[str, Any]:
    """The thresholds and values of a slice."""
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
        references = AdcReferences.from_zero(value["step"])
        if value["offset"] != 0:
            references = replace(references, offset=_decoded(value["offset"], constants))
        if "levels" not in value:
            return references
        levels = {key: _decoded(one, constants) for key, one in value["levels"].items()}
        return replace(references, levels=StaircaseLaw(**levels))
    return constants.stored(value["stored"]["constant"], value["crossbar"])
