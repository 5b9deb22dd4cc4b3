"""The lossless product by ONNX Runtime, on CPUs where its kernels of bytes are the faster ones.

A short measurement at first use says where, for each class of extents. It is kept beside the
compiled kernels by the CPU's name. The integers are the same.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from llvmlite import binding

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.base.folders import read_object
from cimtool.simulation.kernels import dot
from cimtool.simulation.kernels.choice import ROW_BLOCK, Kernel, extreme_rows, warn_of
from cimtool.simulation.kernels.fused import exact_layer
from cimtool.simulation.kernels.tiles import DOT_BITS

LOSSLESS = "CIMTOOL_LOSSLESS"
"""The environment variable that names the kernel, where none is to be measured."""

OWN, LIBRARY = "own", "onnxruntime"

KEPT = "lossless.json"
"""The file of choices: a kernel's name by the CPU's, the library's version and the extents."""

BYTES = (0, 255)
"""Inputs of the library's product."""

SMALLEST, LARGEST = 8, 12
"""Extents, as powers of two, below which it is never taken, and those measured at most."""

ROUNDS = 9
GAIN = 1.1
"""The library is taken where it is so many times faster: what is near stays as it is."""


def takes(weight: IntArray, limits: tuple[int, int]) -> bool:
    """Tell whether the library's product of weights [K, N], inputs within limits, is to be used.

    Raises CimError where the environment names a kernel that is none.
    """
    lo, hi = limits
    narrow = hi - lo <= BYTES[1] and weight.min() >= -128 and weight.max() <= 127
    if not narrow or min(weight.shape) < 1 << SMALLEST:
        return False
    asked = os.environ.get(LOSSLESS, "")
    if asked not in ("", OWN, LIBRARY):
        raise CimError(f"{LOSSLESS} is {asked}; expected {OWN} or {LIBRARY}")
    if asked == OWN or not (DOT_BITS and _right()):
        return False
    return asked == LIBRARY or _faster(*(_size_class(extent) for extent in weight.shape))


def _size_class(extent: int) -> int:
    return min(extent.bit_length() - 1, LARGEST)


def product(weight: IntArray, bias: IntArray, limits: tuple[int, int]) -> Callable[[Array], Array]:
    """`x @ weight + bias`, modulo 2^32, of inputs [n, K] within limits: int32 [n, N]."""
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

    def run(x: Array) -> Array:
        lifted = x if x.dtype == np.uint8 and not lift else (x + np.int32(lift)).astype(np.uint8)
        found: Array = session.run(None, {"x": np.ascontiguousarray(lifted)})[0]
        return found

    return run


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

    key = f"{binding.get_host_cpu_name()}, {onnxruntime.__version__}, {1 << rows}x{1 << columns}"
    file = _cache_file()
    known = _kept(file)
    if key not in known:
        known[key] = LIBRARY if _measured(1 << rows, 1 << columns) >= GAIN else OWN
        _keep(file, known)
    return known[key] == LIBRARY


def _cache_file() -> Path | None:
    """The file in the folder that numba keeps this package's kernels in; None without one."""
    folder = dot.run.stats.cache_path  # type: ignore[attr-defined]
    return Path(folder) / KEPT if folder else None


def _kept(file: Path | None) -> dict[str, str]:
    """Choices of earlier processes; none where the file cannot be read."""
    return {} if file is None else read_object(file) or {}


def _keep(file: Path | None, known: dict[str, str]) -> None:
    """Keep choices for the next process, where the folder can be written."""
    if file is None:
        return
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError:
        pass  # it is measured again


def _measured(rows: int, columns: int) -> float:
    """Time of the own kernel over that of the library, each the best of some rounds."""
    rng = np.random.default_rng(0)
    weight, bias = rng.integers(-127, 128, (rows, columns)), np.zeros(columns, np.int64)
    x = rng.integers(*BYTES, (ROW_BLOCK, rows), np.uint8, endpoint=True)
    layer = exact_layer(weight, bias, BYTES)
    cells, out = dot.pack(layer), np.empty((ROW_BLOCK, columns), np.int32)
    kernels: dict[str, Kernel] = {
        OWN: lambda x: dot.run(
            x.astype(np.int32), layer.bounds, layer.drive, layer.epilogue, cells, out
        ),
        LIBRARY: product(weight, bias, BYTES),
    }
    taken: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(1 + ROUNDS):
        for name, kernel in kernels.items():
            start = time.thread_time()
            kernel(x)
            taken[name].append(time.thread_time() - start)
    own, library = (min(taken[name][1:]) for name in (OWN, LIBRARY))
    return own / library
