"""The tables of rules of passes and backends: each one's own module fills its table.

A package that adds an operation registers a rule for it here, and imports no pass and no backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cimtool.base.arrays import Array
from cimtool.ir.op import Level
from cimtool.ir.rules import Rules

FOLD: Rules[Callable[..., str]] = Rules("fold", Level.TRAINED)
LOWER: Rules[Callable[..., str]] = Rules("lower", Level.FLOAT)
QUANTIZE: Rules[Callable[..., str]] = Rules("quantize", Level.MAC)
"""`rule(builder, op, node, inputs)` appends the node's form at the next level and returns the name
of its value. The builder is the pass's own (`passes/fold.py`, `passes/lowering.py`,
`passes/quantize.py`); `keep` of `ir/program.py` is the rule of what stays as it is."""

ONNX: Rules[Callable[..., str]] = Rules("ONNX", Level.FLOAT, Level.CROSSBAR)
"""`rule(writer, op, types, *inputs)` appends nodes and returns the name of the result
(`emit/operations.py`)."""

KERNELS: Rules[Callable[..., Callable[..., Array]]] = Rules("CPU kernels", *Level)
"""`rule(op, types, known)` returns a function of arrays (`simulation/kernels/operations.py`). The
rule for `Op` is an operation's readable `run`, so that the table is always complete."""

TORCH: Rules[Callable[..., Callable[..., Any]]] = Rules("torch", Level.CROSSBAR)
"""`rule(op, types, device)` returns a function of tensors (`simulation/torch_device.py`)."""

COSTS: Rules[Callable[..., Any]] = Rules("costs", Level.CROSSBAR)
"""`rule(op, types, known, extents)` returns the digital `Operations` (`costs/operations.py`)."""

STRAIGHT_THROUGH: Rules[Callable[..., Any]] = Rules("straight-through training", Level.MAC)
"""`rule(op, site, *inputs)` returns a tensor (`training/hardware/straight_through.py`)."""
