"""The library's functions of this room."""

from __future__ import annotations

from cimtool.embedding.embed import embed as embed
