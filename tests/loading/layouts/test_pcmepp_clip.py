"""Layout `pcmepp-clip`: two matrices behind each encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool import api, cli
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.ir.heads.csd import Csd
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from tests.kits.agreement import require_one_result, require_same
from tests.kits.public_checkpoints import Shape, first_right, matched, pcmepp_clip, pcmepp_rows

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
    require_one_result(
        api.prepare(file, calibration=ROWS, drift="given", target="isaac-rram-128"), ROWS
    )
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


@pytest.mark.parametrize(
    ("key", "other"), [("shift", "negative_scale"), ("negative_scale", "shift")]
)
def test_the_scale_and_the_shift_need_each_other(tmp_path: Path, key: str, other: str) -> None:
    file = saved(tmp_path)
    torch.save({k: v for k, v in torch.load(file).items() if k != key}, file)
    said = (
        rf"clip\.pth: {key} is missing; expected one number beside {other}, as a = negative_scale"
    )
    with pytest.raises(CimError, match=said):
        ModelSource(file).load()
    assert ModelSource(file, head="csd", a=2.0, b=1.0).load().head == Csd(a=2.0, b=1.0)


def published_logits(content: dict[str, torch.Tensor], rows: dict[str, np.ndarray]) -> np.ndarray:
    """`shift - negative_scale D` of PCME++, by the mean squared distance D of two Gaussians."""
    sides = []
    for modality, names in NAMES.items():
        mean, spread = (content[name].double().numpy() for name in names)
        x = rows[modality].astype(np.float64)
        mu, logvar = x[:, : len(mean)] @ mean, x[:, len(mean) :] @ spread
        sides.append((mu / np.linalg.norm(mu, axis=1, keepdims=True), np.exp(logvar).sum(1)))
    (text, s), (image, t) = sides
    distance = ((text[:, None] - image[None]) ** 2).sum(2) + s[:, None] + t
    return np.asarray(4.0 - 5.0 * distance)


def test_the_command_needs_no_other_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.npz"
    np.savez(rows, **ROWS)
    given = ["compile", "--projectors", str(saved(tmp_path)), "--calibration", str(rows)]
    given += ["--drift", "given", "--target", "ideal", "-o", str(tmp_path / "bundle")]
    assert cli.run(given) == 0
    assert "clip (layout pcmepp-clip, head csd) on ideal" in capsys.readouterr().out
    model = ModelSource(saved(tmp_path)).load()
    found = Simulator(model.program).scores(ROWS["text"], ROWS["video"])
    wanted = published_logits(torch.load(tmp_path / "clip.pth"), ROWS)
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)


@pytest.mark.thorough("projections of 512 x 512, and 900 pairs")
def test_vit_b_16_keeps_its_retrieval_in_integers(tmp_path: Path) -> None:
    data = matched(Shape(512, 512, 512), 900, noise=1.0)
    rows = pcmepp_rows(data)
    file = tmp_path / "clip.pth"
    torch.save(pcmepp_clip(data), file)
    calibration = {m: x[:300] for m, x in rows.items()}
    held_out = {m: x[300:] for m, x in rows.items()}
    compiled = api.prepare(file, calibration=calibration, target="ideal")
    exact = published_logits(torch.load(file), held_out)
    found = Simulator(compiled.stages[-1].program).scores(held_out["text"], held_out["video"])
    assert 0.5 < first_right(exact) < 0.99
    for one, other in ((exact, found), (exact.T, found.T)):
        assert first_right(other) >= first_right(one) - 0.003
    require_one_result(compiled, {m: x[:48] for m, x in held_out.items()})
