"""Laplace posterior of the last projection of frozen encoders, by Kronecker factors.

The rows x of a frozen encoder are all that is known, so its last projection is W x at W = I. As in
BayesVLM (Baumann et al., arXiv 2412.06014, section 4) W has a Gaussian prior, and the posterior is
the Laplace approximation with the covariance A^-1 (x) B^-1 of K-FAC (Martens and Grosse, arXiv
1503.05671):

    A = sum_i x_i x_i' + alpha I        B = mean_i H_i + beta I
    z = W x ~ N(x, (x' A^-1 x) B^-1)

H_i [d, d] is the Gauss-Newton matrix, by the projected row, of the sigmoid loss that gives a and b.
Pair j has the logit b - a |x_i - y_j|^2 of rows at unit norm, which is 2 a x_i.y_j and a constant,
and in each row right and wrong pairs have half of the weight each:

    H_i = J_i (sum_j w_ij p_ij (1 - p_ij) (2 a)^2 y_j y_j') J_i,    J_i = I - x_i x_i'

BayesVLM's number of pseudo-data multiplies both A and B, and so only divides the covariance: it
follows from the distance of right pairs (`fit_posteriors`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.threads import one_blas_thread
from cimtool.training.sigmoid import fitted_sigmoid

PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Prior precisions that are tried: alpha and beta as shares of their factor's mean eigenvalue."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """The variance of projected rows x: `|factor x|^2 spread`.

    `factor` [d, d] is a root of A^-1, `spread` [d] the diagonal of B^-1 over the pseudo-data.
    """

    factor: FloatArray
    spread: FloatArray

    def leverage(self, rows: FloatArray) -> FloatArray:
        """`x' A^-1 x` [n] of rows [n, d]."""
        found: FloatArray = np.square(rows @ self.factor.T).sum(axis=1)
        return found


def left_out(leverage: FloatArray) -> FloatArray:
    """The leverages of rows of the data as if each were not among them.

    `x' (A - x x')^-1 x = v / (1 - v)` with v = x' A^-1 x (Sherman and Morrison, 1950).
    """
    found: FloatArray = leverage / (1 - leverage)
    return found


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows [n, d] and [m, d] of both sides at unit norm, float64, and their right pairs [n, m]."""

    text: FloatArray
    video: FloatArray
    together: BoolArray

    @property
    def distances(self) -> FloatArray:
        """Squared distances [n, m]."""
        found: FloatArray = 2 - 2 * self.text @ self.video.T
        return found

    @property
    def turned(self) -> UnitRows:
        """The same with the sides exchanged."""
        return UnitRows(self.video, self.text, self.together.T)


def curvature(rows: UnitRows, a: float, b: float) -> FloatArray:
    """The mean of H_i [d, d] over the texts, for the logits b - a |x - y|^2."""
    x, y, right = rows.text, rows.video, rows.together
    p = 0.5 + 0.5 * np.tanh((b - a * rows.distances) / 2)
    counts = (np.maximum(one.sum(axis=1, keepdims=True), 1) for one in (right, ~right))
    of_right, of_wrong = (0.5 / count for count in counts)
    weights = np.where(right, of_right, of_wrong) * p * (1 - p) * (2 * a) ** 2
    # J M J = M - x (M x)' - (M x) x' + (x' M x) x x', summed over the rows without any M_i.
    mx = (weights * (x @ y.T)) @ y
    crossed = x.T @ mx
    total = (y.T * weights.sum(axis=0)) @ y - crossed - crossed.T
    total += (x.T * (x * mx).sum(axis=1)) @ x
    found: FloatArray = total / len(x)
    return found


@dataclass(frozen=True, eq=False)
class KroneckerFactors:
    """A and B of one side before the prior, as eigenvalues and eigenvectors."""

    activations: tuple[FloatArray, FloatArray]
    outputs: tuple[FloatArray, FloatArray]

    @classmethod
    def of(cls, rows: FloatArray, hessian: FloatArray) -> KroneckerFactors:
        """The factors of rows [n, d] and of their mean H [d, d]."""
        return cls(_eigen(rows.T @ rows), _eigen(hessian))

    def posterior(self, prior: float) -> Posterior:
        """The posterior for one datum a row.

        `prior` times the mean eigenvalue of a factor is its alpha, or its beta.
        """
        (a, u), (b, w) = self.activations, self.outputs
        factor = u.T / np.sqrt(a + prior * _mean(a))[:, None]
        return Posterior(factor, np.square(w) @ (1 / (b + prior * _mean(b))))


def _eigen(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values, 0.0), vectors


def _mean(values: FloatArray) -> float:
    return float(values.mean()) or 1.0


@dataclass(frozen=True, eq=False)
class PosteriorFit:
    """The posteriors of texts and videos by one prior, `prior` of `KroneckerFactors.posterior`."""

    text: Posterior
    video: Posterior
    prior: float

    def added(self, rows: UnitRows) -> FloatArray:
        """The part of ed [n, m] that variances are, of rows of the data that are left out."""
        text, video = (
            left_out(own.leverage(x)) * own.spread.sum()
            for own, x in ((self.text, rows.text), (self.video, rows.video))
        )
        found: FloatArray = text[:, None] + video
        return found


def fit_posteriors(
    text: FloatArray, video: FloatArray, some: UnitRows, distance: float, prior: float | None
) -> PosteriorFit | None:
    """The posteriors of all rows [n, d] and [m, d] at unit norm; None if they predict nothing.

    Pseudo-data are as many as make samples of right pairs of `some`, each row left out, as far
    apart as right pairs are: the mean variances of both sides are half of `distance` each, the mean
    squared distance of right pairs. Without `prior` each of PRIORS is tried: the best has the least
    log loss of sigmoid(b - a ed) on the pairs of `some`, with a and b solved and the variances of
    rows that are left out. None if one variance for all rows loses no more. The same rows give
    the same numbers whatever the threads.
    """
    with one_blas_thread:
        apart, right = some.distances, some.together
        a, b = fitted_sigmoid(apart[right], apart[~right])
        factors = (
            KroneckerFactors.of(text, curvature(some, a, b)),
            KroneckerFactors.of(video, curvature(some.turned, a, b)),
        )
        if prior is not None:
            return _fit(factors, some, distance, prior)
        fits = [_fit(factors, some, distance, one) for one in PRIORS]
        tried = (apart, *(apart + one.added(some) for one in fits))
        losses = np.array([_log_loss(ed[right], ed[~right]) for ed in tried])
        best = int(losses.round(9).argmin())  # of equals the first, whatever the last bits say
        return fits[best - 1] if best else None


def _fit(
    factors: tuple[KroneckerFactors, KroneckerFactors],
    some: UnitRows,
    distance: float,
    prior: float,
) -> PosteriorFit:
    def scaled(own: KroneckerFactors, rows: FloatArray, of_pairs: IntArray) -> Posterior:
        """One side, whose rows [k] of right pairs are those of numbers `of_pairs`."""
        one = own.posterior(prior)
        mean = left_out(one.leverage(rows))[of_pairs].mean() * one.spread.sum()
        return Posterior(one.factor, one.spread * (distance / 2 / mean))

    texts, videos = np.nonzero(some.together)
    text, video = factors
    return PosteriorFit(scaled(text, some.text, texts), scaled(video, some.video, videos), prior)


def _log_loss(right: FloatArray, wrong: FloatArray) -> float:
    """The log loss of sigmoid(b - a ed) with a and b solved, right and wrong pairs half each."""
    a, b = fitted_sigmoid(right, wrong)
    of_right, of_wrong = np.logaddexp(0, a * right - b), np.logaddexp(0, b - a * wrong)
    return float(of_right.mean() + of_wrong.mean()) / 2
