"""Random small matchers for a head: two towers of one layer each, rows, and settings.

`python tests/kits/random_heads.py HEAD [COUNT [FIRST]]` compares all implementations on 720 of
them, or on those of the seeds from FIRST to COUNT.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from c_tools import c_compiler
from onnx.reference import ReferenceEvaluator
from small_models import dense, job

from cimtool.base.arrays import Array
from cimtool.base.progress import silent
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.handoff.c.part import write_c
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.csd import CsdRanking
from cimtool.ir.heads.inclusion import InclusionHead
from cimtool.ir.heads.maxsim import MaxSim
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.ir.program import Graph, Program, as_inputs
from cimtool.loading.tokens import per_token
from cimtool.passes.pipeline import compile_program
from cimtool.simulation.simulator import Runner

TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")

Rng = np.random.Generator


def probcosine(rng: Rng) -> Head:
    if rng.integers(3) == 0:
        return ProbCosine()
    return ProbCosine(float(rng.uniform(0.5, 100)), None if rng.integers(2) else rng.normal())


HEADS: dict[str, Callable[[Rng], Head]] = {
    "probcosine": probcosine,
    "inclusion": lambda rng: InclusionHead(),
    "csd-ranking": lambda rng: CsdRanking(),
    "maxsim": lambda rng: MaxSim(*map(int, rng.integers(1, 9, 2))),
}

NOT_IN_C = ("maxsim",)
"""Heads whose items are several rows, which the C model refuses."""


@dataclass(frozen=True)
class RandomMatcher:
    """A compiled program with its trained form, and rows by modality."""

    trained: Program
    program: Program
    rows: dict[str, Array]


def random_matcher(seed: int, head: str, least_bits: int = 4) -> RandomMatcher:
    """A matcher of a few dimensions, whose means and variances differ in size by orders."""
    rng = np.random.default_rng(seed)
    width, d = int(rng.integers(1, 9)), int(rng.integers(1, 13))
    if Head.family[head].takes_tokens:
        d = max(d, 2)  # a norm of one dimension comes near 0, which calibration refuses
    towers = tuple(_tower(rng, width, d) for _ in range(2))
    scored = HEADS[head](rng)
    if scored.takes_tokens:
        towers = tuple(map(per_token, towers, scored.tokens))
    trained = assemble(*towers, scored)
    target = str(rng.choice(TARGETS))
    bits = {key: int(rng.integers(least_bits, 9)) for key in ("feature_bits", "activation_bits")}
    text, video = (
        rng.normal(size=(int(rng.integers(4, 24)), count * width)) + rng.normal(size=count * width)
        for count in scored.tokens
    )
    program = compile_program(trained, job(text, video, target, **bits), silent)[-1].program
    more = {"text": text, "video": video}
    # Some rows are beyond those that calibrated it.
    rows = {m: np.concatenate([x[:4], 1.5 * x[:3]]).astype(np.float32) for m, x in more.items()}
    return RandomMatcher(trained, program, rows)


def _tower(rng: np.random.Generator, width: int, d: int) -> Graph:
    builder = TowerBuilder(width)
    mu = dense(rng, width, d, gain=float(np.exp2(rng.integers(-3, 4))))
    logvar = dense(rng, width, d, gain=float(rng.uniform(0, 0.3)), bias=float(rng.uniform(0, 1)))
    return builder.tower(builder.add("mu", mu, "x"), builder.add("logvar", logvar, "x"))


def differing(program: Program, rows: dict[str, Array]) -> tuple[int, int]:
    """Count a program's outputs, and those that any implementation has different.

    Fast kernels, torch, ONNX Runtime and ONNX's evaluator against the readable operations.
    """
    counts = np.zeros(2, int)
    features: dict[str, Array] = {}
    for graph in (program.text, program.video):
        found, own = _differing(graph, {"x": rows[graph.name]})
        counts += own
        features |= as_inputs(graph.name, found)
    _, own = _differing(program.score, features)
    compared, wrong = counts + own
    return int(compared), int(wrong)


def _differing(graph: Graph, inputs: dict[str, Array]) -> tuple[dict[str, Array], np.ndarray]:
    right = graph.run(inputs)
    model = onnx_model(graph)
    fed = {
        one.name: inputs[name] for one, name in zip(model.graph.input, graph.inputs, strict=True)
    }
    outputs = [one.name for one in model.graph.output]
    evaluated = ReferenceEvaluator(model).run(None, fed)
    others = [
        Runner(graph).run(inputs),
        Runner(graph, device="cpu").run(inputs),
        Session(file_bytes(model)).run(fed),
        dict(zip(outputs, evaluated, strict=True)),
    ]
    counts = np.zeros(2, int)
    for other in others:
        for name, value in right.items():
            assert other[name].shape == value.shape
            counts += value.size, np.count_nonzero(other[name] != value)
    return right, counts


def c_differing(program: Program, folder: Path) -> tuple[int, int]:
    """Count the values of a program that its C model computes, and those that differ."""
    folder.mkdir()
    bundle = SimpleNamespace(program=program, model=SimpleNamespace(name="random"))
    write_c(SimpleNamespace(bundle=bundle, request=SimpleNamespace(inputs=None)), folder)
    gcc = c_compiler("gcc")
    subprocess.run([gcc, "-std=c99", "-O0", "check.c", "-o", "check"], cwd=folder, check=True)
    done = subprocess.run(["./check"], cwd=folder, capture_output=True, text=True, check=False)
    total = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["all"])
    compared, _, wrong, _ = total.split()[1:]
    return int(compared), int(wrong)


def main(head: str, count: int = 720, first: int = 0) -> int:
    """Compare random matchers of a head, in C too if C covers the head."""
    total = np.zeros((2, 2), int)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, count):
            made = random_matcher(seed, head)
            total[0] += differing(made.program, made.rows)
            if head not in NOT_IN_C:
                total[1] += c_differing(made.program, Path(folder) / str(seed))
            if seed % 60 == 59 or seed == count - 1:
                (all_of, wrong), (in_c, wrong_c) = total.tolist()
                print(
                    f"{head}: {seed + 1 - first} programs, {all_of} numbers compared, {wrong} "
                    f"differ; in C {in_c} compared, {wrong_c} differ",
                    flush=True,
                )
    return int(total[:, 1].any())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
