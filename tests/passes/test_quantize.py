"""Quantize: integers that stand for the real numbers, and statistics that are exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import passed

from cimtool.ir.arithmetic import Mul, Mvm
from cimtool.ir.format import integer_limits
from cimtool.ir.integer import Dequantize, Quantize
from cimtool.ir.program import Graph, Node, Program
from cimtool.ir.types import integer
from cimtool.passes.base import Job
from cimtool.passes.bias_correction import layer_means
from cimtool.passes.quantize import FACTOR_BITS, QuantizePass, Quantizing, multiply
from cimtool.simulation.simulator import Simulator


@dataclass(frozen=True)
class Made:
    """A program before and after, with what it was made from."""

    job: Job
    lowered: Program
    program: Program

    def features(self) -> list[dict[str, np.ndarray]]:
        simulator = Simulator(self.program)
        return [simulator.encode(m, self.job.rows(m)) for m in ("text", "video")]

    def error(self) -> tuple[np.ndarray, np.ndarray]:
        exact, found = (
            Simulator(p).scores(self.job.text, self.job.video) for p in (self.lowered, self.program)
        )
        return found - exact, exact


def make(program: Program, job: Job) -> Made:
    return Made(job, *passed(program, job, "lowered", "quantized"))


WIDE = {"weight_bits": 16, "activation_bits": 16, "input_bits": 16, "feature_bits": 16}


@pytest.mark.parametrize(("calibrator", "most"), [("minmax", 5e-4), ("tails", 2e-3)])
def test_sixteen_bits_are_nearly_exact(
    models: SimpleNamespace, calibrator: str, most: float
) -> None:
    """Of 48 rows; `tails` leaves room for rows that they do not show."""
    for program, data in ((models.small, models.data), (models.branches, models.unit)):
        job = models.job(*data, accumulator_bits=48, calibrator=calibrator, **WIDE)
        error, exact = make(program, job).error()
        assert np.abs(error).max() < most * exact.std()


def test_more_bits_are_better(models: SimpleNamespace) -> None:
    errors = []
    for bits in (4, 6, 8, 12):
        keys = dict.fromkeys(WIDE, bits)
        made = make(models.small, models.job(*models.data, accumulator_bits=48, **keys))
        error, exact = made.error()
        errors.append(float(np.sqrt(np.square(error).mean()) / exact.std()))
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.05


@pytest.mark.parametrize("bits", [4, 8, 11, 16])
def test_the_units_of_both_modalities_are_shared_and_divide(
    models: SimpleNamespace, bits: int
) -> None:
    made = make(models.small, models.job(*models.data, feature_bits=bits))
    text, video = (
        {name: graph.types[value] for name, value in graph.outputs.items()}
        for graph in (made.program.text, made.program.video)
    )
    for name in ("mu", "s", "ed_self", *(["vd_self"] if bits < 16 else [])):
        assert text[name].unit == video[name].unit, name
    mu = Fraction(float(text["mu"].unit))
    ratio = Fraction(float(text["s"].unit)) / mu**2
    assert ratio.numerator == 1 or ratio.denominator == 1
    assert power_of_two(ratio)
    lo, hi = integer_limits(bits, True)
    assert lo <= text["mu"].lo.min()
    assert text["mu"].hi.max() <= hi
    assert text["s"].hi.max() <= (1 << bits) - 1
    summed = made.program.text.types["s_summed"]
    assert power_of_two(Fraction(float(summed.unit)) / mu**2)
    assert summed.bits <= 16


def power_of_two(x: Fraction) -> bool:
    return all(n & (n - 1) == 0 for n in (x.numerator, x.denominator))


def exact_units(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Integers of one unit as exact rational numbers."""
    return np.vectorize(lambda v: int(v) * Fraction(float(unit)), otypes=[object])(values)


@pytest.mark.thorough("more of the same kind", quick=("0.0-4", "100.0-16"))
@pytest.mark.parametrize("bits", [4, 8, 12, 16])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_ed_and_vd_are_exact_sums_of_the_stored_numbers(
    models: SimpleNamespace, bits: int, offset: float
) -> None:
    rng = np.random.default_rng(bits)
    towers = [models.trunk(rng) for _ in range(2)]
    far = [models.moved(t, offset) for t in towers]
    made = make(models.program(*far), models.job(*models.data[:, :9], feature_bits=bits))
    simulator = Simulator(made.program)
    sides = []
    for graph in (made.program.text, made.program.video):
        names = ["mu_stored", "s_stored", "s_summed"]
        values = simulator.values(graph.name, made.job.rows(graph.name), names)
        sides.append([exact_units(values[n], graph.types[n].unit) for n in names])
    score = made.program.score
    ((_, pairs),) = simulator.iter_score(*made.features(), ["ed", "vd"])
    (mu_t, s_t, sum_t), (mu_v, s_v, sum_v) = sides
    for i in range(9):
        for j in range(9):
            delta, s = mu_t[i] - mu_v[j], s_t[i] + s_v[j]
            ed = (delta * delta + sum_t[i] + sum_v[j]).sum()
            own = (2 * sum_t[i] ** 2 + 2 * sum_v[j] ** 2).sum()
            own += (4 * sum_t[i] * (sum_t[i] - s_t[i]) + 4 * sum_v[j] * (sum_v[j] - s_v[j])).sum()
            vd = own + (4 * s_t[i] * s_v[j] + 4 * delta * delta * s).sum()
            assert int(pairs["ed"][i, j]) * Fraction(float(score.types["ed"].unit)) == ed
            unit = Fraction(float(score.types["vd"].unit))
            # At 16 bits mu^2 s leaves the 46 bits of an exact product, so its factors are narrowed.
            assert abs(int(pairs["vd"][i, j]) * unit - vd) <= (vd / 50_000 if bits == 16 else 0)


def test_weights_fill_their_columns(models: SimpleNamespace) -> None:
    made = make(models.small, models.job(*models.data, weight_bits=6))
    for node in made.program.text.nodes:
        if isinstance(node.op, Mvm):
            assert np.abs(node.op.weight).max(axis=0).tolist() == [31] * node.op.weight.shape[1]
            assert node.op.bias.dtype == np.int64


@pytest.mark.parametrize("bits", [4, 6, 12])
def test_the_variance_may_have_bits_of_its_own(models: SimpleNamespace, bits: int) -> None:
    made = make(models.small, models.job(*models.data, feature_bits=10, variance_bits=bits))
    tops = {"mu": 0, "s": 0}
    for graph in (made.program.text, made.program.video):
        for role in tops:
            tops[role] = max(tops[role], int(graph.types[graph.outputs[role]].hi.max()))
    # The variance's unit is a power of two of mu's squared, so up to half the integers are unused.
    assert tops["mu"] == 511
    assert 1 << (bits - 1) <= tops["s"] < 1 << bits


def test_bits_of_single_layers_are_heeded(models: SimpleNamespace) -> None:
    job = models.job(*models.data, layers={"text.fc?": {"weight_bits": 3}})
    made = make(models.small, job)
    tops = {
        node.name: int(np.abs(node.op.weight).max())
        for node in made.program.text.nodes
        if isinstance(node.op, Mvm)
    }
    assert tops == {"fc1": 3, "fc2": 3, "mu": 127, "logvar": 127}


def test_float32_holds_the_scales_of_inputs_and_the_logit(models: SimpleNamespace) -> None:
    made = make(models.small, models.job(*models.data))
    for graph in (made.program.text, made.program.video):
        (entry,) = [node.op for node in graph.nodes if isinstance(node.op, Quantize)]
        np.testing.assert_array_equal(entry.scale.astype(np.float32), entry.scale)
    (last,) = [node for node in made.program.score.nodes if isinstance(node.op, Dequantize)]
    assert made.program.score.types[last.inputs[0]].bits <= 24
    assert np.frexp(last.op.scale)[0] == 0.5
    logits = Simulator(made.program).score(*made.features())
    np.testing.assert_array_equal(logits.astype(np.float32), logits)


def test_equalisation_helps_uneven_channels(models: SimpleNamespace) -> None:
    """Channels 60 times larger than others, where small ones matter as much."""
    uneven = np.where(np.arange(12) % 3 == 0, 60.0, 1.0)
    rng = np.random.default_rng(4)
    towers = []
    for _ in range(2):
        tower = models.trunk(rng)
        fc1 = tower.by_name["fc1"].op
        even = Mvm(fc1.weight / uneven[:, None], fc1.bias)
        towers.append(models.with_ops(tower, fc1=even))
    rms = []
    for equalise in (False, True):
        job = models.job(*(models.data * uneven), equalise=equalise)
        error, _ = make(models.program(*towers), job).error()
        rms.append(float(np.sqrt(np.square(error).mean())))
    assert rms[1] < rms[0] / 2


def test_bias_correction_takes_the_mean_error_off_every_layer(models: SimpleNamespace) -> None:
    biased, corrected = (
        make(models.small, models.job(*models.data, weight_bits=4, bias_correction=on))
        for on in (False, True)
    )
    wanted = layer_means(corrected.lowered.text, corrected.job.text)
    errors = []
    for made in (biased, corrected):
        found = layer_means(made.program.text, made.job.text)
        errors.append(max(np.abs(found[name] - wanted[name]).max() for name in wanted))
    assert errors[1] < errors[0] / 5
    for name, mean in layer_means(corrected.program.text, corrected.job.text).items():
        unit = corrected.program.text.types[name].unit
        assert (np.abs(mean - wanted[name]) <= 0.51 * unit).all()


def test_rounding_variances_that_are_alike_costs_vd_next_to_nothing(
    models: SimpleNamespace,
) -> None:
    tower = models.trunk(np.random.default_rng(0))
    made = make(models.program(tower, tower), models.job(*models.data, feature_bits=6))
    simulator, graph = Simulator(made.program), made.program.text
    names = ("s_stored", "s_summed")
    values = simulator.values("text", made.job.text, names)
    s, fine = (values[name] * graph.types[name].unit for name in names)
    same = simulator.encode("text", made.job.text)
    ((_, pairs),) = simulator.iter_score(same, same, ["vd"])
    found = np.diag(pairs["vd"]) * made.program.score.types["vd"].unit
    exact = (8 * fine * fine).sum(axis=1)  # mu is the same on both sides
    plain = (4 * fine * fine + 4 * s * s).sum(axis=1)
    assert np.abs(found - exact).max() < np.abs(plain - exact).max() / 4


def rmse(made: Made) -> float:
    return float(np.sqrt(np.square(made.error()[0]).mean()))


def test_gptq_errs_less_where_inputs_have_much_in_common(models: SimpleNamespace) -> None:
    rng = np.random.default_rng(5)
    data = rng.normal(size=(2, 300, 3)) @ rng.normal(size=(3, models.data.shape[2]))
    data += 0.1 * rng.normal(size=data.shape)
    bits = {"weight_bits": 3, "activation_bits": 8, "feature_bits": 12}
    found = {
        name: rmse(make(models.small, models.job(*data, weight_rounding=name, **bits)))
        for name in ("nearest", "gptq")
    }
    assert found["gptq"] < 0.9 * found["nearest"]


def test_gptq_keeps_the_limits_of_weights_and_scales_no_coarser(models: SimpleNamespace) -> None:
    plain, rounded = (
        make(models.small, models.job(*models.data, weight_bits=4, weight_rounding=name))
        for name in ("nearest", "gptq")
    )
    moved = 0
    for node in rounded.program.text.nodes:
        if isinstance(node.op, Mvm):
            other = plain.program.text.by_name[node.name].op
            assert isinstance(other, Mvm)
            assert np.all(node.op.scale <= 1.05 * other.scale)
            assert np.abs(node.op.weight).max() <= 7
            moved += int((node.op.weight != other.weight).sum())
    assert moved


def test_tails_clip_where_what_a_layer_computes_gains_by_it(models: SimpleNamespace) -> None:
    fine = {"weight_bits": 16, "input_bits": 16, "accumulator_bits": 48, "activation_bits": 3}
    units, errors = [], []
    for name in ("minmax", "tails"):
        made = make(models.small, models.job(*models.data, calibrator=name, equalise=False, **fine))
        stored = made.program.text.types["relu1.stored"].unit
        units.append(stored.max())
        codes, exact = (
            Simulator(program).values("text", made.job.text, [value])[value]
            for program, value in ((made.program, "relu1.stored"), (made.lowered, "relu1"))
        )
        layer = made.lowered.text.by_name["fc2"].op
        assert isinstance(layer, Mvm)
        error = (codes * stored - exact) @ layer.weight
        errors.append(float(np.square(error - error.mean(axis=0)).mean()))
    assert units[1] < units[0]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("bits", [22, 23, 24, 25])
def test_a_product_of_two_factors_without_a_sign_can_be_narrowed_again(
    models: SimpleNamespace, bits: int
) -> None:
    known = integer(("n", "m"), 0, (1 << bits) - 1, np.asarray(1e-7))
    source = Graph("score", {"x": known}, (), {})
    job = models.job(*models.data)
    builder = Quantizing(source, source.inputs, job, QuantizePass(), {}, {})
    square = multiply(builder, Mul(), Node("square", Mul(), ("x", "x")), ("x", "x"))
    narrow = builder.types[builder.narrow(square, FACTOR_BITS)]
    assert float(narrow.hi * narrow.unit) == pytest.approx(
        float((known.hi * known.unit) ** 2), rel=2.0**-14
    )
