"""Guesses at a project: the role of each file in a folder, with the reason."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.escapes import printable, toml_string
from cimtool.base.modality_names import NAMES
from cimtool.bundle.compilation import bundle_name
from cimtool.bundle.inspect import Facts, inspect
from cimtool.cli.project import shared_options
from cimtool.hardware.settings import SETTINGS, overrides_in

MOST_FILES = 100
"""Files of a folder that are looked at."""

SUFFIXES = (".pth", ".pt", ".safetensors", ".onnx", ".npz", ".json", ".toml")

TARGET = "isaac-rram-128"
"""The target of a project if the folder has none; the demo's too."""

REPORT = "report"

CALIBRATES, MEASURES, TRAINS = ("calib", "cal"), ("eval", "test", "held", "val"), ("train",)
"""Parts of the names of files of data, by their use."""

Choose = Callable[[str, Sequence[str]], str]
"""Chooses one of several values of a key: by default the first."""


@dataclass
class ProjectGuess:
    """Values of a project file by key, the reason of each, and keys that nothing says."""

    values: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def say(self, key: str, value: Any, reason: str) -> None:
        """Note a value and its reason."""
        self.values[key], self.reasons[key] = value, printable(" ".join(reason.split()))

    def text(self, schema: str) -> str:
        """The project file: guessed keys with their reasons, and all others as comments."""
        lines = [
            f"#:schema ./{schema}",
            "# The project of this folder: values of options that a command line leaves out.",
            "# `cimtool run` does all that is out of date; `cimtool COMMAND --help` says more.",
        ]
        places = shared_options()
        tables = dict.fromkeys(place.rpartition(".")[0] for place in places)
        for table in sorted(tables, key=bool):
            lines += ["", f"[{table}]"] if table else [""]
            for place, one in places.items():
                above, _, key = place.rpartition(".")
                if above != table:
                    continue
                if place in self.values:
                    lines += [f"# {self.reasons[place]}", f"{key} = {_toml(self.values[place])}"]
                elif place not in EXAMPLES:
                    lines.append(f"# {key} = ...  # {self.unknown.get(place, one.said())}")
        for place, example in EXAMPLES.items():
            if place not in self.values:
                lines += ["", f"# [{place}]  # {places[place].said()}", f"# {example}"]
        return "\n".join(lines) + "\n"


def _toml(value: str | list[str]) -> str:
    if isinstance(value, str):
        return toml_string(value)
    return f"[{', '.join(map(toml_string, value))}]"


EXAMPLES = {"settings": "adc_bits = 6", "budgets": "r1_loss = 0.01"}
"""Keys that are tables, with a line of each."""


def first(key: str, values: Sequence[str]) -> str:
    """The first of several values."""
    del key
    return values[0]


def guess_project(folder: Path, choose: Choose = first) -> ProjectGuess:
    """Guess the keys of a project file from the files in a folder, by their contents and names.

    `choose` decides where several files fit. A file that cannot be read plays no part. Raises
    CimError if there are rows but no model.
    """
    found = ProjectGuess()
    facts = _looked_at(folder)
    model = _guess_model(found, facts, choose)
    rows = _of(facts, "embeddings")
    if rows and "model.projectors" in found.unknown:
        raise CimError(
            f"{found.unknown['model.projectors']}; `cimtool train --data {shlex.quote(rows[0])} "
            "--test 0.2 --model linear -o trained` makes one of these rows, and `cimtool init` in "
            "its folder goes on from there"
        )
    _guess_score(found, facts, model, choose)
    _guess_data(found, facts, model)
    if maps := _of(facts, "layer map"):
        found.say("model.map", choose("model.map", maps), _one_of(maps, "layer map"))
    if settings := [name for name in _of(facts, SETTINGS) if _is_settings(folder / name)]:
        found.say(SETTINGS, choose(SETTINGS, settings), _one_of(settings, "settings file"))
    targets = _of(facts, "target")
    if targets:
        found.say("target", choose("target", targets), _one_of(targets, "target"))
    else:
        chosen = choose("target", [TARGET])
        said = "no target lies here; cimtool targets list has others"
        found.say("target", chosen, said if chosen == TARGET else "as answered")
    name = bundle_name(Path(_stem(found)).stem, _target(folder, found.values["target"]))
    found.say("bundle", f"exports/{name}", "the names of model and target")
    found.say("report", REPORT, "a folder for the report and the cost")
    return found


def _is_settings(file: Path) -> bool:
    """True if all keys of a TOML file are settings; `inspect` takes any other file for one."""
    try:
        overrides_in(file)
    except CimError:
        return False
    return True


def _looked_at(folder: Path) -> dict[str, Facts]:
    """The facts of each file of the folder that `inspect` can read, by name."""
    files = sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES and one.is_file())
    found: dict[str, Facts] = {}
    for file in files[:MOST_FILES]:
        try:
            found[file.name] = inspect(file)
        except CimError:
            continue
    return found


def _of(facts: Mapping[str, Facts], kind: str) -> list[str]:
    return [name for name, one in facts.items() if one["kind"] == kind]


def _one_of(files: Sequence[str], noun: str) -> str:
    if len(files) == 1:
        return f"the only {noun} here"
    return f"one of {len(files)} {noun}s here: {', '.join(files)}"


def _guess_model(found: ProjectGuess, facts: Mapping[str, Facts], choose: Choose) -> Facts:
    """Note the projectors; returns the facts of a checkpoint, or nothing."""
    key = "model.projectors"
    known = [name for name in _of(facts, "checkpoint") if facts[name]["layout"] is not None]
    # A training keeps its last epoch beside its best.
    known.sort(key=lambda name: Path(name).stem == "last")
    if known:
        chosen = choose(key, known)
        said = f"{_one_of(known, 'checkpoint')} (layout {facts[chosen]['layout']})"
        found.say(key, chosen, said)
        return facts[chosen]
    graphs = _of(facts, "onnx")
    pair = [[one for one in graphs if _named(one, NAMES[m])] for m in ("text", "video")]
    if all(len(one) == 1 for one in pair):
        (text,), (video,) = pair
        found.say(key, [text, video], "two ONNX files, by their names")
    else:
        found.unknown[key] = "no checkpoint of a known layout lies here, nor two ONNX files"
        if others := _of(facts, "checkpoint"):
            shows = f"`cimtool compile --projectors {shlex.quote(others[0])}"
            found.unknown[key] += f" ({shows} --calibration NPZ` shows how to export {others[0]})"
    return {}


def _guess_score(
    found: ProjectGuess, facts: Mapping[str, Facts], model: Facts, choose: Choose
) -> None:
    """Note the polynomial, unless the checkpoint has its own."""
    files = _of(facts, "polynomial")
    if "polynomial" in model:
        found.unknown["score.poly"] = "the checkpoint has its polynomial"
    elif files:
        found.say("score.poly", choose("score.poly", files), _one_of(files, "polynomial"))
    elif "head" not in model:
        said = "no polynomial lies here: give one, or a head that needs none"
        found.unknown["score.poly"] = said


def _guess_data(found: ProjectGuess, facts: Mapping[str, Facts], model: Facts) -> None:
    """Note the rows that calibrate and those to measure on, by their widths and names."""
    fits = [name for name in _of(facts, "embeddings") if _fits(facts[name], model)]
    named = {
        use: [name for name in fits if _named(name, parts)]
        for use, parts in (("cal", CALIBRATES), ("measure", MEASURES), ("train", TRAINS))
    }
    others = [name for name in fits if not any(name in names for names in named.values())]
    calibrates = [*named["cal"], *named["train"], *others, *fits]
    if not calibrates:
        found.unknown["data.calibration"] = "no rows of the model's widths lie here"
        return
    chosen = calibrates[0]
    found.say("data.calibration", chosen, f"rows of the model's widths{_by_name(chosen, named)}")
    left = [name for name in (*named["measure"], *others) if name != chosen]
    if left:
        found.say("data.measured", left[0], f"other such rows{_by_name(left[0], named)}")
    else:
        found.unknown["data.measured"] = "no other rows lie here to measure on"


def _by_name(name: str, named: Mapping[str, Sequence[str]]) -> str:
    return ", by its name" if any(name in names for names in named.values()) else ""


def _named(file: str, parts: Sequence[str]) -> bool:
    return any(part in Path(file).stem.lower() for part in parts)


def _fits(data: Facts, model: Facts) -> bool:
    """True unless the widths of the data are others than those of the model."""
    shapes = [one["shape"] for one in data.values() if isinstance(one, Mapping) and "shape" in one]
    wanted = [model[m]["input"] for m in ("text", "video") if m in model]
    pairs = zip(shapes, wanted, strict=False)
    return len(shapes) >= 2 and all(
        not isinstance(width, int) or shape[-1] == width for shape, width in pairs
    )


def _stem(found: ProjectGuess) -> str:
    given = found.values.get("model.projectors", "model")
    return given if isinstance(given, str) else str(given[0])


def _target(folder: Path, target: str) -> str:
    return str(folder / target) if target.endswith(".toml") else target
