"""The library: its functions by name, each from the `api` module of its room on first use."""

from __future__ import annotations

import importlib
from typing import Any

NAMES = {
    "bundle": (
        "compile",
        "prepare",
        "Compilation",
        "load",
        "Matcher",
        "simulate",
    ),
    "loading": (
        "ModelSource",
        "read_data",
    ),
    "verification": (
        "verify",
        "compare",
    ),
    "embedding": ("embed",),
    "costs": ("cost",),
    "galleries": (
        "program",
        "program_cam",
        "change_gallery",
        "encode",
        "search",
    ),
    "training": (
        "teacher",
        "fit",
        "train",
        "fine_tune",
    ),
    "experiments": (
        "sweep",
        "tune",
        "evaluate",
        "compare_targets",
        "train_grid",
    ),
}
"""The public names of each room's `api` module."""


def __getattr__(name: str) -> Any:
    room = next((room for room, names in NAMES.items() if name in names), None)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"cimtool.{room}.api"), name)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("cimtool."):
            raise
        raise AttributeError(
            f"cimtool.{name} needs {error.name}, which is not installed"
        ) from error
