from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.ir.surrogate import FittedRange, Polynomial
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.training.loss import SafePolynomial
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.pairs import Pairs
from cimtool.training.projectors import measured_range


def test_a_measured_range_holds_all_pairs_of_a_model() -> None:
    torch.manual_seed(0)
    towers = TrunkModel(hidden=8, width=4, logvar_start=0.0).build(6, 6)
    text, video = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 30, 6))).float()
    band = measured_range(towers, Pairs(text, video, torch.arange(30)))
    items = towers.encode(text, video)
    sides = [Gaussians(m.double().numpy(), v.double().exp().numpy()) for m, v in items]
    rows = np.divmod(np.arange(30 * 30), 30)
    every = [items[row] for items, row in zip(sides, rows, strict=True)]
    ed, vd = expected_distance(*every), distance_variance(*every)
    np.testing.assert_allclose(band.ed, (ed.min(), ed.max()), rtol=1e-6)
    assert band.vd_line is not None
    assert band.vd_beside_line is not None
    start, slope = band.vd_line
    beside = vd - (start + slope * ed)
    np.testing.assert_allclose(band.vd_beside_line, (beside.min(), beside.max()), rtol=1e-5)


NARROW = FittedRange((10.0, 30.0), None, (1.0, 0.5), (-1.0, 2.0))
# Falls within the band and turns up beyond it: -0.1 ed + 0.002 (ed - 20)^3 / 3 + 0.01 vd.
CUBIC = Polynomial(3, (-0.1 + 0.8, 0.01, -0.04, 0, 0, 2e-3 / 3, 0, 0, 0), -16 / 3, domain=NARROW)


def values(ed: list[float], vd: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    found: tuple[torch.Tensor, torch.Tensor] = SafePolynomial(CUBIC)(
        torch.tensor(ed, dtype=torch.float64), torch.tensor(vd, dtype=torch.float64)
    )
    return found


def test_within_the_band_it_is_the_polynomial() -> None:
    rng = np.random.default_rng(0)
    ed = rng.uniform(10, 30, 50)
    vd = 1 + 0.5 * ed + rng.uniform(-1, 2, 50)
    value, outside = values(ed.tolist(), vd.tolist())
    np.testing.assert_allclose(value.numpy(), CUBIC.evaluate(ed, vd), atol=1e-12)
    assert not outside.any()


def test_beyond_the_band_it_is_continuous_straight_and_falls() -> None:
    ed = [30.0, 30.0 + 1e-9, 40.0, 50.0, 5000.0]
    value, outside = values(ed, [1 + 0.5 * x for x in ed])
    assert outside.tolist() == [False, True, True, True, True]
    assert value[1].item() == pytest.approx(value[0].item(), abs=1e-6)
    steps = np.diff(value.numpy()[1:]) / np.diff(ed[1:])
    assert (steps < 0).all()
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    assert CUBIC.evaluate([50.0], [26.0])[0] > CUBIC.evaluate([30.0], [16.0])[0]  # it would rise


def test_the_raw_polynomial_is_that_which_is_deployed() -> None:
    rng = np.random.default_rng(0)
    ed, vd = rng.uniform(-50, 200, 50), rng.uniform(0, 100, 50)
    value = SafePolynomial(CUBIC).raw(torch.from_numpy(ed), torch.from_numpy(vd))
    np.testing.assert_allclose(value.numpy(), CUBIC.evaluate(ed, vd), rtol=1e-11, atol=1e-11)


def test_across_the_band_a_larger_variance_never_lowers_it() -> None:
    value, outside = values([20.0] * 3, [13.0, 100.0, 1000.0])
    assert outside.tolist() == [False, True, True]
    assert value[0] < value[1] < value[2]


def test_gradients_are_those_of_the_value() -> None:
    module = SafePolynomial(CUBIC)
    ed = torch.tensor([5.0, 12.0, 20.0, 45.0], dtype=torch.float64, requires_grad=True)
    vd = torch.tensor([3.0, 7.5, 40.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: module(*x)[0], (ed, vd))


def test_float32_in_and_out() -> None:
    value, _ = SafePolynomial(CUBIC)(torch.tensor([20.0]), torch.tensor([11.0]))
    assert value.dtype == torch.float32


@pytest.mark.parametrize(
    ("poly", "message"),
    [
        (Polynomial(1, (0.1, 0.0), 0.0), "changes by 0.1 per unit of ed over its domain; expected"),
        (Polynomial(1, (-0.1, 0.0), 0.5, fit_logit=False), "the polynomial predicts p"),
    ],
)
def test_a_polynomial_that_ranks_nothing(poly: Polynomial, message: str) -> None:
    with pytest.raises(CimError, match=message):
        SafePolynomial(replace(poly, domain=NARROW))
