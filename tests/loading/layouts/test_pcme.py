"""Layout `pcme`: heads that weigh the tokens of a row, from a checkpoint with its encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.loading.source import ModelSource
from tests.kits.agreement import require_one_result, require_same

CHANNELS, WORD, D, TOKENS, ROWS = 16, 10, 12, 6, 48
CSD = {"head": "csd", "a": 0.3, "b": 1.0}


class Attention(nn.Module):
    """The sum of tokens, weighed by the softmax of a score of each."""

    def __init__(self, width: int):
        super().__init__()
        self.w_1 = nn.Linear(width, width // 2, bias=False)
        self.w_2 = nn.Linear(width // 2, 1, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return (self.w_2(torch.tanh(self.w_1(tokens))).softmax(1) * tokens).sum(1)


class PieNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attention = Attention(width)
        self.fc = nn.Linear(width, D)
        self.layer_norm = nn.LayerNorm(D)

    def forward(self, out: Tensor, tokens: Tensor) -> Tensor:
        return self.layer_norm(out + self.fc(self.attention(tokens)).sigmoid())


class Uncertainty(nn.Module):
    """With a layer of its own vector, of images, or a recurrent network, of captions."""

    def __init__(self, width: int, **own: nn.Module):
        super().__init__()
        self.attention = Attention(width)
        self.fc = nn.Linear(width, D)
        for name, module in own.items():
            self.add_module(name, module)

    def forward(self, own: Tensor, tokens: Tensor) -> Tensor:
        return self.fc(self.attention(tokens)) + own


def recurrent() -> nn.Module:
    return nn.GRU(WORD, D // 2, bidirectional=True, batch_first=True)


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(3, CHANNELS, 1), nn.BatchNorm2d(CHANNELS))
        self.fc = nn.Linear(CHANNELS, D)
        self.pie_net = PieNet(CHANNELS)
        self.uncertain_net = Uncertainty(CHANNELS, fc2=nn.Linear(CHANNELS, D))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.view(len(x), -1, CHANNELS)
        mean = tokens.mean(1)
        mu = functional.normalize(self.pie_net(self.fc(mean), tokens), dim=-1)
        own = self.uncertain_net.get_submodule("fc2")(mean)
        return mu, 2 * self.uncertain_net(own, tokens)


class Caption(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, WORD)
        self.rnn = recurrent()
        self.pie_net = PieNet(WORD)
        self.uncertain_net = Uncertainty(WORD, rnn=recurrent())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out, own, rest = x.split([D, D, x.shape[1] - 2 * D], dim=1)
        tokens = rest.view(len(x), -1, WORD)
        mu = functional.normalize(self.pie_net(out, tokens), dim=-1)
        return mu, 2 * self.uncertain_net(own, tokens)


torch.manual_seed(0)
MODULES = {"text": Caption().eval(), "video": Image().eval()}
PREFIXES = {"text": "txt_enc", "video": "img_enc"}


def state(left_out: str = "", **other: Tensor) -> dict[str, Tensor]:
    """The keys of both encoders but those that begin so, and others."""
    own = {
        f"{PREFIXES[modality]}.{key}": tensor
        for modality, module in MODULES.items()
        for key, tensor in module.state_dict().items()
    }
    kept = {key: value for key, value in own.items() if not (left_out and left_out in key)}
    return {**kept, **other}


def rows(tokens: int = TOKENS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    widths = {"text": 2 * D + tokens * WORD, "video": tokens * CHANNELS}
    return {m: rng.normal(size=(ROWS, w)).astype(np.float32) for m, w in widths.items()}


def wanted(modality: str, x: np.ndarray) -> dict[str, np.ndarray]:
    with torch.no_grad():
        mu, logvar = MODULES[modality].double()(torch.from_numpy(x).double())
    MODULES[modality].float()
    return {"mu": mu.numpy(), "s": logvar.exp().numpy()}


Saved = Callable[[Mapping[str, Tensor]], Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Writes a checkpoint as PCME's training does."""

    def save(model: Mapping[str, Tensor]) -> Path:
        beside: dict[str, Any] = {
            "criterion": {"shift": torch.ones(1)},
            "optimizer": {"state": {0: {"step": 3}}, "param_groups": [{"lr": 0.1}]},
            "config": {"model": {"embed_dim": D}},
            "word2idx": {"a": 1},
            "metadata": None,
        }
        torch.save({"model": dict(model), **beside}, tmp_path / "pcme.pth")
        return tmp_path / "pcme.pth"

    return save


@pytest.mark.parametrize("tokens", [1, 5, TOKENS])
def test_the_towers_are_torchs_for_as_many_tokens_as_rows_have(saved: Saved, tokens: int) -> None:
    data = rows(tokens)
    model = ModelSource(saved(state()), **CSD).for_rows(data).load()  # type: ignore[arg-type]
    assert model.layout == "pcme"
    for (modality, x), tower in zip(data.items(), model.towers, strict=True):
        require_same(tower.run({"x": x.astype(np.float64)}), wanted(modality, x))


@pytest.mark.thorough("the same of another layout is in the first tier")
def test_what_is_compiled_is_the_same_to_the_last_bit(saved: Saved) -> None:
    compiled = api.prepare(saved(state()), calibration=rows(), target="isaac-rram-128", **CSD)
    require_one_result(compiled, rows())
    (text, image) = (note for note in compiled.notes if "is compiled from its tokens on" in note)
    networks = "model.txt_enc.rnn and model.txt_enc.uncertain_net.rnn"
    assert f"a row is its tokens behind what {networks} made of them" in text
    assert "model.img_enc is compiled from its tokens on: a row is its tokens, without" in image


def test_a_map_says_the_tokens_and_other_names(saved: Saved, tmp_path: Path) -> None:
    named = {key.replace("pie_net.fc", "pie_net.out"): one for key, one in state().items()}
    lines = [f'[{m}]\ntokens = {TOKENS}\n"pie_net.fc" = "pie_net.out"\n' for m in MODULES]
    (tmp_path / "map.toml").write_text("".join(lines))
    source = ModelSource(saved(named), layer_map=tmp_path / "map.toml", **CSD)  # type: ignore[arg-type]
    for (modality, x), tower in zip(rows().items(), source.load().towers, strict=True):
        require_same(tower.run({"x": x.astype(np.float64)}), wanted(modality, x))


def test_without_an_uncertain_net_items_are_points(saved: Saved) -> None:
    model = ModelSource(saved(state("uncertain_net")), head="cosine", widths=(D + WORD, CHANNELS))
    text, image = model.load().towers
    assert (text.extent("x"), list(text.outputs)) == (D + WORD, ["mu"])
    x = rows(1)["video"]
    found = image.run({"x": x.astype(np.float64)})
    require_same(found, {"mu": wanted("video", x)["mu"]})


def test_a_checkpoint_is_inspected_without_rows(saved: Saved) -> None:
    facts = inspect(saved(state()))
    assert facts["layout"] == "pcme"
    assert facts["text"]["input"] == "24 and 10 a token"
    assert facts["video"]["input"] == "16 a token"
    assert facts["video"]["dimensions"] == D


@pytest.mark.parametrize(
    ("left_out", "other", "said"),
    [
        (
            "img_enc.pie_net.layer_norm.bias",
            {},
            r"model\.img_enc\.pie_net\.layer_norm\.bias is missing \(expected shape \[12\]\)",
        ),
        ("img_enc.fc.", {}, r"img_enc\.fc\.weight is missing \(expected shape \[12, 16\]\)"),
        (
            "",
            {"img_enc.pie_net.gain": torch.ones(2)},
            r'img_enc\.pie_net\.gain is not part of layout "pcme", which would ignore it',
        ),
        (
            "",
            {"txt_enc.pie_net.attention.w_2.weight": torch.ones(4, WORD // 2)},
            r"txt_enc\.pie_net\.attention\.w_2\.weight has shape \[4, 5\]; expected \[1, 5\]",
        ),
    ],
)
def test_keys_that_are_missing_or_left_over(
    saved: Saved, left_out: str, other: dict[str, Tensor], said: str
) -> None:
    file = saved(state(left_out, **other))
    with pytest.raises(CimError, match=rf"^{file}: .*{said}"):
        ModelSource(file, **CSD).for_rows(rows()).load()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "widths", "said"),
    [
        (
            None,
            (None, None),
            r"txt_enc takes rows of 24 numbers and then 10 for each token, for any number of "
            r"tokens; expected data with such rows, or tokens = N in a layer map$",
        ),
        (None, (44, 40), r"img_enc takes rows of 16 a token; the data have rows of 40 numbers$"),
        (None, (24, 32), r"txt_enc .* for each token; the data have rows of 24 numbers$"),
        ("0", (44, 32), r"map\.toml: tokens is 0; expected a whole number of at least 1$"),
        ('"2"', (44, 32), r"map\.toml: tokens is 2; expected a whole number"),
        ("1_000_000", (44, 32), r"and 1,000,000 tokens are too many numbers; expected at most"),
    ],
)
def test_rows_of_no_whole_number_of_tokens(
    saved: Saved,
    tmp_path: Path,
    tokens: str | None,
    widths: tuple[int | None, int | None],
    said: str,
) -> None:
    said_by = None if tokens is None else tmp_path / "map.toml"
    if said_by is not None:
        said_by.write_text(f"[text]\ntokens = {tokens}\n")
    source = ModelSource(saved(state()), layer_map=said_by, widths=widths, **CSD)  # type: ignore[arg-type]
    with pytest.raises(CimError, match=said):
        source.load()
