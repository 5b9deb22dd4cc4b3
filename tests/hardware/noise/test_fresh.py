"""Fresh noise by column variances against a new noisy matrix a read, and its normal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import kstest, norm

from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.noise.fresh import cholesky, conversion_keys, fresh_noise, normals, row_keys
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.weight_codes import Slice

SIGMA = 0.05
DIES = 3000
FINE = 6


def matrix_reads(op: NoisyMvm, x: np.ndarray, redraw: str, reads: int) -> np.ndarray:
    """Outputs [reads, n, N]: each read multiplies every cell by 1 + sigma z, z anew."""
    rng = np.random.default_rng(7)
    perfect = op.perfect
    digits = [s.digits for s in perfect.stored.slices]
    cells = replace(op.layer.cells, fraction_bits=FINE, leak=0)
    found = np.empty((reads, len(x), perfect.weight.shape[1]), np.int64)
    cycles = 4 if redraw == "cycle" else 1
    for read in range(reads):
        for i in range(len(x)):
            total = 0
            for c in range(cycles):
                noisy = tuple(
                    Slice(np.rint(d * (1 + SIGMA * rng.standard_normal(d.shape)) * (1 << FINE))
                          .astype(np.int64), s.flipped, s.shift, s.sign)
                    for d, s in zip(digits, cells.slices, strict=True)
                )  # fmt: skip
                row = x[i : i + 1]
                if redraw == "cycle":  # the digits that this cycle alone drives
                    row = (x[i : i + 1] >> c & 1) << c
                on_die = replace(op.layer, cells=replace(cells, slices=noisy))
                total = total + layer_mvm(row, on_die)
            found[read, i] = total[0]
    return found


def dies_of(kit: SimpleNamespace, redraw: str, dies: int = 1) -> Iterator[NoisyMvm]:
    """One group of 12 rows of offset cells and unsigned one-bit cycles, without converters."""
    hardware = kit.crossbar(
        rows=None, encoding="differential", cell_bits=5, weight_bits=6, dac_bits=1, input_bits=4,
        input_encoding="unsigned", adc_bits=None,
    )  # fmt: skip
    op = kit.layer(hardware, 12, 4)
    op = replace(op, bias=np.zeros_like(op.bias))
    noise = kit.noise(read={"sigma": SIGMA, "redraw": redraw})
    return (kit.on_die(op, noise, index=index) for index in range(dies))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 16, (3, 12))


@pytest.fixture(scope="module")
def products(kit: SimpleNamespace, x: np.ndarray) -> dict[str, np.ndarray]:
    """Outputs [DIES, n, N] of the same rows on many dies, by when devices are redrawn."""
    return {
        redraw: np.stack([die.run(x) for die in dies_of(kit, redraw, DIES)])
        for redraw in ("mvm", "cycle")
    }


@pytest.mark.thorough("a statistical check over many draws")
@pytest.mark.parametrize("redraw", ["mvm", "cycle"])
def test_mean_variance_and_correlation_are_those_of_the_slow_way(
    kit: SimpleNamespace, x: np.ndarray, products: dict[str, np.ndarray], redraw: str
) -> None:
    fast = products[redraw]
    slow = matrix_reads(next(dies_of(kit, redraw)), x, redraw, 600)
    exact = x @ next(dies_of(kit, redraw)).perfect.weight
    for found in (fast, slow):
        spread = found.std(axis=0)
        assert (
            np.abs(found.mean(axis=0) - exact) < 4.5 * spread / np.sqrt(len(found)) + 0.05
        ).all()
    ratio = fast.var(axis=0) / slow.var(axis=0)
    assert (np.abs(ratio - 1) < 4.5 * np.sqrt(2 / 600 + 2 / DIES)).all()
    assert abs(ratio.mean() - 1) < 0.06
    for found in (fast, slow):
        of_queries = np.corrcoef(found.reshape(len(found), -1).T)
        others = ~np.eye(len(of_queries), dtype=bool)
        assert np.abs(of_queries[others]).max() < 4.5 / np.sqrt(len(found))


@pytest.mark.thorough("a statistical check over many draws")
def test_a_device_that_keeps_its_error_through_the_cycles_adds_up(
    kit: SimpleNamespace, x: np.ndarray, products: dict[str, np.ndarray]
) -> None:
    """Errors of cycles that share devices add as x, those of others as the roots of squares."""
    kept, anew = (products[redraw].var(axis=0) for redraw in ("mvm", "cycle"))
    weight = next(dies_of(kit, "mvm")).perfect.weight
    bits = np.stack([(x >> c & 1) << c for c in range(4)])
    np.testing.assert_allclose(kept, SIGMA**2 * (x**2 @ weight**2), rtol=0.15)
    np.testing.assert_allclose(anew, SIGMA**2 * ((bits**2).sum(axis=0) @ weight**2), rtol=0.15)


def test_die_noise_correlates_all_queries_of_a_die(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=5, adc_bits=None), 40, 4)
    x = kit.inputs(op, 2)
    x[1] = x[0] + np.arange(40) % 2  # nearly the same query
    noise = kit.noise(programming={"sigma": [0.5]})
    found = np.stack([kit.on_die(op, noise, index=i).run(x) for i in range(300)])
    off = found - x @ op.weight - op.bias
    for column in range(4):
        assert np.corrcoef(off[:, 0, column], off[:, 1, column])[0, 1] > 0.9
    # The variance is that of the cells: both devices of 40 pairs, each 0.5 uS.
    unit = 20.0 / 31
    devices = 0.5**2 / unit**2
    assert (off[:, 0].var(axis=0) < 2 * devices * (x[0] ** 2).sum()).all()
    assert (off[:, 0].var(axis=0) > devices * (x[0] ** 2).sum()).all()


def test_a_cholesky_factor_times_itself_is_the_matrix() -> None:
    rng = np.random.default_rng(0)
    draws = rng.random((5, 3, 8)).astype(np.float32)
    matrix = np.einsum("akn,bkn->abn", draws, draws)  # of rank 3: two pivots vanish
    factor = cholesky([[matrix[a, b] for b in range(a + 1)] for a in range(5)])
    full = np.zeros_like(matrix)
    for a in range(5):
        for b in range(a + 1):
            full[a, b] = factor[a][b]
    np.testing.assert_allclose(np.einsum("abn,cbn->acn", full, full), matrix, atol=2e-3)


def cells_like(variance: list[np.ndarray], hardware: Crossbar) -> Cells:
    empty = Slice(np.zeros(variance[0].shape, np.int8), np.zeros((1, 1), bool), 0, 1)
    return Cells(hardware, (empty,) * len(variance), 6, 0)


@pytest.mark.parametrize("top", [1, 15, 255, 65535])
def test_variances_stay_exact_and_hardly_rounded(kit: SimpleNamespace, top: int) -> None:
    bits = int(top).bit_length()
    hardware = kit.crossbar(
        rows=None, input_bits=bits, dac_bits=bits, input_encoding="unsigned", shift_add="analog"
    )
    rng = np.random.default_rng(top)
    variance = [(0.01 * rng.random((256, 30))).astype(np.float32) for _ in range(3)]
    found = fresh_noise(variance, cells_like(variance, hardware), 1, False)
    assert found.bits % 2 == 0
    for rounded, exact in zip(found.variance, variance, strict=True):
        sums = rounded.astype(np.int64).sum(axis=0)
        assert sums.max() * top**2 < 1 << 53
        np.testing.assert_allclose(sums / 2.0**found.bits, exact.sum(axis=0), rtol=0.02)


def test_the_variance_of_one_cell_among_many_is_kept(kit: SimpleNamespace) -> None:
    variance = [np.zeros((64, 40_000), np.float32) for _ in range(8)]
    variance[0][0, 0] = 1.0
    cells = cells_like(variance, kit.crossbar(rows=8, dac_bits=1))
    fresh = fresh_noise(variance, cells, 1, False)
    assert fresh.variance[0][0, 0] == 2.0**fresh.bits


ROWS, COLUMNS = 400, 5000


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    keys = conversion_keys(row_keys(np.arange(ROWS)[:, None], 5), 0)
    return normals(keys, COLUMNS).astype(np.float64)


def test_moments_are_those_of_a_normal(drawn: np.ndarray) -> None:
    n = drawn.size
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(drawn**power) - moment) < 4 * np.sqrt(spread / n), power


def test_the_distribution_is_normal(drawn: np.ndarray) -> None:
    assert kstest(drawn.ravel()[:500_000], "norm").pvalue > 1e-3


@pytest.mark.parametrize("beyond", [2.0, 3.0, 4.0])
def test_tails_are_as_heavy_on_both_sides(drawn: np.ndarray, beyond: float) -> None:
    expected = norm.sf(beyond) * drawn.size
    for count in (np.sum(drawn > beyond), np.sum(drawn < -beyond)):
        assert abs(count - expected) < 4 * np.sqrt(expected)


def test_neighbours_do_not_correlate(drawn: np.ndarray) -> None:
    bound = 4 / np.sqrt(drawn.size)
    assert abs(np.mean(drawn[:, 1:] * drawn[:, :-1])) < bound
    assert abs(np.mean(drawn[1:] * drawn[:-1])) < bound


def test_conversions_of_one_row_do_not_correlate() -> None:
    keys = row_keys(np.arange(ROWS)[:, None], 5)
    one, other = (normals(conversion_keys(keys, c), COLUMNS) for c in (0, 1))
    assert abs(np.mean(one.astype(np.float64) * other)) < 4 / np.sqrt(one.size)


def test_a_row_has_the_key_of_its_content() -> None:
    x = np.random.default_rng(0).integers(-127, 128, (50, 33))
    keys = row_keys(x, 1)
    np.testing.assert_array_equal(row_keys(x[::-1], 1), keys[::-1])
    np.testing.assert_array_equal(row_keys(x[7:8], 1), keys[7:8])
    assert len(set(keys.tolist())) == 50
    assert not np.isin(row_keys(x, 2), keys).any()
    swapped = x[:, ::-1]
    assert not np.isin(row_keys(swapped, 1), keys).any()


def test_a_known_key_gives_known_numbers() -> None:
    found = normals(np.array([1, 2], np.uint64), 3)
    again = normals(np.array([2], np.uint64), 2)
    np.testing.assert_array_equal(found[1:, :2], again)
    assert found.dtype == np.float32
