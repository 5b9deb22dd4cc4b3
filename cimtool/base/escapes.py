"""Texts of others, such as names and notes, within texts of each language that cimtool writes.

Control characters, halves of pairs, and marks that turn the direction of writing are U+FFFD in all
of them; a terminal shows their codes (`printable`). A name that keeps the rule is a file's name and
a word of each of these languages. A number is written in ASCII digits: Python's own `int` and
`float` also take `1_0`, which is a typing error here, and the digits of other scripts.
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
    """A text for a terminal: what is not shown as its code, such as `\\x1b`."""
    return _shown(text, lambda one: one.encode("unicode_escape").decode())


def visible(text: str) -> str:
    """A text for a file: U+FFFD for each character that is not shown."""
    return _shown(text, lambda one: REPLACEMENT)


def _shown(text: str, other: Callable[[str], str]) -> str:
    return UNUSUAL.sub(lambda one: one[0] if is_shown(one[0]) else other(one[0]), text)


def one_line(text: str) -> str:
    """The lines of a text as one, with a space between them."""
    return " ".join(line for line in map(str.strip, text.splitlines()) if line)


def xml_text(text: str) -> str:
    """A text within XML, SVG or HTML, of an element or of an attribute in quotes."""
    return html.escape(visible(text))


MARKDOWN = re.compile(r"[\\`*_\[\]~|]|^(?:[#>]|[-+](?=\s|-|$)|\d{1,9}(?=[.)](?:\s|$)))")
"""Characters that Markdown takes for markup, some of them at the beginning of a line alone."""


def markdown_text(text: str) -> str:
    """A text within a line of Markdown: of a paragraph, an item or a table's cell."""
    safe = visible(one_line(text)).replace("&", "&amp;").replace("<", "&lt;")
    return MARKDOWN.sub(
        lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", safe
    )


def c_comment(text: str) -> str:
    """A text within a comment of C or SystemVerilog, which it neither ends nor begins anew."""
    safe = visible(one_line(text)).replace("*/", "* /").replace("/*", "/ *")
    return re.sub(r"\?(?=\?)", "? ", safe)  # C99 reads ??/ as a backslash


def c_string(text: str) -> str:
    """A string of C, quotes included, that holds a text in UTF-8."""
    marks = {"\\": "\\\\", '"': '\\"', "?": "\\?", "\n": "\\n", "\t": "\\t"}

    def coded(one: str) -> str:
        in_octal = "".join(f"\\{byte:03o}" for byte in one.encode())
        return marks.get(one) or (one if one.isascii() else in_octal)

    return f'"{"".join(map(coded, visible(text)))}"'


def toml_string(text: str) -> str:
    """A string of TOML, quotes included, that is read back as it was.

    Half of a pair, which is no text, is U+FFFD.
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


_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE
)


def integer_of(text: str) -> int:
    """The integer that a text is, blanks and tabs around it left out; ValueError for any other."""
    return int(_matched(_INTEGER, text))


def number_of(text: str) -> float:
    """The number that a text is, such as `1e-3` or `nan`; ValueError as for `integer_of`."""
    return float(_matched(_NUMBER, text))


def _matched(pattern: re.Pattern[str], text: str) -> str:
    number = text.strip(" \t")
    if pattern.fullmatch(number) is None:
        raise ValueError(text)
    return number
