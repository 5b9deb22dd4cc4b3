"""Held-out RMSEs of polynomials with and without the third cumulant of the squared distance.

    python benchmarks/third_cumulant.py [MODEL DATA] [--seeds MODEL MODEL] [--json FILE]

D is a sum of squares of independent normals with means m and variances s, so that its cumulants are
closed: ed = sum m^2 + s, vd = sum 2 s^2 + 4 m^2 s, kappa3 = sum 8 s^3 + 24 m^2 s^2. Exact labels of
pairs of DATA are fitted by polynomials of one total degree in (ed, vd) and in (ed, vd, kappa3);
a tenth of the pairs is held out. Brackets hold 95% of resampled texts; the ratio is paired. MODEL
is a checkpoint, `--seeds` the same training by other seeds; without it, the demo's by three seeds.
The last rows are of a made-up model of large variances, which are spread over few dimensions of
some items and over all of others: there ed and vd say least about kappa3.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from demo_seeds import ROWS, demo_files, demo_models
from harness import report

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.intervals import Change
from cimtool.base.progress import silent
from cimtool.ir.surrogate import MAX_DEGREE
from cimtool.loading.source import ModelSource
from cimtool.reference.bootstrap import interval, resamples
from cimtool.reference.statistics import Gaussians
from cimtool.training.degrees import polynomial_cost
from cimtool.training.fit import HELD
from cimtool.training.items import Items, model_items
from cimtool.training.polynomial import ALPHA, ridge_regression
from cimtool.training.teacher import TeacherSigmoid
from cimtool.training.teacher_file import Teacher, make_teacher, sigmoid_of

MATCHED = 0.5
"""Share of right pairs."""

AT_ONCE = 4096
"""Pairs whose third cumulants are computed at a time."""

A, B, VARIANCE, FLOOR = 0.1, 25.0, 1.3, 0.02
"""Of the constructed model: its sigmoid, the mean variance of a dimension and the least one."""

HALF = 0.5
"""The ratio of RMSEs below which a head with kappa3 would be offered."""

PRODUCTS, FEATURES = 7, 3
"""Products of items that kappa3 adds to those of vd, and features of the item that they need."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Statistics [n, 3] and exact logits [n] of labelled pairs, and the `text` of each."""

    statistics: FloatArray
    logit: FloatArray
    text: IntArray
    held: Array


def third_cumulants(text: Gaussians, video: Gaussians, rows: tuple[IntArray, IntArray]) -> Array:
    """kappa3 of pairs, given their rows [n] each."""
    found = []
    for start in range(0, len(rows[0]), AT_ONCE):
        i, j = (one[start : start + AT_ONCE] for one in rows)
        s, m = text.s[i] + video.s[j], text.mu[i] - video.mu[j]
        found.append((8 * s**3 + 24 * m**2 * s**2).sum(axis=1))
    return np.concatenate(found)


def third_cumulants_by_products(text: Gaussians, video: Gaussians) -> FloatArray:
    """kappa3 [n, m] of all pairs by PRODUCTS matrix products, and sums of each item alone."""
    m, s, u, v = text.mu, text.s, video.mu, video.s
    alone = [(8 * x.s**3 + 24 * x.mu**2 * x.s**2).sum(axis=1) for x in (text, video)]
    factors = (
        (s, v**2 + 2 * v * u**2),
        (s**2 + 2 * s * m**2, v),
        (s**2, u**2),
        (m**2, v**2),
        (-4 * s * m, v * u),
        (-2 * s**2 * m, u),
        (-2 * m, v**2 * u),
    )
    found: FloatArray = alone[0][:, None] + alone[1]
    return found + 24 * sum(one @ other.T for one, other in factors)


def constructed(items: int = 600, d: int = 64) -> tuple[Items, TeacherSigmoid]:
    """Items of large variances, in few dimensions of some and in all dimensions of others.

    The mean of a^2 vd is 44, nearly twice that of the demo.
    """
    rng = np.random.default_rng(0)
    mu = rng.normal(size=(items, d))
    sides = []
    for shift in (0.0, 0.5):
        share = np.exp(rng.uniform(np.log(4 / d), 0, size=(items, 1)))
        noisy = rng.random((items, d)) < share
        spread = noisy * rng.uniform(0.2, 1, size=(items, d))
        total = rng.uniform(0.5, 1.5, size=(items, 1)) * VARIANCE * d
        s = FLOOR + total * spread / np.maximum(spread.sum(axis=1, keepdims=True), 1)
        sides.append(Gaussians(mu + shift * rng.normal(size=mu.shape), s))
    text, video = sides
    return Items(text, video, np.arange(items), file="constructed"), TeacherSigmoid(A, B)


def labelled(items: Items, sigmoid: TeacherSigmoid, count: int) -> Pairs:
    """Exact labels of `count` pairs; the same pair drawn twice is in one part."""
    teacher: Teacher = make_teacher(items, count, MATCHED, "exact", sigmoid)
    assert teacher.text is not None
    assert teacher.video is not None
    rows = teacher.text, teacher.video
    labels = teacher.labels
    third = third_cumulants(items.text, items.video, rows)
    distinct, which = np.unique(rows[0] * len(items.video) + rows[1], return_inverse=True)
    chosen = np.random.default_rng(0).random(len(distinct)) < HELD
    statistics = np.stack([labels.ed, labels.vd, third], axis=1)
    return Pairs(statistics, labels.logit, teacher.text, chosen[which])


def squared_errors(pairs: Pairs, statistics: int, degree: int) -> FloatArray:
    """Squared errors of held-out pairs, of a fit in the first `statistics` of three."""
    values = pairs.statistics[:, :statistics]
    seen = ~pairs.held
    values = (values - values[seen].mean(axis=0)) / values[seen].std(axis=0)
    powers = [p for p in product(range(degree + 1), repeat=statistics) if 0 < sum(p) <= degree]
    terms = np.stack([np.prod(values**p, axis=1) for p in powers], axis=1)
    coeff, bias = ridge_regression(terms[seen], pairs.logit[seen], ALPHA, None)
    error = terms[pairs.held] @ coeff + bias - pairs.logit[pairs.held]
    return np.square(error)


def compared(pairs: Pairs, degree: int) -> tuple[Change, Change, Change]:
    """RMSEs in (ed, vd) and with kappa3, and the ratio of the second to the first."""
    two, three = (squared_errors(pairs, count, degree) for count in (2, 3))
    drawn = [
        [np.sqrt(sample.text.mean(one)) for one in (two, three)]
        for sample in resamples(pairs.text[pairs.held], 1, 0)
    ]
    before, after = (np.concatenate(one) for one in zip(*drawn, strict=True))
    own, other = float(np.sqrt(two.mean())), float(np.sqrt(three.mean()))
    return _change(own, before), _change(other, after), _change(other / own, after / before)


def _change(value: float, draws: FloatArray) -> Change:
    ends = interval(draws)
    return Change(value, ends.low, ends.high)


def rows_of(name: str, pairs: Pairs, degrees: Sequence[int]) -> Iterator[dict[str, str]]:
    """A row for each degree."""
    for degree in degrees:
        two, three, ratio = compared(pairs, degree)
        yield {
            "model": name,
            "degree": str(degree),
            "ed, vd": _cell(two),
            "ed, vd, kappa3": _cell(three),
            "ratio": _cell(ratio),
            "less than half": "yes" if ratio.high < HALF else "no",
        }


def _cell(change: Change) -> str:
    return f"{change.value:.3g} [{change.low:.3g}, {change.high:.3g}]"


def main(words: Sequence[str] | None = None) -> None:
    """Print the RMSEs of every model and degree, and the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--rows", choices=list(ROWS), default="encoder", help="of the demo")
    parser.add_argument("--a", type=float, help="of sigmoid(b - a D), if MODEL does not say it")
    parser.add_argument("--b", type=float)
    parser.add_argument("--pairs", type=int, default=60_000)
    parser.add_argument("--degrees", default=",".join(map(str, range(1, MAX_DEGREE + 1))))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    given = parser.parse_args(words)
    if (given.model is None) != (given.data is None):
        parser.error("expected MODEL and DATA, or neither")
    models, data = [given.model, *given.seeds], given.data
    if given.model is None:
        settings = ROWS[given.rows]
        files = demo_files(settings)
        models, data = demo_models(files, settings, (0, 1, 2)), files.train
    degrees = [int(one) for one in given.degrees.split(",")]
    rows: list[dict[str, str]] = []
    for model in models:
        items = model_items(ModelSource(model), data, silent)
        known = {name: x for name, x in (("a", given.a), ("b", given.b)) if x is not None}
        sigmoid, _ = sigmoid_of(str(model), items.a, items.b, known)
        rows += rows_of(str(model), labelled(items, sigmoid, given.pairs), degrees)
    rows += rows_of("constructed", labelled(*constructed(), given.pairs), degrees)
    cost = polynomial_cost(2, ed_alone=False)
    note = (
        f"ed and vd take {cost.products} products of items and {cost.features} features of the "
        f"item; kappa3 takes {PRODUCTS} and {FEATURES} more."
    )
    report("third_cumulant", rows, given.json, [note])


if __name__ == "__main__":
    main()
