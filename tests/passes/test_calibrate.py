"""Calibrate: what was seen, rounded outward, and clipped as the calibrator says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Program
from cimtool.passes.calibrate import LIMITS, calibrate, norm_energy, outward
from cimtool.passes.fold import fold
from cimtool.simulator import Simulator


@given(st.floats(-1e30, 1e30), st.floats(0, 1e30))
def test_bounds_are_rounded_outward_to_ten_bits(lo: float, width: float) -> None:
    hi = lo + width
    found = outward(np.asarray(lo), np.asarray(hi))
    assert found[0] <= lo
    assert found[1] >= hi
    for value, rounded in zip((lo, hi), found, strict=True):
        assert abs(rounded - value) <= 2.0**-9 * abs(value)
        mantissa = np.frexp(float(rounded))[0] * 2**10
        assert mantissa == np.rint(mantissa)
    if lo == 0:
        assert found[0] == 0


def calibrated(
    models: SimpleNamespace, program: Program, data: np.ndarray, **flags: object
) -> Program:
    job = models.job(*data, **flags)
    return calibrate(fold(program, job), job)


def test_every_value_of_a_projector_has_a_range_that_holds_it(models: SimpleNamespace) -> None:
    made = calibrated(models, models.small, models.data)
    simulator = Simulator(made)
    for graph, x in zip((made.text, made.video), models.data, strict=True):
        names = [node.name for node in graph.nodes]
        assert set(graph.ranges) == {"x", *names}
        for name, value in simulator.values(graph.name, x.astype(np.float32), names).items():
            seen = graph.ranges[name]
            assert (seen.lo <= value.min(axis=0)).all()
            assert (seen.hi >= value.max(axis=0)).all()
            span = np.abs(value).max()
            assert (np.abs(seen.hi - value.max(axis=0)) <= 2.0**-9 * span).all()
            energy = np.square(value).mean(axis=0)
            assert (seen.energy >= energy * (1 - 1e-12)).all()
            assert (seen.energy <= energy * (1 + 2.0**-9)).all()


def test_ed_and_vd_are_seen_over_all_pairs(models: SimpleNamespace) -> None:
    made = calibrated(models, models.small, models.data)
    simulator = Simulator(made)
    features = [
        simulator.encode(m, x.astype(np.float32))
        for m, x in zip(("text", "video"), models.data, strict=True)
    ]
    ((_, pairs),) = simulator.iter_score(*features, ["ed", "vd"])
    for name, value in pairs.items():
        seen = made.score.ranges[name]
        assert value.min() - 2.0**-9 * abs(value.min()) <= seen.lo <= value.min()
        assert value.max() <= seen.hi <= value.max() * (1 + 2.0**-9)
    assert made.score.ranges["text.mu"] is made.text.ranges["mu_stored"]


def test_the_norm_before_a_normalisation_is_seen(models: SimpleNamespace) -> None:
    made = calibrated(models, models.branches, models.unit)
    rows = Simulator(made).values("text", models.unit[0].astype(np.float32), ["mu_sum"])["mu_sum"]
    seen = made.text.ranges[norm_energy("mu")]
    energy = np.square(rows).sum(axis=1)
    assert seen.lo <= energy.min()
    assert seen.hi >= energy.max()


def test_a_percentile_leaves_out_the_rarest(models: SimpleNamespace) -> None:
    value = np.append(np.linspace(-1, 1, 100_001), 50.0)
    assert LIMITS["minmax"](value, 8) == np.inf
    assert 0.99 < LIMITS["percentile"](value, 8) < 1.01


@pytest.mark.parametrize("bits", [4, 8])
def test_the_mse_limit_beats_the_full_range_where_there_are_outliers(bits: int) -> None:
    rng = np.random.default_rng(0)
    value = np.append(rng.normal(size=20_000), [-9.0, 9.0])
    limit = LIMITS["mse"](value, bits)
    largest = 2 ** (bits - 1) - 1

    def error(top: float) -> float:
        step = top / largest
        codes = np.clip(np.rint(value / step), -largest, largest)
        return float(np.square(codes * step - value).sum())

    assert limit < 9.0
    assert error(limit) < error(9.0)
    assert all(error(limit) <= error(top) * 1.05 for top in np.linspace(2, 9, 30))


def test_the_mse_limit_of_zeros_is_zero() -> None:
    assert LIMITS["mse"](np.zeros(4), 8) == 0.0


@pytest.mark.parametrize("calibrator", ["percentile", "mse"])
def test_a_channel_beyond_the_limit_has_a_range_in_order(
    models: SimpleNamespace, calibrator: str
) -> None:
    data = models.data.copy()
    data[:, :, 3] += 50.0
    made = calibrated(models, models.small, data, calibrator=calibrator)
    for graph in made.graphs:
        for name, seen in graph.ranges.items():
            assert np.all(seen.lo <= seen.hi), name


def test_clipped_ranges_are_narrower(models: SimpleNamespace) -> None:
    plain, clipped = (
        calibrated(models, models.small, models.data, calibrator=c, activation_bits=4)
        for c in ("minmax", "mse")
    )
    spans = [np.max(p.text.ranges["relu1"].hi) for p in (plain, clipped)]
    assert spans[1] < spans[0]


def test_what_overflows_is_refused_by_name(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(2)
    towers = [models.trunk(rng) for _ in range(2)]
    hot = replace(towers[1], logvar=Mvm(towers[1].logvar.weight, towers[1].logvar.bias + 1000))
    program = models.program(towers[0], hot)
    with pytest.raises(CimError, match=r"^video\.s \(exp\): is not finite on the calibration data"):
        calibrated(models, program, models.data)


def test_a_row_of_zeros_that_is_normalised_is_refused_by_name(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(2)
    tower = models.branch(rng)
    tower = replace(
        tower, mu_proj=(tower.mu_proj[0], Mvm(tower.mu_proj[1].weight * 0, np.zeros(6)))
    )
    data = models.unit.copy()
    data[0, 5] = 0
    with pytest.raises(CimError, match=r"^text\.mu \(l2_normalize\): is not finite"):
        calibrated(models, models.program(tower, tower), data)
