"""The commands of the core, in a process of its own, on a copy of the package without its leaves.

    python core_walk.py PACKAGE_PARENT CHECKPOINT POLYNOMIAL FOLDER

makes rows in FOLDER, compiles, simulates, verifies and exports there, and prints the SHA-256 of
the scores; status 1 if a command ends otherwise than with 0, if the package is another one, or if
what the missing leaves offer is refused otherwise than in a sentence.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WIDTH = 24


def main(parent: Path, checkpoint: str, polynomial: str, folder: Path) -> int:
    sys.path.insert(0, str(parent))
    import cimtool
    from cimtool import cli

    if not Path(cimtool.__file__).is_relative_to(parent):
        print(f"{cimtool.__file__} is not below {parent}")
        return 1
    os.chdir(folder)
    rng = np.random.RandomState(3)
    for name, count in (("calibration", 64), ("eval", 24)):
        text = rng.normal(size=(count, WIDTH)).astype(np.float32)
        video = (text + rng.normal(0, 0.3, text.shape)).astype(np.float32)
        np.savez(f"{name}.npz", text=text, video=video)
    model = ["--projectors", checkpoint, "--poly", polynomial, "--calibration", "calibration.npz"]
    for words in (
        ["--help"],
        ["targets", "list"],
        ["targets", "show", "isaac-rram-128"],
        ["targets", "check", "isaac-rram-128"],
        ["inspect", checkpoint],
        ["compile", *model, "--target", "isaac-rram-128", "--adc-bits", "4", "-o", "bundle"],
        ["inspect", "bundle"],
        ["simulate", "bundle", "--inputs", "eval.npz", "-o", "scores.npz"],
        [
            "verify",
            "bundle",
            "--data",
            "eval.npz",
            "--noise",
            "--trials",
            "2",
            "--noise-model",
            "pcm-generic",
        ],
        ["compare", "bundle", "bundle", "--data", "eval.npz"],
        ["export", "bundle", "--format", "onnx", "-o", "onnx"],
    ):
        if status := cli.run(words):
            print(f"cimtool {' '.join(words)}: status {status}")
            return 1
    if wrong := [*wrong_names(parent), *wrong_device(parent)]:
        print(*wrong, sep="\n")
        return 1
    scores = np.load("scores.npz")["scores"]
    print("scores", hashlib.sha256(np.ascontiguousarray(scores).tobytes()).hexdigest())
    return 0


def wrong_names(parent: Path) -> Iterator[str]:
    """Faults of the functions of the library whose leaf is not there."""
    import cimtool
    from cimtool.api import NAMES

    for room, names in NAMES.items():
        missing = not (parent / "cimtool" / room).exists()
        for name in names:
            try:
                there = hasattr(cimtool, name)
            except ModuleNotFoundError as error:
                yield f"hasattr(cimtool, {name!r}) raises {error!r}"
                continue
            if missing and there:
                yield f"cimtool has {name}, and no {room}/"
            if missing and name in cimtool.API:
                try:
                    getattr(cimtool, name)
                except AttributeError as error:
                    wanted = f"cimtool.{name} needs cimtool.{room}, which is not installed"
                    if str(error) != wanted:
                        yield f"{error}; expected {wanted}"


def wrong_device(parent: Path) -> Iterator[str]:
    """Faults of the sentence about a device if no leaf offers one."""
    from cimtool import cli

    if (parent / "cimtool" / "gpu").exists():
        return
    said = io.StringIO()
    words = ["simulate", "bundle", "--inputs", "eval.npz", "--device", "cuda", "-o", "none.npz"]
    with contextlib.redirect_stderr(said):
        status = cli.run(words)
    wanted = '--device "cuda" is not known: nothing that is installed here offers one'
    if status != 2 or wanted not in " ".join(said.getvalue().split()):
        yield f"cimtool {' '.join(words)}: status {status}: {said.getvalue()}"


if __name__ == "__main__":
    parent, checkpoint, polynomial, folder = sys.argv[1:]
    sys.exit(main(Path(parent), checkpoint, polynomial, Path(folder)))
