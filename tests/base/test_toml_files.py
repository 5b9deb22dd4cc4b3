from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.toml_files import TomlTable, read_toml, toml_text, validated


class Example(TomlTable):
    free: dict[str, float] | None = None


@pytest.mark.parametrize(("value", "written"), [(3, "3"), ([1], "[1]")])
def test_a_key_that_holds_a_free_table_says_so(value: object, written: str) -> None:
    assert validated(Example, {"free": {"a": 1.0}}, "x.toml").free == {"a": 1.0}
    with pytest.raises(CimError) as caught:
        validated(Example, {"free": value}, "x.toml")
    assert str(caught.value) == f"x.toml: free = {written}: must be a table"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("a = 1\n", "utf-8-sig")
    assert read_toml(tmp_path / "a.toml") == {"a": 1}


def test_toml_is_read_as_it_was_meant() -> None:
    values = {
        "name": 'a "b"',
        "equalise": True,
        "layers": {"text.*": {"adc_bits": 5}, "video.mu": {"adc_bits": "lossless"}},
        "array": {"rows": 64, "on_off_ratio": 1.5},
    }
    assert tomllib.loads(toml_text(values)) == values
