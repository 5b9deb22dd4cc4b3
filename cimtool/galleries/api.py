"""The library's functions of this room."""

from __future__ import annotations

from cimtool.galleries.encoding import encode as encode
from cimtool.galleries.gallery_changes import change_gallery as change_gallery
from cimtool.galleries.programming import program as program
from cimtool.galleries.programming import program_cam as program_cam
from cimtool.galleries.search import search as search
