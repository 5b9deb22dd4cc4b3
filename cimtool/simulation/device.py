"""Devices run integer graphs in place of the simulator's kernels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument
from cimtool.base.named import Named
from cimtool.ir.op import Op
from cimtool.ir.types import Type, Types


class Device(Named):
    """Base of the devices. A class has the part of a device's name before the colon (`cuda:1`)."""

    @abstractmethod
    def __init__(self, name: str): ...

    @abstractmethod
    def prepare(self, op: Op, types: Types, known: Type) -> Any:
        """Make an integer operation callable with values on the device.

        Raises TypeError if compiled programs never contain this operation.
        """

    @abstractmethod
    def enter(self, array: Array) -> Any:
        """Move an array to the device."""

    @abstractmethod
    def leave(self, value: Any, known: Type) -> Array:
        """Move a value of a known type back, integers in the narrowest type that holds them."""

    @classmethod
    def opened(cls, name: str) -> Self:
        """Open a device by a name such as `cuda:1`. Raises CimError if there is none."""
        return cls.named(str(name).partition(":")[0], Argument("device"))(name)
