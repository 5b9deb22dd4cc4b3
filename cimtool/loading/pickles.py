"""Pickles looked at before they are read: the depth of tuples, whose hash takes all that they hold.

A tuple that is a key is hashed, and one that holds another twice, 40 deep, never ends.
"""

from __future__ import annotations

import os
import pickletools
from pathlib import Path
from typing import IO, cast

from cimtool.base.errors import CimError

DEEPEST_TUPLE = 8
"""Tuples in one another; those of a tensor are three deep."""

PUT = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
GET = {"GET", "BINGET", "LONG_BINGET"}
TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
SAME = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD", "ADDITEMS"}
"""Operations after which what was below their operands is on top."""


class _Whole:
    """A stream that is asked for no more bytes than it has, whatever length a pickle says."""

    def __init__(self, stream: IO[bytes]):
        self.stream, place = stream, stream.tell()
        self.end = stream.seek(0, os.SEEK_END)
        stream.seek(place)
        self.readline, self.tell = stream.readline, stream.tell

    def read(self, count: int) -> bytes:
        """The next bytes, fewer than so many at the end."""
        return self.stream.read(min(count, self.end - self.stream.tell()))


def require_flat_tuples(stream: IO[bytes], file: Path) -> None:
    """Raise CimError where the next pickle of a file nests tuples deeper than DEEPEST_TUPLE.

    Only the depth of each object on the pickle machine's stack is kept, None for a mark.
    """
    stack: list[int | None] = []
    memo: dict[object, int] = {}
    for code, argument, _ in pickletools.genops(cast("IO[bytes]", _Whole(stream))):
        if code.name in PUT:
            memo[len(memo) if argument is None else argument] = stack[-1] or 0
        elif code.name in GET:
            stack.append(memo[argument])
        elif code.name == "DUP":
            stack.append(stack[-1])
        elif code.name == "MARK":
            stack.append(None)
        else:
            taken = _taken(code, stack)
            depth = max((one for one in taken if one is not None), default=0)
            if code.name in SAME:
                stack.append(taken[0])
            elif code.name in TUPLES:
                stack.append(depth + 1)
                if depth >= DEEPEST_TUPLE:
                    raise CimError(
                        f"{file}: nests tuples more than {DEEPEST_TUPLE} deep; expected tensors"
                    )
            else:
                stack += [0] * len(code.stack_after)


def _taken(code: pickletools.OpcodeInfo, stack: list[int | None]) -> list[int | None]:
    """Take an operation's operands off the stack, with their mark; IndexError where it is short."""
    before = code.stack_before
    if pickletools.markobject in before or (code.name == "POP" and stack and stack[-1] is None):
        place = len(stack) - 1 - stack[::-1].index(None)
        place -= before.index(pickletools.markobject) if pickletools.markobject in before else 0
    else:
        place = len(stack) - len(before)
    if place < 0:
        raise IndexError("a pickle takes more than there is")
    taken, stack[place:] = stack[place:], []
    return taken
