"""The devices that torch computes on, `cpu` and `cuda`."""

from __future__ import annotations

from typing import Any

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument
from cimtool.base.plugins import needing
from cimtool.ir.backends import TORCH
from cimtool.ir.op import Op
from cimtool.ir.types import Type, Types
from cimtool.simulation.device import Device


class TorchDevice(Device):
    """A device of torch, which is imported when one is opened."""

    def __init__(self, name: str):
        with needing(Argument("device")):
            from cimtool.gpu import torch_device

        self._torch, self._device = torch_device, torch_device.device_of(name)

    def prepare(self, op: Op, types: Types, known: Type) -> Any:
        """The operation's form on tensors."""
        return TORCH.of(op)(op, types, self._device)

    def enter(self, array: Array) -> Any:
        """Move an array into a tensor."""
        return self._torch.to_tensor(array, self._device)

    def leave(self, value: Any, known: Type) -> Array:
        """Move a tensor back."""
        return self._torch.to_array(value, known)


class TorchCpu(TorchDevice, name="cpu"):
    """Torch's operations on the CPU."""


class TorchCuda(TorchDevice, name="cuda"):
    """A CUDA device: `cuda`, or `cuda:N`."""
