"""Products of a query with raw rows in ONNX Runtime are the integers that they should be."""

from __future__ import annotations

import numpy as np

from cimtool.emit.row_products import row_products
from cimtool.emit.runtime import Session


def test_products_are_exact() -> None:
    drawn = np.random.default_rng(3)
    rows = drawn.integers(-127, 128, (40, 300), dtype=np.int8)
    query = drawn.integers(1, 256, (1, 40), dtype=np.uint8)
    found = Session(row_products(rows)).run({"query": query})["products"]
    assert np.array_equal(found, (query.astype(int) - 128) @ rows.astype(int))
