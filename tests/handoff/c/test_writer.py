"""Names of C for names of programs: whatever these are, the C compiles."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_tools import STRICT, c_compiler

from cimtool.handoff.c.writer import Identifiers

NAMES = (
    *("NULL", "_Bool", "_Complex", "__attribute__", "__func__", "__LINE__", "__int128", "EOF"),
    *("INT64_MAX", "CIM_ITEMS", "int32_t", "size_t", "asm", "typeof", "bool", "linux", "errno"),
    *("stdout", "assert", "static_assert", "alignas", "nullptr", "memcpy", "main", "while"),
    *("item", "cim_requant", "3d", "", "fc1"),
)


@pytest.mark.parametrize("standard", ["c99", "gnu17"])
def test_names_that_c_keeps_are_changed(tmp_path: Path, standard: str) -> None:
    """As fields, as arguments, and as values beside the functions and macros of the library."""
    identifiers = Identifiers()
    fields = [identifiers.new(name) for name in NAMES]
    assert len(set(fields)) == len(NAMES)
    assert fields[-1] == "fc1"
    includes = [f"#include <{name}.h>" for name in ("assert", "errno", "stdint", "stdio", "string")]
    lines = [
        *includes,
        f"struct all {{ {' '.join(f'int32_t {field};' for field in fields)} }};",
        f"int sum({', '.join(f'int32_t {field}' for field in fields)});",
        f"int sum({', '.join(f'int32_t {field}' for field in fields)}) {{",
        "    struct all to;",
        *(f"    to.{field} = {field};" for field in fields),
        f"    assert(stdout != NULL && {' + '.join(f'to.{field}' for field in fields)} >= 0);",
        "    memcpy(&to, &to.fc1, sizeof to.fc1);",
        "    return errno;",
        "}",
    ]
    file = tmp_path / "names.c"
    file.write_text("\n".join(lines) + "\n")
    flags = [f"-std={standard}", *STRICT[1:], "-fsyntax-only"]
    done = subprocess.run(
        [c_compiler("gcc"), *flags, file], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
