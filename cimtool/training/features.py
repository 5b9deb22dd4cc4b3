"""Embeddings of short documents without any download: sub-word TF-IDF and truncated SVD."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError

# camelCase, snake_case and ACRONYMWord come apart; digits are pieces of their own.
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
GRAM_LENGTHS = (3, 4)
MOST_GRAMS = 16000
RAREST_GRAM = 3  # grams of fewer documents tell nothing about others


def grams(document: str) -> list[str]:
    """Return the words of `document`, identifiers split, and each word's character n-grams."""
    return [gram for piece in PIECE.findall(document) for gram in _grams_of(piece.lower())]


@functools.cache
def _grams_of(word: str) -> tuple[str, ...]:
    marked = f"<{word}>"  # so that a word's beginning and end differ from its middle
    parts = (marked[i : i + n] for n in GRAM_LENGTHS for i in range(len(marked) - n + 1))
    return (word, *parts)


@dataclass(frozen=True, eq=False)
class Features:
    """A fitted map from documents to rows of norm `sqrt(width)`."""

    vectorizer: TfidfVectorizer
    svd: TruncatedSVD

    @classmethod
    def fit(cls, documents: Sequence[str], width: int = 1024, seed: int = 0) -> Features:
        """Fit on `documents`; the same documents and seed give the same map.

        Raises CimError if they hold too little for `width` dimensions.
        """
        vectorizer = TfidfVectorizer(
            analyzer=grams,
            min_df=min(RAREST_GRAM, len(documents)),
            max_features=MOST_GRAMS,
            sublinear_tf=True,
            dtype=np.float32,
        )
        weights = vectorizer.fit_transform(documents)
        if width > min(weights.shape):
            raise CimError(
                f"{weights.shape[0]} documents with {weights.shape[1]} n-grams are too few "
                f"for {width} dimensions"
            )
        # Two power iterations, each orthogonalised: in float32 the plain ones lose the small
        # singular values.
        svd = TruncatedSVD(
            width,
            n_iter=2,
            n_oversamples=32,
            power_iteration_normalizer="QR",
            random_state=seed,
        )
        return cls(vectorizer, svd.fit(weights))

    def transform(self, documents: Sequence[str]) -> Array:
        """Return float32 `[n, width]`; a document of unknown n-grams only gives a row of zeros."""
        rows = self.svd.transform(self.vectorizer.transform(documents))
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        target = math.sqrt(rows.shape[1])
        scaled: Array = rows * (target / np.where(norms > 0, norms, 1))
        return scaled.astype(np.float32)
