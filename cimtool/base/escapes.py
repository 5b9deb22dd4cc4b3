"""Escapes for foreign texts, such as names and notes, in each language that cimtool writes.

Control characters, lone surrogates, and marks that change the direction of writing become U+FFFD;
a terminal shows their codes (`printable`). A name that keeps RULE is valid as a file name and as a
word in each of these languages. A number is written in ASCII digits: Python's `int` and `float`
also take `1_0`, which is a typing error here, and the digits of other scripts.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Callable

from cimtool.base.errors import CimError

REPLACEMENT = "\ufffd"
UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


def is_shown(character: str) -> bool:
    """True for a character that a reader sees, blanks included."""
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"


def printable(text: str) -> str:
    """A text for a terminal: invisible characters become their codes, such as `\\x1b`."""
    return _shown(text, lambda one: one.encode("unicode_escape").decode())


def visible(text: str) -> str:
    """A text for a file: invisible characters become U+FFFD."""
    return _shown(text, lambda one: REPLACEMENT)


def _shown(text: str, other: Callable[[str], str]) -> str:
    return UNUSUAL.sub(lambda one: one[0] if is_shown(one[0]) else other(one[0]), text)


def one_line(text: str) -> str:
    """The lines of a text as one, with a space between them."""
    return " ".join(line for line in map(str.strip, text.splitlines()) if line)


def xml_text(text: str) -> str:
    """A text for XML, SVG or HTML, in an element or a quoted attribute."""
    return html.escape(visible(text))


MARKDOWN = re.compile(r"[\\`*_\[\]~|]|^(?:[#>]|[-+](?=\s|-|$)|\d{1,9}(?=[.)](?:\s|$)))")
"""Characters that Markdown takes for markup, some of them only at the beginning of a line."""


def markdown_text(text: str) -> str:
    """A text for a line of Markdown: in a paragraph, a list item or a table cell."""
    safe = visible(one_line(text)).replace("&", "&amp;").replace("<", "&lt;")
    return MARKDOWN.sub(
        lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", safe
    )


def c_comment(text: str) -> str:
    """A text for a comment of C or SystemVerilog; it can neither end nor begin a comment."""
    safe = visible(one_line(text)).replace("*/", "* /").replace("/*", "/ *")
    return re.sub(r"\?(?=\?)", "? ", safe)  # C99 reads ??/ as a backslash


def c_string(text: str) -> str:
    """A C string literal, quotes included, that holds a text in UTF-8."""
    marks = {"\\": "\\\\", '"': '\\"', "?": "\\?", "\n": "\\n", "\t": "\\t"}

    def coded(one: str) -> str:
        in_octal = "".join(f"\\{byte:03o}" for byte in one.encode())
        return marks.get(one) or (one if one.isascii() else in_octal)

    return f'"{"".join(map(coded, visible(text)))}"'


def toml_string(text: str) -> str:
    """A TOML string, quotes included, that is read back as the same text.

    A lone surrogate, which is no text, becomes U+FFFD.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    quoted = json.dumps(whole, ensure_ascii=False)
    return _shown(quoted, lambda one: f"\\U{ord(one):08x}")


LONGEST = 100
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
RULE = (
    f"a name of at most {LONGEST} letters (a to z), digits, dots, dashes and underscores, with no "
    "dot or dash first"
)

MARK = 8
"""Digits of the digest in a cleaned name, which tells texts apart."""


def require_name(name: object, key: str) -> None:
    """Raise CimError, which says the `key`, for a value that does not keep RULE."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        said = json.dumps(name, default=str)
        said = said if len(said) <= 60 else f"{said[:57]}..."
        raise CimError(f"{key} is {said}; expected {RULE}")


def clean_name(text: str) -> str:
    """The name that stands for a text: the text itself if it keeps RULE.

    Otherwise its letters and digits, `_` for other characters, and a digest of the text, so that
    two texts have two names.
    """
    if NAME.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:MARK]
    kept = re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("._-")[: LONGEST - MARK - 1]
    return f"{kept or 'name'}-{digest}"


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE
)


def integer_of(text: str) -> int:
    """The integer that a text holds, between blanks and tabs if any; ValueError for other texts."""
    return int(_matched(_INTEGER, text))


def number_of(text: str) -> float:
    """The number that a text holds, such as `1e-3` or `nan`; ValueError as for `integer_of`."""
    return float(_matched(_NUMBER, text))


def _matched(pattern: re.Pattern[str], text: str) -> str:
    number = text.strip(" \t")
    if pattern.fullmatch(number) is None:
        raise ValueError(text)
    return number
