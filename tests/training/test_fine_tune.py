from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.api import prepare
from cimtool.base.arrays import Array
from cimtool.base.errors import CheckFailed, CimError
from cimtool.bundle.dies import NoiseOptions
from cimtool.demo.data import DemoFiles
from cimtool.ir.arithmetic import Mvm, TensorKeys
from cimtool.loading.checkpoint import read_checkpoint, read_torch
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.fine_tune import distillation, split_rows, tensor_keys, with_tensors
from cimtool.training.history import CompiledEpoch
from cimtool.training.trainer import Run

CHOICES: dict[str, Any] = {"weight_bits": 3, "epochs": 4, "batch": 32, "learning_rate": 1e-3}


def tuned(files: DemoFiles, output: Path, **changes: Any) -> Run[CompiledEpoch]:
    return cimtool.fine_tune(
        files.projectors,
        files.poly if files.poly.exists() else None,
        data=random_rows(files),
        calibration=files.calibration,
        output=output,
        **{"target": "isaac-rram-128", **CHOICES, **changes},
    )


def random_rows(files: DemoFiles) -> dict[str, Array]:
    rng = np.random.default_rng(9)
    with np.load(files.calibration) as seen:
        shape, size = (500, seen["text"].shape[1]), float(seen["text"].std())
    return {m: (size * rng.standard_normal(shape)).astype(np.float32) for m in ("text", "video")}


def tensors(run: Run[CompiledEpoch]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(run.folder / "model.pth", weights_only=True)
    return found


def compiled_rmse(files: DemoFiles, projectors: Path) -> float:
    poly = files.poly if files.poly.exists() else None
    stages = [
        prepare(
            path, poly, calibration=files.calibration, target="isaac-rram-128", weight_bits=3
        ).stages
        for path in (files.projectors, projectors)
    ]
    with np.load(files.eval) as rows:
        wanted, found = (
            Simulator(program).scores(rows["text"], rows["video"])
            for program in (stages[0][0].program, stages[1][-1].program)
        )
    return float(np.sqrt(np.square(found - wanted).mean()))


@pytest.mark.thorough("a whole fine-tuning", quick=("small_trunk",))
@pytest.mark.parametrize("model", ["small_trunk", "small_two_branch"])
def test_the_compiled_model_comes_nearer_to_the_float_one_on_unseen_rows(
    model: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    files: DemoFiles = request.getfixturevalue(model)
    found = tuned(files, tmp_path, epochs=8)
    before, after = (compiled_rmse(files, p) for p in (files.projectors, tmp_path / "model.pth"))
    assert after < 0.85 * before
    assert [epoch.number for epoch in found.history] == list(range(9))
    assert found.best.centred_rmse < found.history[0].centred_rmse
    assert all(0 < epoch.centred_rmse < epoch.rmse for epoch in found.history)


@pytest.mark.thorough("two fine-tunings")
def test_it_repeats_and_changes_layers_alone(small_trunk: DemoFiles, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    first, second = (tuned(small_trunk, tmp_path / name, epochs=2) for name in ("one", "other"))
    assert first.history == second.history
    for one, other in zip(first.files, second.files, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert torch.equal(state, torch.get_rng_state())
    start, found = read_checkpoint(small_trunk.projectors).content, tensors(first)
    assert list(found) == [*start, "provenance"]
    assert len(found.pop("provenance")["text"]) == 450  # type: ignore[call-overload]
    for key, tensor in found.items():
        layer = "running" not in key and np.asarray(start[key]).ndim == 2
        if layer or (".bias" in key and ("mu" in key or "logvar" in key)):
            assert not np.array_equal(tensor.numpy(), start[key]), key
        elif "running" in key or "num_batches" in key:
            assert np.array_equal(tensor.numpy(), start[key])


@pytest.mark.thorough("dies in the loop")
def test_dies_in_the_loop_repeat_and_are_judged_on_dies(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    short: dict[str, Any] = {"epochs": 1, "batch": 64, "learning_rate": 6e-5}
    perfect = tuned(small_trunk, tmp_path / "perfect", **short)
    noisy = {**short, "noise": NoiseOptions(model="neurram")}
    first, second = (tuned(small_trunk, tmp_path / name, **noisy) for name in ("one", "other"))
    assert first.history == second.history
    assert first.history[0].rmse > 1.2 * perfect.history[0].rmse


def test_a_loss_that_diverges_stops_and_keeps_the_best(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with pytest.raises(CheckFailed, match=r"smaller|lower learning rate.*model\.pth keeps the st"):
        tuned(small_trunk, tmp_path, learning_rate=1e30)
    history = json.loads((tmp_path / "history.json").read_text())
    assert "keeps the start" in history["stopped"]
    assert "keeps the start" in (tmp_path / "training.html").read_text()
    assert len(history["epochs"]) < 5
    start = read_checkpoint(small_trunk.projectors).content
    kept = read_checkpoint(tmp_path / "model.pth").content
    assert all(np.array_equal(kept[key], array) for key, array in start.items())


def test_a_batch_of_more_than_all_rows_is_refused(small_trunk: DemoFiles, tmp_path: Path) -> None:
    with pytest.raises(CimError, match="batch is 4096 but only 450 texts are for training"):
        tuned(small_trunk, tmp_path, batch=4096)


def test_a_target_without_noise_needs_a_model_named(small_trunk: DemoFiles, tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r'"isaac-rram-128" has no \[noise\].*noise_model'):
        tuned(small_trunk, tmp_path, noise=NoiseOptions())


def test_a_file_or_an_earlier_run_is_refused(small_trunk: DemoFiles, tmp_path: Path) -> None:
    (tmp_path / "history.json").touch()
    with pytest.raises(CimError, match=r"holds history\.json of an earlier run; expected another"):
        tuned(small_trunk, tmp_path)
    with pytest.raises(CimError, match="is a file; expected a folder, or no file"):
        tuned(small_trunk, tmp_path / "history.json")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs is 0; expected an integer of at least 1"),
        ({"batch": 1}, "batch is 1; expected an integer of at least 2"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; expected more than 0"),
        ({"seed": -1}, "seed is -1; expected 0 to 2.63 - 1"),
    ],
)
def test_options_out_of_range_are_refused(
    small_trunk: DemoFiles, tmp_path: Path, given: dict[str, float], message: str
) -> None:
    with pytest.raises(CimError, match=message):
        tuned(small_trunk, tmp_path, **given)


@pytest.mark.thorough("a fine-tuning a head", quick=("cosine",))
@pytest.mark.parametrize("head", ["cosine", "euclidean"])
def test_a_variance_that_the_score_does_not_read_stays_as_it_is(
    small_trunk: DemoFiles, tmp_path: Path, head: str
) -> None:
    run = cimtool.fine_tune(
        small_trunk.projectors,
        data=random_rows(small_trunk),
        calibration=small_trunk.calibration,
        target="ideal",
        output=tmp_path,
        head=head,
        **CHOICES,
    )
    before, found = read_checkpoint(small_trunk.projectors).content, tensors(run)
    kept, changed = "text_proj.logvar.weight", "text_proj.mu.weight"
    assert torch.equal(found[kept], torch.from_numpy(before[kept]))
    assert not torch.equal(found[changed], torch.from_numpy(before[changed]))


def keys_of(projectors: Path) -> dict[str, dict[str, TensorKeys]]:
    return tensor_keys(ModelSource(projectors).load_projectors(), str(projectors))


def test_the_layers_of_a_trunk_are_found(small_trunk: DemoFiles) -> None:
    found = keys_of(small_trunk.projectors)
    assert list(found["text"]) == ["fc1", "fc2", "mu", "logvar"]
    prefix = "video_proj.trunk.3"
    assert found["video"]["fc2"] == TensorKeys(f"{prefix}.weight", f"{prefix}.bias")


def test_nested_keys_are_found_and_replaced(small_two_branch: DemoFiles, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(small_two_branch.projectors)
    own = keys_of(small_two_branch.projectors)["text"]["logvar_proj.3"]
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
    found = keys_of(tmp_path / "unbiased.pth")
    assert found["text"]["mu"] == TensorKeys("text_proj.mu.weight", None)


def test_a_layer_that_is_no_tensor_of_the_file_is_refused(small_two_branch: DemoFiles) -> None:
    model = ModelSource(small_two_branch.projectors).load_projectors()
    nodes = [
        replace(node, op=Mvm(node.op.weight, node.op.bias)) if isinstance(node.op, Mvm) else node
        for node in model.program.text.nodes
    ]
    text = replace(model.program.text, nodes=tuple(nodes))
    mixed = replace(model, program=replace(model.program, text=text))
    with pytest.raises(
        CimError,
        match=r"^file: layout two-branch: text\.mu_proj\.0 has no weight \[out, in\] in",
    ):
        tensor_keys(mixed, "file")


WANTED = torch.tensor([[0.0, -2.0, -3.0], [-2.5, 1.0, -4.0]])


def test_equal_logits_cost_nothing() -> None:
    assert distillation(WANTED, WANTED).item() == pytest.approx(0.0, abs=1e-6)


def test_a_common_offset_counts_by_its_square_in_units_of_the_variance() -> None:
    variance = float(WANTED.numpy().var())
    for offset in (0.1, 2.0, 30.0):
        expected = math.log1p(offset**2 / variance)
        assert distillation(WANTED + offset, WANTED).item() == pytest.approx(expected, rel=1e-4)


def test_a_leader_that_falls_behind_costs_more_than_its_square() -> None:
    variance = float(WANTED.numpy().var())
    others, leader = WANTED.clone(), WANTED.clone()
    others[:, 2] -= 3.0
    leader[0, 0] -= 3.0
    of_one, of_two = (math.log1p(count * 9 / 6 / variance) for count in (1, 2))
    assert distillation(leader, WANTED) - of_one > 3 * (distillation(others, WANTED) - of_two) > 0


def test_a_large_offset_leaves_the_rankings_their_gradient() -> None:
    logits = (WANTED.flip(1) + 30.0).requires_grad_()
    distillation(logits, WANTED).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad[0, 0] < 0 < logits.grad[0, 2]


TEXTS, VIDEOS = 60, 20
DATA = Embeddings(
    np.zeros((TEXTS, 3), np.float32),
    np.zeros((VIDEOS, 3), np.float32),
    np.arange(TEXTS) % VIDEOS,
)


def test_no_video_is_both_learnt_from_and_held_out() -> None:
    right, learn, held = split_rows(DATA, np.random.default_rng(0))
    assert sorted([*learn, *held]) == list(range(TEXTS))
    assert set(right[held]) == set(np.flatnonzero(~np.isin(np.arange(VIDEOS), right[learn])))
    assert len(held) == 6
    assert (right == np.arange(TEXTS) % VIDEOS).all()


def test_unpaired_rows_are_learnt_from_too() -> None:
    rows = replace(DATA, text_to_video=None)
    right, learn, held = split_rows(rows, np.random.default_rng(0))
    assert len(learn) + len(held) == TEXTS
    assert not set(right[learn]) & set(right[held])


def test_rows_that_cannot_be_split_are_refused() -> None:
    few = Embeddings(np.zeros((4, 3)), np.zeros((4, 3)), np.arange(4), file="few.npz")
    with pytest.raises(CimError, match=r"few\.npz: 4 texts and 4 videos are too few"):
        split_rows(few, np.random.default_rng(0))
