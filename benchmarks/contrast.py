"""InfoNCE beside binary cross-entropy of all pairs, over batch sizes and temperatures.

    python benchmarks/contrast.py [--rows 2000] [--width 256] [--epochs 6] [--seeds 1]
                                  [--batches 16,64,256] [--temperatures 0.1,0.7,2] [--json FILE]

Trained on functions and their docstrings, as the demo, by losses info-nce and pairwise-bce with
s = -a ed. R@1 and R@10 are of the last epoch on 1,500 other pairs, means of both ways. There, in
batches of the size n that trained, `a text's loss` is what its question costs:

    InfoNCE   mean of -log(e^(s_ii/tau) / sum_j e^(s_ij/tau))
    BCE       mean over texts of -log p_ii - sum_{j != i} log(1 - p_ij), p = sigmoid((b + s) / tau)

`even` is the same with every wrong score replaced by their mean and every right one by theirs, and
`limit` what InfoNCE comes to then for many wrong items, log(n - 1) + (s_wrong - s_right) / tau.
(The document that derives it leaves out log(n - 1).) BCE has none: its sum grows with n.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import parser, report, use_threads
from torch import Tensor
from torch.nn import functional
from training import embedded

import cimtool
from cimtool.training.job import make_job, read_start
from cimtool.training.losses.pairwise_bce import PairwiseBce, pairwise
from cimtool.training.towers import all_pairs_ed

A = 0.1
B = PairwiseBce().b


def scores_of(checkpoint: Path, held: Any) -> Tensor:
    """Return -a ed of all held-out pairs, [m, m], in float64."""
    job = make_job(held, None, {"start": checkpoint, "held_out": 0.5, "batch": 2})
    towers = job.model.build(held["text"].shape[1], held["video"].shape[1])
    read_start(checkpoint).load(towers, job.model.name)
    sides = towers.encode(*(torch.from_numpy(held[name]) for name in ("text", "video")))
    moments = [x.double() for side in sides for x in side.moments]
    return -A * all_pairs_ed(*moments)


def cost(loss: str, scores: Tensor, tau: float) -> float:
    """Return the loss of a batch's scores [n, n], a text."""
    if loss == "info-nce":
        return functional.cross_entropy(scores / tau, torch.arange(len(scores))).item()
    logits = (B + scores) / tau
    return pairwise(functional.logsigmoid(logits), functional.logsigmoid(-logits)).item()


def costs(loss: str, scores: Tensor, size: int, tau: float) -> tuple[float, float, float]:
    """Return the loss in batches, the same of even scores, and the limit."""
    starts = range(0, len(scores) - size + 1, size)
    blocks = [scores[i : i + size, i : i + size] for i in starts]
    wrong = ~torch.eye(size, dtype=torch.bool)
    right = float(np.mean([one.diagonal().mean().item() for one in blocks]))
    other = float(np.mean([one[wrong].mean().item() for one in blocks]))
    even = torch.full((size, size), other, dtype=scores.dtype).fill_diagonal_(right)
    limit = math.log(size - 1) + (other - right) / tau
    found = float(np.mean([cost(loss, one, tau) for one in blocks]))
    return found, cost(loss, even, tau), limit


def measured(
    rows: Any, held: Any, loss: str, size: int, tau: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Return one row of the table: means over the seeds."""
    found = []
    shape = {"model.hidden": 2 * options.width, "model.width": options.width}
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            run = cimtool.train(
                rows,
                Path(folder) / "run",
                validation=held,
                loss=loss,
                batch=size,
                epochs=options.epochs,
                seed=seed,
                options={**shape, "loss.tau": tau},
            )
            last = run.history[-1].means
            scores = scores_of(run.folder / "last.pth", held)
            found.append((last["R@1"], last["R@10"], *costs(loss, scores, size, tau)))
    r1, r10, mean, even, limit = np.mean(found, axis=0)
    return {
        "loss": loss,
        "batch": size,
        "tau": tau,
        "R@1": f"{r1:.1%}",
        "R@10": f"{r10:.1%}",
        "a text's loss": float(mean),
        "even": float(even),
        "limit": float(limit) if loss == "info-nce" else "",
    }


def main() -> None:
    """Print the table."""
    found = parser(__doc__.splitlines()[0], 1)
    for name, value in {"rows": 2000, "width": 256, "epochs": 6, "seeds": 1}.items():
        found.add_argument(f"--{name}", type=int, default=value)
    found.add_argument("--batches", default="16,64,256", metavar="N,N")
    found.add_argument("--temperatures", default="0.1,0.7,2", metavar="X,X")
    options = found.parse_args()
    use_threads()
    rows, held = embedded(options.rows, options.width)
    table = [
        measured(rows, held, loss, int(size), float(tau), options)
        for loss in ("info-nce", "pairwise-bce")
        for size in options.batches.split(",")
        for tau in options.temperatures.split(",")
    ]
    report("contrast", table, options.json)


if __name__ == "__main__":
    main()
