"""Items that a teacher draws pairs from: Gaussians of both modalities, and the right videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.modality_names import NAMES, TEXT_VIDEO, Modalities, spellings
from cimtool.base.named import require_one
from cimtool.base.progress import Say
from cimtool.base.threads import side_by_side
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import EmbeddingsLike, File, read_data
from cimtool.loading.item_arrays import TRUTH, finite_rows, require_right, right_videos
from cimtool.loading.model import Model
from cimtool.loading.npy import read_npz
from cimtool.loading.provenance import TrainedShares
from cimtool.loading.qrels import judged_data
from cimtool.loading.source import ModelSource
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import (
    Classes,
    Judgements,
    Truth,
    memberships,
    truth_among_others,
    truth_judged,
    truth_of,
)
from cimtool.simulation.simulator import ROW_BLOCK, Simulator
from cimtool.training.teacher import PairRows, mixed_pairs

ARRAYS = ("text_mu", "text_logvar", "video_mu", "video_logvar")
"""The arrays of a file of Gaussians, [n, d] and [m, d]; `text_to_video` [n] may stand beside."""

SPELLED = tuple(n for m in MODALITIES for end in ("_mu", "_logvar") for n in spellings(m, end))
"""The same as a user may spell them: `image_mu`."""


@dataclass(frozen=True, eq=False)
class Items:
    """Gaussians of both modalities; `right` [n] is the row of the right video of each text.

    `scale_ed` and `scale_vd` are what the model's layout divides the statistics by; `file` is
    where the items come from, for messages. With `alone` texts and videos are the same items;
    `labels` are the classes of each, [n] or [n, C], None if unknown. `model` is the SHA-256 of
    the projectors, and `trained` are the shares of the rows that trained them; None if unknown,
    as are `a` and `b`, which the model keeps of its sigmoid, and `rows`, the embeddings of both.
    `called` are the names of both modalities. If pairs are `judged`, only these are right, and
    `right` is the best video of each text, or a number from m on if it has none.
    """

    text: Gaussians
    video: Gaussians
    right: IntArray
    scale_ed: float = 1.0
    scale_vd: float = 1.0
    file: str = "gaussians"
    labels: Classes | None = None
    alone: bool = False
    model: str | None = None
    trained: TrainedShares | None = None
    a: float | None = None
    b: float | None = None
    rows: tuple[Array, Array] | None = None
    called: Modalities = TEXT_VIDEO
    judged: Judgements | None = None

    @property
    def truth(self) -> Truth:
        """The right items of each query; classes count among items of one modality alone."""
        if self.judged is not None:
            return truth_judged(self.judged, len(self.text), len(self.video), self.alone)
        if self.alone:
            return truth_among_others(len(self.text), self.labels)
        return truth_of(self.right, None, len(self.video))

    def drawn(self, pairs: int, matched: float, seed: int) -> PairRows:
        """Draw text and video rows of this many pairs, a share `matched` of them right ones.

        For items of one modality these are two of a class. Raises CimError if that is to be
        drawn and no class is known to have two.
        """
        share = 0.0 if self.alone else matched
        rows = mixed_pairs(self.right, len(self.video), pairs, share, seed)
        return self._of_a_class(rows, matched, seed) if self.alone and matched else rows

    def matched(self, rows: PairRows) -> BoolArray:
        """Mask [n] of the right pairs: never an item with itself."""
        text, video = rows
        if self.judged is not None:
            known, videos = self.judged, len(self.video)
            return np.isin(text * videos + video, known.text * videos + known.video)
        if not self.alone:
            return np.equal(self.right[text], video)
        if self.labels is None:
            return np.zeros(len(text), bool)
        own, others = self.labels[text], self.labels[video]
        same = (own == others) if own.ndim == 1 else np.any(own & others, axis=1)
        found: BoolArray = np.logical_and(same, np.not_equal(text, video))
        return found

    def _of_a_class(self, rows: PairRows, matched: float, seed: int) -> PairRows:
        """Put two items of one class in the place of a share `matched` of the pairs."""
        if self.labels is None:
            raise ArgumentError(
                "{}: labels is missing, so which items belong together is not known; expected "
                "labels [n], or {matched} 0",
                self.file,
            )
        items, numbers = memberships(self.labels)
        order = items[np.argsort(numbers, kind="stable")]
        size = np.bincount(numbers)
        first = np.cumsum(size) - size
        of = np.repeat(np.arange(len(size)), size)
        places = np.flatnonzero(size[of] > 1)
        if not len(places):
            raise ArgumentError(
                "{}: no two items share a class; expected some, or {matched} 0", self.file
            )
        rng = np.random.default_rng((seed, 1))
        chosen = rng.random(len(rows[0])) < matched
        place = rng.choice(places, size=len(chosen))
        start, count = first[of[place]], size[of[place]]
        other = start + (place - start + rng.integers(1, count)) % count
        return np.where(chosen, order[place], rows[0]), np.where(chosen, order[other], rows[1])


def model_items(
    source: ModelSource, data: EmbeddingsLike, say: Say, qrels: File | None = None
) -> Items:
    """Run projectors, as real numbers, on embeddings of any form, judged by a file `qrels`.

    Raises CimError if file, layer map, embeddings or judgements are wrong, the right videos are not
    known, or a variance is not finite.
    """
    model = source.for_rows(data).load_projectors()
    judged = judged_data(data, qrels, model.modalities)
    return encoded_items(model, judged, source.digest_of(model), say)


def encoded_items(model: Model, data: EmbeddingsLike, digest: str | None, say: Say) -> Items:
    """Run the projectors of `model`, whose SHA-256 is `digest`; errors as `model_items` has."""
    rows = read_data(data, model)
    right = rows.right if rows.judged is None else rows.truth.text_to_video
    say(f"encoding {rows.counted}")
    simulator = Simulator(model.program)
    text, video = (
        _encoded(simulator, modality, getattr(rows, modality), name)
        for modality, name in zip(MODALITIES, rows.called, strict=True)
    )
    known = model.provenance
    return Items(
        text,
        video,
        right,
        *model.divisors,
        a=model.a,
        b=model.b,
        model=digest,
        trained=None if known is None else known.trained_shares(rows.text, rows.video),
        rows=(rows.text, rows.video),
        file=rows.file,
        labels=rows.labels,
        alone=rows.alone,
        called=rows.called,
        judged=rows.judged,
    )


def _encoded(simulator: Simulator, modality: str, rows: Array, name: str) -> Gaussians:
    """Encode blocks of one height, each by one thread: the same bits whatever their number."""

    def encode(start: int) -> tuple[Array, Array]:
        found = simulator.encode(modality, rows[start : start + ROW_BLOCK])
        return found["mu"], found["s"]

    blocks = side_by_side(encode, range(0, len(rows), ROW_BLOCK))
    mu, s = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    for what, values in (("mu", mu), ("variance", s)):
        if not np.isfinite(values).all():
            raise CimError(f"the model's {name} {what} is not finite; expected finite numbers")
    return Gaussians(mu, s)


def gaussian_items(gaussians: File | Mapping[str, Array]) -> Items:
    """Take arrays by name, or those of an `.npz`: ARRAYS, and `text_to_video` if there is one.

    Raises CimError if an array is missing, is not [rows, d] of finite numbers, or the shapes do
    not meet.
    """
    if isinstance(gaussians, Mapping):
        where, values = "gaussians", dict(gaussians)
    else:
        where = str(Path(gaussians))
        values = read_npz(Path(gaussians), (*SPELLED, *TRUTH))
    with naming(where):
        one, other = called = _called(values, "text"), _called(values, "video")
        text, video = _gaussians(values, one), _gaussians(values, other)
        if text.d != video.d:
            raise CimError(
                f"{one}_mu has {text.d} dimensions and {other}_mu {video.d}; expected one d"
            )
        sizes = len(text), len(video)
        right = require_right(right_videos(values, *sizes, called=called), *sizes, called)
    return Items(text, video, right, file=where, called=called)


def _called(values: Mapping[str, Array], modality: str) -> str:
    """The name of a modality in the arrays, by that of its mu; CimError for none, and for two."""
    names = dict(zip(spellings(modality, "_mu"), NAMES[modality], strict=True))
    name = names[mu := require_one(values, tuple(names))]
    for other in spellings(modality, "_logvar"):
        if other in values and other != f"{name}_logvar":
            raise CimError(
                f"holds {mu} and {other}; expected one name of both, as {mu} and {name}_logvar"
            )
    return name


def _gaussians(values: Mapping[str, Array], name: str) -> Gaussians:
    """The Gaussians of the modality that has this name in the arrays."""
    names = f"{name}_mu", f"{name}_logvar"
    require_one(values, names[1:])
    mu, logvar = (finite_rows(np.asarray(values[name]), name, np.float64) for name in names)
    if mu.shape != logvar.shape:
        raise CimError(
            f"{names[0]} has shape {list(mu.shape)} and {names[1]} {list(logvar.shape)}; expected "
            "one shape"
        )
    with np.errstate(over="ignore"):
        s = np.exp(logvar)
    if not np.isfinite(s).all():
        raise CimError(
            f"{names[1]} holds {logvar.max():g}, whose exp is beyond float64; expected logarithms "
            "of variances"
        )
    return Gaussians(mu, s)
