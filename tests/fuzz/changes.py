"""Changes of files for fuzzing: of bytes, of text, and of values in a structure."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError, EncodeError
from onnx import helper
from safetensors import SafetensorError
from safetensors.numpy import load, save

MALFORMED = (
    *(ValueError, TypeError, RuntimeError, LookupError, OverflowError, EOFError, AttributeError),
    AssertionError,  # of torch, about storages that are not there
    *(
        OSError,
        SafetensorError,
        DecodeError,
        EncodeError,
        UnpicklingError,
        zipfile.BadZipFile,
        zlib.error,
    ),
)
"""Errors of a change that knows a structure where an earlier change has left none."""

Change = Callable[[random.Random, bytes], bytes]


Sign = Callable[[Path, str], None]


@dataclass(frozen=True)
class Door:
    """A way in: the name of the file, seeds, a reader, and changes that know the structure.

    Of a `whole` folder the one file is changed in a copy, and `sign` makes the checksums anew.
    """

    file: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]
    changes: tuple[Change, ...] = ()
    whole: Path | None = None
    sign: Sign | None = None


def flip(rng: random.Random, data: bytes) -> bytes:
    """Change up to eight bytes."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def cut(rng: random.Random, data: bytes) -> bytes:
    """Leave out a part."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:]


def repeat(rng: random.Random, data: bytes) -> bytes:
    """Write a part up to 50 times."""
    start = rng.randrange(len(data))
    part = data[start : start + rng.randint(1, 64)]
    return data[:start] + part * rng.randint(2, 50) + data[start:]


def insert(rng: random.Random, data: bytes) -> bytes:
    """Insert what readers stumble over."""
    words = (b"\0", b"\xff" * 8, b"[" * 500, b"((((", b"9" * 5000, b"nan", b"-1", b"1e999", b"\xe9")
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(words) + data[place:]


BYTES: tuple[Change, ...] = (flip, cut, repeat, insert)

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2, 64, 1 << 31, 1 << 63, 10**40, 0.5, -1e308, float("nan"), float("inf")),
    *("", "x", "é" * 100, [], [[]], {}, {"constant": "x"}, [1] * 1000, {"": 1}),
)


def places(values: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys to every value in lists and tables."""
    if at:
        yield at
    if isinstance(values, dict | list):
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, inner in items:
            yield from places(inner, (*at, key))


def altered(rng: random.Random, values: Any) -> None:
    """Change one value somewhere: another, left out, or one of another place."""
    known = list(places(values))
    if not known:
        return
    *above, key = rng.choice(known)
    target = values
    for one in above:
        target = target[one]
    other = values
    for one in rng.choice(known):
        other = other[one]
    if rng.random() < 0.15:
        target.pop(key)
    else:
        target[key] = copy.deepcopy(other if rng.random() < 0.2 else rng.choice(VALUES))


def json_value(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a JSON file."""
    values = json.loads(data)
    altered(rng, values)
    return json.dumps(values).encode()


def checkpoint_value(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a checkpoint: another type, shape, stride or number."""
    content = torch.load(io.BytesIO(data), weights_only=True)
    tensors = (
        *(torch.tensor(3.0), torch.zeros(0, 4), torch.zeros(3, dtype=torch.int8), torch.tensor([])),
        *(torch.zeros(1).expand(10**9), torch.full((4, 4), torch.nan), torch.ones(2, 2).bool()),
        *(torch.zeros(2, 2, dtype=torch.complex64), torch.zeros(3, 3).half(), torch.zeros(2, 2, 2)),
    )
    known = list(places(content))
    *above, key = rng.choice(known)
    target = content
    for one in above:
        target = target[one]
    if isinstance(target, dict | list):
        target[key] = rng.choice((*tensors, *VALUES))
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=rng.random() < 0.7)
    return stream.getvalue()


def arrays_value(rng: random.Random, data: bytes) -> bytes:
    """Change one array of an archive."""
    with np.load(io.BytesIO(data)) as held:
        arrays = dict(held)
    name = rng.choice(list(arrays))
    old = arrays[name]
    arrays[rng.choice([name, name, "labels", "é", "text_to_video"])] = rng.choice(
        [
            *(old[:0], old.reshape(-1), old.astype(np.int8), old.astype("U3"), np.array(3)),
            *(old * np.nan, np.zeros((3, 0)), old.astype(complex), old[..., None], old * 1e300),
        ]
    )
    stream = io.BytesIO()
    save: Any = rng.choice([np.savez, np.savez_compressed])
    save(stream, **arrays)
    return stream.getvalue()


def onnx_value(rng: random.Random, data: bytes) -> bytes:
    """Change one part of an ONNX file."""
    model = onnx.load_model_from_string(data)
    graph = model.graph
    node = rng.choice(graph.node)
    how = rng.randrange(9)
    if how == 0:
        node.op_type = rng.choice(["Relu", "Softmax", "If", "Gemm", "Expand", "Gelu", "Split", ""])
    elif how == 1:
        node.input[rng.randrange(len(node.input))] = rng.choice([graph.input[0].name, "none", ""])
    elif how == 2:
        node.attribute.append(helper.make_attribute(rng.choice(["axis", "alpha"]), 1 << 40))
    elif how == 3:
        tensor = rng.choice(graph.initializer)
        tensor.data_type = rng.randrange(25)
    elif how == 4:
        tensor = rng.choice(graph.initializer)
        tensor.dims[:] = [rng.choice([0, -1, 3, 1 << 31, 1 << 62])] * rng.randint(0, 4)
    elif how == 5:
        model.opset_import[0].version = rng.choice([0, 1, 8, 11, 13, 18, 99])
    elif how == 6:
        graph.output[0].name = rng.choice(["none", "mu", graph.input[0].name])
    elif how == 7:
        del graph.node[rng.randrange(len(graph.node))]
    else:
        graph.input[0].type.tensor_type.elem_type = rng.randrange(20)
    return bytes(model.SerializeToString())


def text_value(rng: random.Random, data: bytes) -> bytes:
    """Change one number or word of a text: another, left out, or written twice."""
    words = list(re.finditer(rb"[\w.+-]+", data))
    place = rng.choice(words).span()
    texts = (b"nan", b"-inf", b"1e999", b"-1", b"0", b"99999999999999999999", b"", b"1_0", b"0x1")
    other = rng.choice((*texts, data[slice(*rng.choice(words).span())]))
    return data[: place[0]] + other + data[place[1] :]


def text_line(rng: random.Random, data: bytes) -> bytes:
    """Repeat, drop, exchange or empty lines of a text."""
    lines = data.split(b"\n")
    place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        lines.insert(place, lines[other])
    elif how == 1:
        del lines[place]
    elif how == 2:
        lines[place], lines[other] = lines[other], lines[place]
    else:
        lines[place] = rng.choice([b"", b",,,", b"x" * 5000, lines[place] * 2])
    return b"\n".join(lines)


def tensors_value(rng: random.Random, data: bytes) -> bytes:
    """Change one array of a safetensors file: another shape, type or number."""
    arrays = load(data)
    name = rng.choice(list(arrays))
    old = arrays[name]
    largest = np.iinfo(old.dtype).max if old.dtype.kind in "iu" else np.nan
    arrays[rng.choice([name, name, name, "other"])] = np.ascontiguousarray(
        rng.choice(
            [
                *(old[:0], old.reshape(-1), old.astype(np.float32), old.astype(np.int64)),
                *(np.full_like(old, largest), old[..., None], np.zeros(3, np.uint8), -old),
                *(np.zeros((1 << 10, 4), old.dtype), np.array(3)),
            ]
        )
    )
    content: bytes = save(arrays)
    return content
