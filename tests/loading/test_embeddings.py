from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cimtool.base.errors import CimError
from cimtool.ir.heads.maxsim import MaxSim
from cimtool.ir.heads.points import Cosine
from cimtool.loading.embeddings import (
    EmbeddingsLike,
    checked_rows,
    embeddings_of,
    file_of,
    read_data,
    read_embeddings,
    read_modality,
    read_rows,
    require_rivals,
    require_vectors,
    unit_rows,
    with_unit_rows,
)
from cimtool.loading.model import ModelCard

TEXT = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
VIDEO = np.arange(8, dtype=np.float32).reshape(4, 2)
DATA = Path(__file__).parents[3] / "shared" / "data"


def test_all_forms_give_the_same_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", text=TEXT, image=VIDEO.astype(np.float64))
    np.save(tmp_path / "t.npy", TEXT)
    np.save(tmp_path / "v.npy", VIDEO)
    torch.save(torch.from_numpy(TEXT), tmp_path / "t.pt")
    torch.save(torch.from_numpy(VIDEO), tmp_path / "v.pt")
    torch.save(
        {"text": torch.from_numpy(TEXT), "video": torch.from_numpy(VIDEO)}, tmp_path / "e.pt"
    )
    forms = [
        read_embeddings(tmp_path / "e.npz"),
        read_embeddings(tmp_path / "e.pt"),
        read_embeddings(tmp_path / "t.npy", tmp_path / "v.npy"),
        read_embeddings(tmp_path / "t.pt", tmp_path / "v.pt"),
    ]
    for form in forms:
        assert form.text.dtype == form.video.dtype == np.float32
        np.testing.assert_array_equal(form.text, TEXT)
        np.testing.assert_array_equal(form.video, VIDEO)
        np.testing.assert_array_equal(form.text_to_video, np.arange(4))
        assert form.labels is None


def test_many_texts_to_one_image_with_named_classes() -> None:
    found = embeddings_of(
        {
            "text": TEXT,
            "image": VIDEO[:2],
            "text_to_image": np.array([0, 0, 1, 1], np.int32),
            "label": np.array(["b", "a", "b", "c"]),
        }
    )
    assert found.text_to_video.tolist() == [0, 0, 1, 1]
    assert found.text_to_video.dtype == np.int64
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.bool_, np.float32])
def test_a_text_may_have_several_classes(kind: type) -> None:
    sets = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 1]])
    found = embeddings_of({"text": TEXT, "video": VIDEO, "labels": sets.astype(kind)})
    assert found.labels is not None
    assert found.labels.dtype == bool
    np.testing.assert_array_equal(found.labels, sets)
    alone = embeddings_of({"rows": TEXT, "labels": sets.astype(kind)})
    right = [(0, 3), (1, 3), (3, 0), (3, 1)]
    assert [*map(tuple, np.argwhere(alone.truth.right_pairs()))] == right


def changed(row: int, value: float) -> np.ndarray:
    rows = TEXT.astype(np.float64)
    rows[row, 1] = value
    return rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": changed(2, np.nan)}, r"f\.npz: row 2 of text holds nan"),
        ({"text": changed(3, -np.inf)}, "row 3 of text holds -inf"),
        ({"text": changed(1, 1e300)}, r"row 1 of text holds 1e\+300; expected finite float32"),
        ({"text": TEXT[:0]}, "text has no rows"),
        ({"text": TEXT[0]}, r"text has shape \[3\]; expected two dimensions"),
        ({"text": TEXT[:, :0]}, r"text has shape \[4, 0\]"),
        ({"text": TEXT.astype(np.complex64)}, "text is of complex64; expected an array of real"),
        ({"text": np.array(["a dog", "a cat"])}, "text holds texts; expected their embeddings"),
        ({"image": VIDEO}, "holds video and image; expected one"),
        ({"text_to_video": np.array([0, 1, 4, 0])}, "row 2 of text_to_video is 4; .*0 to 3"),
        ({"text_to_video": np.array([0, -1, 4, 0])}, "row 1 of text_to_video is -1"),
        ({"text_to_video": np.arange(3)}, r"text_to_video has shape \[3\]; expected \[4\]"),
        ({"text_to_video": np.zeros(4)}, "text_to_video is of float64; expected integers"),
        ({"labels": np.zeros((4, 2), int)}, r"labels has shape \[4, 2\] and no 1; expected 1 for"),
        (
            {"labels": np.eye(4)[:, :1]},
            r"labels has shape \[4, 1\]; expected \[4\], a class per text",
        ),
        (
            {"labels": np.eye(3)},
            r"shape \[3, 3\]; expected \[4\], a class per text, or \[4, C\] of 0",
        ),
        ({"labels": 2 * np.eye(4, dtype=int)}, "row 0 of labels holds 2; expected 0 or 1 for each"),
        (
            {"labels": np.eye(4) * np.nan},
            "row 0 of labels holds nan; expected 0 or 1 for each of 4",
        ),
        ({"labels": np.arange(5)}, r"labels has shape \[5\]; expected \[4\], one per text"),
    ],
)
def test_mistakes_name_file_key_and_row(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "f.npz"
    np.savez(path, **({"text": TEXT, "video": VIDEO} | change))
    with pytest.raises(CimError, match=message):
        read_embeddings(path)


def test_missing_arrays_name_what_is_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", texts=TEXT, video=VIDEO)
    with pytest.raises(CimError, match=r'text is missing; it holds texts, video; .*mean "texts"'):
        read_embeddings(tmp_path / "f.npz")
    np.savez(tmp_path / "f.npz", text=TEXT)
    with pytest.raises(CimError, match=r"video \(or image\) is missing"):
        read_embeddings(tmp_path / "f.npz")
    np.save(tmp_path / "t.npy", TEXT)
    with pytest.raises(CimError, match="expected a pair"):
        read_embeddings(tmp_path / "t.npy")
    torch.save(torch.from_numpy(TEXT), tmp_path / "t.pt")
    with pytest.raises(CimError, match="expected a pair"):
        read_embeddings(tmp_path / "t.pt")
    torch.save([torch.from_numpy(TEXT)] * 2, tmp_path / "t.pt")
    with pytest.raises(CimError, match="holds a list; expected a pair of files, or a dictionary"):
        read_embeddings(tmp_path / "t.pt")


def test_a_header_that_promises_too_much_is_refused_before_allocating(tmp_path: Path) -> None:
    member, header = io.BytesIO(), {"descr": "<f4", "fortran_order": False, "shape": (10**12, 3)}
    np.lib.format.write_array_header_1_0(member, header)
    member.write(bytes(100))
    path = tmp_path / "f.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("text.npy", member.getvalue())
    with pytest.raises(CimError, match=r"f\.npz: text: its header says 12000000000000 bytes"):
        read_embeddings(path)
    (tmp_path / "t.npy").write_bytes(member.getvalue())
    with pytest.raises(CimError, match="its header says"):
        read_embeddings(tmp_path / "t.npy", tmp_path / "t.npy")


@pytest.mark.parametrize("compressed", [True, False])
def test_every_truncation_is_one_sentence(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "f.npz"
    (np.savez_compressed if compressed else np.savez)(path, text=TEXT, video=VIDEO)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(CimError, match=r"f\.npz: is truncated, corrupt"):
            read_embeddings(path)


def test_a_flipped_byte_may_be_harmless_but_is_never_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    np.savez_compressed(path, text=TEXT, video=VIDEO)
    whole, refused = path.read_bytes(), 0
    for position in range(0, len(whole), 3):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            read_embeddings(path)
        except CimError:
            refused += 1
    assert refused > len(whole) / 6


@given(arrays(np.float32, (5, 3), elements=st.floats(0.125, 8, width=32)), st.floats(-9e-4, 9e-4))
def test_unit_rows(rows: np.ndarray, off: float) -> None:
    once = unit_rows(rows)
    assert once.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(once.astype(float), axis=1), 1, atol=1e-3)
    exact = once / np.linalg.norm(once.astype(float), axis=1, keepdims=True)
    near = (exact * (1 + off)).astype(np.float32)
    np.testing.assert_array_equal(unit_rows(near), near)


def test_rows_off_unit_norm_are_rounded_from_float64_and_zeros_refused() -> None:
    rows = np.array([[3, 4], [1, 0]], np.float32)
    np.testing.assert_array_equal(unit_rows(rows), np.array([[0.6, 0.8], [1, 0]], np.float32))
    found = embeddings_of({"text": TEXT, "video": VIDEO}, "f.npz")
    assert np.allclose(np.linalg.norm(with_unit_rows(found).text, axis=1), 1)
    rows[1] = 0
    with pytest.raises(CimError, match="e: row 1 is all zeros"):
        unit_rows(rows, "e")


def test_one_modality_is_checked_alike() -> None:
    rows = np.array([[3, 4], [0, 2]], np.float64)
    np.testing.assert_array_equal(checked_rows(rows, "text", False), rows.astype(np.float32))
    np.testing.assert_array_equal(checked_rows(rows, "text", True), unit_rows(rows.astype("f4")))
    rows[1, 1] = np.nan
    with pytest.raises(CimError, match="row 1 of text holds nan"):
        checked_rows(rows, "text", False)


@pytest.mark.skipif(not DATA.is_dir(), reason="the data folder is not here")
def test_real_data() -> None:
    found = read_embeddings(DATA / "flickr8k_clip_vitb32_100img_500cap.npz")
    assert found.text.shape == (500, 512)
    assert found.video.shape == (100, 512)
    assert len(np.unique(found.text_to_video)) == 100
    assert unit_rows(found.text) is found.text


def test_rows_without_pairs_are_read_and_only_their_truth_is_refused() -> None:
    found = embeddings_of({"text": TEXT, "video": VIDEO[:3]}, "f.npz")
    assert found.text_to_video is None
    with pytest.raises(CimError, match="4 texts and 3 videos, and text_to_video is missing"):
        _ = found.right


@pytest.mark.parametrize(("texts", "videos", "key"), [(1, 2, "text"), (2, 1, "video")])
def test_one_row_ranks_nothing(texts: int, videos: int, key: str) -> None:
    require_rivals(embeddings_of({"text": TEXT[:2], "video": VIDEO[:2]}))
    alone = embeddings_of({"text": TEXT[:texts], "video": VIDEO[:videos]}, "f.npz")
    with pytest.raises(CimError, match=rf"f\.npz: {key} has 1 row; expected at least 2"):
        require_rivals(alone)


def test_items_of_one_modality_are_both_sides(tmp_path: Path) -> None:
    file = tmp_path / "rows.npz"
    np.savez(file, rows=TEXT, labels=np.arange(4) % 2)
    found = read_embeddings(file)
    assert found.alone
    assert found.text is found.video
    np.testing.assert_array_equal(found.text, TEXT.astype(np.float32))
    assert found.right.tolist() == [0, 1, 2, 3]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 0, 1]
    assert with_unit_rows(found).alone
    for modality in ("text", "video"):
        np.testing.assert_array_equal(read_modality(file, modality)[1], found.text)


def test_rows_beside_text_and_video_are_an_array_like_any_other() -> None:
    found = embeddings_of({"text": TEXT, "video": VIDEO, "rows": np.arange(4)})
    assert not found.alone


def test_rows_have_no_pairs() -> None:
    with pytest.raises(CimError, match=r"f\.npz: holds rows and text_to_video; expected"):
        embeddings_of({"rows": TEXT, "text_to_video": np.arange(4)}, "f.npz")


CAPTIONS = np.arange(6, dtype=np.float32).reshape(2, 3)
CLIPS = np.arange(8, dtype=np.float32).reshape(4, 2)


def card(text_width: int = 3, video_width: int = 2, unit_rows: bool = False) -> ModelCard:
    return ModelCard(
        *("model", "trunk", Cosine(), None, None, None),
        unit_rows,
        text_width,
        video_width,
        dimension=3,
        warnings=(),
    )


def rows(data: object, modality: str = "video", width: int = 2, unit: bool = False) -> np.ndarray:
    return read_rows(data, modality, card(width, width, unit))  # type: ignore[arg-type]


TOKENS = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
"""Two items of four tokens."""


def of_tokens(text: int = 4, video: int = 4) -> ModelCard:
    return replace(card(3 * text, 3 * video), head=MaxSim(text, video))


def test_tokens_of_an_item_come_in_one_row(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", text=TOKENS, video=TOKENS[:, :2])
    np.save(tmp_path / "video.npy", TOKENS[:, :2])
    model = of_tokens(4, 2)
    read = read_data(tmp_path / "both.npz", model)
    assert read.tokens == (4, 2)
    np.testing.assert_array_equal(read.text, TOKENS.reshape(2, 12))
    for data in (tmp_path / "both.npz", tmp_path / "video.npy", read, {"video": TOKENS[:, :2]}):
        np.testing.assert_array_equal(read_rows(data, "video", model), TOKENS[:, :2].reshape(2, 6))
    flat = {"text": TOKENS.reshape(2, -1), "video": TOKENS[:, :2].reshape(2, -1)}
    assert read_data(flat, model).tokens == (4, 2), "the model knows them"
    alone = read_data({"rows": TOKENS}, of_tokens())
    assert (alone.tokens, alone.text.shape) == ((4, 4), (2, 12))


def test_other_numbers_of_tokens_are_one_sentence() -> None:
    with pytest.raises(CimError, match=r"^embeddings: video has 4 tokens for each item; model "):
        read_data({"text": TOKENS, "video": TOKENS}, of_tokens(4, 2))
    with pytest.raises(CimError, match=r"text has 4 tokens for each item; .* expects 6 tokens"):
        read_rows({"text": TOKENS}, "text", of_tokens(6))
    turned = TOKENS.reshape(2, 3, 4)  # as many numbers
    with pytest.raises(CimError, match=r"text has 3 tokens for each item; .* expects 4 tokens"):
        read_rows({"text": turned}, "text", of_tokens())
    with pytest.raises(CimError, match=r"text has 4 tokens for each item; .* expects one row"):
        read_rows({"text": TOKENS}, "text", card(12))
    ragged = np.empty(2, object)
    ragged[:] = [TOKENS[0], TOKENS[1, :2]]
    with pytest.raises(CimError, match="text is of object; expected an array of real numbers"):
        read_rows({"text": ragged}, "text", of_tokens())


def test_vectors_are_required_where_nothing_scores_tokens() -> None:
    require_vectors(embeddings_of({"text": CAPTIONS, "video": CLIPS}))
    with pytest.raises(CimError, match=r"text has 4 tokens for each item; expected one row"):
        require_vectors(embeddings_of({"text": TOKENS, "video": TOKENS}))


def test_every_form_gives_the_same_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", text=CAPTIONS, video=CLIPS)
    np.savez(tmp_path / "alone.npz", image=CLIPS)
    np.save(tmp_path / "video.npy", CLIPS)
    np.save(tmp_path / "text.npy", CAPTIONS)
    torch.save(torch.from_numpy(CLIPS), tmp_path / "video.pt")
    torch.save({"video": torch.from_numpy(CLIPS)}, tmp_path / "named.pt")
    forms: list[EmbeddingsLike] = [
        tmp_path / n for n in ("both.npz", "alone.npz", "video.npy", "video.pt")
    ]
    forms += [tmp_path / "named.pt", (tmp_path / "text.npy", tmp_path / "video.npy")]
    forms += [{"video": CLIPS}, embeddings_of({"text": CAPTIONS, "video": CLIPS})]
    for form in forms:
        np.testing.assert_array_equal(rows(form), CLIPS)
    np.testing.assert_array_equal(rows(tmp_path / "both.npz", "text", 3), CAPTIONS)
    np.testing.assert_array_equal(rows(forms[5], "text", 3), CAPTIONS)
    assert file_of(forms[5], "video") == tmp_path / "video.npy"
    assert file_of({"video": CLIPS}, "video") is None


def test_rows_of_unit_norm() -> None:
    found = rows({"video": CLIPS[1:]}, unit=True)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)


def test_both_modalities_have_the_widths_of_the_model() -> None:
    found = embeddings_of({"text": CAPTIONS, "video": CLIPS}, "f.npz")
    assert read_data(found, card()) is found
    with pytest.raises(CimError, match=r"f\.npz: video rows have 2 numbers; model expects 5"):
        read_data(found, card(3, 5))


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "g.npz"
    np.savez(file, text=CAPTIONS, vidio=CLIPS)
    with pytest.raises(CimError, match=rf"{file}: video \(or image\) is missing; it holds text"):
        rows(file)
    np.savez(file, video=CLIPS)
    with pytest.raises(CimError, match=rf"{file}: video rows have 2 numbers; model expects 5"):
        rows(file, width=5)
    with pytest.raises(CimError, match=r"embeddings are given as int; expected a file, a pair of"):
        rows(7)
    with pytest.raises(CimError, match=r"row 0 is all zeros"):
        rows({"video": CLIPS * 0}, unit=True)
