"""Templates filled in: text, Markdown, and pages that need nothing else.

A page is one HTML file with its style, its script and its pictures inside: a template that extends
`base.html` and takes tables and figures from `parts.html`:

    {% extends "base.html" %}
    {% import "parts.html" as parts %}
    {% block content %}
    {{ parts.table(points) }}
    {{ parts.figure(chart, "Drift against energy") }}
    {% endblock %}

Markdown has the filter `markdown` for words, and `{% include "table.md" %}` for a `table`. A
sentence too long for a line of the template stands between `{% filter one_line %}` and
`{% endfilter +%}`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING

from cimtool.base.escapes import markdown_text, one_line, visible
from cimtool.base.files import text_bytes
from cimtool.report import svg
from cimtool.report.formats import counted, whole

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "cimtool.report"


def render(package: str, template: str, **values: object) -> str:
    """Fill `template` of the package's folder `templates`; names from users are escaped.

    Values must give what the base template asks for: `title`.
    """
    style, script = svg.asset(svg.STYLE) + svg.asset("page.css"), svg.asset("page.js")
    made = _environment(package, True).get_template(template)
    return made.render(style=style, script=script, policy=_policy(style, script), **values)


def render_fragment(package: str, template: str, **values: object) -> str:
    """Fill a template of HTML that is a part of a page of others, names escaped."""
    return _environment(package, True).get_template(template).render(values)


def render_text(package: str, template: str, **values: object) -> str:
    """Fill a template of text, for a terminal; it ends without a line break."""
    return _environment(package, False).get_template(template).render(values).rstrip("\n")


def render_file(package: str, template: str, **values: object) -> str:
    """Fill a template of a file of text or Markdown, with U+FFFD for what is not shown."""
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
        "counted": counted,
        "whole": whole,
        "markdown": markdown_text,
        "one_line": one_line,
    }
    return environment


def _visible(value: object) -> object:
    """A value of a page's template, a text without characters that are not shown."""
    return visible(value) if type(value) is str else value


def picture_url(picture: str) -> str:
    """An SVG document as a source of <img>, where its styles and ids stay its own."""
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
