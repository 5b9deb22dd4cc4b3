"""Torch modules called as they are: in evaluation mode, and left as they were."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.loading.onnx.graph import OUTPUTS

if TYPE_CHECKING:
    import torch
    from torch import nn


def outputs_of(value: Any) -> tuple[Any, ...] | None:
    """The outputs that a module returns: (mu, logvar), or mu alone; None where it is neither.

    Those that stand under names, as in a dictionary or a named tuple, are taken by these alone.
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
    """The names of a named tuple's fields, torch's own too; none for anything else."""
    return getattr(type(value), "__match_args__", ()) if isinstance(value, tuple) else ()


def kind_of(value: Any) -> str:
    """The type of what a module returns, for messages: with the fields of a named tuple."""
    names = field_names(value)
    return type(value).__name__ + (f" of ({', '.join(names)})" if names else "")


CONTAINERS = (dict, OrderedDict, list, set)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; every part gets its own mode, attributes and numbers back.

    A call may keep activations in attributes, weight norms keep their weights there, and any part
    may keep a state in its buffers: only tensors are copied for it, and containers of them.
    """
    import torch

    parts = [(part, part.training, dict(vars(part))) for part in module.modules()]
    held = [value for *_, own in parts for value in own.values() if type(value) in CONTAINERS]
    containers = [(value, copy.copy(value)) for value in held]
    tensors = [(one, one.detach(), one.detach().clone()) for one in _plain_tensors(module)]
    # Of TorchScript no attribute of Python's holds the buffers.
    script = [p for p in module.modules() if isinstance(p, torch.jit.ScriptModule)]
    buffers = [(part, *pair) for part in script for pair in part.named_buffers(recurse=False)]
    with suppress(NotImplementedError):  # an exported program has the mode that it was made in
        module.eval()
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
    """The tensors that a module and its parts hold in any attribute, which have numbers."""
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


def given_rows(module: nn.Module, rows: Array) -> torch.Tensor:
    """A copy of rows [n, in] that a module takes, wherever its weights are.

    Of the types of its weights it is the first's, or float32 where it runs on that one alone.
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
    """The lines of Python that read numbers of a tensor which depends on rows [n, in].

    As `if x.max() > 1:` does, also by way of numpy: an exporter follows one way of it. What reads
    extents is not meant.
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
        """Sees what hands a tensor's memory on, which is no operator."""

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
    """The place of a tensor's memory, which views of it share; of itself where it has none."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # a sparse tensor
        return id(tensor)


def _line_of_caller() -> str:
    """The file and line of the innermost frame of a module's call that is the user's, if any."""
    import torch

    libraries = tuple(str(Path(inspect.getfile(library)).parent) for library in (torch, np))
    inner = reversed(traceback.extract_stack())
    inside = takewhile(lambda f: (f.filename, f.name) != (__file__, choices.__name__), inner)
    frames = [frame for frame in inside if frame.filename != __file__]
    own = next((f for f in frames if not f.filename.startswith(libraries)), frames[0])
    return f"{Path(own.filename).name}, line {own.lineno}"
