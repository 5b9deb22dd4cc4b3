from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import save_file
from tiny_encoders import (
    IMAGES,
    MOST,
    SIDE,
    TABLE,
    WORDS,
    numbers,
    text_row,
    write_graph,
    write_image,
    write_image_encoder,
    write_json,
    write_text_encoder,
    write_tokenizer,
)

import cimtool
from cimtool.base.errors import CimError
from cimtool.embedding.towers import open_tower

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

TEXTS = ("a dog runs", "a cat", "a red dog sleeps")


def embedded(folder: Path, items: Path, **options: Any) -> np.ndarray:
    made = cimtool.embed(items, encoder=str(folder), output=folder.parent / "rows.npy", **options)
    rows: np.ndarray = np.load(made.file)
    return rows


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    return tmp_path / "lines.txt"


def test_a_file_of_a_fixed_number_of_tokens(tmp_path: Path, lines: Path) -> None:
    folder = write_text_encoder(tmp_path / "fixed", length=9)
    rows = embedded(folder, lines)
    padded = [*numbers(TEXTS[0]), *[0] * 4]
    assert len(padded) == 9
    # Padding widens the range that 8 bits are spread over; its states are not in the mean.
    lo, hi = (float(end) for end in (TABLE[padded].min(), TABLE[padded].max()))
    step = (max(hi, 0) - min(lo, 0)) / 255
    mean = (np.rint(TABLE[numbers(TEXTS[0])] / step) * step).mean(axis=0)
    np.testing.assert_allclose(rows[0], mean / np.linalg.norm(mean), atol=step)


def test_pooling_by_the_first_token(tmp_path: Path, lines: Path) -> None:
    folder = write_text_encoder(tmp_path / "cls")
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "cls"})
    rows = embedded(folder, lines)
    np.testing.assert_allclose(rows, [TABLE[2] / np.linalg.norm(TABLE[2])] * 3, atol=0.02)
    np.testing.assert_allclose(
        embedded(folder, lines, pooling="mean"), [text_row(t) for t in TEXTS], atol=2e-6
    )


MODULES: dict[str, tuple[Any, str]] = {
    "a dense layer of states": (
        [{"type": "x.Dense", "path": "d"}, {"type": "x.Pooling", "path": "1_Pooling"}],
        "has Dense, Pooling; expected the order Transformer, Pooling, Dense, Normalize",
    ),
    "a dense layer that is missing": ([{"type": "x.Dense", "path": "d"}], "there is no such file"),
    "code of its own": ([{"type": "custom.Evil"}], "has a module Evil; expected Transformer"),
    "no list": ({"type": "x"}, "is no list of modules"),
    "a path outside": ([{"type": "x.Pooling", "path": "../.."}], "is not a path below the folder"),
    "other pooling": ([{"type": "x.Pooling", "path": "max"}], "pools otherwise than by the mean"),
}


def with_dense(folder: Path, activation: str = "Tanh", **arrays: np.ndarray) -> Path:
    """Put a Dense module between the pooling and the norm of an encoder's folder."""
    save_file(arrays, folder / "2_Dense.safetensors")
    place = folder / "2_Dense"
    place.mkdir(exist_ok=True)
    (folder / "2_Dense.safetensors").rename(place / "model.safetensors")
    function = f"torch.nn.modules.activation.{activation}"
    write_json(place / "config.json", {"activation_function": function})
    listed = json.loads((folder / "modules.json").read_text())
    dense = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    write_json(folder / "modules.json", [*listed[:2], dense, listed[2]])
    return folder


def test_a_dense_module_follows_the_pooling(tmp_path: Path, lines: Path) -> None:
    weight = np.random.default_rng(5).normal(size=(4, TABLE.shape[1])).astype(np.float32)
    bias = np.arange(4, dtype=np.float32) / 4
    folder = write_text_encoder(tmp_path / "dense")
    plain = folder / "modules.json"
    listed = json.loads(plain.read_text())
    write_json(plain, listed[:2])  # means, not at unit norm
    means = embedded(folder, lines).astype(np.float64)
    write_json(plain, listed)
    with_dense(folder, **{"linear.weight": weight, "linear.bias": bias})
    wanted = np.tanh(means @ weight.T + bias)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(embedded(folder, lines), wanted, atol=2e-6)
    told = json.loads((tmp_path / "rows.npy.provenance.json").read_text())
    assert "2_Dense/model.safetensors" in told["rows"]["text"]["encoder"]["files"]


WEIGHT = np.ones((4, TABLE.shape[1]), np.float32)
NOT_DENSE: dict[str, tuple[dict[str, Any], str]] = {
    "other layers": ({"linear.weight": WEIGHT, "more": WEIGHT}, "is no Dense module; expected"),
    "another width": (
        {"linear.weight": np.ones((4, 9), np.float32)},
        "gives rows of 5 numbers, and the Dense module after it takes 9; expected as many",
    ),
    "a vector": ({"linear.weight": WEIGHT[0]}, r"linear.weight has shape \[5\] and linear.bias"),
    "an activation": ({"linear.weight": WEIGHT, "activation": "GELU"}, 'function "torch.*GELU" is'),
}


@pytest.mark.parametrize("kind", NOT_DENSE)
def test_a_dense_module_that_does_not_fit_is_one_sentence(
    kind: str, tmp_path: Path, lines: Path
) -> None:
    given, said = NOT_DENSE[kind]
    arrays = {name: one for name, one in given.items() if name != "activation"}
    folder = with_dense(
        write_text_encoder(tmp_path / "e"), given.get("activation", "Tanh"), **arrays
    )
    with pytest.raises(CimError, match=said):
        embedded(folder, lines)


@pytest.mark.parametrize("kind", MODULES)
def test_a_step_that_is_not_run_is_refused(kind: str, tmp_path: Path, lines: Path) -> None:
    folder = write_text_encoder(tmp_path / "encoder")
    values, said = MODULES[kind]
    write_json(folder / "modules.json", values)
    write_json(folder / "max" / "config.json", {"pooling_mode_max_tokens": True})
    with pytest.raises(CimError, match=said):
        embedded(folder, lines)


def both_inputs(folder: Path) -> None:
    node = helper.make_node("ReduceMean", ["pixel_values"], ["row"], axes=[2, 3], keepdims=0)
    inputs = {
        "pixel_values": (TensorProto.FLOAT, ["n", 3, 4, 4]),
        "input_ids": (TensorProto.INT64, ["n", "l"]),
    }
    write_graph(folder / "model.onnx", [node], inputs, {"row": ["n", 3]}, {})


def batch_of_two(folder: Path) -> None:
    node = helper.make_node("Cast", ["input_ids"], ["row"], to=TensorProto.FLOAT)
    inputs = {"input_ids": (TensorProto.INT64, [2, "l"])}
    write_graph(folder / "model.onnx", [node], inputs, {"row": [2, "l"]}, {})


def two_outputs(folder: Path) -> None:
    nodes = [helper.make_node("Cast", ["input_ids"], [one], to=TensorProto.FLOAT) for one in "ab"]
    inputs = {"input_ids": (TensorProto.INT64, ["n", "l"])}
    write_graph(folder / "model.onnx", nodes, inputs, {one: ["n", "l"] for one in "ab"}, {})


def as_long_as_the_text(folder: Path) -> None:
    node = helper.make_node("Cast", ["input_ids"], ["row"], to=TensorProto.FLOAT)
    inputs = {"input_ids": (TensorProto.INT64, ["n", "l"])}
    write_graph(folder / "model.onnx", [node], inputs, {"row": ["n", "l"]}, {})


def one_number(folder: Path) -> None:
    node = helper.make_node("ReduceSum", ["input_ids"], ["sum"], keepdims=0)
    cast = helper.make_node("Cast", ["sum"], ["row"], to=TensorProto.FLOAT)
    inputs = {"input_ids": (TensorProto.INT64, ["n", "l"])}
    write_graph(folder / "model.onnx", [node, cast], inputs, {"row": []}, {})


def not_finite(folder: Path) -> None:
    write_text_encoder(folder, table=np.full_like(TABLE, np.nan))


def elsewhere(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    (table,) = model.graph.initializer
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="/etc/passwd")
    table.ClearField("raw_data")
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def small_table(folder: Path) -> None:
    write_text_encoder(folder, table=TABLE[:4])


ONNX: dict[str, tuple[Callable[[Path], None], str]] = {
    "both inputs": (both_inputs, "expected an encoder of text alone, which takes input_ids, att"),
    "two items": (batch_of_two, r"input_ids has shape \[2, 'l'\]; expected 2 axes, the first for"),
    "two outputs": (two_outputs, "gives a, b; expected one output, or text_embeds or"),
    "one number": (one_number, r"row is shape \[\] of float32 for one item; expected its row, or"),
    "widths": (as_long_as_the_text, "gives rows of 4 and of 6 numbers; expected equally many"),
    "not finite": (not_finite, r"not finite for .*lines\.txt: line 1; expected others"),
    "elsewhere": (elsewhere, "has weights in another file, which is not read; export the encoder"),
    "a small table": (
        small_table,
        r"does not run in ONNX Runtime \(.*\); export the encoder again",
    ),
    "none": (lambda folder: (folder / "model.onnx").unlink(), "holds no encoder; expected text_mo"),
}


@pytest.mark.parametrize("kind", ONNX)
def test_an_onnx_file_that_does_not_fit_is_one_sentence(
    kind: str, tmp_path: Path, lines: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_text_encoder(tmp_path / "encoder")
    change, said = ONNX[kind]
    change(folder)
    with pytest.raises(CimError, match=said):
        embedded(folder, lines)
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "rows.npy").exists()


def test_an_encoder_of_texts_is_none_of_images(tmp_path: Path) -> None:
    folder = write_text_encoder(tmp_path / "encoder")
    with pytest.raises(CimError, match="expected an encoder of image alone, which takes pixel_val"):
        open_tower(folder, "image")


def bert() -> PretrainedConfig:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=MOST,
    )  # fmt: skip


SIDES: dict[str, dict[str, int]] = {
    "text_config": {
        "vocab_size": len(WORDS), "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": MOST,
        "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "projection_size": 16,
    },
    "vision_config": {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": SIDE, "patch_size": 4,
    },
}  # fmt: skip


def clip() -> PretrainedConfig:
    from transformers import CLIPConfig

    return CLIPConfig(projection_dim=10, **SIDES)


def siglip() -> PretrainedConfig:
    from transformers import SiglipConfig

    return SiglipConfig(**SIDES)


def saved(folder: Path, config: PretrainedConfig) -> PreTrainedModel:
    """A model of random weights, saved as others do, with tokenizer and image processor."""
    import torch
    from transformers import AutoModel

    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    model.save_pretrained(folder)
    write_tokenizer(folder)
    write_json(folder / "preprocessor_config.json", IMAGES)
    return model


def features(found: Any) -> np.ndarray:
    """Features as transformers gives them, in this release or that."""
    tensor = getattr(found, "pooler_output", found)
    return np.asarray(tensor.detach().numpy()[0])


def test_a_folder_of_transformers_gives_the_states_that_transformers_gives(
    tmp_path: Path, lines: Path
) -> None:
    import torch

    model = saved(tmp_path / "bert", bert())
    rows = embedded(tmp_path / "bert", lines, pooling="mean")
    with torch.no_grad():
        expected = [
            model(torch.tensor([numbers(text)])).last_hidden_state[0].mean(0).numpy()
            for text in TEXTS
        ]
    np.testing.assert_allclose(rows, expected, atol=1e-6)


@pytest.mark.thorough("the models of transformers, one by one", quick=("clip",))
@pytest.mark.parametrize("config", [clip, siglip])
def test_a_model_of_texts_and_images_gives_its_features_of_both(
    config: Callable[[], PretrainedConfig], tmp_path: Path, lines: Path
) -> None:
    import torch

    model: Any = saved(tmp_path / "both", config())
    write_image(tmp_path / "images" / "a.png", (200, 30, 90), (SIDE, SIDE))
    texts, images = (embedded(tmp_path / "both", one) for one in (lines, tmp_path / "images"))
    lengths = MOST if config is siglip else 0
    pixels = (np.array([200, 30, 90]) / 255 - IMAGES["image_mean"]) / IMAGES["image_std"]
    whole = np.broadcast_to(pixels[:, None, None], (1, 3, SIDE, SIDE)).astype(np.float32)
    with torch.no_grad():
        expected = [
            features(model.get_text_features(torch.tensor([one + [0] * (lengths - len(one))])))
            for one in map(numbers, TEXTS)
        ]
        seen = features(model.get_image_features(torch.tensor(whole)))
    np.testing.assert_allclose(texts, expected, atol=1e-6)
    np.testing.assert_allclose(images, [seen], atol=1e-5)


def changed_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    write_json(file, json.loads(file.read_text()) | values)


def without_a_weight(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def code_of_its_own(folder: Path) -> None:
    changed_config(
        folder, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"}
    )
    (folder / "evil.py").write_text("raise SystemExit('run')")


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "a missing weight": (without_a_weight, r"has no encoder\.layer\.1\.output\.dense\.weight; exp"),
    "code of its own": (code_of_its_own, "is no encoder that transformers reads"),
    "many layers": (lambda f: changed_config(f, num_hidden_layers=10**9), "expected at most 256"),
    "a huge vocabulary": (
        lambda f: changed_config(f, vocab_size=10**12), "more than the file holds"
    ),
    "no model": (lambda f: (f / "model.safetensors").write_bytes(b"\1"), "is no encoder that tran"),
}  # fmt: skip


@pytest.mark.thorough("each fault of a folder", quick=("a missing weight",))
@pytest.mark.parametrize("kind", WRONG)
def test_a_folder_of_transformers_that_is_wrong_is_one_sentence(
    kind: str, tmp_path: Path, lines: Path
) -> None:
    saved(tmp_path / "bert", bert())
    change, said = WRONG[kind]
    change(tmp_path / "bert")
    with pytest.raises(CimError, match=said) as caught:
        embedded(tmp_path / "bert", lines, pooling="mean")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "rows.npy").exists()


def test_a_model_of_texts_alone_takes_no_images(tmp_path: Path) -> None:
    saved(tmp_path / "bert", bert())
    with pytest.raises(CimError, match="is no encoder of images and texts, such as CLIP or SigLIP"):
        open_tower(tmp_path / "bert", "image")


def test_of_a_folder_with_both_forms_onnx_is_taken(tmp_path: Path) -> None:
    folder = write_image_encoder(tmp_path / "encoder")
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert open_tower(folder, "image").file == folder / "model.onnx"
