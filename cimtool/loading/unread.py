"""Tensors of a checkpoint that its layout does not read.

They are the encoders before the rows, which layouts leave out, what training saves beside a model,
and keys of which a layout knows nothing. A variance among the last would be lost, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.loading.layout import Layout
from cimtool.loading.logit_scale import LOGIT_BIAS, LOGIT_SCALE
from cimtool.loading.provenance import KEY
from cimtool.loading.weights import Weights, flat, unwrapped

VARIANCE = re.compile(
    r"(^|[._])(unc|uncertain(ty|tie)?|(log)?(var(iance)?|std(ev|dev)?|sigma))s?\d*([._]|$)"
)
"""Words in the keys of variances; BatchNorm's `running_var` is none."""

OWN = re.compile(rf"({KEY}\..*|poly\..*|a|b)")
"""Keys of the record of the training rows, and those that a score reads by itself."""

TRAINING = re.compile(r"(.*_)?(optimi[sz]er|scheduler|scaler)s?(_states?)?(\..*)?")
"""Keys of the state of a training run."""

MOST_NAMED = 3
"""Keys that a sentence names."""


@dataclass(frozen=True)
class LeftTensors:
    """Full keys of a checkpoint's tensors that `layout` leaves out.

    `skipped` are of encoders and of training, `unknown` all others, and `variances` those of the
    unknown or of an encoder that look like a variance, if neither projector has one.
    """

    file: str
    layout: str
    skipped: tuple[str, ...]
    unknown: tuple[str, ...]
    variances: tuple[str, ...]

    def require_no_variance(self) -> None:
        """Raise CimError if a tensor that looks like a variance is left out."""
        if self.variances:
            raise ArgumentError(
                '{}: {} {} like a variance, which layout "{}" does not read; expected the keys of '
                "a layout that reads it, or {ignore_uncertainty} to compile points",
                self.file,
                _named(self.variances),
                "looks" if len(self.variances) == 1 else "look",
                self.layout,
            )

    @property
    def remarks(self) -> tuple[str, ...]:
        """A sentence for each kind of tensors that are left out."""
        found = []
        if self.skipped:
            of = "tensor" if len(self.skipped) == 1 else "tensors"
            found.append(
                f"{self.file}: {len(self.skipped)} {of} of encoders and of training are left out"
            )
        if self.unknown:
            found.append(
                f'{self.file}: layout "{self.layout}" does not know {_named(self.unknown)}, and '
                "leaves out what it does not know"
            )
        if self.variances:
            found.append(f"{self.file}: a variance is left out: {_named(self.variances)}")
        return tuple(found)


def unread(
    layout: type[Layout],
    content: Mapping[str, Any],
    weights: Sequence[Weights],
    has_variance: bool,
) -> LeftTensors:
    """The tensors of a checkpoint's `content` that are in no projector's `weights`.

    `has_variance` is True if the projectors give one; further keys like it belong to encoders.
    """
    read = frozenset[str]().union(*(one.read for one in weights))
    known = {LOGIT_SCALE, LOGIT_BIAS, *layout.score_keys}
    left = [
        (key, name)
        for key in flat(content)
        if key not in read and (name := unwrapped(key)) not in known and not OWN.fullmatch(name)
    ]
    skipped = [key for key, name in left if _is_skipped(name, layout.encoders)]
    variances = [
        key
        for key, name in left
        if not has_variance
        and VARIANCE.search(name.lower().replace("running_var", ""))
        and not TRAINING.fullmatch(name)
    ]
    apart = {*skipped, *variances}
    return LeftTensors(
        weights[0].file,
        layout.name,
        tuple(key for key in skipped if key not in variances),
        tuple(key for key, _ in left if key not in apart),
        tuple(variances),
    )


def _is_skipped(name: str, encoders: Collection[str]) -> bool:
    return bool(TRAINING.fullmatch(name)) or any(
        name == one or name.startswith(f"{one}.") for one in encoders
    )


def _named(keys: Sequence[str]) -> str:
    more = len(keys) - MOST_NAMED
    return ", ".join(keys[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
