"""The page on build servers: its statuses, defaults and workflow are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cimtool.verification.drift import MOST_QUERIES
from cimtool.verification.paired import AGREEMENT_TOLERANCE, POWER, RMSE_TOLERANCE

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "commands.md").read_text()


def test_the_defaults_are_those_of_the_code() -> None:
    assert f"| top-1 agreement with the reference | {AGREEMENT_TOLERANCE} |" in PAGE
    assert RMSE_TOLERANCE == 0.5
    assert "| logit RMSE from the reference | half of what it was |" in PAGE
    assert f"of more than {MOST_QUERIES:,} texts or videos" in PAGE
    assert f"the width of the interval times {POWER:.2f}" in PAGE


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    steps = yaml.safe_load(block)["jobs"]["verify"]["steps"]
    (step,) = (one for one in steps if "/cimtool/" in one["uses"])
    place = step["uses"].partition("cimtool/")[2].partition("@")[0]
    inputs = yaml.safe_load((ROOT / place / "action.yml").read_text())["inputs"]
    assert set(step["with"]) <= set(inputs)
    assert {name for name, one in inputs.items() if one.get("required")} <= set(step["with"])
