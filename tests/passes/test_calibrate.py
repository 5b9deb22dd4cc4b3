"""Calibrate: what was seen, rounded outward, and clipped as the calibrator says."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import passed

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Program
from cimtool.ir.tails import shape_of
from cimtool.passes.calibrate import LEAST_OF_TAIL, MOST_OF_TAIL, MOST_SIZES, significant
from cimtool.simulation.simulator import Simulator


@given(st.floats(-1e30, 1e30), st.floats(0, 1e30))
def test_bounds_are_rounded_outward_to_ten_bits(lo: float, width: float) -> None:
    hi = lo + width
    found = significant(np.asarray(lo), np.floor), significant(np.asarray(hi), np.ceil)
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
    return passed(program, job, "calibrated")[0]


def test_every_value_of_a_projector_has_a_range_that_holds_it(models: SimpleNamespace) -> None:
    made = calibrated(models, models.small, models.data)
    simulator = Simulator(made)
    for graph, x in zip((made.text, made.video), models.data, strict=True):
        names = [node.name for node in graph.nodes]
        assert set(graph.calibration.ranges) == {"x", *names}
        for name, value in simulator.values(graph.name, x.astype(np.float32), names).items():
            seen = graph.calibration.ranges[name]
            assert (seen.lo <= value.min(axis=0)).all()
            assert (seen.hi >= value.max(axis=0)).all()
            span = np.abs(value).max()
            assert (np.abs(seen.hi - value.max(axis=0)) <= 2.0**-9 * span).all()
            mean_square = np.square(value).mean(axis=0)
            found = graph.calibration.mean_squares[name]
            assert (found >= mean_square * (1 - 1e-12)).all()
            assert (found <= mean_square * (1 + 2.0**-9)).all()


def test_ed_and_vd_are_seen_over_all_pairs(models: SimpleNamespace) -> None:
    made = calibrated(models, models.small, models.data)
    simulator = Simulator(made)
    features = [
        simulator.encode(m, x.astype(np.float32))
        for m, x in zip(("text", "video"), models.data, strict=True)
    ]
    ((_, pairs),) = simulator.iter_score(*features, ["ed", "vd"])
    for name, value in pairs.items():
        seen = made.score.calibration.ranges[name]
        assert value.min() - 2.0**-9 * abs(value.min()) <= seen.lo <= value.min()
        assert value.max() <= seen.hi <= value.max() * (1 + 2.0**-9)
    assert made.score.types["text.mu"].hi is made.text.calibration.ranges["mu_stored"].hi


def test_the_norm_before_a_normalisation_is_seen(models: SimpleNamespace) -> None:
    made = calibrated(models, models.branches, models.unit)
    rows = Simulator(made).values("text", models.unit[0].astype(np.float32), ["mu_sum"])["mu_sum"]
    seen = made.text.calibration.squared_norms["mu"]
    squared_norms = np.square(rows).sum(axis=1)
    assert seen.lo <= squared_norms.min()
    assert seen.hi >= squared_norms.max()


def test_a_percentile_narrows_what_layers_alone_read(models: SimpleNamespace) -> None:
    plain, narrow = (
        calibrated(models, models.small, models.data, calibrator=c)
        for c in ("minmax", "percentile")
    )
    for name, seen in narrow.text.calibration.ranges.items():
        widest = [
            np.maximum(-r.lo, r.hi).max() for r in (seen, plain.text.calibration.ranges[name])
        ]
        if name in ("x", "relu1", "relu2"):
            assert widest[0] < widest[1], name
        else:
            assert widest[0] == widest[1], name


def test_a_value_that_is_read_elsewhere_too_keeps_its_range(models: SimpleNamespace) -> None:
    plain, narrow = (
        calibrated(models, models.branches, models.unit, calibrator=c)
        for c in ("minmax", "percentile")
    )
    np.testing.assert_array_equal(
        narrow.text.calibration.ranges["x"].hi, plain.text.calibration.ranges["x"].hi
    )


def test_a_channel_beyond_the_percentile_has_a_range_in_order(models: SimpleNamespace) -> None:
    data = models.data.copy()
    data[:, :, 3] += 50.0
    made = calibrated(models, models.small, data, calibrator="percentile")
    for graph in made.graphs:
        for name, seen in graph.calibration.ranges.items():
            assert np.all(seen.lo <= seen.hi), name


@pytest.mark.parametrize(
    ("rows", "kept"), [(5, 5), (20, LEAST_OF_TAIL), (48, 12), (1000, MOST_OF_TAIL)]
)
def test_tails_are_those_of_the_largest_numbers_of_a_channel(
    models: SimpleNamespace, rows: int, kept: int
) -> None:
    data = np.random.default_rng(3).normal(size=(2, rows, models.data.shape[2]))
    made = calibrated(models, models.small, data)
    values = Simulator(made).values("text", data[0].astype(np.float32), ["relu1", "mu", "logvar"])
    tails = made.text.calibration.tails
    assert set(tails) == {"x", "relu1", "relu2", "mu"}
    for name in ("relu1", "mu"):
        found, largest = tails[name], np.sort(np.abs(values[name]), axis=0)[-kept:]
        assert found.share == kept / rows
        excess = (largest - largest[0])[1:].mean(axis=0)
        for seen, wanted in ((found.threshold, largest[0]), (found.excess, excess)):
            assert np.all((seen >= wanted * (1 - 1e-12)) & (seen <= wanted * (1 + 2.0**-9))), name


@pytest.mark.parametrize(("rows", "sizes"), [(20, LEAST_OF_TAIL), (48, 12), (2000, MOST_SIZES)])
def test_the_shape_of_tails_is_that_of_rows_as_layers_weigh_them(
    models: SimpleNamespace, rows: int, sizes: int
) -> None:
    rng = np.random.default_rng(4)
    data = rng.normal(size=(2, rows, models.data.shape[2])) * np.exp(rng.normal(size=(2, rows, 1)))
    made = calibrated(models, models.small, data)
    graph, names = made.text, ["x", "relu1", "relu2"]
    values = Simulator(made).values("text", data[0].astype(np.float32), names)
    for name in names:
        readers = [node.op for node in graph.nodes if name in node.inputs]
        gains = sum(np.square(op.weight).sum(axis=1) for op in readers if isinstance(op, Mvm))
        weighed = np.sort(np.sqrt(np.square(values[name]) @ gains))[-sizes:]
        most = min(max(rows // 4, LEAST_OF_TAIL), MOST_OF_TAIL)
        wanted = shape_of(np.sort(np.abs(values[name]), axis=0)[-most:], weighed)
        assert graph.calibration.tails[name].shape == pytest.approx(wanted, rel=2.0**-8), name
    assert graph.calibration.tails["mu"].shape == 0


def test_only_the_calibrator_of_tails_keeps_them(models: SimpleNamespace) -> None:
    for name in ("minmax", "percentile"):
        made = calibrated(models, models.small, models.data, calibrator=name)
        assert not made.text.calibration.tails


def test_what_overflows_is_refused_by_name(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(2)
    towers = [models.trunk(rng) for _ in range(2)]
    logvar = towers[1].by_name["logvar"].op
    hot = models.with_ops(towers[1], logvar=Mvm(logvar.weight, logvar.bias + 1000))
    program = models.program(towers[0], hot)
    with pytest.raises(CimError, match=r"^calibration: video\.s \(exp\): is not finite on these"):
        calibrated(models, program, models.data)


def test_a_row_of_zeros_that_is_normalised_is_refused_by_name(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(2)
    tower = models.branch(rng)
    last = tower.by_name["mu_proj.3"].op
    tower = models.with_ops(tower, **{"mu_proj.3": Mvm(last.weight * 0, np.zeros(6))})
    data = models.unit.copy()
    data[0, 5] = 0
    with pytest.raises(CimError, match=r"^calibration: text\.mu \(l2_normalize\): is not"):
        calibrated(models, models.program(tower, tower), data)
