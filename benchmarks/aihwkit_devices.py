"""aihwkit's side of `agreement.py`, run by an interpreter that has it: moments, and one product.

Each case is NAME.json: of devices `model` of `aihwkit.inference`, `targets` in uS, `seconds` and
`count`, whose conductances [targets, count] go to NAME.out.npy; or, with NAME.npz beside it, of a
quantized product with these bounds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from aihwkit import inference
from aihwkit.nn import AnalogLinear
from aihwkit.simulator.configs import TorchInferenceRPUConfig
from aihwkit.simulator.parameters.enums import BoundManagementType, NoiseManagementType


def devices(case: dict[str, Any]) -> np.ndarray:
    """Conductances in uS of devices that are written, and read so much later."""
    model = getattr(inference, str(case["model"]))(**case["arguments"])
    found = []
    for target in case["targets"]:
        asked = torch.full((int(case["count"]),), float(target))
        written = model.apply_programming_noise_to_conductance(asked)
        nu = model.generate_drift_coefficients(asked)
        found.append(model.apply_drift_noise_to_conductance(written, nu, float(case["seconds"])))
    conductances: np.ndarray = torch.stack(found).numpy()
    return conductances


def product(case: dict[str, Any], weight: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Outputs [n, N] of an array with quantized inputs and outputs, and nothing else."""
    config = TorchInferenceRPUConfig()
    forward = config.forward
    forward.noise_management = NoiseManagementType.NONE
    forward.bound_management = BoundManagementType.NONE
    forward.inp_bound, forward.out_bound = 1.0, float(case["out_bound"])
    forward.inp_res = 1 / ((1 << int(case["input_bits"])) - 2)
    forward.out_res = 1 / ((1 << int(case["output_bits"])) - 2)
    forward.inp_noise = forward.out_noise = forward.w_noise = 0.0
    config.mapping.max_input_size = config.mapping.max_output_size = 0
    config.mapping.weight_scaling_omega = 0.0
    config.mapping.learn_out_scaling = False
    layer = AnalogLinear(*weight.shape, bias=False, rpu_config=config).eval()
    layer.set_weights(torch.tensor(weight.T, dtype=torch.float32), torch.zeros(weight.shape[1]))
    with torch.inference_mode():
        found: np.ndarray = layer(torch.tensor(inputs, dtype=torch.float32)).numpy()
    return found


def main() -> None:
    """Compute every case of the folder that is given."""
    torch.manual_seed(0)
    for file in sorted(Path(sys.argv[1]).glob("*.json")):
        case, arrays = json.loads(file.read_text()), file.with_suffix(".npz")
        if arrays.is_file():
            with np.load(arrays) as held:
                found = product(case, held["weight"], held["inputs"])
        else:
            found = devices(case)
        np.save(file.with_suffix(".out.npy"), found)


if __name__ == "__main__":
    main()
