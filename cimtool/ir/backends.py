"""Rules by class of operation: the form that a backend, or a pass, gives each operation.

The tables of all passes and backends stand here, and the module of each fills its table. A
package that adds an operation registers a rule for it here, and imports no pass and no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from cimtool.base.arrays import Array
from cimtool.base.plugins import fault_of, registered
from cimtool.ir.op import Level, Op, operations_at

AnyRule = TypeVar("AnyRule", bound=Callable[..., Any])


class Rules(Generic[AnyRule]):
    """A rule for every operation of the claimed levels.

    A class without a rule takes the rule of its base: a rule for `Op` is the default.
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
        """The rule for an operation.

        Raises TypeError if there is none; of a plug-in's operation, CimError naming the plug-in.
        """
        rule = self.find(type(op))
        if rule is None:
            levels = [level.name.lower() for level in self.levels if level in op.levels]
            where = f" at level {' and '.join(levels)}" if levels else ""
            sentence = f"{self.name} has no rule for operation {op.name}{where}; expected one"
            raise fault_of(type(op), sentence, TypeError)
        return rule

    def missing(self) -> list[str]:
        """The operations of claimed levels that have no rule, sorted by name."""
        claimed = {op for level in self.levels for op in operations_at(level)}
        return sorted(op.name for op in claimed if self.find(op) is None)

    def find(self, kind: type[Op]) -> AnyRule | None:
        """The rule for a class of operations, or for its base; None if there is none."""
        return next((self._rules[base] for base in kind.__mro__ if base in self._rules), None)


FOLD: Rules[Callable[..., str]] = Rules("fold", Level.TRAINED)
LOWER: Rules[Callable[..., str]] = Rules("lower", Level.FLOAT)
QUANTIZE: Rules[Callable[..., str]] = Rules("quantize", Level.MAC)
"""`rule(builder, op, node, inputs)` appends the node's form at the next level and returns the name
of its value. Each pass has its builder (`passes/fold.py`, `passes/lowering.py`,
`passes/quantize.py`). `keep` of `ir/program.py` is the rule of an operation that stays as it is."""

ONNX: Rules[Callable[..., str]] = Rules("ONNX", Level.FLOAT, Level.CROSSBAR)
"""`rule(writer, op, types, *inputs)` appends nodes and returns the name of the result
(`emit/operations.py`)."""

C_MODEL: Rules[Callable[..., Any]] = Rules("the C model", Level.CROSSBAR)
"""`rule(writer, op, types, *inputs)` appends statements and returns the value
(`handoff/c/operations.py`)."""

KERNELS: Rules[Callable[..., Callable[..., Array]]] = Rules("CPU kernels", *Level)
"""`rule(op, types, known)` returns a function of arrays (`simulation/kernels/operations.py`). The
rule for `Op` is an operation's readable `run`, so that the table is always complete."""

TORCH: Rules[Callable[..., Callable[..., Any]]] = Rules("torch", Level.CROSSBAR)
"""`rule(op, types, device)` returns a function of tensors (`gpu/torch_device.py`)."""

COSTS: Rules[Callable[..., Any]] = Rules("costs", Level.CROSSBAR)
"""`rule(op, types, known, extents)` returns the digital `Operations` (`costs/operations.py`)."""

GALLERY: Rules[Callable[..., None]] = Rules("a gallery in the arrays")
"""`rule(programmer, op, node)` maps an operation of a query and stored items (`passes/gallery.py`).
It need not cover a level. Operations that read no stored item stay digital; others without a rule
are refused."""

STRAIGHT_THROUGH: Rules[Callable[..., Any]] = Rules("straight-through training", Level.MAC)
"""`rule(op, site, *inputs)` returns a tensor (`training/straight_through.py`)."""

GRADIENTS: Rules[Callable[..., Sequence[Array]]] = Rules("gradients", Level.MAC)
"""`rule(op, inputs, gradient)` returns the gradient of each input from that of the result
(`passes/gradients.py`)."""
