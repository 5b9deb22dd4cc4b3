"""A document as a self-contained HTML page, or as a part of a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from cimtool.report.document import Document, Section, sentences
from cimtool.report.page import render, render_fragment

SAID = 4
"""Most sentences of a document in a notebook."""


def html(document: Document, title: str = "") -> str:
    """The page of a document as a text; the browser shows `title` as its name.

    Blocks outside sections come first, details folded; then come cards and sections.
    """
    sections = [one for one in document.blocks if isinstance(one, Section)]
    others = [one for one in document.blocks if not isinstance(one, Section)]
    others.sort(key=lambda one: one.level != "verdict")
    return render(
        "document.html",
        title=title or document.heading,
        document=document,
        first=[one for one in others if one.level != "detail"],
        more=[one for one in others if one.level == "detail"],
        cards=[one for one in sections if one.span],
        sections=[one for one in sections if not one.span],
    )


def fragment(document: Document, kind: str, offers: Sequence[str]) -> str:
    """`kind` and title, the first sentences, the first table and picture, and other `offers`."""
    return render_fragment(
        "fragment.html",
        kind=kind,
        title=document.title,
        sentences=sentences(document.blocks)[:SAID],
        table=next(iter(document.tables.values()), None),
        picture=next((one._repr_html_() for one in document.pictures.values()), ""),
        offers=offers,
    )
