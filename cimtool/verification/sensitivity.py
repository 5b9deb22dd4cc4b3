"""Sensitivity: the error of each part in integers alone, and with it alone left in real numbers.

A part is a layer (its weights, its converters and the rounding of the activation it reads), a
stored value (an input, mu, s, or s as it is summed), or the score. Biases are those that were
corrected for the whole compiled model; a part is measured as it stands in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, name_of
from cimtool.base.threads import side_by_side
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.heads import Head
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import MODALITIES, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.passes.converters import TilePass
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import Stage, stage_of
from cimtool.reference.metrics import centred_rmse, top1_agreement
from cimtool.verification.headline import DriftFindings
from cimtool.verification.hybrid import LAYER_SETTINGS, GraphStages, GraphValue, MixedGraph
from cimtool.verification.layers import LayerFinding
from cimtool.verification.notes import alike_text, pairs_alike
from cimtool.verification.stages import StageRuns

SENSITIVITY_ROWS = 256
"""Texts, and videos, of the pairs that each part is measured on."""

WORTHWHILE = 0.1
"""A setting is named where it could take off this share of the compiled model's error, or more."""

PartKind = Literal["layer", "input", "mu", "s", "s_self", "logvar", "score"]
PART_KINDS: dict[str, PartKind] = {
    "input": "input",
    "mu": "mu",
    "s": "s",
    "s_self": "s_self",
    "logvar": "logvar",
}
"""Kinds of parts by the role of a stored value."""

CALLED = {
    "layer": "layer {part.part}",
    "input": "the rounding of the {name} input",
    "mu": "the rounding of {name} mu",
    "s": "the rounding of {name} s",
    "s_self": "the rounding of {name} s in sums",
    "logvar": "the rounding of {name} log-variances",
    "score": "the arithmetic of the score",
}
"""A part in words, by its kind."""

DOMINANT = 2.0
"""Multiple of the compiler's error at which the surrogate's is four fifths of the mean square."""

SETTINGS = {"input": "input_bits", "mu": "feature_bits", "s": "variance_bits"}
"""The setting that decides the bits of a stored value."""


@dataclass(frozen=True)
class Part:
    """The error of one part, from the lowered model on the same pairs; `bits` of a stored value.

    `alone`: only this part in integers, all others in real numbers; `left_float`: only this part in
    real numbers. `centred_rmse` is of the logit, without the mean difference within a query, `top1`
    the agreement on the best item; both the worse of both directions.
    """

    part: str
    kind: PartKind
    bits: int | None
    alone_centred_rmse: float
    alone_top1: float
    left_float_centred_rmse: float
    left_float_top1: float
    graph: str


@dataclass(frozen=True)
class LeftFloat:
    """The centred logit RMSE with one setting of a layer without an error, as of many more bits."""

    setting: str
    centred_rmse: float


@dataclass(frozen=True)
class Sensitivity:
    """Every part of a compiled model, on the first `texts` x `videos` pairs.

    `centred_rmse` and `top1` are the compiled model's own, against the lowered one. `costliest` is
    the part that leaves least error when left in real numbers; of a layer, `settings` say which of
    its bits.
    """

    texts: int
    videos: int
    centred_rmse: float
    top1: float
    parts: tuple[Part, ...] = field(repr=False)
    costliest: str
    settings: tuple[LeftFloat, ...]

    @property
    def worst(self) -> Part:
        """The costliest part."""
        return next(part for part in self.parts if part.part == self.costliest)


def sensitivity(
    stages: Sequence[Stage], data: Embeddings, rows: int = SENSITIVITY_ROWS
) -> Sensitivity:
    """Measure every part on the first `rows` texts and as many videos, the right ones among them.

    `stages` hold those of LowerPass and TilePass. Of a score in the memory its digital stage is
    measured, from which it was programmed.
    """
    text, video = subset(data, rows)
    model = _model_of(stages, data.text[text], data.video[video])
    everything, listed = model.parts, list(_listed(model))
    sets = [owned for *_, owned in listed]
    model.encode([everything, frozenset(), *sets, *(everything - owned for owned in sets)])
    reference = model.logits(everything)

    def measured(real: frozenset[str]) -> tuple[float, float]:
        logits = model.logits(real)
        rmse = centred_rmse(logits, reference)
        return rmse, top1_agreement(logits, reference, data.alone)

    def part_of(listed: tuple[str, str, PartKind, int | None, frozenset[str]]) -> Part:
        graph, name, kind, bits, owned = listed
        alone = measured(everything - owned)
        return Part(name, kind, bits, *alone, *measured(owned), graph)

    whole = measured(frozenset())
    parts = side_by_side(part_of, listed)
    worst = min(parts, key=lambda part: part.left_float_centred_rmse)
    keys = [key for key in sorted(LAYER_SETTINGS) if f"{worst.part}.{key}" in everything]
    alone = {key: frozenset({f"{worst.part}.{key}"}) for key in keys}
    model.encode(alone.values())
    settings = tuple(LeftFloat(key, measured(real)[0]) for key, real in alone.items())
    return Sensitivity(len(text), len(video), *whole, tuple(parts), worst.part, settings)


def errors_alone(
    stages: Sequence[Stage], text: Array, video: Array
) -> tuple[dict[str, float], float]:
    """The mean square error of the score that each part makes alone in integers, and of all.

    Parts have their names in `GraphStages`; errors are centred, from the lowered model on rows of
    `text` and `video`.
    """
    model = _model_of(stages, text, video)
    everything = model.parts
    alone = {part: everything - {part} for part in sorted(everything)}
    model.encode([everything, frozenset(), *alone.values()])
    reference = model.logits(everything)

    def error(real: frozenset[str]) -> float:
        return centred_rmse(model.logits(real), reference) ** 2

    found = side_by_side(error, list(alone.values()))
    return dict(zip(alone, found, strict=True)), error(frozenset())


def _model_of(stages: Sequence[Stage], text: Array, video: Array) -> _Model:
    digital = [stage for stage in stages if stage.program.gallery_items is None]
    forms = (stage_of(stages, LowerPass), stage_of(stages, TilePass), digital[-1])
    graphs = (stage.program.graphs for stage in forms)
    # A shortlist's graph, which only the compiled program may have, is left out.
    graph_stages = {same[0].name: GraphStages(*same) for same in zip(*graphs, strict=False)}
    return _Model(graph_stages, {"text": text, "video": video})


def subset(data: Embeddings, rows: int) -> tuple[IntArray, IntArray]:
    """The first `rows` texts, and their right videos with the first of the others up to `rows`."""
    text = np.arange(min(rows, len(data.text)))
    every = np.arange(len(data.video))
    right = every[:0] if data.text_to_video is None else np.unique(data.text_to_video[text])
    others = np.setdiff1d(every, right)[: max(rows - len(right), 0)]
    return text, np.sort(np.concatenate([right, others]))


class _Model:
    """All three graphs over one set of rows; what a part does not change is computed once."""

    def __init__(self, stages: Mapping[str, GraphStages], rows: Mapping[str, Array]):
        self.stages, self.rows = stages, rows
        self.parts = frozenset(part for stage in stages.values() for part in stage.all_parts)
        self._features: dict[tuple[str, frozenset[str]], dict[str, GraphValue]] = {}

    def logits(self, real: frozenset[str]) -> FloatArray:
        """The logits [n, m] with a set of parts, which was encoded, in real numbers."""
        features: dict[str, GraphValue] = {}
        for modality in MODALITIES:
            own = self.stages[modality].all_parts
            features |= as_inputs(modality, self._features[modality, real & own])
        walk = MixedGraph(self.stages["score"], features, real)
        return walk.outputs()["logit"].real

    def encode(self, sets: Collection[frozenset[str]]) -> None:
        """Compute features with each set of parts in real numbers, a block of rows at a time."""
        for modality in MODALITIES:
            stages, rows = self.stages[modality], self.rows[modality]
            own = {real & stages.all_parts for real in sets}
            wanted = sorted(
                (one for one in own if (modality, one) not in self._features), key=sorted
            )
            found = [_encoded(stages, rows[block], wanted) for block in stages.blocks(len(rows))]
            for real, parts in zip(wanted, zip(*found, strict=True), strict=True):
                self._features[modality, real] = _joined(parts)


def _encoded(
    stages: GraphStages, x: Array, wanted: Sequence[frozenset[str]]
) -> list[dict[str, GraphValue]]:
    """Features of a block of rows with each of some sets of parts in real numbers."""
    inputs = {"x": GraphValue(x)}
    ends: dict[frozenset[str], dict[str, GraphValue]] = {}
    for end in (frozenset[str](), stages.all_parts):
        walk = MixedGraph(stages, inputs, end)
        walk.outputs()
        ends[end] = walk.kept()

    def of_set(real: frozenset[str]) -> dict[str, GraphValue]:
        # The nearer of both ends, nothing real and everything, shares most with what is asked for.
        end = min(ends, key=lambda end: len(end ^ real))
        changed = stages.changed(end ^ real)
        before = {k: v for k, v in ends[end].items() if k not in changed}
        return MixedGraph(stages, inputs, real, before).outputs()

    return side_by_side(of_set, wanted)


def _joined(blocks: Sequence[Mapping[str, GraphValue]]) -> dict[str, GraphValue]:
    """The values of the rows of all blocks."""
    return {
        name: GraphValue(np.concatenate([block[name].array for block in blocks]), value.unit)
        for name, value in blocks[0].items()
    }


def _listed(model: _Model) -> Iterator[tuple[str, str, PartKind, int | None, frozenset[str]]]:
    """Every part: graph, name, kind, the bits of a stored value, and names in `GraphStages`."""
    for modality in MODALITIES:
        stages = model.stages[modality]
        for node in stages.lowered.nodes:
            owned = frozenset(stages.parts.get(node.name, ()))
            if isinstance(node.op, Mvm):
                yield modality, stages.lowered.layer(node), "layer", None, owned
            elif owned:
                stored = stages.compiled.by_name[node.name].op
                assert isinstance(node.op, Store)
                assert isinstance(stored, Quantize | Requant)
                bits = stored.hi.bit_length() + (stored.lo < 0)
                kind = PART_KINDS[node.op.role]
                yield modality, stages.lowered.layer(node), kind, bits, owned
    yield "score", "score", "score", None, frozenset({"score"})


def advice(found: Sensitivity, score: str = "logit", called: Modalities = TEXT_VIDEO) -> str:
    """Name the setting to change next, in a sentence; none where no part stands out."""
    worst = found.worst
    name = _called(worst, called)
    measured = f"(from the lowered model, on {found.texts} x {found.videos} pairs)"
    if (
        not found.centred_rmse
        or worst.left_float_centred_rmse > (1 - WORTHWHILE) * found.centred_rmse
    ):
        return (
            f"no single part dominates the error: without the error of {name}, the centred {score} "
            f"RMSE of {found.centred_rmse:.3g} would be {worst.left_float_centred_rmse:.3g} "
            f"{measured}"
        )
    return (
        f"{name} costs most: without its error the centred {score} RMSE would be "
        f"{worst.left_float_centred_rmse:.3g} in place of {found.centred_rmse:.3g} {measured}; "
        f"{_remedy(found, worst)}"
    )


def _called(part: Part, called: Modalities) -> str:
    """A part in words; layers have their own names, as settings know them."""
    name = name_of(part.graph, called) if part.graph in MODALITIES else part.graph
    return CALLED[part.kind].format(part=part, name=name)


def _remedy(found: Sensitivity, worst: Part) -> str:
    if worst.kind in SETTINGS:
        return f"try {SETTINGS[worst.kind]} above {worst.bits}"
    if worst.kind != "layer":
        return "no setting changes its bits"
    best = min(found.settings, key=lambda one: one.centred_rmse)
    return (
        f'try more {best.setting} for it ([layers."{worst.part}"] in a settings file): alone it '
        f"could reach {best.centred_rmse:.3g}"
    )


@dataclass(frozen=True)
class Causes:
    """The errors of each layer and each part; `advice` names the setting to change next."""

    layers: tuple[LayerFinding, ...] = field(repr=False)
    sensitivity: Sensitivity
    advice: tuple[str, ...]


def causes_of(
    layers: tuple[LayerFinding, ...],
    parts: Sensitivity,
    head: Head,
    data: Embeddings,
    runs: StageRuns,
    drift: DriftFindings,
) -> Causes:
    """The errors, and what to change next."""
    if pairs_alike(runs.statistics):
        said = f"measure on other data: {alike_text(runs.statistics, data)}"
    else:
        said = next_change(head, drift, parts, data.called)
    return Causes(layers, parts, (said,))


def next_change(
    head: Head, drift: DriftFindings, parts: Sensitivity, called: Modalities = TEXT_VIDEO
) -> str:
    """Name what to change next: a surrogate that costs most by far, then the devices."""
    found = drift.headline
    surrogate = found.surrogate_centred_rmse or 0.0
    dominates = surrogate > DOMINANT * found.float_centred_rmse
    if found.cause == head.surrogate and (found.surrogate_broken or dominates):
        return "fit another polynomial: no hardware setting improves the surrogate"
    if found.cause in [row.stage for one in drift.noisy for row in one.rows]:
        return (
            "the devices cost most, and more bits of a layer do not help; try another compensation "
            f"than {drift.noisy[-1].compensation}, other cell_bits, or another target"
        )
    return advice(parts, head.measure, called)
