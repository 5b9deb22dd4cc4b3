"""Write `cimtool/api.pyi`, by which editors complete the arguments that records declare.

python docs/stubs.py
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cimtool import api
from cimtool.base.options import Record

STUB = Path(api.__file__).with_suffix(".pyi")
HEAD = '''"""Types of the library's functions, which `api` itself loads on first use.

Written by docs/stubs.py.
"""
'''


def imported(module: str) -> dict[str, str]:
    """The modules that the names of a module come from: another one's, or its own."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text("utf-8"))
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: str(node.module) for alias in node.names}
    for node in tree.body:
        names = [getattr(node, "name", None), getattr(getattr(node, "target", None), "id", None)]
        names += [getattr(one, "id", None) for one in getattr(node, "targets", ())]
        found |= dict.fromkeys(filter(None, names), module)
    return found


def declared(record: type[Record]) -> Iterator[tuple[str, type[Record]]]:
    """Each field, and the record that declares it."""
    for base in record.__mro__:
        if issubclass(base, Record):
            yield from ((name, base) for name in inspect.get_annotations(base))


def function_stub(name: str, function: Callable[..., Any], needed: dict[str, str]) -> str:
    """A function's stub; the modules of the names in it are added to those `needed`."""
    signature = inspect.signature(function)
    homes: dict[str, str] = {}
    for record in function.__records__:  # type: ignore[attr-defined]
        homes |= {field: base.__module__ for field, base in reversed([*declared(record)])}
    lines, keywords = [], False
    for one in signature.parameters.values():
        need(str(one.annotation), homes.get(one.name, function.__module__), needed)
        keywords = keywords or one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not keywords:
            lines.append("*,")
            keywords = True
        star = "*" * (one.kind is one.VAR_POSITIONAL)
        default = "" if one.default is one.empty else f" = {value(one.default)}"
        lines.append(f"{star}{one.name}: {one.annotation}{default},")
    returned = str(signature.return_annotation)
    need(returned, function.__module__, needed)
    doc = textwrap.indent(f'"""{inspect.getdoc(function)}\n"""', "    ")
    arguments = textwrap.indent("\n".join(lines), "    ")
    return f"def {name}(\n{arguments}\n) -> {returned}:\n{doc}"


def value(default: object) -> str:
    """A default in a stub: plain ones as they are."""
    return repr(default) if isinstance(default, bool | int | float | str | None) else "..."


def need(annotation: str, module: str, needed: dict[str, str]) -> None:
    """Add the modules of the names in an annotation of a module."""
    known = imported(module)
    for node in ast.walk(ast.parse(annotation)):
        if isinstance(node, ast.Name) and node.id in known:
            needed[node.id] = known[node.id]


def stub() -> str:
    """The text of the stub: functions with records by all arguments, and what else is public."""
    needed: dict[str, str] = {}
    parts, again = [], []
    for room, names in api.NAMES.items():
        for name in names:
            found = getattr(api, name)
            if hasattr(found, "__records__"):
                parts.append(function_stub(name, found, needed))
            else:
                again.append(f"from cimtool.{room}.api import {name} as {name}")
    public = {name for names in api.NAMES.values() for name in names}
    imports = [
        f"from {module} import {name}" for name, module in needed.items() if name not in public
    ]
    text = "\n".join([HEAD, *imports, *again, "NAMES: dict[str, tuple[str, ...]]", *parts]) + "\n"
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")
