"""The format of `report.json`, for what reads one without verifying, which takes long to load."""

from __future__ import annotations

FORMAT_VERSION = 8

LARGEST_REPORT = 1 << 24
"""Bytes of a report: `drift.MOST_QUERIES` of either side take 5 MB."""
