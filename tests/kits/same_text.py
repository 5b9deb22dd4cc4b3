"""Texts of two runs compared: words letter by letter, decimals within what a CPU's rounding moves.

Integers are words. Two decimals agree within `RELATIVE`, or by one unit of the last place printed.
"""

from __future__ import annotations

import difflib
import json
import re
import textwrap
from collections.abc import Iterator
from itertools import chain
from typing import Any

RELATIVE = 1e-4
DIGITS = 6
"""Significant digits that are kept of a float."""

WIDTH, LONGEST_DIFF = 100, 40
"""Columns of a paragraph, and lines of a diff."""

NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?(?!\w)"
)
FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]{6,}(?:e[-+]?[0-9]+)?|[-+]?[0-9](?:\.[0-9]+)?e-[0-9]+")


def difference(stored: str, made: str) -> str:
    """The first lines of a unified diff; empty if the texts agree."""
    if stored == made:
        return ""
    old, new = stored.splitlines(), made.splitlines()
    # A longer number moves what stands beside it in a table.
    moved = [len(one) for one in NUMBER.findall(stored)] != [len(x) for x in NUMBER.findall(made)]
    for i, j in _pairs([_words(line) for line in old], [_words(line) for line in new]):
        laid_out = NUMBER.sub("#", old[i]) == NUMBER.sub("#", new[j])
        if (moved or laid_out) and all(map(_close, NUMBER.findall(old[i]), NUMBER.findall(new[j]))):
            new[j] = old[i]
    diff = list(difflib.unified_diff(old, new, "golden", "now", lineterm="", n=1))
    left = len(diff) - LONGEST_DIFF
    return "\n".join(diff[:LONGEST_DIFF] + ([f"... {left} lines more"] if left > 0 else []))


def _words(line: str) -> str:
    """A line without its numbers and without the widths of its gaps and rules."""
    return re.sub(r"([ ─-])\1+", r"\1", NUMBER.sub("#", line)).strip()


def _pairs(old: list[str], new: list[str]) -> Iterator[tuple[int, int]]:
    """Places of lines of the same words."""
    if len(old) == len(new):
        yield from ((i, i) for i in range(len(old)) if old[i] == new[i])
        return
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    yield from chain.from_iterable(((i + k, j + k) for k in range(n)) for i, j, n in blocks)


def _close(old: str, new: str) -> bool:
    if old == new:
        return True
    if not any(mark in old + new for mark in ".e"):
        return False
    a, b = (float(one.replace(",", "")) for one in (old, new))
    return abs(a - b) <= 1.001 * max(min(_unit(old), _unit(new)), RELATIVE * max(abs(a), abs(b)))


def _unit(number: str) -> float:
    """One unit of the last place printed."""
    mantissa, _, exponent = number.partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def json_lines(text: str) -> str:
    """A JSON file with rounded floats: what is short on one line, a long list as a paragraph."""
    return "\n".join(_values(_rounded(json.loads(text)), ""))


def _values(values: Any, indent: str) -> Iterator[str]:
    """Lines of a value; the first has no indent."""
    whole = json.dumps(values, ensure_ascii=False)
    if len(whole) <= WIDTH or not isinstance(values, dict | list):
        yield whole
        return
    deeper, named = indent + " ", isinstance(values, dict)
    yield whole[0]
    if named or any(isinstance(one, dict | list | str) for one in values):
        for key in values if named else range(len(values)):
            head = f"{json.dumps(key, ensure_ascii=False)}: " if named else ""
            first, *others = _values(values[key], deeper)
            yield f"{deeper}{head}{first}"
            yield from others
    else:
        yield from textwrap.wrap(
            whole[1:-1], WIDTH, initial_indent=deeper, subsequent_indent=deeper
        )
    yield f"{indent}{whole[-1]}"


def _rounded(values: Any) -> Any:
    match values:
        case dict():
            return {key: _rounded(one) for key, one in values.items()}
        case list():
            return [_rounded(one) for one in values]
        case float():
            return float(f"{values:.{DIGITS}g}")
    return values


def markup_lines(text: str) -> str:
    """A page or picture, one tag a line: scripts, styles and embedded files are left out."""
    text = re.sub(r"<(style|script)\b.*?</\1>", r"<\1>...</\1>", text, flags=re.DOTALL)
    text = re.sub(r"(data:[\w/+-]+;base64,)[\w+/=]+", r"\1...", text)
    text = re.sub(r"sha256-[\w+/=]+", "sha256-...", text)
    text = re.sub(r'(?<= d=")[^"]*', lambda d: re.sub(r"([A-Za-z,])", r" \1 ", d[0]), text)
    return rounded_floats(re.sub(r">\s*<(?!/)", ">\n<", text))


def rounded_floats(text: str) -> str:
    """A text whose long floats have `DIGITS` significant digits."""
    return FLOAT.sub(lambda one: f"{float(one[0]):.{DIGITS}g}", text)
