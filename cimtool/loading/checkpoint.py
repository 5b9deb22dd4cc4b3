"""Checkpoints read as plain values: nested dictionaries of NumPy arrays, numbers and texts."""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import struct
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import reading, require_file
from cimtool.base.json_files import parse_json
from cimtool.base.plugins import needing
from cimtool.base.untrusted import (
    NUMBER,
    Budget,
    open_archive,
    require_shape,
    require_small_header,
)
from cimtool.loading.dense_config import config_beside, is_dense, read_dense_activation
from cimtool.loading.pickles import PickledPart, code_complaint, plain_pickle
from cimtool.loading.torch_archives import (
    StoredTensor,
    UnusualArchive,
    read_plain,
)

if TYPE_CHECKING:
    import torch

TORCH_SUFFIXES = (".pth", ".pt")
PICKLED_SUFFIXES = (*TORCH_SUFFIXES, ".ckpt", ".bin")
"""Suffixes of checkpoints that torch.save wrote; `.ckpt` is Lightning's, `.bin` transformers'."""

SUFFIXES = (*PICKLED_SUFFIXES, ".safetensors")

# Errors of torch.load and the restricted unpickler on bytes that are no checkpoint.
BROKEN = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    RuntimeError,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    MemoryError,
)

SAVE_OR_EXPORT = (
    "expected its numbers, torch.save(module.state_dict(), ...), or both projectors as ONNX, by "
    "torch.onnx.export"
)
"""The end of a sentence about a file that holds a network's code."""

EXPORTED_SUFFIX = ".pt2"
TORCHSCRIPT, EXPORTED = "a TorchScript module (torch.jit.save)", "a program of torch.export"
NETWORK_MEMBERS = {
    "constants.pkl": TORCHSCRIPT,
    "archive_format": EXPORTED,
    "serialized_exported_program.json": EXPORTED,
}
"""Kinds of archives that hold a network's code, by the last part of a member's name."""

LARGEST_STRUCTURE = 1 << 24
"""Bytes of a checkpoint's pickle at most; it names the tensors, their numbers are elsewhere."""

MOST_VALUES, DEEPEST = 200_000, 64
"""Values of a checkpoint at most (a shared value counts at each place), and depth of nesting."""

OLD_PICKLES = 5
"""Pickles of a file that is not an archive: number, version, system, content, storage names."""

LONGEST_INTEGER = 1024
"""Bits of an integer in a checkpoint at most; a longer integer can take a minute to print."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's values by key, nested as saved; arrays are float32, float64 or integers.

    Arrays of more than SMALL numbers of a `.safetensors` file, and all of an archive of torch, are
    mapped, so an encoder that no layout reads takes no memory. `single` gives the numbers: it reads
    those of a `.safetensors` file, copies those of an archive, and makes half precision float32,
    which stays as it is until then.
    `ordered` is True if the keys come in the order of the layers; a `.safetensors` file sorts them
    by name. `beside` are files that were read with it.
    """

    file: str
    content: Mapping[str, Any]
    ordered: bool = True
    beside: tuple[Path, ...] = ()


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a `.pth`, `.pt`, `.ckpt`, `.bin` or `.safetensors` file; code in it is never executed.

    A Dense module of sentence-transformers has its activation in the `config.json` beside it.

    Raises CimError if the file is missing, broken, of another kind, or holds no dictionary.
    """
    require_file(path)
    if path.suffix == ".onnx":
        raise ArgumentError(
            "{}: is one projector; expected a checkpoint of both, or for {projectors} two ONNX "
            "files, text first",
            path,
        )
    require_suffix(path, "a checkpoint", SUFFIXES)
    ordered = path.suffix != ".safetensors"
    content = _read_pickled(path) if ordered else _read_safetensors(path)
    if not isinstance(content, dict):
        kind = f"a {type(content).__name__}"
        if isinstance(content, np.ndarray):
            kind = f"one tensor of shape {list(content.shape)}"
        raise CimError(f"{path}: holds {kind}; expected a dictionary of tensors (a state_dict)")
    if is_dense(content) and (config := config_beside(path)) is not None:
        content["output_activation"] = read_dense_activation(config)
        return Checkpoint(str(path), content, ordered, beside=(config,))
    return Checkpoint(str(path), content, ordered)


def require_suffix(path: Path, what: str, accepted: tuple[str, ...]) -> None:
    """Raise CimError unless `path` is an existing file with one of the suffixes."""
    require_file(path)
    if path.suffix == EXPORTED_SUFFIX:
        raise CimError(f"{path}: is {EXPORTED}; {SAVE_OR_EXPORT}")
    if path.suffix not in accepted:
        found = f'"{path.suffix}"' if path.suffix else "no suffix"
        raise CimError(f"{path}: {found} is not the suffix of {what}: {', '.join(accepted)}")


def _read_pickled(path: Path) -> Any:
    """The value in a file of torch as plain values, read without torch where that is possible."""
    try:
        return _archive_content(path)
    except UnusualArchive:
        return _torch_content(path, keeps_half=True)[1]


def read_torch(path: Path) -> Any:
    """Read a file of `torch.save` as plain values, with `weights_only=True`.

    Raises CimError if the file is broken, holds a class or function instead of numbers, or unfolds
    to more than its Budget.
    """
    return _torch_content(path)[1]


def load_torch(path: Path) -> Any:
    """Read a file with `torch.load`, tensors kept as tensors; CimError as `read_torch`."""
    return _torch_content(path)[0]


def _torch_content(path: Path, keeps_half: bool = False) -> tuple[Any, Any]:
    """The value in a file of torch, and the value as plain values; making these checks it.

    With `keeps_half`, large arrays in half precision stay as they are.
    """
    budget = Budget.of(path)
    with needing(f"{path}: what torch.save wrote", "weights as .safetensors or .onnx"):
        import torch
    with reading(path), path.open("rb") as stream:
        try:
            # torch opens a file that it maps by its name, which it takes in ASCII.
            archive = archive_pickle(path, stream) is not None
            mapped = archive and os.fsencode(path).isascii()
            with warnings.catch_warnings(action="ignore"):  # deprecation of old formats
                value = torch.load(
                    path if mapped else stream, map_location="cpu", weights_only=True, mmap=mapped
                )
        except (OSError, *BROKEN) as error:  # a seek to before the start of a short file
            raise CimError(f"{path}: {_torch_complaint(error)}") from None
        origin = FileOrigin(path, 0, _version(stream)) if mapped and keeps_half else None
    return value, _PlainTorch(str(path), budget, keeps_half, origin).of(value, "")


def _archive_content(path: Path) -> Any:
    """The value in a file of torch as plain values, read without torch.

    Raises UnusualArchive if torch must read it.
    """
    budget = Budget.of(path)
    with reading(path), path.open("rb") as stream:
        try:
            pickled = archive_pickle(path, stream)
        except (OSError, *BROKEN) as error:
            raise UnusualArchive from error
        if pickled is None:
            raise UnusualArchive
        value = read_plain(path, stream, pickled.value)
        numbers = np.memmap(stream, np.uint8, "r")
        origin = FileOrigin(path, 0, _version(stream))
    return _PlainArchive(str(path), budget, numbers, origin).of(value, "")


def archive_pickle(path: Path, stream: io.BufferedReader) -> PickledPart | None:
    """The content of an archive, whose tensors can be mapped; None for torch's older form.

    Raises CimError for an archive that torch.save does not write, such as a compressed one, and
    LookupError for one without content.
    """
    begin = stream.read(4)
    stream.seek(0)
    if begin != b"PK\x03\x04":
        _check_pickles(path, stream)
        stream.seek(0)
        return None
    pickled = []
    with open_archive(path, stream) as archive:
        members = archive.infolist()
        for name in (one.filename.rpartition("/")[2] for one in members):
            if name in NETWORK_MEMBERS:
                raise CimError(f"{path}: is {NETWORK_MEMBERS[name]}; {SAVE_OR_EXPORT}")
        for one in members:
            if one.compress_type != zipfile.ZIP_STORED or one.compress_size != one.file_size:
                raise CimError(
                    f"{path}: {one.filename} is compressed; expected members as torch.save stores "
                    "them"
                )
            if one.orig_filename.lower().endswith("/data.pkl"):  # torch ignores case
                if one.file_size > LARGEST_STRUCTURE:
                    raise CimError(
                        f"{path}: {one.filename} has {one.file_size:,} bytes; expected at most "
                        f"{LARGEST_STRUCTURE:,} beside the tensors"
                    )
                content = io.BytesIO(archive.read(one))
                pickled.append(plain_pickle(content, path, _records(members)))
    stored, size = sum(one.file_size for one in members), path.stat().st_size
    if stored > size:
        raise CimError(
            f"{path}: its {len(members)} members come to {stored:,} bytes, the file has {size:,}; "
            "it is corrupt"
        )
    stream.seek(0)
    return pickled[-1]


def _records(members: Sequence[zipfile.ZipInfo]) -> dict[str, int]:
    """The bytes of each record of numbers, by key; the smaller if two have the same name."""
    found: dict[str, int] = {}
    for one in members:
        folder, _, key = one.orig_filename.lower().rpartition("/")
        if folder.rpartition("/")[2] == "data":
            found[key] = min(found.get(key, one.file_size), one.file_size)
    return found


def _check_pickles(path: Path, stream: io.BufferedReader) -> None:
    """Raise CimError unless the pickles are what torch.save wrote before it wrote archives."""
    found = [plain_pickle(stream, path) for _ in range(OLD_PICKLES) if stream.peek(1)]
    if len(found) == OLD_PICKLES:
        content, names = found[-2:]
        lacking = content.storages - names.texts
        if lacking:  # torch leaves the missing storages uninitialised
            raise CimError(f"{path}: lacks the numbers of {len(lacking)} of its tensors")


def _torch_complaint(error: Exception) -> str:
    named = r"GLOBAL ([\w.]+\w)|(?:class|type) ([A-Za-z_][\w.]*\.\w+)"  # `eval` has no module
    found = re.search(named, str(error))
    if not found or not isinstance(error, pickle.UnpicklingError):
        return "is truncated, corrupt, or not a file that torch.save wrote"
    name = found.group(found.lastindex or 0)
    return code_complaint(name)


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    require_small_header(path)
    budget = Budget.of(path)
    try:
        with reading(path):
            with safe_open(path, "np") as shapes:  # checks that numbers fill the file
                for name in shapes.keys():  # noqa: SIM118 - it is no mapping
                    extents = shapes.get_slice(name).get_shape()
                    budget.take(math.prod(extents), NUMBER, f"{path}: {name}")
            with path.open("rb") as stream:
                length = int.from_bytes(stream.read(HEADER_LENGTH), "little")
                header = parse_json(stream.read(length))
                numbers = np.memmap(stream, np.uint8, "r", offset=HEADER_LENGTH + length)
                origin = FileOrigin(path, HEADER_LENGTH + length, _version(stream))
            header.pop("__metadata__", None)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CimError(f"{path}: is truncated, corrupt, or not safetensors: {error}") from None
    return {
        name: _stored(header[name], numbers, origin, name) for name in sorted(header, key=natural)
    }


HEADER_LENGTH = 8
"""Bytes before the header of a `.safetensors` file, with its length."""

STORED = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8},
    **{"U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8},
    **{"BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn},
    **{"F8_E5M2": ml_dtypes.float8_e5m2},
}
"""Types of numbers in a `.safetensors` file, by name in the file."""

HALF = 2
"""Bytes of a number in half precision."""

CODES = {1: "uint8", HALF: "int16"}
"""Integers of as many bytes, which torch and numpy both have."""


def is_float8(array: Array) -> bool:
    """True for any kind of float8."""
    return array.itemsize == 1 and array.dtype.kind not in "biu"


def is_half(array: Array) -> bool:
    """True for float16 and bfloat16."""
    return array.itemsize == HALF and array.dtype.kind not in "biu"


SMALL = 1 << 16
"""Numbers of an array that are read, and become float32, at once."""


@dataclass(frozen=True)
class FileOrigin:
    """The place in a file where its numbers begin, and the file's version as it was opened."""

    path: Path
    begin: int
    version: tuple[int, ...]


class MappedArray(np.ndarray[Any, Any]):
    """A part of a file that is mapped, from byte `place` of its origin's numbers.

    Its numbers are to be read by `single`: if another process has cut the file, a mapped number
    would end this one by a signal. `place` is None for a map of torch's, whose places are its own.
    """

    origin: FileOrigin | None = None
    place: int | None = 0


def single(array: Array) -> Array:
    """An array in half precision as float32, exactly; any other as it is, read if it is mapped.

    Raises CimError if a mapped array's file has changed since it was opened.
    """
    if isinstance(array, MappedArray) and array.origin is not None:
        array = _read_mapped(array, array.origin)
    return array.astype(np.float32) if is_half(array) else array


def _read_mapped(array: MappedArray, origin: FileOrigin) -> Array:
    with reading(origin.path), origin.path.open("rb") as stream:
        _require_unchanged(stream, origin)
        if array.place is None:  # a cut between the check and the copy is not seen
            return np.array(array)
        stream.seek(origin.begin + array.place)
        numbers = np.fromfile(stream, np.uint8, array.nbytes)
    if numbers.size < array.nbytes:
        raise _changed(origin)
    return np.asarray(numbers.view(array.dtype).reshape(array.shape))


def _require_unchanged(stream: io.BufferedReader, origin: FileOrigin) -> None:
    if _version(stream) != origin.version:
        raise _changed(origin)


def _changed(origin: FileOrigin) -> CimError:
    return CimError(f"{origin.path}: was changed while it was read")


def _version(stream: io.BufferedReader) -> tuple[int, ...]:
    known = os.fstat(stream.fileno())
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns


def _stored(tensor: Mapping[str, Any], numbers: Array, origin: FileOrigin, key: str) -> Array:
    """A tensor's array, mapped at its place among a file's `numbers` [bytes]."""
    path = origin.path
    if tensor["dtype"] not in STORED:
        raise CimError(f"{path}: {key} is a tensor of {tensor['dtype']}; expected real numbers")
    dtype = np.dtype(STORED[tensor["dtype"]])
    require_shape(tensor["shape"], dtype.itemsize, f"{path}: {key}")
    begin, _ = tensor["data_offsets"]
    array = MappedArray(tensor["shape"], dtype, numbers, begin)
    array.origin, array.place = origin, begin
    return array if array.size > SMALL else single(array)


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key by which `net.10` follows `net.9`."""
    parts = ((part, part.lstrip("0")) for part in re.split(r"([0-9]+)", name))
    return [
        (len(number), number) if "0" <= part[:1] <= "9" else (-1, part) for part, number in parts
    ]


@dataclass
class _Plain(ABC):
    """Converts a file's content to plain values: tensors to arrays, unknown objects to texts.

    An object that occurs several times, or inside itself, is converted each time; the number of
    conversions is bounded.
    """

    file: str
    budget: Budget
    left: int = field(default=MOST_VALUES, kw_only=True)

    def of(self, value: Any, key: str, depth: int = 0) -> Any:
        """The plain form of the value at `key`; CimError for too many values or levels."""
        self.left -= 1
        if depth > DEEPEST:
            raise CimError(
                f"{self.file}: nests containers more than {DEEPEST} deep; expected tensors"
            )
        if self.left < 0:
            raise CimError(
                f"{self.file}: unfolds to more than {MOST_VALUES:,} values; expected tensors"
            )
        if isinstance(value, Mapping):
            named = ((self._name(name, key), inner) for name, inner in value.items())
            return {
                name: self.of(inner, f"{key}.{name}" if key else name, depth + 1)
                for name, inner in named
            }
        if isinstance(value, list | tuple):
            return [self.of(inner, f"{key}[{i}]", depth + 1) for i, inner in enumerate(value)]
        if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
            raise CimError(f"{self.file}: {key} is an integer of {value.bit_length()} bits")
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return self.of_object(value, key)

    @abstractmethod
    def of_object(self, value: Any, key: str) -> Any:
        """The array of a tensor; the plain form of any other object."""

    def take(self, count: int, size: int, key: str) -> None:
        """Count a tensor's numbers, of `size` bytes each, against the budget."""
        self.budget.take(count, size, f"{self.file}: {key or 'it'}")

    def _name(self, name: object, key: str) -> str:
        if not isinstance(name, str | int) or (isinstance(name, int) and abs(name) >= 2**63):
            raise CimError(
                f"{self.file}: {key or 'its top'} has a key that is a {type(name).__name__}; "
                "expected texts"
            )
        return str(name)


@dataclass
class _PlainArchive(_Plain):
    """The content of an archive that was read without torch, whose `numbers` [bytes] are mapped."""

    numbers: Array
    origin: FileOrigin

    def of_object(self, value: Any, key: str) -> Array:
        """The array of a StoredTensor, mapped; UnusualArchive for any other object."""
        if not isinstance(value, StoredTensor):
            raise UnusualArchive
        self.take(value.size, value.dtype.itemsize, key)
        require_shape(value.shape, NUMBER, f"{self.file}: {key}")
        array = value.of(self.numbers).view(MappedArray)
        array.origin, array.place = self.origin, value.place
        return array if array.size > SMALL else single(array)


@dataclass
class _PlainTorch(_Plain):
    """The content of a file that torch has read.

    `origin` is the file that torch has mapped, if its arrays are to be checked against it.
    """

    keeps_half: bool
    origin: FileOrigin | None = None

    def of_object(self, value: Any, key: str) -> Any:
        """The array of a tensor; the name of any other object."""
        import torch

        if not isinstance(value, torch.Tensor):
            return type(value).__name__ if hasattr(value, "__len__") else str(value)
        value = torch.Tensor.detach(value)  # drops attributes that shadow a tensor's methods
        if value.is_nested:
            raise CimError(f"{self.file}: {key} is a nested tensor; expected plain real ones")
        _require_numbers(value, self.file, key)
        self.take(value.numel(), value.element_size(), key)
        kept = self.keeps_half and value.numel() > SMALL
        return self._checked(value, key, kept)

    def _checked(self, value: torch.Tensor, key: str, kept: bool) -> Array:
        """The tensor's array, mapped if torch has mapped its file."""
        if self.origin is None:
            return tensor_array(value, self.file, key, keeps_half=kept)
        with reading(self.origin.path), self.origin.path.open("rb") as stream:
            _require_unchanged(stream, self.origin)
        array = tensor_array(value, self.file, key, keeps_half=kept).view(MappedArray)
        array.origin, array.place = self.origin, None
        return array if array.size > SMALL else single(array)


def tensor_array(tensor: Any, file: str, key: str, keeps_half: bool = False) -> Array:
    """Return a torch tensor as an array; half precision becomes float32, unless it is kept.

    float8 is not converted: float8 weights have a scale, which is stored elsewhere. Raises CimError
    for a tensor that is quantized, sparse, complex or without data.
    """
    import torch

    _require_numbers(tensor, file, key)
    tensor = tensor.detach()
    plain = tensor.layout == torch.strided and not tensor.is_quantized
    if not plain or tensor.is_complex():
        kind = tensor.dtype if tensor.layout == torch.strided else tensor.layout
        raise CimError(f"{file}: {key} is a tensor of {kind}; expected plain real numbers")
    require_shape(tensor.shape, NUMBER, f"{file}: {key}")
    if tensor.is_floating_point() and (size := tensor.element_size()) <= (
        HALF if keeps_half else 1
    ):
        name, codes = str(tensor.dtype).removeprefix("torch."), CODES[size]
        kind = np.float16 if name == "float16" else getattr(ml_dtypes, name)
        return np.asarray(tensor.cpu().contiguous().view(getattr(torch, codes)).numpy()).view(kind)
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        tensor = tensor.to(torch.float32)
    return np.asarray(tensor.cpu().contiguous().numpy())


def _require_numbers(tensor: torch.Tensor, file: str, key: str) -> None:
    """Raise CimError for a tensor on torch's meta device, which has a shape but no numbers."""
    if tensor.is_meta:
        raise CimError(
            f"{file}: {key or 'its tensor'} is on the meta device, so it has a shape but no "
            "numbers; load the numbers before saving"
        )
