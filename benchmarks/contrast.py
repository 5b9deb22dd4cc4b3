"""InfoNCE beside binary cross-entropy of all pairs, over batch sizes and temperatures.

    python benchmarks/contrast.py [--rows 2000] [--width 256] [--epochs 6] [--seeds 1]
                                  [--batches 16,64,256] [--temperatures 0.1,0.7,2] [--json FILE]
    python benchmarks/contrast.py --data PAIRS.npz [--model two-branch] [--a 15] [--b 125]

Trained by losses info-nce and pairwise-bce on functions and their docstrings, as the demo, or on
60% of the videos of `--data` with all their texts. s = -a ed. R@1 and R@10 are of the last epoch on
the pairs that do not train, means of both ways. There, in batches of the size n that trained, `a
text's loss` is what its question costs:

    InfoNCE   mean of -log(e^(s_ii/tau) / sum_j e^(s_ij/tau))
    BCE       mean over texts of -log p_ii - sum_{j != i} log(1 - p_ij), p = sigmoid((b + s) / tau)

`even` is the same with every wrong score replaced by their mean and every right one by theirs;
`limit` is what InfoNCE comes to then for many wrong items, log(n - 1) + (s_wrong - s_right) / tau,
and `no log` the same without log(n - 1), as the document that derives it has it. BCE has no such
limit: its sum grows with n. Pairs of texts that share a video are left out, as in training.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cross_attention import parts
from harness import parser, report, use_threads
from torch import Tensor
from torch.nn import functional
from training import embedded

import cimtool
from cimtool.loading.embeddings import read_data, read_embeddings
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from cimtool.training.losses.pairwise_bce import pairwise

Part = Mapping[str, Any]


def cost(loss: str, logits: Tensor, videos: Tensor) -> float:
    """Return the loss of a batch's logits [n, n], already divided by tau, a text."""
    if loss == "pairwise-bce":
        logs = functional.logsigmoid(logits), functional.logsigmoid(-logits)
        return pairwise(*logs, videos).item()
    shared = (videos[:, None] == videos[None, :]).fill_diagonal_(False)
    masked = logits.masked_fill(shared, -torch.inf)
    return functional.cross_entropy(masked, torch.arange(len(logits))).item()


def costs(loss: str, scores: Tensor, right: Tensor, size: int, tau: float) -> tuple[float, ...]:
    """Return the loss in batches of scores b - a ed, that of even ones, and both limits."""
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(0))
    found = []
    for start in range(0, len(order) - size + 1, size):
        texts = order[start : start + size]
        videos = right[texts]
        batch = scores[texts][:, videos] / tau
        wrong = videos[:, None] != videos[None, :]
        own, other = batch.diagonal().mean(), batch[wrong].mean()
        even = torch.where(wrong, other, own)
        rivals = wrong.sum().item() / size
        gap = (other - own).item()
        losses = (cost(loss, one, videos) for one in (batch, even))
        found.append((*losses, math.log(rivals) + gap, gap))
    return tuple(np.mean(found, axis=0))


def measured(
    rows: Part, held: Part, loss: str, size: int, tau: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Return one row of the table: means over the seeds."""
    found = []
    right = torch.from_numpy(held.get("text_to_video", np.arange(len(held["text"]))))
    own = {"loss.b": options.b} if loss == "pairwise-bce" else {}
    shape: dict[str, Any] = {"model.hidden": 2 * options.width}
    # Model two-branch is as wide as the rows; small variances keep b near a times ed.
    shape |= (
        {"model.width": options.width} if options.model == "trunk" else {"model.logvar_start": -5.0}
    )
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            run = cimtool.train(
                rows,
                Path(folder) / "run",
                validation=held,
                model=options.model,
                loss=loss,
                batch=size,
                epochs=options.epochs,
                seed=seed,
                options={**shape, "loss.a": options.a, "loss.tau": tau, **own},
            )
            last = run.history[-1].means
            model = ModelSource(run.folder / "last.pth", head="csd").load()
            unseen = read_data(held, model)
            scores = torch.from_numpy(Simulator(model.program).scores(unseen.text, unseen.video))
            losses = costs(loss, scores.double(), right, size, tau)
            found.append((last["R@1"], last["R@10"], *losses))
    r1, r10, mean, even, limit, gap = map(float, np.mean(found, axis=0))
    limits = (limit, gap) if loss == "info-nce" else ("", "")
    return {
        "loss": loss,
        "batch": size,
        "tau": tau,
        "R@1": f"{r1:.1%}",
        "R@10": f"{r10:.1%}",
        "a text's loss": mean,
        "even": even,
        "limit": limits[0],
        "no log": limits[1],
    }


def main() -> None:
    """Print the table."""
    found = parser(__doc__.splitlines()[0], 1)
    for name, value in {"rows": 2000, "width": 256, "epochs": 6, "seeds": 1}.items():
        found.add_argument(f"--{name}", type=int, default=value)
    for name, slope in {"a": 0.1, "b": 5.0}.items():
        found.add_argument(f"--{name}", type=float, default=slope)
    found.add_argument("--batches", default="16,64,256", metavar="N,N")
    found.add_argument("--temperatures", default="0.1,0.7,2", metavar="X,X")
    found.add_argument("--model", default="trunk", help="trunk or two-branch")
    found.add_argument("--data", type=Path, metavar="NPZ", help="pairs in place of the functions")
    options = found.parse_args()
    use_threads()
    rows, held = (
        embedded(options.rows, options.width)
        if options.data is None
        else parts(read_embeddings(options.data), 0, 1000)
    )
    table = [
        measured(rows, held, loss, int(size), float(tau), options)
        for loss in ("info-nce", "pairwise-bce")
        for size in options.batches.split(",")
        for tau in options.temperatures.split(",")
    ]
    report("contrast", table, options.json)


if __name__ == "__main__":
    main()
