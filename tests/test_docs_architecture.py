"""The page on the architecture: its map is that of the imports, and what it names is there."""

from __future__ import annotations

import re

from house import ROOT, map_text, room_arrows

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_map_is_made_from_the_imports() -> None:
    shown = PAGE.partition("<!-- map -->\n")[2].partition("<!-- end of map -->")[0]
    assert shown == map_text(), "python tests/kits/house.py prints the map of today"


def test_every_file_that_it_names_is_there() -> None:
    places = (ROOT / "cimtool", ROOT / "cimtool" / "hardware", ROOT / "cimtool" / "passes", ROOT)
    named = re.findall(
        r"`(?:python )?([a-z_/]+(?:\.py|/))`", PAGE.partition("<!-- end of map -->")[2]
    )
    assert len(named) > 20
    assert not [
        name
        for name in named
        if name not in ("plugin.py", "exporters/", "commands/")
        and not any((place / name).exists() for place in places)
    ]


MOST_ARROWS = 119
"""Imports between rooms; fewer is better."""


def test_arrows_between_rooms_do_not_grow() -> None:
    assert sum(map(len, room_arrows().values())) <= MOST_ARROWS
