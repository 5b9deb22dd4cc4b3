"""Pairs and triplets as data: the losses on them, and a run without any label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.loading.embeddings import embeddings_of
from cimtool.training.loss import Batch, Task
from cimtool.training.losses.constraints import Siamese, Triplet, distances, same_class
from cimtool.training.pairs import Pairs, split
from cimtool.training.towers import Encoded

POINTS = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ALL = torch.cartesian_prod(torch.arange(5), torch.arange(5))
ALL = ALL[ALL[:, 0] != ALL[:, 1]]
LABELS = torch.tensor([0, 1, 0, 1, 1])


def terms(loss: Any, **given: Any) -> Any:
    made = loss.objective(Task(3, compared=True))
    side = Encoded(POINTS)
    return made(side, side, Batch(torch.zeros(5, 2), torch.zeros(5, 2), **given))


@pytest.mark.parametrize("squared", [False, True])
def test_all_pairs_given_are_all_pairs_of_a_batch(squared: bool) -> None:
    loss = Siamese(margin=2.0, balance=0.3, squared_hinge=squared)
    match = LABELS[ALL[:, 0]] == LABELS[ALL[:, 1]]
    found = terms(loss, compared=ALL, match=match)
    known = loss.objective(Task(3, classes=2)).constrained(distances(POINTS), LABELS)
    assert found.total.item() == pytest.approx(known.total.item(), rel=1e-12)
    assert found.watched["wrong within margin"] == known.watched["wrong within margin"]


@pytest.mark.parametrize("mining", ["all", "semi-hard"])
def test_all_triplets_given_are_all_triplets_of_a_batch(mining: str) -> None:
    loss = Triplet(margin=0.8, mining=mining)
    same, other = same_class(LABELS)
    every = [(a, p, n) for a in range(5) for p in range(5) for n in range(5)]
    compared = torch.tensor([t for t in every if same[t[0], t[1]] and other[t[0], t[2]]])
    found = terms(loss, compared=compared)
    known = loss.objective(Task(3, classes=2)).constrained(distances(POINTS), LABELS)
    assert found.total.item() == pytest.approx(known.total.item(), rel=1e-12)
    assert found.watched["triplets"].item() == pytest.approx(known.watched["triplets"].item())


def test_two_towers_compare_items_across() -> None:
    made = Siamese(margin=9.0, balance=0.5).objective(Task(3, compared=True))
    text, video = Encoded(POINTS), Encoded(POINTS.flip(0))
    pair = torch.tensor([[1, 2]])
    batch = Batch(torch.zeros(5, 2), torch.zeros(5, 2), compared=pair, match=torch.tensor([True]))
    wanted = 0.5 * (text.mu[1] - video.mu[2]).square().sum()
    assert made(text, video, batch).total.item() == pytest.approx(wanted.item())


def data(**more: Any) -> dict[str, Any]:
    """Items of ten hidden groups of six; half of the pairs are within one."""
    rng = np.random.default_rng(0)
    groups = np.arange(60) % 10
    rows = rng.normal(size=(10, 6))[groups] + 0.7 * rng.normal(size=(60, 6))
    anchors = np.repeat(np.arange(60), 4)
    near, far = (anchors + 10 * (1 + np.arange(240) % 5)) % 60, (anchors + 3) % 60
    pairs = np.concatenate([np.stack([anchors, one], axis=1) for one in (near, far)])
    match = np.arange(480) < 240
    compared = {"pairs": pairs, "match": match}
    if "triplets" in more:
        compared = {"triplets": np.stack([anchors, near, far], axis=1)}
    return {"rows": rows, **compared, **{k: v for k, v in more.items() if k != "triplets"}}


def test_the_split_keeps_what_belongs_together_on_one_side() -> None:
    rows = embeddings_of(data())
    assert rows.compared is not None
    assert len(np.unique(rows.groups)) == 10
    pairs, held = split(rows, 0.2, 0)
    assert (len(pairs), len(held)) == (48, 12)
    assert pairs.compared is not None
    assert held.compared is not None
    right = [one.compared.match.sum() for one in (pairs, held)]
    assert sum(right) == 240
    batch = pairs.compared_batch(torch.arange(7))
    assert batch.compared is not None
    for (i, j), (a, b) in zip(batch.compared, pairs.compared.rows[:7], strict=True):
        assert torch.equal(batch.text[i], pairs.text[a])
        assert torch.equal(batch.text[j], pairs.text[b])
    some = pairs.among(np.arange(48) % 2 == 0)
    assert some.compared is not None
    assert some.compared.rows.max() < 24


RUN: dict[str, Any] = {
    "model": "autoencoder", "batch": 20, "held_out": 0.3, "learning_rate": 3e-3, "epochs": 3,
    "options": {"model.hidden": "8", "model.width": 4},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_it_trains_without_labels_and_goes_on(kind: str, tmp_path: Path) -> None:
    rows = data(**{kind: True}) if kind == "triplets" else data()
    loss = "triplet" if kind == "triplets" else "siamese"
    run = cimtool.train(rows, tmp_path / "whole", loss=loss, **RUN)
    assert 0 < run.best.means["mAP"] <= 1
    assert run.history[-1].loss < run.history[1].loss
    if kind == "pairs":
        cimtool.train(rows, tmp_path / "cut", loss=loss, **{**RUN, "epochs": 1})
        cimtool.train(rows, tmp_path / "cut", loss=loss, **RUN, resume=True)
        first, second = (tmp_path / name / "last.pth" for name in ("whole", "cut"))
        assert first.read_bytes() == second.read_bytes()
    model = run.folder / "model.pth"
    found = cimtool.evaluate(rows, model, resamples=2).scores
    assert all(0 < one.metrics["map_text_to_video"] < 1 for one in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"match": None}, r"holds pairs; expected pairs \[P, 2\] with match \[P\], or triplets"),
        ({"pairs": None}, "holds match; expected pairs"),
        ({"triplets": np.zeros((3, 3), int)}, "holds pairs and triplets; expected one"),
        ({"match": np.ones(3)}, r"match has shape \[3\]; expected \[480\] of 0 and 1"),
        ({"match": np.arange(480) - 1}, "row 0 of match is -1; expected 0 or 1"),
        ({"match": np.full(480, 2)}, "row 0 of match is 2; expected 0 or 1"),
        ({"match": np.zeros(480)}, "match is 0 for all of pairs; expected some that belong"),
        ({"pairs": np.zeros((480, 3), int)}, r"pairs has shape \[480, 3\] of int64; expected int"),
        (
            {"pairs": np.full((480, 2), [1, 60])},
            "row 0 of pairs is 1 60; expected 2 different rows",
        ),
        ({"pairs": np.full((480, 2), 7)}, "row 0 of pairs is 7 7; expected 2 different rows, 0 to"),
    ],
)
def test_comparisons_amiss(change: dict[str, Any], message: str) -> None:
    rows = {key: value for key, value in (data() | change).items() if value is not None}
    with pytest.raises(CimError, match=message):
        embeddings_of(rows, "c.npz")


def test_comparisons_that_a_loss_cannot_take(tmp_path: Path) -> None:
    for loss, message in (
        ("triplet", 'holds pairs, and loss "triplet" takes triplets; expected these'),
        ("acmr", 'labels is missing, the class of each text, which loss "acmr" needs'),
    ):
        with pytest.raises(CimError, match=message):
            cimtool.train(
                data(), tmp_path / "run", **{**RUN, "model": "trunk", "options": {}}, loss=loss
            )
    with pytest.raises(
        CimError,
        match=r"batch is 400, but only .* pairs are for training; "
        r"expected at most that",
    ):
        cimtool.train(data(), tmp_path / "run", loss="siamese", **{**RUN, "batch": 400})
    apart = data()
    apart["pairs"], apart["match"] = np.array([[0, 1], [2, 3]]), np.array([True, False])
    with pytest.raises(CimError, match="none of the pairs joins two of the 18 items that validate"):
        cimtool.train(apart, tmp_path / "run", loss="siamese", **RUN)
    assert not (tmp_path / "run").exists()
    beside = {"text": np.eye(3), "video": np.eye(3), "pairs": np.eye(3)}
    assert embeddings_of(beside, "b.npz").notes == ("b.npz: pairs is not read",)


def test_labels_beside_pairs_say_what_is_right() -> None:
    labels = np.arange(60) % 3
    rows = embeddings_of(data(labels=labels))
    assert rows.truth.judged is None
    pairs = Pairs.of(rows, np.arange(60))
    assert pairs.compared is not None
    assert pairs.labels is not None
