"""Devices: what runs integer graphs in place of the simulator's own kernels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument
from cimtool.base.named import Named
from cimtool.ir.op import Op
from cimtool.ir.types import Type, Types


class Device(Named):
    """Base of the devices; the name of a class is that of a device up to its colon (`cuda:1`)."""

    @abstractmethod
    def __init__(self, name: str): ...

    @abstractmethod
    def prepare(self, op: Op, types: Types, known: Type) -> Any:
        """The form of an integer operation that takes and returns values on the device.

        Raises TypeError for an operation that no compiled program holds.
        """

    @abstractmethod
    def enter(self, array: Array) -> Any:
        """Move an array to the device."""

    @abstractmethod
    def leave(self, value: Any, known: Type) -> Array:
        """Move a value of a known type back, integers in as few bytes as they need."""

    @classmethod
    def opened(cls, name: str) -> Self:
        """The device of a name such as `cuda:1`; CimError where there is none."""
        return cls.named(str(name).partition(":")[0], Argument("device"))(name)
