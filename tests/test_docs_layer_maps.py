"""The worked example of docs/your-own-model.md compiles, and its page has every key of a map."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch

from cimtool import cli
from cimtool.bundle.bundle import MANIFEST
from cimtool.demo.data import DemoFiles
from cimtool.loading.layer_map import OWN_KEYS, VALUES
from cimtool.loading.layouts import Layout

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "your-own-model.md").read_text("utf-8")
TOWERS = {"text_proj": "caption_tower", "video_proj": "clip_tower"}
HEADS = {"mu": "mean_head", "logvar": "spread_head"}


def block(marked: str) -> str:
    """The code block behind a comment."""
    _, _, text = PAGE.partition(f"<!-- the {marked} of tests/test_docs_layer_maps.py -->\n```")
    return text.partition("\n```")[0].partition("\n")[2]


@pytest.fixture
def example(small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the example, in the current folder."""
    monkeypatch.chdir(tmp_path)
    held = torch.load(small_trunk.projectors, weights_only=True)
    clips = {}
    for key, value in held.items():
        tower, layer, rest = key.split(".", 2)
        clips[f"{TOWERS[tower]}.{HEADS.get(layer, layer)}.{rest}"] = value
    torch.save(clips, "clips.pth")
    Path("poly.json").write_bytes(small_trunk.poly.read_bytes())
    Path("rows.npz").write_bytes(small_trunk.calibration.read_bytes())
    Path("map.toml").write_text(block("map"))
    return tmp_path


def test_the_example_is_refused_without_its_map_and_compiles_with_it(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *command = shlex.split(block("command"))
    assert program == "cimtool"
    assert cli.run([part for part in command if part not in ("--map", "map.toml")]) == 2
    assert capsys.readouterr().err in PAGE.replace("    cimtool: error", "cimtool: error")
    assert cli.run(command) == 0
    assert "does not say its activation" not in capsys.readouterr().out
    assert (example / "clips" / MANIFEST).is_file()
    assert cli.run(["inspect", "map.toml"]) == 0


def test_the_page_has_every_key() -> None:
    layers = [layer for layout in Layout.family.values() for layer in layout.layers]
    keys = [*OWN_KEYS, *VALUES, *Layout.family, *layers]
    assert [key for key in keys if f"`{key}`" not in PAGE and f'`"{key}"`' not in PAGE] == []
