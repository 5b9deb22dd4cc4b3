"""Texts that are too long for a person to read are cut to their ends."""

from __future__ import annotations

from cimtool.cli.output import LONGEST_LINE, shown

WORDS = "a word " * 400
SHORT = WORDS[:LONGEST_LINE]


def test_a_long_line_is_cut_to_its_ends_and_others_stay() -> None:
    cut = f"{WORDS[:1500]}...{WORDS[-300:]}"
    assert shown(f"{WORDS}\n{SHORT}\nshort") == f"{cut}\n{SHORT}\nshort"


def test_a_long_word_is_cut_and_a_path_keeps_its_end() -> None:
    assert shown(f"say {'x' * 255} {'y' * 256}") == f"say {'x' * 255} {'y' * 60}..."
    path = "/".join(["folder"] * 200)
    assert shown(path) == f"{path[:60]}...{path[-60:]}"
