"""Budgets of `tune` and `sweep` as `verify` measures them afterwards, on random splits of the rows.

    python benchmarks/budgets.py --demo demo-cache/HASH --clip PAIRS.npz --classes ITEMS.npz

Two linear layers a side, by canonical correlation of rows of their own, are the model (head
euclidean), so that a tune takes seconds. The other rows are split at random: bits are chosen within
a budget on one half, and `verify` measures what was chosen on the same half, where the budget must
hold, and on the other, which nothing has seen. Ends with status 1 where it does not hold on the
rows that it was chosen on.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import parser, report, use_threads

from cimtool import api
from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.experiments.engine import PointsFailed
from cimtool.reference.limits import limit_changes, within

Rows = Mapping[str, Array]
Options = Mapping[str, Any]

TARGET = "isaac-rram-128"
SPLITS = 20
MOST = 100
"""Videos of each half of a split, each with all of its texts."""

CALIBRATION = 100
COMPONENTS, WIDTH = 48, 24
RIDGE = 1e-3
"""Components weaker than this share of the strongest are noise."""

BUDGETS = {"r1_loss": 0.02, "map_loss": 0.02}
LARGER = 0.02
"""The step by which a budget grows as long as the highest bits miss it."""

GRID = {"weight_bits": [4, 5, 6, 8]}


@dataclass(frozen=True, eq=False)
class BudgetCase:
    """Rows that train and calibrate a model, and those that are split; `metrics` have budgets.

    Items are split by their videos, each with all of its texts.
    """

    name: str
    training: Rows
    rest: Rows
    metrics: tuple[str, ...]

    def halves(self, seed: int) -> tuple[Rows, Rows]:
        """Two random sets of videos with their texts, at most MOST each."""
        videos = len(self.rest["video"])
        order = np.random.default_rng(seed).permutation(videos)
        count = min(MOST, videos // 2)
        return taken(self.rest, order[:count]), taken(self.rest, order[count : 2 * count])


def taken(rows: Rows, videos: IntArray) -> Rows:
    """These videos and their texts."""
    right = rows.get("text_to_video", np.arange(len(rows["text"])))
    place = np.full(len(rows["video"]), -1)
    place[videos] = np.arange(len(videos))
    texts = np.concatenate([np.flatnonzero(right == video) for video in videos])
    found = {"text": rows["text"][texts], "video": rows["video"][videos]}
    found["text_to_video"] = place[right[texts]]
    return found | {name: rows[name][texts] for name in ("labels",) if name in rows}


def demo_case(folder: Path) -> BudgetCase:
    """The demo's rows: docstrings and functions, in pairs without classes."""
    with np.load(folder / "train.npz") as held:
        training = {name: held[name][:1500] for name in ("text", "video")}
    with np.load(folder / "eval.npz") as held:
        rest = {name: held[name] for name in ("text", "video")}
    return BudgetCase("demo", training, rest, ("r1_loss",))


def clip_case(file: Path) -> BudgetCase:
    """CLIP's captions and images: five texts an image, which is a class of its own."""
    with np.load(file) as held:
        rows = {name: held[name] for name in held.files}
    every = {"text": rows["text"], "video": rows["image"], "text_to_video": rows["text_to_image"]}
    every["labels"] = rows["text_to_image"]
    order = np.random.default_rng(0).permutation(len(every["video"]))
    parts = taken(every, order[:40]), taken(every, order[40:])
    metrics = ("r1_loss", "map_loss")
    return BudgetCase("captions", *parts, metrics)


def class_case(file: Path) -> BudgetCase:
    """Articles: a text and an image each, in ten classes."""
    with np.load(file) as held:
        rows = {"text": held["text"], "video": held["image"], "labels": held["label"]}
        seen = held["split"] == "train"
    known = {row.tobytes() for side in ("text", "video") for row in rows[side][seen]}
    again = [
        {t.tobytes(), v.tobytes()} & known for t, v in zip(rows["text"], rows["video"], strict=True)
    ]
    unseen = ~seen & (np.array([*map(len, again)]) == 0)
    training, rest = ({k: v[some] for k, v in rows.items()} for some in (seen, unseen))
    metrics = ("r1_loss", "map_loss")
    return BudgetCase("classes", training, rest, metrics)


def correlated(case: BudgetCase, folder: Path) -> dict[str, Any]:
    """A model of a case as arguments of `tune`, `sweep` and `compile`.

    Each side is whitened by its principal components, and turned to what both have in common.
    """
    rows = case.training
    right = rows.get("text_to_video", np.arange(len(rows["text"])))
    sides = {"text": rows["text"], "video": rows["video"][right]}
    first = {side: _whitening(values.astype(np.float64)) for side, values in sides.items()}
    text, video = (sides[side] @ first[side][0] + first[side][1] for side in sides)
    left, strength, other = np.linalg.svd(text.T @ video / len(text))
    count = min(WIDTH, len(strength))
    turns = {"text": left[:, :count], "video": other[:count].T}
    state: dict[str, Any] = {"head": "euclidean", "activation": "none"}
    for side, (weight, bias) in first.items():
        scale = np.sqrt(np.clip(strength[:count], 0, None))
        layers = {"0": (weight, bias), "1": (turns[side] * scale, np.zeros(count))}
        state[f"{side}_proj"] = {
            f"{name}.{part}": torch.from_numpy(np.ascontiguousarray(value.T)).float()
            for name, pair in layers.items()
            for part, value in zip(("weight", "bias"), pair, strict=True)
        }
    torch.save(state, folder / "correlated.pth")
    calibration = {side: rows[side][:CALIBRATION] for side in sides}
    return {
        "projectors": folder / "correlated.pth", "calibration": calibration, "target": TARGET
    }  # fmt: skip


def _whitening(values: Array) -> tuple[Array, Array]:
    """Weight and bias that give the rows' COMPONENTS strongest components unit variance."""
    mean = values.mean(axis=0)
    _, size, axes = np.linalg.svd(values - mean, full_matrices=False)
    count = min(COMPONENTS, int(np.sum(size > RIDGE * size[0])))
    weight = axes[:count].T * (np.sqrt(len(values)) / size[:count])
    return weight, -mean @ weight


def tuned(model: Options, rows: Rows, budget: Mapping[str, float], folder: Path) -> Options:
    """The settings that `tune` chooses, as options of `compile`."""
    found = api.tune(
        **model, data=rows, budget=budget, objective="conversions", output=folder / "bits.toml"
    )
    return {"settings": found.written}


def swept(model: Options, rows: Rows, budget: Mapping[str, float], folder: Path) -> Options:
    """The point that `sweep` chooses, as options of `compile`."""
    found = api.sweep(**model, data=rows, grid=GRID, budget=budget, output=folder / "sweep")
    assert found.chosen is not None
    assert found.chosen.index is not None
    return found.points[found.chosen.index].named


TOOLS = {"tune": tuned, "sweep": swept}


def chosen(
    tool: str, model: Options, rows: Rows, metric: str, folder: Path
) -> tuple[float, Options]:
    """The least budget from BUDGETS on that can be kept, and what is chosen within it."""
    most = BUDGETS[metric]
    while True:
        try:
            return most, TOOLS[tool](model, rows, {metric: most}, folder)
        except (PointsFailed, CimError) as error:
            if "highest bits" not in str(error) and "no point is within" not in str(error):
                raise
            most += LARGER


def verified(bundle: Path, rows: Rows, folder: Path) -> dict[str, Change]:
    """The metrics of limits of a bundle as `verify` reports them, with their intervals."""
    final = api.verify(bundle, rows, report=folder).drift.final
    return limit_changes(final.metrics, final.intervals, final.losses)


@dataclass(frozen=True)
class Held:
    """A budget, and its metric on the rows that it was chosen on and on unseen ones."""

    tool: str
    metric: str
    most: float
    here: Change
    unseen: Change


def split(case: BudgetCase, model: Options, seed: int) -> Iterator[Held]:
    """Each tool and each metric on one split; what is chosen twice is verified once."""
    here, unseen = case.halves(seed)
    known: dict[str, list[dict[str, Change]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for tool in TOOLS:
            for metric in case.metrics:
                most, options = chosen(tool, model, here, metric, folder)
                key = repr([v.read_text() if isinstance(v, Path) else v for v in options.values()])
                if key not in known:
                    place = folder / f"bundle{len(known)}"
                    bundle = api.compile(**model, **options, output=place).folder
                    known[key] = [verified(bundle, rows, folder) for rows in (here, unseen)]
                yield Held(tool, metric, most, *(found[metric] for found in known[key]))


def summary(case: str, tool: str, metric: str, found: Sequence[Held]) -> dict[str, Any]:
    """One row: how often the budget was exceeded, on the rows of the choice and on unseen ones."""
    budgets = [one.most for one in found]
    return {
        "rows": case,
        "by": tool,
        "metric": metric,
        "budget": f"{min(budgets):g} to {max(budgets):g}",
        "splits": len(found),
        "over": sum(not within(one.here.value, one.most) for one in found),
        "least room": min(one.most - one.here.value for one in found),
        "mean": float(np.mean([one.here.value for one in found])),
        "unseen mean": float(np.mean([one.unseen.value for one in found])),
        "unseen over": sum(not within(one.unseen.value, one.most) for one in found),
        "surely over": sum(one.unseen.low > one.most for one in found),
    }


def main() -> int:
    """Measure every case, and return the exit status."""
    options = parser(__doc__ or "", 1)
    options.add_argument("--demo", type=Path, metavar="DIR", help="train.npz and eval.npz")
    options.add_argument("--clip", type=Path, metavar="FILE", help="captions and images")
    options.add_argument("--classes", type=Path, metavar="FILE", help="items with classes")
    options.add_argument("--splits", type=int, default=SPLITS)
    given = options.parse_args()
    use_threads()
    makers = ((demo_case, given.demo), (clip_case, given.clip), (class_case, given.classes))
    rows = []
    for make, place in makers:
        if place is None:
            continue
        case = make(place)
        found: list[Held] = []
        with tempfile.TemporaryDirectory() as name:
            model = correlated(case, Path(name))
            for seed in range(given.splits):
                found += split(case, model, seed)
                print(f"{case.name}: split {seed + 1} of {given.splits}", file=sys.stderr)
        for tool in TOOLS:
            for metric in case.metrics:
                own = [one for one in found if (one.tool, one.metric) == (tool, metric)]
                rows.append(summary(case.name, tool, metric, own))
    report("budgets", rows, given.json, ["over: on the rows on which the bits were chosen"])
    return int(any(row["over"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
