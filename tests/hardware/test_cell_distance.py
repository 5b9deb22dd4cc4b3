"""The search of a CAM: NumPy's distances where words are sensed without loss, and its limits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from cimtool.base.arrays import Array, IntArray
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.cell_distance import DONT_CARE, CellDistance, DistanceName
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import integer
from cimtool.simulation.simulator import Runner

DISTANCES: tuple[DistanceName, ...] = ("hamming", "l1", "squared")


@st.composite
def searches(draw: st.DrawFn) -> tuple[CellDistance, IntArray]:
    """A search of random words, with the codes of some queries."""
    bits, width = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    items, queries = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    stored = rng.integers(DONT_CARE if draw(st.booleans()) else 0, 1 << bits, (items, width))
    op = CellDistance(
        stored,
        bits,
        draw(st.sampled_from(DISTANCES)),
        draw(st.integers(1, 48)),
        draw(st.integers(1, 5)),
        draw(st.none() | st.integers(1, 20)),
        np.asarray(0.5),
    )
    return op, rng.integers(0, 1 << bits, (queries, width))


def graph_of(op: CellDistance) -> Graph:
    known = integer(("n", op.stored.shape[1]), 0, (1 << op.bits) - 1, 1.0)
    builder = Builder("shortlist", {"text.mu": known})
    return builder.graph({"ed": builder.add("search", op, "text.mu")})


def one_by_one(op: CellDistance, query: IntArray) -> Array:
    """The distances cell by cell, word by word."""
    found = np.zeros((len(query), len(op.stored)), np.int64)
    for n, codes in enumerate(query):
        for m, item in enumerate(op.stored):
            for start in range(0, len(item), op.cells):
                total = 0
                for q, s in list(zip(codes, item, strict=True))[start : start + op.cells]:
                    apart = 0 if s == DONT_CARE else abs(int(q) - int(s))
                    total += {"hamming": int(apart > 0), "l1": apart, "squared": apart**2}[
                        op.distance
                    ]
                code = total // op.step
                found[n, m] += code if op.top is None else min(code, op.top)
    return found


@given(searches())
def test_all_implementations_agree(case: tuple[CellDistance, IntArray]) -> None:
    op, query = case
    graph = graph_of(op)
    expected = graph.run({"text.mu": query})["ed"]
    np.testing.assert_array_equal(expected, one_by_one(op, query))
    known = graph.types["search"]
    assert np.all(expected <= known.hi)
    for runner in (Runner(graph), Runner(graph, device="cpu")):
        np.testing.assert_array_equal(runner.run({"text.mu": query})["ed"], expected)


@given(searches())
def test_onnx_agrees(case: tuple[CellDistance, IntArray]) -> None:
    op, query = case
    graph = graph_of(op)
    expected = graph.run({"text.mu": query})["ed"]
    model, feeds = onnx_model(graph), {"text_mu": query.astype(np.uint8)}
    np.testing.assert_array_equal(Session(file_bytes(model)).run(feeds)["ed"], expected)
    (evaluated,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(evaluated, expected)


@given(searches())
def test_a_cam_that_senses_all_has_the_distances_of_numpy(
    case: tuple[CellDistance, IntArray],
) -> None:
    given_op, query = case
    stored = np.maximum(given_op.stored, 0)
    cells, scale = given_op.cells, given_op.scale
    apart = query[:, None] - stored
    for distance, expected in (
        ("hamming", (query[:, None] != stored).sum(axis=-1)),
        ("l1", np.abs(apart).sum(axis=-1)),
        ("squared", np.square(apart).sum(axis=-1)),
    ):
        op = CellDistance(stored, given_op.bits, distance, cells, 1, None, scale)  # type: ignore[arg-type]
        assert op.plain_sum
        fast = Runner(graph_of(op)).run({"text.mu": query})["ed"]
        np.testing.assert_array_equal(fast, expected)
        np.testing.assert_array_equal(op.run(query), expected)


def test_a_dont_care_differs_from_no_value() -> None:
    op = CellDistance(np.array([[DONT_CARE, 1, 0]]), 1, "hamming", 64, 1, None, np.asarray(1.0))
    np.testing.assert_array_equal(op.run(np.array([[0, 1, 0], [1, 0, 1]])), [[0], [2]])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"distance": "cosine"}, "distance = cosine, bits = 1: of no cell"),
        ({"bits": 60}, "bits = 60: of no cell"),
        ({"cells": 0}, "cells = 0, step = 1, top = None: below 1"),
        ({"step": 0}, "step = 0"),
        ({"top": -1}, "top = -1"),
        ({"stored": np.array([[0, 2]])}, "stored: expected codes from -1 to 1"),
        ({"stored": np.zeros((0, 3), np.int64)}, "expected items and cells"),
    ],
)
def test_fields_of_no_search_are_refused(changed: dict[str, Any], said: str) -> None:
    op = CellDistance(np.array([[0, 1]]), 1, "l1", 64, 1, None, np.asarray(1.0))
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(op, **changed)


@pytest.mark.parametrize(("step", "top", "expected"), [(4, None, 1 + 2), (1, 7, 7 + 7), (5, 9, 2)])
def test_a_word_is_converted_by_itself(step: int, top: int | None, expected: int) -> None:
    """Distances of 7 and 8 in two words of eight cells."""
    stored = np.array([[0] + [1] * 15])
    op = CellDistance(stored, 1, "hamming", 8, step, top, np.asarray(1.0))
    assert op.run(np.zeros((1, 16), np.int64)).item() == expected
