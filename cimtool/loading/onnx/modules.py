"""Models from torch modules in memory, without files."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import fields, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Arrange, Mvm
from cimtool.ir.op import Op
from cimtool.ir.program import MODALITIES, Graph, Node
from cimtool.loading.checkpoint import Checkpoint, tensor_array
from cimtool.loading.embeddings import unit_rows
from cimtool.loading.layer_map import NO_MAP, LayerMap
from cimtool.loading.model import Model, build_model, model_of_towers, read_towers
from cimtool.loading.onnx.export import (
    evaluating,
    export_module,
    first_line,
    floats,
    kind_of,
    outputs_of,
)
from cimtool.loading.onnx.graph import OUTPUTS
from cimtool.loading.score import ScoreOptions

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

ROUNDING = 1e-6
"""Relative difference of numbers that are equal in float32."""

PROBE_ROWS = 4
MOST_COMPARED = 256
"""Rows of the data on which a module is compared with its program, at most."""

HALF_PRECISIONS = ("float16", "bfloat16")

PROBE_TOLERANCE = 1e-4
"""Allowed error of a module, in its precision, relative to the program's largest value.

The largest errors of the tests' 39 architectures in float32 were 5.7e-6 on normal rows and 3.2e-5
on rows 30 times as large, for which softmax and small groups are ill-conditioned. The error of half
precision is larger.
"""

UNIT_TOLERANCE = 1e-3
"""Largest difference from 1 of a unit row's norm, also in half precision."""


def model_from_modules(
    text: nn.Module | ExportedProgram,
    video: nn.Module | ExportedProgram,
    score: ScoreOptions,
    layer_map: LayerMap = NO_MAP,
    name: str = "model",
    widths: tuple[int | None, int | None] = (None, None),
    rows: tuple[Array, Array] | None = None,
) -> Model:
    """The model of two torch modules that return (mu, logvar), or mu alone.

    They are exported to ONNX in memory, for rows of these `widths`. If a layout reads the same
    operations and numbers from their weights, its model is taken: then the layers have the layout's
    names, and the polynomial takes its statistics. With a layer map, the layout's model is always
    taken. Raises CimError as `build_model` and `export_module` do, and if model and modules differ
    on normal rows or on the data's `rows` [n, in].
    """
    modules = dict(zip(MODALITIES, map(_module, (text, video)), strict=True))
    state = {f"{key}_proj": _state(module, f"{name}: {key}") for key, module in modules.items()}
    checkpoint = Checkpoint(name, state)
    places = {modality: f"{name}: the {modality} module" for modality in MODALITIES}
    if layer_map is NO_MAP:
        text_tower, video_tower = (
            export_module(module, places[modality], width)
            for (modality, module), width in zip(modules.items(), widths, strict=True)
        )
        towers = text_tower, video_tower
        try:
            layout, read = read_towers(checkpoint, NO_MAP, lambda _: widths)
            same = all(map(_same, read, towers))
        except CimError:
            layout, same = None, False
    else:
        (layout, _), same = read_towers(checkpoint, layer_map, lambda _: widths), True
    said = layer_map is not NO_MAP
    if layout is not None and same and (said or not (layout.unit_rows and _are_raw(rows))):
        # Outputs are compared below, so remarks on assumptions and left tensors are not needed.
        checked = replace(score, ignore_uncertainty=True)
        model = build_model(checkpoint, checked, layer_map, lambda _: widths)
        model = replace(model, warnings=layout.warnings(state))
    else:
        model = model_of_towers(name, towers, (places["text"], places["video"]), score)
        if layout is not None and layout.unit_rows:
            found = (
                f"the modules have the layers of layout {layout.name} but compute something else "
                "with them: they are read as they are, "
            )
            if same:
                found = (
                    f"both modules are of layout {layout.name}, which takes rows of unit norm, and "
                    "those of the data are of others: the modules are read as they are, for such "
                    "rows, "
                )
            note = f"{name}: {found}and a polynomial is of ed and vd, undivided"
            model = replace(model, warnings=(note,))
    notes = list[str]()
    for modality, tower, data in zip(MODALITIES, model.towers, rows or (None, None), strict=True):
        notes += _compare(model, tower, modules[modality], data, places[modality])
    return replace(model, warnings=(*model.warnings, *notes))


def _module(given: nn.Module | ExportedProgram) -> nn.Module:
    """The module, also from an exported program or from the wrapper of torch.compile."""
    from torch.export import ExportedProgram

    if isinstance(given, ExportedProgram):
        return given.module()
    # The wrapper's class is private to torch; a user's module may also have `_orig_mod`.
    compiled = type(given).__module__ == "torch._dynamo.eval_frame"
    original: nn.Module = given._orig_mod if compiled else given  # type: ignore[assignment]
    return original


def _same(tower: Graph, other: Graph) -> bool:
    """True if two projectors have the same operations and numbers; names may differ."""

    @cache
    def same(one: str, two: str) -> bool:
        if one in tower.inputs or two in other.inputs:
            return one == two and _equal(tower.inputs[one].shape, other.inputs[two].shape)
        first, second = tower.by_name[one], other.by_name[two]
        pairs = [((first.op, first.inputs), (second.op, second.inputs))]
        if isinstance(first.op, Mvm):
            pairs.append((_joined(tower, first), _joined(other, second)))
        return any(
            _same_op(op, own) and len(inputs) == len(others) and all(map(same, inputs, others))
            for (op, inputs), (own, others) in pairs
        )

    return tower.outputs.keys() == other.outputs.keys() and all(
        same(name, other.outputs[key]) for key, name in tower.outputs.items()
    )


def _joined(graph: Graph, node: Node) -> tuple[Op, tuple[str, ...]]:
    """A layer merged with the layers right before it, and the input of the first.

    A layer may read a part of the outputs of the layer before it.
    """
    op, inputs = node.op, node.inputs
    while type(op) is Mvm:
        columns, before = np.arange(op.weight.shape[0]), graph.by_name.get(inputs[0])
        moved = before.op if before is not None else None
        if before is not None and isinstance(moved, Arrange) and len(moved.places) == 1:
            columns, before = moved.places[0], graph.by_name.get(before.inputs[0])
        if before is None or type(before.op) is not Mvm:
            break
        weight, bias = before.op.weight[:, columns], before.op.bias[columns]
        op, inputs = Mvm(weight @ op.weight, bias @ op.weight + op.bias), before.inputs
    return op, inputs


def _same_op(one: Any, two: Any) -> bool:
    """True for operations of the same kind with equal numbers in float32; `keys` may differ."""
    return type(one) is type(two) and all(
        _equal(getattr(one, field.name), getattr(two, field.name))
        for field in fields(one)
        if field.name != "keys"
    )


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(_equal, one, two))
    if not isinstance(one, np.ndarray | float):
        return bool(one == two)
    return np.shape(one) == np.shape(two) and np.allclose(one, two, ROUNDING, 0.0)


def _are_raw(rows: tuple[Array, Array] | None) -> bool:
    """True if there are rows of data and some are not at unit norm."""
    norms = (np.linalg.norm(_share(data).astype(np.float64), axis=1) for data in rows or ())
    return any(bool((np.abs(norm - 1) > UNIT_TOLERANCE).any()) for norm in norms)


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
                f"{where}: {key} belongs to a lazy module that was not called yet; call it once "
                "with rows, which sets its shapes"
            )
    state = {key: tensor_array(tensor, where, key) for key, tensor in tensors.items()}
    for key, inner in module.named_modules():
        running = isinstance(inner, nn.BatchNorm1d) and inner.track_running_stats
        if running or isinstance(inner, nn.LayerNorm):
            state[f"{key}.eps"] = np.asarray(inner.eps)
    return state


def _error(found: Array, wanted: Array) -> float:
    """The largest error, as a share of the largest value."""
    if found.shape != wanted.shape:
        return np.inf
    error = np.abs(found.astype(np.float64) - wanted).max()
    return float(error / max(float(np.abs(wanted).max()), 1e-6))


def _compare(
    model: Model, tower: Graph, module: nn.Module, data: Array | None, where: str
) -> list[str]:
    """Notes on a module; CimError if it computes something else than its tower.

    It runs on a few normal rows, and on some rows of the `data` [n, in] if there are data.
    """
    normal = np.random.default_rng(0).normal(size=(PROBE_ROWS, tower.extent("x")))
    probe = unit_rows(normal.astype(np.float32)) if model.unit_rows else normal.astype(np.float32)
    probes = [(probe, f"a probe of {PROBE_ROWS} rows")]
    if data is not None and data.shape[1] == tower.extent("x"):
        own = _share(data)
        probes += [(own, f"{len(own)} rows of the data")] if len(own) else []
    with np.errstate(all="ignore"):  # non-finite outputs are reported below
        compared = [
            (
                what,
                wanted := tower.run({"x": rows.astype(np.float64)}),
                _forward(module, rows, "s" in wanted, where),
            )
            for rows, what in probes
        ]
    if len(compared) > 1 and not all(np.isfinite(one).all() for one in compared[0][1].values()):
        del compared[0]  # the module is made for the data's rows, not for normal rows
    try:
        chosen, notes = ", ".join(choices(module, probes[-1][0])), []
    except Exception as error:  # compiled code may not allow this
        reason = first_line(error)
        chosen, notes = "", [f"{where}: choices in Python were not looked for ({reason})"]
    for what, wanted, outputs in compared:
        for key, found in outputs.items():
            if not (np.isfinite(wanted[key]).all() and np.isfinite(found).all()):
                raise CimError(
                    f"{where} gives {'a mu' if key == 'mu' else 'an exp(logvar)'} that is not "
                    f"finite on {what}; expected rows and weights at the scale that it was trained "
                    "with"
                )
            off = _error(found, wanted[key])
            if not off <= PROBE_TOLERANCE:
                raise CimError(
                    f'{where} was read by layout "{model.layout}" but computes another '
                    f"{'mu' if key == 'mu' else 'logvar'} (on {what} it is off by {off:.3g} of "
                    f"the largest value){_reason(module, chosen)}"
                )
    if chosen:
        notes.append(
            f"{where} makes a choice in Python that depends on the input ({chosen}): only one "
            f"branch was read; it gives the same on {what}"
        )
    return notes


def _share(data: Array) -> Array:
    """Rows of the data to compare, evenly spread; no rows of zeros, which have no norm."""
    places = np.linspace(0, len(data) - 1, min(MOST_COMPARED, len(data))).astype(np.int64)
    rows = np.asarray(data[places], np.float32)
    return rows[rows.any(axis=1)]


def _reason(module: nn.Module, chosen: str) -> str:
    """The end of a sentence on a module that computes something else: the reason, if known."""
    if chosen:
        return (
            f": a choice in Python depends on the input ({chosen}), and only one branch was read; "
            "expected the same arithmetic for all rows"
        )
    kind = next((str(array.dtype).removeprefix("torch.") for array in floats(module)), "")
    if kind in HALF_PRECISIONS:
        return f": it computes in {kind}; expected module.float()"
    return ""


def _forward(
    module: nn.Module, rows: Array, has_variance: bool, where: str
) -> dict[str, FloatArray]:
    """Run a module; mu and s in float64. CimError if a second call gives other values."""
    import torch

    def run() -> dict[str, FloatArray]:
        try:
            value = module(given_rows(module, rows))
        except Exception as error:
            raise CimError(
                f"{where} does not run on rows of {rows.shape[1]} numbers ({first_line(error)}); "
                "expected rows of the width that it takes"
            ) from None
        outputs = outputs_of(value)
        if outputs is None or len(outputs) != 1 + has_variance:
            expected = "(mu, logvar)" if has_variance else "mu alone, a tensor"
            raise CimError(f"{where} returns a {kind_of(value)}; expected {expected}")
        pairs = zip(OUTPUTS, outputs, strict=False)
        arrays = {key: tensor_array(part, where, key).astype(np.float64) for key, part in pairs}
        if "logvar" in arrays:
            arrays["s"] = np.exp(arrays.pop("logvar"))
        return arrays

    # Outputs are copied before the module is restored: they may be its buffers.
    with evaluating(module), torch.no_grad():
        found, again = run(), run()
    for key, array in found.items():
        if _error(again[key], array) > PROBE_TOLERANCE:
            raise CimError(
                f"{where} gives another {'mu' if key == 'mu' else 'logvar'} when called again with "
                "the same rows; expected outputs that depend only on the rows, not on earlier "
                "calls or random numbers"
            )
    return found


def given_rows(module: nn.Module, rows: Array) -> torch.Tensor:
    """A copy of rows [n, in] that a module takes, on the device of its weights.

    The rows have the type of the first weights, or float32 if the module does not run on that type.
    """
    import torch

    given, own = torch.tensor(rows), floats(module)
    if not own:
        return given
    given = given.to(own[0].device)
    if len({array.dtype for array in own}) > 1:
        try:
            module(given.to(own[0].dtype, copy=True))
        except Exception:
            return given
    return given.to(own[0].dtype)


def choices(module: nn.Module, rows: Array) -> list[str]:
    """The lines of Python that read numbers of a tensor that depends on rows [n, in].

    For example `if x.max() > 1:`, also through numpy: an exporter follows only one branch. Lines
    that read extents are not included.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    of_tensor = torch.Tensor
    readers = of_tensor.numpy, of_tensor.tolist, of_tensor.__array__, of_tensor.__dlpack__
    known, found = dict[int, torch.Tensor](), dict[str, None]()

    def is_known(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and _place(value) in known

    class Followed(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            if any(map(is_known, tree_leaves((args, kwargs)))):
                leaves = tree_leaves(made)
                known.update({_place(one): one for one in leaves if isinstance(one, torch.Tensor)})
                if any(isinstance(one, bool | int | float) for one in leaves):
                    found[_line_of_caller()] = None
            return made

    class Read(TorchFunctionMode):
        """Observes functions that pass on a tensor's memory; these are not operators."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func in readers and is_known(args[0]):
                found[_line_of_caller()] = None
            return func(*args, **(kwargs or {}))

    with evaluating(module), torch.no_grad():
        given = given_rows(module, rows)
        known[_place(given)] = given
        with Followed(), Read():  # type: ignore[no-untyped-call]
            module(given)
    return list(found)


def _place(tensor: torch.Tensor) -> int:
    """The address of a tensor's memory, which its views share; its id if it has no memory."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # a sparse tensor
        return id(tensor)


def _line_of_caller() -> str:
    """File and line of the innermost frame of a module's call, in the user's code if possible."""
    import torch

    libraries = tuple(str(Path(inspect.getfile(library)).parent) for library in (torch, np))
    inner = reversed(traceback.extract_stack())
    inside = takewhile(lambda f: (f.filename, f.name) != (__file__, choices.__name__), inner)
    frames = [frame for frame in inside if frame.filename != __file__]
    own = next((f for f in frames if not f.filename.startswith(libraries)), frames[0])
    return f"{Path(own.filename).name}, line {own.lineno}"
