"""What an operation is: one class that says which shape, which number and which ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cimtool.base.arrays import Array
from cimtool.base.named import Named
from cimtool.ir.types import Type

if TYPE_CHECKING:
    from cimtool.emit.writer import GraphWriter

UNSTORED = {"stored": False}
"""The metadata of an operation's field that no file keeps."""


class Op(Named):
    """Base of all operations: frozen dataclasses whose fields are attributes and constants."""

    @property
    def accumulator_bits(self) -> int | None:
        """Width of the hardware accumulator that must hold the value; None where none does."""
        return None

    def infer(self, *inputs: Type) -> Type:
        """The type of the value, with bounds proved from those of the inputs."""
        raise NotImplementedError

    def run(self, *inputs: Array) -> Array:
        """The value, in float64 or int64: the readable definition of the operation."""
        raise NotImplementedError

    def kernel(self) -> Callable[..., Array] | None:
        """A faster form of `run` that the operation brings itself; None where it has none."""
        return None

    def emit(self, writer: GraphWriter, types: tuple[Type, ...], *inputs: str) -> str:
        """Write the operation as ONNX nodes and return the name of the result."""
        raise NotImplementedError(f"{self.name} has no ONNX form")
