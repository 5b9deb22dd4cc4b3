"""The command line without the libraries of the extras, in a process of its own.

    python light_walk.py FOLDER [--without torch,sklearn] [--short]

makes small models in FOLDER, a checkpoint and a pair of ONNX files, runs each command of the core,
and then those that need an extra; status 1 where one ends otherwise than it should. It needs
cimtool and what cimtool itself is installed with. `--without` hides libraries that are there, and
`--short` leaves out commands that take long.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

WIDTH, HIDDEN, D = 12, 16, 8
SHORT = (
    *("train --help", "demo --help", "inspect", "teacher", "fit", "compile", "compile of ONNX"),
    *("simulate", "verify", "cost"),
)

SENTENCE = r'cimtool: error: .*needs the package (\S+); expected `pip install "cimtool\[(\w+)\]"`'
"""The one line of a command whose extra is missing."""


def make_inputs(folder: Path) -> None:
    """Write model.safetensors, text.onnx and video.onnx, and pairs to calibrate and measure on."""
    rng = np.random.default_rng(5)
    state: dict[str, np.ndarray] = {}
    shared = {
        key: rng.normal(0, 0.3, shape)
        for key, shape in {
            "trunk.0": (HIDDEN, WIDTH), "trunk.3": (HIDDEN, HIDDEN),
            "mu": (D, HIDDEN), "logvar": (D, HIDDEN),
        }.items()
    }  # fmt: skip
    for modality in ("text", "video"):
        for key, weight in shared.items():
            moved = weight + rng.normal(0, 0.01, weight.shape)
            state[f"{modality}_proj.{key}.weight"] = moved.astype(np.float32)
            bias = np.full(len(weight), -3.0 if key == "logvar" else 0.0, np.float32)
            state[f"{modality}_proj.{key}.bias"] = bias
        for norm in ("trunk.1", "trunk.4"):
            ones, zeros = np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32)
            for part, values in zip(
                ("weight", "bias", "running_mean", "running_var"),
                (ones, zeros, zeros, ones), strict=True,
            ):  # fmt: skip
                state[f"{modality}_proj.{norm}.{part}"] = values.copy()
        write_onnx(folder / f"{modality}.onnx", state[f"{modality}_proj.mu.weight"][:, :WIDTH])
    save_file(state, folder / "model.safetensors")
    for name, count in (("calibration", 64), ("eval", 24)):
        text = rng.normal(size=(count, WIDTH)).astype(np.float32)
        video = (text + rng.normal(0, 0.1, text.shape)).astype(np.float32)
        np.savez(folder / f"{name}.npz", text=text, video=video)


def write_onnx(file: Path, weight: np.ndarray) -> None:
    """A projector of one layer and mu alone."""
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["mu"], transB=1)],
        "projector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", WIDTH))],
        [helper.make_tensor_value_info("mu", TensorProto.FLOAT, ("n", "d"))],
        [numpy_helper.from_array(weight, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(file))


def write_encoder(folder: Path) -> None:
    """An encoder of texts and of images, as far as its files are read without an extra."""
    folder.mkdir()
    for name, given, axes in (
        ("text_model", "input_ids", ("n", "l")),
        ("vision_model", "pixel_values", ("n", 3, 1, 1)),
    ):
        graph = helper.make_graph(
            [helper.make_node("Identity", [given], ["row"])],
            "encoder",
            [helper.make_tensor_value_info(given, TensorProto.FLOAT, axes)],
            [helper.make_tensor_value_info("row", TensorProto.FLOAT, axes)],
        )
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.save(model, str(folder / f"{name}.onnx"))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "preprocessor_config.json").write_text(
        '{"do_resize": false, "do_center_crop": true, "crop_size": 1, "do_normalize": false}'
    )


def core_commands(folder: Path) -> dict[str, list[str]]:
    """Commands that run without any extra, in this order."""
    model, rows, data = (
        str(folder / name) for name in ("model.safetensors", "calibration.npz", "eval.npz")
    )
    bundle, teacher, poly = (str(folder / name) for name in ("bundle", "t.npz", "poly.json"))
    build = ["--calibration", rows, "--target", "isaac-rram-128"]
    graphs = [word for m in ("text", "video") for word in ("--projectors", f"{folder / m}.onnx")]
    compiled = ["compile", "--projectors", model, "--poly", poly, *build]
    from_onnx = ["compile", *graphs, *build, "--head", "cosine", "-o", str(folder / "cosine")]
    in_memory = [*compiled, "--score-mapping", "in-memory", "-o", str(folder / "memory")]
    labels = ["teacher", "--projectors", model, "--data", rows, "--a", "1", "--b", "2"]
    grid = ["sweep", "--projectors", model, "--poly", poly, *build, "--data", data]
    found = ["--gallery", str(folder / "shards"), "--queries", data]
    noise = ["--noise", "--noise-model", "neurram", "--trials", "2"]
    tune = ["tune", "--projectors", model, "--poly", poly, *build, "--data", data]
    return {
        "train --help": ["train", "--help"],
        "demo --help": ["demo", "--help"],
        "inspect": ["inspect", model],
        "targets": ["targets", "check", "isaac-rram-128"],
        "teacher": [*labels, "-o", teacher],
        "fit": ["fit", teacher, "--degree", "1", "-o", poly],
        "compile": [*compiled, "-o", bundle],
        "compile of ONNX": from_onnx,
        "simulate": ["simulate", bundle, "--inputs", data, "-o", str(folder / "scores.npz")],
        "verify": [*("verify", bundle, "--data", data), *noise],
        "verify of ONNX": ["verify", str(folder / "cosine"), "--data", data],
        "compare": ["compare", bundle, bundle, "--data", data],
        "evaluate": ["evaluate", bundle, model, "--poly", poly, "--data", data],
        "cost": ["cost", bundle, "--gallery", "24"],
        "encode": ["encode", bundle, "--gallery", data, "-o", str(folder / "shards")],
        "search": ["search", bundle, *found, "-o", str(folder / "best.npz")],
        "compile in memory": in_memory,
        "program": ["program", str(folder / "memory"), "--gallery", data],
        "sweep": [*grid, "--grid", "weight_bits=6,8", "-o", str(folder / "sweep")],
        "tune": [*tune, "--budget", "logit_rmse=2", "-o", str(folder / "tuned.toml")],
        **{
            f"export {kind}": ["export", bundle, "--format", kind, "-o", str(folder / kind)]
            for kind in ("onnx", "conductances", "testvectors", "handoff")
        },
    }


def extra_commands(folder: Path) -> dict[str, tuple[list[str], tuple[str, str]]]:
    """Commands that need an extra, and the package and extra that the sentence of each names."""
    data, bundle = str(folder / "eval.npz"), str(folder / "bundle")
    checkpoint = folder / "model.pth"
    checkpoint.write_bytes(b"PK\x03\x04")
    encoder, texts, images = folder / "encoder", folder / "texts.txt", folder / "images" / "a.png"
    write_encoder(encoder)
    texts.write_text("a\n")
    images.parent.mkdir()
    images.touch()
    embed = ["embed", "--encoder", str(encoder), "-o", str(folder / "rows.npy")]
    torch = ("torch", "train")
    sweep = core_commands(folder)["sweep"]
    simulate = ["simulate", bundle, "--inputs", data, "-o", str(folder / "d.npz")]
    return {
        "train": (["train", "--data", data, "-o", str(folder / "run")], torch),
        "demo": (["demo"], ("scikit-learn", "train")),
        "inspect of a .pth": (["inspect", str(checkpoint)], torch),
        "simulate with a device": ([*simulate, "--device", "cpu"], torch),
        "fit of a .pt": (["fit", str(folder / "t.npz"), "-o", str(folder / "p.pt")], torch),
        "sweep on Dask": ([*sweep, "--dask", "tcp://127.0.0.1:1"], ("distributed", "dask")),
        "embed of texts": ([*embed, str(texts)], ("tokenizers", "embed")),
        "embed of images": ([*embed, str(images.parent)], ("pillow", "embed")),
        "sweep to Parquet": ([*sweep, "--format", "parquet"], ("pyarrow", "parquet")),
    }


def told(arguments: list[str]) -> tuple[int, str]:
    """The status of a command, and what it writes on stderr."""
    from cimtool.cli import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(arguments)
    return status, err.getvalue()


@dataclass
class Hidden(MetaPathFinder):
    """Libraries that are there and are not to be found."""

    names: list[str]

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """None for what others may find; ModuleNotFoundError for a hidden library."""
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hidden(library: str) -> bool:
    """True where a library cannot be imported."""
    try:
        __import__(library)
    except ImportError:
        return True
    return False


def main() -> int:
    """Walk; print a line a command, and return the status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", default="")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    sys.meta_path.insert(0, Hidden(options.without.split(",")))
    make_inputs(options.folder)
    failed = 0
    commands = core_commands(options.folder)
    for name in SHORT if options.short else commands:
        arguments = commands[name]
        status, err = told(arguments)
        failed += status != 0
        print(f"{'ok' if status == 0 else 'FAILED'}  {name}{f': {err}' if status else ''}")
    library = {"scikit-learn": "sklearn", "pillow": "PIL"}
    for name, (arguments, (package, extra)) in extra_commands(options.folder).items():
        if not hidden(library.get(package, package)):
            print(f"--  {name}: {package} is installed")
            continue
        status, err = told(arguments)
        found = re.match(SENTENCE, err)
        right = status == 2 and found is not None and found.groups() == (package, extra)
        failed += not right or err.count("\n") != 1
        print(f"{'ok' if right else 'FAILED'}  {name}: {err.strip()}")
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
