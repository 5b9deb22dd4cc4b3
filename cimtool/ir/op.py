"""Operations, a class each with its shapes, its numbers and the levels at which it stands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Set
from enum import IntEnum, auto
from typing import Any, ClassVar

from cimtool.base.arrays import Array
from cimtool.base.named import Named
from cimtool.ir.types import Type


class Level(IntEnum):
    """The forms of a program, in the order in which passes lower it."""

    TRAINED = auto()
    """Real numbers, as the model was trained."""
    FLOAT = auto()
    """Real numbers, batch normalisation folded into layers."""
    MAC = auto()
    """Real numbers; only multiply, add and clip."""
    INTEGER = auto()
    """Integers: multiply, add, shift and clip; layers with their weights as one matrix."""
    CROSSBAR = auto()
    """Integers, layers on perfect crossbars."""
    DIE = auto()
    """Integers, layers on the arrays of one die."""

    def to(self, last: Level) -> frozenset[Level]:
        """This level and those after it up to `last`."""
        return frozenset(level for level in Level if self <= level <= last)


UNSTORED = {"stored": False}
"""The metadata of an operation's field that no file keeps."""

IF_GIVEN = {"stored": "if given"}
"""The metadata of a field that a file keeps unless it is empty."""


class Op(Named):
    """Base of all operations: frozen dataclasses whose fields are attributes and constants.

    A subclass names the levels of a program at which it may stand, or has the levels of its base:
    `class Exp(Op, name="exp", levels=Level.TRAINED.to(Level.FLOAT))`.
    """

    levels: ClassVar[frozenset[Level]] = frozenset()
    scores_statistics: ClassVar[bool] = False
    """True if its inputs are statistics of pairs, whose domain calibration fixes: ed, vd."""

    def __init_subclass__(cls, levels: Set[Level] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if levels is not None:
            cls.levels = frozenset(levels)

    holds_dimensions: ClassVar[bool] = False
    """True if `float.onnx` computes it from numbers for each dimension of each pair."""

    @property
    def numbers_of_pair(self) -> int:
        """Numbers that it reads for each pair of items in a score."""
        return 1

    @property
    def accumulator_bits(self) -> int | None:
        """Width of the hardware accumulator that must hold the value; None if none does."""
        return None

    @abstractmethod
    def infer(self, *inputs: Type) -> Type:
        """The type of the value, with bounds proved from the bounds of the inputs."""

    @abstractmethod
    def run(self, *inputs: Array) -> Array:
        """The value, in float64 or int64: the readable definition of the operation."""


class Arithmetic(Op, levels=Level.TRAINED.to(Level.DIE)):
    """Base of the operations that integer hardware has: they stand at every level.

    `run` takes torch tensors as it takes arrays. So `lower` keeps one, and torch and
    straight-through training run it as it is defined, unless it has a rule there.
    """


class Identity(Op):
    """Base of the operations whose value is their input's."""

    def infer(self, *inputs: Type) -> Type:
        return inputs[0]

    def run(self, *inputs: Array) -> Array:
        return inputs[0]


def operations_at(level: Level) -> frozenset[type[Op]]:
    """The operations that may stand in a program at a level."""
    return frozenset(op for op in Op.family.values() if level in op.levels)
