"""Functions and their docstrings in Python sources, read by several processes.

Run as a script it reads a share of the files: what it imports is loaded by each process.
"""

from __future__ import annotations

import ast
import gc
import pickle
import re
import subprocess
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SHORTEST_TEXT = 25
LONGEST_TEXT = 400
SHORTEST_CODE = 100  # below it are stubs that say nothing of what their docstring says

FEWEST_FILES = 100
"""Files for which a process of their own is worth its start."""

BLANK_LINE = re.compile(r"\n\s*\n")

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class DocumentedFunction:
    """The first paragraph of a function's docstring (`text`), its arguments and body (`code`)."""

    text: str
    code: str


def documented_functions(files: Iterable[Path], processes: int = 1) -> set[DocumentedFunction]:
    """All pairs of the files, read by as many processes at once, this one among them."""
    paths = [str(file) for file in files]
    count = max(1, min(processes, len(paths) // FEWEST_FILES))
    shares = [paths[start::count] for start in range(count)]
    with ThreadPoolExecutor(count) as pool:  # threads that only wait
        others = [pool.submit(_elsewhere, share) for share in shares[1:]]
        found = _pairs_of(shares[0])
        return found.union(*(one.result() for one in others))


def _elsewhere(files: Sequence[str]) -> set[DocumentedFunction]:
    """The pairs of the files, read by a process that imports nothing but this module."""
    command = [sys.executable, "-I", __file__]
    done = subprocess.run(command, input=pickle.dumps(files), stdout=subprocess.PIPE, check=True)
    return {DocumentedFunction(*pair) for pair in pickle.loads(done.stdout)}


def _pairs_of(files: Iterable[str]) -> set[DocumentedFunction]:
    collects = gc.isenabled()
    gc.disable()  # trees hold no circles, and to look for some is a third of the time
    try:
        return {pair for file in files for pair in _pairs_in(file)}
    finally:
        if collects:
            gc.enable()


def _pairs_in(path: str) -> Iterator[DocumentedFunction]:
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


def _pair_of(node: FunctionNode, lines: list[str]) -> DocumentedFunction | None:
    docstring = ast.get_docstring(node, clean=False)
    if docstring is None or len(node.body) < 2:
        return None
    text = " ".join(BLANK_LINE.split(docstring.strip(), 1)[0].split())
    if not SHORTEST_TEXT <= len(text) <= LONGEST_TEXT:
        return None
    # From the line after the docstring, so that the comments above the first statement are kept.
    body = "\n".join(lines[node.body[0].end_lineno : node.end_lineno])
    code = f"{ast.unparse(node.args)}\n{body}".strip()
    return DocumentedFunction(text, code) if len(code) >= SHORTEST_CODE else None


if __name__ == "__main__":
    pairs = _pairs_of(pickle.load(sys.stdin.buffer))
    pickle.dump([(pair.text, pair.code) for pair in pairs], sys.stdout.buffer)
