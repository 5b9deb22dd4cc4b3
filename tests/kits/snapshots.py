"""Commands on small bundles, and texts of what a user sees: terminal, reports, pages, files.

    python tests/kits/snapshots.py

writes the texts in `tests/golden/snapshots` anew, after a change that is meant to change them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from safetensors.numpy import load_file
from same_text import DIGITS, json_lines, markup_lines, rounded_floats

from cimtool import __version__, cli

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SNAPSHOTS, CHECKPOINTS = GOLDEN / "snapshots", GOLDEN / "checkpoints"

CALIBRATION, ROWS, CLASSES = 64, 40, 8
WIDE, NARROW = 24, 12
"""Numbers in a row of embeddings, of `small-trunk` and of the other checkpoints."""

LABELS = 3000
"""Pairs of the teacher."""

DEGREE_4 = (0.5, -0.25, 0.125, 0.25, -0.5)
"""Coefficients that the polynomial of `small-trunk` gets behind those of its degree 3."""

OFFSET_TARGET = """
name = "offset"
base = "isaac-rram-128"
title = "ISAAC with small arrays, offset weights and a column of units"
figures = []
[array]
rows = 16
columns = 64
encoding = "offset"
offset_sum = "unit-column"
signed_rows = 16
signed_cols = 15
[adc]
bits = 5
"""


@dataclass(frozen=True)
class Step:
    """A command line; patterns of files that it wrote, shown in full or listed with digests."""

    command: str
    shown: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()


WIDE_MODEL = "--projectors small-trunk.safetensors --poly poly.json --calibration wide.npz"
TRUNK = "--projectors trunk.pth --calibration narrow.npz"
ISAAC = "--target isaac-rram-128"
MEMORY = "--score-mapping in-memory --accumulator-bits 48"
NEURRAM = "--target neurram-rram-130nm --references column"
DIES = "--noise --trials 3"

BUNDLES = {
    "compile-small": Step(
        f"compile {WIDE_MODEL} {ISAAC} --adc-bits 4 -o small --verbose",
        ("small/manifest.json",),
        ("small/*",),
    ),
    "compile-branch": Step(
        "compile --projectors two-branch.pth --poly two-branch.json --calibration narrow.npz"
        " --target dcim-28nm-isscc22 --drift given -o branch",
        listed=("branch/*",),
    ),
    "compile-csd": Step(
        f"compile {TRUNK} --head csd --a 0.1 --b 1 --target dcim-28nm-isscc22 --drift given -o csd",
        listed=("csd/*",),
    ),
    "compile-memory": Step(
        f"compile {TRUNK} --target offset.toml {MEMORY} -o memory", listed=("memory/*",)
    ),
    "compile-hybrid": Step(
        f"compile {WIDE_MODEL} {NEURRAM} --score-mapping hybrid -o hybrid", listed=("hybrid/*",)
    ),
    "program-memory": Step(
        "program memory --gallery narrow-items.npz -o programmed",
        ("programmed/ledger.json",),
        ("programmed/*",),
    ),
    "program-hybrid": Step(
        "program hybrid --gallery wide-items.npz -o listed --shortlist 5 --shortlist-bits 2"
        " --query-bits 4",
        listed=("listed/*",),
    ),
    "teacher": Step(
        "teacher --projectors small-trunk.safetensors --data wide.npz --a 0.1 --b 0"
        f" --pairs {LABELS} --matched 0.5 -o teacher.npz",
        listed=("teacher.npz",),
    ),
    "verify-small": Step(
        "verify small --data wide-items.npz --report verify-small --junit verify.xml",
        ("verify-small/report.md", "verify.xml"),
    ),
    "encode": Step(
        "encode branch --gallery items.npy -o shards", ("shards/*.json",), ("shards/*",)
    ),
}
"""Steps that write what the others read, in their order."""

COMMANDS = {
    "targets-list": Step("targets list"),
    "targets-show": Step("targets show neurram-rram-130nm"),
    "targets-show-json": Step("targets show isaac-rram-128 --json"),
    "targets-check": Step("targets check"),
    "targets-check-file": Step("targets check offset.toml --json"),
    "inspect-bundle": Step("inspect small"),
    "inspect-bundle-json": Step("inspect small --json"),
    "inspect-programmed": Step("inspect programmed"),
    "inspect-shortlist": Step("inspect listed"),
    "inspect-checkpoint": Step("inspect two-branch.pth"),
    "inspect-data": Step("inspect wide-items.npz"),
    "inspect-onnx": Step("inspect small/text.onnx"),
    "inspect-target": Step("inspect offset.toml"),
    "inspect-shards": Step("inspect shards"),
    "compile-small-json": Step(f"compile {WIDE_MODEL} {ISAAC} --adc-bits 4 --dry-run --json"),
    "simulate-small": Step(
        "simulate small --inputs wide-items.npz -o scores.npz", listed=("scores.npz",)
    ),
    "simulate-top": Step(
        "simulate branch --inputs narrow-items.npz --top 3 -o top.npz --json", listed=("top.npz",)
    ),
    "simulate-noise": Step(
        f"simulate small --inputs wide-items.npz {DIES} --noise-model pcm-generic --time 1d"
        " --compensation global -o dies.npz",
        listed=("dies.npz",),
    ),
    "simulate-programmed": Step(
        "simulate programmed --inputs narrow-items.npz -o memory.npz", listed=("memory.npz",)
    ),
    "simulate-shortlist": Step(
        "simulate listed --inputs wide-items.npz -o listed.npz", listed=("listed.npz",)
    ),
    "verify-noise": Step(
        f"verify small --data wide-items.npz {DIES} --noise-model pcm-generic"
        " --report verify-noise",
        ("verify-noise/*",),
    ),
    "verify-csd": Step(
        "verify csd --data narrow-items.npz --report verify-csd", ("verify-csd/report.md",)
    ),
    "verify-json": Step("verify programmed --data narrow-items.npz --report verify-json --json"),
    "verify-branch": Step(
        "verify branch --data narrow-items.npz --reference mc --samples 4 --report verify-branch",
        ("verify-branch/report.md",),
    ),
    "verify-programmed": Step(
        "verify programmed --data narrow-items.npz --report verify-programmed",
        ("verify-programmed/report.html",),
    ),
    "verify-shortlist": Step(
        f"verify listed --data wide-items.npz {DIES} --report verify-shortlist",
        ("verify-shortlist/report.md",),
    ),
    "verify-limits": Step(
        "verify small --data wide-items.npz --baseline verify-small/report.json"
        " --max-drift centred_rmse=0.5 --report verify-limits --junit limits.xml",
        ("limits.xml",),
    ),
    "cost-small": Step("cost small -o cost-small", ("cost-small/*",)),
    "cost-gallery": Step("cost small --gallery 1000 -o cost-gallery", ("cost-gallery/*",)),
    "cost-json": Step("cost branch --gallery 1000 -o cost-branch --json"),
    "cost-programmed": Step("cost programmed -o cost-programmed", ("cost-programmed/*",)),
    "cost-shortlist": Step("cost listed -o cost-listed", ("cost-listed/cost.json",)),
    "program-json": Step("program memory --gallery narrow-items.npz -o again --json"),
    "program-change": Step(
        "program programmed --remove 3,17 --add two.npz -o changed",
        ("changed/ledger.json",),
        ("changed/*",),
    ),
    "program-cam": Step(
        "program hybrid --gallery wide-items.npz --cam fefet2-tcam-45nm --shortlist 5 -o cam",
        listed=("cam/*",),
    ),
    "compare": Step("compare branch csd --data narrow-items.npz"),
    "evaluate": Step(
        "evaluate trunk.pth csd memory --data narrow-items.npz --resamples 100 --trec runs",
        listed=("runs/*",),
    ),
    "evaluate-json": Step(
        "evaluate small-trunk.safetensors small --poly poly.json --samples 4"
        " --data wide-items.npz --resamples 100 --json"
    ),
    "sweep": Step(
        f"sweep {TRUNK} --data narrow-items.npz {ISAAC} --grid adc_bits=4,8"
        " --budget centred_rmse=0.05 -o sweep",
        ("sweep/*.csv", "sweep/*.html", "sweep/*.json", "sweep/points/*"),
    ),
    "sweep-json": Step(
        f"sweep {TRUNK} --data narrow-items.npz --grid target=isaac-rram-128,dcim-28nm-isscc22"
        " -o sweep-targets --json"
    ),
    "tune": Step(
        f"tune {TRUNK} --data narrow-items.npz {ISAAC} --weight-bits 2 --activation-bits 3"
        " --budget centred_rmse=99 -o tuned.toml",
        ("tuned.toml",),
    ),
    "tune-verbose": Step(
        f"tune {TRUNK} --data narrow-items.npz {ISAAC} --weight-bits 2 --activation-bits 3"
        " --budget centred_rmse=99 -o tuned-again.toml --verbose"
    ),
    "search": Step(
        "search branch --gallery shards --queries narrow-items.npz --top 3 -o best.npz",
        listed=("best.npz",),
    ),
    "fit": Step(
        "fit teacher.npz --degree 2,3 --projectors small-trunk.safetensors --data wide-items.npz"
        f" {ISAAC} -o fitted.json",
        ("fitted.json", "fitted.fit.*"),
    ),
    "noise-fit": Step("noise fit cells.csv -o cells.toml", ("cells.toml",)),
    "export-onnx": Step("export branch --format onnx -o onnx", listed=("onnx/**/*",)),
    "export-conductances": Step(
        "export hybrid --format conductances -o cells", listed=("cells/**/*",)
    ),
    "export-testvectors": Step(
        "export memory --format testvectors --inputs narrow-items.npz -o vectors",
        listed=("vectors/**/*",),
    ),
    "export-handoff": Step(
        "export branch --format handoff --inputs narrow-items.npz -o handoff",
        ("handoff/README.md", "handoff/Makefile", "handoff/steps.txt"),
        ("handoff/**/*",),
    ),
    "export-handoff-noise": Step(
        f"export listed --format handoff --gallery --layers text.mu {DIES} -o handoff-noise",
        ("handoff-noise/README.md",),
        ("handoff-noise/**/*",),
    ),
}
"""Steps by name, each of which reads what those of `BUNDLES` wrote."""

HELPS = {f"help-{name}": Step(f"{name} --help") for name in cli.COMMANDS} | {
    "help": Step("--help"),
    "help-all-train": Step("train --help-all"),
    "help-all-tune": Step("tune --help-all"),
    "help-all-verify": Step("verify --help-all"),
    "help-targets-import": Step("targets import --help"),
    "help-targets-check": Step("targets check --help"),
    "help-noise-fit": Step("noise fit --help"),
}

STEPS = BUNDLES | COMMANDS | HELPS


def inputs(folder: Path) -> None:
    """Write checkpoints, polynomials and rows, none of which is computed by a library."""
    for file in CHECKPOINTS.iterdir():
        shutil.copy(file, folder)
    poly = json.loads((folder / "small-trunk.json").read_text("utf-8"))
    poly |= {"degree": 4, "coeff": [*poly["coeff"], *DEGREE_4]}
    (folder / "poly.json").write_text(json.dumps(poly), "utf-8")
    for name, width in (("wide", WIDE), ("narrow", NARROW)):
        np.savez(folder / f"{name}.npz", **rows(width, CALIBRATION, 0))
        np.savez(folder / f"{name}-items.npz", **rows(width, ROWS, 1))
    (folder / "offset.toml").write_text(OFFSET_TARGET, "utf-8")
    np.save(folder / "items.npy", rows(NARROW, ROWS, 1)["video"])
    np.savez(folder / "two.npz", video=rows(NARROW, 2, 2)["video"])
    sums = ((10, 64, 500, 641, 4.1), (20, 64, 500, 1279, 7.9), (30, 64, 500, 1920, 9))
    lines = (",".join(map(str, one)) for one in sums)
    (folder / "cells.csv").write_text("\n".join(("target,rows,columns,mean,deviation", *lines)))


def rows(width: int, count: int, seed: int) -> dict[str, np.ndarray]:
    """Embeddings by modality, of some classes; a video's row is its text's backwards, with noise.

    All are whole 256ths, of the generator whose numbers no version of NumPy may change.
    """
    rng = np.random.RandomState(seed)
    text = fractions(np.random.RandomState(9), (CLASSES, width), 512)[np.arange(count) % CLASSES]
    text = text + fractions(rng, (count, width), 512)
    return {"text": text, "video": text[:, ::-1] + fractions(rng, text.shape, 96)}


def fractions(rng: np.random.RandomState, shape: tuple[int, ...], largest: int) -> np.ndarray:
    """Whole 256ths, from -largest/256 to largest/256."""
    return (rng.randint(-largest, largest + 1, shape) / 256).astype(np.float32)


def snapshot(step: Step, folder: Path) -> str:
    """Run a step in `folder`; all that it printed and wrote, as one text."""
    out, err = io.StringIO(), io.StringIO()
    width = mock.patch.dict(os.environ, {"COLUMNS": "80"})
    with chdir(folder), width, redirect_stdout(out), redirect_stderr(err):
        status = cli.run(shlex.split(step.command))
    printed, told = timeless(out.getvalue()), timeless(err.getvalue())
    if printed.startswith("{"):
        printed = json_lines(printed)
    parts = [f"$ cimtool {step.command}", f"status {status}", printed.rstrip()]
    parts += [f"--- stderr\n{told.rstrip()}"] if told.strip() else []
    for file in files(folder, step.shown):
        parts.append(f"--- {file.relative_to(folder)}\n{text_of(file).rstrip()}")
    if step.listed:
        lines = [line for file in files(folder, step.listed) for line in listing(file, folder)]
        parts.append("\n".join(["--- files", *lines]))
    return plain("\n".join(parts), folder)


def files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files that match, sorted; AssertionError for a pattern that none does."""
    found: set[Path] = set()
    for pattern in patterns:
        matching = {file for file in folder.glob(pattern) if file.is_file()}
        assert matching, f"no file is {pattern}"
        found |= matching
    return sorted(found)


PART = r"(?:point|start|epoch|probe|shard|tried)\b"
SECONDS = re.compile(r"^ *[0-9]+\.[0-9] s  ", re.MULTILINE)
OFTEN = re.compile(rf"^T s  (?!.*{PART}).*\n", re.MULTILINE)
"""Progress that is told once in so many seconds."""


def timeless(text: str) -> str:
    """Terminal output without seconds, nor lines that a slower machine alone would print."""
    text = re.sub(r"; about [^;\n]* left", "", SECONDS.sub("T s  ", text))
    return OFTEN.sub("", text)


def plain(text: str, folder: Path) -> str:
    """A text without the version, the temporary folder, and a file's digest of itself."""
    text = re.sub(rf"(?<![\w.]){re.escape(__version__)}(?![\w.])", "VERSION", text)
    text = re.sub(r'"sha256": "[0-9a-f]{64}"', '"sha256": "..."', text)
    return text.replace(str(folder), "FOLDER").rstrip() + "\n"


def text_of(file: Path) -> str:
    """A text file, as it is compared."""
    text = file.read_text("utf-8")
    match file.suffix:
        case ".json":
            return json_lines(text)
        case ".html" | ".svg":
            return markup_lines(text)
        case ".csv":
            return rounded_floats(text.replace(",", " , "))
    return rounded_floats(text)


def listing(file: Path, folder: Path) -> Iterator[str]:
    """A file's name and digest; its arrays, or the text of a small one."""
    name = file.relative_to(folder)
    if file.suffix in (".npz", ".safetensors"):
        read = load_file if file.suffix == ".safetensors" else np.load
        for key, array in sorted(read(file).items()):
            shape = "x".join(map(str, array.shape))
            yield f"{name} {key} {array.dtype}[{shape}] {array_text(array)}"
        return
    content = file.read_bytes()
    with suppress(UnicodeDecodeError):
        content = plain(content.decode("utf-8"), folder).encode()
    yield f"{name} {digest(content)}"


def array_text(array: np.ndarray) -> str:
    """A digest; of a teacher's float64 labels, which products of floats round, some statistics."""
    if array.dtype == np.float64 and array.size >= LABELS:
        known = (array[0], array[-1], array.mean(), array.std())
        return " ".join(f"{value:.{DIGITS}g}" for value in known)
    return digest(array.tobytes())


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    """Write all texts anew; leave no other file among them."""
    shutil.rmtree(SNAPSHOTS, ignore_errors=True)
    SNAPSHOTS.mkdir()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        inputs(folder)
        for name, step in STEPS.items():
            (SNAPSHOTS / f"{name}.txt").write_text(snapshot(step, folder), "utf-8")
    size = sum(file.stat().st_size for file in SNAPSHOTS.iterdir())
    print(f"wrote {len(STEPS)} texts of {size:,} bytes to {SNAPSHOTS}")


if __name__ == "__main__":
    main()
