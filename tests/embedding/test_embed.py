from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_encoders import (
    TABLE,
    WIDTH,
    image_row,
    text_row,
    write_image,
    write_image_encoder,
    write_text_encoder,
)

import cimtool
from cimtool import cli
from cimtool.demo.encoder import Encoder, find_encoder
from cimtool.embedding import embed as module
from cimtool.embedding.tokens import TextTokens, Tokens
from cimtool.loading.embeddings import read_embeddings

ROOT = Path(__file__).resolve().parents[2]
CAPTIONS = ("a dog runs", "a cat", "a red dog sleeps", "dog", "a blue cat runs", "cat sleeps")
COLOURS = {"red.png": (255, 0, 0), "sub/blue.bmp": (0, 0, 200), "grey.png": (90, 90, 90)}
OF = ("red.png", "red.png", "sub/blue.bmp", "grey.png", "sub/blue.bmp", "red.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An encoder of both modalities, a table of captions and images, and the images."""
    write_text_encoder(tmp_path / "both", name="text_model.onnx")
    write_image_encoder(tmp_path / "both", name="onnx/vision_model.onnx")
    for name, colour in COLOURS.items():
        write_image(tmp_path / "images" / name, colour)
    rows = [f'{file},"{text}"' for file, text in zip(OF, CAPTIONS, strict=True)]
    (tmp_path / "images" / "captions.csv").write_text("\n".join(["file,caption", *rows, ""]))
    (tmp_path / "lines.txt").write_text("\n".join(CAPTIONS))
    return tmp_path


def run(folder: Path, items: str, *options: str, encoder: str = "both") -> int:
    return cli.run(["embed", str(folder / items), "--encoder", str(folder / encoder), *options])


def left_beside(folder: Path) -> set[str]:
    """The files in a folder, beside those of the fixture."""
    known = {"both", "images", "lines.txt"}
    return {one.name for one in folder.iterdir()} - known


def test_texts_and_images_of_a_table_become_one_file_that_other_commands_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = folder / "data.npz"
    columns = ("--text", "caption", "--image", "file")
    assert run(folder, "images/captions.csv", *columns, "-o", str(output)) == 0
    said = capsys.readouterr().out
    assert "6 texts and 3 images" in said
    assert f"wrote {output}, {output.name}.provenance.json" in said
    found = read_embeddings(output)
    assert found.unread == ()
    np.testing.assert_allclose(found.text, [text_row(one) for one in CAPTIONS], atol=2e-6)
    np.testing.assert_allclose(found.video, [image_row(c) for c in COLOURS.values()], atol=2e-5)
    images = list(COLOURS)
    order = [list(dict.fromkeys(OF)).index(one) for one in OF]
    assert found.right.tolist() == order
    assert found.ids("video").tolist() == sorted(images, key=OF.index)
    told = json.loads(Path(f"{output}.provenance.json").read_text())
    assert told["digest"] == found.digest
    assert told["source"] == "captions.csv"
    assert told["rows"]["text"]["encoder"]["encoder"] == "both"
    assert set(told["rows"]["image"]["encoder"]["files"]) == {
        *("onnx/vision_model.onnx", "preprocessor_config.json")
    }
    assert left_beside(folder) == {"data.npz", "data.npz.provenance.json"}


@pytest.mark.parametrize("form", [".tsv", ".jsonl", ".txt"])
def test_other_forms_of_a_table_give_the_same_rows(form: str, folder: Path) -> None:
    columns = () if form == ".txt" else ("--text", "caption")
    file = folder / f"items{form}"
    lines = {
        ".tsv": ["caption\tfile", *(f"{text}\tx" for text in CAPTIONS)],
        ".jsonl": [json.dumps({"n": 1, "caption": text}) for text in CAPTIONS],
        ".txt": list(CAPTIONS),
    }[form]
    file.write_bytes("\r\n".join([*lines, ""]).encode("utf-8-sig"))
    assert run(folder, file.name, *columns, "-o", str(folder / "text.npy")) == 0
    expected = [text_row(one) for one in CAPTIONS]
    np.testing.assert_allclose(np.load(folder / "text.npy"), expected, atol=2e-6)


def test_a_folder_of_images_gives_rows_in_the_order_of_their_names(folder: Path) -> None:
    made = cimtool.embed(folder / "images", encoder=str(folder / "both"), output=folder / "i.npz")
    found = np.load(made.file)
    assert found["image_ids"].tolist() == sorted(COLOURS)
    expected = [image_row(COLOURS[name]) for name in sorted(COLOURS)]
    np.testing.assert_allclose(found["image"], expected, atol=2e-5)


def test_a_column_of_images_alone_has_a_row_for_each_line(folder: Path) -> None:
    output = folder / "images.npz"
    assert run(folder, "images/captions.csv", "--image", "file", "-o", str(output)) == 0
    found = np.load(output)
    np.testing.assert_allclose(found["image"], [image_row(COLOURS[f]) for f in OF], atol=2e-5)
    assert set(found) == {"image"}  # ids that stand twice would be none


def test_another_encoder_of_the_images(folder: Path) -> None:
    write_image_encoder(folder / "images-only")
    (folder / "both" / "onnx" / "vision_model.onnx").unlink()
    options = ("--text", "caption", "--image", "file", "-o", str(folder / "data.npz"))
    other = ("--image-encoder", str(folder / "images-only"))
    assert run(folder, "images/captions.csv", *options, *other) == 0
    told = json.loads((folder / "data.npz.provenance.json").read_text())
    assert told["rows"]["image"]["encoder"]["encoder"] == "images-only"


def test_the_bytes_depend_neither_on_the_batch_nor_on_the_threads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The encoder rounds by the range of all numbers of a run: a neighbour would change a row.
    (folder / "more.txt").write_text("\n".join([*CAPTIONS, "a " * 9, "blue"] * 3))
    made = []
    for batch, threads in (("1", "1"), ("5", "2"), ("256", "2")):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        output = folder / batch / "text.npy"
        assert run(folder, "more.txt", "--batch", batch, "-o", str(output)) == 0
        files = (output, output.with_name("text.npy.provenance.json"))
        made.append([file.read_bytes() for file in files])
    assert made[0] == made[1] == made[2]


def test_texts_that_are_cut_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, plain = list[str](), Tokens.of

    def of(self: Tokens, text: str) -> TextTokens:
        texts.append(text)
        return plain(self, text)

    monkeypatch.setattr(Tokens, "of", of)
    (folder / "long.txt").write_text("dog " * 30 + "\ncat\n")
    assert run(folder, "long.txt", "-o", str(folder / "text.npy")) == 0
    assert sorted(texts) == ["cat", "dog " * 30]  # each once
    assert "1 of 2 texts were cut at 12 tokens." in capsys.readouterr().out
    np.testing.assert_allclose(np.load(folder / "text.npy")[0], text_row("dog " * 30), atol=2e-6)


KILLED = """
import os, signal, sys
from cimtool.embedding import embed as module
from cimtool.embedding.tokens import TextTokens, Tokens
write, left = module.replace_files, [2]


def killed(*arguments):
    write(*arguments)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)


module.replace_files = killed
module.embed(sys.argv[1], encoder=sys.argv[2], output=sys.argv[3], batch=2)
"""


def encoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that are encoded from now on."""
    rows: list[int] = []
    plain = module.TextEncoder.row

    def row(self: module.TextEncoder, items: Any, number: int, tokens: Any) -> np.ndarray:
        rows.append(number)
        return plain(self, items, number, tokens)

    monkeypatch.setattr(module.TextEncoder, "row", row)
    return rows


@pytest.fixture
def killed(folder: Path) -> Path:
    """The output of a run that was killed after the second part of two rows."""
    output = folder / "killed" / "text.npy"
    given = (folder / "lines.txt", folder / "both", output)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, given)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert {one.name for one in output.parent.iterdir()} == {".text.npy.parts"}
    return output


def test_a_run_that_was_killed_goes_on_after_the_rows_that_it_saved(
    folder: Path, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = encoded_rows(monkeypatch)
    assert run(folder, "lines.txt", "--batch", "2", "-o", str(killed)) == 0
    assert rows == [4, 5]
    assert run(folder, "lines.txt", "-o", str(folder / "text.npy")) == 0
    assert killed.read_bytes() == (folder / "text.npy").read_bytes()
    assert {one.name for one in killed.parent.iterdir()} == {
        "text.npy", "text.npy.provenance.json"
    }  # fmt: skip


@pytest.mark.thorough("one difference stands for the others", quick=("text",))
@pytest.mark.parametrize("change", ["encoder", "text", "tokenizer"])
def test_saved_rows_of_something_else_are_not_taken(
    change: str, folder: Path, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = list(CAPTIONS)
    if change == "encoder":
        write_text_encoder(folder / "both", table=-TABLE, name="text_model.onnx")
    elif change == "text":
        texts[1] = "a dog"
        (folder / "lines.txt").write_text("\n".join(texts))
    else:
        file = folder / "both" / "tokenizer.json"
        file.write_text(file.read_text() + " ")
    rows = encoded_rows(monkeypatch)
    assert run(folder, "lines.txt", "--batch", "2", "-o", str(killed)) == 0
    assert rows == ([0, 1, 4, 5] if change == "text" else [0, 1, 2, 3, 4, 5])
    table = -TABLE if change == "encoder" else TABLE
    np.testing.assert_allclose(np.load(killed), [text_row(t, table) for t in texts], atol=2e-6)


def test_saved_rows_that_were_damaged_are_made_anew(
    folder: Path, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted((killed.parent / ".text.npy.parts").glob("*.npy"))
    first.write_bytes(b"nonsense")
    np.save(second, np.full((2, WIDTH), np.nan, np.float32))
    rows = encoded_rows(monkeypatch)
    assert run(folder, "lines.txt", "--batch", "2", "-o", str(killed)) == 0
    assert rows == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(np.load(killed), [text_row(t) for t in CAPTIONS], atol=2e-6)


def test_another_encoder_into_the_same_output_replaces_the_rows(folder: Path) -> None:
    write_text_encoder(folder / "other", table=2 * TABLE[::-1])
    output = folder / "text.npy"
    for encoder, table in (("both", TABLE), ("other", 2 * TABLE[::-1])):
        assert run(folder, "lines.txt", "-o", str(output), encoder=encoder) == 0
        expected = [text_row(t, table) for t in CAPTIONS]
        np.testing.assert_allclose(np.load(output), expected, atol=2e-6)
        told = json.loads((folder / "text.npy.provenance.json").read_text())
        assert told["rows"]["text"]["encoder"]["encoder"] == encoder


TEXT = ("--text", "caption")
WRONG = {
    "no tokenizer": (
        TEXT,
        "both: has no tokenizer.json, so texts cannot be encoded; expected it as transformers "
        "writes it: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)",
    ),
    "a column that is missing": (
        ("--text", "capton"),
        'line 1: has no column capton; it has file, caption; did you mean "caption"?',
    ),
    "a blank cell": (TEXT, "captions.csv: line 3: caption is blank; expected a text"),
    "an image that is missing": (("--image", "file"), "there is no such file"),
    "an image that is none": (("--image", "file"), "grey.png: is no image; expected JPEG, PNG"),
    "an image that is cut off": (("--image", "file"), "grey.png: cannot be decoded as an image"),
    "a name on a hub": (
        (*TEXT, "--image-encoder", "hf://openai/clip", "--image", "file"),
        "--image-encoder hf://openai/clip is no folder here, and nothing is downloaded; expected "
        "a folder, such as `hf download openai/clip --local-dir clip` makes",
    ),
    "a name as open_clip takes it": (
        (*TEXT, "--image-encoder", "hf-hub:openai/clip", "--image", "file"),
        "such as `hf download openai/clip --local-dir clip` makes",
    ),
    "pickled weights": (TEXT, "pytorch_model.bin: is never loaded, as a pickled file can run code"),
    "no column": ((), "captions.csv: is a table; expected --text, --image or both, columns"),
    "an array for two": (
        (*TEXT, "--image", "file"),
        "--output {output}: holds one array; expected .npz for texts and images",
    ),
    "an encoder of no images": (
        (*TEXT, "--image-encoder", "x"),
        "--image-encoder is of images; expected it with --image",
    ),
    "pooling of images": (
        ("--image", "file", "--pooling", "mean"),
        "--pooling is of texts; expected it with --text",
    ),
    "no processor": (("--image", "file"), "both: has no preprocessor_config.json"),
    "no pooling": (TEXT, "expected --pooling mean or cls"),
}


def spoil(kind: str, folder: Path) -> None:
    encoder, images = folder / "both", folder / "images"
    if kind == "no tokenizer":
        (encoder / "tokenizer.json").unlink()
    elif kind == "a blank cell":
        lines = (images / "captions.csv").read_text().split("\n")
        lines[2] = "red.png, "
        (images / "captions.csv").write_text("\n".join(lines))
    elif kind == "an image that is missing":
        (images / "grey.png").unlink()
    elif kind == "an image that is none":
        (images / "grey.png").write_text("a picture")
    elif kind == "an image that is cut off":
        (images / "grey.png").write_bytes((images / "grey.png").read_bytes()[:50])
    elif kind == "pickled weights":
        (encoder / "text_model.onnx").rename(encoder / "pytorch_model.bin")
    elif kind == "no processor":
        (encoder / "preprocessor_config.json").unlink()
    elif kind == "no pooling":
        (encoder / "modules.json").unlink()


@pytest.mark.parametrize("kind", WRONG)
def test_a_mistake_is_one_sentence_and_leaves_nothing_under_the_name(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(kind, folder)
    options, said = WRONG[kind]
    output = folder / ("rows.npy" if kind == "an array for two" else "rows.npz")
    assert run(folder, "images/captions.csv", *options, "-o", str(output)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cimtool: error: ")
    assert said.format(output=output) in line
    assert left_beside(folder) == set()


def test_an_image_that_is_repaired_costs_its_part_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = folder / "images" / "sub" / "blue.bmp"
    kept = image.read_bytes()
    image.write_bytes(kept[:60])
    output = folder / "image.npy"
    options = ("--batch", "1", "-o", str(output))
    assert run(folder, "images", *options) == 2
    assert left_beside(folder) == {".image.npy.parts"}
    image.write_bytes(kept)
    decoded: list[str] = []
    plain = module.ImageEncoder.row

    def row(
        self: module.ImageEncoder, items: module.EncoderItems, number: int, tokens: None
    ) -> np.ndarray:
        decoded.append(items.values[number])
        return plain(self, items, number, tokens)

    monkeypatch.setattr(module.ImageEncoder, "row", row)
    assert run(folder, "images", *options) == 0
    assert decoded == ["sub/blue.bmp"]
    assert left_beside(folder) == {"image.npy", "image.npy.provenance.json"}


def test_the_encoder_of_the_demo_gives_the_rows_of_the_demo(tmp_path: Path) -> None:
    """The demo pads batches, whose rows differ in the last bits: each text is one of its own."""
    installed = find_encoder()
    if installed is None:
        pytest.skip("needs the wheels of demo-requirements.txt")
    encoder = tmp_path / "minilm"
    with zipfile.ZipFile(installed.vocabulary) as archive:
        for name in archive.namelist():
            if name[-5:] == ".json":
                archive.extract(name, encoder)
    (encoder / "model.onnx").symlink_to(installed.weights)
    texts = ["Sort a list in place.", "Gradient of a loss, by autograd: naïve façade", "x" * 120]
    texts += ["How many words fit " * 60]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    made = cimtool.embed(tmp_path / "lines.txt", encoder=str(encoder), output=tmp_path / "t.npy")
    demo = Encoder(installed)
    expected = np.concatenate([demo.rows([text], 256) for text in texts])
    np.testing.assert_allclose(np.load(made.file), expected, atol=1e-6)
    assert made.provenance["rows"]["text"]["cut"] == 0
