"""A source is no blank text, in every table of figures and prices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from cimtool.base.toml_files import TomlTable
from cimtool.costs import area, machines, prices, silicon
from cimtool.hardware import cam, figures
from cimtool.hardware.noise import spec

ROOMS = (area, machines, prices, silicon, cam, figures, spec)


def sourced(table: type[TomlTable] = TomlTable) -> Iterator[type[TomlTable]]:
    """The tables with a source, but for those that tests make."""
    for one in table.__subclasses__():
        if "source" in one.model_fields and one.__module__.startswith("cimtool."):
            yield one
        yield from sourced(one)


def test_each_room_asks_for_sources() -> None:
    asking = {table.__module__ for table in sourced()}
    assert {room.__name__ for room in ROOMS} <= asking


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u00a0"])
def test_no_source_is_blank(blank: str) -> None:
    for table in sourced():
        with pytest.raises(ValidationError) as found:
            table.model_validate({"source": blank})
        places = [one["loc"] for one in found.value.errors() if one["type"] != "missing"]
        assert ("source",) in places, table
