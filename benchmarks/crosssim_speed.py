"""CrossSim's side of `projector.py`, run by an interpreter that has it: layers in `AnalogCore`s.

The folder that is given has `parameters.json`, by dotted names, and `layers.npz`: `weight0` [K, N],
`inputs0` [n, K] and so on. Batches are run in float32, the faster form; the outputs of the first
`CHECKED` inputs [n, N] go to `outputs.npz`, in float64, which rounds halves as it should. With
`simulation.useGPU` CuPy computes, on inputs that are on the GPU already.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from crosssim_peer import parameters_of
from peer_loop import serve
from simulator import AnalogCore
from simulator.backend import ComputeBackend

CHECKED = 4


def main() -> None:
    """Program the cores, then run a batch at every line."""
    folder = Path(sys.argv[1])
    values = json.loads((folder / "parameters.json").read_text())
    with np.load(folder / "layers.npz") as arrays:
        found = {name: np.ascontiguousarray(arrays[name].T) for name in arrays.files}
    layers = [(found[f"weight{i}"], found[f"inputs{i}"]) for i in range(len(found) // 2)]

    def ready(weight: np.ndarray, x: np.ndarray, kind: type) -> tuple[AnalogCore, Any]:
        core = AnalogCore(weight.astype(kind), parameters_of(values))
        return core, ComputeBackend().asarray(x.astype(kind))

    exact = [ready(weight, x[:, :CHECKED], np.float64) for weight, x in layers]
    outputs = [core.matmat(x).T for core, x in exact]
    fast = [ready(weight, x, np.float32) for weight, x in layers]
    if values.get("simulation.useGPU"):
        import cupy

        np.savez(folder / "outputs.npz", *map(cupy.asnumpy, outputs))
        finish, packages = cupy.cuda.Device().synchronize, ("CrossSim", "cupy-cuda13x")
    else:
        np.savez(folder / "outputs.npz", *outputs)
        finish, packages = (lambda: None), ("CrossSim", "numpy")

    def batch() -> None:
        for core, x in fast:
            core.matmat(x)
        finish()

    serve(batch, packages)


if __name__ == "__main__":
    main()
