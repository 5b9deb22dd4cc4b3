"""Filled templates: self-contained pages, parts of pages, and texts.

A page is one HTML file with its style, its script and its pictures inside.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from cimtool.base.escapes import markdown_text, visible
from cimtool.base.files import text_bytes
from cimtool.report import svg

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "cimtool.report"


def render(template: str, package: str = PACKAGE, **values: object) -> str:
    """Fill `template` of the package's folder `templates`; names from users are escaped.

    The values must have the `title` that the base template needs.
    """
    style, script = svg.asset(svg.STYLE) + svg.asset("page.css"), svg.asset("page.js")
    made = _environment(package, True).get_template(template)
    return made.render(style=style, script=script, policy=_policy(style, script), **values)


def render_fragment(template: str, **values: object) -> str:
    """Fill an HTML template for a part of a foreign page; names are escaped."""
    return _environment(PACKAGE, True).get_template(template).render(values)


def render_text(package: str, template: str, **values: object) -> str:
    """Fill a text template; the text ends without a line break."""
    return _environment(package, False).get_template(template).render(values).rstrip("\n")


def render_file(package: str, template: str, **values: object) -> str:
    """Fill a template of a text or Markdown file; invisible characters become U+FFFD."""
    return visible(render_text(package, template, **values))


@cache
def _environment(package: str, autoescape: bool) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(PACKAGE)]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        finalize=_visible if autoescape else None,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "markdown": markdown_text,
        "runs": _runs,
        "as_url": picture_url,
    }
    environment.tests["file"] = svg.is_file
    return environment


def _runs(blocks: Iterable[object]) -> list[tuple[str, list[object]]]:
    """Runs of blocks of the same class, each with the name of the class."""
    by = groupby(blocks, lambda block: type(block).__name__)
    return [(kind, list(run)) for kind, run in by]


def _visible(value: object) -> object:
    """A value for a page's template; in a text, invisible characters become U+FFFD."""
    return visible(value) if type(value) is str else value


def picture_url(picture: str) -> str:
    """An SVG document as a source of <img>, which keeps its styles and ids to itself."""
    return f"data:image/svg+xml;base64,{base64.b64encode(text_bytes(picture)).decode()}"


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy that allows this style, this script and pictures in the page."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
