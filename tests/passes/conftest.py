"""Untrained models of any shape, with jobs to compile them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from small_models import small_models


@pytest.fixture(scope="session")
def models() -> SimpleNamespace:
    """The kit of untrained models."""
    return small_models()
