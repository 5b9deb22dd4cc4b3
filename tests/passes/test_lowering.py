"""Operations on rows by multiply, add and clip: norms, softmax with its masks, rows in order."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import WIDTH, D, curved, dense, passed, program

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Clip, scalar
from cimtool.ir.heads import TowerBuilder, assemble
from cimtool.ir.heads.inclusion import InclusionHead
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.ir.program import Graph
from cimtool.ir.source import L2Normalize, Softmax, Sorted, Sqrt
from cimtool.passes import approximate
from cimtool.passes.lowering import merge_exchange
from cimtool.simulation.simulator import Simulator


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_norms_below_a_limit_are_the_limit(models: SimpleNamespace, share: float) -> None:
    job = models.job(*models.data)
    (plain,) = passed(curved(L2Normalize(), 1.0), job, "calibrated")
    rows = Simulator(plain).values("text", job.text, ["fc"])["fc"]
    norms = np.linalg.norm(rows, axis=1)
    least = 1.001 * float(np.quantile(norms, share)) if share else 1e-5
    pair = passed(curved(L2Normalize(least), 1.0), job, "calibrated", "lowered")
    exact, close = (Simulator(p).values("text", job.text, ["curve"])["curve"] for p in pair)
    np.testing.assert_allclose(exact, rows / np.maximum(norms, least)[:, None], rtol=1e-12)
    assert np.abs(close - exact).max() <= 1e-5
    assert (np.linalg.norm(exact, axis=1) < 0.999).mean() >= share / 2


def rooted(least: float) -> Graph:
    """A layer, the roots of its values from a limit on, and the heads on them."""
    rng, builder = np.random.default_rng(2), TowerBuilder(WIDTH)
    hidden = builder.add("fc", dense(rng, WIDTH, WIDTH), "x")
    hidden = builder.add("root", Sqrt(), builder.add("c", Clip(scalar(least), scalar(9.0)), hidden))
    mu, logvar = (builder.add(name, dense(rng, WIDTH, D), hidden) for name in ("mu", "logvar"))
    return builder.tower(mu, logvar)


@pytest.mark.parametrize("least", [0.0, 1e-3, 0.5])
def test_a_root_is_within_its_stated_errors(models: SimpleNamespace, least: float) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    pair = passed(program(rooted(least), rooted(least)), job, "calibrated", "lowered")
    exact, close = (Simulator(p).values("text", job.text, ["root"])["root"] for p in pair)
    said = next(note for note in notes if note.startswith("text.root: sqrt on ["))
    relative, below = (float(part) for part in re.findall(r"error ([\d.e-]+\d)", said))
    assert np.abs(close - exact).max() <= max(1.05 * relative * exact.max(), 1.05 * below)
    assert below <= 2.0**-7 * exact.max() or least == 0.5


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
    with pytest.raises(
        CimError,
        match=r"text\.curve: a sum of 12 powers needs more than 2 Newton "
        r"steps",
    ):
        passed(curved(Softmax(), 1.0), models.job(*models.data), "lowered")


@pytest.mark.parametrize("count", range(1, 12))
def test_the_network_sorts_all_zeros_and_ones_and_so_all_numbers(count: int) -> None:
    """The principle of zeros and ones: Knuth, volume 3, 5.3.4, theorem Z."""
    rows = np.array(list(itertools.product((0, 1), repeat=count)))
    found = rows.copy()
    for pairs in merge_exchange(count):
        assert len(np.unique(pairs)) == pairs.size  # no place twice in a step
        first, second = found[:, pairs[:, 0]], found[:, pairs[:, 1]]
        found[:, pairs[:, 0]] = np.maximum(first, second)
        found[:, pairs[:, 1]] = np.minimum(first, second)
    np.testing.assert_array_equal(found, np.sort(rows, axis=1)[:, ::-1])


def test_comparisons_are_few() -> None:
    steps = list(merge_exchange(50))
    assert (len(steps), sum(map(len, steps))) == (21, 395)


def test_rows_in_order_are_exact_once_they_are_stored(models: SimpleNamespace) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    *pair, whole = passed(curved(Sorted(), 1.0), job, "calibrated", "lowered", "quantized")
    said = "text.curve: 12 numbers in order by 10 steps, 41 comparisons for each of 1 rows per item"
    assert f"{said} in the digital unit" in notes
    wanted, found = (Simulator(p).values("text", job.text, ["curve"])["curve"] for p in pair)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    names = "curve.limited", "curve.moved10"
    given, made = Simulator(whole).values("text", job.text, names).values()
    np.testing.assert_array_equal(made, -np.sort(-given, axis=1))


@pytest.mark.parametrize("head", [ProbCosine(), ProbCosine(20.0, -3.0)])
def test_a_probcosine_is_within_the_stated_errors(
    models: SimpleNamespace, head: ProbCosine
) -> None:
    rng, notes = np.random.default_rng(5), []
    job = models.job(*models.data, notes=notes)
    trained = assemble(models.trunk(rng), models.trunk(rng), head)
    pair = passed(trained, job, "calibrated", "lowered")
    exact, close = (Simulator(one).scores(job.text, job.video) for one in pair)
    said = [note for note in notes if "norm_inverse: 1/sqrt on [" in note]
    errors = [float(note.rsplit(" ", 1)[1]) for note in said]
    assert len(errors) == 2
    # The root of the score, and the exp of the variance, err as little again.
    assert np.abs(close - exact).max() <= (sum(errors) + 2**-15) * max(np.abs(exact).max(), 1.0)


def test_an_inclusion_is_within_the_stated_errors(models: SimpleNamespace) -> None:
    rng, notes = np.random.default_rng(5), []
    job = models.job(*models.data, notes=notes)
    trained = assemble(models.trunk(rng), models.trunk(rng), InclusionHead())
    calibrated, lowered = passed(trained, job, "calibrated", "lowered")
    simulator = Simulator(calibrated)
    text, video = (simulator.encode(m, job.rows(m)) for m in ("text", "video"))
    exact, close = simulator.score(text, video), Simulator(lowered).score(text, video)
    said = next(note for note in notes if note.startswith("score.inclusion: log-variances in ["))
    prior, weight = (float(part) for part in re.findall(r" ([\d.]+e-\d+) (?:for|of)", said))
    squares = np.square(text["mu"][:, None] - video["mu"]).sum(axis=-1)
    assert (np.abs(close - exact) <= 1.05 * (D * prior + squares * weight)).all()


def test_an_inclusion_of_variances_that_differ_too_much_is_refused(
    models: SimpleNamespace,
) -> None:
    rng, builder = np.random.default_rng(2), TowerBuilder(WIDTH)
    mu = builder.add("mu", dense(rng, WIDTH, D), "x")
    wide = builder.tower(mu, builder.add("logvar", dense(rng, WIDTH, D, gain=9.0), "x"))
    trained = assemble(wide, wide, InclusionHead())
    with pytest.raises(CimError, match=r"score\.inclusion: log-variances span -.*, too wide for 8"):
        passed(trained, models.job(*models.data), "lowered")
