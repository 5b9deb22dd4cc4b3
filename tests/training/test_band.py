from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.training.band import Band


def test_the_band_holds_its_pairs_and_is_narrow() -> None:
    rng = np.random.default_rng(0)
    ed = rng.uniform(200, 300, 500)
    vd = 5 + 0.3 * ed + rng.uniform(-0.1, 0.2, 500)
    band = Band.of(ed, vd)
    beside = vd - (band.start + band.slope * ed)
    assert band.slope == pytest.approx(0.3, abs=1e-3)
    assert band.ed == (ed.min(), ed.max())
    assert (band.beside[0] <= beside).all()
    assert (beside <= band.beside[1]).all()
    assert band.beside[1] - band.beside[0] < 0.32


def test_a_statistic_that_never_varies() -> None:
    assert Band.of(np.full(3, 2.0), np.array([1.0, 2.0, 3.0])).slope == 0


def test_scaling_is_that_of_the_pairs() -> None:
    ed, vd = np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 7.0])
    scaled, direct = Band.of(ed, vd).scaled(16.0, 256.0), Band.of(16 * ed, 256 * vd)
    assert scaled.ed == direct.ed
    np.testing.assert_allclose(
        [scaled.start, scaled.slope, *scaled.beside], [direct.start, direct.slope, *direct.beside]
    )


def test_it_is_read_back_from_a_domain() -> None:
    band = Band((1.0, 2.0), 3.0, 4.0, (-5.0, 6.0))
    assert Band.of_domain(band.domain(), "p.json") == band
    assert Band.of_domain({"ed": [1, 2], "vd": [3, 4]}, "p.json") is None
    assert Band.of_domain(None, "p.json") is None


@pytest.mark.parametrize("value", ["no", [1.0], [1.0, float("nan")], None])
def test_a_domain_of_other_values(value: object) -> None:
    domain = {**Band((1.0, 2.0), 3.0, 4.0, (-5.0, 6.0)).domain(), "vd_line": value}
    with pytest.raises(CimError, match=r"p.json: domain.vd_line is .*; expected two finite"):
        Band.of_domain(domain, "p.json")
