"""The teacher's labels: matching probabilities of pairs, Monte Carlo or exact, in log space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.base.progress import Countdown, Say, silent
from cimtool.base.threads import map_rows
from cimtool.reference.exact import OutOfReach, check_sigmoid, pair_probabilities
from cimtool.reference.montecarlo import check_samples, draw, mean_of_sigmoids
from cimtool.reference.statistics import Gaussians, pair_statistics
from cimtool.training.options import check_count

# Pairs that a thread takes at once: as many as leave their samples in its cache (3 MB at d = 1024,
# K = 10), or where there are none as make its steps longer than the wait for the interpreter; and
# pairs between two lines of progress.
AT_ONCE = 16
AT_ONCE_EXACT = 64
REPORTED = 1 << 14

COLUMNS = ("ed", "vd", "log_p", "log_1mp", "standard_error")
"""Values of each pair, in the order of `Labels`."""

PairRows = tuple[IntArray, IntArray]
"""The text row and the video row of each pair, both [n]."""


@dataclass(frozen=True)
class TeacherSigmoid:
    """The teacher's probability `E[sigmoid(b - a D)]`, from `K` samples a side.

    Raises CimError if a is not above 0, a or b is not finite, or K is below 2: labels have a
    standard error, and one sample has none.
    """

    a: float
    b: float
    K: int = 10

    def __post_init__(self) -> None:
        check_sigmoid(self.a, self.b)
        check_count("samples", self.K, 2)
        check_samples(self.K)


@dataclass(frozen=True, eq=False)
class Labels:
    """Statistics and labels of pairs, each `[n]` float64.

    `standard_error` is that of the logit, 0 for exact labels; None if it is not known.
    """

    ed: FloatArray
    vd: FloatArray
    log_p: FloatArray
    log_1mp: FloatArray
    standard_error: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.ed)

    @property
    def logit(self) -> FloatArray:
        """`log p - log(1-p)`, `[n]`: never clipped, so finite even if p underflows."""
        return self.log_p - self.log_1mp

    def of(self, pairs: IntArray) -> Labels:
        """Return the labels of some pairs, by their numbers."""
        error = None if self.standard_error is None else self.standard_error[pairs]
        return Labels(self.ed[pairs], self.vd[pairs], self.log_p[pairs], self.log_1mp[pairs], error)


def monte_carlo_labels(
    text: Gaussians,
    video: Gaussians,
    pairs: PairRows,
    sigmoid: TeacherSigmoid,
    seed: int = 0,
    say: Say = silent,
    called: Modalities = TEXT_VIDEO,
) -> Labels:
    """Label `pairs` by Monte Carlo, every pair with samples of its own.

    They are keyed by (seed, modality, number of the pair), so the same whatever runs beside it. The
    standard error is the two-sample one, sqrt(var(row means)/K + var(column means)/K), since the
    K*K terms share samples; the delta method carries it to the logit. Raises CimError naming the
    rows of a pair, which are `called` so, whose statistics or labels are not finite.
    """

    def label(rows: PairRows, numbers: IntArray) -> tuple[FloatArray, ...]:
        z_t = draw(text[rows[0]], "text", numbers, sigmoid.K, seed)
        z_v = draw(video[rows[1]], "video", numbers, sigmoid.K, seed)
        inputs = sigmoid.b - sigmoid.a * _squared_distances(z_t, z_v)
        return tuple(one[0] for one in mean_of_sigmoids(np.moveaxis(inputs, 0, -1)[None]))

    return _labelled(text, video, pairs, label, AT_ONCE, say, called)


def exact_labels(
    text: Gaussians,
    video: Gaussians,
    pairs: PairRows,
    a: float,
    b: float,
    say: Say = silent,
    called: Modalities = TEXT_VIDEO,
) -> Labels:
    """Label `pairs` by the exact probability.

    Raises CimError naming the rows, which are `called` so, if one is not reached.
    """

    probabilities = pair_probabilities(text, video, a, b)

    def label(rows: PairRows, numbers: IntArray) -> tuple[FloatArray, ...]:
        try:
            found = probabilities(*rows)
        except OutOfReach as error:
            named = _named(pairs, numbers[error.pair], called)
            raise ArgumentError("{}: {}; expected {labels} mc here", named, error) from None
        return *found, np.zeros(len(numbers))

    return _labelled(text, video, pairs, label, AT_ONCE_EXACT, say, called)


def _labelled(
    text: Gaussians,
    video: Gaussians,
    pairs: PairRows,
    label: Callable[[PairRows, IntArray], tuple[FloatArray, ...]],
    height: int,
    say: Say,
    called: Modalities,
) -> Labels:
    """Label blocks of `height` pairs in threads; no array is as long as all pairs times d."""
    i, j = pairs
    count = len(i)
    out, countdown = np.empty((len(COLUMNS), count)), Countdown(say)
    for start in range(0, count, REPORTED):
        stop = min(start + REPORTED, count)

        def some(block: slice, start: int = start) -> None:
            numbers = np.arange(start + block.start, start + block.stop)
            rows = i[numbers], j[numbers]
            out[:2, numbers] = pair_statistics(text, video, rows)
            _require_finite(out[:2], pairs, numbers, called)
            with np.errstate(all="ignore"):  # what overflows is not finite, and named below
                out[2:, numbers] = label(rows, numbers)
            _require_finite(out, pairs, numbers, called)

        map_rows(some, stop - start, height)
        if count > REPORTED:
            countdown.tell(f"labels: {stop:,} of {count:,} pairs", stop, count)
    return Labels(*out)


def _require_finite(
    columns: FloatArray, pairs: PairRows, numbers: IntArray, called: Modalities
) -> None:
    """Raise CimError naming the first of the pairs `numbers` that has a value not finite."""
    bad = ~np.isfinite(columns[:, numbers])
    if bad.any():
        first = int(np.argmax(bad.any(axis=0)))
        column = int(np.argmax(bad[:, first]))
        value = columns[column, numbers[first]]
        named = _named(pairs, numbers[first], called)
        raise CimError(
            f"{named}: {COLUMNS[column]} comes to {value:g}; expected "
            "Gaussians whose statistics and labels float64 holds"
        )


def _named(pairs: PairRows, number: int, called: Modalities) -> str:
    (i, j), (text, video) = pairs, called
    return f"{text} row {i[number]} and {video} row {j[number]}"


GROUPS = ("all pairs", "right pairs", "wrong pairs")


def pair_groups(pairs: int, matched: BoolArray | None) -> dict[str, BoolArray]:
    """Masks [pairs] of the groups that have pairs: all, and right and wrong ones if known."""
    masks = [np.ones(pairs, bool)]
    if matched is not None:
        masks += [matched, ~matched]
    return {group: mask for group, mask in zip(GROUPS, masks, strict=False) if mask.any()}


def mixed_pairs(right: IntArray, videos: int, pairs: int, matched: float, seed: int) -> PairRows:
    """Draw text and video rows of pairs, a share `matched` of them right pairs.

    `right` [n] is the right one of `videos` for each text, or a number from `videos` on if it has
    none. The rest pair any text with any video. The score ranks all pairs, of which nearly all are
    wrong: a teacher of mostly right pairs leaves their range to extrapolation.
    """
    rng = np.random.default_rng(seed)
    text = rng.integers(len(right), size=pairs)
    is_right = (rng.random(pairs) < matched) & (right[text] < videos)
    return text, np.where(is_right, right[text], rng.integers(videos, size=pairs))


def _squared_distances(z_t: FloatArray, z_v: FloatArray) -> FloatArray:
    """Return `|z_t - z_v|^2` of all samples of aligned pairs: `[n, K, d]` twice to `[n, K, K]`."""
    # Around the pair's own midpoint, where the three terms cancel least.
    middle = (z_t.mean(axis=1, keepdims=True) + z_v.mean(axis=1, keepdims=True)) / 2
    x, y = z_t - middle, z_v - middle
    own_x, own_y = np.square(x).sum(axis=2), np.square(y).sum(axis=2)
    distances: FloatArray = own_x[:, :, None] + own_y[:, None, :] - 2 * x @ y.transpose(0, 2, 1)
    return distances
