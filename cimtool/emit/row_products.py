"""The products of one query with many raw rows in 8 bits as an ONNX file, to be timed."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array
from cimtool.emit.writer import GraphWriter


def row_products(rows: Array) -> bytes:
    """The file that takes `query` uint8 [1, d], with zero at 128, to products with int8 `rows`.

    `rows` [d, M] are a constant, which ONNX Runtime packs once for its kernels.
    """
    width, items = rows.shape
    writer = GraphWriter()
    zero = writer.constant(np.uint8(128), "UINT8")
    found = writer.node("MatMulInteger", "query", writer.constant(rows, "INT8"), zero)
    writer.name_output(found, "products")
    ports = {"query": ("UINT8", (1, width))}, {"products": ("INT32", (1, items))}
    content: bytes = writer.model("rows", *ports).SerializeToString()
    return content
