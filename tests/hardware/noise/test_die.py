"""A die's cells: their errors, their units, and that nothing else changes them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.crossbar import leak_of
from cimtool.hardware.noise.die import (
    CELL_BITS,
    ROUNDING_SHARE,
    Arrays,
    CellBand,
    Die,
    PhysicalLayout,
    draw,
)
from cimtool.hardware.noise.spec import load_noise

DRIFTING = {
    "t0": 20.0,
    "programming": {"sigma": [0.3, 1.0]},
    "drift": {"mean": {"polynomial": [0.05]}, "sigma": {"polynomial": [0.01]}},
    "flicker": {"q": {"polynomial": [0.01]}, "t_read": 250e-9},
}


def digits_of(cells: Cells) -> np.ndarray:
    return np.stack([s.digits for s in cells.slices]) / (1 << cells.fraction_bits)


def errors(kit: SimpleNamespace, op: object, noise: object, **options: object) -> np.ndarray:
    """Errors [slices, K, N] in digits of a layer's cells on a die."""
    noisy = kit.on_die(op, noise, **options)
    held = np.stack([s.digits for s in op.stored.slices])
    return digits_of(noisy.cells) - noisy.cells.leak / (1 << noisy.cells.fraction_bits) - held


def test_programming_errors_have_the_deviation_of_their_digit(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="offset"), 400, 60)
    noise = kit.noise(programming={"sigma": [0.2, 1.0]})
    found = errors(kit, op, noise)
    held = np.stack([s.digits for s in op.stored.slices])
    unit = noise.g_max / 3
    for digit in range(1, 4):
        of_digit = found[held == digit]
        sigma = (0.2 + digit / 3) / unit
        assert abs(of_digit.mean()) < 4 * sigma / np.sqrt(len(of_digit))
        assert abs(of_digit.std() / sigma - 1) < 4 / np.sqrt(2 * len(of_digit)) + 0.01
    # Nothing conducts less than nothing: half of the erased cells stay at zero, or round to it.
    erased = found[held == 0]
    assert erased.min() == 0
    smallest = erased[erased > 0].min()
    assert abs(np.mean(erased == 0) - norm.cdf(smallest / 2 / (0.2 / unit))) < 0.02


def test_pairs_err_on_both_sides(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=6), 400, 60)
    noise = kit.noise(programming={"sigma": [0.5]})
    found = errors(kit, op, noise, arrays=replace(kit.whole, on_off_ratio=4.0))
    unit = noise.g_max * 0.75 / 63  # digits span g_min to g_max
    assert abs(found.std() / (np.sqrt(2) * 0.5 / unit) - 1) < 0.02
    assert abs(found.mean()) < 4 * found.std() / np.sqrt(found.size)


def test_a_tolerance_cuts_errors_off(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=6), 300, 60)
    table = {"sigma": [0.5], "tolerance": 0.4}
    arrays = replace(kit.whole, on_off_ratio=4.0)
    found = errors(kit, op, kit.noise(programming=table), arrays=arrays) * 20 * 0.75 / 63
    assert np.abs(found).max() <= 0.8 + 0.01
    # The deviation of a normal that is cut off at 0.8 of its own, from its textbook formula.
    assert abs(found.std() / (np.sqrt(2) * 0.5 * np.sqrt(1 - 0.8 * 0.5794 / 0.5763)) - 1) < 0.02


def test_devices_in_parallel_average_their_errors(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=6), 300, 60)
    arrays = replace(kit.whole, on_off_ratio=4.0)
    one, four = (
        errors(kit, op, kit.noise(devices=n, programming={"sigma": [0.5]}), arrays=arrays).std()
        for n in (1, 4)
    )
    assert abs(one / four - 2) < 0.05


def test_drift_takes_the_same_share_of_the_same_die(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="offset"), 64, 20)
    noise = kit.noise(
        t0=20.0,
        programming={"sigma": [0.3]},
        drift={"mean": {"polynomial": [0.06]}, "sigma": {"polynomial": [0.0]}},
    )
    dies = [kit.on_die(op, noise, seconds=s).cells for s in (0.0, 86400.0)]
    now, later = map(digits_of, dies)
    kept = (86420 / 20) ** -0.06
    rounding = sum(2.0 ** -(cells.fraction_bits + 1) for cells in dies)
    np.testing.assert_allclose(later, now * kept, atol=rounding + 1e-9)
    assert rounding < 0.2


def test_reading_again_later_draws_new_flicker_on_the_same_programming(
    kit: SimpleNamespace,
) -> None:
    op = kit.layer(kit.crossbar(encoding="offset"), 200, 30)
    quiet = kit.noise(**{**DRIFTING, "flicker": None, "drift": None})
    noisy = kit.noise(**{**DRIFTING, "drift": None})
    programmed = digits_of(kit.on_die(op, quiet).cells)
    first, second = (
        digits_of(kit.on_die(op, noisy, seconds=s).cells) - programmed for s in (0.0, 60.0)
    )
    assert np.corrcoef(first.ravel(), second.ravel())[0, 1] < 0.05
    share = 0.01 * np.sqrt(np.log((20 + 250e-9) / 500e-9))
    full = programmed > 2.5
    assert abs((first[full] / programmed[full]).std() / share - 1) < 0.05


@pytest.mark.parametrize("encoding", ["offset", "offset-flip", "centred", "differential"])
@pytest.mark.parametrize("adc_on", ["difference", "polarity"])
@pytest.mark.parametrize("ratio", [None, 10.0])
def test_without_errors_a_die_is_the_perfect_array(
    kit: SimpleNamespace, encoding: str, adc_on: str, ratio: float | None
) -> None:
    hardware = kit.crossbar(encoding=encoding, adc_on=adc_on, leak=leak_of(ratio, 2))
    op = kit.layer(hardware)
    noise = kit.noise(
        t0=20.0, programming={"sigma": [0.0]}, drift=DRIFTING["drift"], stuck={"p_on": 0.0}
    )
    found = kit.on_die(op, noise, arrays=replace(kit.whole, on_off_ratio=ratio)).cells
    expected = op.stored.cells
    assert (found.fraction_bits, found.leak) == (expected.fraction_bits, expected.leak)
    for one, other in zip(found.slices, expected.slices, strict=True):
        np.testing.assert_array_equal(one.digits, other.digits)
        np.testing.assert_array_equal(one.flipped, other.flipped)


def test_rounding_adds_nothing_beside_the_errors(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=6), 100, 20)
    for sigma in (0.01, 0.1, 1.0, 10.0):
        cells = kit.on_die(op, kit.noise(programming={"sigma": [sigma]})).cells
        mean_square = np.mean((digits_of(cells) - op.weight) ** 2)
        rounding = 4.0**-cells.fraction_bits / 12
        assert (
            rounding <= ROUNDING_SHARE * mean_square * 1.1 or cells.fraction_bits == CELL_BITS - 6
        )


def test_no_more_places_are_counted_than_errors_need(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=6), 100, 20)
    places = [
        kit.on_die(op, kit.noise(programming={"sigma": [sigma]})).cells.fraction_bits
        for sigma in (30.0, 3.0, 0.3, 0.03)
    ]
    assert places[0] == 0
    assert places == sorted(places)
    for sigma, bits in zip((3.0, 0.3, 0.03), places[1:], strict=True):
        assert 4.0 ** -(bits - 1) / 12 > ROUNDING_SHARE * (sigma * 63 / 20) ** 2 / 2 or bits == 0


def test_a_die_is_a_function_of_seed_number_and_layer(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar())
    noise = kit.noise(**DRIFTING)
    same = digits_of(kit.on_die(op, noise).cells)
    np.testing.assert_array_equal(digits_of(kit.on_die(op, noise).cells), same)
    for other in ({"seed": 1}, {"index": 1}, {"name": "video.fc1"}):
        found = digits_of(kit.on_die(op, noise, **other).cells)
        assert np.mean(found != same) > 0.5


def test_threads_do_not_change_a_die(kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    op = kit.layer(kit.crossbar(), 100)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(digits_of(kit.on_die(op, kit.noise(**DRIFTING)).cells))
    np.testing.assert_array_equal(*found)


def test_a_layer_does_not_depend_on_how_many_columns_others_have(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="offset"), 48, 8)
    noise, die = load_noise("pcm-generic"), Die(3, 0, 60.0)
    drawn = draw(op.stored, kit.whole, noise, die, "text.fc1")
    again = draw(op.stored, Arrays(4, "columns", None), noise, die, "text.fc1")
    np.testing.assert_array_equal(digits_of(drawn.cells), digits_of(again.cells))


def test_a_reference_columns_errors_are_those_of_all_columns_of_its_array(
    kit: SimpleNamespace,
) -> None:
    """20 uS are the 3 of a cell's digits: errors of 2 uS are 0.3 of a digit, in a sum of 0.42."""
    op = kit.layer(kit.crossbar(encoding="centred"), 32, 400)
    arrays = Arrays(200, "columns", None)
    cells = kit.on_die(op, kit.noise(programming={"sigma": [2.0]}), arrays=arrays).cells
    digits = op.stored.cells.slices
    errors = [
        (die.digits.astype(float) / (1 << cells.fraction_bits) - held.digits)
        for die, held in zip(cells.slices, digits, strict=True)
    ]
    # Cells at digit 0 cannot err downwards, so that their mean is above 0, and all alike.
    common = np.array([[e[:, :200].mean(axis=1), e[:, 200:].mean(axis=1)] for e in errors])
    common -= common.mean(axis=2, keepdims=True)
    one, other = common[0]
    assert np.corrcoef(common[:, 0])[0, 1:].min() > 0.9
    assert np.corrcoef(common[:, 1])[0, 1:].min() > 0.9
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.6
    assert one.std() == pytest.approx(0.3, rel=0.4)


def test_a_drifting_reference_column_cancels_what_columns_lose_alike(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="centred"), 32, 20)
    drift = {"mean": {"polynomial": [0.1]}, "sigma": {"polynomial": [0.0]}}
    noise = kit.noise(t0=20.0, programming={"sigma": [0.0]}, drift=drift)
    cells = kit.on_die(op, noise, seconds=20000.0).cells
    left = 1000.0**-0.1
    for die, held in zip(cells.slices, op.stored.cells.slices, strict=True):
        found = die.digits / (1 << cells.fraction_bits)
        np.testing.assert_allclose(found, left * held.digits, atol=0.01)


@pytest.mark.parametrize(
    ("polarities", "pairs", "references"),
    [(1, "rows", 0), (1, "rows", 1), (1, "columns", 0), (1, "columns", 1), (2, "rows", 0),
     (2, "columns", 0), (2, "columns", 1)],
)  # fmt: skip
def test_the_layout_of_cells_is_undone(pairs: str, polarities: int, references: int) -> None:
    layout = PhysicalLayout(polarities, 3, pairs, references)
    rng = np.random.default_rng(0)
    band = CellBand(rng.random((3 * polarities, 5, 7)), rng.random((5, 2 * references)))
    back = CellBand(np.zeros_like(band.weights), np.zeros_like(band.references))
    for number, part in enumerate([slice(0, 4), slice(4, 7)]):
        layout.write(layout.cells(band, number, part), back, number, part)
    np.testing.assert_array_equal(back.weights, band.weights)
    np.testing.assert_array_equal(back.references, band.references)


def test_the_two_cells_of_a_pair_lie_side_by_side() -> None:
    cells = np.arange(2 * 3 * 2).reshape(2, 3, 2).astype(float)  # one slice, 3 rows, 2 weights
    band, both = CellBand(cells, np.zeros((3, 0))), slice(0, 2)
    side = PhysicalLayout(2, 1, "columns", 0).cells(band, 0, both)
    assert side[0].tolist() == [cells[0, 0, 0], cells[1, 0, 0], cells[0, 0, 1], cells[1, 0, 1]]
    rows = PhysicalLayout(2, 1, "rows", 0).cells(band, 0, both)
    assert rows[:2, 0].tolist() == [cells[0, 0, 0], cells[1, 0, 0]]
