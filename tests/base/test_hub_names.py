"""Names on a hub are refused with the command that fetches them, at every door."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool import cli
from cimtool.base.hub_names import fetched_by


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("hf://apple/ProLIP", "hf download apple/ProLIP --local-dir ProLIP"),
        ("hf://a/b@main/c/d.safetensors", "hf download a/b c/d.safetensors --local-dir b"),
        ("hf-hub:timm/SigLIP", "hf download timm/SigLIP --local-dir SigLIP"),
        (
            "hf://datasets/a/b/c.npz",
            "hf download --repo-type dataset a/b c.npz --local-dir b",
        ),
    ],
)
def test_the_command_fetches_a_model_or_one_of_its_files(name: str, command: str) -> None:
    said = f", and nothing is downloaded; expected a file, such as `{command}` makes"
    assert fetched_by(name) == fetched_by(Path(name)) == said


@pytest.mark.parametrize("name", ["rows.npz", "hf:/rows.npz", "a/hf://b/c", "owner/model"])
def test_other_names_are_of_files(name: str) -> None:
    assert fetched_by(name) == ""


@pytest.mark.parametrize(
    "given",
    [
        ["inspect", "hf://a/b"],
        ["compile", "--projectors", "hf://a/b", "--calibration", "hf://a/b", "--target", "ideal"],
    ],
)
def test_commands_say_it_in_one_sentence(
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no such file" in line
    assert line.endswith("such as `hf download a/b --local-dir b` makes")
    assert not list(tmp_path.iterdir())
