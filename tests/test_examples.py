"""The examples run as they are, and the ONNX files need no cimtool."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_tools import STRICT, c_compiler

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.training.losses import Loss

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

Printed = pytest.CaptureFixture[str]


def run_example(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, str(folder)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def fewer_epochs(loss: str, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a loss train for so many epochs where a script names none."""
    kind = Loss.named(loss, "loss")
    monkeypatch.setattr(kind, "optimisation", replace(kind.optimisation, epochs=epochs))


def test_every_script_has_its_line_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    scripts = [file.name for file in EXAMPLES.glob("*.[cp]*") if file.is_file()]
    assert scripts
    assert [name for name in scripts if f"| `{name}` |" not in readme] == []


@pytest.mark.thorough("an example run whole")
def test_bring_your_own_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    run_example("bring_your_own_checkpoint.py", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert "best videos of the first three texts: [0 1 2]" in printed
    assert "values that differ between implementations: 0\n" in printed
    assert (tmp_path / "mine@isaac-rram-128" / "report.html").is_file()


@pytest.mark.thorough("an example run whole")
def test_compare_two_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    run_example("compare_two_settings.py", tmp_path, monkeypatch)
    *table, conclusion = capsys.readouterr().out.splitlines()
    assert any("weights-8" in line and "weights-4" in line for line in table)
    times = float(conclusion.split(" times")[0].rpartition(" ")[2])
    assert times > 1.5, "four bits less make the rounding error of weights 16 times larger"


@pytest.mark.thorough("whole pages and notebooks run in order")
def test_train_by_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(180) % 3
    rows = {
        name: rng.dirichlet(np.ones(6), size=3)[labels] + 0.05 * rng.random((180, 6))
        for name in ("image", "text")
    }
    split = np.where(np.arange(180) < 120, "train", "test")
    np.savez(tmp_path / "set.npz", label=labels, split=split, **rows)
    arguments = ["train_by_labels.py", str(tmp_path), str(tmp_path / "set.npz")]
    monkeypatch.setattr(sys, "argv", arguments)
    fewer_epochs("acmr", 12, monkeypatch)
    runpy.run_path(str(EXAMPLES / arguments[0]), run_name="__main__")
    with np.load(tmp_path / "train.npz") as held, np.load(tmp_path / "test.npz") as unseen:
        np.testing.assert_allclose(held["image"].mean(axis=0), 0, atol=1e-5)
        assert (len(held["text"]), len(unseen["text"])) == (120, 60)
    *_, in_float, _, _, last = capsys.readouterr().out.splitlines()
    assert float(in_float.split()[-1]) > 0.9, "three classes far apart are told apart"
    assert last.startswith("hermes-pcm-14nm: mAP image to text")
    assert last.endswith("; values that differ: 0")


@pytest.fixture
def without_cimtool(tmp_path: Path) -> dict[str, str]:
    """An environment in which `import cimtool` fails."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "cimtool.py").write_text("raise ModuleNotFoundError('cimtool is not installed')\n")
    environment = os.environ | {"PYTHONPATH": str(blocked)}
    tried = subprocess.run(
        [sys.executable, "-c", "import cimtool"],
        cwd=tmp_path, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert tried.returncode != 0
    return environment


def test_use_the_onnx_files_alone(
    small_bundle: Path, small_trunk: DemoFiles, without_cimtool: dict[str, str], tmp_path: Path
) -> None:
    for name in ("text.onnx", "video.onnx", "score.onnx"):
        shutil.copy(small_bundle / name, tmp_path)
    output = tmp_path / "scores.npz"
    script = EXAMPLES / "use_the_onnx_files_alone.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, small_trunk.eval, "-o", output],
        env=without_cimtool, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"wrote {output}" in done.stdout
    with np.load(output) as stored:
        scores = stored["scores"]
    simulated = api.load(small_bundle).scores(small_trunk.eval)
    assert scores.dtype == simulated.dtype == np.float32
    np.testing.assert_array_equal(scores, simulated)


def test_rank_a_gallery(small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path) -> None:
    export_bundle(read_bundle(small_bundle), "handoff", tmp_path / "handoff")
    c, program = tmp_path / "handoff" / "c", EXAMPLES / "rank_a_gallery.c"
    build = [c_compiler("gcc"), *STRICT, f"-I{c}", program, c / "model.c", "-lm", "-o", "rank"]
    subprocess.run(build, cwd=tmp_path, check=True)
    with np.load(small_trunk.eval) as rows:
        for name in ("text", "video"):
            rows[name].astype("<f4").tofile(tmp_path / f"{name}s.f32")
    arguments = [c / "weights.bin", "texts.f32", "videos.f32"]
    done = subprocess.run(
        ["./rank", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    best = api.simulate(small_bundle, small_trunk.eval, top=5)
    lines = done.stdout.splitlines()
    assert len(lines) == len(best["top_index"]) > 30
    unit = re.search(r"logits in units of 2\^(-?\d+)", (c / "model.h").read_text("utf-8"))
    assert unit is not None
    for line, indices, scores in zip(lines, best["top_index"], best["top_score"], strict=True):
        found = re.findall(r"(\d+) \((-?\d+)\)", line)
        assert [int(index) for index, _ in found] == indices.tolist()
        assert [int(score) * 2.0 ** int(unit[1]) for _, score in found] == scores.tolist()
    (tmp_path / "odd.f32").write_bytes(bytes(4 * 25))
    refused = subprocess.run(
        ["./rank", *arguments[:2], "odd.f32"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "expected rows of 24 float32" in refused.stderr


@pytest.fixture
def demo(tmp_path: Path) -> DemoFiles:
    """A demo's rows, small: pairs whose modalities are turned against one another."""
    files = DemoFiles.under(tmp_path / "cache")
    files.poly.parent.mkdir()
    rng = np.random.default_rng(0)
    text = rng.normal(size=(2800, 12)).astype(np.float32)
    video = text @ np.linalg.qr(rng.normal(size=(12, 12)))[0] + 0.3 * rng.normal(size=text.shape)
    rows = {"text": text, "video": video.astype(np.float32)}
    parts = slice(2000), slice(100), slice(2000, 2800)
    for file, part in zip((files.train, files.calibration, files.eval), parts, strict=True):
        np.savez(file, **{side: all_[part] for side, all_ in rows.items()})
    return files


@pytest.mark.thorough("whole pages and notebooks run in order")
def test_polynomial_in_three_steps(
    demo: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    name = "polynomial_in_three_steps.py"
    kind = Loss.named("soft-contrastive", "loss")
    quick = replace(kind.optimisation, batch=32, learning_rate=3e-3)  # what so few rows need
    monkeypatch.setattr(kind, "optimisation", quick)
    fewer_epochs("info-nce-poly", 1, monkeypatch)
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path), str(demo.poly.parent)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert "RMSE of the polynomial: " in printed
    assert printed.count(" from random weights ") == 2
    for file in ("teacher.npz", "poly_coeffs.pt", "best_projectors.pth"):
        assert (tmp_path / file).is_file()


@pytest.mark.thorough("whole pages and notebooks run in order")
def test_train_on_a_polynomial(
    demo: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    name = "train_on_a_polynomial.py"
    kind = Loss.named("pairwise-poly", "loss")
    quick = replace(kind.optimisation, batch=32, learning_rate=3e-3)  # what so few rows need
    monkeypatch.setattr(kind, "optimisation", quick)
    sizes: dict[str, Any] = {
        "options": {"model.hidden": 32, "model.width": 8, "model.linear": False}
    }
    sizes |= {"epochs": 2, "batch": quick.batch, "learning_rate": quick.learning_rate}
    api.train(demo.train, demo.teacher.parent, loss="soft-contrastive", **sizes)
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path), str(demo.poly.parent)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert "epoch 2 of 2: loss " in printed
    assert printed.count(" on unseen pairs: ") == 2
    assert printed.endswith("values that differ: 0\n")
    assert (tmp_path / "trained@isaac-rram-128" / "report.html").is_file()


@pytest.mark.thorough("whole pages and notebooks run in order")
def test_autoencode_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    run_example("autoencode_digits.py", tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    said = dict(line.split(": R@1 ") for line in printed.splitlines() if ": R@1 " in line)
    recalls = [float(said[kind].rstrip("%")) for kind in ("float", "compiled")]
    assert min(recalls) > 95
    assert abs(recalls[0] - recalls[1]) < 1
    assert printed.endswith("values that differ: 0\n")
