"""Where targets and noise models are: the folder that ships with cimtool, and those of plug-ins."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.errors import CimError
from cimtool.base.named import unknown
from cimtool.base.plugins import plugin_files


def targets_folder() -> Path:
    """Return the folder of shipped targets: in an installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "targets", package.parent / "targets"):
        if folder.is_dir():
            return folder
    raise CimError(f"{package / 'targets'}: there is no such folder; reinstall cimtool")


OWN = "cimtool"
"""The origin of what ships with cimtool."""


def known_files(folder: str = "") -> dict[str, tuple[Path, str]]:
    """The files of all targets, or of all in `folder` beside them, by name, with their origins.

    A name of cimtool's own is cimtool's, whatever a plug-in has.
    """
    own = {file.stem: (file, OWN) for file in (targets_folder() / folder).glob("*.toml")}
    return plugin_files(folder) | own


def known_file(name: str, what: str, folder: str = "") -> Path:
    """The file of that name; CimError that says what the name is of, with the nearest."""
    own = targets_folder() / folder / f"{name}.toml"
    if own.is_file():
        return own
    files = known_files(folder)
    if name not in files:
        raise unknown(what, name, files)
    return files[name][0]
