"""What a model is compiled for: a target and the settings of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.target import Target, load_target


@dataclass(frozen=True)
class Configuration:
    """A target and every setting decided for it."""

    target: Target
    settings: Settings

    @classmethod
    def of(
        cls, target: Target | str, file: Path | str | None, settings: Mapping[str, object]
    ) -> Configuration:
        """A target by name or file, with the settings of a file and those by name over them.

        Raises CimError for a target that is none and for settings that are not allowed.
        """
        chosen = target if isinstance(target, Target) else load_target(target)
        return cls(chosen, resolve(chosen, None if file is None else Path(file), settings))
