"""Matched pairs that score below unmatched ones, and sides that are swapped, are warned of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.arrays import Array
from cimtool.bundle.matched_pairs import FEWEST, matched_warnings
from cimtool.demo.data import DemoFiles
from cimtool.ir.program import Program
from cimtool.loading.embeddings import embeddings_of
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.source import ModelSource
from cimtool.training.polynomial import polynomial_text

SWAPPED = "with each side's rows through the other's projector"


@pytest.fixture(scope="module")
def program(small_trunk: DemoFiles) -> Program:
    return ModelSource(small_trunk.projectors, small_trunk.poly).load().program


@pytest.fixture(scope="module")
def rows(small_trunk: DemoFiles) -> dict[str, Array]:
    with np.load(small_trunk.eval) as held:
        return dict(held)


def warned(program: Program, rows: dict[str, Array]) -> list[str]:
    return matched_warnings(program, embeddings_of(rows, "e.npz"))


def test_a_trained_model_is_not_warned_of(program: Program, rows: dict[str, Array]) -> None:
    assert warned(program, rows) == []


def test_swapped_arrays_are_told(program: Program, rows: dict[str, Array]) -> None:
    (said,) = warned(program, {"text": rows["video"], "video": rows["text"]})
    assert said.startswith("e.npz: a matched pair scores above ")
    assert SWAPPED in said


def test_a_score_of_the_other_sign_is_told(
    small_trunk: DemoFiles, rows: dict[str, Array], tmp_path: Path
) -> None:
    poly = read_polynomial(small_trunk.poly)
    turned = replace(poly, coeff=tuple(-c for c in poly.coeff), bias=-poly.bias)
    (tmp_path / "p.json").write_text(polynomial_text(turned))
    program = ModelSource(small_trunk.projectors, tmp_path / "p.json").load().program
    (said,) = warned(program, rows)
    assert "% of the unmatched ones, below chance (the first " in said
    assert "50% is chance" in said


def test_pairs_in_another_order_are_no_matter_of_chance(
    program: Program, rows: dict[str, Array]
) -> None:
    """As good as guessing, which an untrained model is too: left to the figures."""
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(rows["video"]))
        assert warned(program, {"text": rows["text"], "video": rows["video"][order]}) == []


def test_untrained_models_are_not_warned_of(small_trunk: DemoFiles, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = torch.load(small_trunk.projectors, weights_only=True)
    for _ in range(5):
        made = {
            key: torch.from_numpy(rng.normal(size=tensor.shape).astype(np.float32) / 5)
            if tensor.dim() == 2 else tensor
            for key, tensor in content.items()
        }  # fmt: skip
        torch.save(made, tmp_path / "m.pth")
        program = ModelSource(tmp_path / "m.pth", small_trunk.poly).load().program
        text, video = (rng.normal(size=(300, 24)).astype(np.float32) for _ in range(2))
        assert warned(program, {"text": text, "video": video}) == []


def test_few_or_unknown_pairs_tell_nothing(program: Program, rows: dict[str, Array]) -> None:
    swapped = {"text": rows["video"], "video": rows["text"]}
    assert warned(program, {name: own[: FEWEST - 1] for name, own in swapped.items()}) == []
    assert warned(program, {"text": swapped["text"][:-1], "video": swapped["video"]}) == []
