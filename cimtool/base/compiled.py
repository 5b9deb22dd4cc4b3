"""Compilation of kernels, whose code is kept between runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.cpu import settle

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

settle()

CACHE_LINE = 64

PACKAGE = Path(__file__).parents[1]
IMPORTS = re.compile(r"^from cimtool\.?([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


@cache
def _sources(file: Path) -> frozenset[Path]:
    """A source and those of the package that it imports as it is loaded, and these in turn."""
    found = {file}
    for module, names in IMPORTS.findall(file.read_text("utf-8")):
        place = PACKAGE / module.replace(".", "/")
        inside = (place / f"{name}.py" for name in ("__init__", *re.findall(r"\w+", names)))
        for one in (place.with_suffix(".py"), *inside):
            if one.is_file():
                found |= _sources(one)
    return frozenset(found)


@cache
def stamp(file: Path) -> str:
    """A digest of all that the kernels of a source are made of."""
    digest = hashlib.sha256()
    for source in sorted(_sources(file)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at first use, without the interpreter's lock, and keep the code between runs.

    numba takes kept code for current as long as the function's own file is as it was. Kernels call
    functions of other files, so the digest of those becomes a part of the name that code is kept
    by.
    """
    function.__qualname__ = f"{function.__qualname__}_{stamp(Path(function.__code__.co_filename))}"
    try:
        compiled = numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor a home can hold numba's cache
        compiled = numba.njit(nogil=True, **options)(function)
    return cast(Callable[..., Any], compiled)


def jit_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each caller: what it returns may stay in registers."""
    return jit(function, forceinline=True)


SUMS = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
"""Options of kernels whose sums are in any order; a quotient by 0 is infinite."""


def jit_sums(function: Kernel) -> Kernel:
    """Compile for sums in any order, in vectors; no kernel calls it, see `jit_summand`."""
    return cast(Kernel, jit(function, **SUMS))


def jit_summand(function: Kernel) -> Kernel:
    """Compile for sums in any order, as a part of each kernel that calls it.

    A kernel that is called has copies, its own and one in the code of each caller, of which the
    first that the process loads runs in all. Optimised apart, they may add in different orders.
    """
    return cast(Kernel, jit(function, forceinline=True, **SUMS))


FUSED = {"error_model": "numpy", "fastmath": {"contract"}}
"""Options of kernels whose sums are in the order written; a product and a sum may round once."""


def jit_fused(function: Kernel) -> Kernel:
    """Compile with fused products, for kernels that are vectors of numbers side by side."""
    return cast(Kernel, jit(function, **FUSED))


def jit_fused_part(function: Kernel) -> Kernel:
    """Compile with fused products, as a part of each kernel that calls it."""
    return cast(Kernel, jit(function, forceinline=True, **FUSED))


def aligned(values: Array) -> Array:
    """The values, flat, from the beginning of a cache line: vectors do not cross its end."""
    flat = np.ascontiguousarray(values).reshape(-1)
    room = np.empty(flat.nbytes + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    found = room[start : start + flat.nbytes].view(flat.dtype)
    found[:] = flat
    return found
