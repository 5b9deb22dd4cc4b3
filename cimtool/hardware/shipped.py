"""The folder of the targets and noise models that ship with cimtool."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.errors import CimError


def targets_folder() -> Path:
    """Return the folder of shipped targets: in an installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "targets", package.parent / "targets"):
        if folder.is_dir():
            return folder
    raise CimError(f"{package / 'targets'}: there is no such folder; reinstall cimtool")
