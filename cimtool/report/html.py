"""A document as a page of HTML that needs nothing else, or as a part of a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from cimtool.report.document import Document, Section, sentences
from cimtool.report.page import render, render_fragment

SAID = 4
"""Sentences of a document that its part of a notebook says."""


def html(document: Document, title: str = "") -> str:
    """The page of a document as one text; `title` is what a browser names it by.

    What is in no section stands in its head, details folded; then come cards and sections.
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
    """The title behind its `kind`, the first sentences, table and picture, and what else is."""
    return render_fragment(
        "fragment.html",
        kind=kind,
        title=document.title,
        sentences=sentences(document.blocks)[:SAID],
        table=next(iter(document.tables.values()), None),
        picture=next((one._repr_html_() for one in document.pictures.values()), ""),
        offers=offers,
    )
