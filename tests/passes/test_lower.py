"""Lower: multiply-accumulates alone, within what the stand-ins say."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from small_models import HIDDEN, D, curved, passed

from cimtool.base.errors import CimError
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.heads import assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.points import Cosine
from cimtool.ir.op import Op
from cimtool.ir.program import Program, Range
from cimtool.ir.source import (
    Abs,
    Elu,
    Erf,
    Exp,
    LayerNorm,
    LeakyRelu,
    Sigmoid,
    Softmax,
    Softplus,
    Tanh,
)
from cimtool.ir.surrogate import BESIDE_LINE, FittedRange, Polynomial
from cimtool.passes.base import Job
from cimtool.passes.curves import CURVE_TOLERANCE, DOMAIN_MARGIN, widened_range
from cimtool.passes.lower import LEAST_BAND, beyond_fit, domain_limits
from cimtool.passes.lowering import EXP_TOLERANCE, RESIDUAL_BITS, Lowering
from cimtool.passes.pipeline import compile_program
from cimtool.simulation.simulator import Simulator


def stages(program: Program, job: Job) -> list[Program]:
    return passed(program, job, "calibrated", "lowered")


def both(pair: list[Program], job: Job) -> list[np.ndarray]:
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
    ranges = calibrated.score.calibration.ranges
    (ed_lo, ed_hi), (vd_lo, vd_hi) = (widened_range(ranges[name]) for name in ("ed", "vd"))
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


def of_domain(models: SimpleNamespace, domain: FittedRange) -> Program:
    rng = np.random.default_rng(8)
    polynomial = replace(models.polynomial, domain=domain)
    return models.program(models.trunk(rng), models.trunk(rng), polynomial)


def limits_of(program: Program, job: Job) -> dict[str, tuple[float, float]]:
    """The domains of the statistics of a program's score when it is lowered, and in integers."""
    lowered, quantized = passed(program, job, "lowered", "quantized")
    found = {}
    for name in program.score.statistics:
        limits = domain_limits(lowered.score, name)
        assert limits is not None
        found[name] = limits.centre + limits.lo, limits.centre + limits.hi
        again = domain_limits(quantized.score, name)
        assert again is not None
        in_integers = (again.unit * (again.centre + end) for end in (again.lo, again.hi))
        np.testing.assert_allclose([*in_integers], found[name], rtol=1e-4, atol=1e-3)
    return found


def test_a_score_ends_where_its_fit_ends_unless_calibration_saw_more(
    models: SimpleNamespace,
) -> None:
    job = models.job(*models.data)
    line, wide = (1.0, 0.5), (-1e6, 1e6)
    free = of_domain(models, FittedRange(wide, None, line, wide))
    ranges = stages(free, job)[0].score.calibration.ranges
    (ed_lo, ed_hi), (lo, hi) = (
        (float(ranges[name].lo), float(ranges[name].hi)) for name in ("ed", BESIDE_LINE)
    )
    found = limits_of(free, job)
    assert list(found) == ["ed", BESIDE_LINE]
    for name, ends in found.items():
        np.testing.assert_allclose(ends, widened_range(ranges[name]))
    # The fit ends a little beyond what calibrates on one side, and on the other long before.
    width = ed_hi - ed_lo
    fitted = FittedRange((ed_lo + width / 2, ed_hi + width / 100), None, line, (lo, lo + 1e-3))
    found = limits_of(of_domain(models, fitted), job)
    assert fitted.vd_beside_line is not None
    least, _ = beyond_fit(*fitted.vd_beside_line, models.polynomial.degree)
    np.testing.assert_allclose(found["ed"], (ed_lo, beyond_fit(*fitted.ed, 2)[1]))
    np.testing.assert_allclose(found[BESIDE_LINE], (least, hi))


def test_a_statistic_of_one_value_has_room_beside_it() -> None:
    """A range of calibrated values is rounded outwards, but one such value stays alone."""
    from cimtool.passes.lower import _domain

    notes: list[str] = []
    seen = {"ed": Range(np.asarray(2.0), np.asarray(2.0))}
    builder = cast("Lowering", SimpleNamespace(ranges=seen, note=notes.append))
    for ends in ((2.0, 2.0), (0.0, 4.0), (-np.inf, np.inf)):
        centre, half = _domain(builder, "ed", *ends)
        assert centre == 2.0
        assert half > 0


def test_the_more_powers_a_polynomial_has_the_nearer_to_its_fit_it_ends() -> None:
    assert beyond_fit(-np.inf, np.inf, 3) == (-np.inf, np.inf)
    ends = {degree: beyond_fit(2.0, 4.0, degree) for degree in range(1, 9)}
    np.testing.assert_allclose(ends[1], (2 - 2.5, 4 + 2.5))
    np.testing.assert_allclose(ends[2], (2 - 2 * DOMAIN_MARGIN, 4 + 2 * DOMAIN_MARGIN))
    for degree, (_, end) in ends.items():
        grown = np.polynomial.chebyshev.chebval(end - 3, [0] * degree + [1])
        assert grown == pytest.approx(3.5)  # T2(1.5)


def test_about_its_line_a_score_is_the_same(models: SimpleNamespace) -> None:
    job, wide = models.job(*models.data), (-1e6, 1e6)
    plain = both(stages(of_domain(models, FittedRange(wide, wide)), job), job)
    about = both(stages(of_domain(models, FittedRange(wide, wide, (1.0, 0.5), wide)), job), job)
    for one, other in zip(plain, about, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9)


def test_vd_that_follows_from_ed_leaves_a_band_of_some_width(models: SimpleNamespace) -> None:
    """If variances are the same everywhere, vd is a line in ed, but for rounding."""
    rng, wide = np.random.default_rng(8), (-1e6, 1e6)
    of_item = 0.5
    flat = Mvm(np.zeros((HIDDEN, D)), np.full(D, np.log(of_item)))
    towers = [models.with_ops(models.trunk(rng), logvar=flat) for _ in range(2)]
    s = 2 * of_item
    line = (-2 * D * s**2, 4 * s)
    polynomial = replace(models.polynomial, domain=FittedRange(wide, None, line, (0.0, 0.0)))
    program, job = models.program(*towers, polynomial), models.job(*models.data)
    calibrated, lowered, quantized = passed(program, job, "calibrated", "lowered", "quantized")
    assert float(calibrated.score.calibration.ranges[BESIDE_LINE].hi) < 1e-9
    limits = domain_limits(lowered.score, BESIDE_LINE)
    of_ed = domain_limits(lowered.score, "ed")
    assert limits is not None
    assert of_ed is not None
    assert limits.hi == pytest.approx(LEAST_BAND * line[1] * of_ed.hi)
    exact, close, whole = (
        Simulator(p).scores(*models.data) for p in (calibrated, lowered, quantized)
    )
    np.testing.assert_allclose(close, exact, atol=1e-3 * np.ptp(exact))
    np.testing.assert_allclose(whole, exact, atol=0.02 * np.ptp(exact))


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


def test_the_layer_that_reads_the_input_has_its_own_bits_for_it(models: SimpleNamespace) -> None:
    job = models.job(*models.data, layers={"text.fc1": {"activation_bits": 12}})
    _, lowered = stages(models.small, job)
    for graph, bits in ((lowered.text, 12), (lowered.video, 8)):
        stored = [node.op for node in graph.nodes if isinstance(node.op, Store)]
        assert [op.bits for op in stored if op.role == "input"] == [bits]


@pytest.mark.parametrize("bits", [5, 11])
def test_a_sum_past_layers_reads_a_store_of_its_own(models: SimpleNamespace, bits: int) -> None:
    """No converter reads it, so the bits of layers are not its own."""
    layers = {"text.mu_proj.0": {"activation_bits": bits}}
    _, lowered = stages(models.branches, models.job(*models.unit, layers=layers))
    for graph, own in ((lowered.text, bits), (lowered.video, 8)):
        bits_of = {n.name: n.op.bits for n in graph.nodes if isinstance(n.op, Store)}
        found = {name: bits_of[graph.by_name[name].inputs[0]] for name in ("mu_sum", "mu_proj.0")}
        assert found == {"mu_sum": RESIDUAL_BITS, "mu_proj.0": own}


def test_alike_readers_share_one_store(models: SimpleNamespace) -> None:
    _, lowered = stages(models.small, models.job(*models.data))
    reads = {n.name: n.inputs[0] for n in lowered.text.nodes if isinstance(n.op, Mvm)}
    assert reads["mu"] == reads["logvar"]


def test_a_range_without_span_is_widened_too(models: SimpleNamespace) -> None:
    calibrated, _ = stages(models.small, models.job(*models.data))
    seen = calibrated.score.calibration.ranges["ed"]
    lo, hi = widened_range(replace(seen, lo=seen.hi))
    assert lo < float(seen.hi) < hi


EXACT = (LeakyRelu(0.2), LeakyRelu(1.5), Abs())
CURVES = [Tanh(), Sigmoid(), Erf(), Softplus(), Elu(0.7), *EXACT]


@pytest.mark.parametrize("gain", [0.0, 0.3, 8.0])
@pytest.mark.parametrize("op", CURVES, ids=str)
def test_a_curve_is_within_the_stated_error_beyond_calibration_too(
    models: SimpleNamespace, op: Op, gain: float
) -> None:
    job = models.job(*models.data)
    calibrated, lowered = stages(curved(op, gain), job)
    seen = np.abs(Simulator(calibrated).values("text", job.text, ["fc"])["fc"]).max()
    near = 1.2 * job.text
    assert (
        gain == 0 or seen < np.abs(Simulator(calibrated).values("text", near, ["fc"])["fc"]).max()
    )
    exact, close = (
        Simulator(p).values("text", near, ["curve"])["curve"] for p in (calibrated, lowered)
    )
    error = 0.0 if op in EXACT else CURVE_TOLERANCE
    assert np.abs(close - exact).max() <= error * max(np.abs(exact).max(), 1.0) + 1e-9
    far = Simulator(lowered).values("text", 1e6 * job.text, ["curve"])["curve"]
    if isinstance(op, Tanh | Sigmoid | Erf):
        assert far.min() >= -1
        assert far.max() <= 1


def test_every_curve_is_told(models: SimpleNamespace) -> None:
    for op, name in ((Tanh(), "tanh"), (Sigmoid(), "sigmoid")):
        notes: list[str] = []
        stages(curved(op, 1.0), models.job(*models.data, notes=notes))
        text = [note for note in notes if note.startswith("text.curve: ")]
        assert re.fullmatch(
            rf"text\.curve: {name} on \[-[\d.]+, [\d.]+\] as a polynomial of degree \d+, "
            r"worst error \d\.\de-\d+",
            text[0],
        )


def test_a_wide_exp_inside_a_projector_is_not_called_logvar(models: SimpleNamespace) -> None:
    wide = curved(Exp(), 30.0)
    calm = [
        models.with_ops(tower, logvar=Mvm(np.zeros((12, 6)), np.zeros(6)))
        for tower in (wide.text, wide.video)
    ]
    with pytest.raises(CimError, match=r" text\.curve: its input spans -.* too wide for exp"):
        stages(models.program(*calm), models.job(*models.data))


def layer_norm(width: int, eps: float) -> LayerNorm:
    gain, offset = np.random.default_rng(22).normal(size=(2, width))
    return LayerNorm(gain, offset, eps)


MASKED = Softmax(np.array([[0.0, -np.inf, -1e9] * 4]))
NORMS = [layer_norm(12, 1e-5), layer_norm(12, 0.5), layer_norm(12, 0.0)]


@pytest.mark.parametrize("op", NORMS, ids=["eps", "large eps", "no eps"])
def test_a_layer_norm_is_within_the_stated_error(models: SimpleNamespace, op: LayerNorm) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    pair = stages(curved(op, 1.0), job)
    exact, close = (Simulator(p).values("text", job.text, ["curve"])["curve"] for p in pair)
    (told,) = (note for note in notes if note.startswith("text.curve: "))
    said = re.search(
        r"1/norm of centred rows for norms in \[.*\] by [1-8] Newton steps, worst relative error "
        r"(\d\.\de-\d+)$",
        told,
    )
    assert said is not None
    error = 1.05 * float(said[1]) + 1e-12  # said to two digits
    assert (np.abs(close - exact) <= error * np.abs(exact - op.beta) + 1e-12).all()
    assert np.abs(close - exact).max() > 0


@pytest.mark.thorough(
    "every curve on every array; one is in the first tier",
    quick=("tanh-after a layer-isaac", "softmax1-of the input-ideal"),
)
@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128"])
@pytest.mark.parametrize("first", [True, False], ids=["after a layer", "of the input"])
@pytest.mark.parametrize("op", [*CURVES, NORMS[0], Softmax(), MASKED], ids=lambda op: op.name)
def test_a_curve_on_hardware_is_what_the_simulator_says(
    models: SimpleNamespace, op: Op, first: bool, target: str
) -> None:
    job = models.job(*models.data, target=target, calibrator="minmax")
    built = compile_program(curved(op, 2.0, first), job, lambda line: None)
    lowered = next(stage.program for stage in built if stage.name == "lowered")
    final = built[-1].program
    found = Simulator(final).encode("text", job.text)
    session = Session(file_bytes(onnx_model(final.text)))
    for name, value in session.encode(job.text).items():
        np.testing.assert_array_equal(value, found[name])
    exact = Simulator(lowered).encode("text", job.text)["mu"]
    unit = final.text.types[final.text.outputs["mu"]].unit
    assert np.sqrt(np.square(found["mu"] * unit - exact).mean()) < 0.03 * exact.std()


def test_a_distance_is_scaled_inside_its_domain_and_saturates_outside(
    models: SimpleNamespace,
) -> None:
    rng, notes = np.random.default_rng(3), []
    program = assemble(models.trunk(rng), models.trunk(rng), Csd(0.25, 1.5))
    job = models.job(*models.data, notes=notes)
    calibrated, lowered = passed(program, job, "calibrated", "lowered")
    score = lowered.score
    lo, hi = widened_range(calibrated.score.calibration.ranges["ed"])
    assert f"score: ed in [{lo:.6g}, {hi:.6g}], saturated outside" in notes
    assert list(score.outputs.values()) == ["logit.stored"]
    # The stored logit has room for the whole domain, not for the calibrated part of it alone.
    known = score.types["logit.stored"]
    assert (float(known.lo), float(known.hi)) == pytest.approx((1.5 - 0.25 * hi, 1.5 - 0.25 * lo))
    ed = np.array([lo - 1, lo, (lo + hi) / 2, hi, hi + 1])
    nodes = {name: score.by_name[name].op for name in ("ed_normal.moved", "ed_normal.limited")}
    limited = nodes["ed_normal.limited"].run(nodes["ed_normal.moved"].run(ed))
    logit = score.by_name[score.by_name["logit.stored"].inputs[0]].op.run(limited)
    np.testing.assert_allclose(logit, 1.5 - 0.25 * np.clip(ed, lo, hi), rtol=1e-12)


def test_a_cosine_has_room_for_rows_that_are_rounded(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(3)
    program = assemble(models.branch(rng), models.branch(rng), Cosine())
    job = models.job(*models.unit)
    (lowered,) = passed(program, job, "lowered")
    known = lowered.score.types["logit.stored"]
    assert (float(known.lo), float(known.hi)) == (-2.0, 2.0)
    scores = (Simulator(p).scores(*models.unit) for p in (program, lowered))
    np.testing.assert_allclose(*scores, atol=1e-4)
