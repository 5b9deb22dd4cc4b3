"""Deploys cross-modal matchers on compute-in-memory hardware, bit for bit.

`compile` makes a bundle of a trained model, `verify` measures what each step cost and checks every
bit, `cost` estimates what the target needs, `simulate` scores; `help(cimtool.verify)` has the
arguments. What they return shows itself in a notebook, and has `to_dict`, `to_markdown`,
`to_dataframe` and `plot`. A mistake raises CimError, a check that failed CheckFailed.
"""

from __future__ import annotations

import importlib
from typing import Any

from cimtool.base.errors import CheckFailed as CheckFailed
from cimtool.base.errors import CimError as CimError

__version__ = "0.1.0"

API = (
    *(
        "compile",
        "load",
        "program",
        "program_cam",
        "change_gallery",
        "simulate",
        "embed",
        "encode",
        "search",
        "verify",
    ),
    *("compare", "sweep", "tune", "cost"),
    *("teacher", "fit", "train", "train_grid", "fine_tune", "evaluate", "ModelSource"),
)
"""The public names of `cimtool.api`, loaded on first use: importing the package costs nothing."""

__all__ = ["CheckFailed", "CimError", *API]


def __getattr__(name: str) -> Any:
    if name not in API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("cimtool.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *API]
