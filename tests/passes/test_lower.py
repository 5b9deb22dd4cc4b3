"""Lower: multiply-accumulates alone, within what the stand-ins say."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.program import Program, check
from cimtool.passes.calibrate import calibrate
from cimtool.passes.fold import fold
from cimtool.passes.lower import DOMAIN_MARGIN, EXP_TOLERANCE, MAC_OPS, lower, widened
from cimtool.passes.step import Job
from cimtool.reference.surrogate import Polynomial
from cimtool.simulator import Simulator


def stages(program: Program, job: Job) -> tuple[Program, Program]:
    """The calibrated and the lowered program."""
    calibrated = calibrate(fold(program, job), job)
    lowered = lower(calibrated, job)
    check(lowered, "lowered", MAC_OPS)
    return calibrated, lowered


def both(pair: tuple[Program, Program], job: Job) -> list[np.ndarray]:
    return [Simulator(program).scores(job.text, job.video) for program in pair]


def test_a_trunk_keeps_its_scores(models: SimpleNamespace) -> None:
    job = models.job(*models.data)
    trained, lowered = both(stages(models.small, job), job)
    assert np.abs(lowered - trained).max() < 2e-4
    assert np.abs(lowered - trained).max() < 1e-3 * trained.std()


def test_variances_are_within_the_stated_error(models: SimpleNamespace) -> None:
    job = models.job(*models.data)
    exact, close = (
        Simulator(program).encode("text", job.text)["s"] for program in stages(models.small, job)
    )
    assert 0 < np.abs(close - exact).max() <= 1.1 * EXP_TOLERANCE * exact.max()
    assert close.min() >= 0


def test_a_two_branch_model_is_normalised_by_newtons_iteration(models: SimpleNamespace) -> None:
    notes: list[str] = []
    job = models.job(*models.unit, notes=notes)
    pair = stages(models.branches, job)
    trained, lowered = both(pair, job)
    assert np.abs(lowered - trained).max() < 2e-4
    text = [note for note in notes if note.startswith("text.mu: 1/norm for norms in")]
    assert re.search(r"by [1-8] Newton steps, worst relative error \d\.\de-\d+$", text[0])
    mu = Simulator(pair[1]).values("text", job.text, ["mu"])["mu"]
    assert np.abs(np.linalg.norm(mu, axis=1) - 1).max() < 1e-5


def test_every_approximation_is_told(models: SimpleNamespace) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    stages(models.small, job)
    exp = r"(text|video)\.s: exp on \[.*\] as a polynomial of degree \d+, worst error \d\.\de-\d+"
    assert sum(bool(re.match(exp, note)) for note in notes) == 2
    assert sum(note.endswith("saturated outside") for note in notes) == 2


def test_the_score_is_exact_inside_the_domain_and_saturates_outside(
    models: SimpleNamespace,
) -> None:
    job = models.job(*models.data)
    calibrated, lowered = stages(models.small, job)
    ranges = calibrated.score.ranges
    (ed_lo, ed_hi), (vd_lo, vd_hi) = (widened(ranges[name]) for name in ("ed", "vd"))
    assert ed_lo == float(ranges["ed"].lo) - DOMAIN_MARGIN * float(
        ranges["ed"].hi - ranges["ed"].lo
    )
    far = 4 * job.text
    simulator = Simulator(lowered)
    features = [simulator.encode("text", far), simulator.encode("video", job.video)]
    ((_, values),) = simulator.iter_score(*features, ["ed", "vd", "logit.stored"])
    assert (values["ed"] > ed_hi).any()
    inside = np.clip(values["ed"], ed_lo, ed_hi), np.clip(values["vd"], vd_lo, vd_hi)
    exact = models.polynomial.evaluate(*inside)
    assert np.abs(values["logit.stored"] - exact).max() < 1e-9 * np.abs(exact).max()


@pytest.mark.parametrize(
    "polynomial",
    [
        Polynomial(1, (-0.1, 0.0), 0.0),
        Polynomial(1, (0.0, 0.01), 1.0),
        Polynomial(2, (0.0, 0.0, 0.0, 0.01, 0.0), 1.0),  # ed vd alone
        Polynomial(3, (0.0,) * 5 + (1e-3, 0.0, 0.0, 0.0), 0.0),  # ed^3 alone
        Polynomial(3, (0.0,) * 8 + (1e-5,), 0.0),  # vd^3 alone
        Polynomial(6, tuple((-0.1) ** k for k in range(27)), 0.5, 30.0, 60.0),
        Polynomial(2, (0.0,) * 5, 0.37),  # constant
        Polynomial(2, (0.0,) * 5, 0.0),
        Polynomial(2, (-0.1, 1e-300, 1e-310, 0.0, 1e-320), 0.0),
    ],
    ids=["ed", "vd", "ed vd", "ed3", "vd3", "degree6", "constant", "zero", "vanishing"],
)
def test_any_polynomial_is_lowered_exactly(models: SimpleNamespace, polynomial: Polynomial) -> None:
    rng = np.random.default_rng(8)
    program = models.program(models.trunk(rng), models.trunk(rng), polynomial)
    job = models.job(*models.data)
    calibrated, lowered = stages(program, job)
    features = [Simulator(lowered).encode(m, job.rows(m)) for m in ("text", "video")]
    a, b = (Simulator(p).score(*features) for p in (calibrated, lowered))
    np.testing.assert_allclose(b, a, atol=1e-10 * max(1.0, np.abs(a).max()))


def test_layers_with_bits_of_their_own_read_stores_of_their_own(models: SimpleNamespace) -> None:
    job = models.job(*models.data, layers={"text.mu": {"activation_bits": 5}})
    _, lowered = stages(models.small, job)
    stored = {
        node.name: node.op.bits
        for node in lowered.text.nodes
        if isinstance(node.op, Store) and node.op.role == "activation"
    }
    reads = {n.name: n.inputs[0] for n in lowered.text.nodes if isinstance(n.op, Mvm)}
    assert stored[reads["mu"]] == 5
    assert stored[reads["logvar"]] == stored[reads["fc2"]] == 8


def test_alike_readers_share_one_store(models: SimpleNamespace) -> None:
    _, lowered = stages(models.small, models.job(*models.data))
    reads = {n.name: n.inputs[0] for n in lowered.text.nodes if isinstance(n.op, Mvm)}
    assert reads["mu"] == reads["logvar"]


def test_a_range_without_span_is_widened_too(models: SimpleNamespace) -> None:
    calibrated, _ = stages(models.small, models.job(*models.data))
    seen = calibrated.score.ranges["ed"]
    lo, hi = widened(replace(seen, lo=seen.hi))
    assert lo < float(seen.hi) < hi
