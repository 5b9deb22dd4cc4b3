"""Loss of recall by training on the polynomial, against training on -a ed, on the demo's data.

    python benchmarks/training.py [--rows 4000] [--width 256] [--epochs 6] [--tuning 10]
                                  [--seeds 3] [--device cuda] [--json FILE]

For each seed: projectors trained on -a ed (loss info-nce); a polynomial of degree 4 fitted to exact
labels of that model; projectors of the same start trained for as many epochs, at the same rate and
temperature, on the polynomial's logits (info-nce-poly); and the first ones trained on with the
defaults of info-nce-poly (for --tuning epochs; 0: not at all). R@10 is of the last epoch on
held-out pairs, the mean of both ways.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import cimtool
from cimtool.demo.data import collect_pairs, document_rows, installed_sources

HELD = 1500
RATE, TAU = 1e-4, 0.7


def embedded(rows: int, width: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Embeddings of functions and docstrings as the demo makes them: to train on, held out."""
    found = collect_pairs(installed_sources())
    order = np.random.default_rng(0).permutation(len(found))[: rows + HELD]
    pairs = [found[i] for i in order]
    train, held = {}, {}
    for name, side in (("text", "text"), ("video", "code")):
        embedded_rows = document_rows([getattr(pair, side) for pair in pairs], HELD, width)
        train[name], held[name] = embedded_rows[HELD:], embedded_rows[:HELD]
    return train, held


def recalls(rows: Any, held: Any, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """R@10 of the three models of a seed, and the share of pairs outside the polynomial's band."""
    shape = {"model.hidden": 2 * options.width, "model.width": options.width}
    same: dict[str, Any] = {"validation": held, "seed": seed, "device": options.device}
    both = {**same, "epochs": options.epochs, "learning_rate": RATE}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        plain = cimtool.train(rows, place / "plain", options={**shape, "loss.tau": TAU}, **both)
        last = plain.folder / "last.pth"
        teacher = cimtool.teacher(
            last, rows, labels="exact", pairs=100_000, matched=0.5, a=0.1, b=0.0
        )
        poly = place / "poly.json"
        cimtool.fit(teacher, degree=4, output=poly)
        fresh = cimtool.train(
            rows, place / "fresh", poly=poly, options={**shape, "loss.tau": TAU}, **both
        )
        found = {
            "-a ed": plain.history[-1].means["R@10"],
            "polynomial": fresh.history[-1].means["R@10"],
            "outside": fresh.history[-1].watched["outside"],
        }
        if options.tuning:
            tuned = cimtool.train(
                rows, place / "tuned", poly=poly, start=last, epochs=options.tuning, **same
            )
            found["-a ed, scored by polynomial"] = tuned.history[0].means["R@10"]
            found["and trained on"] = tuned.history[-1].means["R@10"]
    return found


def main() -> None:
    """Print a line a seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = {"rows": 4000, "width": 256, "epochs": 6, "tuning": 10, "seeds": 3}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu, cuda or cuda:N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    rows, held = embedded(options.rows, options.width)
    found = []
    for seed in range(options.seeds):
        found.append(recalls(rows, held, seed, options))
        print(f"seed {seed}:", ", ".join(f"{k} {v:.2%}" for k, v in found[-1].items()), flush=True)
    means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    print("means: ", ", ".join(f"{name} {value:.2%}" for name, value in means.items()))
    if options.json is not None:
        values = {"rows": len(rows["text"]), **vars(options), "seeds": found, "means": means}
        options.json.write_text(json.dumps(values, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
