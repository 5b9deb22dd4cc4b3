from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.loading.checkpoint import read_checkpoint, read_torch
from cimtool.loading.layer_map import LayerMap
from cimtool.loading.layouts.two_branch import TwoBranch
from cimtool.training.demo_data import DemoFiles
from cimtool.training.hardware.parameters import Keys, layer_keys, with_tensors


def test_the_layers_of_a_trunk_are_found(small_trunk: DemoFiles) -> None:
    found = layer_keys(read_checkpoint(small_trunk.projectors), LayerMap())
    assert list(found["text"]) == ["fc1", "fc2", "mu", "logvar"]
    assert found["video"]["fc2"] == Keys("video_proj.trunk.3.weight", "video_proj.trunk.3.bias")


def test_nested_keys_are_found_and_replaced(small_two_branch: DemoFiles, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(small_two_branch.projectors)
    keys = layer_keys(checkpoint, LayerMap())["text"]["logvar_proj.3"]
    assert keys.weight == "text_proj.logvar_proj.3.weight"
    saved = with_tensors(checkpoint.content, {keys.weight: np.ones((16, 32), np.float32)})
    torch.save(saved, tmp_path / "new.pth")
    content = read_torch(tmp_path / "new.pth")
    assert (content["text_proj"]["logvar_proj.3.weight"] == 1).all()
    for key, array in checkpoint.content["video_proj"].items():
        assert (content["video_proj"][key] == array).all()
    assert content["config"] == {"dim": 16}


def test_a_layer_without_a_bias_has_no_key_for_one(small_trunk: DemoFiles) -> None:
    checkpoint = read_checkpoint(small_trunk.projectors)
    heads = ("mu.bias", "logvar.bias")
    kept = {k: v for k, v in checkpoint.content.items() if not k.endswith(heads)}
    found = layer_keys(replace(checkpoint, content=kept), LayerMap())
    assert found["text"]["mu"] == Keys("text_proj.mu.weight", None)


def test_a_layer_made_of_several_tensors_is_refused(
    small_two_branch: DemoFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Mixed:
        width: int = 16

        def build(self, builder: object, x: str) -> tuple[str, str]:
            name = builder.add("mixed", Mvm(np.eye(16), np.zeros(16)), x)  # type: ignore[attr-defined]
            return name, name

    monkeypatch.setattr(TwoBranch, "tower", classmethod(lambda cls, weights: Mixed()))
    with pytest.raises(CimError, match=r"text\.mixed is computed from several tensors"):
        layer_keys(read_checkpoint(small_two_branch.projectors), LayerMap())
