"""Compilation of kernels, whose code is kept between runs, and the instruction sets they may use.

Kernels may use all sets of the CPU that the user does not switch off.
`NUMBA_CPU_FEATURES=-avx512f,-amx-tile` switches off these sets and all sets that need them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import config, types
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.extending import lower_builtin, type_callable

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.named import nearest
from cimtool.base.partial import held

VARIABLE = "NUMBA_CPU_FEATURES"

NEEDS = {
    "amx-int8": ("amx-tile",),
    "avx512vnni": ("avx512f",),
    "avx512bw": ("avx512f",),
    "avx512vpopcntdq": ("avx512f",),
    "avx512f": ("avx2", "f16c", "fma"),
    "avxvnni": ("avx2",),
    "avx2": ("avx",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "avx": ("sse4.2",),
    "sse4.2": ("sse4.1",),
    "sse4.1": ("ssse3",),
    "ssse3": ("sse3",),
}
"""The sets that a set needs: LLVM turns them on with it, and it off without them.

Listed are the sets that kernels look for.
"""

BASE = ("64bit", "cx8", "sse", "sse2")
"""Sets of every x86-64 CPU; without them LLVM ends the process."""


def settle() -> None:
    """Check the words of `NUMBA_CPU_FEATURES`, and put this CPU's words before them.

    Alone, the user's words would add to the sets that LLVM expects from the CPU's name; a virtual
    machine may hide some of these. Raises CimError for a wrong word: LLVM would end the process,
    or overlook it.
    """
    if config.CPU_FEATURES is not None:
        _check(config.CPU_FEATURES)
        config.CPU_FEATURES = ",".join(_words())


def switched_on() -> frozenset[str]:
    """LLVM's names of the sets that compiled code may use."""
    return evaluated(_words())


def evaluated(words: Iterable[str]) -> frozenset[str]:
    """The sets that are on after words `+name` and `-name`, as LLVM reads them: the last wins."""
    found: set[str] = set()
    for word in words:
        sign, name = word[0], word[1:]
        if sign == "+":
            found |= _with_needs(name)
        else:
            found -= {one for one in found if name in _with_needs(one)}
    return frozenset(found)


def cpu_has(feature: str) -> bool:
    """True if compiled code may use this set of the CPU, given by LLVM's name."""
    return feature in switched_on()


def _words() -> list[str]:
    """The words for LLVM: this CPU's and the user's; only the user's if numba names another CPU."""
    if config.CPU_NAME is not None:
        return _split(config.CPU_FEATURES or "")
    return _split(get_host_cpu_features()) + _split(config.CPU_FEATURES or "")


def _split(words: str) -> list[str]:
    return [word for word in words.split(",") if word]


def _with_needs(name: str) -> set[str]:
    return {name}.union(*map(_with_needs, NEEDS.get(name, ())))


def _check(words: str) -> None:
    known = {word[1:] for word in _split(get_host_cpu_features())}
    for word in _split(words):
        name = word[1:]
        if not re.fullmatch(r"[+-][\w.-]+", word):
            raise CimError(f'{VARIABLE} holds "{word}"; expected words like -avx512f, with commas')
        if known and name not in known:
            near = nearest(name, known)
            raise CimError(f'{VARIABLE} holds "{word}", which names no instruction set{near}')
        if word[0] == "-" and name in BASE:
            raise CimError(f'{VARIABLE} holds "{word}", which compiled code needs; expected others')


Kernel = TypeVar("Kernel", bound=Callable[..., Any])

settle()

CACHE_LINE = 64

PACKAGE = Path(__file__).parents[1]
IMPORTS = re.compile(r"^from cimtool\.?([\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


@cache
def _sources(file: Path) -> frozenset[Path]:
    """A source file, the package's files that it imports on loading, and their imports in turn."""
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
    """A digest of all sources that the kernels of `file` are compiled from."""
    digest = hashlib.sha256()
    for source in sorted(_sources(file)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at first use, without the interpreter's lock, and keep the code between runs.

    numba reuses kept code while the function's file is unchanged. But kernels call functions of
    other files, so the digest of those files becomes part of the name under which code is kept.
    Code is kept for each CPU, and processes that share it don't compile a kernel at once.
    """
    function.__qualname__ = f"{function.__qualname__}_{stamp(Path(function.__code__.co_filename))}"
    try:
        compiled = numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor a home can hold numba's cache
        return cast(Callable[..., Any], numba.njit(nogil=True, **options)(function))
    if isinstance(compiled, Dispatcher):  # else numba is switched off
        _compile_alone(compiled, function.__qualname__)
    return cast(Callable[..., Any], compiled)


LONGEST_WAIT = 120.0
"""Seconds that a process waits for another one that compiles the same kernel."""


def _compile_alone(compiled: Any, name: str) -> None:
    """Let one process at a time look up and compile a kernel; the others then find its code.

    numba's index of kept code has no lock: two processes that add to it at once could leave one
    signature with the code of the other.
    """
    compile_, place = compiled.compile, Path(compiled.stats.cache_path, f"{name}.lock")

    def compile_alone(signature: Any) -> Any:
        # numba's lock first: a thread with the file's lock would else wait for one without it.
        with global_compiler_lock, held(place, LONGEST_WAIT):
            return compile_(signature)

    compiled.compile = compile_alone


def kept_in(kernel: Any) -> Path | None:
    """The folder that keeps the code of a kernel between runs; None if none does."""
    place = kernel.stats.cache_path if isinstance(kernel, Dispatcher) else None
    return None if place is None else Path(place)


def jit_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of each caller, so that results may stay in registers."""
    return jit(function, forceinline=True)


SUMS = {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
"""Options of kernels that may sum in any order; a quotient by 0 is infinite."""


def jit_sums(function: Kernel) -> Kernel:
    """Compile for sums in any order, in vectors; no kernel calls it, see `jit_summand`."""
    return cast(Kernel, jit(function, **SUMS))


def jit_summand(function: Kernel) -> Kernel:
    """Compile for sums in any order, as a part of each kernel that calls it.

    A called kernel would have copies: its own, and one in the code of each caller. The copy that
    the process loads first runs for all. Each copy may add in a different order.
    """
    return cast(Kernel, jit(function, forceinline=True, **SUMS))


FUSED = {"error_model": "numpy", "fastmath": {"contract"}}
"""Options of kernels that sum in the written order; a product and a sum may round only once."""


def jit_fused(function: Kernel) -> Kernel:
    """Compile with fused products, for kernels that compute vectors of independent numbers."""
    return cast(Kernel, jit(function, **FUSED))


def jit_fused_part(function: Kernel) -> Kernel:
    """Compile with fused products, as a part of each kernel that calls it."""
    return cast(Kernel, jit(function, forceinline=True, **FUSED))


def wide_vectors() -> None:
    """Let the kernel that calls this use the CPU's widest vectors.

    For a CPU with AVX-512, LLVM prefers half of their width. That suits kernels with a few vectors
    among scalars; loops over hundreds of numbers that stay in the cache take half the time in full.
    """


@type_callable(wide_vectors)  # type: ignore[untyped-decorator]
def _type_of_wide_vectors(_: Any) -> Callable[[], types.Type]:
    return lambda: types.void


@lower_builtin(wide_vectors)  # type: ignore[untyped-decorator]
def _ask_for_wide_vectors(context: Any, builder: Any, _: Any, __: Any) -> Any:
    # The `add` of llvmlite refuses attributes of a target, which stand in quotes.
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    return context.get_dummy_value()


def aligned(values: Array) -> Array:
    """The values, flat, starting at a cache line, so that vectors do not cross its end."""
    flat = np.ascontiguousarray(values).reshape(-1)
    room = np.empty(flat.nbytes + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    found = room[start : start + flat.nbytes].view(flat.dtype)
    found[:] = flat
    return found
