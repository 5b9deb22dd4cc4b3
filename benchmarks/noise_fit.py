"""The share of synthetic chips whose parameters `noise fit` holds, all of a chip together."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.polynomial.polynomial import polyval

from cimtool.noise_fitting.fit import fit_noise

G_MAX, T0, LEVELS, TIMES = 20.0, 20.0, 8, 5
CASES = {
    "phase change": ([0.3, 1.1, -0.5], [0.06, -0.03], 0.01, 0.02),
    "resistive": ([1.0, 0.5, -0.8], [0.005, 0.0], 0.002, 0.01),
}
"""Coefficients of sigma in uS and of the mean of nu; the deviations of nu and of a reading."""

Truth = dict[str, float]


def truth_of(case: str, kind: str) -> Truth:
    """The parameters of a case that a kind of table shows."""
    sigma, nu, spread, read = CASES[case]
    found = {f"programming.sigma[{power}]": value for power, value in enumerate(sigma)}
    if kind == "column sums":
        return found
    found |= {f"drift.mean[{power}]": value for power, value in enumerate(nu)}
    return found | {"drift.sigma[0]": spread, "read.sigma": read}


def devices(case: str, count: int, rng: np.random.Generator) -> str:
    """Readings of `count` devices of each target at five times."""
    sigma, mean, spread, read = CASES[case]
    x = np.repeat(np.linspace(0, 1, LEVELS), count)
    g = np.maximum(G_MAX * x + polyval(x, sigma) * rng.normal(size=x.size), 0)
    nu = polyval(x, mean) + spread * rng.normal(size=x.size)
    lines = ["device,target,seconds,conductance"]
    for t in T0 * 10.0 ** np.arange(TIMES):
        seen = g * (t / T0) ** -nu * (1 + read * rng.normal(size=x.size))
        each = zip((G_MAX * x).tolist(), seen.tolist(), strict=True)
        lines += [f"{i},{target},{t},{value}" for i, (target, value) in enumerate(each)]
    return "\n".join(lines) + "\n"


def sums(case: str, count: int, rng: np.random.Generator) -> str:
    """Mean and deviation over `count` columns of 256 cells of each target above 0."""
    lines = ["target,rows,columns,mean,deviation"]
    for x in np.linspace(0, 1, LEVELS)[1:]:
        cells = G_MAX * x + polyval(x, CASES[case][0]) * rng.normal(size=(count, 256))
        seen = np.maximum(cells, 0).sum(axis=1)
        lines.append(f"{G_MAX * x},256,{count},{seen.mean()},{seen.std(ddof=1)}")
    return "\n".join(lines) + "\n"


KINDS = {"devices over time": devices, "column sums": sums}


def main() -> None:
    """Print a Markdown row for each case and each kind of table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chips", type=int, default=100)
    parser.add_argument("--count", type=int, default=200, help="devices or columns of a target")
    options = parser.parse_args()
    print("| memory | data | parameters | chips that hold all | missed |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.csv"
        for case in CASES:
            for kind, draw in KINDS.items():
                truth, missed, held = truth_of(case, kind), Counter[str](), 0
                for seed in range(options.chips):
                    file.write_text(draw(case, options.count, np.random.default_rng(seed)))
                    parameters = fit_noise(file).parameters
                    out = [p.key for p in parameters if not p.low <= truth[p.key] <= p.high]
                    missed.update(out)
                    held += not out
                told = ", ".join(f"{key} {count}" for key, count in missed.most_common()) or "none"
                cells = (case, kind, len(truth), f"{held} of {options.chips}", told)
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
