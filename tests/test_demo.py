from __future__ import annotations

import json
from pathlib import Path

import pytest

from cimtool import cli
from cimtool import demo as demo_module
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import read_bundle
from cimtool.demo import walk
from cimtool.training.demo_data import DemoFiles, Progress


@pytest.fixture
def made(small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """Calls for trained artefacts, answered with the small model."""
    calls: list[tuple[Path, int]] = []

    def make(folder: Path, epochs: int, progress: Progress) -> DemoFiles:
        calls.append((folder, epochs))
        progress(f"training for {epochs} epochs")
        return small_trunk

    monkeypatch.setattr(demo_module, "prepare_demo", make)
    return calls


def test_the_walk_leaves_a_bundle_scores_and_a_report(
    made: list[tuple[Path, int]], tmp_path: Path
) -> None:
    steps: list[str] = []
    found = walk("isaac-rram-128", 3, tmp_path / "cache", tmp_path / "out", steps.append)
    assert made == [(tmp_path / "cache", 3)]
    assert [step.split()[0] for step in steps] == [
        "training", "compiling", "simulating", "verifying"
    ]  # fmt: skip
    assert read_bundle(found.bundle).target.name == "isaac-rram-128"
    assert found.bundle == tmp_path / "out" / "demo@isaac-rram-128"
    assert (found.bundle / "report.html").is_file()
    assert found.scores.is_file()
    assert not found.report.failed
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "demo@isaac-rram-128",
        "demo@isaac-rram-128.scores.npz",
    ]


def test_mistakes_are_found_before_training(made: list[tuple[Path, int]], tmp_path: Path) -> None:
    with pytest.raises(CimError, match='did you mean "ideal"'):
        walk("idal", 3, tmp_path, tmp_path, print)
    (tmp_path / "demo@ideal").write_text("mine")
    with pytest.raises(CimError, match="exists and is no bundle"):
        walk("ideal", 3, tmp_path, tmp_path, print)
    assert made == []


def test_the_command_tells_a_line_a_step_and_where_everything_is(
    made: list[tuple[Path, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert cli.run(["demo", "--target", "ideal", "--epochs", "2", *folders]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    assert [line.split(maxsplit=2)[2] for line in out.splitlines()[:2]] == [
        "training for 2 epochs",
        "compiling for ideal",
    ]
    assert "converters fitted" in out
    report = tmp_path / "out" / "demo@ideal" / "report.html"
    assert f"report  {report}\n" in out
    assert cli.run(["demo", "--target", "ideal", *folders, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bundle"] == str(report.parent)
    assert found["report"]["passed"] is True
    assert [epochs for _, epochs in made] == [2, 6]


def test_epochs_below_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert cli.run(["demo", "--epochs", "0", *folders]) == 2
    assert "epochs is 0; expected 1 or more" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
