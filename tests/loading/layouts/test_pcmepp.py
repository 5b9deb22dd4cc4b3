"""Layout `pcmepp`: heads that pool tokens in their order, by weights of a recurrent network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.ir.heads.csd import Csd
from cimtool.loading.source import ModelSource
from tests.kits.agreement import require_one_result, require_same

WIDTHS, D, TOKENS, ROWS, PLACES = {"text": 10, "video": 16}, 12, 6, 48, 8


class Pooling(nn.Module):
    """Numbers of each channel in their order, weighed by a softmax of scores of places."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(PLACES, 5, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(5, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
        angle = place / 10_000 ** (torch.arange(0, PLACES, 2, dtype=x.dtype) / PLACES)
        positions = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        states = self.gru(positions[None])[0].unflatten(-1, (2, 5)).mean(-2)
        shares = (10 * self.linear(states)).softmax(dim=1)
        return (x.sort(dim=1, descending=True).values * shares).sum(1)


class Aggregated(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc, self.gpool = nn.Linear(width, D), Pooling()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.gpool(self.fc(tokens))


def halves(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    mean, spread = x.view(len(x), 2, -1, width).unbind(1)
    return mean, spread


class Image(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))
        self.image_encoder, self.image_std_encoder = Aggregated(width), Aggregated(width)
        self.image_std_ln = nn.LayerNorm(D)
        self.width = width

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = halves(x, self.width)
        unit = nn.functional.normalize(self.image_encoder(mean), dim=-1)
        return unit, self.image_std_ln(self.image_std_encoder(spread))


class Caption(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear, self.gpool = nn.Linear(width, D), Pooling()
        self.std_linear, self.std_gpool = nn.Linear(width, D), Pooling()
        self.width = width

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = halves(x, self.width)
        unit = nn.functional.normalize(self.gpool(self.linear(mean)), dim=-1)
        return unit, self.std_gpool(self.std_linear(spread))


torch.manual_seed(0)
MODULES = {"text": Caption(WIDTHS["text"]).eval(), "video": Image(WIDTHS["video"]).eval()}
PREFIXES = {"text": "txt_enc", "video": "img_enc"}
CRITERION = {
    "criterion.shift": torch.tensor([3.0]),
    "criterion.negative_scale": torch.tensor([2.0]),
}


def saved(folder: Path, left_out: str = "-", **other: Tensor) -> Path:
    """A checkpoint without the keys that hold a text."""
    content = {
        f"{PREFIXES[modality]}.{key}": tensor
        for modality, module in MODULES.items()
        for key, tensor in module.state_dict().items()
    }
    content |= CRITERION | other
    kept = {key: tensor for key, tensor in content.items() if left_out not in key}
    torch.save({"state_dict": kept, "epoch": 3}, folder / "model.pth")
    return folder / "model.pth"


def rows(tokens: int = TOKENS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {m: (ROWS, 2 * tokens * width) for m, width in WIDTHS.items()}
    return {m: rng.normal(size=shape).astype(np.float32) for m, shape in shapes.items()}


def wanted(modality: str, x: np.ndarray) -> dict[str, np.ndarray]:
    with torch.no_grad():
        mu, logvar = MODULES[modality].double()(torch.from_numpy(x).double())
    MODULES[modality].float()
    return {"mu": mu.numpy(), "s": logvar.exp().numpy()}


@pytest.mark.parametrize("tokens", [1, 7])
def test_the_towers_are_torchs_for_as_many_tokens_as_rows_have(tmp_path: Path, tokens: int) -> None:
    data = rows(tokens)
    model = ModelSource(saved(tmp_path)).for_rows(data).load()
    assert model.layout == "pcmepp"
    assert model.head == Csd(a=2.0, b=3.0)
    for (modality, x), tower in zip(data.items(), model.towers, strict=True):
        require_same(tower.run({"x": x.astype(np.float64)}), wanted(modality, x))


def test_what_is_compiled_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    compiled = api.prepare(
        saved(tmp_path), calibration=rows(), drift="given", target="isaac-rram-128"
    )
    require_one_result(compiled, rows())
    steps = "6 numbers in order by 6 steps, 12 comparisons for each of 12 rows per item"
    assert sum(steps in note for note in compiled.notes) == 4


def test_a_head_of_means_alone_gives_points(tmp_path: Path) -> None:
    file, data = saved(tmp_path, "std_"), {m: x[:, : x.shape[1] // 2] for m, x in rows().items()}
    model = ModelSource(file, head="cosine").for_rows(data).load()
    for (modality, x), tower in zip(data.items(), model.towers, strict=True):
        assert list(tower.outputs) == ["mu"]
        both = wanted(modality, np.concatenate([x, x], axis=1))
        require_same(tower.run({"x": x.astype(np.float64)}), {"mu": both["mu"]})


def test_a_checkpoint_is_inspected_without_rows(tmp_path: Path) -> None:
    facts = inspect(saved(tmp_path))
    assert (facts["layout"], facts["head"]) == ("pcmepp", "csd")
    assert (facts["text"]["input"], facts["video"]["input"]) == ("20 a token", "32 a token")


@pytest.mark.parametrize(
    ("left_out", "other", "said"),
    [
        ("gru.bias_hh_l0_reverse", {}, r"txt_enc\.gpool\.gru\.bias_hh_l0_reverse is missing"),
        ("img_enc.image_std_encoder.fc.b", {}, r"image_std_encoder\.fc\.bias is missing"),
        (
            "-",
            {"img_enc.image_encoder.mlp.weight": torch.ones(2)},
            r'img_enc\.image_encoder\.mlp\.weight is not part of layout "pcmepp"',
        ),
        (
            "-",
            {"txt_enc.std_linear.weight": torch.ones(D, 3)},
            r"txt_enc\.std_linear\.weight has shape \[12, 3\]; expected \[12, 10\]",
        ),
    ],
)
def test_keys_that_are_missing_or_left_over(
    tmp_path: Path, left_out: str, other: dict[str, Tensor], said: str
) -> None:
    file = saved(tmp_path, left_out, **other)
    with pytest.raises(CimError, match=rf"^{file}: .*{said}"):
        ModelSource(file).for_rows(rows()).load()


def test_rows_of_no_whole_number_of_tokens(tmp_path: Path) -> None:
    source = ModelSource(saved(tmp_path), widths=(40, 48))
    with pytest.raises(
        CimError, match="img_enc takes rows of 32 a token; the data have rows of 48"
    ):
        source.load()


def test_a_criterion_without_its_shift_is_refused(tmp_path: Path) -> None:
    said = r"model\.pth: shift is missing; expected one number beside negative_scale"
    with pytest.raises(CimError, match=said):
        ModelSource(saved(tmp_path, "criterion.shift")).for_rows(rows()).load()
