"""Files that once ended in a fault of the tool: each is one sentence of `compile`, status 2."""

from __future__ import annotations

import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from cimtool.demo.data import DemoFiles

WEIGHT = "text_proj.mu.weight"


def quantized(weight: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8)


def nested(weight: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.nested.nested_tensor([weight, weight[:2]])


TENSORS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "of no axis": (
        lambda w: torch.tensor(3.0),
        "text_proj.mu.weight has shape []; expected [any, any]",
    ),
    "nested": (nested, "is a nested tensor; expected plain real ones"),
    "quantized": (quantized, "is a tensor of torch.qint8; expected plain real numbers"),
    "sparse": (lambda w: w.to_sparse(), "is a tensor of torch.sparse_coo; expected plain real"),
    "complex": (lambda w: w.to(torch.complex64), "is a tensor of torch.complex64; expected plain"),
    "integers": (lambda w: w.to(torch.int8), "holds int8"),
    "truths": (lambda w: w > 0, "holds bool"),
    "a long integer": (lambda w: 10**600, "is an integer of 1994 bits"),
    "a text": (lambda w: "w" * 5000, WEIGHT),
    "a list of itself": (lambda w: endless(), "nests containers more than 64 deep"),
}


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.fixture
def refused(
    cimtool: Callable[..., Any], compiling: Callable[..., list[object]], tmp_path: Path
) -> Callable[..., str]:
    """Compile; returns the sentence, after checking that there is nothing else."""

    def run(files: DemoFiles, *more: object, **options: object) -> str:
        ran = cimtool(*compiling(files, tmp_path / "made" / "bundle", **options), *more)
        assert (ran.status, ran.out) == (2, ""), ran.err
        assert not (tmp_path / "made").exists()
        sentence: str = ran.sentence
        return sentence

    return run


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(
    name: str, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    change, said = TENSORS[name]
    state = torch.load(small_trunk.projectors, weights_only=True)
    state[WEIGHT] = change(state[WEIGHT])
    file = tmp_path / "m.pth"
    torch.save(state, file)
    sentence = refused(replace(small_trunk, projectors=file))
    assert sentence.startswith(f"{file}: ")
    assert said in sentence


@pytest.mark.parametrize("value", [1e308, -1e308, 1e300])
def test_coefficients_at_the_end_of_the_numbers(
    value: float, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    values = json.loads(small_trunk.poly.read_text())
    values["coeff"] = [value] * len(values["coeff"])
    file = tmp_path / "p.json"
    file.write_text(json.dumps(values))
    assert refused(replace(small_trunk, poly=file)) == (
        f"{file}: polynomial: coeff[0] is {value:.3g}; expected at most 1e+100 in magnitude"
    )


JSON_TEXTS = {
    "digits": '{"degree": 1, "coeff": [' + "9" * 5000 + ', 1], "bias": 0}',
    "infinite": '{"degree": 1, "coeff": [1e999, 1], "bias": 0}',
    "no number": '{"degree": 1, "coeff": [NaN, 1], "bias": 0}',
    "deep": "[" * 100_000,
    "surrogate": '{"degree": "\\ud800", "coeff": [1, 1], "bias": 0}',
    "not UTF-8": '{"degree": 1, "coeff": "\udcff"}',
}


@pytest.mark.parametrize("name", JSON_TEXTS)
def test_polynomials(
    name: str, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(JSON_TEXTS[name].encode("utf-8", "surrogateescape"))
    assert refused(replace(small_trunk, poly=file)).startswith(f"{file}: ")


TOML_TEXTS = {
    "digits": "weight_bits = " + "9" * 4000,
    "deep": "a = " + "[" * 4000,
    "not UTF-8": 'a = "\udcff"',
    "an infinite number": "weight_bits = inf",
}


@pytest.mark.parametrize("name", TOML_TEXTS)
def test_settings(
    name: str, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(TOML_TEXTS[name].encode("utf-8", "surrogateescape"))
    assert refused(small_trunk, settings=file).startswith(f"{file}: ")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("which", ["projectors", "calibration"])
def test_archives_of_other_compressions(
    which: str, method: int, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    whole: Path = getattr(small_trunk, which)
    file = tmp_path / whole.name
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(file, "w", method) as written:
        for member in read.infolist():
            written.writestr(member.filename, read.read(member))
    assert "compressed" in refused(replace(small_trunk, **{which: file}))


ELEMENTS = [
    *(TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.BOOL, TensorProto.UINT4),
    *(TensorProto.INT8, TensorProto.FLOAT8E4M3FN, TensorProto.UNDEFINED, 99),
]


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("where", ["weight", "input"])
def test_elements_of_onnx(
    where: str, element: int, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    weight = numpy_helper.from_array(np.ones((24, 3), np.float32), "w")
    ends = [helper.make_tensor_value_info(name, 1, ["n", n]) for name, n in (("x", 24), ("mu", 3))]
    if where == "weight":
        weight.data_type = element
    else:
        ends[0].type.tensor_type.elem_type = element
    node = helper.make_node("MatMul", ["x", "w"], ["mu"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    file = tmp_path / "p.onnx"
    onnx.save_model(model, file)
    options = {"projectors": file, "poly": None, "head": "cosine"}
    assert refused(small_trunk, "--projectors", file, **options).startswith(f"{file}: ")


def test_inspect_checks_a_bundle_as_other_commands_do(
    cimtool: Callable[..., Any], small_bundle: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(small_bundle, tmp_path / "copy"))
    assert cimtool("inspect", folder, "--json").json["files"]["program.json"]
    (folder / "weights.bin").write_bytes(b"more")
    assert "weights.bin: is not listed in manifest.json" in cimtool("inspect", folder).sentence


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no data be read: what is refused after that is refused too late."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("the data are read before the output is refused")

    for module in (
        "cimtool.api",
        "cimtool.experiments.subjects",
        "cimtool.training.items",
    ):
        monkeypatch.setattr(f"{module}.read_data", read)


FOLDERS = {
    "a link in a circle": lambda p: p.symlink_to(p.name),
    "a link to nothing": lambda p: p.symlink_to("nothing"),
    "a file": lambda p: p.write_text("mine"),
}


@pytest.mark.parametrize("below", ["", "reports"])
@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("option", ["verify --report", "evaluate --trec", "fit --report", "cost"])
def test_a_folder_that_cannot_be_written_is_refused_first(
    option: str,
    kind: str,
    below: str,
    cimtool: Callable[..., Any],
    small_bundle: Path,
    small_trunk: DemoFiles,
    untold: None,
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    FOLDERS[kind](place)
    folder = place / below
    lines: dict[str, list[object]] = {
        "verify --report": ["verify", small_bundle, "--data", small_trunk.eval, "--report", folder],
        "evaluate --trec": ["evaluate", small_bundle, "--data", small_trunk.eval, "--trec", folder],
        "fit --report": ["fit", tmp_path / "no.npz", "-o", tmp_path / "p.json", "--report", folder],
        "cost": ["cost", small_bundle, "--samples", 2**63, "-o", folder],
    }
    ran = cimtool(*lines[option])
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence.startswith(f"{folder}: cannot be written ({place} is a ")
    assert sorted(tmp_path.iterdir()) == [place]


def test_a_pipe_is_not_replaced_by_an_output(cimtool: Callable[..., Any], tmp_path: Path) -> None:
    pipe, data = tmp_path / "model.toml", tmp_path / "sums.csv"
    os.mkfifo(pipe)
    data.write_text("target,rows,columns,mean,deviation\n10,64,500,641,4.1\n20,64,500,1279,7.9\n")
    ran = cimtool("noise", "fit", data, "-o", pipe)
    assert (ran.status, ran.sentence) == (
        2,
        f"{pipe}: is a device, a pipe or a socket; expected an ordinary file",
    )
    assert pipe.is_fifo()


# Log-variances times 5e-324 are zeros, which are compiled: they take no array.
TINY = [
    ("mu", 5e-324),
    *((layer, x) for layer in ("mu", "logvar") for x in (1e-310, 1e-300, 1e-160)),
]


@pytest.mark.parametrize(("layer", "value"), TINY)
def test_weights_whose_squares_float64_does_not_hold(
    layer: str, value: float, refused: Callable[..., str], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    state = torch.load(small_trunk.projectors, weights_only=True)
    for key, tensor in state.items():
        if f".{layer}." in key:
            state[key] = tensor.double() * value
    torch.save(state, tmp_path / "m.pth")
    sentence = refused(replace(small_trunk, projectors=tmp_path / "m.pth"))
    assert sentence.startswith(f"{small_trunk.calibration}: text.{layer} (mvm): reaches ")
    assert "on these rows; expected rows of the scale that the model was trained on" in sentence


@pytest.mark.parametrize("value", [0.0, 1e-310, 1e-60])
def test_weights_near_zero_that_are_compiled(
    value: float, cimtool: Callable[..., Any], compiling: Callable[..., list[object]],
    small_trunk: DemoFiles, tmp_path: Path,
) -> None:  # fmt: skip
    state = torch.load(small_trunk.projectors, weights_only=True)
    state[WEIGHT] = state[WEIGHT].double() * value
    torch.save(state, tmp_path / "m.pth")
    ran = cimtool(*compiling(replace(small_trunk, projectors=tmp_path / "m.pth"), tmp_path / "b"))
    assert (ran.status, ran.err) == (0, "")
