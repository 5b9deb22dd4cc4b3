"""The demo's model of several seeds: its own training, and the same one with another `--seed`.

    python benchmarks/demo_seeds.py [--rows tf-idf] [--cache demo-cache] [--seeds 0,1,2]

Seed 0 is the demo's own. Others lie in folders of their seed below it. What is there is kept.
Rows are the encoder's, or with `--rows tf-idf` those that the demo makes itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cimtool
from cimtool.demo.data import DemoFiles, DemoSettings, installed_sources
from cimtool.demo.walk import FIRST_POLY, POLY_LOSS, TEACHER_LOSS, prepare_demo

CACHE = Path("demo-cache")
ROWS = {"encoder": DemoSettings.of_encoder(epochs=6), "tf-idf": DemoSettings(epochs=6)}
"""The settings of the demo by its rows."""


def demo_files(settings: DemoSettings, cache: Path = CACHE) -> DemoFiles:
    """The demo's files, made now unless `cache` has them."""
    return prepare_demo(cache, settings, installed_sources(), print)


def demo_models(files: DemoFiles, settings: DemoSettings, seeds: Sequence[int]) -> list[Path]:
    """The checkpoint of each seed; those that are not there are trained."""
    return [
        files.projectors if seed == 0 else trained(files, settings, seed) for seed in seeds
    ]  # fmt: skip


def trained(files: DemoFiles, settings: DemoSettings, seed: int) -> Path:
    """Train as the demo does, with another seed."""
    own = DemoFiles.under(files.train.parent / f"seed-{seed}")
    if own.projectors.exists():
        return own.projectors
    train: dict[str, Any] = {
        "epochs": settings.epochs,
        "batch": settings.batch,
        "seed": seed,
        "qrels": files.judged(files.train),
        "resume": True,
    }
    cimtool.train(
        files.train,
        own.teacher.parent,
        loss=TEACHER_LOSS,
        options=settings.options,
        learning_rate=settings.rate,
        **train,
    )
    labels = cimtool.teacher(
        own.teacher,
        files.train,
        labels="exact",
        pairs=settings.first_pairs,
        matched=settings.matched,
    )
    first = own.poly.with_name(FIRST_POLY)
    cimtool.fit(
        labels,
        projectors=own.teacher,
        data=files.few,
        qrels=files.judged(files.few),
        output=first,
    )
    cimtool.train(
        files.train, own.projectors.parent, loss=POLY_LOSS, start=own.teacher, poly=first,
        options=settings.poly_options, learning_rate=settings.poly_rate, **train,
    )  # fmt: skip
    return own.projectors


def main() -> None:
    """Train what is missing, and print the checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rows", choices=list(ROWS), default="encoder")
    given = parser.parse_args()
    seeds, settings = [int(one) for one in given.seeds.split(",")], ROWS[given.rows]
    for model in demo_models(demo_files(settings, given.cache), settings, seeds):
        print(model)


if __name__ == "__main__":
    main()
