"""The writer of a C model: functions of one item or pair, their values, and tables of constants."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.ir.types import Type

TAKEN = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while|asm|bool|true|false|typeof|typeof_unqual|linux|unix|errno|assert|main|"
    "alignas|alignof|constexpr|nullptr|static_assert|thread_local|stdin|stdout|stderr|memcpy|weights|item|items|text|video|x|i|j|n|at|end|first|in|out|total|"
    "cim_.*|.*_t|[^a-z].*"
)
"""Names that no value may have: keywords of C, names of arguments and names of cim.h.

Macros and names reserved for compilers begin with a capital or an underscore; types reserved for
libraries end with _t.
"""


class Identifiers:
    """Unique names in C for names of a program."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, name: str) -> str:
        """A new unique name for `name`."""
        base = re.sub(r"\W", "_", name, flags=re.ASCII)
        if TAKEN.fullmatch(base) or not base:
            base = f"v_{base}"
        unique, count = base, 1
        while unique in self._taken:
            count += 1
            unique = f"{base}_{count}"
        self._taken.add(unique)
        return unique


KINDS = {
    f"{sign}int{bits}_t": np.dtype(f"{sign}int{bits}")
    for bits in (8, 16, 32, 64)
    for sign in ("", "u")
}
"""NumPy's types by the names of C's integers, the narrowest first."""


def kind_for(lo: int, hi: int) -> str:
    """The narrowest of C's integers that holds `lo` to `hi`."""
    limits = ((kind, np.iinfo(dtype)) for kind, dtype in KINDS.items())
    return next(kind for kind, limit in limits if limit.min <= lo and hi <= limit.max)


def kind_of(known: Type) -> str:
    """The narrowest of C's integers that holds every value of a type."""
    return kind_for(int(known.lo.min()), int(known.hi.max()))


@dataclass(frozen=True)
class CValue:
    """A value in C: the name of a number, or of an array of `count` numbers if `count` is given.

    `count` is a number, or the variable with the number of items in a block. For a field of an
    item, `holder` is the name of the item's pointer. With `rows`, the value belongs to item i of a
    block.
    """

    own: str
    kind: str
    count: str = ""
    holder: str = ""
    rows: bool = False

    @property
    def name(self) -> str:
        """The expression for the value, with the item's name."""
        if self.holder:
            return f"{self.holder}[i].{self.own}" if self.rows else f"{self.holder}->{self.own}"
        return f"{self.own}[i - at]" if self.rows else self.own

    @property
    def element(self) -> str:
        """The number, or number j of the array."""
        return f"{self.name}[j]" if self.count else self.name

    @property
    def wide(self) -> str:
        """`element` as a signed number of 64 bits."""
        return self.element if self.kind == "int64_t" else f"(int64_t){self.element}"

    @property
    def pointer(self) -> str:
        """The address of its first number."""
        return self.name if self.count else f"&{self.name}"


@dataclass(frozen=True)
class CInputs(CValue):
    """The inputs of item i: `count` numbers from a `place` on, in rows of `stride` numbers."""

    stride: int = 0
    place: int = 0

    @property
    def name(self) -> str:
        """The address of the first number."""
        behind = f" + {self.place}" if self.place else ""
        return f"({self.own} + (int64_t)i * {self.stride}{behind})"


class ConstantTables:
    """Constant arrays of a model, one after another: int64_t first, single bytes last.

    So they need no padding, and their places are the same in a file and in a C struct.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[str, IntArray]] = {}
        self._names: dict[tuple[str, bytes], str] = {}
        self._places = Identifiers()
        self._prefixes: dict[str, str] = {}
        self._of_layers = Identifiers()

    def add(self, name: str, values: Array, kind: str) -> str:
        """Keep an array, equal arrays only once; return the name of its place."""
        stored = np.ascontiguousarray(values, KINDS[kind].newbyteorder("<"))
        key = kind, hashlib.sha256(stored.data).digest()
        if key not in self._names:
            self._names[key] = self._places.new(name.lower()).upper()
            self._arrays[self._names[key]] = kind, stored
        return self._names[key]

    def prefix(self, layer: str) -> str:
        """The prefix of the names of a layer's definitions, the same at every call."""
        if layer not in self._prefixes:
            self._prefixes[layer] = self._of_layers.new(layer)
        return self._prefixes[layer]

    def items(self) -> Iterator[tuple[str, str, int, IntArray]]:
        """Yield the name, the C type, the place and the numbers of each array, in their order."""
        place = 0
        for name, (kind, stored) in sorted(
            self._arrays.items(), key=lambda one: -one[1][1].dtype.itemsize
        ):
            yield name, kind, place, stored
            place += stored.nbytes

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(stored.nbytes for _, stored in self._arrays.values())


class FunctionWriter:
    """Collects the statements of one function, and the definitions before it.

    `place`, the destination of a value, is set for each operation in turn. With `rows`, statements
    run for the items at .. end - 1, at most CIM_ITEMS.
    """

    def __init__(self, name: str, tables: ConstantTables, rows: bool = False):
        self.name = name
        self.tables = tables
        self.rows = rows
        self.lines: list[str] = []
        self.definitions: list[str] = []
        self.fields: list[CValue] = []
        self.layer = ""
        self.place = CValue("", "")
        self.start = ""
        self._variables = Identifiers()
        self._pointers: dict[str, str] = {}
        self._widened: dict[tuple[str, str], CValue] = {}

    def local(self, name: str) -> str:
        """A unique name for a variable."""
        return self._variables.new(name)

    def placed(self, kind: str = "") -> CValue:
        """Declare the variable or the item's field for `place`, with `kind` if given."""
        value = replace(self.place, kind=kind or self.place.kind, rows=self.rows)
        if value.holder:
            self.fields.append(value)
        else:
            size = "CIM_BLOCK" if value.count == "n" else value.count
            extents = ["CIM_ITEMS"] * self.rows + [size] * bool(size)
            self.lines.append(f"{value.kind} {value.own}{''.join(f'[{e}]' for e in extents)};")
        return value

    def each_item(self, *lines: str) -> None:
        """Append statements; they run for each item if the function takes a block."""
        if not self.rows:
            self.lines += lines
            return
        self.lines.append("for (int32_t i = at; i < end; i++) {")
        self.lines += [f"    {line}" for line in lines]
        self.lines.append("}")

    def each(self, expression: str) -> CValue:
        """Set each number at `place` to an expression of element j; return the value."""
        value = self.placed()
        number = f"{value.element} = ({value.kind})({expression});"
        self.each_item(self._loop(value.count, number))
        return value

    def total(self, expression: str, count: str, narrow: bool) -> CValue:
        """Add up an expression of element j, in 32 bits if `narrow`, else in 64."""
        value, bits = self.placed(), 32 if narrow else 64
        signed = "cim_signed32" if narrow else "cim_signed"
        self.each_item(
            "{",
            f"    uint{bits}_t total = 0;",
            f"    {self._loop(count or '1', f'total += (uint{bits}_t)({expression});')}",
            f"    {value.name} = ({value.kind}){signed}(total);",
            "}",
        )
        return value

    def constant(self, name: str, values: Array) -> str:
        """An expression of a constant's element j: a number, or an entry of a table."""
        numbers = np.asarray(values)
        if numbers.size == 1 or (numbers == numbers.flat[0]).all():
            return literal(int(numbers.flat[0]))
        kind = kind_for(int(numbers.min()), int(numbers.max()))
        index = f"{self.start} + j" if self.start else "j"
        return f"{self.pointer(name, numbers, kind)}[{index}]"

    def pointer(self, name: str, values: Array, kind: str) -> str:
        """The name of a variable that points to a table."""
        place = self.tables.add(f"{self.layer}.{name}", values, kind)
        if place not in self._pointers:
            self._pointers[place] = self.local(place.lower())
        return self._pointers[place]

    def widened(self, x: CValue, kind: str) -> CValue:
        """The value copied, once, to an array of another kind; unchanged if it has the kind."""
        if x.kind == kind:
            return x
        key = x.name, kind
        if key not in self._widened:
            before, self.place = self.place, CValue(self.local(f"{x.own}_wide"), kind, x.count)
            self._widened[key] = self.each(x.element)
            self.place = before
        return self._widened[key]

    def pointers(self) -> list[str]:
        """The declarations of the variables that point to tables."""
        kinds = {name: kind for name, kind, _, _ in self.tables.items()}
        return [
            f"const {kinds[place]} *const {name} = CIM_TABLE({kinds[place]}, weights, {place});"
            for place, name in self._pointers.items()
        ]

    def refuse(self, why: str) -> CimError:
        """The error for something that the model does not cover."""
        return CimError(f"{self.layer}: {why}, which the C model does not cover")

    def _loop(self, count: str, statement: str) -> str:
        return f"for (int32_t j = 0; j < {count}; j++) {statement}" if count else statement


def literal(number: int) -> str:
    """A number in C."""
    return str(number) if abs(number) < 1 << 31 else f"INT64_C({number})"
