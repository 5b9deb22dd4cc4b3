from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.bundle.bundle import Bundle
from cimtool.reference.exact import log_match_probability
from cimtool.reference.metrics import on_grid
from cimtool.reference.pair_draw import draw_pairs
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Truth
from cimtool.verification import references as module
from cimtool.verification.references import References


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: References("exac"), 'did you mean "exact"'),  # type: ignore[arg-type]
        (lambda: References(samples=0), "samples is 0; expected at least 1"),
        (lambda: References("mc", samples=1), "samples is 1; expected at least 2 with reference"),
        (lambda: References(seed=-1), "seed is -1; expected 0"),
    ],
)
def test_what_cannot_be_is_refused_at_once(make: object, said: str) -> None:
    with pytest.raises(CimError, match=said):
        make()  # type: ignore[operator]


def items(seed: int, n: int = 6, d: int = 10) -> Gaussians:
    rng = np.random.default_rng(seed)
    return Gaussians(rng.normal(size=(n, d)), rng.uniform(0.1, 0.3, size=(n, d)))


def test_the_exact_scores_are_those_of_each_pair(bundle: Bundle) -> None:
    text, video = items(0), items(1, n=5)
    known = References().of(text, video, bundle.model, silent)
    assert known is not None
    assert known.exact is not None
    log_p, log_1mp = log_match_probability(text.mu[2], text.s[2], video.mu[4], video.s[4], 0.1, 0.0)
    grid = 2.0**-30 * np.abs(known.exact).max()
    assert known.exact[2, 4] == pytest.approx(log_p - log_1mp, abs=grid)
    assert known.monte_carlo.shape == (6, 5)


def test_references_are_on_the_grid_of_ties(bundle: Bundle) -> None:
    """As all other rows are: equal items tie in the reference too."""
    known = References().of(items(0), items(1), bundle.model, silent)
    assert known is not None
    assert known.exact is not None
    for scores in (known.exact, known.monte_carlo):
        np.testing.assert_array_equal(scores, on_grid(scores))


def test_the_same_items_are_computed_once(bundle: Bundle) -> None:
    told: list[str] = []
    references = References()
    first = references.of(items(0), items(1), bundle.model, told.append)
    again = references.of(items(0), items(1), bundle.model, told.append)
    assert again is first
    assert told == ["exact score: 6 x 6 pairs", "Monte Carlo (K=10): 6 x 6 pairs"]
    assert references.of(items(2), items(1), bundle.model, told.append) is not first


def test_sampling_alone_computes_no_exact_score(bundle: Bundle) -> None:
    known = References("mc", 4).of(items(0), items(1), bundle.model, silent)
    assert known is not None
    assert known.exact is None
    assert (known.scatter.samples, known.scatter.rmse, known.scatter.floor) == (4, None, None)


def test_monte_carlo_on_a_sample_of_pairs_estimates_all(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "draw_pairs", partial(draw_pairs, most=1))
    text, video, truth = items(0, n=90), items(1, n=80), Truth(np.arange(90) % 80, 80)
    some = References().of(text, video, bundle.model, silent, truth)
    every = References(all_pairs=True).of(text, video, bundle.model, silent, truth)
    assert some is not None
    assert every is not None
    np.testing.assert_array_equal(some.exact, every.exact)
    assert some.drawn is not None
    assert (some.scatter.drawn, every.scatter.drawn) == ((len(some.drawn), 7200), None)
    drawn = some.drawn.stands_for > 0
    np.testing.assert_allclose(some.monte_carlo[drawn], every.monte_carlo[drawn], atol=1e-8)
    assert some.exact is not None
    np.testing.assert_array_equal(some.monte_carlo[~drawn], some.exact[~drawn])
    for name in ("standard_error", "rmse", "centred_error"):
        assert getattr(some.scatter, name) == pytest.approx(getattr(every.scatter, name), rel=0.05)
    assert some.scatter.floor is not None
    assert every.scatter.floor is not None
    assert some.scatter.floor.rmse == pytest.approx(every.scatter.floor.rmse)
