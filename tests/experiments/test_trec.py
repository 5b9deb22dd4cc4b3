"""Runs and qrels, read back by ir-measures: every metric to the last digit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ir_measures import AP, Success, nDCG

import cimtool
from cimtool.experiments.evaluate import falling
from cimtool.reference.measures import WAYS

N = 40
RNG = np.random.default_rng(0)
COARSE = {"text": RNG.integers(-1, 2, size=(N, 4)), "video": RNG.integers(-1, 2, size=(30, 4))}
for rows in COARSE.values():
    rows[:, 0] += 3  # no row is all zeros; many scores are equal
RIGHT = RNG.integers(0, 29, size=N)
IDS = {
    "text_ids": np.array([f"t{9 - i % 10}{i}" for i in range(N)]),
    "video_ids": np.arange(30)[::-1],
}
QRELS = "".join(f"{i} 0 {j} {g}\n" for i, j, g in {(i % N, 7 * i % 30, i % 4) for i in range(120)})
DATA: dict[str, dict[str, Any]] = {
    "pairs": {**COARSE, "text_to_video": RIGHT, **IDS},
    "classes": {**COARSE, "text_to_video": RIGHT, "labels": (RIGHT % 5)},
    "others": {"rows": COARSE["text"], "labels": np.arange(N) % 6},
    "several": {"rows": COARSE["text"], "labels": RNG.random((N, 4)) < 0.3},
    "many": {"rows": RNG.integers(0, 4, size=(70, 4)) + 1, "labels": np.arange(70) // 64},
    "judged": dict(COARSE),
    "judged others": {"rows": COARSE["text"]},
}
BY_PAIR = {"r1": Success @ 1, "r5": Success @ 5, "r10": Success @ 10}
BY_CLASS = {"map": AP, "ndcg10": nDCG @ 10}


def precisions(qrels: Path, run: Path) -> dict[str, float]:
    """mAP@R and mAP@50 by `AP` of the public code, cut off at R and at 50, query by query.

    `AP@k` divides by all R right items of a query, mAP@50 by as many as 50 can be: min(R, 50).
    """
    judged = list(ir_measures.read_trec_qrels(str(qrels)))
    ranked = list(ir_measures.read_trec_run(str(run)))
    right = Counter(one.query_id for one in judged)
    found = {"map_r": 0.0, "map50": 0.0}
    for count in sorted(set(right.values())):
        for one in ir_measures.iter_calc([AP @ count, AP @ 50], judged, ranked):
            if right[one.query_id] == count:
                found["map_r"] += one.value * (one.measure == AP @ count)
                found["map50"] += one.value * (one.measure == AP @ 50) * count / min(count, 50)
    return {name: total / len(right) for name, total in found.items()}


@pytest.mark.parametrize("name", DATA)
def test_public_code_finds_the_same(name: str, tmp_path: Path) -> None:
    qrels = tmp_path / "judged.txt"
    qrels.write_text(QRELS)
    given_ = qrels if name.startswith("judged") else None
    found = cimtool.evaluate(DATA[name], qrels=given_, trec=tmp_path / "trec", resamples=2)
    assert found.judged == (given_ is not None)
    for way in WAYS:
        endings = ("", ".classes") if name == "classes" else ("",)
        for ending, measures in zip(endings, (BY_PAIR, BY_CLASS), strict=False):
            if len(endings) == 1:
                measures = BY_PAIR | BY_CLASS
            files = (f"{way}{ending}.qrels", f"embeddings.{way}{ending}.run")
            judged, run = (tmp_path / "trec" / file for file in files)
            public = ir_measures.calc_aggregate(
                measures.values(),
                ir_measures.read_trec_qrels(str(judged)),
                ir_measures.read_trec_run(str(run)),
            )
            for own, measure in measures.items():
                value = found.scores[0].metrics[f"{own}_{way}"]
                assert value == pytest.approx(public[measure], rel=1e-14), (way, own)
            if "map" in measures:
                for own, expected in precisions(judged, run).items():
                    value = found.scores[0].metrics[f"{own}_{way}"]
                    assert value == pytest.approx(expected, rel=1e-14), (way, own)
    assert all(len(line.split()) == 6 for line in run.read_text().splitlines())


def test_what_was_judged_is_written_as_it_was_read(tmp_path: Path) -> None:
    qrels = tmp_path / "judged.txt"
    qrels.write_text(QRELS)
    cimtool.evaluate(COARSE, qrels=qrels, trec=tmp_path, resamples=2)
    wanted = {line for line in QRELS.splitlines() if not line.endswith(" 0")}
    assert set((tmp_path / "text_to_video.qrels").read_text().splitlines()) == wanted
    turned = {" ".join(line.split()[i] for i in (2, 1, 0, 3)) for line in wanted}
    assert set((tmp_path / "video_to_text.qrels").read_text().splitlines()) == turned


@given(arrays(np.float64, st.integers(1, 9), elements=st.floats(-1e30, 1e30)))
def test_scores_fall_as_float32_and_stay_near(scores: np.ndarray) -> None:
    scores = -np.sort(-np.concatenate([scores, scores, [0.0, -0.0]]))
    found = falling(scores)
    assert found.dtype == np.float32
    assert (np.diff(found) < 0).all()
    read = np.array([f"{one:.9g}" for one in found], np.float32)
    np.testing.assert_array_equal(read, found)
    np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-40)
