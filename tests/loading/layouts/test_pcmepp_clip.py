"""Layout `pcmepp-clip`: two matrices behind each encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.ir.heads.csd import Csd
from cimtool.loading.source import ModelSource
from tests.kits.agreement import require_one_result, require_same

RNG = np.random.default_rng(0)
MATRICES = {
    "text": (RNG.normal(size=(6, 4)), 0.3 * RNG.normal(size=(5, 4))),
    "video": (RNG.normal(size=(7, 4)), 0.3 * RNG.normal(size=(7, 4))),
}
NAMES = {
    "text": ("text_projection", "uncertainty_text_projection"),
    "video": ("visual.proj", "visual.uncertainty_proj"),
}
ROWS = {
    m: RNG.normal(size=(48, len(mean) + len(spread))).astype(np.float32)
    for m, (mean, spread) in MATRICES.items()
}


def saved(folder: Path, **other: torch.Tensor) -> Path:
    content = {
        name: torch.tensor(matrix)
        for modality, names in NAMES.items()
        for name, matrix in zip(names, MATRICES[modality], strict=True)
    }
    content |= {"shift": torch.tensor([4.0]), "negative_scale": torch.tensor([5.0])}
    content |= {"visual.ln_post.weight": torch.ones(7), "ln_final.weight": torch.ones(6)}
    torch.save(content | other, folder / "clip.pth")
    return folder / "clip.pth"


def test_both_matrices_are_known_by_their_names(tmp_path: Path) -> None:
    model = ModelSource(saved(tmp_path)).load()
    assert (model.layout, model.head) == ("pcmepp-clip", Csd(a=5.0, b=4.0))
    for (modality, x), tower in zip(ROWS.items(), model.towers, strict=True):
        mean, spread = MATRICES[modality]
        mu, logvar = x[:, : len(mean)] @ mean, x[:, len(mean) :] @ spread
        unit = mu / np.linalg.norm(mu, axis=1, keepdims=True)
        found = tower.run({"x": x.astype(np.float64)})
        require_same(found, {"mu": unit, "s": np.exp(logvar)})


def test_what_is_compiled_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    file = saved(tmp_path)
    require_one_result(api.prepare(file, calibration=ROWS, target="isaac-rram-128"), ROWS)
    assert inspect(file)["head"] == "csd"


def test_a_prefix_takes_the_first_matrix_alone(tmp_path: Path) -> None:
    tables = {"text": "text_projection", "video": "visual.proj"}
    layer_map = tmp_path / "map.toml"
    layer_map.write_text("".join(f'[{m}]\nprefix = "{name}"\n' for m, name in tables.items()))
    file = saved(tmp_path)
    with pytest.raises(CimError, match=r"uncertainty_text_projection, .* look like a"):
        ModelSource(file, layer_map=layer_map, head="cosine").load()
    source = ModelSource(file, layer_map=layer_map, head="cosine", ignore_uncertainty=True)
    model = source.load()
    assert (model.layout, model.text_width) == ("projection", 6)
    assert any("a variance is left out: uncertainty_text_pro" in one for one in model.warnings)


def test_both_matrices_end_in_the_same_dimensions(tmp_path: Path) -> None:
    file = saved(tmp_path, **{"visual.uncertainty_proj": torch.ones(7, 3)})
    with pytest.raises(
        CimError, match=r"visual\.uncertainty_proj has shape \[7, 3\]; expected \[any, 4\]"
    ):
        ModelSource(file).load()
