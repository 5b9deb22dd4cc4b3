"""The same layers in other libraries: plain torch float32 loops, onnxruntime's static int8.

Simulators with interpreters of their own run there, a batch whenever they are asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.mvm import CrossbarMvm

Array = np.ndarray[Any, Any]
Loop = Callable[[], torch.Tensor]


def torch_loops(op: CrossbarMvm, x: Array, device: str = "cpu") -> Loop:
    """One layer in plain torch float32: a product, a round and a clip a group, cycle and slice.

    The digits are ready beforehand, on the device; only the loop is timed.
    """
    crossbar, stored, law = op.crossbar, op.stored, op.crossbar.law
    assert isinstance(law, UniformLaw)

    def there(array: Array) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    weights = [
        (
            there(s.digits).float(),
            there(s.flipped),
            np.any(s.flipped, 1).tolist(),
            2.0**s.shift,
            step,
        )
        for s, step in zip(stored.slices, op.steps, strict=True)
    ]
    drives = [
        (there(digits).float(), float(cycle.factor))
        for digits, cycle in zip(crossbar.digits(x), crossbar.cycles, strict=True)
    ]

    def run() -> torch.Tensor:
        total = torch.zeros(len(x), op.weight.shape[1], device=device)
        for digits, drive in drives:
            for r, group in enumerate(stored.groups):
                driven = digits[:, group]
                row_sum = driven.sum(1, keepdim=True)
                for cells, flipped, turned, factor, step in weights:
                    p = driven @ cells[group]
                    if step is not None:
                        p = torch.floor(p * (1 / step) + 0.5).clamp(law.lo, law.hi) * step
                    if turned[r]:
                        p = torch.where(flipped[r], crossbar.weights.cell_maximum * row_sum - p, p)
                    total += (drive * factor) * p
                total -= (drive * crossbar.weights.offset) * row_sum
        return total

    return run


def int8_session(weights: Sequence[Array], zero_point: int) -> Callable[[Array], object]:
    """A projector of QLinearMatMul nodes, as static quantization makes it: fc1, fc2, two heads.

    Takes a batch of uint8 codes with this zero point, and returns the heads' codes.
    """
    zero = np.array(zero_point, np.uint8)
    constants = [numpy_helper.from_array(np.float32(2.0**-7), "scale")]
    constants += [numpy_helper.from_array(np.float32(8.0), "out")]
    constants += [numpy_helper.from_array(zero, "zero")]
    constants += [numpy_helper.from_array(np.int8(0), "w_zero")]
    constants += [
        numpy_helper.from_array(w.astype(np.int8), f"w{i}") for i, w in enumerate(weights)
    ]
    source = ("x", "y0", "y1", "y1")
    nodes = [
        helper.make_node(
            "QLinearMatMul",
            [source[i], "scale", "zero", f"w{i}", "scale", "w_zero", "out", "zero"], [f"y{i}"],
        )
        for i in range(len(weights))
    ]  # fmt: skip
    element = TensorProto.UINT8
    graph = helper.make_graph(
        nodes, "projector",
        [helper.make_tensor_value_info("x", element, ["n", len(weights[0])])],
        [helper.make_tensor_value_info(f"y{i}", element, None) for i in (2, 3)],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda x: session.run(None, {"x": x})


class Peer:
    """A script of this folder in another interpreter, which runs a batch at each call.

    `versions` are those of its packages. A call takes a tenth of a millisecond more than the batch.
    """

    def __init__(self, python: str, script: str, argument: str) -> None:
        self._command = f"{python} {script}"
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name(script)), argument],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.versions: dict[str, str] = json.loads(self._line())

    def __call__(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._command} ended with status {self._process.wait()}")
        return line

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
