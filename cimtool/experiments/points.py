"""Points of a sweep: keys with their values, checked before anything runs, and commands.

A key is a setting (`weight_bits`, `layers."text.*".adc_bits`), `target`, a key of the target's file
(`target.array.rows_active`; the last name is enough if only one key ends with it), or a key of the
score: `head`, `degree` of the polynomial, or `samples` of Monte Carlo beside the compiled points.
A command line compiles a point into a bundle.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.escapes import clean_name
from cimtool.base.files import without_links
from cimtool.base.grids import Grid, GridKey, KeyPath, KeyReader, Value
from cimtool.base.named import nearest, unknown
from cimtool.base.plugins import load_plugins
from cimtool.base.toml_files import (
    FREE,
    check_value,
    dotted,
    is_path,
    leaves,
    parse_line,
    toml_text,
)
from cimtool.bundle.bit_choice import GIVEN
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.keys import flag
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.settings import LayerBits, Overrides, read_settings, resolve
from cimtool.hardware.target import Target, derived, load_target
from cimtool.ir.heads import Head
from cimtool.ir.surrogate import MAX_DEGREE
from cimtool.loading.embeddings import File
from cimtool.loading.source import ModelSource
from cimtool.training.degrees import ED_ALONE, FORMS, Form

TARGET = "target"
LAYERS = "layers"
HEAD, DEGREE, SAMPLES = "head", "degree", "samples"
SCORE_KEYS = (HEAD, DEGREE, SAMPLES)
"""Keys of the score; they are neither settings nor keys of a target."""

IDENTITY = (("name",), ("title",), ("base",))
"""Keys that identify a target; they are not properties of the hardware."""

READINGS = {"corner": "corners", "time": "times"}
"""Conditions under which dies are read, with the arguments that list them."""

EXAMPLE = "such as weight_bits=4,6,8"


@dataclass(frozen=True)
class ScoreChoice:
    """The score of a point: a head and the form of its polynomial; None: as in the files.

    With `samples`, it is Monte Carlo with this many per side, in float; nothing is compiled.
    """

    head: str | None = None
    form: Form | None = None
    samples: int | None = None


TARGET_FILE = "chosen-target.toml"
SETTINGS_FILE = "chosen-settings.toml"

COMPILED = ScoreChoice()
"""The score as in the model's files."""


PointValues = tuple[tuple[KeyPath, Value], ...]


@dataclass(frozen=True)
class Point:
    """One combination: its values in the grid's order, and the target and settings they make.

    If the values contradict each other, `refusal` has the sentence and `build` is None.
    """

    values: PointValues
    base: str
    build: Configuration | None
    refusal: str = ""
    score: ScoreChoice = COMPILED
    done = "done"

    @property
    def named(self) -> dict[str, Value]:
        """The values by the names of their keys, as in results."""
        return {dotted(key): value for key, value in self.values}

    @property
    def unit(self) -> str:
        """The kind of its arrays; only counts of the same kind are comparable."""
        if self.build is None:
            return ""
        settings = self.build.settings
        return f"{self.base}, {settings.rows}x{settings.columns}"

    def to_json(self) -> dict[str, Any]:
        """The target, the settings and the score as plain values."""
        assert self.build is not None
        target, settings = self.build.target.name, self.build.settings.to_json()
        return {"target": target, "settings": settings, "score": asdict(self.score)}


def read_grid(grid: Grid) -> tuple[GridKey, ...]:
    """Check every key and value of a grid by itself; CimError for the first wrong one."""
    return KeyReader(_path, _check_value, EXAMPLE).read(grid)


def _path(name: str) -> KeyPath:
    """The path of a key among the settings, or `target` and its path in the target's file."""
    parts = _parts(name)
    if parts[0] == TARGET and len(parts) > 1:
        return (TARGET, *_target_key(name, parts[1:]))
    single = [*(key for key in Overrides.model_fields if key != LAYERS), TARGET, *SCORE_KEYS]
    if parts[0] == LAYERS:
        if len(parts) != 3 or parts[2] not in LayerBits.model_fields:
            raise ArgumentError(
                '{grid} {}: expected layers."PATTERN".KEY with one of {}{}',
                name,
                ", ".join(LayerBits.model_fields),
                nearest(parts[-1], LayerBits.model_fields),
            )
    elif name in READINGS:
        raise ArgumentError(
            "{grid} {}: is not a grid key, as the dies of every point are read at all of them; "
            "give each with {}",
            name,
            Argument(READINGS[name]),
        )
    elif len(parts) > 1 or parts[0] not in single:
        raise ArgumentError("{grid} {}", unknown("key", name, single))
    return parts


def _parts(name: str) -> KeyPath:
    """The parts of a dotted key, as TOML reads it."""
    try:
        inner: Any = parse_line(f"{name} = 0")
    except ValueError:
        raise ArgumentError(
            "{grid} {}: is not a key; expected KEY=VALUE,VALUE, {}", name, EXAMPLE
        ) from None
    parts = []
    while isinstance(inner, dict):
        ((part, inner),) = inner.items()
        parts.append(part)
    return tuple(parts)


def _target_key(name: str, parts: KeyPath) -> KeyPath:
    """The only key of a target's file that ends in `parts`; CimError for none or several."""
    if not (found := _ending(parts)):
        load_plugins()
        found = _ending(parts)
    if parts in found:
        return parts
    known = [key for key in leaves(Target) if key not in IDENTITY]
    names = [f"{TARGET}.{dotted(key)}" for key in found or known]
    if not found:
        hint = nearest(name, [*names, *{f"{TARGET}.{key[-1]}" for key in known}])
        raise ArgumentError("{grid} {}: a target has no single value of this name{}", name, hint)
    if len(found) > 1:
        raise ArgumentError(
            "{grid} {}: several keys end in this name; expected one of {}", name, ", ".join(names)
        )
    return found[0]


def _ending(parts: KeyPath) -> list[KeyPath]:
    """The keys of a target's file that end in `parts`; the last part may be free in a table."""
    found = [key for key in leaves(Target) if key not in IDENTITY]
    if len(parts) > 1:
        found = [(*key[:-1], parts[-1]) if key[-1] == FREE else key for key in found]
    return [key for key in found if key[-len(parts) :] == parts]


def _check_value(path: KeyPath, value: Value, name: str) -> None:
    if path == (TARGET,):
        load_target(str(value))
        return
    if path == (HEAD,):
        Head.named(str(value), f"grid {HEAD}")
    elif path == (DEGREE,):
        if str(value) not in FORMS:
            raise ArgumentError(
                "{grid} {}: {}: must be an integer from 1 to {}, or {}1 to {}{} for ed alone",
                name, value, MAX_DEGREE, ED_ALONE, ED_ALONE, MAX_DEGREE,
            )  # fmt: skip
    elif path == (SAMPLES,):
        if type(value) is not int or value < 1:
            raise ArgumentError("{grid} {}: {}: must be an integer of at least 1", name, value)
    else:
        table, key = (Target, path[1:]) if path[0] == TARGET else (Overrides, path)
        try:
            check_value(table, key, value)
        except CimError as error:
            raise ArgumentError("{grid} {}: {}", name, error) from None


def points(
    keys: Sequence[GridKey],
    target: str | Target | None,
    file: Path | None,
    noise: Noise | None = None,
) -> list[Point]:
    """All combinations of a grid; the last key's values change fastest.

    `target` is used for all points if the grid has no key `target`; `noise` replaces the targets'
    noise. A head without a polynomial has no degree. `samples` are not combined: each adds a point
    per target, with the settings of the target and the `file`. Raises CimError if both or neither
    target is given, and for a mistake in the settings `file`.
    """
    swept = [value for key in keys if key.path == (TARGET,) for value in key.values]
    if bool(swept) == (target is not None):
        given = "given twice" if swept else "missing"
        raise ArgumentError(
            "target is {}; expected either {target} or {grid} target=NAME,NAME", given
        )
    if isinstance(target, Target):
        known = {target.name: target}
    else:
        known = {str(name): load_target(str(name)) for name in swept or (target,)}
    for one in known.values():
        resolve(one, file, {})
    if noise is not None:
        known = {name: one.model_copy(update={"noise": noise}) for name, one in known.items()}
    combined = [key for key in keys if key.path != (SAMPLES,)]
    every: dict[PointValues, None] = {}
    for values in itertools.product(*(key.values for key in combined)):
        named = {key.path: value for key, value in zip(combined, values, strict=True)}
        if (HEAD,) in named and not Head.named(str(named[HEAD,]), HEAD).takes_polynomial:
            named.pop((DEGREE,), None)  # points that differ only in degree become one
        every[tuple(named.items())] = None
    for key in keys:
        if key.path == (SAMPLES,):
            for target, value in itertools.product(known, key.values):
                every[*[((TARGET,), target)] * bool(swept), (key.path, value)] = None
    return [_point(pairs, known, file) for pairs in every]


def _point(pairs: PointValues, known: Mapping[str, Target], file: Path | None) -> Point:
    """The point of some values; a changed target is another design, so it gets another name."""
    base = str(dict(pairs).get((TARGET,), next(iter(known))))
    chosen: dict[str, Any] = {key[0]: value for key, value in pairs if key[0] in SCORE_KEYS}
    score = ScoreChoice(chosen.get(HEAD), FORMS.get(str(chosen.get(DEGREE))), chosen.get(SAMPLES))
    target = known[base]
    try:
        if changes := target_changes(pairs):
            changed = (f"{dotted(key)}-{value}" for key, value in changes.items())
            name = clean_name(re.sub(r"[^\w.-]", "-", "-".join([target.name, *changed])))
            target = derived(target, nested(changes) | {"name": name})
        build = Configuration(target, resolve(target, file, setting_flags(pairs)))
    except CimError as error:
        return Point(pairs, base, None, str(error), score)
    return Point(pairs, base, build, score=score)


def target_changes(values: Sequence[tuple[KeyPath, Value]]) -> dict[KeyPath, Value]:
    """A point's values for keys of its target's file."""
    return {key[1:]: value for key, value in values if key[0] == TARGET and key[1:]}


def setting_flags(values: Sequence[tuple[KeyPath, Value]]) -> dict[str, Any]:
    """A point's settings by name; `layers` are nested tables."""
    return nested({key: value for key, value in values if key[0] not in (TARGET, *SCORE_KEYS)})


def nested(values: Mapping[KeyPath, Value]) -> dict[str, Any]:
    """Values by dotted key as tables in tables."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        inner = tables
        for part in key[:-1]:
            inner = inner.setdefault(part, {})
        inner[key[-1]] = value
    return tables


@dataclass(frozen=True)
class Sources:
    """The files that a sweep was made from; a command line can name all of them.

    A `noise` model, if given, replaces the noise of the targets.
    """

    model: ModelSource
    calibration: tuple[Path, ...]
    settings: Path | None
    noise: File | None = None


def compile_command(point: Point, sources: Sources, folder: Path) -> tuple[str, dict[str, str]]:
    """The command line that compiles a point, and the texts of files in `folder` that it reads.

    Settings become options; a changed target and settings of layers become files.
    """
    texts = {}
    target, settings = point.base, sources.settings
    flags = setting_flags(point.values)
    layers = flags.pop(LAYERS, {})
    if (changes := target_changes(point.values)) and point.build is not None:
        # The new file names its base by an absolute path, or by the target's name.
        base = str(without_links(Path(point.base))) if is_path(point.base) else point.base
        own = {"base": base, "name": point.build.target.name, "title": f"{point.base}, changed"}
        changed: dict[str, Any] = own | nested(changes)
        if sources.noise is not None:  # changes may have keys of this noise that the base lacks
            changed["noise"] = point.build.target.to_json()["noise"]
        texts[TARGET_FILE] = toml_text(changed)
        target = str(folder / TARGET_FILE)
    if layers:
        given = {} if settings is None else read_settings(settings)
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
        ("--drift", GIVEN),
    ]
    words = [str(word) for option in options if option[1] is not None for word in option]
    flags = ["--ignore-uncertainty"] if model.ignore_uncertainty else []
    return ["cimtool", "compile", *words, *flags]


def with_layers(given: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Any]:
    """A settings file with bits of layers added after its own; the last match wins."""
    merged = dict(given.get("layers", {}))
    for pattern, bits in layers.items():
        merged[pattern] = merged.pop(pattern, {}) | bits
    return {**given, "layers": merged}
