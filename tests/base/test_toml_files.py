from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.base.toml_files import TomlTable, validated


class Example(TomlTable):
    free: dict[str, float] | None = None


@pytest.mark.parametrize(("value", "written"), [(3, "3"), ([1], "[1]")])
def test_a_key_that_holds_a_free_table_says_so(value: object, written: str) -> None:
    assert validated(Example, {"free": {"a": 1.0}}, "x.toml").free == {"a": 1.0}
    with pytest.raises(CimError) as caught:
        validated(Example, {"free": value}, "x.toml")
    assert str(caught.value) == f"x.toml: free = {written}: must be a table"
