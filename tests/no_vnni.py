"""Run ONNX files and compare with stored results, with numpy and onnxruntime alone.

Started on an emulated CPU without VNNI (`qemu-x86_64 -cpu Haswell python no_vnni.py FOLDER`): the
folder holds pairs `NAME.onnx`, `NAME.npz`; an archive has `in.<input>` and `out.<output>` arrays.
Prints the number of values compared and differing; exit status 1 where any differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime


def differing(model: Path) -> tuple[int, int]:
    """Values compared and differing of one file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    with np.load(model.with_suffix(".npz")) as stored:
        feeds = {k.removeprefix("in."): v for k, v in stored.items() if k.startswith("in.")}
        names = [output.name for output in session.get_outputs()]
        found = session.run(names, feeds)
        expected = [stored[f"out.{name}"] for name in names]
    compared = sum(value.size for value in expected)
    wrong = sum(int((a != b).sum()) for a, b in zip(found, expected, strict=True))
    return compared, wrong


def main() -> int:
    """Compare every file of the folder named on the command line."""
    worst = 0
    for model in sorted(Path(sys.argv[1]).glob("*.onnx")):
        compared, wrong = differing(model)
        print(f"{model.stem} {compared} {wrong}")
        worst = max(worst, wrong)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
