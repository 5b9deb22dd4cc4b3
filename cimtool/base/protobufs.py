"""The number of parts of a protobuf message, counted before it is parsed.

A part of two bytes, such as an empty node, takes some hundred bytes once it is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5
"""Types of a field on the wire; no format that is read here has groups, 3 and 4."""


def count_parts(content: bytes, message: Descriptor, most: int) -> int:
    """Messages and texts in a message of this kind, at any depth; counted up to `most` + 1.

    ValueError if the bytes are no message or a text is not UTF-8. The format:
    https://protobuf.dev/programming-guides/encoding.
    """
    waiting, found = [(0, len(content), message)], 0
    while waiting:
        place, end, kind = waiting.pop()
        while place < end:
            tag, place = _varint(content, place, end)
            wire = tag & 7
            if wire == VARINT:
                _, place = _varint(content, place, end)
            elif wire in (FIXED64, FIXED32):
                place += 8 if wire == FIXED64 else 4
            elif wire == SIZED:
                size, start = _varint(content, place, end)
                place = start + size
                field = kind.fields_by_number.get(tag >> 3)
                if field is not None and field.type in (field.TYPE_MESSAGE, field.TYPE_STRING):
                    found += 1
                    if field.type == field.TYPE_STRING:
                        content[start:place].decode()
                    if found > most:
                        return found
                    if field.message_type is not None:
                        waiting.append((start, place, field.message_type))
            else:
                raise ValueError(f"a field of type {wire}")
        if place != end:
            raise ValueError("a field that ends behind its message")
    return found


def _varint(content: bytes, place: int, end: int) -> tuple[int, int]:
    """An integer of at most ten bytes, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= end:
            break
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("an integer that does not end")
