from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.deployment.compilation import prepare
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.simulation.simulator import Simulator
from cimtool.training.demo_data import DemoFiles
from cimtool.training.hardware.fine_tune import DieNoise, FineTuned, fine_tune
from cimtool.training.hardware.loop import FineTuning

BITS = {"weight_bits": 3}
OPTIONS = FineTuning(epochs=4, batch=32, learning_rate=1e-3)


def tuned(files: DemoFiles, options: FineTuning = OPTIONS, **changes: object) -> FineTuned:
    return fine_tune(
        files.projectors,
        files.poly if files.poly.exists() else None,
        data=random_rows(files),
        calibration=files.calibration,
        target="isaac-rram-128",
        options=options,
        **(BITS | changes),  # type: ignore[arg-type]
    )


def random_rows(files: DemoFiles) -> dict[str, Array]:
    rng = np.random.default_rng(9)
    with np.load(files.calibration) as seen:
        shape, size = (500, seen["text"].shape[1]), float(seen["text"].std())
    return {m: (size * rng.standard_normal(shape)).astype(np.float32) for m in ("text", "video")}


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


@pytest.mark.parametrize("model", ["small_trunk", "small_two_branch"])
def test_the_compiled_model_comes_nearer_to_the_float_one_on_unseen_rows(
    model: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    files: DemoFiles = request.getfixturevalue(model)
    found = tuned(files)
    (tmp_path / "tuned.pth").write_bytes(found.to_bytes())
    before, after = (compiled_rmse(files, p) for p in (files.projectors, tmp_path / "tuned.pth"))
    assert after < 0.85 * before
    assert [epoch.number for epoch in found.history] == list(range(OPTIONS.epochs + 1))
    assert min(epoch.rmse for epoch in found.history) < found.history[0].rmse


def test_it_repeats_and_changes_layers_alone(small_trunk: DemoFiles) -> None:
    state = torch.get_rng_state()
    short = FineTuning(epochs=2, batch=32, learning_rate=1e-3)
    first, second = (tuned(small_trunk, short) for _ in range(2))
    start = read_checkpoint(small_trunk.projectors).content
    assert first.history == second.history
    assert list(first.content) == list(start)
    for key, tensor in first.content.items():
        assert torch.equal(tensor, second.content[key])
        layer = "running" not in key and np.asarray(start[key]).ndim == 2
        if layer or (".bias" in key and ("mu" in key or "logvar" in key)):
            assert not np.array_equal(tensor.numpy(), start[key]), key
        elif "running" in key or "num_batches" in key:
            assert np.array_equal(tensor.numpy(), start[key])
    assert torch.equal(state, torch.get_rng_state())


def test_dies_in_the_loop_repeat_and_are_judged_on_dies(small_trunk: DemoFiles) -> None:
    short = FineTuning(epochs=1, batch=64)
    perfect = tuned(small_trunk, short)
    first, second = (tuned(small_trunk, short, noise=DieNoise("neurram")) for _ in range(2))
    assert first.history == second.history
    assert first.history[0].rmse > 1.2 * perfect.history[0].rmse


def test_a_loss_that_diverges_stops_and_keeps_the_best(small_trunk: DemoFiles) -> None:
    wild = FineTuning(epochs=3, batch=64, learning_rate=1e30)
    found = tuned(small_trunk, wild)
    assert found.stopped is not None
    assert "lower learning rate" in found.stopped
    assert len(found.history) < 4
    start = read_checkpoint(small_trunk.projectors).content
    assert all(np.array_equal(t.numpy(), start[key]) for key, t in found.content.items())


def test_a_batch_of_more_than_all_rows_is_refused(small_trunk: DemoFiles) -> None:
    with pytest.raises(CimError, match="batch is 4096 and there are 450 texts to learn from"):
        tuned(small_trunk, FineTuning(batch=4096))


def test_a_target_without_noise_needs_a_model_named(small_trunk: DemoFiles) -> None:
    with pytest.raises(CimError, match=r'"isaac-rram-128" has no \[noise\].*noise_model'):
        tuned(small_trunk, noise=DieNoise())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs is 0; expected an integer of at least 1"),
        ({"batch": 1}, "batch is 1; expected an integer of at least 2"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; expected more than 0"),
        ({"seed": -1}, "seed is -1; expected 0 to 2.63 - 1"),
    ],
)
def test_options_out_of_range_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(CimError, match=message):
        FineTuning(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["cosine", "euclidean"])
def test_a_variance_that_the_score_does_not_read_stays_as_it_is(
    small_trunk: DemoFiles, head: str
) -> None:
    found = fine_tune(
        small_trunk.projectors,
        data=random_rows(small_trunk),
        calibration=small_trunk.calibration,
        target="ideal",
        options=OPTIONS,
        head=head,
        weight_bits=3,
    )
    before = read_checkpoint(small_trunk.projectors).content
    kept, changed = "text_proj.logvar.weight", "text_proj.mu.weight"
    assert torch.equal(found.content[kept], torch.from_numpy(before[kept]))
    assert not torch.equal(found.content[changed], torch.from_numpy(before[changed]))
