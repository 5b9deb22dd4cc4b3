"""Projectors of tokens: any layout of single rows, applied to each token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.loading.model import Model
from cimtool.loading.source import ModelSource

WIDTH, D = 6, 4
WEIGHT = np.random.default_rng(0).normal(size=(D, WIDTH)).astype(np.float32)


def source(folder: Path) -> ModelSource:
    """ColBERT's layer without its encoder, which both modalities share."""
    save_file({"linear.weight": WEIGHT}, folder / "colbert.safetensors")
    layer_map = folder / "map.toml"
    layer_map.write_text('[text]\nprefix = "linear"\n[video]\nprefix = "linear"\n')
    return ModelSource(folder / "colbert.safetensors", head="maxsim", layer_map=layer_map)


def loaded(folder: Path, text: int, video: int) -> Model:
    rng = np.random.default_rng(1)
    rows = {"text": rng.normal(size=(5, text)), "video": rng.normal(size=(5, video))}
    return source(folder).for_rows(rows).load()


def test_rows_of_data_say_how_many_tokens_an_item_has(tmp_path: Path) -> None:
    model = loaded(tmp_path, 3 * WIDTH, 2 * WIDTH)
    assert (model.head.tokens, model.dimension) == ((3, 2), D)
    assert (model.text_width, model.video_width) == (3 * WIDTH, 2 * WIDTH)
    x = np.random.default_rng(2).normal(size=(7, 3, WIDTH))
    mu = model.towers[0].run({"x": x.reshape(7, -1)})["mu"]
    np.testing.assert_allclose(mu, x.reshape(-1, WIDTH) @ WEIGHT.T, rtol=1e-5, atol=1e-6)


def test_one_token_is_a_cosine(tmp_path: Path) -> None:
    assert loaded(tmp_path, WIDTH, WIDTH).head.tokens == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (3 * WIDTH + 1, "takes rows of 6 a token; the data have rows of 19 numbers"),
        (33 * WIDTH, "takes 6 numbers a token, so that a row has 33 tokens; expected at most 32"),
    ],
)
def test_rows_that_are_no_tokens_are_one_sentence(tmp_path: Path, text: int, said: str) -> None:
    with pytest.raises(CimError, match=f"^{tmp_path}/colbert.safetensors: .*{said}"):
        loaded(tmp_path, text, 2 * WIDTH)


def test_without_data_the_number_of_tokens_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="for any number of tokens; expected data with such rows"):
        source(tmp_path).load()


def test_a_layout_that_normalises_rows_is_refused(tmp_path: Path) -> None:
    sides = {f"{m}_proj.logvar": np.ones((1, WIDTH), np.float32) for m in ("text", "video")}
    tensors = {f"{name}.weight": one for name, one in sides.items()}
    tensors |= {f"{name}.bias": one[0, :1] for name, one in sides.items()}
    save_file(tensors, tmp_path / "frozen.safetensors")
    rows = {"text": np.ones((5, WIDTH)), "video": np.ones((5, WIDTH))}
    with pytest.raises(CimError, match=r'layout "frozen" takes rows of unit norm; expected a proj'):
        ModelSource(tmp_path / "frozen.safetensors", head="maxsim").for_rows(rows).load()


def tokens(text: tuple[int, ...], video: tuple[int, ...] = (2, WIDTH)) -> dict[str, np.ndarray]:
    """Rows of 8 items of a modality, tokens and numbers a token each."""
    rng = np.random.default_rng(3)
    return {
        name: rng.normal(size=(8, *shape)).astype(np.float32)
        for name, shape in (("text", text), ("video", video))
    }


def ragged() -> dict[str, np.ndarray]:
    """Texts of 3 and of 2 tokens."""
    rows = tokens((3, WIDTH))
    texts = np.empty(8, object)
    texts[:] = [one[: 3 - i % 2] for i, one in enumerate(rows["text"])]
    return rows | {"text": texts}


def compile_arguments(folder: Path, rows: dict[str, np.ndarray], output: str) -> list[str]:
    model = source(folder)
    np.savez(folder / "rows.npz", **rows)
    options = ["--map", str(model.layer_map), "--head", "maxsim", "--target", "ideal"]
    files = ["--calibration", str(folder / "rows.npz"), "-o", str(folder / output)]
    return ["compile", "--projectors", str(model.projectors), *options, *files]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            ragged(),
            "rows.npz: text: holds Python objects, which are never loaded; expected numbers",
        ),
        (tokens((33, WIDTH)), "so that a row has 33 tokens; expected at most 32"),
        (tokens((3, WIDTH + 1)), "takes rows of 6 a token; the data have rows of 21 numbers"),
        (tokens((WIDTH, 3)), "rows.npz: text has 6 tokens for each item; colbert expects 3 tokens"),
        (tokens((0, WIDTH)), "text has shape [8, 0, 6]; expected [rows, width], or [rows, tokens,"),
        (tokens((1, 3, WIDTH)), "text has shape [8, 1, 3, 6]; expected [rows, width], or [rows, t"),
    ],
)
def test_the_command_refuses_rows_that_are_no_equal_tokens(
    rows: dict[str, np.ndarray], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(compile_arguments(tmp_path, rows, "bundle")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "bundle").exists()


def test_commands_refuse_data_with_another_number_of_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrated = tokens((3, WIDTH), (4, WIDTH))
    assert cli.run(compile_arguments(tmp_path, calibrated, "bundle")) == 0
    bundle, gallery = str(tmp_path / "bundle"), str(tmp_path / "gallery")
    assert cli.run(["encode", bundle, "--gallery", str(tmp_path / "rows.npz"), "-o", gallery]) == 0
    texts, videos = str(tmp_path / "texts.npz"), str(tmp_path / "videos.npz")
    np.savez(texts, **tokens((4, WIDTH), (4, WIDTH)))
    np.savez(videos, **tokens((3, WIDTH), (6, WIDTH)))
    output = tmp_path / "output"
    searched = ["--gallery", gallery, "--queries", texts, "--top", "3"]
    capsys.readouterr()
    for given, said in (
        (["verify", bundle, "--data", texts, "--report"], "text has 4 tokens"),
        (["verify", bundle, "--data", videos, "--report"], "video has 6 tokens"),
        (["simulate", bundle, "--inputs", texts, "-o"], "text has 4 tokens"),
        (["evaluate", bundle, "--data", videos, "-o"], "video has 6 tokens"),
        (["encode", bundle, "--gallery", videos, "-o"], "video has 6 tokens"),
        (["search", bundle, *searched, "-o"], "text has 4 tokens"),
    ):
        assert cli.run([*given, str(output.with_suffix(".npz"))]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{said} for each item; colbert expects {3 if 'text' in said else 4} tokens" in line
        assert not list(tmp_path.glob("output*"))


def test_modules_and_onnx_files_are_refused() -> None:
    pair = torch.nn.Linear(WIDTH, D), torch.nn.Linear(WIDTH, D)
    rows = {"text": np.ones((5, WIDTH)), "video": np.ones((5, WIDTH))}
    with pytest.raises(CimError, match='head is "maxsim", which applies projectors to each token'):
        ModelSource(pair, head="maxsim").for_rows(rows).load()
