"""Checkpoints read as plain values: nested dictionaries of NumPy arrays, numbers and texts."""

from __future__ import annotations

import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import reading

TORCH_SUFFIXES = (".pth", ".pt")
SUFFIXES = (*TORCH_SUFFIXES, ".safetensors")

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
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's values by key, nested as saved; arrays are float32, float64 or integers.

    `ordered` says whether the order of the keys is that of the layers: a `.safetensors` file
    sorts them by name.
    """

    file: str
    content: Mapping[str, Any]
    ordered: bool = True


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a `.pth`, `.pt` or `.safetensors` file; code inside is never executed.

    Raises CimError for a missing, broken or foreign file, and for one that holds no dictionary.
    """
    require_file(path)
    if path.suffix == ".onnx":
        raise ArgumentError(
            "{}: is one projector; expected a checkpoint of both, or for {projectors} two ONNX "
            "files, text first",
            path,
        )
    require_suffix(path, "a checkpoint", SUFFIXES)
    if path.suffix == ".safetensors":
        return Checkpoint(str(path), _read_safetensors(path), ordered=False)
    content = read_torch(path)
    if not isinstance(content, dict):
        kind = f"a {type(content).__name__}"
        if isinstance(content, np.ndarray):
            kind = f"one tensor of shape {list(content.shape)}"
        raise CimError(f"{path}: holds {kind}; expected a dictionary of tensors (a state_dict)")
    return Checkpoint(str(path), content)


def require_suffix(path: Path, what: str, accepted: tuple[str, ...]) -> None:
    """Raise CimError unless `path` is an existing file with one of the suffixes."""
    require_file(path)
    if path.suffix not in accepted:
        found = f'"{path.suffix}"' if path.suffix else "no suffix"
        raise CimError(f"{path}: {found} is not the suffix of {what}: {', '.join(accepted)}")


def require_file(path: Path) -> None:
    """Raise CimError unless `path` is a file."""
    if path.is_dir():
        raise CimError(f"{path}: is a folder; expected a file")
    if not path.is_file():
        raise CimError(f"{path}: there is no such file")


def read_torch(path: Path) -> Any:
    """Read what `torch.save` wrote as plain values, with `weights_only=True`.

    Raises CimError where the file is broken, or holds a class or function instead of numbers.
    """
    import torch

    require_file(path)
    with reading(path), path.open("rb") as stream:
        try:
            value = torch.load(stream, map_location="cpu", weights_only=True)
        except (OSError, *BROKEN) as error:  # a seek to before the start of a short file
            raise CimError(f"{path}: {_torch_complaint(error)}") from None
    return _plain(value, str(path), "")


def _torch_complaint(error: Exception) -> str:
    named = r"GLOBAL ([\w.]+\w)|(?:class|type) ([A-Za-z_][\w.]*\.\w+)"  # `eval` has no module
    found = re.search(named, str(error))
    if not found or not isinstance(error, pickle.UnpicklingError):
        return "is truncated, corrupt, or not a file that torch.save wrote"
    name = found.group(found.lastindex or 0)
    if name.startswith("numpy"):
        return f"holds a NumPy value ({name}); save it as a tensor or a plain number"
    return (
        f"holds Python code ({name}), which is never executed; expected tensors and plain values "
        "only (save the state_dict, not the module)"
    )


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with reading(path):
            tensors = load_file(path, device="cpu")
    except (SafetensorError, ValueError, KeyError) as error:
        raise CimError(f"{path}: is truncated, corrupt, or not safetensors: {error}") from None
    names = sorted(tensors, key=natural)
    return {name: _plain(tensors[name], str(path), name) for name in names}


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key by which `net.10` follows `net.9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _plain(value: Any, file: str, key: str) -> Any:
    """Return `value` with tensors as arrays; what is neither number, text nor container as text."""
    import torch

    if isinstance(value, torch.Tensor):
        return tensor_array(value, file, key)
    if isinstance(value, Mapping):
        return {
            str(name): _plain(inner, file, f"{key}.{name}" if key else str(name))
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(inner, file, f"{key}[{i}]") for i, inner in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def tensor_array(tensor: Any, file: str, key: str) -> Array:
    """Return a torch tensor as an array; half precision becomes float32, exactly.

    Raises CimError for a tensor that is quantized, sparse, complex or without data.
    """
    import torch

    tensor = tensor.detach()
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
    if not plain or tensor.is_complex():
        kind = tensor.dtype if tensor.layout == torch.strided else tensor.layout
        raise CimError(f"{file}: {key} is a tensor of {kind}; expected plain real numbers")
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        tensor = tensor.to(torch.float32)
    return np.asarray(tensor.cpu().contiguous().numpy())
