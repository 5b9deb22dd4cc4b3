"""The main walk: every stage in order, odd models compiled or refused, rankings kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.bundle.serial import ConstantTable, program_text
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import assemble
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.op import Level, Op
from cimtool.ir.program import Graph, Program
from cimtool.ir.source import BatchNorm
from cimtool.ir.surrogate import Polynomial, exponents
from cimtool.loading.layouts.trunk import trunk_tower
from cimtool.loading.layouts.two_branch import TwoBranch, two_branch_tower
from cimtool.loading.score import raw
from cimtool.passes.base import Job, Pass
from cimtool.passes.fold import FoldPass
from cimtool.passes.pipeline import Stage, compile_program, passes_for, run_passes
from cimtool.reference.metrics import top1_agreement
from cimtool.simulation.simulator import Simulator

GOLDEN = Path(__file__).parents[1] / "golden" / "tiny_program.txt"
PLAIN = Polynomial(2, (-0.1, 0.002, 1e-4, -1e-5, 2e-6), 0.3)
WIDTH, HIDDEN, D = 12, 10, 6
Array = np.ndarray


def dense(rng: np.random.Generator, rows: int, columns: int, gain: float = 1.0) -> Mvm:
    weight = rng.normal(size=(rows, columns)) * gain / np.sqrt(rows)
    return Mvm(weight, rng.normal(size=columns) * 0.1)


def norm(rng: np.random.Generator, width: int) -> BatchNorm:
    gamma, var = rng.uniform(0.5, 1.5, (2, width))
    beta, mean = rng.normal(size=(2, width)) * 0.2
    return BatchNorm(gamma, beta, mean, var, 1e-5)


def trunk(rng: np.random.Generator, width: int, hidden: int, d: int) -> Graph:
    return trunk_tower(
        dense(rng, width, hidden), norm(rng, hidden), dense(rng, hidden, hidden),
        norm(rng, hidden), dense(rng, hidden, d), dense(rng, hidden, d, 0.2),
    )  # fmt: skip


def branch(rng: np.random.Generator, d: int, hidden: int, gain: float = 0.2) -> Graph:
    return two_branch_tower(
        (dense(rng, d, hidden), dense(rng, hidden, d, gain)),
        (dense(rng, d, hidden), dense(rng, hidden, d)),
    )


def job(text: Array, video: Array, target: str = "ideal", **flags: object) -> Job:
    rows = [np.asarray(x, np.float32) for x in (text, video)]
    return Job(resolve(load_target(target), None, flags), *rows, lambda line: None)


def compiled(towers: tuple[Graph, Graph], made: Job, poly: Polynomial = PLAIN) -> tuple[Stage, ...]:
    return compile_program(assemble(*towers, PcmePoly(poly)), made, lambda line: None)


def scores(stage: Stage, made: Job) -> Array:
    return Simulator(stage.program).scores(made.text, made.video)


def assert_compiles_or_is_refused(towers: tuple[Graph, Graph], made: Job) -> None:
    """Any other exception, a warning included, fails the test."""
    try:
        stages = compiled(towers, made)
    except CimError:
        return
    assert np.isfinite(scores(stages[-1], made)).all()


def test_every_stage_has_the_name_of_its_pass_and_runs() -> None:
    rng = np.random.default_rng(0)
    made = job(*rng.normal(size=(2, 20, WIDTH)))
    said: list[str] = []
    program = assemble(*(trunk(rng, WIDTH, HIDDEN, D) for _ in "tv"), PcmePoly(PLAIN))
    stages = compile_program(program, made, said.append)
    passes = passes_for(made.settings)
    named = [step.name for step in passes if not step.optional]
    assert [stage.name for stage in stages] == ["trained", *named]
    assert said == [step.doing for step in passes]
    first, last = scores(stages[0], made), scores(stages[-1], made)
    for stage in stages:
        assert scores(stage, made).shape == (20, 20)
    assert np.sqrt(np.square(last - first).mean()) < 0.1 * first.std()


def test_a_pass_out_of_its_place_is_named_with_those_before_it() -> None:
    rng = np.random.default_rng(0)
    made = job(*rng.normal(size=(2, 20, WIDTH)))
    program = assemble(*(trunk(rng, WIDTH, HIDDEN, D) for _ in "tv"), PcmePoly(PLAIN))
    fold, _, lower, quantize, *_ = passes_for(made.settings)
    with pytest.raises(TypeError, match=r"^lowered requires the level FLOAT, at which batch_norm"):
        run_passes((lower,), program, made, silent)
    with pytest.raises(TypeError, match=r"^lowered \(after folded\) requires a calibration"):
        run_passes((fold, lower), program, made, silent)
    with pytest.raises(TypeError, match=r"^quantized \(after folded\) requires the level MAC"):
        run_passes((fold, quantize), program, made, silent)


def test_what_a_pass_may_not_leave_is_named_with_the_passes_before_it() -> None:
    @dataclass(frozen=True)
    class Idle(Pass):
        name, doing, requires, leaves = "idle", "idling", Level.FLOAT, Level.MAC

        def apply(self, program: Program, job: Job) -> Program:
            return program

    rng = np.random.default_rng(0)
    made = job(*rng.normal(size=(2, 20, WIDTH)))
    program = assemble(*(trunk(rng, WIDTH, HIDDEN, D) for _ in "tv"), PcmePoly(PLAIN))
    with pytest.raises(RuntimeError, match=r"^idle \(after folded\) left exp in text\.s"):
        run_passes((FoldPass(), Idle()), program, made, silent)


def test_compiling_twice_gives_the_same_program() -> None:
    texts = []
    for _ in range(2):
        rng = np.random.default_rng(0)
        made = job(*rng.normal(size=(2, 20, WIDTH)), target="hermes-pcm-14nm")
        stages = compiled((trunk(rng, WIDTH, HIDDEN, D), trunk(rng, WIDTH, HIDDEN, D)), made)
        table = ConstantTable()
        text = program_text(stages[-1].program, table)
        texts.append((text, {name: array.tobytes() for name, array in table.arrays.items()}))
    assert texts[0] == texts[1]


def tiny() -> str:
    """The text of a small program whose numbers are short."""
    rng = np.random.default_rng(1)
    towers = []
    for _ in range(2):
        eighths = [rng.integers(-8, 9, shape) / 8 for shape in ((2, 2),) * 4]
        fc1, fc2, mu, logvar = (Mvm(w, np.array([0.25, -0.5])) for w in eighths)
        plain = BatchNorm(np.ones(2), np.zeros(2), np.zeros(2), np.ones(2), 0.0)
        towers.append(trunk_tower(fc1, plain, fc2, plain, mu, logvar))
    x = rng.integers(-16, 17, (2, 8, 2)) / 8
    made = job(*x, target="isaac-rram-128", adc_bits=1)
    polynomial = Polynomial(1, (-0.125, 0.03125), 0.5)
    return program_text(compiled(tuple(towers), made, polynomial)[-1].program, ConstantTable())  # type: ignore[arg-type]


def test_the_text_of_a_tiny_program() -> None:
    """After a wanted change make it anew: `PYTHONPATH=. python tests/passes/test_pipeline.py`."""
    assert tiny() == GOLDEN.read_text("utf-8")


BITS = (4, 5, 8, 11, 16)


@pytest.mark.thorough("all pairs of bits", quick=("4-", "16-16"))
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("feature_bits", BITS)
def test_any_bits_compile(bits: int, feature_bits: int) -> None:
    rng = np.random.default_rng(bits * 17 + feature_bits)
    made = job(
        *rng.normal(size=(2, 24, WIDTH)), weight_bits=bits, activation_bits=bits,
        input_bits=bits, feature_bits=feature_bits, accumulator_bits=48,
    )  # fmt: skip
    towers = trunk(rng, WIDTH, HIDDEN, D), trunk(rng, WIDTH, HIDDEN, D)
    stages = compiled(towers, made)
    exact, found = scores(stages[0], made), scores(stages[-1], made)
    worst = 0.9 if min(bits, feature_bits) < 8 else 0.1
    assert np.sqrt(np.square(found - exact).mean()) < worst * exact.std()


@pytest.mark.thorough("more seeds", quick=("0]",))
@pytest.mark.parametrize("seed", range(30))
def test_few_bits_beside_many_compile(seed: int) -> None:
    """Bias correction moves bounds after multipliers are chosen."""
    rng = np.random.default_rng(seed)
    made = job(
        *rng.normal(size=(2, 32, WIDTH)), weight_bits=3, activation_bits=3, input_bits=3,
        feature_bits=16, accumulator_bits=48,
    )  # fmt: skip
    compiled((trunk(rng, WIDTH, HIDDEN, D), trunk(rng, WIDTH, HIDDEN, D)), made)


@pytest.mark.thorough("more targets", quick=("isaac",))
@pytest.mark.parametrize(
    ("width", "hidden", "d"), [(1, 1, 1), (3, 3, 1), (3, 5, 7), (7, 1, 3), (1, 4, 2)]
)
@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128", "hermes-pcm-14nm"])
def test_odd_shapes_compile(width: int, hidden: int, d: int, target: str) -> None:
    rng = np.random.default_rng(0)
    made = job(*rng.normal(size=(2, 16, width)), target=target)
    stages = compiled((trunk(rng, width, hidden, d), trunk(rng, width, hidden, d)), made)
    assert np.isfinite(scores(stages[-1], made)).all()


Change = Callable[[Graph], Graph]


def with_op(tower: Graph, name: str, op: Op) -> Graph:
    """A tower with another operation in the place of that of this name."""
    nodes = (replace(node, op=op) if node.name == name else node for node in tower.nodes)
    return replace(tower, nodes=tuple(nodes))


def scaled(layer: str, gain: float, columns: slice = slice(None), bias: float = 0.0) -> Change:
    """Scale columns of a layer, with another bias in all of them."""

    def change(tower: Graph) -> Graph:
        op = tower.by_name[layer].op
        assert isinstance(op, Mvm)
        weight, offset = op.weight.copy(), op.bias.copy()
        weight[:, columns] *= gain
        offset[columns] = offset[columns] * gain + bias
        return with_op(tower, layer, Mvm(weight, offset))

    return change


def dead(layer: str, columns: slice) -> Change:
    """Channels that no ReLU lets through."""

    def change(tower: Graph) -> Graph:
        op = tower.by_name[layer].op
        assert isinstance(op, BatchNorm)
        gamma, beta = op.gamma.copy(), op.beta.copy()
        gamma[columns], beta[columns] = 0.0, -1.0
        return with_op(tower, layer, replace(op, gamma=gamma, beta=beta))

    return change


ONE, ALL = slice(1, 2), slice(None)


@pytest.mark.thorough("more weights of that kind", quick=("0]", "5]"))
@pytest.mark.parametrize(
    "change",
    [
        scaled("mu", 0.0, ONE), scaled("mu", 1e-30, ONE), scaled("mu", 1e-30, ONE, 1e-25),
        scaled("mu", 0.0), scaled("mu", 1e-30), scaled("mu", 1e-10), scaled("mu", 1.0, ALL, 1e3),
        scaled("mu", 1.0, ONE, 1e3), scaled("logvar", 0.0), scaled("logvar", 0.0, ONE),
        scaled("logvar", 1e-30), scaled("logvar", 1.0, ALL, -30.0), scaled("logvar", 1.0, ALL, 9.0),
        scaled("logvar", 1.0, ALL, -1000.0), scaled("fc1", 0.0), scaled("fc1", 1e-30),
        scaled("fc2", 0.0, ONE), dead("bn1", ONE), dead("bn1", ALL), dead("bn2", ALL),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_odd_weights_compile(change: Change) -> None:
    rng = np.random.default_rng(1)
    made = job(*rng.normal(size=(2, 24, WIDTH)))
    towers = tuple(change(trunk(rng, WIDTH, HIDDEN, D)) for _ in "tv")
    stages = compiled(towers, made)  # type: ignore[arg-type]
    exact, found = scores(stages[0], made), scores(stages[-1], made)
    assert np.sqrt(np.square(found - exact).mean()) < 0.1 * exact.std() + 0.02 * np.abs(exact).max()


@pytest.mark.parametrize(
    "change",
    [
        scaled("mu", 1e20), scaled("mu", 1e150), scaled("mu", 1.0, ALL, 1e20),
        scaled("mu", 1.0, ONE, 1e200), scaled("logvar", 1e4), scaled("logvar", 1.0, ALL, 1000.0),
        scaled("logvar", 1.0, ALL, 300.0), scaled("logvar", 1.0, ALL, -1e20),
        scaled("logvar", 1.0, ONE, -1e8), scaled("fc1", 1e8), scaled("fc1", 1e300),
        scaled("fc2", 1e-300),
    ],
    ids=itertools.count(),
)  # fmt: skip
@pytest.mark.parametrize("sides", [1, 2])
def test_absurd_weights_compile_or_are_refused(change: Change, sides: int) -> None:
    rng = np.random.default_rng(1)
    made = job(*rng.normal(size=(2, 24, WIDTH)))
    towers = [trunk(rng, WIDTH, HIDDEN, D) for _ in "tv"]
    towers[:sides] = [change(tower) for tower in towers[:sides]]
    assert_compiles_or_is_refused(tuple(towers), made)  # type: ignore[arg-type]


@pytest.mark.parametrize("calibrator", ["tails", "minmax", "percentile"])
@pytest.mark.parametrize(
    "rows",
    [
        np.ones((5, WIDTH)), np.zeros((5, WIDTH)), np.full((3, WIDTH), -7e4),
        np.eye(5, WIDTH) * 1e6, np.eye(5, WIDTH) * 1e-12, np.linspace(1, 2, WIDTH)[None],
        np.linspace(1e3, 1e3 + 1, 60).reshape(5, WIDTH),
    ],
    ids=["ones", "zeros", "constant", "large", "small", "one row", "offset"],
)  # fmt: skip
def test_odd_rows_compile_or_are_refused(rows: Array, calibrator: str) -> None:
    rng = np.random.default_rng(2)
    made = job(rows, rows[::-1], calibrator=calibrator)
    towers = trunk(rng, WIDTH, HIDDEN, D), trunk(rng, WIDTH, HIDDEN, D)
    assert_compiles_or_is_refused(towers, made)


@pytest.mark.parametrize("value", [0.37, 0.0, -12.5])
def test_a_constant_polynomial_compiles_to_its_constant(value: float) -> None:
    rng = np.random.default_rng(3)
    made = job(*rng.normal(size=(2, 8, WIDTH)))
    towers = trunk(rng, WIDTH, HIDDEN, D), trunk(rng, WIDTH, HIDDEN, D)
    found = scores(compiled(towers, made, Polynomial(1, (0.0, 0.0), value))[-1], made)
    np.testing.assert_allclose(found, value, atol=abs(value) * 2.0**-22)


@pytest.mark.parametrize("layer", ["mu_proj", "logvar_proj"])
@pytest.mark.parametrize("gain", [0.0, 1e-30])
def test_a_branch_that_gives_nothing_compiles(layer: str, gain: float) -> None:
    rng = np.random.default_rng(4)
    towers = []
    for _ in "tv":
        tower = branch(rng, D, HIDDEN)
        outer = tower.by_name[f"{layer}.3"].op
        assert isinstance(outer, Mvm)
        quiet = Mvm(outer.weight * gain, outer.bias * gain)
        towers.append(with_op(tower, f"{layer}.3", quiet))
    x = rng.normal(size=(2, 24, D))
    made = job(*(x / np.linalg.norm(x, axis=2, keepdims=True)))
    stages = compiled(tuple(towers), made)  # type: ignore[arg-type]
    exact, found = scores(stages[0], made), scores(stages[-1], made)
    assert np.sqrt(np.square(found - exact).mean()) < 0.1 * exact.std()


def test_an_accumulator_too_narrow_is_refused_by_name() -> None:
    rng = np.random.default_rng(5)
    made = job(*rng.normal(size=(2, 8, WIDTH)), accumulator_bits=12)
    towers = trunk(rng, WIDTH, HIDDEN, D), trunk(rng, WIDTH, HIDDEN, D)
    with pytest.raises(CimError, match=r"^text\.fc1: its sums need \d+ bits and .* has 12;"):
        compiled(towers, made)


def narrow_spread(d: int, items: int) -> tuple[tuple[Graph, Graph], Array, Array]:
    """A two-branch model as trained ones are: variances near 1, ed/d within 0.3% of itself."""
    rng = np.random.default_rng(6)
    towers = []
    for _ in "tv":
        tower = branch(rng, d, 2 * d, gain=0.1)
        outer = tower.by_name["logvar_proj.3"].op
        assert isinstance(outer, Mvm)
        flat = Mvm(outer.weight * 0.008, outer.bias * 0.01)
        towers.append(with_op(tower, "logvar_proj.3", flat))
    text = rng.normal(size=(items, d))
    video = text + 2.5 * rng.normal(size=(items, d))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (text, video)]
    return (towers[0], towers[1]), *unit


@pytest.mark.parametrize("degree", [1, 4])
def test_a_spread_of_a_few_thousandths_keeps_its_ranking(degree: int) -> None:
    d, items, calibration = 256, 250, 128
    towers, text, video = narrow_spread(d, items + calibration)
    coefficients = [0.0] * len(exponents(degree))
    coefficients[:2] = [-0.1 * d, 0.005 * d]
    if degree > 1:
        coefficients[2] = -0.01 * d  # a bend, as of a fit
    trained = raw(Polynomial(degree, tuple(coefficients), 50.0), TwoBranch.statistics(d))
    stages = compiled(towers, job(text[:calibration], video[:calibration]), trained)
    held = job(text[calibration:], video[calibration:])
    exact, found = scores(stages[0], held), scores(stages[-1], held)
    simulator = Simulator(stages[0].program)
    features = [simulator.encode(m, held.rows(m)) for m in ("text", "video")]
    ed = next(iter(simulator.iter_score(*features, ["ed"])))[1]["ed"]
    assert np.ptp(ed) / ed.mean() < 0.003
    assert np.ptp(ed[np.arange(items), np.arange(items)]) > 0
    assert top1_agreement(found, exact) >= 0.95


if __name__ == "__main__":
    GOLDEN.write_text(tiny(), "utf-8")
    print(f"wrote {GOLDEN}")
