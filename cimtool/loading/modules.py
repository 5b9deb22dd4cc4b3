"""Models taken from torch modules in memory, without files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.program import MODALITIES, Graph
from cimtool.loading.checkpoint import Checkpoint, tensor_array
from cimtool.loading.embeddings import unit_rows
from cimtool.loading.layer_map import NO_MAP, LayerMap
from cimtool.loading.layout import Layout
from cimtool.loading.model import Model, build_model, model_of_graphs, read_towers
from cimtool.loading.onnx_export import export_module
from cimtool.loading.onnx_graph import OnnxGraph
from cimtool.loading.score import ScoreOptions
from cimtool.simulation.simulator import run_graph

if TYPE_CHECKING:
    from torch import nn

PROBE_ROWS = 4
PROBE_TOLERANCE = 1e-3
"""Allowed error of a module in its own precision, relative to the program's largest value."""


def model_from_modules(
    text: nn.Module,
    video: nn.Module,
    score: ScoreOptions,
    layer_map: LayerMap = NO_MAP,
    name: str = "model",
    widths: tuple[int | None, int | None] = (None, None),
) -> Model:
    """The model of two torch modules that return (mu, logvar), or mu alone.

    Their weights are read by a layout where one fits and gives the same mu on a few rows, as
    activations do not show in weights; other modules are exported to ONNX in memory, for rows of
    these `widths`. Raises
    CimError as `build_model` and `export_module` do, and where what was read computes something
    else.
    """
    modules = dict(zip(MODALITIES, (text, video), strict=True))
    state = {f"{key}_proj": _state(module, f"{name}: {key}") for key, module in modules.items()}
    checkpoint = Checkpoint(name, state)
    places = {modality: f"{name}: the {modality} module" for modality in MODALITIES}
    try:
        layout, towers = read_towers(checkpoint, layer_map)
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
        return _exported_model(name, modules, places, graphs, score)
    for (modality, module), tower in zip(modules.items(), towers, strict=True):
        _compare(layout.name, layout.unit_rows, tower, module, places[modality])
    # Nothing is left to assume of a module that was run.
    return replace(build_model(checkpoint, score, layer_map), warnings=layout.warnings(state))


def _exported_model(
    name: str,
    modules: Mapping[str, nn.Module],
    places: Mapping[str, str],
    graphs: Iterable[OnnxGraph],
    score: ScoreOptions,
) -> Model:
    """The model of modules of any architecture, by their ONNX graphs in memory."""
    text, video = graphs
    model = model_of_graphs(name, (text, video), score)
    for modality, tower in zip(MODALITIES, model.towers, strict=True):
        _compare(model.layout, model.unit_rows, tower, modules[modality], places[modality])
    return model


def _computes_mu(layout: type[Layout], tower: Graph, module: nn.Module) -> bool:
    """True where a module runs on rows of the tower's width and gives its mu."""
    rows = _probe(tower, layout.unit_rows)
    wanted = run_graph(tower, {"x": rows.astype(np.float64)})["mu"]
    try:
        found = _called(module, rows)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False
    if isinstance(found, Mapping):
        found = found.get("mu")
    first = found[0] if isinstance(found, tuple | list) and found else found
    if not hasattr(first, "shape") or tuple(first.shape) != wanted.shape:
        return False
    return _error(tensor_array(first, "", "mu"), wanted) <= PROBE_TOLERANCE


def _state(module: nn.Module, where: str) -> dict[str, Array]:
    """The module's arrays by key, with each norm's eps, which a state_dict leaves out."""
    from torch import nn

    state = {key: tensor_array(tensor, where, key) for key, tensor in module.state_dict().items()}
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


def _compare(layout: str, unit: bool, tower: Graph, module: nn.Module, where: str) -> None:
    """Raise CimError where a module computes something else than its tower."""
    rows = _probe(tower, unit)
    wanted = run_graph(tower, {"x": rows.astype(np.float64)})
    outputs = _forward(module, rows, "s" in wanted, where)
    for key, found in outputs.items():
        error = _error(found, wanted[key])
        if not error <= PROBE_TOLERANCE:
            raise CimError(
                f'{where} was read by layout "{layout}" but computes another '
                f"{'mu' if key == 'mu' else 'logvar'} (on a probe of {PROBE_ROWS} rows it is off "
                f"by {error:.3g} of the largest value)"
            )


def _called(module: nn.Module, rows: Array) -> Any:
    """The value of a module in evaluation mode, wherever its weights are."""
    import torch

    first = next(module.parameters())
    with _evaluating(module), torch.no_grad():
        return module(torch.from_numpy(rows).to(first.device, first.dtype))


def _forward(
    module: nn.Module, rows: Array, has_variance: bool, where: str
) -> dict[str, FloatArray]:
    """Run a module; mu and s in float64."""
    import torch

    value = _called(module, rows)
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


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every part gets its own mode back."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in training.items():
            part.training = mode
