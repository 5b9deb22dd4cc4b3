"""The first-order model of IR drop against a nodal solve of the whole array."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import splu

from cimtool.base.errors import CimError
from cimtool.hardware.noise.mechanisms.arrays import LARGEST_DROP, IrDrop
from cimtool.hardware.noise.model import ArrayState

FULL = 20.0


def state(g: np.ndarray) -> ArrayState:
    """An array of conductances [rows, columns] that holds a layer; wires see no more of it."""
    rng = np.random.default_rng(0)
    return ArrayState(np.zeros(g.shape), np.ones(g.shape[1]), 3, FULL, 0.0, rng, "text.fc1")


class Nodes:
    """Conductances between nodes, summed into the matrix of node equations."""

    def __init__(self, count: int):
        self.count = count
        self.rows: list[np.ndarray] = []
        self.columns: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    def join(self, a: np.ndarray, b: np.ndarray, g: np.ndarray) -> None:
        for at, to, value in ((a, a, g), (b, b, g), (a, b, -g), (b, a, -g)):
            self._add(at, to, value)

    def hold(self, a: np.ndarray, g: np.ndarray) -> None:
        self._add(a, a, g)

    def _add(self, at: np.ndarray, to: np.ndarray, value: np.ndarray) -> None:
        self.rows.append(at.ravel())
        self.columns.append(to.ravel())
        self.values.append(np.broadcast_to(value, at.shape).ravel())

    def matrix(self) -> coo_matrix:
        parts = (np.concatenate(part) for part in (self.values, self.rows, self.columns))
        values, rows, columns = parts
        return coo_matrix((values, (rows, columns)), (self.count, self.count))


def column_currents(g: np.ndarray, volts: np.ndarray, ohms: float) -> np.ndarray:
    """Currents [n, columns] in uA of an array of `g` [rows, columns] uS at `volts` [n, rows]."""
    height, width = g.shape
    row = np.arange(height * width).reshape(height, width)
    column = row + height * width
    wire = 1e6 / ohms
    nodes = Nodes(2 * height * width)
    nodes.join(row, column, g)
    nodes.join(row[:, :-1], row[:, 1:], np.asarray(wire))
    nodes.join(column[:-1], column[1:], np.asarray(wire))
    nodes.hold(row[:, 0], np.asarray(wire))
    nodes.hold(column[-1], np.asarray(wire))
    driven = np.zeros((2 * height * width, len(volts)))
    driven[row[:, 0]] = wire * volts.T
    solved = splu(nodes.matrix().tocsc()).solve(driven)
    return solved[column[-1]].T * wire


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("largest", [0.02, LARGEST_DROP * 0.95])
def test_column_currents_are_those_of_a_nodal_solve(size: int, largest: float) -> None:
    rng = np.random.default_rng(size)
    g = FULL * rng.random((size, size)) ** 3
    ohms = largest / IrDrop(wire_resistance=1.0).drop(g).max()
    model = IrDrop(wire_resistance=ohms)
    volts = rng.integers(0, 2, (12, size)).astype(float)
    exact, ideal = column_currents(g, volts, ohms), volts @ g
    found = volts @ model.effective(g, state(g))
    lost = np.abs(ideal - exact).max() / ideal.max()
    wrong = np.abs(found - exact).max() / ideal.max()
    assert lost > largest / 4
    # What is left is of second order: a share of the loss that shrinks with the drop.
    assert wrong < 1.1 * largest * lost


def test_the_error_is_of_second_order() -> None:
    rng = np.random.default_rng(1)
    g, volts = FULL * rng.random((64, 64)), rng.random((5, 64))
    errors = []
    for ohms in (0.02, 0.04):
        effective = IrDrop(wire_resistance=ohms).effective(g, state(g))
        errors.append(np.abs(volts @ effective - column_currents(g, volts, ohms)).max())
    assert 3.5 < errors[1] / errors[0] < 4.5


def test_rows_that_are_cut_off_take_no_current_back() -> None:
    g = np.full((16, 4), FULL)
    whole, half = (IrDrop(wire_resistance=1.0, drive=d).drop(g) for d in (1.0, 0.5))
    rows_only = IrDrop(wire_resistance=1.0, drive=0.0).drop(g)
    np.testing.assert_allclose(half, (whole + rows_only) / 2)


def test_wires_that_drop_too_much_are_refused() -> None:
    g = np.full((128, 128), FULL)
    with pytest.raises(CimError, match=r"wire_resistance = 1: wires of text\.fc1 would drop up to"):
        IrDrop(wire_resistance=1.0).effective(g, state(g))


def test_no_wires_no_drop() -> None:
    g = np.full((8, 8), FULL)
    np.testing.assert_allclose(IrDrop(wire_resistance=1e-12).effective(g, state(g)), g, rtol=1e-12)
