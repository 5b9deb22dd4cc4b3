"""The page on the architecture: its map is that of the imports, and what it names is there."""

from __future__ import annotations

import re

from house import LEAVES, PACKAGE, ROOT, map_text, room_arrows

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
        if name not in ("plugin.py", "commands/")
        and not any((place / name).exists() for place in places)
    ]


def test_the_table_of_leaves_says_how_each_is_found() -> None:
    shown = PAGE.partition("<!-- leaves -->\n")[2].partition("<!-- end of leaves -->")[0]
    ways = ("plugin.py", "commands", "api.py")
    found = {leaf: [(PACKAGE / leaf / way).exists() for way in ways] for leaf in LEAVES}
    assert all(map(any, found.values()))
    rows = (re.findall(r"[^|]+", line) for line in shown.splitlines()[2:])
    said = {name.strip(" `/"): ["yes" in cell for cell in cells] for name, *cells in rows}
    assert said == found


def test_a_backend_is_a_table_of_rules_and_the_page_says_so() -> None:
    (row,) = re.findall(r"^\| a backend \|.*$", PAGE, re.MULTILINE)
    assert "`ir/backends.py`" in row
    assert "`Rules(name, levels)`" in row


MOST_ARROWS = 120
"""Imports between rooms; fewer is better."""


def test_arrows_between_rooms_do_not_grow() -> None:
    assert sum(map(len, room_arrows().values())) <= MOST_ARROWS
