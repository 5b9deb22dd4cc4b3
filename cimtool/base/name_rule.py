"""The rule for names: of models, graphs, nodes, layers, modalities, targets, and of bundles' files.

A name that keeps it is a file's name, and a word of every language that cimtool writes.
"""

from __future__ import annotations

import hashlib
import json
import re

from cimtool.base.errors import CimError

LONGEST = 100
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
RULE = (
    f"a name of at most {LONGEST} letters (a to z), digits, dots, dashes and underscores, with no "
    "dot or dash first"
)

MARK = 8
"""Digits of the digest by which a cleaned name tells what it was made of."""


def require_name(name: object, key: str) -> None:
    """Raise CimError, which says the `key`, for a value that is no name."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        said = json.dumps(name, default=str)
        said = said if len(said) <= 60 else f"{said[:57]}..."
        raise CimError(f"{key} is {said}; expected {RULE}")


def clean_name(text: str) -> str:
    """The name that stands for a text: itself if it keeps the rule.

    Else its letters and digits, `_` in place of others, and a digest of the text, so that two
    texts have two names.
    """
    if NAME.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:MARK]
    kept = re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("._-")[: LONGEST - MARK - 1]
    return f"{kept or 'name'}-{digest}"
