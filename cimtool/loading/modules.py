"""Models taken from torch modules in memory, without files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.program import MODALITIES, Graph
from cimtool.loading.checkpoint import Checkpoint, tensor_array
from cimtool.loading.embeddings import unit_rows
from cimtool.loading.layer_map import NO_MAP, LayerMap
from cimtool.loading.layout import Layout
from cimtool.loading.model import Model, build_model, model_of_graphs, read_towers
from cimtool.loading.module_calls import called, choices, floats
from cimtool.loading.onnx_export import export_module, first_line
from cimtool.loading.onnx_graph import OnnxGraph
from cimtool.loading.score import ScoreOptions
from cimtool.simulation.simulator import run_rows

if TYPE_CHECKING:
    from torch import nn

PROBE_ROWS = 4
MOST_COMPARED = 256
"""Rows of the data on which a module is compared with what was read."""

HALF_PRECISIONS = ("float16", "bfloat16")

PROBE_TOLERANCE = 1e-3
"""Allowed error of a module in its own precision, relative to the program's largest value."""


def model_from_modules(
    text: nn.Module,
    video: nn.Module,
    score: ScoreOptions,
    layer_map: LayerMap = NO_MAP,
    name: str = "model",
    widths: tuple[int | None, int | None] = (None, None),
    rows: tuple[Array, Array] | None = None,
) -> Model:
    """The model of two torch modules that return (mu, logvar), or mu alone.

    Their weights are read by a layout where one fits and gives the same mu on a few rows, as
    activations do not show in weights; other modules are exported to ONNX in memory, for rows of
    these `widths`. Raises CimError as `build_model` and `export_module` do, and where what was read
    computes something else, on normal `rows` [n, in] or on these of the data.
    """
    modules = dict(zip(MODALITIES, (text, video), strict=True))
    state = {f"{key}_proj": _state(module, f"{name}: {key}") for key, module in modules.items()}
    checkpoint = Checkpoint(name, state)
    places = {modality: f"{name}: the {modality} module" for modality in MODALITIES}
    try:
        layout, towers = read_towers(checkpoint, layer_map, lambda _: widths)
        fits = all(
            _computes_mu(layout, tower, module)
            for tower, module in zip(towers, modules.values(), strict=True)
        )
    except CimError:
        if layer_map is not NO_MAP:
            raise
        fits = False
    if not fits and layer_map is NO_MAP:
        graphs = (
            export_module(module, places[modality], width)
            for (modality, module), width in zip(modules.items(), widths, strict=True)
        )
        model = _exported_model(name, graphs, score)
    else:
        # Nothing is left to assume of a module that is run.
        model = build_model(checkpoint, score, layer_map, lambda _: widths)
        model = replace(model, warnings=layout.warnings(state))
    own = (None, None) if rows is None else rows
    notes = [
        note
        for modality, tower, data in zip(MODALITIES, model.towers, own, strict=True)
        for note in _compare(model, tower, modules[modality], data, places[modality])
    ]
    return replace(model, warnings=(*model.warnings, *notes))


def _exported_model(name: str, graphs: Iterable[OnnxGraph], score: ScoreOptions) -> Model:
    """The model of modules of any architecture, by their ONNX graphs in memory."""
    text, video = graphs
    return model_of_graphs(name, (text, video), score)


def _computes_mu(layout: type[Layout], tower: Graph, module: nn.Module) -> bool:
    """True where a module runs on rows of the tower's width and gives its mu."""
    rows = _probe(tower, layout.unit_rows)
    wanted = run_rows(tower, rows.astype(np.float64))["mu"]
    try:
        found = called(module, rows)
    except Exception:
        return False
    if isinstance(found, Mapping):
        found = found.get("mu")
    first = found[0] if isinstance(found, tuple | list) and found else found
    if not hasattr(first, "shape") or tuple(first.shape) != wanted.shape:
        return False
    return _error(tensor_array(first, "", "mu"), wanted) <= PROBE_TOLERANCE


def _state(module: nn.Module, where: str) -> dict[str, Array]:
    """The module's arrays by key, with each norm's eps, which a state_dict leaves out."""
    import torch
    from torch import nn
    from torch.nn.parameter import is_lazy

    tensors = {
        key: tensor
        for key, tensor in module.state_dict().items()
        if isinstance(tensor, torch.Tensor)  # and not of get_extra_state
    }
    for key, tensor in tensors.items():
        if is_lazy(tensor):
            raise CimError(
                f"{where}: {key} is of a lazy module that was not called yet; expected one call "
                "with rows, which gives it its extents"
            )
    state = {key: tensor_array(tensor, where, key) for key, tensor in tensors.items()}
    for key, inner in module.named_modules():
        running = isinstance(inner, nn.BatchNorm1d) and inner.track_running_stats
        if running or isinstance(inner, nn.LayerNorm):
            state[f"{key}.eps"] = np.asarray(inner.eps)
    return state


def _probe(tower: Graph, unit: bool) -> Array:
    """A few rows [n, in] that a tower takes."""
    shape = PROBE_ROWS, tower.extent("x")
    rows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return unit_rows(rows) if unit else rows


def _error(found: Array, wanted: Array) -> float:
    """The largest error, as a share of the largest value."""
    if found.shape != wanted.shape:
        return np.inf
    error = np.abs(found.astype(np.float64) - wanted).max()
    return float(error / max(float(np.abs(wanted).max()), 1e-6))


def _compare(
    model: Model, tower: Graph, module: nn.Module, data: Array | None, where: str
) -> list[str]:
    """Notes on a module; CimError where it computes something else than its tower.

    It is run on a few normal rows and on a share of those of the `data` [n, in], where there are
    any.
    """
    probes = [(_probe(tower, model.unit_rows), f"a probe of {PROBE_ROWS} rows")]
    if data is not None and data.shape[1] == tower.extent("x"):
        own = _share(data, model.unit_rows)
        probes += [(own, f"{len(own)} rows of the data")] if len(own) else []
    compared = [
        (
            what,
            wanted := run_rows(tower, rows.astype(np.float64)),
            _forward(module, rows, "s" in wanted, where),
        )
        for rows, what in probes
    ]
    try:
        chosen, notes = ", ".join(choices(module, probes[-1][0])), []
    except Exception as error:  # what is compiled may not be followed
        reason = first_line(error)
        chosen, notes = "", [f"{where}: no choices in Python were looked for ({reason})"]
    for what, wanted, outputs in compared:
        for key, found in outputs.items():
            off = _error(found, wanted[key])
            if not off <= PROBE_TOLERANCE:
                raise CimError(
                    f'{where} was read by layout "{model.layout}" but computes another '
                    f"{'mu' if key == 'mu' else 'logvar'} (on {what} it is off by {off:.3g} of "
                    f"the largest value){_reason(module, chosen)}"
                )
    if chosen:
        notes.append(
            f"{where} makes a choice in Python that depends on the input ({chosen}): one way of "
            f"it was read, which gives the same on {what}"
        )
    return notes


def _share(data: Array, unit: bool) -> Array:
    """Rows of the data to compare, spread over all; none of zeros, which some norms do not take."""
    places = np.linspace(0, len(data) - 1, min(MOST_COMPARED, len(data))).astype(np.int64)
    rows = np.asarray(data[places], np.float32)
    rows = rows[rows.any(axis=1)]
    return unit_rows(rows) if unit and len(rows) else rows


def _reason(module: nn.Module, chosen: str) -> str:
    """The end of a sentence on a module that computes something else, where a reason shows."""
    if chosen:
        return (
            f": a choice in Python depends on the input ({chosen}), of which one way was read; "
            "expected the same arithmetic for all rows"
        )
    kind = next((str(array.dtype).removeprefix("torch.") for array in floats(module)), "")
    if kind in HALF_PRECISIONS:
        return f": it computes in {kind}; expected module.float()"
    return ""


def _forward(
    module: nn.Module, rows: Array, has_variance: bool, where: str
) -> dict[str, FloatArray]:
    """Run a module; mu and s in float64."""
    import torch

    try:
        value = called(module, rows)
    except Exception as error:
        raise CimError(
            f"{where} does not run on rows of {rows.shape[1]} numbers ({first_line(error)}); "
            "expected rows as wide as it takes"
        ) from None
    kind, names = type(value).__name__, ("mu", "logvar")
    if not has_variance:
        if not isinstance(value, torch.Tensor):
            raise CimError(f"{where} returns a {kind}; expected mu alone, a tensor")
        return {"mu": tensor_array(value, where, "mu").astype(np.float64)}
    if isinstance(value, Mapping) and {"mu", "logvar"} <= set(value):
        value = (value["mu"], value["logvar"])
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise CimError(f"{where} returns a {kind}; expected (mu, logvar)")
    mu, logvar = (tensor_array(part, where, key) for part, key in zip(value, names, strict=True))
    return {"mu": mu.astype(np.float64), "s": np.exp(logvar.astype(np.float64))}
