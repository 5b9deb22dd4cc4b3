"""aihwkit's side of `projector.py`, run by an interpreter that has it: `AnalogLinear` layers.

`TorchInferenceRPUConfig` with converters of so many bits and without noise; the argument is JSON.
"""

from __future__ import annotations

import json
import os
import sys

import torch
from aihwkit.nn import AnalogLinear
from aihwkit.simulator.configs import TorchInferenceRPUConfig
from peer_loop import serve


def main() -> None:
    """Make the layers, then run a batch at every line."""
    shape = json.loads(sys.argv[1])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    config = TorchInferenceRPUConfig()
    config.forward.inp_res = config.forward.out_res = 1 / ((1 << shape["bits"]) - 2)
    config.forward.inp_noise = config.forward.out_noise = config.forward.w_noise = 0.0
    config.mapping.max_input_size = config.mapping.max_output_size = shape["rows"]
    layers = [AnalogLinear(k, n, bias=False, rpu_config=config).eval() for k, n in shape["layers"]]
    inputs = [torch.rand(shape["batch"], k) * 2 - 1 for k, _ in shape["layers"]]
    with torch.inference_mode():
        serve(
            lambda: [layer(x) for layer, x in zip(layers, inputs, strict=True)],
            ("aihwkit", "torch"),
        )


if __name__ == "__main__":
    main()
