"""aihwkit's side of `projector.py`, run by an interpreter that has it: prints seconds a batch."""

from __future__ import annotations

import json
import os
import sys
import time

import torch
from aihwkit.nn import AnalogLinear
from aihwkit.simulator.configs import TorchInferenceRPUConfig

ROUNDS = 5


def main() -> None:
    shape = json.loads(sys.argv[1])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    config = TorchInferenceRPUConfig()
    config.forward.inp_res = config.forward.out_res = 1 / ((1 << shape["bits"]) - 2)
    config.forward.inp_noise = config.forward.out_noise = config.forward.w_noise = 0.0
    config.mapping.max_input_size = config.mapping.max_output_size = shape["rows"]
    layers = [AnalogLinear(k, n, bias=False, rpu_config=config).eval() for k, n in shape["layers"]]
    inputs = [torch.rand(shape["batch"], k) * 2 - 1 for k, _ in shape["layers"]]
    best = float("inf")
    with torch.inference_mode():
        for _ in range(ROUNDS + 1):
            start = time.perf_counter()
            for layer, x in zip(layers, inputs, strict=True):
                layer(x)
            best = min(best, time.perf_counter() - start)
    print(best)


if __name__ == "__main__":
    main()
