"""Time to load each ONNX file of a bundle, at every optimisation level."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args

import onnx
from harness import Row, arguments, report, seconds, use_threads
from model import compiled, full_size
from onnx import inliner

from cimtool.bundle.bundle import ONNX_FILES
from cimtool.emit.runtime import OptimizationLevel, Session

SECONDS, NODES = 3, 2000
"""Most time that a file may take to load, and most nodes that it may have after inlining."""

BUILDS: dict[str, dict[str, Any]] = {
    "ideal": {"target": "ideal"},
    "hermes-pcm-14nm": {"target": "hermes-pcm-14nm"},
    "isaac, adc 7": {"target": "isaac-rram-128", "adc_bits": 7},
}


def loads(file: Path, build: str, rounds: int) -> Row:
    """Node counts of one file, and seconds of loading it at each level."""
    model = onnx.load(file)
    inlined = inliner.inline_local_functions(model)
    best = {
        level: min(seconds(partial(Session, file, level)) for _ in range(rounds))
        for level in get_args(OptimizationLevel)
    }
    return {
        "build": build,
        "file": file.name,
        "MB": file.stat().st_size / 1e6,
        "nodes": len(model.graph.node),
        "inlined": len(inlined.graph.node),
        f"of {NODES}": f"{len(inlined.graph.node) / NODES:.0%}",
        **{f"{level}, s": taken for level, taken in best.items()},
        f"worst of {SECONDS} s": f"{max(best.values()) / SECONDS:.0%}",
    }


def main() -> None:
    options = arguments(str(__doc__), rounds=3)
    use_threads()
    with full_size() as files:
        rows = [
            loads(bundle.folder / file, name, options.rounds)
            for name, choices in BUILDS.items()
            for bundle in [compiled(files, name, **choices)]
            for file in ONNX_FILES
        ]
    report("onnx_load", rows, options.json)


if __name__ == "__main__":
    main()
