"""The lossless product by ONNX Runtime, on CPUs where its kernels of bytes are the faster ones.

A short measurement at first use says where, for each class of extents. The integers are the same.
`torch._int_mm` is no faster than the library, and torch takes long to load: it is not a candidate.
"""

from __future__ import annotations

import functools
import math
import os
import warnings

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError, CimWarning
from cimtool.simulation.kernels.choice import (
    ROW_BLOCK,
    Kernel,
    Kind,
    exact_product,
    extreme_rows,
    in_blocks,
    warn_of,
)
from cimtool.simulation.kernels.measured import faster, ratio
from cimtool.simulation.kernels.tiles import VNNI_BITS

LOSSLESS = "CIMTOOL_LOSSLESS"
"""The environment variable that names the kernel, where none is to be measured."""

OWN, LIBRARY = "own", "onnxruntime"

BYTES = (0, 255)
"""Inputs of the library's product."""

SMALLEST, LARGEST = 8, 12
"""Extents, as powers of two, below which it is never taken, and those measured at most."""


def asked() -> str:
    """The kernel that the environment asks for, or nothing; CimError for one that is not known."""
    name = os.environ.get(LOSSLESS, "")
    if name not in ("", OWN, LIBRARY):
        raise CimError(f"{LOSSLESS} is {name}; expected {OWN} or {LIBRARY}")
    return name


def takes(weight: IntArray, limits: tuple[int, int]) -> bool:
    """Tell whether the library's product of weights [K, N], inputs within limits, is to be used.

    Warns, once for each reason, where it is asked for and cannot be used. Raises CimError as
    `asked`.
    """
    name = asked()
    if name == OWN:
        return False
    obstacle = _obstacle(weight, limits)
    if obstacle is not None:
        return name == LIBRARY and _warn(obstacle)
    if not _right():
        return False
    return name == LIBRARY or _faster(*(_size_class(extent) for extent in weight.shape))


def _obstacle(weight: IntArray, limits: tuple[int, int]) -> str | None:
    """The reason why the library's product is not for a layer; None where it is."""
    if min(weight.shape) < 1 << SMALLEST:
        return f"a layer has fewer than {1 << SMALLEST} inputs or outputs"
    lo, hi = limits
    if hi - lo > BYTES[1] or weight.min() < -128 or weight.max() > 127:
        return "a layer has inputs or weights of more than 8 bits"
    return None if VNNI_BITS else "this CPU has no VNNI, or it is switched off"


@functools.cache
def _warn(obstacle: str) -> bool:
    """Say once why another kernel is used; False, for the library's is not."""
    warnings.warn(
        f"{LOSSLESS} is {LIBRARY}, but {obstacle}; {OWN} is used there",
        CimWarning,
        stacklevel=2,
    )
    return False


def _size_class(extent: int) -> int:
    return min(extent.bit_length() - 1, LARGEST)


def product(
    weight: IntArray, bias: IntArray, limits: tuple[int, int], kind: Kind = np.int32
) -> Kernel:
    """`x @ weight + bias`, modulo 2^32, of inputs [n, K] within limits: [n, N] of a kind."""
    import onnxruntime  # with onnx slow to load, for layers without converters alone
    from onnx import TensorProto, helper, numpy_helper

    lift = -limits[0]
    start = (bias - lift * weight.sum(axis=0)).astype(np.int32)
    nodes = [
        helper.make_node("MatMulInteger", ["x", "weight"], ["sums"]),
        helper.make_node("Add", ["sums", "start"], ["y"]),
    ]
    constants = {"weight": weight.astype(np.int8), "start": start}
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", len(weight)])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["n", weight.shape[1]])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # blocks of rows have them
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def fill(x: Array, out: Array) -> None:
        lifted = x if x.dtype == np.uint8 and not lift else (x + np.int32(lift)).astype(np.uint8)
        out[:] = session.run(None, {"x": np.ascontiguousarray(lifted)})[0]

    return in_blocks(fill, weight.shape[1], kind)


@functools.cache
def _right() -> bool:
    """True where the library adds the largest products exactly: without VNNI its sums saturate."""
    x = extreme_rows(BYTES, 130)
    weight = extreme_rows((-128, 127), 130).T
    right = np.array_equal(
        product(weight, np.zeros(weight.shape[1], np.int64), BYTES)(x), x @ weight
    )
    return right or warn_of("ONNX Runtime product")


@functools.cache
def _faster(rows: int, columns: int) -> bool:
    """Tell whether the library is the faster for 2^rows by 2^columns weights; measured once."""
    import onnxruntime

    key = f"onnxruntime {onnxruntime.__version__}, {1 << rows}x{1 << columns}"
    return faster(key, lambda: _measured(1 << rows, 1 << columns))


def _measured(rows: int, columns: int) -> float:
    """The rate of the library over that of the own kernel."""
    rng = np.random.default_rng(0)
    weight, bias = rng.integers(-127, 128, (rows, columns)), np.zeros(columns, np.int64)
    x = rng.integers(*BYTES, (ROW_BLOCK, rows), np.uint8, endpoint=True)
    own, other = exact_product(weight, bias, BYTES, np.int32), product(weight, bias, BYTES)
    return math.inf if own is None else ratio(lambda: other(x), lambda: own(x))
