"""CrossSim's side of `agreement.py`, run by an interpreter that has it: outputs of each case.

A case is NAME.json (`parameters` by dotted names) beside NAME.npz (`weight` [K, N], `inputs`
[n, K]); `trials` chips are made of it. Its outputs [trials, n, N] go to NAME.out.npy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from simulator import AnalogCore, CrossSimParameters


def parameters_of(values: dict[str, Any]) -> CrossSimParameters:
    """CrossSim's parameters with some of them changed."""
    found = CrossSimParameters()
    for name, value in values.items():
        *path, last = name.split(".")
        owner = found
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)
    return found


def outputs_of(case: dict[str, Any], weight: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Outputs [trials, n, N] of so many chips."""
    found = []
    for _ in range(int(case["trials"])):
        core = AnalogCore(weight.T.astype(np.float64), parameters_of(case["parameters"]))
        found.append([core.matvec(x) for x in inputs.astype(np.float64)])
    return np.array(found)


def main() -> None:
    """Compute every case of the folder that is given."""
    np.random.seed(0)
    for file in sorted(Path(sys.argv[1]).glob("*.json")):
        with np.load(file.with_suffix(".npz")) as arrays:
            case = json.loads(file.read_text())
            found = outputs_of(case, arrays["weight"], arrays["inputs"])
        np.save(file.with_suffix(".out.npy"), found)


if __name__ == "__main__":
    main()
