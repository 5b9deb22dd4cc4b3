"""Models taken from torch modules in memory, without files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from cimtool.loading.model import Model, build_model, read_towers
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
) -> Model:
    """The model of two torch modules that return (mu, logvar), or mu alone where that is all.

    Activations do not show in weights, so each module is run on a few rows and compared with what
    was read. Raises CimError as `build_model` does, and where the module computes something else.
    """
    modules = dict(zip(MODALITIES, (text, video), strict=True))
    state = {f"{key}_proj": _state(module, f"{name}: {key}") for key, module in modules.items()}
    checkpoint = Checkpoint(name, state)
    layout, towers = read_towers(checkpoint, layer_map)
    for (modality, module), tower in zip(modules.items(), towers, strict=True):
        _compare(layout, tower, module, f"{name}: the {modality} module")
    # Nothing is left to assume of a module that was run.
    return replace(build_model(checkpoint, score, layer_map), warnings=layout.warnings(state))


def _state(module: nn.Module, where: str) -> dict[str, Array]:
    """The module's arrays by key, with each norm's eps, which a state_dict leaves out."""
    from torch import nn

    state = {key: tensor_array(tensor, where, key) for key, tensor in module.state_dict().items()}
    for key, inner in module.named_modules():
        running = isinstance(inner, nn.BatchNorm1d) and inner.track_running_stats
        if running or isinstance(inner, nn.LayerNorm):
            state[f"{key}.eps"] = np.asarray(inner.eps)
    return state


def _compare(layout: type[Layout], tower: Graph, module: nn.Module, where: str) -> None:
    """Raise CimError where a module computes something else than its tower."""
    shape = PROBE_ROWS, tower.extent("x")
    rows = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if layout.unit_rows:
        rows = unit_rows(rows)
    wanted = run_graph(tower, {"x": rows.astype(np.float64)})
    outputs = _forward(module, rows, "s" in wanted, where)
    for key, found in outputs.items():
        error = np.abs(found - wanted[key]).max() if found.shape == wanted[key].shape else np.inf
        if not error <= PROBE_TOLERANCE * max(float(np.abs(wanted[key]).max()), 1e-6):
            raise CimError(
                f'{where} has the weights of layout "{layout.name}" but computes another '
                f"{'mu' if key == 'mu' else 'logvar'} from them (on a probe of {PROBE_ROWS} rows "
                f"it is off by {error:.3g})"
            )


def _forward(
    module: nn.Module, rows: Array, has_variance: bool, where: str
) -> dict[str, FloatArray]:
    """Run a module in evaluation mode, wherever its weights are; mu and s in float64."""
    import torch

    first = next(module.parameters())
    with _evaluating(module), torch.no_grad():
        value: Any = module(torch.from_numpy(rows).to(first.device, first.dtype))
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
