"""Figures that lead: each cost before the first table has an interval, or is a count."""

from __future__ import annotations

import re
from itertools import takewhile

import pytest
from snapshots import SNAPSHOTS

NUMBER = r"[\d,]+(?:\.\d+)?(?:e[+-]\d+)?"
AMOUNT = rf"{NUMBER} (?:[mun]s|s|[munp]?J)\b"

COST = re.compile(rf"(?P<value>{AMOUNT})(?: \((?P<ends>[^()]*)\))?")
TIMES = re.compile(rf"(?P<value>{NUMBER}) times(?: \((?P<ends>[^()]*)\))?")
BETWEEN = re.compile(rf"(?P<low>{NUMBER}(?: \w+)?) to (?P<high>{NUMBER}(?: \w+)?)")
OPEN = re.compile(rf"> {AMOUNT}|at (?:least|most) {NUMBER}|no end is known")

NOT_COSTS = (
    re.compile(rf"[\d,]+ -> [\d,]+ \({NUMBER} times\)"),  # counts before and after
    re.compile(rf"noisy {NUMBER} \w+"),  # the time at which a die is read
    re.compile(rf"exactly {NUMBER} times"),
    re.compile(rf"up to {NUMBER} times finer"),  # steps of codes
    re.compile(rf"the most written cell: {NUMBER} times"),
)


def lead(text: str) -> list[str]:
    """The lines that a command prints before its first table, section or file.

    No sentence has two blanks together, as every line of a table has.
    """
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("status ")) + 1
    ends = re.compile(r"$|--- | |.*  ")
    return list(takewhile(lambda line: not ends.match(line), lines[begin:]))


def without_interval(line: str) -> list[str]:
    """The costs of a line that have no interval, or one of no width."""
    for known in NOT_COSTS:
        line = known.sub("", line)
    found = []
    for pattern in (COST, TIMES):
        for cost in pattern.finditer(line):
            ends = cost["ends"] or ""
            between = BETWEEN.fullmatch(ends)
            wide = between is not None and between["low"] != between["high"]
            if not wide and not OPEN.fullmatch(ends):
                found.append(cost[0])
        line = pattern.sub("", line)
    return found


NOT_PRICED = ("help", "inspect", "targets")
"""Commands that show figures as published, or none."""

LED = sorted(
    one.stem
    for one in SNAPSHOTS.glob("*.txt")
    if not one.stem.endswith("-json") and not one.stem.startswith(NOT_PRICED)
)


@pytest.mark.parametrize("name", LED)
def test_a_cost_that_leads_has_an_interval(name: str) -> None:
    text = (SNAPSHOTS / f"{name}.txt").read_text("utf-8")
    assert {line: bad for line in lead(text) if (bad := without_interval(line))} == {}


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("sweep", TIMES), ("tune", TIMES), ("cost-small", COST), ("cost-gallery", TIMES),
     ("verify-small", TIMES)],
)  # fmt: skip
def test_costs_lead_in_the_snapshots(name: str, pattern: re.Pattern[str]) -> None:
    lines = lead((SNAPSHOTS / f"{name}.txt").read_text("utf-8"))
    assert any(pattern.search(line) for line in lines)


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        ("a query: 15.25 nJ -> 10.66 nJ", ["15.25 nJ", "10.66 nJ"]),
        ("one text: 21.53 nJ (11.49 nJ to 172.3 nJ)", []),
        ("one text: 21.53 nJ (21.53 nJ to 21.53 nJ)", ["21.53 nJ (21.53 nJ to 21.53 nJ)"]),
        ("2.3 times (2.3 to 2.3) that", ["2.3 times (2.3 to 2.3)"]),
        ("2.3 times (2.297 to 2.304) that", []),
        ("takes 1,200 times as much", ["1,200 times"]),
        ("3 times (at least 2), exactly 1 times", []),
        ("latency > 1.816 us (> 1.814 us)", []),
        ("arrays: 8 -> 4 (0.50 times)", []),
        ("On a chip (noisy 1 s, median)", []),
    ],
)
def test_what_counts_as_an_interval(line: str, bad: list[str]) -> None:
    assert without_interval(line) == bad


def test_energies_in_the_table_of_a_comparison_have_intervals() -> None:
    lines = (SNAPSHOTS / "compare.txt").read_text("utf-8").splitlines()
    (row,) = {line for line in lines if "energy of a query " in line}
    assert re.fullmatch(rf" *energy of a query(?: +{AMOUNT} \[{NUMBER}, {NUMBER}\]){{2}}", row)
