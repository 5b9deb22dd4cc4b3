"""Configuration of the documentation site; `make docs` builds it with Sphinx into `build/docs`.

The pages are the Markdown files beside this one. What follows from the code is put into them as
they are read, in place of lines `<!-- made from the code: NAME -->`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cimtool import __version__

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from made_from_code import filled_in  # noqa: E402

project = "cimtool"
author = "the cimtool contributors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser"]
smartquotes = False  # "--target" must stay as it is typed
highlight_language = "none"
nitpicky = True

myst_heading_anchors = 4

html_theme = "furo"
html_title = f"cimtool {__version__}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it is fetched, which a page opened as a file cannot do
pygments_style, pygments_dark_style = "default", "monokai"


ACCESSIBLE = (
    ("furo_navigation_tree", 'role="heading"', 'role="heading" aria-level="2"'),
    ("body", "<pre>", '<pre tabindex="0">'),
    ("body", '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
)
"""Levels of the sidebar's headings, and what scrolls by keyboard: Sphinx leaves them out."""


def accessible(_: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Put in what screen readers and keyboards need."""
    for key, old, new in ACCESSIBLE:
        if key in context:
            context[key] = context[key].replace(old, new)


def setup(app: Any) -> None:
    """Fill in what is made from the code; `app` is Sphinx's application."""
    app.connect("source-read", lambda _, name, source: source.__setitem__(0, filled_in(source[0])))
    app.connect("html-page-context", accessible, priority=900)  # after the theme's own
