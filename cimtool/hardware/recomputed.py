"""Published figures of a target beside recomputed ones: what `cimtool targets check` asks for."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from cimtool.base.named import Named
from cimtool.hardware.cam import Cam
from cimtool.hardware.target import Target


class Recomputed(Protocol):
    """A published figure and the recomputed one, a dataclass."""

    def sentence(self) -> str:
        """Both figures, and how they agree."""


class Recomputation(Named):
    """Base of what recomputes figures of a target from other figures of it."""

    @classmethod
    @abstractmethod
    def check(cls, target: Target | Cam, where: str) -> tuple[Recomputed, ...]:
        """Each published figure beside the recomputed one; CimError if they disagree.

        `where` names the target in errors; there is nothing to check for one of another kind.
        """


def recomputed(target: Target | Cam, where: str) -> list[Recomputed]:
    """All published figures of a target that can be recomputed; CimError if one disagrees."""
    return [one for kind in Recomputation.every().values() for one in kind.check(target, where)]
