"""The command line that builds a point of a sweep for good, and the files that it needs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cimtool.base.escapes import toml_string
from cimtool.base.files import without_links
from cimtool.base.toml_files import dotted, read_toml
from cimtool.experiments.sweeps.grid import LAYERS, Point, nested, setting_flags, target_changes
from cimtool.hardware.keys import flag
from cimtool.loading.embeddings import File
from cimtool.loading.source import ModelSource

TARGET_FILE = "chosen-target.toml"
SETTINGS_FILE = "chosen-settings.toml"


@dataclass(frozen=True)
class Sources:
    """The files that a sweep was made from, all of which a command line can name.

    Its dies are of the `noise` model, if any, in place of those of the targets.
    """

    model: ModelSource
    calibration: tuple[Path, ...]
    settings: Path | None
    noise: File | None = None


def compile_command(point: Point, sources: Sources, folder: Path) -> tuple[str, dict[str, str]]:
    """The command line that compiles a point, and the texts of files in `folder` that it reads.

    Settings are options; a changed target, and settings of layers, go into files.
    """
    texts = {}
    target, settings = point.base, sources.settings
    flags = setting_flags(point.values)
    layers = flags.pop(LAYERS, {})
    if (changes := target_changes(point.values)) and point.build is not None:
        own = {"base": _base(point.base), "name": point.build.target.name}
        changed = own | {"title": f"{point.base}, changed"} | nested(changes)
        if sources.noise is not None:  # its keys may be among the changes, and the base lacks them
            changed["noise"] = point.build.target.to_json()["noise"]
        texts[TARGET_FILE] = toml_text(changed)
        target = str(folder / TARGET_FILE)
    if layers:
        given = {} if settings is None else read_toml(settings)
        texts[SETTINGS_FILE] = toml_text(with_layers(given, layers))
        settings = folder / SETTINGS_FILE
    words = compile_words(sources.model, sources.calibration, target, settings)
    for name, value in flags.items():
        if isinstance(value, bool):
            words.append(flag(name if value else f"no_{name}"))
        else:
            words += [flag(name), str(value)]
    return shlex.join(words), texts


def compile_words(
    model: ModelSource, calibration: Iterable[Path], target: str, settings: Path | None
) -> list[str]:
    """The words of a command line that compiles a model from its files."""
    options: list[tuple[str, Any]] = [
        *(("--projectors", file) for file in model.files),
        ("--poly", model.poly),
        ("--head", model.head),
        *(("--calibration", file) for file in calibration),
        ("--map", model.layer_map),
        ("--a", model.a),
        ("--b", model.b),
        ("--target", target),
        ("--settings", settings),
    ]
    words = [str(word) for option in options if option[1] is not None for word in option]
    return ["cimtool", "compile", *words]


def _base(target: str) -> str:
    """A target as another file names it as its base: a path from anywhere, a name as it is."""
    return str(without_links(Path(target))) if target.endswith(".toml") or "/" in target else target


def with_layers(given: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Any]:
    """A settings file with bits of layers added after its own, where the last match wins."""
    merged = dict(given.get("layers", {}))
    for pattern, bits in layers.items():
        merged[pattern] = merged.pop(pattern, {}) | bits
    return {**given, "layers": merged}


def toml_text(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> str:
    """Write texts, numbers, true, false and tables of them as TOML."""
    single = [
        f"{dotted((name,))} = {_toml(value)}\n"
        for name, value in values.items()
        if not isinstance(value, Mapping)
    ]
    heading = f"\n[{dotted(above)}]\n" if above and single else ""
    tables = [
        toml_text(value, (*above, name))
        for name, value in values.items()
        if isinstance(value, Mapping)
    ]
    return "".join([heading, *single, *tables])


def _toml(value: Any) -> str:
    return toml_string(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
