from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from cimtool.loading.polynomial import parse_polynomial
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.reference.surrogate import Polynomial
from cimtool.training.fit import polynomial_text
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.pairs import Pairs
from cimtool.training.projectors import measured_band
from cimtool.training.surrogate import Band, Surrogate, read_surrogate, surrogate_of

POLY = Polynomial(1, (-0.1, 0.005), 0.5, 32.0, 4.0, True, 0.1, 0.0, 10)
BAND = Band((1.0, 2.0), 3.0, 4.0, (-5.0, 6.0))


def test_a_file_gives_the_polynomial_and_its_band(tmp_path: Path) -> None:
    path = tmp_path / "poly.json"
    path.write_text(polynomial_text(POLY, BAND.domain()))
    assert read_surrogate(path) == Surrogate(POLY, BAND, str(path))
    path.write_text(polynomial_text(POLY))
    assert read_surrogate(path).band is None


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path: Path) -> None:
    torch.save(Surrogate(POLY, BAND, "p.json").values(), tmp_path / "p.pth")
    values = torch.load(tmp_path / "p.pth", weights_only=True)
    assert surrogate_of(values, "p.pth") == Surrogate(POLY, BAND, "p.pth")
    assert parse_polynomial(values, "p.pth") == POLY


def test_a_measured_band_holds_all_pairs_of_a_model() -> None:
    torch.manual_seed(0)
    towers = TrunkModel(hidden=8, width=4, logvar_start=0.0).build(6, 6)
    text, video = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 30, 6))).float()
    band = measured_band(towers, Pairs(text, video, torch.arange(30)))
    items = towers.encode(text, video)
    sides = [Gaussians(m.double().numpy(), v.double().exp().numpy()) for m, v in items]
    rows = np.divmod(np.arange(30 * 30), 30)
    every = [items[row] for items, row in zip(sides, rows, strict=True)]
    ed, vd = expected_distance(*every), distance_variance(*every)
    np.testing.assert_allclose(band.ed, (ed.min(), ed.max()), rtol=1e-6)
    beside = vd - (band.start + band.slope * ed)
    np.testing.assert_allclose(band.beside, (beside.min(), beside.max()), rtol=1e-5)
