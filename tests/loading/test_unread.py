"""Tensors that a layout does not read: named, counted, and refused if they look like a variance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.loading.source import ModelSource
from tests.kits.public_checkpoints import Shape, Tensors, matched, open_clip, prolip

SMALL = Shape(text=12, image=10, d=12)
DATA = matched(SMALL, 32)
CLIP = open_clip(SMALL, DATA)
ENCODERS = sum(name not in ("text_projection", "visual.proj", "logit_scale") for name in CLIP)


def saved(folder: Path, tensors: Tensors) -> Path:
    save_file(tensors, folder / "clip.safetensors")
    return folder / "clip.safetensors"


def warnings(file: Path, **options: bool) -> list[str]:
    model = ModelSource(file, head="cosine", **options).for_rows(DATA.rows_of_cls()).load()
    return [one.removeprefix(f"{file}: ") for one in model.warnings]


def test_tensors_of_encoders_are_counted(tmp_path: Path) -> None:
    counted = f"{ENCODERS} tensors of encoders and of training are left out"
    file = saved(tmp_path, CLIP)
    assert warnings(file)[-1] == counted
    assert f"{file}: {counted}" in inspect(file)["warnings"]


def test_the_state_of_training_is_counted_with_them(tmp_path: Path) -> None:
    moments = {"state": {0: {"exp_avg": torch.ones(3), "exp_avg_sq": torch.ones(3)}}}
    torch.save({"epoch": 2, "state_dict": CLIP, "optimizer": moments}, tmp_path / "epoch_2.pt")
    counted = f"{ENCODERS + 2} tensors of encoders and of training are left out"
    assert warnings(tmp_path / "epoch_2.pt")[-1] == counted


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["adapter.weight"], "adapter.weight"),
        ([f"adapter.{n}" for n in range(9)], "adapter.0, adapter.1, adapter.2 and 6 more"),
    ],
)
def test_a_key_that_no_layout_knows_is_named(tmp_path: Path, names: list[str], said: str) -> None:
    file = saved(tmp_path, CLIP | {name: torch.ones(2) for name in names})
    named = f'layout "projection" does not know {said}, and leaves out what it does not know'
    assert warnings(file)[-1] == named


@pytest.mark.parametrize(
    "name",
    [
        *(
            "visual.uncertainty_head.weight",
            "logvar_head.weight",
            "log_var",
            "text.std_linear.bias",
        ),
        *("img_logsigma.weight", "sigma", "head.variance"),
        *("text.log_sigma2.weight", "visual.unc_proj.weight", "uncertainties", "head.log_stdev"),
    ],
)
def test_a_variance_that_is_left_out_is_refused(tmp_path: Path, name: str) -> None:
    file = saved(tmp_path, CLIP | {name: torch.ones(2)})
    said = rf"^{file}: {name} looks like a variance, which layout \"projection\" does not read; "
    with pytest.raises(CimError, match=said + r".* or ignore_uncertainty to compile points$"):
        warnings(file)
    assert warnings(file, ignore_uncertainty=True)[-1] == f"a variance is left out: {name}"


@pytest.mark.parametrize(
    "name", ["visual.bn1.running_var", "standard.weight", "variant", "func.bias"]
)
def test_other_words_are_no_variance(tmp_path: Path, name: str) -> None:
    assert not any(
        "a variance" in one for one in warnings(saved(tmp_path, CLIP | {name: torch.ones(2)}))
    )


def test_a_head_of_points_says_that_it_leaves_out_the_variance(tmp_path: Path) -> None:
    file = saved(tmp_path, prolip(SMALL, DATA))
    model = ModelSource(file, head="cosine").for_rows(DATA.rows()).load()
    left = f'{file}: head "cosine" leaves out the variance that the projectors give'
    assert model.warnings[-1] == left
    assert left not in ModelSource(file).for_rows(DATA.rows()).load().warnings


def test_the_command_takes_the_permission_as_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rows = saved(tmp_path, CLIP | {"std.weight": torch.ones(2)}), tmp_path / "rows.npz"
    np.savez(rows, **DATA.rows_of_cls())
    given = ["compile", "--projectors", str(file), "--calibration", str(rows), "--target", "ideal"]
    given += ["-o", str(tmp_path / "bundle")]
    assert cli.run(given) == 2
    assert "std.weight looks like a variance" in (said := capsys.readouterr().err)
    assert "--ignore-uncertainty" in said
    assert cli.run([*given, "--ignore-uncertainty"]) == 0
    assert "a variance is left out: std.weight" in capsys.readouterr().out
