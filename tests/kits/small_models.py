"""Untrained models of any shape, with jobs to compile them: for tests of passes and galleries."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from cimtool.base.progress import silent
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import TowerBuilder, assemble
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.op import Op
from cimtool.ir.program import Graph, Program
from cimtool.ir.source import BatchNorm
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.layouts.trunk import trunk_tower
from cimtool.loading.layouts.two_branch import two_branch_tower
from cimtool.passes.base import Job
from cimtool.passes.pipeline import passes_for, run_passes

WIDTH, HIDDEN, D, ROWS = 12, 10, 6, 48
QUADRATIC = Polynomial(2, (-0.1, 0.002, 1e-4, -1e-5, 2e-6), 0.3)

Rng = np.random.Generator


def dense(rng: Rng, rows: int, columns: int, gain: float = 1.0, bias: float = 0.1) -> Mvm:
    weight = rng.normal(size=(rows, columns)) * gain / np.sqrt(rows)
    return Mvm(weight.astype(np.float32).astype(np.float64), rng.normal(size=columns) * bias)


def norm(rng: Rng, width: int) -> BatchNorm:
    gamma, var = rng.uniform(0.5, 1.5, (2, width))
    beta, mean = rng.normal(size=(2, width)) * 0.2
    return BatchNorm(gamma, beta, mean, var, 1e-5)


def trunk(rng: Rng, width: int = WIDTH, hidden: int = HIDDEN, d: int = D) -> Graph:
    return trunk_tower(
        dense(rng, width, hidden),
        norm(rng, hidden),
        dense(rng, hidden, hidden),
        norm(rng, hidden),
        dense(rng, hidden, d),
        dense(rng, hidden, d, gain=0.2),
    )


def branch(rng: Rng, d: int = D, hidden: int = HIDDEN) -> Graph:
    return two_branch_tower(
        (dense(rng, d, hidden), dense(rng, hidden, d, gain=0.2)),
        (dense(rng, d, hidden), dense(rng, hidden, d)),
    )


def with_ops(tower: Graph, **ops: Op) -> Graph:
    """A tower with other operations in the place of those of these names."""
    nodes = (replace(node, op=ops.get(node.name, node.op)) for node in tower.nodes)
    return replace(tower, nodes=tuple(nodes))


def moved(tower: Graph, offset: float) -> Graph:
    """A tower whose mu is further off by an offset."""
    mu = tower.by_name["mu"].op
    assert isinstance(mu, Mvm)
    return with_ops(tower, mu=replace(mu, bias=mu.bias + offset))


def program(text: Graph, video: Graph, polynomial: Polynomial = QUADRATIC) -> Program:
    return assemble(text, video, PcmePoly(polynomial))


def curved_tower(curve: Op, fc: Mvm | None, mu: Mvm, logvar: Mvm) -> Graph:
    """A layer, a curve of its values (or of the input), and the heads on it."""
    builder = TowerBuilder((fc or mu).weight.shape[0])
    hidden = builder.add("curve", curve, builder.add("fc", fc, "x") if fc else "x")
    return builder.tower(builder.add("mu", mu, hidden), builder.add("logvar", logvar, hidden))


def curved(op: Op, gain: float, first: bool = True) -> Program:
    """Both modalities by a layer of this gain, the curve and the heads."""
    rng, towers = np.random.default_rng(21), []
    for _ in range(2):
        fc = dense(rng, WIDTH, WIDTH, gain) if first else None
        towers.append(curved_tower(op, fc, dense(rng, WIDTH, D), dense(rng, WIDTH, D, gain=0.2)))
    return program(*towers)


def job(
    text: np.ndarray,
    video: np.ndarray,
    target: str = "ideal",
    notes: list[str] | None = None,
    **flags: object,
) -> Job:
    rows = [np.asarray(x, np.float32) for x in (text, video)]
    note = (notes if notes is not None else []).append
    return Job(resolve(load_target(target), None, flags), *rows, note)


def passed(program: Program, job: Job, *names: str) -> list[Program]:
    """A trained program after each of the passes named."""
    passes = passes_for(job.settings)
    last = max(i for i, step in enumerate(passes) if step.name in names)
    stages = run_passes(passes[: last + 1], program, job, silent)
    return [stage.program for stage in stages if stage.name in names]


def small_models() -> SimpleNamespace:
    """Everything above by name, and a small `trunk` and `two-branch` with data each."""
    rng = np.random.default_rng(11)
    data = rng.normal(size=(2, ROWS, WIDTH))
    unit = rng.normal(size=(2, ROWS, D))
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    return SimpleNamespace(
        dense=dense, norm=norm, with_ops=with_ops, moved=moved, trunk=trunk, branch=branch,
        program=program, job=job,
        small=program(trunk(rng), trunk(rng)), data=data,
        branches=program(branch(rng), branch(rng)), unit=unit,
        polynomial=QUADRATIC,
    )  # fmt: skip
