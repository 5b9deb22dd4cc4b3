"""The search for a shortlist: places, lengths, what is chosen, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import QUERIES, read_bundle
from cimtool.costs.totals import NOTHING, Quantity
from cimtool.demo.data import DemoFiles
from cimtool.galleries.gallery_job import NOWHERE, Places, places_of
from cimtool.galleries.programming import SEARCH_PICTURE
from cimtool.galleries.shortlists import (
    ShortlistOption,
    TriedShortlist,
    least_queries,
    length_for,
    searched,
)
from cimtool.loading.embeddings import read_embeddings
from cimtool.passes.gallery import ShortlistBits


@given(hnp.arrays(np.int64, (3, 12), elements=st.integers(-3, 3)))
def test_places_are_those_of_a_stable_sort(distances: np.ndarray) -> None:
    order = np.argsort(distances, axis=1, kind="stable")
    best = np.array([[11, 0], [4, 5], [0, 1]])
    found = places_of(distances, best)
    for row in range(3):
        for k in range(2):
            assert order[row, found[row, k]] == best[row, k]


@given(
    st.permutations(range(9)),
    hnp.arrays(np.int64, 9, elements=st.integers(0, 6)),
    st.integers(1, 9),
)
def test_r1_is_that_of_the_sorted_shortlist(
    distances: list[int], exact: np.ndarray, length: int
) -> None:
    ed, right = np.array(distances), 8
    listed = np.argsort(ed)[:length]
    expected = right in listed and np.all(exact[listed] <= exact[right])
    items, better = ed[:right], exact[:right] > exact[right]
    first = (items < items[better].min()).sum() if better.any() else NOWHERE
    places = Places(ed[None, :1], np.array([(items <= ed[right]).sum()]), np.array([first]))
    found = places.found(length)
    assert found is not None
    assert found.value == expected


@given(
    hnp.arrays(np.int64, st.integers(1, 300), elements=st.integers(0, 50)),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_a_length_is_the_shortest_by_the_rule_of_succession(
    places: np.ndarray, recall: float
) -> None:
    length = length_for(places, recall)

    def enough(items: int) -> bool:
        return (np.sum(places >= items) + 1) / (len(places) + 2) <= 1 - recall + 1e-12

    if length is None:
        assert not enough(51)
        assert len(places) < least_queries(recall)
    else:
        assert enough(length)
        assert length == 1 or not enough(length - 1)


def trial(bits: int, cells: int, *misses: int, place: int = 40) -> TriedShortlist:
    """A trial on 100 queries a half, of which so many have their best item at a far place."""
    halves = []
    for missed in misses:
        places = np.zeros((100, 1), np.int64)
        places[:missed] = place
        halves.append(Places(places, None, None))
    use: Any = SimpleNamespace(cells=5 * cells, items=5, items_per_chip=None)
    score = SimpleNamespace(conversions=5, energy_pj=Quantity(cells), latency_ns=NOTHING)
    estimate: Any = SimpleNamespace(score=score)
    return TriedShortlist(ShortlistBits(bits, 8), (halves[0], halves[1]), use, lambda _: estimate)


def test_the_cheapest_of_those_that_hold_the_recall_on_both_halves_is_taken() -> None:
    # 2 bits were lucky with the half that used to choose, and hold 94% of the other.
    trials = [trial(8, 80, 0, 0), trial(4, 40, 0, 1), trial(2, 20, 0, 6)]
    found = searched(trials, 0.97, 20, "cells")
    assert [one.bits.item for one in found.options] == [8, 4]
    assert (found.chosen.bits.item, found.chosen.length) == (4, 1)
    assert [half.best.value for half in found.chosen.halves] == [1, 0.99]
    assert found.chosen.recall.best.value == 0.995
    assert found.chosen.recall.best.low < 0.98 < 0.995 < found.chosen.recall.best.high


def test_a_list_is_made_longer_until_both_halves_hold_it() -> None:
    found = searched([trial(2, 20, 0, 6)], 0.97, 50, "cells")
    assert (found.chosen.length, found.chosen.halves[1].best.value) == (41, 1)


def test_nothing_that_holds_a_recall_on_both_halves_is_said() -> None:
    with pytest.raises(CimError, match=r"best item of 100 of 100 and 94 of 100, but 98 and 98 are"):
        searched([trial(2, 20, 0, 6), trial(3, 30, 7, 0)], 0.97, 20, "cells")


@pytest.fixture(scope="module")
def hybrid(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("shortlists") / "hybrid"
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=folder, target="isaac-rram-128", score_mapping="hybrid",
    )  # fmt: skip
    return SimpleNamespace(folder=folder, files=small_trunk)


def test_a_hybrid_bundle_keeps_more_queries(hybrid: SimpleNamespace) -> None:
    bundle = read_bundle(hybrid.folder)
    rows = len(np.load(hybrid.files.calibration)["text"])
    assert QUERIES in bundle.manifest["files"]
    assert len(bundle.queries["text.mu"]) == min(rows, 512)


@pytest.mark.thorough("a gallery more")
def test_few_bits_are_programmed_and_lose_no_bit_between_machines(
    hybrid: SimpleNamespace, tmp_path: Path
) -> None:
    found = api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "made",
        shortlist=10, shortlist_bits=1, query_bits=3,
    )  # fmt: skip
    (matrix,) = found.use.matrices
    assert (matrix.weight_bits, matrix.cells_per_value) == (1, 1)
    assert [drive.input_bits for drive in matrix.drives] == [3]
    assert found.search is None
    report = api.verify(found.bundle.folder, hybrid.files.eval, samples=2)
    assert not report.failures
    best = api.simulate(found.bundle.folder, hybrid.files.eval)
    exact = api.simulate(hybrid.folder, hybrid.files.eval)["scores"]
    own = np.take_along_axis(exact, best["top_index"], axis=1)
    np.testing.assert_array_equal(best["top_score"], own)


def test_verify_measures_what_the_shortlist_answers(
    hybrid: SimpleNamespace, tmp_path: Path
) -> None:
    """A list of one item by the sign of one number answers otherwise than all scores do."""
    found = api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "made",
        shortlist=1, shortlist_bits=1, shortlist_dimensions=1,
    )  # fmt: skip
    digital, report = (
        api.verify(folder, hybrid.files.eval, samples=2)
        for folder in (hybrid.folder, found.bundle.folder)
    )
    assert any("all pairs are scored digitally here" in note for note in digital.notes)
    assert any("after the shortlist of 1, which holds" in note for note in report.notes)
    right = read_embeddings(hybrid.files.eval).truth.text_to_video
    answered = api.simulate(found.bundle.folder, hybrid.files.eval)["top_index"][:, 0]
    ours, of_all = (one.drift.rows[-1].metrics for one in (report, digital))
    assert ours["r1_text_to_video"] == pytest.approx(np.mean(answered == right))
    assert ours["r1_text_to_video"] != of_all["r1_text_to_video"]
    assert ours["r1_video_to_text"] == of_all["r1_video_to_text"]


@pytest.mark.thorough("other ways of a gallery; one is in the first tier")
def test_components_are_programmed_and_lose_no_bit_between_machines(
    hybrid: SimpleNamespace, tmp_path: Path
) -> None:
    found = api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "made",
        shortlist=10, shortlist_bits=2, shortlist_dimensions=6,
    )  # fmt: skip
    (matrix,) = found.use.matrices
    assert (matrix.rows, matrix.items) == (6, found.gallery.items)
    report = api.verify(found.bundle.folder, hybrid.files.eval, samples=2)
    assert not report.failures


def better(one: ShortlistOption, other: ShortlistOption) -> bool:
    mine, others = ((o.cells, o.conversions, o.length) for o in (one, other))
    return mine != others and all(a <= b for a, b in zip(mine, others, strict=True))


def told_trials(said: list[str]) -> list[str]:
    """The trials in lines of progress, without the time left."""
    return [line[6:].partition(";")[0] for line in said if line.startswith("tried ")]


def test_trials_that_are_skipped_count_as_done(hybrid: SimpleNamespace, tmp_path: Path) -> None:
    said = list[str]()
    api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "made", shortlist=1, recall=0.95,
        say=said.append,
    )  # fmt: skip
    places = [int(line.split()[-3]) for line in told_trials(said)]
    assert places == sorted({*places})
    assert len(places) < places[-1] <= 40


@pytest.mark.thorough("draws up many shortlists")
def test_the_cheapest_that_reaches_a_recall_is_chosen(
    hybrid: SimpleNamespace, tmp_path: Path
) -> None:
    said = list[str]()
    found = api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "made", shortlist=20, recall=0.9,
        say=said.append,
    )  # fmt: skip
    search = found.search
    assert search is not None
    total = len(search.trials)
    assert told_trials(said) == [
        f"{one.bits}: {count} of {total}" for count, one in enumerate(search.trials, 1)
    ]
    assert found.gallery.shortlist == search.chosen.length <= 20
    least = min(one.cells for one in search.options)
    assert search.chosen.cells == least == found.use.cells // found.use.items
    assert search.chosen in search.front
    for one in search.options:
        assert min(half.best.value for half in one.halves) >= 0.9
        assert (one in search.front) != any(better(other, one) for other in search.options)
    assert {one.bits.dimensions for one in search.trials} == {None, 8}
    assert SEARCH_PICTURE in found.bundle.manifest["files"]
    drawn = (found.bundle.folder / SEARCH_PICTURE).read_text()
    assert f"a shortlist of {search.chosen.length}, {search.chosen.cells} cells" in drawn
    by_energy = api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "energy",
        shortlist=20, recall=0.9, minimise="energy",
    ).search  # fmt: skip
    assert by_energy is not None
    energies = [one.energy_pj.value for one in by_energy.options]
    assert by_energy.chosen.energy_pj.value == min(e for e in energies if e is not None)
    assert sum(by_energy.queries) == found.accuracy.queries


def test_what_is_given_is_not_searched(hybrid: SimpleNamespace, tmp_path: Path) -> None:
    found = api.program(
        hybrid.folder, hybrid.files.eval, output=tmp_path / "made",
        shortlist=40, recall=0.5, shortlist_bits=3,
    )  # fmt: skip
    assert found.search is not None
    assert {one.bits.item for one in found.search.options} == {3}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"shortlist_bits": 0}, "shortlist_bits is 0; expected 1 to 8, 1 for signs"),
        ({"shortlist_bits": 9}, "shortlist_bits is 9; expected 1 to 8"),
        ({"shortlist_bits": 2, "query_bits": 1}, "query_bits is 1; expected 2 to 8, the bits of"),
        ({"query_bits": 4}, "query_bits is 4; expected shortlist_bits or recall with it"),
        ({"shortlist_dimensions": 4}, "dimensions is 4; expected shortlist_bits or recall with it"),
        ({"shortlist_bits": 2, "shortlist_dimensions": 0}, "dimensions is 0; expected 1 to 15, in"),
        ({"recall": 0.5, "shortlist_dimensions": 16}, "dimensions is 16; expected 1 to 15, in whi"),
        ({"recall": 0.5, "shortlist_dimensions": 0}, "dimensions is 0; expected 1 to 15, in which"),
        ({"minimise": "energy"}, "minimise is energy; expected recall with it"),
        ({"recall": 1.0}, "recall is 1.0; expected a share between 0 and 1"),
        ({"recall": 0.9999}, r"recall is 0\.9999; the \d+ calibration queries of hybrid are "),
        (
            {"recall": 0.95, "shortlist": 1, "shortlist_bits": 1},
            r"recall: no setting reaches 0\.95 on both halves of .* with shortlists of 1 items; "
            r"the "
            r"best one finds the best item of \d+ of 48 and \d+ of 48, but 47 and 47 are needed; "
            "expected a longer shortlist, or a lower share$",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(
    options: dict[str, object], sentence: str, hybrid: SimpleNamespace, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=sentence):
        api.program(hybrid.folder, hybrid.files.eval, output=tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())
