"""The pairs that a run trains on and those that only validate, and how batches are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, item_names, name_of
from cimtool.loading.digests import row_digests
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.provenance import Provenance
from cimtool.reference.truth import Classes, Comparisons, Judgements, any_alike
from cimtool.training.loss import Batch

RowsT = TypeVar("RowsT", Tensor, IntArray)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Texts [n, in] with their videos [m, in], float32: video `right[i]` belongs to text i.

    `labels` [n], 0 to classes - 1, are the classes of texts and so of pairs, or [n, classes] true
    for each that a text has; None if unknown. With `alone` texts and videos are the same items,
    of which `compared` are pairs or triplets. `judged` are the right pairs if a text may have
    several: of items that are compared and have no labels, or as judged, `right[i]` among them.
    `called` are the names of both modalities.
    """

    text: Tensor
    video: Tensor
    right: Tensor
    labels: Tensor | None = None
    alone: bool = False
    compared: Comparisons | None = None
    judged: Judgements | None = None
    called: Modalities = TEXT_VIDEO

    @classmethod
    def of(cls, rows: Embeddings, texts: IntArray, others: Embeddings | None = None) -> Pairs:
        """Take some of the texts of embeddings with their videos; CimError if truth is unknown.

        Classes are numbered over all texts of the embeddings, and of `others` if there are any.
        With judgements, the videos are all that are right for one of these texts.
        """
        labels = None
        if rows.labels is not None:
            classes: Classes = rows.labels[texts]
            if classes.ndim == 1:
                all_ = [one.labels for one in (rows, others) if one and one.labels is not None]
                classes = np.searchsorted(np.unique(np.concatenate(all_)), classes)
            labels = torch.from_numpy(classes)
        compared, judged, places = None, None, (texts, len(rows.text))
        videos = np.unique(rows.right[texts])
        if rows.judged is not None:
            judged, videos = _judged_among(rows.judged, texts, len(rows.text), len(rows.video))
        right = np.searchsorted(videos, rows.right[texts])
        if rows.compared is not None:
            compared = rows.compared.among(*places)
            judged = rows.compared.judgements().among(*places) if labels is None else None
        text, video = torch.from_numpy(rows.text[texts]), torch.from_numpy(rows.video[videos])
        found = torch.from_numpy(right)
        return cls(
            text,
            video,
            found,
            labels,
            alone=rows.alone,
            compared=compared,
            judged=judged,
            called=rows.called,
        )

    def __len__(self) -> int:
        return len(self.text)

    @property
    def shared(self) -> bool:
        """True if some texts share a video."""
        return len(self.video) < len(self.text)

    @property
    def classes(self) -> int:
        """Number of classes; 0 if they are not known."""
        if self.labels is None:
            return 0
        return self.labels.shape[1] if self.labels.ndim == 2 else int(self.labels.max()) + 1

    @property
    def groups(self) -> Tensor:
        """The class [n] in whose groups each pair is drawn: the rarest of its own, -1 for none."""
        if self.labels is None:
            raise CimError("class-stratified batches need labels, and there are none")
        if self.labels.ndim == 1:
            return self.labels
        sizes = torch.where(self.labels, self.labels.sum(0), len(self) + 1)
        return torch.where(self.labels.any(1), sizes.argmin(1), -1)

    def among(self, kept: BoolArray) -> Pairs:
        """These texts, a mask [n], with their videos; classes keep their numbers."""
        rows = torch.from_numpy(np.flatnonzero(kept))
        videos = torch.unique(self.right[rows])
        labels = None if self.labels is None else self.labels[rows]
        places = rows.numpy(), len(self)
        compared = None if self.compared is None else self.compared.among(*places)
        judged = self.judged
        if judged is not None and self.alone:
            judged = judged.among(*places)
        elif judged is not None:
            judged, shown = _judged_among(judged, *places, len(self.video))
            videos = torch.from_numpy(shown)
        right = torch.searchsorted(videos, self.right[rows])
        sides = self.text[rows], self.video[videos], right
        return Pairs(
            *sides,
            labels,
            alone=self.alone,
            compared=compared,
            judged=judged,
            called=self.called,
        )

    def batch(self, rows: Tensor) -> Batch:
        """The pairs of these texts; of several right videos one is drawn for each text."""
        labels = None if self.labels is None else self.labels[rows]
        if self.judged is not None and not self.alone:
            videos, right = self._drawn(rows)
            return Batch(self.text[rows], self.video[videos], None, labels, right=right)
        videos = self.right[rows]
        return Batch(self.text[rows], self.video[videos], videos if self.shared else None, labels)

    @cached_property
    def _right_pairs(self) -> Any:
        """The judged pairs, true in an array [n, m]."""
        from scipy.sparse import csr_array  # slow to load, and few runs need it

        assert self.judged is not None
        true = np.ones(len(self.judged.text), bool)
        shape = len(self.text), len(self.video)
        return csr_array((true, (self.judged.text, self.judged.video)), shape)

    def _drawn(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """A right video of each of the texts by torch's generator, and which of all are right."""
        found = self._right_pairs
        starts, texts = found.indptr, rows.numpy()
        counts = starts[texts + 1] - starts[texts]
        videos = found.indices[starts[texts] + (torch.rand(len(rows)).numpy() * counts).astype(int)]
        right = found[texts][:, videos].toarray()
        return torch.from_numpy(videos.astype(np.int64)), torch.from_numpy(right)

    def compared_batch(self, chosen: Tensor) -> Batch:
        """The items of these comparisons, each once, and the comparisons."""
        assert self.compared is not None
        numbers = torch.from_numpy(self.compared.rows)[chosen]
        rows, places = torch.unique(numbers, return_inverse=True)
        match = self.compared.match
        told = None if match is None else torch.from_numpy(match)[chosen]
        return replace(self.batch(rows), compared=places, match=told)


def _judged_among(
    judged: Judgements, kept: IntArray, texts: int, videos: int
) -> tuple[Judgements, IntArray]:
    """The judgements of the `kept` of all texts, and the videos that are right for one of them.

    Rows of the judgements are those among these.
    """
    chosen = np.isin(np.arange(texts), kept)
    shown = np.unique(judged.video[chosen[judged.text]])
    return judged.between(chosen, np.isin(np.arange(videos), shown)), shown


def with_right(rows: Embeddings) -> Embeddings:
    """Judged embeddings without the texts that have nothing right, and the best video of each.

    Embeddings without judgements come back as they are. Raises CimError for items of one modality.
    """
    if rows.judged is None:
        return rows
    if rows.alone:
        raise ArgumentError(
            "{}: holds items of one modality, and {qrels} judges texts and videos; expected both, "
            "or labels",
            rows.file,
        )
    best = rows.judged.best(len(rows.text), len(rows.video))
    known = best < len(rows.video)
    kept = rows.without(~known, np.zeros(len(rows.video), bool))
    return replace(kept, text_to_video=best[known])


def draw_batches(pairs: Pairs, size: int, per_class: int) -> Iterator[Tensor]:
    """Yield the texts of each batch of an epoch, `[size]` rows, drawn from torch's generator.

    With `per_class` a batch is made of groups of that many pairs of one class. What does not fill a
    batch, or a group, is left out: BatchNorm's statistics and the losses depend on the size.
    """
    order = torch.randperm(len(pairs))
    return full_batches(_grouped(order, pairs, per_class) if per_class else order, size)


def full_batches(order: RowsT, size: int) -> Iterator[RowsT]:
    """Yield `size` rows at a time; a last, short batch is left out."""
    for start in range(0, len(order) - size + 1, size):
        yield order[start : start + size]


def _grouped(order: Tensor, pairs: Pairs, per_class: int) -> Tensor:
    """The rows of `order` in groups of one class, each class in turn as long as it lasts.

    If the number of classes divides that of a batch's groups, each class has as many groups in it.
    """
    classes = pairs.groups[order]
    groups, turns = [], []
    for label in range(pairs.classes):
        mine = order[classes == label]
        whole = len(mine) // per_class * per_class
        groups.append(mine[:whole].reshape(-1, per_class))
        turns.append(torch.arange(len(groups[-1])))
    shuffled = torch.randperm(sum(map(len, groups)))
    in_turn = torch.argsort(torch.cat(turns)[shuffled], stable=True)
    return torch.cat(groups)[shuffled[in_turn]].reshape(-1)


def check_batches(pairs: Pairs, size: int, per_class: int, by_comparison: bool = False) -> None:
    """Raise CimError unless there is a batch of this size, and its groups fill it.

    With `by_comparison` it is one of pairs or triplets of items that are given.
    """
    given = pairs.compared if by_comparison else None
    count, kind = (len(pairs), "pairs") if given is None else (len(given), given.kind)
    if count < size:
        raise ArgumentError(
            "{batch} is {}, but only {} {} are for training; expected at most that",
            size,
            count,
            kind,
        )
    if by_comparison or not per_class:
        return
    if size % per_class:
        raise ArgumentError(
            "{batch} is {}; expected a multiple of {}, the pairs of a class", size, per_class
        )
    if size < 2 * per_class:
        raise ArgumentError(
            "{batch} is {}, {} pairs of one class; expected {} or more, so that a batch has wrong "
            "pairs",
            size,
            per_class,
            2 * per_class,
        )
    classes = torch.zeros(0, dtype=torch.int64) if pairs.labels is None else pairs.groups
    counts = torch.bincount(classes[classes >= 0])
    groups = int((counts // per_class).sum())
    if groups * per_class < size:
        raise CimError(
            f"the classes give {groups} groups of {per_class} pairs; expected at least "
            f"{size // per_class} for a batch of {size}"
        )


HELD_OUT = 0.1
"""Share of the videos that is held out if no other file validates."""


@dataclass(frozen=True)
class Split:
    """Parts that do not train: the shares of the videos that validate and that are set aside.

    Both are drawn by the seed; those set aside, of share `test`, are for figures after the run.
    """

    share: float
    seed: int
    test: float = 0.0


def with_validation(rows: Embeddings, validation: Embeddings) -> tuple[Pairs, Pairs]:
    """The pairs of one file to train on, and all of another, which are left out of the first.

    A pair is in both if the rows of both its sides are. Raises CimError if widths differ or
    nothing is left to train on.
    """
    for name in ("text", "video"):
        width, other = getattr(rows, name).shape[1], getattr(validation, name).shape[1]
        if width != other:
            raise CimError(
                f"{validation.file}: {name_of(name, validation.called)} rows have {other} numbers; "
                f"expected {width} as in {rows.file}"
            )
    known, validating = (
        row_digests(np.hstack([one.text, one.video[one.right]])) for one in (rows, validation)
    )
    kept = np.flatnonzero(~np.isin(known, validating))
    if not len(kept):
        raise CimError(
            f"{rows.file}: all {len(rows.text)} pairs are also in {validation.file}, the "
            "validation file; expected others to train on"
        )
    if rows.labels is not None and validation.labels is not None:
        form, wanted = (
            ", ".join(("N", *map(str, one.shape[1:]))) for one in (validation.labels, rows.labels)
        )
        if form != wanted:
            raise CimError(
                f"{validation.file}: labels have shape [{form}]; expected [{wanted}] as in "
                f"{rows.file}"
            )
    pairs = Pairs.of(rows, kept, validation)
    held = Pairs.of(validation, np.arange(len(validation.text)), rows)
    _require_wrong_ones(held, validation.file)
    return pairs, held


def set_aside(rows: Embeddings, share: float, seed: int) -> tuple[BoolArray, BoolArray]:
    """Draw a share of the videos with all their texts, for a test: a mask of texts, and the rest.

    A text that equals one of these, or whose video does, is in neither. Raises CimError if too
    few are drawn to rank, or none is left.
    """
    drawn, where = _share_of(rows, share, np.random.default_rng((seed, 2)))
    where += f"share of {share:g} that is set aside"
    _require_wrong_ones(Pairs.of(rows, np.flatnonzero(drawn)), where, "are tests")
    seen = drawn.copy()
    for digests in (row_digests(rows.text), row_digests(rows.video)[rows.right]):
        seen |= np.isin(digests, digests[drawn])
    if seen.all():
        raise ArgumentError("{}: {test} {:g} leaves no pair to train on", rows.file, share)
    return drawn, ~seen


def some_of(mask: BoolArray, count: int, seed: int) -> BoolArray:
    """At most `count` of the places that a mask marks, drawn by the seed."""
    places = np.flatnonzero(mask)
    if len(places) > count:
        places = np.random.default_rng((seed, 3)).choice(places, count, replace=False)
    found = np.zeros_like(mask)
    found[places] = True
    return found


def unseen(held: Pairs, known: Provenance, where: str, model: str) -> Pairs:
    """The pairs that validate of which a model was not trained on both rows.

    Raises CimError, which begins with `where`, if too few are left to rank.
    """
    seen = known.known_pairs(held.text.numpy(), held.video[held.right].numpy())
    if not seen.any():
        return held
    if seen.all():
        raise CimError(
            f"{where}: {model} was trained on all {len(held)} validation pairs; expected unseen "
            "pairs"
        )
    found = held.among(~seen)
    _require_wrong_ones(
        found,
        f"{where}: {model} was trained on {seen.sum()} of {len(held)} pairs that were to validate",
    )
    return found


def split(rows: Embeddings, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Hold out a share of the videos with all their texts, drawn by the seed.

    Raises CimError if the right videos are not known or too few are held out to rank.
    """
    if not 0 < share < 1:
        raise ArgumentError("{held_out} is {:g}; expected a share between 0 and 1", share)
    held, where = _share_of(rows, share, np.random.default_rng(seed))
    if held.all():
        raise ArgumentError("{}: {held_out} {:g} leaves no pair to train on", rows.file, share)
    pairs, validation = (Pairs.of(*part) for part in _parted(rows, held))
    _require_wrong_ones(validation, f"{where}held-out share of {share:g}")
    return pairs, validation


def _parted(rows: Embeddings, held: BoolArray) -> Iterator[tuple[Embeddings, IntArray]]:
    """Embeddings and their texts that are not `held`, then those that are.

    A judged pair of a text of one part and a video of the other is in neither.
    """
    drawn = np.isin(np.arange(len(rows.video)), rows.right[held])
    for texts, videos in ((~held, ~drawn), (held, drawn)):
        if rows.judged is None:
            yield rows, np.flatnonzero(texts)
        else:
            yield rows.without(~texts, ~videos), np.arange(np.count_nonzero(texts))


def _share_of(rows: Embeddings, share: float, rng: np.random.Generator) -> tuple[BoolArray, str]:
    """Draw a share of the videos: a mask [n] of their texts, and how an error begins."""
    videos = np.unique(rows.groups)
    drawn = held_texts(rows.groups, videos, round(share * len(videos)), rng)
    return drawn, f"{rows.file}: of {len(videos)} {item_names(rows.called)[1]} the "


def held_texts(
    right: IntArray, videos: IntArray, count: int, rng: np.random.Generator
) -> BoolArray:
    """Draw `count` of the videos; true [n] for texts whose `right` video is one of them."""
    return np.isin(right, rng.permutation(videos)[:count])


def _require_wrong_ones(pairs: Pairs, where: str, do: str = "validate") -> None:
    if len(pairs) < 2 or len(pairs.video) < 2:
        items = item_names(pairs.called)[1]
        raise CimError(f"{where}: {len(pairs)} pairs {do}; expected at least 2 {items} to rank")
    if pairs.judged is not None and pairs.compared is not None:
        if not len(pairs.judged.text):
            raise CimError(
                f"{where}: none of the {pairs.compared.kind} joins two of the {len(pairs)} items "
                f"that {do}; expected some to find each other"
            )
    elif pairs.alone and pairs.labels is not None and not any_alike(pairs.labels.numpy()):
        raise CimError(
            f"{where}: no two of the {len(pairs)} items that {do} share a class; expected some "
            "to find each other"
        )
