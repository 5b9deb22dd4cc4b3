"""Pairs of natural language and code, read from the Python sources that are installed."""

from __future__ import annotations

import ast
import importlib.util
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cimtool.base.errors import CimError

PACKAGES = ("numpy", "scipy", "sklearn")
SKIPPED_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "__pycache__"})
SHORTEST_TEXT = 25
LONGEST_TEXT = 400
SHORTEST_CODE = 100  # below it are stubs that say nothing of what their docstring says

BLANK_LINE = re.compile(r"\n\s*\n")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Pair:
    """The first paragraph of a function's docstring (`text`), its arguments and body (`code`)."""

    text: str
    code: str


def installed_sources(packages: Iterable[str] = PACKAGES) -> tuple[Path, ...]:
    """Return the folders of the standard library and of `packages`, importing none of them."""
    return (Path(sysconfig.get_paths()["stdlib"]), *(_package_folder(name) for name in packages))


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise CimError(f'package "{name}" is not installed, but its sources are wanted as a corpus')
    return Path(spec.origin).parent


def collect_pairs(folders: Iterable[Path]) -> list[Pair]:
    """Return the pairs of all functions below `folders`, sorted, no text and no code twice.

    The order depends on what the sources hold and not on where they lie, so that the same
    installation gives the same pairs on every machine.
    """
    found = {pair for folder in folders for path in _sources(folder) for pair in _pairs_of(path)}
    texts: set[str] = set()
    codes: set[str] = set()
    kept = []
    for pair in sorted(found):
        if pair.text not in texts and pair.code not in codes:
            kept.append(pair)
        texts.add(pair.text)
        codes.add(pair.code)
    return kept


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.py"):
        if SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts[:-1]):
            yield path


def _pairs_of(path: Path) -> Iterator[Pair]:
    try:
        with tokenize.open(path) as file:
            source = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # foreign sources: their invalid escapes are not ours
            tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError):
        return  # installations hold templates and code for other versions, which is no corpus
    # Not splitlines(): it also splits at form feeds, which the parser's line numbers do not count.
    lines = source.split("\n")
    for node in _functions(tree):
        pair = _pair_of(node, lines)
        if pair is not None:
            yield pair


def _functions(tree: ast.AST) -> Iterator[FunctionNode]:
    """Yield all functions below `tree`: `ast.walk` without the expressions, most of the nodes."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, FunctionNode):
            yield child
        if not isinstance(child, ast.expr):
            yield from _functions(child)


def _pair_of(node: FunctionNode, lines: list[str]) -> Pair | None:
    docstring = ast.get_docstring(node, clean=False)
    if docstring is None or len(node.body) < 2:
        return None
    text = " ".join(BLANK_LINE.split(docstring.strip(), 1)[0].split())
    if not SHORTEST_TEXT <= len(text) <= LONGEST_TEXT:
        return None
    # From the line after the docstring, so that the comments above the first statement are kept.
    body = "\n".join(lines[node.body[0].end_lineno : node.end_lineno])
    code = f"{ast.unparse(node.args)}\n{body}".strip()
    return Pair(text, code) if len(code) >= SHORTEST_CODE else None
