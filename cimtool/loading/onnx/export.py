"""Torch modules in memory, read as ONNX: any architecture can be read this way, without a file.

Modules are called in evaluation mode, and left unchanged.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
import re
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from cimtool.base.errors import CimError
from cimtool.base.quiet import quiet_libraries
from cimtool.ir.program import Graph
from cimtool.loading.onnx.graph import OUTPUTS, graph_of
from cimtool.loading.onnx.towers import translate

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto
    from torch import nn

TRIED_ROWS = 2
"""Rows that a module is tried with; not 1, which looks like an extent that is always 1."""

TRACED_ROWS = 31
"""Rows that a module is exported with: a prime, which can be recognised in products.

Tracing can fix it in the graph: to both exporters `len(x)` and `int(x.shape[0])` are plain numbers.
"""

SENTENCES = "sentence_embedding"
"""The key under which modules of sentence-transformers read and return rows."""

LEAST_THRESHOLD = 14
"""Lowest threshold at which a softplus equals its input: exp(-14) is below 1e-6."""

MOST_TOKENS = 256
"""Most tokens in a row that are tried to find its width, each as wide as an extent of a weight."""


def outputs_of(value: Any) -> tuple[Any, ...] | None:
    """The outputs that a module returns: (mu, logvar), or mu alone; None if it is neither.

    Outputs of a dictionary or a named tuple are found only by name.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(value[name] for name in OUTPUTS) if set(OUTPUTS) <= set(value) else None
    if names := field_names(value):
        named = set(OUTPUTS) <= set(names)
        return tuple(getattr(value, name) for name in OUTPUTS) if named else None
    return tuple(value) if isinstance(value, tuple | list) and len(value) == len(OUTPUTS) else None


def field_names(value: Any) -> tuple[str, ...]:
    """The names of a named tuple's fields, also of torch's named tuples; else none."""
    return getattr(type(value), "__match_args__", ()) if isinstance(value, tuple) else ()


def kind_of(value: Any) -> str:
    """The type of a module's output, for messages; with its fields for a named tuple."""
    names = field_names(value)
    return type(value).__name__ + (f" of ({', '.join(names)})" if names else "")


CONTAINERS = (dict, OrderedDict, list, set)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the `with` block; then each part gets mode, attributes, numbers back.

    A call may keep activations in attributes, weight norms keep their weights there, and any part
    may keep a state in its buffers. Only tensors and plain containers are copied to restore them.
    """
    import torch

    parts = [(part, part.training, dict(vars(part))) for part in module.modules()]
    held = [value for *_, own in parts for value in own.values() if type(value) in CONTAINERS]
    containers = [(value, copy.copy(value)) for value in held]
    tensors = [(one, one.detach(), one.detach().clone()) for one in _plain_tensors(module)]
    # TorchScript keeps its buffers in no Python attribute.
    script = [p for p in module.modules() if isinstance(p, torch.jit.ScriptModule)]
    buffers = [(part, *pair) for part in script for pair in part.named_buffers(recurse=False)]
    with contextlib.suppress(NotImplementedError):
        module.eval()  # an exported program keeps the mode it was exported in
    try:
        yield
    finally:
        for part, mode, attributes in parts:
            part.training = mode
            for name in vars(part).keys() - attributes.keys():
                del vars(part)[name]
            vars(part).update(attributes)
        for container, kept in containers:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(kept)
        for part, name, buffer in buffers:
            setattr(part, name, buffer)
        with torch.no_grad():
            for tensor, memory, numbers in tensors:
                if not torch.equal(memory, numbers):
                    memory.copy_(numbers)
                if tensor.shape != memory.shape or tensor.data_ptr() != memory.data_ptr():
                    tensor.data = memory


def _plain_tensors(module: nn.Module) -> list[torch.Tensor]:
    """The tensors, with numbers, that a module and its parts hold in any attribute."""
    import torch
    from torch.nn.parameter import is_lazy
    from torch.utils._pytree import tree_leaves

    held = [vars(part) for part in module.modules()]
    leaves = (*module.parameters(), *module.buffers(), *tree_leaves(held))
    found = {
        id(one): one
        for one in leaves
        if isinstance(one, torch.Tensor)
        and not (is_lazy(one) or one.is_meta)
        and one.layout == torch.strided
    }
    return list(found.values())


def floats(module: nn.Module) -> list[torch.Tensor]:
    """The parameters and buffers of a module that hold real numbers."""
    arrays = (*module.parameters(), *module.buffers())
    return [array for array in arrays if array.is_floating_point()]


def export_module(module: nn.Module, where: str, width: int | None = None) -> Graph:
    """The tower of a module that takes rows [n, in] and returns (mu, logvar), or mu alone.

    The module is exported in evaluation mode; if it is not in float32 on the CPU, a copy that is in
    float32 is exported. A module that converts float32 rows to its float64 itself is not copied.
    `width` is `in`; None means that no data give it, and it is searched for. The graph of torch's
    older exporter is read; if it is refused, the newer exporter's. Raises CimError, which starts
    with `where`, for a module that takes no such rows, returns something else, or has operators
    that torch cannot export or that do not compile.
    """
    own = _in_single(module, where, width)
    with evaluating(own):
        return _tower_of(own, where, width)


def _in_single(module: nn.Module, where: str, width: int | None) -> nn.Module:
    """The module if it is in float32 on the CPU; else a copy, unless only the original takes rows.

    Raises CimError if it cannot be copied, or if only the original takes rows, in half precision.
    """
    import torch

    arrays = floats(module)
    other = [a for a in arrays if a.dtype != torch.float32 or a.device.type != "cpu"]
    if not other:
        return module
    kinds = [str(array.dtype).removeprefix("torch.") for array in (*other, *arrays)]
    try:
        own = copy.deepcopy(module).float().cpu()
    except Exception as error:
        raise CimError(
            f"{where} has {kinds[0]} on {other[0].device} and cannot be copied "
            f"({first_line(error)}); expected module.float().cpu()"
        ) from None
    if _takes(own, width) or not _takes(module, width):
        return own
    half = next((kind for kind in kinds if kind not in ("float32", "float64")), None)
    if half is not None:
        raise CimError(
            f"{where} converts its rows to {half} and computes in it; expected a module that runs "
            "in float32 after module.float() and converts nothing itself"
        )
    return module


def _takes(module: nn.Module, width: int | None) -> bool:
    """True if a module takes rows in float32, of this width if one is given."""
    with evaluating(module):
        if width is not None:
            return not _failure(module, width)
        try:
            _width(module, "")
        except CimError:
            return False
        return True


def _tower_of(own: nn.Module, where: str, width: int | None) -> Graph:
    if width is None:
        width = _width(own, where)
    elif failure := _failure(own, width):
        raise CimError(
            f"{where} does not run on rows of {width} numbers, which the data have ({failure}); "
            f"expected {_expected(own, width)}"
        )
    names = _output_names(own, width, where)
    if failure := _failure(own, width, TRACED_ROWS):
        raise CimError(
            f"{where} runs on {TRIED_ROWS} rows and not on {TRACED_ROWS} ({failure}); expected a "
            "module for any number of rows (dynamic_shapes of torch.export.export)"
        )
    ordered = _ordered(own)
    try:
        _require_thresholds(ordered, width)
        with _quiet():
            model = _exported(ordered, width, names, dynamo=False)
    except Exception as first:
        return _read(_by_newer_exporter(ordered, width, names, where, first), where)
    try:
        return _read(model, where)
    except CimError as refused:
        try:
            newer = _by_newer_exporter(ordered, width, names, where, refused)
        except CimError:
            raise refused from None
    return _read(newer, where)


def _require_thresholds(module: nn.Module, width: int) -> None:
    """Raise ValueError for a softplus with a low threshold, which the older exporter leaves out.

    Above `threshold` torch's softplus is the identity, which is off by exp(-threshold).
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[float] = []

    class Looked(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.softplus.default:
                found.extend(args[2:])
            return func(*args, **(kwargs or {}))

    with contextlib.suppress(Exception), torch.no_grad(), _quiet(), Looked():  # type: ignore[no-untyped-call]
        module(torch.ones(TRIED_ROWS, width))  # compiled code may not allow this
    if min(found, default=LEAST_THRESHOLD) < LEAST_THRESHOLD:
        raise ValueError(f"softplus has threshold {min(found):g}")


def _read(model: ModelProto, where: str) -> Graph:
    return translate(replace(graph_of(model, where), rows=TRACED_ROWS))


def _expected(module: nn.Module, width: int) -> str:
    """The expected form, in words, for a module that does not run on rows [n, width]."""
    import torch

    try:
        with torch.no_grad(), _quiet():
            module({SENTENCES: torch.ones(TRIED_ROWS, width)})
    except Exception:
        return "rows as wide as it takes"
    return (
        "one that takes them as a tensor, without the dictionary of features "
        f'({{"{SENTENCES}": rows}}) that this one takes'
    )


def _ordered(module: nn.Module) -> nn.Module:
    """The module with its outputs in order, also if it returns them by name.

    TorchScript is exported unchanged: it cannot be traced inside another module.
    """
    import torch
    from torch import nn

    if isinstance(module, torch.jit.ScriptModule):
        return module

    class Ordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return outputs_of(self.module(x))

    ordered = Ordered()
    ordered.training = False
    return ordered


def _width(module: nn.Module, where: str) -> int:
    """Numbers in a row that a module takes: the first extent of its weights with which it runs.

    For rows of several tokens it can be a multiple of an extent. Raises CimError if the module also
    runs on twice as many numbers: then it takes any number of tokens.
    """
    extents = [
        extent
        for part in module.modules()
        for name in ("in_features", "in_channels", "num_features", "num_channels")
        if isinstance(extent := getattr(part, name, None), int)
    ]
    extents += [extent for array in module.parameters() for extent in array.shape]
    extents = list(dict.fromkeys(extents))
    tried = [*extents, *(k * one for one in extents for k in range(2, MOST_TOKENS + 1))]
    width = next((width for width in tried if not _failure(module, width)), None)
    if width is None:
        failure = _failure(module, extents[0]) if extents else "it has no weights"
        raise CimError(
            f"{where} does not run on rows [n, in] of floats ({failure}); expected one that does"
        )
    if not _failure(module, 2 * width):
        raise CimError(
            f"{where} takes rows of {width} numbers and of {2 * width}, as a module for any number "
            "of tokens does; expected data that show the width, or ModelSource(widths=(TEXT, "
            "VIDEO))"
        )
    return width


def _failure(module: nn.Module, width: int, count: int = TRIED_ROWS) -> str:
    """The reason why a module does not take rows [count, width]; empty if it does.

    A module that reshapes a whole batch may run on rows of another width, but then returns another
    number of rows.
    """
    import torch

    try:
        with torch.no_grad(), _quiet():
            rows = _first_output(module(torch.ones(count, width)))
    except Exception as error:
        return first_line(error)
    if rows is None or rows.shape[:1] == (count,):
        return ""
    return f"of {count} rows it makes a tensor {list(rows.shape)}"


def _first_output(value: Any) -> torch.Tensor | None:
    """The first tensor that a module returns; None if there is none."""
    import torch

    values = value.values() if isinstance(value, Mapping) else value
    found = [values] if isinstance(values, torch.Tensor) else values
    if not isinstance(found, Iterable):
        return None  # _output_names says what it is
    return next((one for one in found if isinstance(one, torch.Tensor)), None)


def _output_names(module: nn.Module, width: int, where: str) -> list[str]:
    import torch

    with torch.no_grad():
        value = module(torch.ones(TRIED_ROWS, width))
    found = outputs_of(value)
    if found is not None:
        script = isinstance(module, torch.jit.ScriptModule)  # exported in the order of its fields
        return [*((script and field_names(value)) or OUTPUTS[: len(found)])]
    count = f" of {len(value)}" if hasattr(value, "__len__") and not field_names(value) else ""
    raise CimError(
        f"{where} returns a {kind_of(value)}{count}; expected mu alone, a tensor, (mu, logvar), or "
        "these by their names in a dictionary or a named tuple"
    )


def _exported(module: nn.Module, width: int, names: list[str], dynamo: bool) -> ModelProto:
    import onnx
    import torch

    export: Any = torch.onnx.export  # declared for paths alone, and takes buffers
    given = (torch.ones(TRACED_ROWS, width),)
    if dynamo:
        program = export(
            module, given, dynamo=True, input_names=["x"], output_names=names, verbose=False
        )
        return cast("ModelProto", program.model_proto)
    file = io.BytesIO()
    export(
        module, given, file, dynamo=False, input_names=["x"], output_names=names,
        dynamic_axes={"x": {0: "n"}},
    )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def _by_newer_exporter(
    module: nn.Module, width: int, names: list[str], where: str, first: Exception
) -> ModelProto:
    """The model from torch's newer exporter, which knows more operators and needs onnxscript.

    Raises CimError if it fails; `first` is the reason why the older exporter's model is not read.
    """
    if importlib.util.find_spec("onnxscript") is None:
        raise CimError(
            f"{where} cannot be exported to ONNX ({first_line(first)}); expected operators that "
            "torch.onnx.export has, or the package onnxscript, with which it has more"
        ) from None
    try:
        with _quiet():
            return _exported(module, width, names, dynamo=True)
    except Exception as error:
        raise CimError(
            f"{where} cannot be exported to ONNX ({first_line(first)}; {first_line(error)}); "
            "expected operators that torch.onnx.export has"
        ) from None


def first_line(error: Exception) -> str:
    """The first line of an exception, without the colours of terminals."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence exporters, which print graphs and advice; their exceptions say what matters."""
    disabled, sink = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with (
            quiet_libraries(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
