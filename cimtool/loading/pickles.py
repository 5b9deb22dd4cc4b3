"""Checks of pickles before torch reads them: the functions they call, the operands, the work.

`torch.load(weights_only=True)` calls functions of a fixed list. Some of these can exhaust memory:
`bytearray` allocates any number of bytes, and a million calls can each copy the same list. Here
only functions that tensors and plain values need are allowed, and the operands of all calls
together are bounded.
"""

from __future__ import annotations

import os
import pickletools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, cast

from cimtool.base.errors import CimError

DEEPEST_TUPLE = 8
"""Levels of nested tuples at most; a tensor needs three."""

MOST_WORK = 1 << 21
"""Operations of a pickle and parts of its calls' operands at most; a tensor needs about 60.

A part that is shared counts at each place.
"""

TEXT_UNIT = 64
"""Characters of a text that count as a part."""

MOST_ODD_KEYS = 256
"""Keys at most that are not texts or 64-bit integers: a file can choose these keys' hashes."""

REBUILDS = {
    f"torch._utils._rebuild_{name}"
    for name in (
        *("tensor", "tensor_v2", "tensor_v3", "parameter", "parameter_with_state", "qtensor"),
        *("sparse_tensor", "meta_tensor_no_storage", "nested_tensor", "wrapper_subclass"),
    )
}
"""Functions that make a tensor from a storage, or from another tensor, without a copy."""

FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
"""A function that calls its first operand with its third."""

PARAMETER = "torch.nn.parameter.Parameter"

SET, ORDERED, ENCODE = "builtins.set", "collections.OrderedDict", "_codecs.encode"

CALLS: dict[str, set[tuple[str, ...]]] = {
    ORDERED: {(), ("list",)},
    "collections.Counter": {(), ("dict",)},
    SET: {("list",)},
    ENCODE: {("text", "text")},  # bytes, by protocol 2
    "builtins.complex": {("number", "number")},
    "torch.Size": {("tuple",), ("list",)},
    "torch.device": {("text",), ("text", "number")},
    "torch.serialization._get_layout": {("text",)},
}
"""Functions of plain values, and the kinds of operands that each may have."""

OLD_NAMES = {"__builtin__.set": SET, "__builtin__.complex": "builtins.complex"}

STORAGE_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4"), 1),
    **{"Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "QInt32": 4, "Long": 8},
    **{"Double": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Untyped": 1},
}
"""Bytes per number of each of torch's storages: `torch.FloatStorage` is `Float`."""

NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TEXTS = {"BINUNICODE", "SHORT_BINSTRING"}
EMPTY = {"EMPTY_LIST": "list", "EMPTY_DICT": "dict", "EMPTY_TUPLE": "tuple"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUT, GET = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}


@dataclass(slots=True)
class PickledValue:
    """The known facts of an object: its kind, its value or name (`own`), and the parts it holds.

    `operands` are those of the function that made it (of a tensor `own` is its name), and the words
    for a storage.
    """

    kind: str
    own: object = None
    parts: Sequence[PickledValue] = ()
    depth: int = 0
    operands: Sequence[PickledValue] = ()


class _Whole:
    """A stream that never reads more bytes than it has, even if a pickle states a larger length."""

    def __init__(self, stream: IO[bytes]):
        self.stream, place = stream, stream.tell()
        self.end = stream.seek(0, os.SEEK_END)
        stream.seek(place)
        self.readline, self.tell = stream.readline, stream.tell

    def read(self, count: int) -> bytes:
        """The next `count` bytes, or fewer at the end."""
        return self.stream.read(min(count, self.end - self.stream.tell()))


def code_complaint(name: str) -> str:
    """The end of a sentence about a file that calls or holds `name`."""
    if name.startswith("numpy"):
        return f"holds a NumPy value ({name}); save it as a tensor or a plain number"
    return (
        f"holds Python code ({name}), which is never executed; expected tensors and plain values "
        "only (save the state_dict, not the module)"
    )


def plain_pickle(
    stream: IO[bytes], file: Path, records: Mapping[str, int] | None = None
) -> PickledPart:
    """The value of the next pickle of a file, which calls only functions of plain content.

    CimError for another function, for tuples nested deeper than DEEPEST_TUPLE (the hash of a tuple
    visits all its parts), for more work than MOST_WORK, and for a storage of more bytes than its
    record. `records` has the bytes of an archive's records by key. A file that is not an archive
    has no records (the numbers follow the pickles), so the sum of all storages is compared with the
    file's size. ValueError or LookupError if torch cannot read the pickle.
    """
    machine = _Machine(file, records)
    for code, argument, _ in pickletools.genops(cast("IO[bytes]", _Whole(stream))):
        machine.step(code.name, argument)
    return PickledPart(machine.stack[-1], machine.storages)


@dataclass(frozen=True)
class PickledPart:
    """The value of one of a file's pickles, and the names of the storages that its tensors use."""

    value: PickledValue
    storages: set[str]

    @property
    def texts(self) -> set[object]:
        """The texts that the value holds itself."""
        return {one.own for one in self.value.parts if one.kind == "text"}


class _Machine:
    """The stack and memo of torch's unpickler, with kinds of objects in place of the objects."""

    def __init__(self, file: Path, records: Mapping[str, int] | None):
        self.file, self.records = file, records
        self.work, self.odd_keys, self.stored = MOST_WORK, 0, 0
        self.size = file.stat().st_size
        self.stack: list[PickledValue] = []
        self.below: list[list[PickledValue]] = []
        self.memo: dict[object, PickledValue] = {}
        self.storages: set[str] = set()

    def step(self, code: str, argument: object) -> None:
        """Run one operation; ValueError if torch does not know it."""
        self._work(1)
        stack = self.stack
        if code in PUT:
            self.memo[argument] = stack[-1]
        elif code in GET:
            stack.append(self.memo[argument])
        elif code in NUMBERS:
            stack.append(PickledValue("number", argument))
        elif code in TEXTS:
            stack.append(PickledValue("text", argument))
        elif code in CONSTANTS:
            stack.append(PickledValue("constant", CONSTANTS[code]))
        elif code in EMPTY:
            stack.append(PickledValue(EMPTY[code]))
        elif code == "GLOBAL":
            name = str(argument).replace(" ", ".", 1)
            stack.append(PickledValue("global", OLD_NAMES.get(name, name)))
        elif code == "MARK":
            self.below.append(stack)
            self.stack = []
        elif code in TUPLES:
            count = TUPLES[code]
            if count > len(stack):
                raise IndexError("a pickle takes more than there is")
            stack[-count:] = [self._tuple(stack[-count:])]
        elif code == "TUPLE":
            made = self._tuple(self._marked())
            self.stack.append(made)
        else:
            self._change(code)

    def _change(self, code: str) -> None:
        """Run an operation that fills a container, calls a function, or ends the pickle."""
        if code in ("APPEND", "SETITEM"):
            taken = [self.stack.pop() for _ in range(1 + (code == "SETITEM"))][::-1]
            self._fill(taken, code == "SETITEM")
        elif code in ("APPENDS", "SETITEMS"):
            self._fill(self._marked(), code == "SETITEMS")
        elif code in ("REDUCE", "NEWOBJ"):
            operands, function = self.stack.pop(), self.stack.pop()
            self.stack.append(self._called(function, operands))
        elif code == "BUILD":
            self._count(self.stack.pop())
            top = self.stack[-1]
            if top.kind not in (ORDERED, "tensor"):
                self._refuse(f"sets the state of a {top.kind}")
            if top.kind == "tensor":
                top.own = None  # another one than its function made
        elif code == "BINPERSID":
            named = self.stack.pop()
            self._store(named)
            self.stack.append(PickledValue("storage", operands=named.parts))
        elif code not in ("PROTO", "STOP"):
            raise ValueError(f"an operation {code}")

    def _marked(self) -> list[PickledValue]:
        """Remove and return the objects above the last mark."""
        taken, self.stack = self.stack, self.below.pop()
        return taken

    def _tuple(self, parts: list[PickledValue]) -> PickledValue:
        depth = 1 + max((one.depth for one in parts), default=0)
        if depth > DEEPEST_TUPLE:
            raise CimError(
                f"{self.file}: nests tuples more than {DEEPEST_TUPLE} deep; expected tensors"
            )
        return PickledValue("tuple", None, parts, depth)

    def _fill(self, taken: list[PickledValue], by_key: bool) -> None:
        if by_key:
            self._keys(taken[::2])
        top = self.stack[-1]
        if not isinstance(top.parts, list):
            top.parts = list(top.parts)
        top.parts += taken

    def _keys(self, keys: Sequence[PickledValue]) -> None:
        """Count the keys of a table or the members of a set: they are hashed and compared."""
        for key in keys:
            if key.kind == "text" or (isinstance(key.own, int) and abs(key.own) < 1 << 63):
                continue
            self.odd_keys += 1
            if self.odd_keys > MOST_ODD_KEYS:
                self._refuse(f"has more than {MOST_ODD_KEYS} keys that are not texts")
            self._count(key)

    def _called(self, function: PickledValue, operands: PickledValue) -> PickledValue:
        """The value that a call makes; CimError if function or operands are not allowed."""
        name, given = str(function.own)[:80], operands.parts
        self._count(operands)
        if function.kind != "global" or name not in {*REBUILDS, *CALLS, FROM_TYPE, PARAMETER}:
            raise CimError(f"{self.file}: {code_complaint(name)}")
        kinds = tuple(one.kind for one in given)
        if name == FROM_TYPE:
            if kinds[:1] != ("global",) or given[0].own not in REBUILDS:
                self._refuse(f"calls {name} of no tensor")
        elif name in CALLS:
            latin = name != ENCODE or (given[-1:] and given[-1].own in ("latin1", "latin-1"))
            if operands.kind != "tuple" or kinds not in CALLS[name] or not latin:
                said = ", ".join(kinds) or "nothing"
                self._refuse(f"calls {name} of {said[:80]}")
            if name == SET:
                self._keys(given[0].parts)
            if name == ORDERED and given:
                self._keys([pair.parts[0] for pair in given[0].parts])
            parts = given[0].parts if name == "torch.Size" else ()
            return PickledValue(name, None, parts, operands=given)
        return PickledValue("tensor", name, operands=given)

    def _store(self, named: PickledValue) -> None:
        """Check a storage ('storage', type, key, device, count, ...) against the bytes there are.

        A key must be a decimal number, as torch.save writes it: torch ignores case in names.
        """
        kind, key, count = (named.parts[i].own for i in (1, 2, 4))
        if not (isinstance(key, str) and key.isascii() and key.isdigit()):
            self._refuse(f"keeps numbers under {str(key)[:80]!r}")
        if not isinstance(count, int) or count < 0:
            raise ValueError("a storage without a count")
        size = count * STORAGE_BYTES[str(kind).rpartition(".")[2].removesuffix("Storage")]
        if self.records is not None:  # at each use: torch reads an empty storage again
            self._require_held(
                f"storage {key} of its tensors", size, "its record", self.records.get(key, 0)
            )
        elif key not in self.storages:
            self.stored += size
            self._require_held("what its tensors store", self.stored, "the file", self.size)
        self.storages.add(key)

    def _require_held(self, what: str, size: int, place: str, held: int) -> None:
        if size > held:
            raise CimError(
                f"{self.file}: is truncated, corrupt, or not a file that torch.save wrote: {what} "
                f"takes {size:,} bytes, {place} has {held:,}"
            )

    def _count(self, value: PickledValue) -> None:
        """Subtract all parts of a value, repeats included, from the remaining work."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            length = len(one.own) if isinstance(one.own, str) else 0
            self._work(len(one.parts) + length // TEXT_UNIT)
            waiting += one.parts

    def _work(self, amount: int) -> None:
        self.work -= amount
        if self.work < 0:
            self._refuse(f"takes more than {MOST_WORK:,} operations")

    def _refuse(self, what: str) -> NoReturn:
        raise CimError(
            f"{self.file}: {what}; expected tensors, numbers, texts, lists and dictionaries"
        )
