"""The library's functions of this room: where a model and its rows come from."""

from __future__ import annotations

from cimtool.loading.embeddings import read_data as read_data
from cimtool.loading.source import ModelSource as ModelSource
