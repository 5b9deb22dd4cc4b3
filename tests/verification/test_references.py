from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.bundle.bundle import Bundle
from cimtool.reference.exact import log_match_probability
from cimtool.reference.metrics import on_grid
from cimtool.reference.statistics import Gaussians
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
