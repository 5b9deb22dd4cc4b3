"""The ways in that the refusal of an unknown checkpoint names: both are gone here, as written."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cimtool
from cimtool import cli
from cimtool.base.errors import CimError

WIDTH, D = 24, 8
ROWS = np.random.default_rng(0).normal(size=(2, 64, WIDTH)).astype(np.float32)
DATA = {"text": ROWS[0], "video": ROWS[1]}
OPTIONS = {"target": "isaac-rram-128", "head": "csd", "a": 1.0, "b": 0.0}


class Head(nn.Module):
    """LayerNorm, Linear and GELU, which no layout reads; with or without a variance."""

    def __init__(self, has_variance: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.GELU())
        self.mu = nn.Linear(16, D)
        self.logvar = nn.Linear(16, D) if has_variance else None

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        hidden = self.body(x)
        return self.mu(hidden) if self.logvar is None else (self.mu(hidden), self.logvar(hidden))


class Pair(nn.Module):
    """A checkpoint's module: both heads."""

    def __init__(self, has_variance: bool = True) -> None:
        super().__init__()
        self.text_head, self.video_head = Head(has_variance), Head(has_variance)


def commands(sentence: str) -> list[str]:
    """The texts in backticks."""
    return re.findall(r"`([^`]+)`", sentence)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", **DATA)


@pytest.mark.parametrize("has_variance", [True, False])
def test_the_lines_of_the_refusal_compile_the_checkpoint(here: None, has_variance: bool) -> None:
    torch.manual_seed(0)
    model = Pair(has_variance).eval()
    torch.save(model.state_dict(), "model.pth")
    options = OPTIONS if has_variance else {"target": "isaac-rram-128", "head": "cosine"}
    with pytest.raises(CimError, match="text_head has no known layout") as refused:
        cimtool.compile("model.pth", calibration=DATA, **options)
    export, compile_, python = commands(str(refused.value))
    assert len(str(refused.value)) < 700
    assert str(refused.value).index(python) < str(refused.value).index("layer_map")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, of its older exporter
        for line in (export, export.replace("text", "video")):
            exec(line, {"torch": torch, "model": model})
    flags = [part for k, v in options.items() for part in (f"--{k}", str(v))]
    words = compile_.removesuffix(" ...").split()[1:]
    assert cli.run([*words, "--calibration", "rows.npz", *flags, "-o", "files"]) == 0

    call = python.replace("...", "calibration=DATA, output='modules', **options")
    made = eval(call, {"cimtool": cimtool, "model": model, "DATA": DATA, "options": options})
    scores = [cimtool.load(folder).scores(DATA) for folder in ("files", made.folder)]
    assert np.array_equal(*scores)


def test_projectors_without_known_names_are_called_by_what_they_are(here: None) -> None:
    state = Pair().state_dict()
    other = {k.replace("text_head", "a").replace("video_head", "b"): v for k, v in state.items()}
    torch.save(other, "model.pth")
    with pytest.raises(CimError, match="its keys start with a, b; export both") as refused:
        cimtool.compile("model.pth", calibration=DATA, **OPTIONS)
    export, *_ = commands(str(refused.value))
    assert export.startswith(f"torch.onnx.export(text_projector, torch.zeros(2, {WIDTH}), ")
    assert str(refused.value).endswith('or name them with layer_map ([text] prefix = "...")')
