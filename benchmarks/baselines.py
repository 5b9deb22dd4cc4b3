"""False alarms and finds of `verify --baseline`, on equal builds and on degraded ones.

    python benchmarks/baselines.py [--seeds 100] [--json FILE]

A small trunk is trained on made-up pairs and compiled at 8 bits; its queries are among 3,000 unseen
pairs. Each row counts, over seeds, the comparisons that fail by R@1 of either way, by top-1
agreement, by logit RMSE, and by any:

* same build: with itself
* other calibration rows: the model compiled twice, each on 96 rows of its own
* swapped: the same two builds, each query's answers swapped between them by the toss of a coin, so
  that neither is better but by chance: the level of the test
* fewer bits of the weights

`loss` is that of R@1 from text to video, the mean over seeds, `80% power` the loss that is found in
80% of such draws as the width of the interval has it. Each seed draws other queries.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import parser, report, use_threads

import cimtool
from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.modality_names import TEXT_VIDEO
from cimtool.ir.program import Program
from cimtool.reference.metrics import ReferenceScores, on_grid
from cimtool.reference.queries import Queries, Selection, compared
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_of
from cimtool.simulation.simulator import Simulator
from cimtool.verification.drift import KEPT, KeptQueries, KeptRun
from cimtool.verification.paired import Comparison, EarlierRun, ThisRun, compare_runs

WIDTH, HIDDEN, D = 32, 48, 24
TRAINED, CALIBRATED, UNSEEN = 1024, 96, 3000
NOISE = 0.3
QUERIES, BITS = (100, 300, 1000), (6, 5, 4, 3)


def pairs(count: int, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Rows of a text, and of a video that is the text in a turned space with noise."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)))[0]
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(count, WIDTH)).astype(np.float32)
    video = text @ turn + NOISE * rng.normal(size=text.shape)
    return {"text": text, "video": video.astype(np.float32)}


class Builds:
    """A trained model, and the queries of its builds on unseen pairs."""

    def __init__(self, folder: Path):
        self.folder, self.train, self.unseen = folder, pairs(TRAINED, 1), pairs(UNSEEN, 2)
        text, video = self.train["text"], self.train["video"]
        np.savez(folder / "train.npz", text=text, video=video)
        options = {"model.hidden": HIDDEN, "model.width": D}
        run = cimtool.train(
            folder / "train.npz", folder / "run", epochs=12, batch=32, learning_rate=3e-3,
            seed=5, options=options,
        )  # fmt: skip
        self.model = run.folder / "model.pth"
        labels = cimtool.teacher(
            self.model, self.train, labels="exact", pairs=4000, matched=0.5, a=0.1, b=0.0
        )
        cimtool.fit(labels, degree=4, output=folder / "poly.json")
        self.truth = truth_of(np.arange(UNSEEN), None, UNSEEN)
        self.exact: ReferenceScores | None = None

    def queries(self, seed: int, bits: int = 8) -> Queries:
        """The queries of a build on the calibration rows of a seed, against the float score."""
        rows = np.random.default_rng(seed).permutation(TRAINED)[:CALIBRATED]
        calibration = {name: own[rows] for name, own in self.train.items()}
        bundle = cimtool.compile(
            self.model, self.folder / "poly.json", calibration=calibration, weight_bits=bits,
            target="isaac-rram-128", output=self.folder / "bundle",
        )  # fmt: skip
        if self.exact is None:
            self.exact = ReferenceScores(self.scores(bundle.stages[0].program))
        scores = self.scores(bundle.program)
        return retrieved(scores, self.truth).merged(compared(scores, self.exact))

    def scores(self, program: Program) -> FloatArray:
        """Scores [n, n] of the unseen pairs."""
        simulator = Simulator(program)
        text, video = (simulator.encode(name, rows) for name, rows in self.unseen.items())
        return on_grid(simulator.score(text, video))


def swapped(one: Queries, other: Queries, coins: BoolArray) -> Queries:
    """The queries of one run, and of the other where a coin says so; row i of both is one pair."""
    sides = zip((one.text, one.video), (other.text, other.video), strict=True)
    return Queries(
        *(
            {name: np.where(coins, theirs[name], own) for name, own in side.items()}
            for side, theirs in sides
        )
    )


def beside(now: Queries, before: Queries, rows: IntArray, seed: int) -> Comparison:
    """The comparison that `verify` makes of two runs on the pairs `rows`, without costs."""
    chosen = Selection(rows, rows)
    truth = truth_of(np.arange(len(rows)), None, len(rows))
    own, other = now.of(chosen).only(KEPT), before.of(chosen).only(KEPT)
    nothing = KeptQueries({}, {})
    kept = KeptQueries(
        *({k: tuple(map(float, v)) for k, v in side.items()} for side in (own.text, own.video))
    )
    run = ThisRun(KeptRun(kept, nothing), truth, "logit", "exact", {}, TEXT_VIDEO)
    names = ("report.json", "bundle", "target", "digest", "logit", "exact")
    return compare_runs(run, EarlierRun(*names, other, Queries(), {}), {}, seed)


def counted(name: str, found: list[Comparison]) -> dict[str, Any]:
    """A row: the comparisons that fail, of all."""
    failed = [{one.limit for one in each.figures if one.failed} for each in found]
    recall = [each.figures[0] for each in found]
    powers = [one.detectable for one in recall if one.detectable is not None]
    return {
        "before and now": name,
        "queries": found[0].texts,
        "fail by R@1": sum("r1_loss" in one for one in failed),
        "by agreement": sum("top1_agreement_loss" in one for one in failed),
        "by RMSE": sum("logit_rmse" in one for one in failed),
        "any": sum(bool(one) for one in failed),
        "of": len(found),
        "loss, points": 100 * float(np.mean([one.loss.value for one in recall])),
        "80% power": 100 * float(np.mean(powers)) if powers else 0.0,
    }


def main() -> None:
    """Count the comparisons that fail."""
    options = parser(__doc__ or "", 1)
    options.add_argument("--seeds", type=int, default=100)
    given = options.parse_args()
    use_threads()
    with tempfile.TemporaryDirectory() as folder:
        builds = Builds(Path(folder))
        others = [builds.queries(seed) for seed in range(given.seeds)]
        first = others[0]
        fewer = {bits: builds.queries(0, bits) for bits in BITS}
    rows = []
    for count in QUERIES:
        kinds: dict[str, list[Comparison]] = {}
        for seed, other in enumerate(others):
            rng = np.random.default_rng(seed)
            last = others[seed - 1]
            drawn, coins = np.sort(rng.permutation(UNSEEN)[:count]), rng.random(UNSEEN) < 0.5
            pairs_of = {
                "same build": (first, first),
                "other calibration rows": (other, last),
                "swapped": (swapped(other, last, coins), swapped(last, other, coins)),
            }
            pairs_of |= {f"{bits} bits, was 8": (own, first) for bits, own in fewer.items()}
            for name, (now, before) in pairs_of.items():
                kinds.setdefault(name, []).append(beside(now, before, drawn, seed))
        rows += [counted(name, found) for name, found in kinds.items()]
    report("baselines", rows, given.json)


if __name__ == "__main__":
    main()
