from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import describe_checkpoint, inspect
from cimtool.emit.runtime import Session
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import dimension
from cimtool.loading.checkpoint import Checkpoint
from cimtool.loading.layer_map import ModalityMap
from cimtool.loading.model import read_towers
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.models.cross_attention import AttentionBlock

WIDTH = 12


def block(seed: int = 0, **options: Any) -> AttentionBlock:
    """A block whose gains and offsets are no ones and zeros either."""
    torch.manual_seed(seed)
    made = AttentionBlock(WIDTH, 4)
    if options:
        made.attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True, **options)
    with torch.no_grad():
        for name, value in made.named_parameters():
            if "bias" in name or name.startswith("ln"):
                value += 0.3 * torch.randn_like(value)
    return made.eval()


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {key: tensor.numpy() for key, tensor in module.state_dict().items()}


def checkpoint(text: nn.Module, video: nn.Module, **values: Any) -> Checkpoint:
    return Checkpoint("m.pth", {"text_proj": arrays(text), "video_proj": arrays(video), **values})


def embeddings(count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(count, WIDTH))
    video = text + 0.3 * rng.normal(size=text.shape)
    return {"text": text.astype(np.float32), "video": video.astype(np.float32)}


@pytest.mark.parametrize("bias", [True, False])
def test_the_tower_is_the_whole_module_on_its_own_row(bias: bool) -> None:
    made = block(bias=bias)
    x = torch.from_numpy(embeddings(9, 1)["text"])
    with torch.no_grad():
        wanted = made.double()(x.double()).numpy()
    layout, (tower, _) = read_towers(checkpoint(made.float(), made))
    assert layout.name == "cross-attention"
    assert (tower.extent("x"), dimension(tower)) == (WIDTH, WIDTH)
    found = tower.run({"x": x.double().numpy()})
    assert list(found) == ["mu"]
    np.testing.assert_allclose(found["mu"], wanted, atol=2e-6)


def test_a_module_is_read_as_its_checkpoint() -> None:
    made = block(), block(1)
    model = ModelSource(made, head="cosine", widths=(WIDTH, WIDTH)).load()
    assert model.layout == "cross-attention"
    _, towers = read_towers(checkpoint(*made))
    for found, wanted in zip(model.towers, towers, strict=True):
        layers = (tower.by_name["attn"].op for tower in (found, wanted))
        np.testing.assert_array_equal(*(op.weight for op in layers))  # type: ignore[attr-defined]


def test_attention_to_one_token_is_one_layer() -> None:
    """MultiheadAttention itself, whose softmax is 1, and the product of its last two matrices."""
    made = block()
    _, (tower, _) = read_towers(checkpoint(made, made))
    (layer,) = (n.op for n in tower.nodes if isinstance(n.op, Mvm))
    context = torch.from_numpy(embeddings(7, 2)["video"]).unsqueeze(1)
    other = torch.randn(7, 1, WIDTH)
    with torch.no_grad():
        attended, shares = made.attn(other, context, context)
    assert torch.equal(shares, torch.ones(7, 1, 1))
    np.testing.assert_allclose(
        context[:, 0].double().numpy() @ layer.weight + layer.bias, attended[:, 0], atol=2e-6
    )
    state = {key: value.astype(np.float64) for key, value in arrays(made).items()}
    outer = state["attn.out_proj.weight"]
    values = state["attn.in_proj_weight"][2 * WIDTH :], state["attn.in_proj_bias"][2 * WIDTH :]
    np.testing.assert_array_equal(layer.weight, np.float32((outer @ values[0]).T))
    np.testing.assert_allclose(
        layer.bias, outer @ values[1] + state["attn.out_proj.bias"], rtol=1e-6, atol=1e-7
    )


Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    def save(**values: Any) -> Path:
        path = tmp_path / "model.pth"
        state = block().state_dict()
        torch.save({"text_proj": state, "video_proj": state, "head": "cosine", **values}, path)
        return path

    return save


@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128", "hermes-pcm-14nm"])
def test_all_implementations_agree(saved: Saved, tmp_path: Path, target: str) -> None:
    bundle = api.compile(
        saved(),
        calibration=embeddings(64, 0),
        drift="given",
        target=target,
        output=tmp_path / "bundle",
    )
    data = embeddings(40, 7)
    matcher = api.load(bundle.folder)
    text, video = matcher.encode_text(data["text"]), matcher.encode_video(data["video"])
    reference = Simulator(bundle.program, fast=False)
    for modality, features in (("text", text), ("video", video)):
        ran = Session(bundle.folder / f"{modality}.onnx").encode(data[modality])
        np.testing.assert_array_equal(ran["mu"], features["mu"])
        np.testing.assert_array_equal(
            reference.encode(modality, data[modality])["mu"], features["mu"]
        )
    scores = matcher.score(text, video)
    np.testing.assert_array_equal(Session(bundle.folder / "score.onnx").score(text, video), scores)
    wanted = Simulator(bundle.stages[0].program).scores(data["text"], data["video"])
    error = np.sqrt(np.square(scores - wanted).mean())
    assert 0 < error < 0.05 * wanted.std()
    ran = Session(bundle.folder / "float.onnx").run(data)
    np.testing.assert_allclose(ran["logit"], wanted, atol=1e-5)


def test_paired_training_is_told_everywhere(saved: Saved, tmp_path: Path) -> None:
    path = saved(paired=True)
    leak = "trained with partners as contexts (paired), which leaks the right answer"
    (told,) = inspect(path)["warnings"]
    assert told.startswith(leak)
    assert ModelSource(path).load().warnings == (told,)
    bundle = api.compile(
        path,
        calibration=embeddings(64, 0),
        drift="given",
        target="ideal",
        output=tmp_path / "bundle",
    )
    assert bundle.manifest["notes"][0] == f"warning: {told}"
    assert f"warning: {told}" in api.verify(bundle.folder, embeddings(40, 7)).notes


def test_training_on_own_rows_is_no_cause_to_warn(saved: Saved) -> None:
    facts = describe_checkpoint(checkpoint(block(), block(), paired=False))
    assert "warnings" not in facts
    assert facts["layout"] == "cross-attention"
    parameters = 4 * WIDTH**2 + 4 * WIDTH + 2 * WIDTH
    assert facts["text"]["parameters"] == parameters
    assert ModelSource(saved()).load().warnings == ()


def test_modules_in_memory_keep_their_epsilon(tmp_path: Path) -> None:
    text, video = block(), block(1)
    text.ln.eps = video.ln.eps = 0.2
    api.compile(
        (text, video),
        head="cosine",
        calibration=embeddings(64, 0),
        drift="given",
        target="ideal",
        output=tmp_path / "bundle",
    )


def renamed(made: nn.Module) -> dict[str, np.ndarray]:
    return {
        key.replace("attn.out_proj", "last").replace("attn", "mha").replace("ln.", "norm."): value
        for key, value in arrays(made).items()
    }


def test_a_map_names_the_layers_and_the_epsilon() -> None:
    made = block()
    held = Checkpoint("m.pth", {"text": renamed(made), "video": renamed(made)})
    roles = {"attn": "mha", "attn.out_proj": "last", "ln": "norm"}
    named = ModalityMap("m.toml", layers=roles, eps=0.5)
    layout, (tower, _) = read_towers(held, {"text": named, "video": named})
    assert layout.name == "cross-attention"
    made.ln.eps = 0.5
    x = torch.from_numpy(embeddings(5, 1)["text"])
    with torch.no_grad():
        wanted = made(x).numpy()
    found = tower.run({"x": x.double().numpy()})
    np.testing.assert_allclose(found["mu"], wanted, atol=1e-5)


BROKEN = {
    "missing": ({"attn.out_proj.weight": None}, r"text_proj.attn.out_proj.weight is missing"),
    "one bias": ({"attn.in_proj_bias": None}, r"text_proj.attn.in_proj_bias is missing"),
    "shape": (
        {"ln.weight": np.ones(5, np.float32)},
        r"text_proj.ln.weight has shape \[5\]; expected \[12\]",
    ),
    "queries": (
        {"attn.in_proj_weight": np.ones((12, 12), np.float32)},
        r"attn.in_proj_weight has shape \[12, 12\]; expected \[36, 12\]",
    ),
    "others": (
        {"fc.weight": np.ones((12, 12), np.float32)},
        r'text_proj.fc.weight is not part of layout "cross-attention", which would ignore it',
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_not_the_block_is_refused(what: str) -> None:
    changes, sentence = BROKEN[what]
    state = arrays(block()) | changes
    state = {key: value for key, value in state.items() if value is not None}
    with pytest.raises(CimError, match=r"^m\.pth: " + ".*" + sentence):
        read_towers(Checkpoint("m.pth", {"text_proj": state, "video_proj": state}))
