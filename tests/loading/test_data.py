"""Embeddings in every form, both modalities or one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.data import EmbeddingsLike, file_of, read_data, read_rows
from cimtool.loading.embeddings import embeddings_of

TEXT = np.arange(6, dtype=np.float32).reshape(2, 3)
VIDEO = np.arange(8, dtype=np.float32).reshape(4, 2)


@dataclass(frozen=True)
class Spec:
    text_width: int = 3
    video_width: int = 2
    unit_rows: bool = False
    name: str = "model"


def rows(data: object, modality: str = "video", width: int = 2, unit: bool = False) -> np.ndarray:
    return read_rows(data, modality, Spec(width, width, unit))  # type: ignore[arg-type]


def test_every_form_gives_the_same_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", text=TEXT, video=VIDEO)
    np.savez(tmp_path / "alone.npz", image=VIDEO)
    np.save(tmp_path / "video.npy", VIDEO)
    np.save(tmp_path / "text.npy", TEXT)
    torch.save(torch.from_numpy(VIDEO), tmp_path / "video.pt")
    torch.save({"video": torch.from_numpy(VIDEO)}, tmp_path / "named.pt")
    forms: list[EmbeddingsLike] = [
        tmp_path / n for n in ("both.npz", "alone.npz", "video.npy", "video.pt")
    ]
    forms += [tmp_path / "named.pt", (tmp_path / "text.npy", tmp_path / "video.npy")]
    forms += [{"video": VIDEO}, embeddings_of({"text": TEXT, "video": VIDEO})]
    for form in forms:
        np.testing.assert_array_equal(rows(form), VIDEO)
    np.testing.assert_array_equal(rows(tmp_path / "both.npz", "text", 3), TEXT)
    np.testing.assert_array_equal(rows(forms[5], "text", 3), TEXT)
    assert file_of(forms[5], "video") == tmp_path / "video.npy"
    assert file_of({"video": VIDEO}, "video") is None


def test_rows_of_unit_norm() -> None:
    found = rows({"video": VIDEO[1:]}, unit=True)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)


def test_both_modalities_have_the_widths_of_the_model() -> None:
    found = embeddings_of({"text": TEXT, "video": VIDEO}, "f.npz")
    assert read_data(found, Spec()) is found
    with pytest.raises(CimError, match=r"f\.npz: video rows have 2 numbers; model expects 5"):
        read_data(found, Spec(3, 5))


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "g.npz"
    np.savez(file, text=TEXT, vidio=VIDEO)
    with pytest.raises(CimError, match=rf"{file}: video \(or image\) is missing; it holds text"):
        rows(file)
    np.savez(file, video=VIDEO)
    with pytest.raises(CimError, match=rf"{file}: video rows have 2 numbers; model expects 5"):
        rows(file, width=5)
    with pytest.raises(CimError, match=r"embeddings are given as int; expected a file, a pair of"):
        rows(7)
    with pytest.raises(CimError, match=r"row 0 is all zeros"):
        rows({"video": VIDEO * 0}, unit=True)
