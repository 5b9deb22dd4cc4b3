"""The head of a model and its constants, from the caller or else from the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.ir.heads import Head, ScoreConstants
from cimtool.ir.heads.base import point_heads
from cimtool.ir.program import Graph
from cimtool.ir.surrogate import Polynomial
from cimtool.ir.types import rows_of_item
from cimtool.loading.layouts import Layout
from cimtool.loading.polynomial import parse_polynomial

INNER_POLYNOMIAL = "poly"
"""Key of a checkpoint's own polynomial."""

INNER_HEAD = "head"
"""Key under which a checkpoint may name its head."""

DEFAULT_HEAD = "pcme-poly"
"""The head of towers with a variance, if nothing names a head."""


@dataclass(frozen=True)
class ScoreOptions:
    """A caller's choices for the score; with None, the file decides.

    `polynomial` takes the layout's statistics: its scales divide ed and vd once more, after the
    layout has divided them. `ignore_uncertainty` allows leaving out a variance of the file that
    its layout does not read.
    """

    head: str | None = None
    polynomial: Polynomial | None = None
    a: float | None = None
    b: float | None = None
    ignore_uncertainty: bool = False


def read_score(
    file: str,
    content: Mapping[str, Any],
    wanted: ScoreOptions,
    towers: tuple[Graph, Graph],
    divisors: tuple[float, float],
) -> tuple[Head, ScoreConstants]:
    """The score of towers, and its constants; `file` and `content` are where they were read.

    The layout divides ed and vd by `divisors` before the polynomial. a and b are the caller's; else
    they come from the polynomial in use, from the file's polynomial, or from the file's top level.
    Those of a head that scales a cosine come from the top level of a file that names this head.
    Raises CimError for an unknown head, a head that lacks something, and an option that the head
    does not use.
    """
    kind = _kind(file, content, wanted, towers)
    _refuse_others(kind, wanted)
    text, video = (rows_of_item(one.types[one.outputs["mu"]].shape[0])[0] for one in towers)
    known = ScoreConstants(file, tokens=(text, video))
    if kind.is_sampled:
        inner = inner_polynomial(file, content)
        found = wanted.polynomial or inner
        # A checkpoint that was trained on a polynomial keeps a and b only there.
        stated = wanted, found, inner
        a, b = (
            _first(*(getattr(one, name, None) for one in stated), _number(file, content, name))
            for name in ("a", "b")
        )
        if found is not None:
            found = replace(raw(found, divisors), a=a, b=b)
        known = replace(known, polynomial=found, a=a, b=b)
    elif kind.scales_cosine:
        # a and b of a file for another head are of a distance.
        own = content if content.get(INNER_HEAD) == kind.name else {}
        a, b = (_first(getattr(wanted, name), _number(file, own, name)) for name in ("a", "b"))
        known = replace(known, a=a, b=b)
    return kind.trained(known), known


def named_head(file: str, content: Mapping[str, Any], wanted: ScoreOptions) -> type[Head] | None:
    """The head that the caller names, or else the checkpoint; None if neither does."""
    if wanted.head is not None:
        return Head.named(wanted.head, Argument("head"))
    named = content.get(INNER_HEAD)
    return Head.named(named, f"{file}: {INNER_HEAD}") if isinstance(named, str) else None


def _kind(
    file: str, content: Mapping[str, Any], wanted: ScoreOptions, towers: tuple[Graph, Graph]
) -> type[Head]:
    named = named_head(file, content, wanted)
    if named is not None:
        return named
    if all("s" in tower.outputs for tower in towers):
        return Head.named(DEFAULT_HEAD, "head")
    raise ArgumentError(
        "{}: its projectors give points without a variance, and no head is named; expected {head} "
        "{}",
        file,
        " or ".join(point_heads()),
    )


def _refuse_others(kind: type[Head], wanted: ScoreOptions) -> None:
    if wanted.polynomial is not None and not kind.takes_polynomial:
        raise ArgumentError(
            '{poly} is given, but head "{}" has no polynomial; expected none, or {head} {}',
            kind.name,
            DEFAULT_HEAD,
        )
    for name in ("a", "b"):
        if getattr(wanted, name) is not None and not (kind.is_sampled or kind.scales_cosine):
            raise ArgumentError(
                '{} is given, but the score of head "{}" has no sigmoid; expected none',
                Argument(name),
                kind.name,
            )


def inner_polynomial(file: str, content: Mapping[str, Any]) -> Polynomial | None:
    """A checkpoint's polynomial; None if it has none."""
    values = content.get(INNER_POLYNOMIAL)
    if not isinstance(values, Mapping):
        return None
    return parse_polynomial(values, f"{file}: {INNER_POLYNOMIAL}")


def _number(file: str, content: Mapping[str, Any], name: str) -> float | None:
    """A number at the top of a checkpoint; None if there is none."""
    value = content.get(name)
    if not isinstance(value, int | float | np.ndarray) or np.size(value) != 1:
        return None
    number = float(np.reshape(value, ())[()])
    if not math.isfinite(number) or (name == "a" and number <= 0):
        expected = "a number above 0" if name == "a" else "a finite number"
        raise CimError(f"{file}: {name} is {number}; expected {expected}")
    return number


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def statistics_note(layout: str, width: int) -> str | None:
    """A sentence on the statistics of a layout's polynomials; None if these are raw ed and vd.

    `layout` is the layout's name, `width` the extent of mu.
    """
    known = Layout.family.get(layout, Layout)  # ONNX projectors have no layout
    if (divisors := known.statistics(width)) == (1.0, 1.0):
        return None
    ed, vd = divisors
    return (
        f"layout {layout}: the polynomial takes ed/{ed:g} and vd/{vd:.10g}, which its scale_ed and "
        "scale_vd divide again; if it was fitted on plain ed and vd, divide both scales by these "
        "numbers"
    )


def raw(found: Polynomial, divisors: tuple[float, float]) -> Polynomial:
    """The polynomial in raw ed and vd, from a polynomial in ed and vd divided by `divisors`."""
    ed, vd = divisors
    domain = None if found.domain is None else found.domain.times(ed, vd)
    scales = found.scale_ed * ed, found.scale_vd * vd
    return replace(found, scale_ed=scales[0], scale_vd=scales[1], domain=domain)
