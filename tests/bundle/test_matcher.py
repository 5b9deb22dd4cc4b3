"""Bundles and matchers where a path is expected, encoders by the user's names, rows of any kind."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import cimtool
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.matcher import Matcher, load

BUNDLE = Path(__file__).parents[2] / "exports" / "reference-small@isaac-rram-128"
TEXT, VIDEO = (np.random.default_rng(0).integers(-512, 512, (2, 40, 16)) / 256).astype(np.float32)


def named(*modalities: str) -> Matcher:
    """The reference bundle with a model whose data had these names."""
    bundle = read_bundle(BUNDLE)
    pair = (modalities[0], modalities[1])
    return Matcher(replace(bundle, model=replace(bundle.model, modalities=pair, called=pair)))


@pytest.mark.parametrize(
    "rows",
    [torch.tensor(VIDEO), VIDEO.tolist(), pd.DataFrame(VIDEO)],
    ids=lambda x: type(x).__name__,
)
def test_rows_of_any_kind_encode_alike(rows: Any) -> None:
    matcher = load(BUNDLE)
    wanted = matcher.encode_video(VIDEO)
    for found in (matcher.encode_video(rows), matcher.encode_image(rows)):
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_encoders_have_the_names_of_the_modalities() -> None:
    matcher = named("caption", "audio")
    assert {"encode_caption", "encode_audio"} <= set(dir(matcher))
    assert np.array_equal(matcher.encode_audio(VIDEO)["mu"], matcher.encode_video(VIDEO)["mu"])
    assert np.array_equal(matcher.encode_caption(TEXT)["mu"], matcher.encode_text(TEXT)["mu"])
    with pytest.raises(AttributeError, match='no encode_audi; did you mean "encode_audio"'):
        matcher.encode_audi(VIDEO)


def test_a_matcher_can_be_copied() -> None:
    matcher = copy.copy(load(BUNDLE))
    assert np.array_equal(matcher.encode_text(TEXT)["mu"], load(BUNDLE).encode_text(TEXT)["mu"])
    with pytest.raises(AttributeError):
        object.__new__(Matcher).encode_text_of  # noqa: B018


def test_every_function_takes_what_another_returns(tmp_path: Path) -> None:
    folder = tmp_path / BUNDLE.name
    shutil.copytree(BUNDLE, folder)
    bundle = read_bundle(folder)
    scores = cimtool.simulate(bundle, inputs=(TEXT, VIDEO))["scores"]
    for one in (folder, bundle, load(bundle), load(load(bundle))):
        assert np.array_equal(load(one).scores((TEXT, VIDEO)), scores)
    report = cimtool.verify(bundle, data={"text": torch.tensor(TEXT), "image": VIDEO})
    assert (folder / "report.json").is_file()
    assert not report.failures
    assert cimtool.cost(load(bundle))
