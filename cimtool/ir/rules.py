"""Rules by class of operation: the form that a backend, or a pass, gives each operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from cimtool.base.plugins import registered
from cimtool.ir.op import Level, Op, operations_at

AnyRule = TypeVar("AnyRule", bound=Callable[..., Any])


class Rules(Generic[AnyRule]):
    """A rule for every operation of the levels that are claimed.

    A class without a rule of its own has that of its base: a rule for `Op` is the default.
    """

    declared: ClassVar[list[Rules[Any]]] = []

    def __init__(self, name: str, *levels: Level):
        self.name = name
        self.levels = levels
        self._rules: dict[type[Op], AnyRule] = {}
        self.declared.append(self)

    def rule(self, *kinds: type[Op]) -> Callable[[AnyRule], AnyRule]:
        """Register the decorated rule for classes of operations; TypeError for a second one."""

        def register(rule: AnyRule) -> AnyRule:
            for kind in kinds:
                if kind in self._rules:
                    raise TypeError(f"{self.name} has two rules for {kind.__name__}")
                self._rules[kind] = rule
                registered(rule.__module__, partial(self._rules.pop, kind))
            return rule

        return register

    def of(self, op: Op) -> AnyRule:
        """The rule for an operation; TypeError where there is none."""
        rule = self.find(type(op))
        if rule is None:
            raise TypeError(f"{self.name} has no rule for operation {op.name}")
        return rule

    def missing(self) -> list[str]:
        """The operations of claimed levels that have no rule, sorted by name."""
        claimed = {op for level in self.levels for op in operations_at(level)}
        return sorted(op.name for op in claimed if self.find(op) is None)

    def find(self, kind: type[Op]) -> AnyRule | None:
        """The rule for a class of operations, or that of its base; None where there is none."""
        return next((self._rules[base] for base in kind.__mro__ if base in self._rules), None)
