from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.training.demo_data import Features, grams

WORDS = ("matrix", "vector", "parse", "socket", "median", "sorted", "thread", "buffer", "kernel")
DOCUMENTS = [f"{a} {b} of {a}{b.title()}" for a in WORDS for b in WORDS]


def test_grams_split_identifiers_and_mark_the_ends_of_words() -> None:
    assert grams("doIt") == ["do", "<do", "do>", "<do>", "it", "<it", "it>", "<it>"]
    words = [gram for gram in grams("snake_case HTTPServer x86") if gram.isalnum()]
    assert {"snake", "case", "http", "server", "x", "86"} <= set(words)


def test_rows_have_the_norm_of_the_width_and_are_the_same_each_time() -> None:
    rows = Features.fit(DOCUMENTS, 12).transform(DOCUMENTS)
    assert rows.dtype == np.float32
    assert rows.shape == (len(DOCUMENTS), 12)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.sqrt(12), rtol=1e-5)
    np.testing.assert_array_equal(rows, Features.fit(DOCUMENTS, 12).transform(DOCUMENTS))


def test_documents_that_share_words_lie_closer() -> None:
    features = Features.fit(DOCUMENTS, 12)
    one, alike, other = features.transform(["matrix median", "matrices medians", "socket parse"])
    assert one @ alike > 2 * abs(one @ other)


def test_a_document_of_unknown_words_gives_zeros() -> None:
    assert not Features.fit(DOCUMENTS, 12).transform(["qqq"]).any()


def test_too_few_documents() -> None:
    with pytest.raises(CimError, match=r"9 documents .* too few for 10 dimensions"):
        Features.fit(DOCUMENTS[:9], 10)
