"""List, show, check, import and compare hardware targets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cimtool.base.files import check_output, replace_texts
from cimtool.base.plugins import OWN, unless_broken
from cimtool.base.toml_files import TomlTable, dotted, toml_text
from cimtool.cli.group import Command, FilePath, LazyGroup, command_files
from cimtool.cli.output import Output
from cimtool.hardware.cam import Cam, cam_origin, cam_origins, is_cam, load_cam
from cimtool.hardware.figures import Figure
from cimtool.hardware.imported import import_target
from cimtool.hardware.in_words import array_text
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.recomputed import recomputed
from cimtool.hardware.target import Target, load_target, origin_of, target_origins
from cimtool.report.document import (
    Block,
    Document,
    FactList,
    Sentence,
    Verbatim,
    notes,
)
from cimtool.report.formats import NOT_GIVEN, counted
from cimtool.report.table import BlockLevel, Column, make_table

ABSENT = {"array.rows": "unlimited", "array.columns": "unlimited", "adc.bits": "lossless"}
CLASSES = {
    "bit-exact": "bit-exact, sums have no analog error",
    "nominal": "nominal, a real chip would differ by its analog error",
    "match": "match, memories that search",
}
"""The classes of targets, and what each means."""

APART = ("name", "title", "operating_points", "figures", "retrievals", "unconfirmed", "unmodelled")


@click.group(cls=LazyGroup, files=command_files(group="targets"))
def command() -> None:
    """List, show, check, import and compare hardware targets."""


@command.command("list", cls=Command)
@click.pass_obj
def list_(out: Output) -> None:
    """List the targets that come with cimtool and with plug-ins, and memories that match."""
    rows = []
    for name, origin in (target_origins() | cam_origins()).items():
        with unless_broken(f'target "{name}"', origin):
            one = _loaded(name)
            rows.append({"name": name, "class": one.class_, "origin": origin, "title": one.title})
    columns = [Column(key) for key in rows[0]]
    table = make_table("", columns, [list(row.values()) for row in rows]).named("", "detail")
    names = {class_: [one["name"] for one in rows if one["class"] == class_] for class_ in CLASSES}
    said = (f"{CLASSES[class_]}: {', '.join(held)}" for class_, held in names.items() if held)
    next_ = Verbatim("next: cimtool targets show NAME")
    out.result(Document("", (*map(Sentence, said), table, next_), lambda: {"targets": rows}))


@command.command(cls=Command)
@click.argument("target", metavar="NAME|FILE")
@click.pass_obj
def show(out: Output, target: str) -> None:
    """Show every value of a target, and every figure with its source."""
    loaded = _loaded(target)
    if isinstance(loaded, Cam):
        origin, shown = cam_origin(target), describe_cam(loaded)
    else:
        origin, shown = origin_of(target), describe(loaded)
    out.result(shown.plus(Verbatim(f"from {origin}"), origin=origin))


def _loaded(name_or_path: str) -> Target | Cam:
    """A target, or a content-addressable memory beside one."""
    return load_cam(name_or_path) if is_cam(name_or_path) else load_target(name_or_path)


@command.command("import", cls=Command)
@click.argument("file", metavar="JSON", type=FilePath("FILE"))
@click.option(
    "-o",
    "--output",
    type=FilePath("TOML"),
    required=True,
    help="File of the target; it also names the target.",
)
@click.pass_obj
def import_(out: Output, file: Path, output: Path) -> None:
    """Write a target from CrossSim's JSON parameters, or from part of aihwkit's rpu_config.

    An error names each key whose value has no counterpart here; docs/targets.md lists the keys
    that have one.
    """
    check_output(output, ".toml")
    values, target = import_target(file, output.stem)
    (written,) = replace_texts(output.parent, {output.name: toml_text(values)}, "the target")
    shown = Document("", notes((*target.unmodelled, *target.unconfirmed)))
    out.result(shown.plus(Verbatim(f"wrote {written}"), written=written, target=target.to_json()))


@command.command(cls=Command)
@click.argument("files", metavar="[NAME|FILE]...", nargs=-1)
@click.pass_obj
def check(out: Output, files: tuple[str, ...]) -> None:
    """Check targets (all known ones): the first that is not valid ends with status 2.

    Says of each file what its array holds and how it is driven and converted. A plug-in's invalid
    target is left out with a warning unless you name it. Throughput,
    efficiency and density are recomputed from geometry and the other figures of their operating
    point, and must agree within 2%; so must a CAM's search energy and the energy of its cells. If
    a figure was derived from the one that it gives, the two are consistent by construction; if the
    file does not say what a figure was derived from, it confirms nothing. Retrievals are recomputed
    too. Figures of different conditions are refused.
    """
    valid, compared, lines = {}, {}, []
    level: BlockLevel = "shown" if files else "detail"
    every = target_origins() | cam_origins()
    for file, origin in (dict.fromkeys(files, OWN) or every).items():
        with unless_broken(f'target "{file}"', origin):
            target = _loaded(file)
            found = recomputed(target, file)
            valid[file] = target.name
            compared[file] = [vars(one) for one in found]
            lines.append(f'{file}: a valid target, "{target.name}"')
            if isinstance(target, Target):
                lines += [f"  {one}" for one in array_text(target)]
            lines += [f"  {one.sentence()}" for one in found]
    said = "" if files else _in_short(compared)
    shown = Document(said, tuple(Sentence(line, level) for line in lines))
    out.result(shown.plus(valid=valid, compared=compared))


def _in_short(compared: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The number of targets, and of published figures that are recomputed."""
    every = [one for found in compared.values() for one in found]
    agreeing = [one for one in every if one["computed"] is not None]
    derived = sum(bool(one.get("by_construction") or one["unsaid"]) for one in agreeing)
    return (
        f"{len(compared)} targets are valid; {len(agreeing)} of {len(every)} published figures "
        f"are recomputed from others and agree, {derived} of these by construction"
    )


def describe(target: Target) -> Document:
    """Describe a target: values, operating points, figures, unconfirmed and unmodelled parts."""
    values = _flat((), {k: v for k, v in target.to_json().items() if k not in APART})
    values = values | ABSENT | values
    values.pop("adc.settable", None)
    units, settable = _units(target.noise), () if target.adc is None else target.adc.settable
    references = (f"{one.reference}: {one.text()} [{one.status}: {one.source}]" for one in settable)
    points = (f"{one.name}: {one.conditions()}" for one in target.operating_points)
    retrievals = (
        f"{one.name}: {one.megabytes:g} MB, {one.latency:g} us, {one.energy:g} uJ "
        f"[{one.status}: {one.source}]"
        for one in target.retrievals
    )
    blocks: tuple[Block, ...] = (
        *_in_brief(target, array_text(target)),
        _facts(values, units),
        *_listed("references of converters that can be set", references),
        *_listed("operating points", points),
        *_figures(map(_figure, target.figures)),
        *_listed("retrievals", retrievals),
        *_listed("unconfirmed", target.unconfirmed),
        *_listed("not modelled", target.unmodelled),
    )
    return Document(f"{target.name}: {target.title}", blocks, target.to_json)


def describe_cam(cam: Cam) -> Document:
    """Describe a CAM: its values, figures, unconfirmed and unmodelled parts."""
    values = _flat((), {k: v for k, v in cam.to_json().items() if k not in APART})
    values.setdefault("sense.levels", "lossless")
    figures = (
        f"{one.quantity} {one.text()}, {one.scope}"
        f"{f', at {one.voltage:g} V' if one.voltage else ''} [{one.status}: {one.source}]"
        for one in cam.figures
    )
    blocks: tuple[Block, ...] = (
        *_in_brief(cam, ()),
        _facts(values, {}),
        *_figures(figures),
        *_listed("unconfirmed", cam.unconfirmed),
        *_listed("not modelled", cam.unmodelled),
    )
    return Document(f"{cam.name}: {cam.title}", blocks, cam.to_json)


def _facts(values: Mapping[str, Any], units: Mapping[str, str]) -> FactList:
    """Values as in their file, each with its unit."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    pairs = tuple((k, f"{text} {units.get(k, '')}".rstrip()) for k, text in texts.items())
    return FactList(pairs, "detail")


def _in_brief(one: Target | Cam, array: Iterable[str]) -> Iterator[Sentence]:
    """The sentences of the first screen: the class, the array, and the number of figures."""
    yield Sentence(CLASSES[one.class_])
    yield from map(Sentence, array)
    counts = [counted(len(one.figures), "figure")]
    counts += [f"{len(one.unconfirmed)} unconfirmed"] if one.unconfirmed else []
    counts += [f"{counted(len(one.unmodelled), 'effect')} not modelled"] if one.unmodelled else []
    yield Sentence(", ".join(counts))


def _listed(heading: str, texts: Iterable[str]) -> list[Verbatim]:
    """The texts below a heading, if there are any."""
    listed = [Verbatim(f"  {text}", "detail") for text in texts]
    return [Verbatim(f"{heading}:", "detail"), *listed] if listed else []


def _figures(texts: Iterable[str]) -> list[Verbatim]:
    return _listed("figures", texts) or [Verbatim(f"figures: {NOT_GIVEN}", "detail")]


def _figure(one: Figure) -> str:
    """A figure, its conditions, and its source."""
    voltage = None if not one.voltage else f"{one.voltage:g} V"
    given = (f"at {one.at}" if one.at else None, one.precision, one.mode, one.activity, voltage)
    conditions = ", ".join(filter(None, given)) or "at every operating point"
    source = f"[{one.status}: {one.source}]"
    return f"{one.quantity} {one.text()}, {one.scope}: {conditions} {source}"


def _flat(keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The values inside nested tables, by their dotted keys as in a file."""
    if not isinstance(value, dict):
        return {dotted(keys): value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat((*keys, key), inner)
    return flat


def _units(noise: Noise | None) -> dict[str, str]:
    """Units by key, for values other than counts, shares and texts; figures have theirs."""
    if noise is None:
        return {}
    tables: dict[str, TomlTable] = {"noise": noise} | {
        f"noise.{one.name}": one for one in noise.mechanisms
    }
    return {
        f"{place}.{name}": str(field.json_schema_extra["unit"])
        for place, table in tables.items()
        for name, field in type(table).model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "unit" in field.json_schema_extra
    }
