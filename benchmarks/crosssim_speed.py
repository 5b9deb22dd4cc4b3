"""CrossSim's side of `projector.py`, run by an interpreter that has it: layers in `AnalogCore`s.

The folder that is given has `parameters.json`, by dotted names, and `layers.npz`: `weight0` [K, N],
`inputs0` [n, K] and so on. Weights and inputs are taken in float32, the faster form; what the first
batch gives [n, N] goes to `outputs.npz`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from crosssim_peer import parameters_of
from peer_loop import serve
from simulator import AnalogCore


def main() -> None:
    """Program the cores, then run a batch at every line."""
    folder = Path(sys.argv[1])
    values = json.loads((folder / "parameters.json").read_text())
    with np.load(folder / "layers.npz") as arrays:
        found = {name: arrays[name].T.astype(np.float32) for name in arrays.files}
    count = len(found) // 2
    cores = [AnalogCore(found[f"weight{i}"], parameters_of(values)) for i in range(count)]
    inputs = [np.ascontiguousarray(found[f"inputs{i}"]) for i in range(count)]

    def run() -> list[np.ndarray]:
        return [core.matmat(x) for core, x in zip(cores, inputs, strict=True)]

    np.savez(folder / "outputs.npz", *(y.T for y in run()))
    serve(run, ("CrossSim", "numpy"))


if __name__ == "__main__":
    main()
