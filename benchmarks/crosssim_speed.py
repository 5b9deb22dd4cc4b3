"""CrossSim's side of `projector.py`, run by an interpreter that has it: layers in `AnalogCore`s.

The folder that is given has `parameters.json`, by dotted names, and `layers.npz`: `weight0` [K, N],
`inputs0` [n, K] and so on. Batches are run in float32, the faster form; the outputs of the first
`CHECKED` inputs [n, N] go to `outputs.npz`, in float64, which rounds halves as it should.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from crosssim_peer import parameters_of
from peer_loop import serve
from simulator import AnalogCore

CHECKED = 4


def main() -> None:
    """Program the cores, then run a batch at every line."""
    folder = Path(sys.argv[1])
    values = json.loads((folder / "parameters.json").read_text())
    with np.load(folder / "layers.npz") as arrays:
        found = {name: np.ascontiguousarray(arrays[name].T) for name in arrays.files}
    layers = [(found[f"weight{i}"], found[f"inputs{i}"]) for i in range(len(found) // 2)]

    def core(weight: np.ndarray, kind: type) -> AnalogCore:
        return AnalogCore(weight.astype(kind), parameters_of(values))

    exact = [core(weight, np.float64).matmat(x[:, :CHECKED] * 1.0) for weight, x in layers]
    np.savez(folder / "outputs.npz", *(y.T for y in exact))
    ready = [(core(weight, np.float32), x.astype(np.float32)) for weight, x in layers]
    serve(lambda: [one.matmat(x) for one, x in ready], ("CrossSim", "numpy"))


if __name__ == "__main__":
    main()
