"""The softmax of attention by multiply, add and clip, and the numbers that its masks leave out."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.ir.source import Softmax
from cimtool.passes import approximate
from cimtool.simulation.simulator import Simulator

from .conftest import curved, passed


@pytest.mark.parametrize("gain", [0.0, 1.0, 30.0])
def test_a_softmax_is_within_the_stated_errors_beyond_calibration_too(
    models: SimpleNamespace, gain: float
) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    pair = passed(curved(Softmax(), gain), job, "calibrated", "lowered")
    rows = 1.5 * job.text
    exact, close = (Simulator(p).values("text", rows, ["curve"])["curve"] for p in pair)
    (told,) = (note for note in notes if note.startswith("text.curve: "))
    said = re.fullmatch(
        r"text\.curve: softmax of 12 numbers: exp on \[-[\d.]+, 0\] below the largest as a "
        r"polynomial of degree \d+, worst error (\S+); 1/sum for sums in \[1, 12\] by \d Newton "
        r"steps, worst relative error (\S+)",
        told,
    )
    assert said is not None
    power, inverse = 1.05 * float(said[1]), 1.05 * float(said[2])
    # An error of each power, in it and twelvefold in the sum that it is divided by.
    assert np.abs(close - exact).max() <= 13 * power + inverse + 1e-6
    assert np.abs(close.sum(axis=1) - 1).max() <= inverse + 1e-12


MASK = np.where(np.arange(12) % 3 == 1, -np.inf, 0.0)[None]


@pytest.mark.parametrize("gain", [0.0, 1.0, 30.0])
def test_numbers_that_do_not_count_have_no_weight_and_are_not_the_largest(
    models: SimpleNamespace, gain: float
) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    pair = passed(curved(Softmax(MASK), gain), job, "calibrated", "lowered")
    rows = 1.5 * job.text
    exact, close = (Simulator(p).values("text", rows, ["curve"])["curve"] for p in pair)
    assert any("curve: softmax of 8 to 8 of 12 numbers: " in note for note in notes)
    assert any("for sums in [1, 8] by" in note for note in notes)
    for weights in (exact, close):
        assert not weights[:, MASK[0] < 0].any()
    x = Simulator(pair[0]).values("text", rows, ["fc"])["fc"]
    assert (x.argmax(axis=1) % 3 == 1).any()
    assert np.abs(close - exact).max() <= 1e-4
    assert np.abs(close.sum(axis=1) - 1).max() <= 1e-5


def test_a_mask_of_one_number_gives_it_all_weight(models: SimpleNamespace) -> None:
    alone = np.where(np.arange(12) == 5, 0.0, -np.inf)[None]
    job = models.job(*models.data)
    (lowered,) = passed(curved(Softmax(alone), 3.0), job, "lowered")
    close = Simulator(lowered).values("text", job.text, ["curve"])["curve"]
    assert np.abs(close - (alone == 0)).max() <= 1e-5


def test_a_mask_within_reach_of_the_numbers_is_refused(models: SimpleNamespace) -> None:
    job = models.job(*models.data)
    faint = np.maximum(MASK, -750.0)
    with pytest.raises(
        CimError,
        match=r"text\.curve: its mask adds -750 to numbers that differ by up to [\d.]+ on these "
        r"rows; expected -[\d.]+ or less, or -inf",
    ):
        passed(curved(Softmax(faint), 3.0), job, "lowered")


def test_a_softmax_of_too_many_numbers_is_refused_by_its_layer(
    models: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "MAX_NEWTON_STEPS", 2)
    with pytest.raises(CimError, match=r"text\.curve: a sum of 12 powers is beyond 2 Newton steps"):
        passed(curved(Softmax(), 1.0), models.job(*models.data), "lowered")
