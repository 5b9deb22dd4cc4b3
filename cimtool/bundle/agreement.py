"""Comparison of a manifest with its program: a value that both state must be the same.

A digest is not a signature: a person who changes a manifest can compute the digest again.
docs/bundle.md lists each value of a manifest, and the value that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.ir.format import integer_limits
from cimtool.ir.heads import Head
from cimtool.ir.heads.maxsim import tokens_of
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import Graph, Program, score_inputs
from cimtool.ir.surrogate import BESIDE_LINE
from cimtool.ir.types import integer, real
from cimtool.loading.layouts import Layout
from cimtool.loading.model import ONNX_LAYOUT, ModelCard
from cimtool.passes.lower import domain_limits
from cimtool.passes.trained_bits import LEAST_BITS
from cimtool.simulation.simulator import Runner

POINTS = 9
"""Values of each statistic at which scores are compared, evenly spaced over its domain."""

SCORE_TOLERANCE = 2.0**-15
"""Allowed difference of scores, as a share of the largest; integers differ by about 1e-6."""

STATISTIC_TOLERANCE = 2.0**-18
"""Allowed difference of statistics, as a share of the domain; statistics have 21 bits."""

LINE_TOLERANCE = 2.0**-12
"""Of the size of vd and its line, what vd less the line may be off by rounding."""

STATISTICS = ("ed", "vd", BESIDE_LINE)
"""The statistics that a polynomial may read."""

UNIT, UNIT_STEP = (0.0, 1.0), 2.0**-20
"""Range and step of values for a statistic that the program does not use."""

MOST_JITTER = 2.0**-3
"""Score difference allowed at most for differing statistics, as a share of the scores' range."""


@dataclass(frozen=True)
class Difference:
    """A value of a manifest by its key, and the value that another place states."""

    key: str
    said: object
    expected: object
    place: str


def card_differences(card: ModelCard) -> Iterator[Difference]:
    """Yield the values of a model's card that differ from other values of the card."""
    layout = Layout.family.get(card.layout)
    if layout is None and card.layout != ONNX_LAYOUT:
        known = " or ".join([ONNX_LAYOUT, *sorted(Layout.family)])
        yield Difference("model.layout", card.layout, known, "this version has them")
    unit = layout is not None and layout.unit_rows
    if card.unit_rows != unit:
        yield Difference("model.unit_rows", card.unit_rows, unit, f"layout {card.layout} has it")
    own = card.head.to_json() if card.head.is_sampled or card.head.scales_cosine else {}
    teacher: Mapping[str, object] = own.get("polynomial", own)
    for key, name in (("a", "a"), ("b", "b"), ("samples", "K")):
        value = getattr(card, key)
        if (wanted := teacher.get(name, value)) != value:
            yield Difference(f"model.{key}", value, wanted, "model.head has it")


def program_differences(
    card: ModelCard, settings: Settings, program: Program, place: str
) -> Iterator[Difference]:
    """Yield the values of a manifest that differ from its program, in the file `place`."""
    yield from (
        replace(one, place=f"{place} has it") for one in _differences(card, settings, program)
    )


def _differences(card: ModelCard, settings: Settings, program: Program) -> Iterator[Difference]:
    extents = {
        "text_width": program.text.extent("x"),
        "video_width": program.video.extent("x"),
        "dimension": program.text.extent(program.text.outputs["mu"]) // card.head.tokens[0],
    }
    for name, extent in extents.items():
        if getattr(card, name) != extent:
            yield Difference(f"model.{name}", getattr(card, name), extent, "")
    tokens = tokens_of(program.score)
    if tokens != card.head.tokens:
        yield Difference("model.head: tokens", card.head.tokens, tokens, "")
    yield from _of_layout(card, program)
    for graph in (program.text, program.video):
        yield from _of_arrays(settings, graph)
        yield from _of_bits(settings, graph)
    yield from _of_head(card.head, program)


def _of_layout(card: ModelCard, program: Program) -> Iterator[Difference]:
    """A layout that takes unit rows is named if and only if the layers have its names.

    Without layers, as of layout `frozen` under a head of points, no name says which it is.
    """
    graphs = program.text, program.video
    names = {name for graph in graphs for name in graph.operations(CrossbarMvm)}
    if not names:
        return
    for layout in Layout.family.values():
        own = names <= set(layout.layers)
        if layout.unit_rows and card.layout != ONNX_LAYOUT and own != (card.layout == layout.name):
            wanted = f"that of {', '.join(sorted(names))}"
            yield Difference("model.layout", card.layout, wanted, "")


def _of_arrays(settings: Settings, graph: Graph) -> Iterator[Difference]:
    """The arrays of each layer must be the arrays that the settings state."""
    for name, op in graph.operations(CrossbarMvm).items():
        node = graph.by_name[name]
        own = settings.of_layer(graph.layer(node))
        code = _input_code(own, graph, node.inputs[0], op.crossbar.inputs.bits)
        said = own.crossbar(code).to_json()
        for key, (value, wanted) in _unequal(said, op.crossbar.to_json()):
            yield Difference(f"settings: {key} of {graph.layer(node)}", value, wanted, "")


def _input_code(own: Settings, graph: Graph, value: str, found: int) -> InputCode:
    """The code of a layer's inputs, of as many bits as are `found` if it was tiled for so many.

    It was tiled before converters were fitted, whose limits may leave less to the layers behind.
    """
    known = graph.types[value]
    code = own.input_code(known)
    _, bits = _stated_bits(own, graph, value)
    stored = own.input_code(integer(known.shape, *integer_limits(bits, known.signed), 1.0))
    return replace(code, bits=found) if code.bits <= found <= stored.bits else code


def _unequal(
    said: Mapping[str, object], found: Mapping[str, object], within: str = ""
) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield the dotted keys of two tables whose values differ, with both values."""
    for key in {**said, **found}:
        one, other = said.get(key), found.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _unequal(one, other, f"{within}{key}.")
        elif one != other:
            yield f"{within}{key}", (one, other)


def _of_bits(settings: Settings, graph: Graph) -> Iterator[Difference]:
    """Mu and the inputs of layers must have the bits that the settings state."""
    for name in graph.operations(CrossbarMvm):
        node = graph.by_name[name]
        said = _stated_bits(settings.of_layer(graph.layer(node)), graph, node.inputs[0])
        yield from _of_store(graph, node.inputs[0], *said)
    yield from _of_store(graph, graph.outputs["mu"], "feature_bits", settings.stored_bits("mu"))


def _stated_bits(own: Settings, graph: Graph, value: str) -> tuple[str, int]:
    """The key that has the bits of a value which a layer reads, and the bits."""
    source = graph.by_name.get(value)
    if source is None or isinstance(source.op, Quantize):
        return "input_bits", own.input_bits
    return "activation_bits", own.activation_bits


def _of_store(graph: Graph, value: str, key: str, stated: int) -> Iterator[Difference]:
    node = graph.by_name.get(value)
    if node is None or not isinstance(node.op, Quantize | Requant):
        return
    bits = max((node.op.hi - node.op.lo).bit_length(), LEAST_BITS)
    if bits != stated:
        yield Difference(f"settings.{key}", stated, f"{bits} for {graph.layer(node)}", "")


def _of_head(head: Head, program: Program) -> Iterator[Difference]:
    """The score must be the head's, at values all over the domains of its statistics."""
    said = f"{head.name}, {head.described}"
    try:
        found = _compared(head, program)
    except (CimError, KeyError, TypeError, ValueError):  # features of which no head makes a score
        found = "the head of its score"
    if found is not None:
        yield Difference("model.head", said, found, "")


def _compared(head: Head, program: Program) -> str | None:
    """A sentence on a score of the program that is not the head's; None if all are.

    KeyError if the program lacks the head's statistics, or if its score takes more than these.
    Without limits on the statistics, only this is checked.
    """
    features = score_inputs(program.text, program.video)
    wanted = head.score({name: real(known.shape) for name, known in features.items()})
    (last,) = wanted.outputs.values()
    names = wanted.by_name[last].inputs
    # Negligible terms are not compiled, so the program may lack a statistic.
    present = [name for name in names if name in program.score.types] or list(names)
    others = [name for name in STATISTICS if name in program.score.types and name not in names]
    if any(domain_limits(program.score, name) is not None for name in others):
        return "the head of its score"  # which reads a statistic that this head does not
    if BESIDE_LINE in present and not _same_line(wanted, program.score):
        return "another line of vd"
    domains = [_domain(program.score, name) if name in present else UNIT for name in names]
    units = [
        float(np.max(program.score.types[name].unit)) if name in present else UNIT_STEP
        for name in names
    ]
    spaced = np.meshgrid(*(np.linspace(*ends, POINTS) for ends in domains), indexing="ij")
    counts = [np.atleast_2d(np.rint(x / u)) for x, u in zip(spaced, units, strict=True)]
    values = {name: x * u for name, x, u in zip(names, counts, units, strict=True)}
    given = dict(zip(names, counts, strict=True))
    own = _scores(program.score, {name: given[name] for name in present})
    if any(domain_limits(program.score, name) is None for name in present):
        return None
    (logit,) = program.score.outputs.values()
    lo, hi = program.score.types[logit].real_bounds()
    expected = np.clip(_scores(wanted, values), np.min(lo), np.max(hi))
    off = np.abs(own - expected)
    jitter = min(head.jitter(values, STATISTIC_TOLERANCE), MOST_JITTER * float(np.max(hi - lo)))
    if float(off.max()) <= SCORE_TOLERANCE * float(np.abs(expected).max()) + jitter:
        return None
    at = np.unravel_index(int(off.argmax()), off.shape)
    where = " and ".join(f"{name} = {x[at]:.6g}" for name, x in values.items())
    return f"a score of {own[at]:.6g} at {where}, not {expected[at]:.6g}"


def _same_line(wanted: Graph, score: Graph) -> bool:
    """True if a program takes vd less the line of the head's score, all over ed's range."""
    ed, vd, beside = (score.types[name] for name in STATISTICS)
    counts = {}
    for name, one in (("ed", ed), ("vd", vd)):
        lo, hi = (float(np.max(end / one.unit)) for end in one.real_bounds())
        counts[name] = np.rint(np.linspace(lo, hi, POINTS))[None]
    real = {name: x * float(np.max(score.types[name].unit)) for name, x in counts.items()}
    own = _value(score, BESIDE_LINE, counts) * float(np.max(beside.unit))
    expected = _value(wanted, BESIDE_LINE, real)
    size = np.abs(expected).max() + np.abs(real["vd"]).max()
    return bool(np.abs(own - expected).max() <= LINE_TOLERANCE * size)


def _domain(score: Graph, statistic: str) -> tuple[float, float]:
    """The range in which a statistic is tried, in real numbers: its domain within its type."""
    limits = domain_limits(score, statistic)
    if limits is None:
        return 0.0, 0.0
    least, most = score.types[statistic].real_bounds()
    ends = (limits.unit * (limits.centre + end) for end in (limits.lo, limits.hi))
    lo, hi = (float(np.clip(end, np.min(least), np.max(most))) for end in ends)
    return lo, hi


def _scores(score: Graph, statistics: Mapping[str, FloatArray]) -> FloatArray:
    """The score [n, m] at values of its statistics; KeyError if it takes more than these."""
    (logit,) = score.outputs.values()
    return _value(score, logit, statistics)


def _value(score: Graph, value: str, statistics: Mapping[str, FloatArray]) -> FloatArray:
    """A value [n, m] of a score at values of its statistics; KeyError if it takes more."""
    nodes = tuple(node for node in score.nodes if node.name not in statistics)
    known = {name: score.types[name] for name in statistics}
    given = {
        name: x.astype(np.int64) if known[name].is_integer else x for name, x in statistics.items()
    }
    part = Graph(score.name, known, nodes, {"logit": value}).pruned()
    (found,) = Runner(part, fast=False).run(given).values()
    return np.asarray(found, np.float64)
