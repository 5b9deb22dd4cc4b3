from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from settled_towers import (
    WIDTH,
    branch_content,
    branches,
    poly_file,
    polynomial,
    trunks,
)

__all__ = ["branch_content", "branches", "poly_file", "polynomial", "trunks"]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def write_onnx(tmp_path: Path) -> Callable[..., Path]:
    """Writes a projector's ONNX file: rows `x` [n, 6] through `nodes` to `outputs`, all floats."""

    def write(
        nodes: list[onnx.NodeProto],
        weights: dict[str, np.ndarray],
        outputs: tuple[str, ...] = ("mu", "logvar"),
        name: str = "text.onnx",
        shape: tuple[str | int, ...] = ("n", WIDTH),
        kind: int = TensorProto.FLOAT,
        opset: int = 17,
    ) -> Path:
        graph = helper.make_graph(
            nodes,
            "projector",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(name, kind, ("n", "d")) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        others = ("com.example", "com.microsoft", "qonnx.custom_op.general")
        domains = [helper.make_opsetid("", opset), *(helper.make_opsetid(o, 1) for o in others)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=8)
        onnx.save(model, str(tmp_path / name))
        return tmp_path / name

    return write
