from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm, TensorKeys
from cimtool.loading.checkpoint import read_checkpoint, read_torch
from cimtool.loading.source import ModelSource
from cimtool.training.demo_data import DemoFiles
from cimtool.training.hardware.fine_tune import tensor_keys, with_tensors


def keys(projectors: Path) -> dict[str, dict[str, TensorKeys]]:
    return tensor_keys(ModelSource(projectors).load_projectors(), str(projectors))


def test_the_layers_of_a_trunk_are_found(small_trunk: DemoFiles) -> None:
    found = keys(small_trunk.projectors)
    assert list(found["text"]) == ["fc1", "fc2", "mu", "logvar"]
    prefix = "video_proj.trunk.3"
    assert found["video"]["fc2"] == TensorKeys(f"{prefix}.weight", f"{prefix}.bias")


def test_nested_keys_are_found_and_replaced(small_two_branch: DemoFiles, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(small_two_branch.projectors)
    own = keys(small_two_branch.projectors)["text"]["logvar_proj.3"]
    assert own.weight == "text_proj.logvar_proj.3.weight"
    saved = with_tensors(checkpoint.content, {own.weight: np.ones((16, 32), np.float32)})
    torch.save(saved, tmp_path / "new.pth")
    content = read_torch(tmp_path / "new.pth")
    assert (content["text_proj"]["logvar_proj.3.weight"] == 1).all()
    for key, array in checkpoint.content["video_proj"].items():
        assert (content["video_proj"][key] == array).all()
    assert content["config"] == {"dim": 16}


def test_a_layer_without_a_bias_has_no_key_for_one(small_trunk: DemoFiles, tmp_path: Path) -> None:
    state = read_torch(small_trunk.projectors)
    heads = ("mu.bias", "logvar.bias")
    kept = {k: torch.from_numpy(v) for k, v in state.items() if not k.endswith(heads)}
    torch.save(kept, tmp_path / "unbiased.pth")
    found = keys(tmp_path / "unbiased.pth")
    assert found["text"]["mu"] == TensorKeys("text_proj.mu.weight", None)


def test_a_layer_made_of_several_tensors_is_refused(small_two_branch: DemoFiles) -> None:
    model = ModelSource(small_two_branch.projectors).load_projectors()
    nodes = [
        replace(node, op=Mvm(node.op.weight, node.op.bias)) if isinstance(node.op, Mvm) else node
        for node in model.program.text.nodes
    ]
    text = replace(model.program.text, nodes=tuple(nodes))
    mixed = replace(model, program=replace(model.program, text=text))
    with pytest.raises(
        CimError,
        match=r"^file: layout two-branch: text\.mu_proj\.0 is computed from several tensors",
    ):
        tensor_keys(mixed, "file")
