"""The state of this installation: a verdict, what to do, and facts of machine and software."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from cimtool import __version__
from cimtool.base.errors import CimError
from cimtool.base.machine import cpu_name, free_memory
from cimtool.base.plugins import broken_plugins, load_plugins
from cimtool.base.progress import Say, silent
from cimtool.base.threads import thread_count
from cimtool.report.document import Document, FactList, Section, notes
from cimtool.report.formats import counted

COMPILERS = ("gcc", "clang", "tcc")
ANSWER_SECONDS = 5.0
"""Seconds within which a compiler says its version."""

LITTLE_ROOM = 1 << 30
"""Fewer free bytes of memory or disk are remarked on."""

OPTIONAL = {"torch": "train", "transformers": "transformers", "pyarrow": "parquet"}
"""Packages that commands can do without, each with its extra."""

REINSTALL = "expected cimtool installed in a new environment, `pip install cimtool`"

Found = tuple[tuple[str, str], ...]


@dataclass
class Health:
    """The findings: `failures` of necessary things, `remarks` of others; each says a way out.

    `tested` sums up the self-test; it is empty if that did not end.
    """

    tested: str = ""
    differing: int | None = None
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sections: dict[str, Found] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """One line: works, works but, broken."""
        if self.failures:
            return f"cimtool {__version__} is broken:"
        return f"cimtool {__version__} works{', but' if self.remarks else ''}: {self.tested}"

    def document(self) -> Document:
        """The verdict and what to do first, then the facts."""
        return Document(
            self.verdict,
            (
                *notes([*self.failures, *self.remarks]),
                *(
                    Section(f"{title}:", (FactList(facts),))
                    for title, facts in self.sections.items()
                ),
            ),
            lambda: {
                "works": not self.failures,
                "differing": self.differing,
                "failures": self.failures,
                "remarks": self.remarks,
                **{title: dict(facts) for title, facts in self.sections.items()},
            },
        )


def examine(warmed: bool = False, say: Say = silent) -> Health:
    """Run the self-test, and look at the machine; with `warmed`, compile kernels before."""
    health = Health()
    try:
        # Imported here: a package that cannot be loaded is a finding.
        from cimtool.verification import self_test
    except (ImportError, OSError) as error:
        health.failures.append(f"a package cannot be loaded: {error}; {REINSTALL}")
    else:
        if warmed:
            self_test.warm(say)
        _test(health)
        _kernels(health)
    health.sections["versions"] = tuple(_versions(health))
    health.sections["machine"] = tuple(_machine(health))
    health.sections["compilers"] = tuple(_compilers())
    load_plugins()
    health.remarks += broken_plugins()
    return health


def _test(health: Health) -> None:
    from cimtool.verification.self_test import self_test

    try:
        found = self_test()
    except (CimError, OSError) as error:
        health.failures.append(f"the self-test could not run: {error}")
        return
    compared = sum(one.compared for one in found.bits)
    health.differing = found.differing
    health.tested = (
        f"{found.differing} of {compared:,} values differ between kernels, readable reference and "
        f"ONNX Runtime ({found.seconds:.1f} s)"
    )
    health.failures += [
        f"{sentence}; expected none: please report it with the facts below"
        for one in found.bits
        for sentence in one.failures
    ]
    health.remarks += found.warnings


def _kernels(health: Health) -> None:
    """The instruction sets that kernels use, and the folder that keeps their code."""
    from cimtool.base.compiled import NEEDS, kept_in, switched_on
    from cimtool.simulation.kernels import fused, tiles

    sets = [name for name in NEEDS if name in switched_on()]
    facts = [("instruction sets", ", ".join(sets) or "none that they look for")]
    width = "in floating point"
    if tiles.DOT_BITS:
        width = f"in vectors of {tiles.DOT_BITS} bits{' by VNNI' if tiles.VNNI_BITS else ''}"
    facts.append(("products of bytes", width))
    if not tiles.DOT_BITS:
        health.remarks.append(
            "kernels are slower: this CPU has no AVX2, or NUMBA_CPU_FEATURES switches it off"
        )
    folder = kept_in(fused.finish)
    if folder is None:
        facts.append(("kept in", "no folder"))
        health.remarks.append(
            "every command compiles its kernels again: neither the package's folder nor the home "
            "can be written; set NUMBA_CACHE_DIR to a folder that can"
        )
    else:
        sizes = [file.stat().st_size for file in folder.glob("*.nbc")]
        facts += [
            ("kept in", str(folder)),
            ("kept", f"{counted(len(sizes), 'kernel')}, {sum(sizes) / 1e6:.1f} MB"),
        ]
    health.sections["kernels"] = tuple(facts)


def _versions(health: Health) -> Iterator[tuple[str, str]]:
    """The versions of Python and of packages; a necessary one that is missing is a failure."""
    yield "cimtool", f"{__version__} in {Path(__file__).parents[1]}"
    yield "python", f"{platform.python_version()} ({platform.platform()})"
    for name in _needed():
        found = _version(name)
        if found is None:
            health.failures.append(f"the package {name} is missing; expected `pip install {name}`")
        yield name, found or "missing"
    for name, extra in OPTIONAL.items():
        yield name, _version(name) or f'not installed (`pip install "cimtool[{extra}]"`)'
    yield "CUDA device", _cuda()


def _needed() -> Iterable[str]:
    """The packages that cimtool needs; none if it was not installed but is run from its folder."""
    try:
        wanted = requires("cimtool") or []
    except PackageNotFoundError:
        return []
    return [re.match(r"[\w.-]+", one)[0] for one in wanted if "extra ==" not in one]  # type: ignore[index]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cuda() -> str:
    """The device that `device="cuda"` opens, or the reason for which there is none."""
    from cimtool.simulation.device import Device

    try:
        Device.opened("cuda")
    except (CimError, ImportError, OSError) as error:
        return f"none: {error}"
    return "yes"


def _machine(health: Health) -> Iterator[tuple[str, str]]:
    """The CPU, its cores, and free memory and disk; little room is a remark."""
    yield "CPU", cpu_name()
    yield "threads", f"{thread_count()} of {os.cpu_count()} cores"
    room = {"memory": free_memory()}
    for title, place in (("temporary files", tempfile.gettempdir()), ("this folder", Path.cwd())):
        room[f"{title} in {place}"] = shutil.disk_usage(place).free
    for name, free in room.items():
        if free is not None:
            yield f"free for {name}", f"{free / 1e9:.1f} GB"
            if free < LITTLE_ROOM:
                health.remarks.append(
                    f"only {free / 1e6:,.0f} MB are free for {name}; expected 1 GB"
                )


def _compilers() -> Iterator[tuple[str, str]]:
    """C compilers by name, of which only exported C code needs one."""
    for name in COMPILERS:
        place = shutil.which(name)
        yield name, "not found" if place is None else f"{_answer(place)} ({place})"


def _answer(compiler: str) -> str:
    """The version that a compiler says it has."""
    try:
        done = subprocess.run(
            [compiler, "-dumpversion"],
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not answer: {error}"
    return next(iter((done.stdout or done.stderr).splitlines()), "no answer")
