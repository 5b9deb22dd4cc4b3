"""JSON that is none, or more than a program takes: sentences without Python's own advice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.json_files import LARGEST, plain_values, read_json

CONTENTS = {
    "an integer of 5,000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "more than 4,300 digits"),
    "bytes that are no text": (b'{"a": "\xff\xfe"}', "it is not UTF-8"),
    "lists in lists": (b"[" * 100 + b"]" * 100, "nested more than 64 deep"),
    "lists beyond the stack": (b"[" * 100_000, "nested more than 64 deep"),
    "a part": (b'{"a": ', "Expecting value"),
}


@dataclass(frozen=True)
class Limit:
    """A record in a result."""

    most: int


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_json_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, said = CONTENTS[name]
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(CimError, match=rf"a\.json: not valid JSON: .*{said}") as caught:
        read_json(file)
    assert "sys." not in str(caught.value)


def test_many_small_tables_are_refused_before_they_are_made(tmp_path: Path) -> None:
    (tmp_path / "many.json").write_bytes(b"[" + b'{"":0},' * 1_000_001 + b"0]")
    with pytest.raises(CimError, match="it has more than 1,000,000 tables"):
        read_json(tmp_path / "many.json", LARGEST)


def test_plain_values_are_those_of_json() -> None:
    given = {
        "path": Path("a\udcff.npz"),
        "numbers": np.arange(2),
        "share": np.float32(0.5),
        "yes": np.bool_(True),
        "unknown": [math.nan, math.inf, -math.inf],
        "text\udcff": "b\udcff",
        "table": MappingProxyType({"one": (1, 2)}),
        "record": Limit(3),
    }
    assert plain_values(given) == {
        "path": "a?.npz",
        "numbers": [0, 1],
        "share": 0.5,
        "yes": True,
        "unknown": [None, None, None],
        "text?": "b?",
        "table": {"one": [1, 2]},
        "record": {"most": 3},
    }
    with pytest.raises(TypeError, match="a object has no JSON form"):
        plain_values({"it": object()})
