"""Instruction sets that compiled code may use: the CPU's own, less those that a user switches off.

`NUMBA_CPU_FEATURES=-avx512f,-amx-tile` switches sets off, each with what needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from numba import config
from numba.core.codegen import get_host_cpu_features

from cimtool.base.errors import CimError
from cimtool.base.named import nearest

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
"""Sets that LLVM switches on with one, and without which it is off; of those kernels look for."""

BASE = ("64bit", "cx8", "sse", "sse2")
"""Sets of every x86-64 CPU; without them LLVM ends the process."""


def settle() -> None:
    """Check the words of `NUMBA_CPU_FEATURES`, and put those of this CPU before them.

    Alone they would add to what LLVM knows by the CPU's name, of which a virtual machine may hide
    a part. Raises CimError for a word that is none: LLVM would end the process, or overlook it.
    """
    if config.CPU_FEATURES is not None:
        _check(config.CPU_FEATURES)
        config.CPU_FEATURES = ",".join(_words())


def switched_on() -> frozenset[str]:
    """The names, by LLVM, of the sets that compiled code may use."""
    return evaluated(_words())


def evaluated(words: Iterable[str]) -> frozenset[str]:
    """The sets that are on after words `+name` and `-name`, as LLVM takes them: the last holds."""
    found: set[str] = set()
    for word in words:
        sign, name = word[0], word[1:]
        if sign == "+":
            found |= _with_needs(name)
        else:
            found -= {one for one in found if name in _with_needs(one)}
    return frozenset(found)


def cpu_has(feature: str) -> bool:
    """True where compiled code may use a set, by LLVM's name, of this CPU."""
    return feature in switched_on()


def _words() -> list[str]:
    """The words for LLVM: of another CPU, which numba has a name for, those of the user alone."""
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
