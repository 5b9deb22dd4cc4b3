"""The lock of a project: all that each step of `cimtool run` read and wrote, by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.files import replace_texts, sha256
from cimtool.base.json_files import read_table
from cimtool.base.typed_fields import made_of, table_of
from cimtool.cli.output import json_text

LOCK = "cimtool.lock"
"""The file of the lock, beside the project file."""

MISSING = "missing"
"""Stands for the digest of a file that does not exist."""


@dataclass(frozen=True)
class StepRecord:
    """A step as it was done: the version of cimtool, keys with their values, digests by file.

    `verdict` are the sentences that it led with, one a line; `failure` is the sentence of a check
    that failed, or "".
    """

    version: str
    keys: Mapping[str, Any]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    verdict: str = ""
    failure: str = ""

    def reason_to_redo(self, now: StepRecord) -> str:
        """The first difference to a step as it would be done now; "" if there is none."""
        if self.version != now.version:
            return f"cimtool {self.version} did it"
        for mine, other in ((self.keys, now.keys), (self.inputs, now.inputs)):
            for name in dict.fromkeys((*other, *mine)):
                if mine.get(name) != other.get(name):
                    return f"{name} changed"
        for name, digest in digests(map(Path, self.outputs)).items():
            if digest != self.outputs[name]:
                return f"{name} is missing" if digest == MISSING else f"{name} changed"
        return ""


def digests(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of files by path, of folders that of their files' names and digests."""
    return {str(file): _digest(file) for file in files}


def _digest(file: Path) -> str:
    if not file.exists():
        return MISSING
    if not file.is_dir():
        return sha256(file)
    inner = digests(sorted(one for one in file.rglob("*") if one.is_file()))
    return hashlib.sha256(json_text(inner).encode()).hexdigest()


def read_lock(folder: Path) -> dict[str, StepRecord]:
    """The steps in a folder's lock by name; none without one. CimError for another file."""
    file, again = folder / LOCK, "remove it and run cimtool run"
    if not file.exists():
        return {}
    try:
        steps = table_of(read_table(file, again).get("steps"), "steps")
        return {name: made_of(StepRecord, table_of(one, name)) for name, one in steps.items()}
    except TypeError as error:
        raise CimError(f"{file}: is not a lock of cimtool run ({error}); {again} again") from None


def write_lock(folder: Path, steps: Mapping[str, StepRecord]) -> None:
    """Write the steps by name into a folder's lock, all or nothing; CimError if it cannot be."""
    values = {"steps": {name: vars(one) for name, one in steps.items()}}
    replace_texts(folder, {LOCK: json_text(values) + "\n"}, "the lock")
