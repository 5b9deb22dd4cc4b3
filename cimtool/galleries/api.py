"""The library's functions of this room, and the views of their results."""

from __future__ import annotations

from cimtool.galleries import render as _render  # noqa: F401
from cimtool.galleries.cams import program_cam as program_cam
from cimtool.galleries.encoding import encode as encode
from cimtool.galleries.gallery_changes import change_gallery as change_gallery
from cimtool.galleries.programming import program as program
from cimtool.galleries.search import search as search
