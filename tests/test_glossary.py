"""The glossary names what is in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = re.findall(
    r"^\| ([^|]+?) \| [^|]+ \| `([^`:]+)(?::(\w+))?` \|$",
    (ROOT / "docs" / "glossary.md").read_text("utf-8"),
    flags=re.MULTILINE,
)


def names(file: Path) -> set[str]:
    """Names that a module defines or imports at its top."""
    found = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return found


def test_the_glossary_has_rows() -> None:
    assert len(ROWS) > 50
    terms = [term for term, _, _ in ROWS]
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(("term", "file", "name"), ROWS)
def test_a_term_is_where_the_glossary_says(term: str, file: str, name: str) -> None:
    assert (ROOT / file).is_file(), term
    assert not name or name in names(ROOT / file), term
