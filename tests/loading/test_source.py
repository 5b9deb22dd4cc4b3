"""Source of a model: checked once, whatever form it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from cimtool.base.errors import CimError
from cimtool.bundle.compilation import PrepareOptions
from cimtool.hardware.settings import SettingOptions
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.source import ModelSource


def test_files_may_be_texts() -> None:
    source = ModelSource("m.pth", "p.json", layer_map="map.toml", head="csd", a=0.5)
    assert source == ModelSource(
        Path("m.pth"), Path("p.json"), a=0.5, layer_map=Path("map.toml"), head="csd"
    )
    assert (source.files, str(source)) == ((Path("m.pth"),), "m.pth")


def test_a_source_names_itself() -> None:
    pair = ModelSource(("text.onnx", Path("video.onnx")))
    assert pair.files == (Path("text.onnx"), Path("video.onnx"))
    assert str(pair) == "text.onnx and video.onnx"
    modules = ModelSource((nn.Linear(2, 2), nn.Linear(2, 2)))
    assert (modules.files, str(modules)) == ((), "torch modules")


@pytest.mark.parametrize(
    ("projectors", "options", "said"),
    [
        (3, {}, "projectors are given as int; expected a checkpoint, two ONNX files or two torch"),
        ((3, 4), {}, r"projectors are given as tuple \(int, int\)"),
        ((nn.Linear, nn.Linear), {}, r"projectors are given as tuple \(type, type\)"),
        (("a.onnx", "b.onnx", "c.onnx"), {}, r"given as tuple \(str, str, str\)"),
        ("m.pth", {"a": 0.0}, "a is 0.0; expected a number above 0"),
        ("m.pth", {"a": float("nan")}, "a is nan; expected a finite number"),
        ("m.pth", {"b": float("inf")}, "b is inf; expected a finite number"),
        ("m.pth", {"poly": Polynomial(1, (-1.0, 0.0), 0.0)}, r"from a file \(poly=PATH\)"),
        (("a.onnx", "b.onnx"), {"layer_map": "map.toml"}, "map.toml: a map names the layers of a"),
    ],
)
def test_what_makes_no_model_is_refused_before_a_file_is_read(
    projectors: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(CimError, match=said):
        ModelSource(projectors, options.pop("poly", None), **options)


def test_options_of_a_build_have_a_source_and_settings() -> None:
    options = PrepareOptions(
        projectors="m.pth", calibration={}, target="ideal", a=0.5, weight_bits=6
    )
    assert ModelSource.of(options) == ModelSource("m.pth", a=0.5)
    settings = {name: x for name, x in options.part(SettingOptions).items() if x is not None}
    assert settings == {"weight_bits": 6}
