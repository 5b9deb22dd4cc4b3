"""Targets for readers: every value with its key, every figure with its source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cimtool.base.toml_files import TomlTable, dotted
from cimtool.hardware.cam import Cam
from cimtool.hardware.figures import Figure
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.target import Target
from cimtool.report.document import Block, Document, FactList, Section, Sentence, Verbatim
from cimtool.report.formats import NOT_GIVEN

ABSENT = {"array.rows": "unlimited", "array.columns": "unlimited", "adc.bits": "lossless"}
APART = ("name", "title", "operating_points", "figures", "retrievals", "unconfirmed", "unmodelled")


def describe(target: Target) -> Document:
    """Describe a target: its values, operating points, figures, and what is not known of it."""
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
    """Describe a CAM: its values, its figures, and what is not known of it."""
    values = _flat((), {k: v for k, v in cam.to_json().items() if k not in APART})
    values.setdefault("sense.levels", "lossless")
    figures = (
        f"{one.quantity} {one.text()}, {one.scope}"
        f"{f', at {one.voltage:g} V' if one.voltage else ''} [{one.status}: {one.source}]"
        for one in cam.figures
    )
    blocks: tuple[Block, ...] = (
        _facts(values, {}),
        *_figures(figures),
        *_listed("unconfirmed", cam.unconfirmed),
        *_listed("not modelled", cam.unmodelled),
    )
    return Document(f"{cam.name}: {cam.title}", blocks, cam.to_json)


def _facts(values: Mapping[str, Any], units: Mapping[str, str]) -> FactList:
    """Values as their file has them, each with its unit."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    return FactList(tuple((k, f"{text} {units.get(k, '')}".rstrip()) for k, text in texts.items()))


def _listed(heading: str, texts: Iterable[str]) -> Iterator[Section]:
    """The texts under a heading, if there are any."""
    if listed := tuple(map(Verbatim, texts)):
        yield Section(heading, listed)


def _figures(texts: Iterable[str]) -> list[Section]:
    return [*_listed("figures", texts)] or [Section("figures:", (Sentence(NOT_GIVEN),))]


def _figure(one: Figure) -> str:
    """A figure, the conditions that it holds at, and its source."""
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
    """Units of what is not a count, a share or a text, by key; figures carry their own."""
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
