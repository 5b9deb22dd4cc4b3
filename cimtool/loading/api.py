"""The library's functions of this room: sources of models and of their rows."""

from __future__ import annotations

from cimtool.loading.embeddings import read_data as read_data
from cimtool.loading.source import ModelSource as ModelSource
