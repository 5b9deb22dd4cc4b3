"""The structure of the package as its files tell it: rooms, and which module imports which."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cimtool"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

# From the ground up: a room imports those before it.
CORE = (
    *("base", "reference", "report", "ir", "hardware", "simulation", "loading", "passes", "emit"),
    *("bundle", "verification"),
)
# What hangs on it: a folder each, which registers itself and which nothing in the core imports.
LEAVES = (
    *("costs", "loading/onnx", "gpu", "noise_fitting", "embedding", "galleries", "handoff"),
    *("training", "experiments", "demo"),
)
ROOMS = (*CORE, "api", "cli", *(leaf for leaf in LEAVES if "/" not in leaf))


@dataclass(frozen=True)
class Import:
    names: tuple[str, ...]  # modules that this statement may load, the longest first
    typing: bool  # for annotations alone


@cache
def tree(file: Path) -> ast.Module:
    """The parsed text of a file, for all tests: to parse the package takes seconds.

    Without garbage collection: a finalizer that parses in turn ends the outer parsing in a
    SystemError with Python 3.11 (python/cpython#106905).
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(file.read_text())
    finally:
        if collecting:
            gc.enable()


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, for all tests: to walk through the package takes seconds too."""
    return tuple(ast.walk(tree(file)))


@cache
def imports(file: str) -> list[Import]:
    """All imports of a file, late ones inside functions too."""
    return list(imports_of(tree(ROOT / file), Path(file).parent.parts, typing=False))


def imports_of(node: ast.AST, package: tuple[str, ...], typing: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import((alias.name,), typing) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
        module = ".".join(filter(None, (base, node.module)))
        for alias in node.names:
            yield Import((f"{module}.{alias.name}", module), typing)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.body:
            yield from imports_of(child, package, typing=True)
        children: list[ast.AST] = [*node.orelse]
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from imports_of(child, package, typing)


def library(one: Import) -> str:
    return one.names[-1].partition(".")[0]


@cache
def arrows() -> dict[str, set[str]]:
    """The modules of the package that each of them imports, for annotations too."""
    files = {file.removesuffix(".py").removesuffix("/__init__"): file for file in MODULES}
    modules = {name.replace("/", "."): file for name, file in files.items()}
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        found = (next((n for n in one.names if n in modules), module) for one in imports(file))
        graph[module] = set(found) - {module}
        if "register_modules(__name__, __path__)" in (ROOT / file).read_text():
            graph[module] |= {name for name in modules if name.rpartition(".")[0] == module}
    assert sum(map(len, graph.values())) > len(modules) / 2
    return graph


@cache
def room_arrows() -> dict[str, set[str]]:
    """The rooms that the modules of each room import."""
    rooms: dict[str, set[str]] = {}
    for module, others in arrows().items():
        if (room := room_of(module)) is not None:
            rooms.setdefault(room, set()).update(filter(None, map(room_of, others)))
    return {room: others - {room} for room, others in rooms.items()}


def room_of(module: str) -> str | None:
    """The room of a module: its folder, or the leaf that it lies in; None of the package itself."""
    path = module.replace(".", "/").removeprefix("cimtool/")
    nested = next((leaf for leaf in LEAVES if f"{path}/".startswith(f"{leaf}/")), None)
    first = path.partition("/")[0]
    return nested or (first if first in ROOMS else None)


def map_text() -> str:
    """The map of the rooms for `docs/architecture.md`, from the ground up."""
    order = [*CORE, "api", "cli", *LEAVES]
    lines = ["| room | imports |", "|---|---|"]
    for room in order:
        others = [one for one in order if one in room_arrows().get(room, ())]
        kind = " (leaf)" if room in LEAVES else ""
        lines.append(f"| `{room}/`{kind} | {', '.join(others) or 'nothing'} |")
    return "\n".join(lines).replace("`api/`", "`api.py`") + "\n"


if __name__ == "__main__":
    print(map_text(), end="")
