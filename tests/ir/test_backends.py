"""Tables of rules: complete for the levels that they claim, inherited, and without a second one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from plugin_of import as_plugin
from rules import missing_rules

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import MatMul, Sum
from cimtool.ir.backends import GALLERY, Rules
from cimtool.ir.op import Level, Op, operations_at
from cimtool.ir.source import Exp

MISSING = missing_rules()


@pytest.mark.parametrize("table", Rules.declared, ids=lambda table: table.name)
def test_every_operation_of_a_claimed_level_has_a_rule(table: Rules[Any]) -> None:
    assert table.levels or table is GALLERY, "what has no rule there is refused when compiling"
    assert not MISSING[table.name], f"{table.name} claims {[level.name for level in table.levels]}"


@pytest.mark.parametrize("level", Level)
def test_operations_stand_at_a_level(level: Level) -> None:
    assert operations_at(level)


def test_every_operation_stands_somewhere() -> None:
    assert not [name for name, op in Op.family.items() if not op.levels]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Rules[Any]:
    """A table without rules, that no other test sees."""
    monkeypatch.setattr(Rules, "declared", [])
    monkeypatch.setattr(Op, "family", dict(Op.family))
    return Rules("a backend", Level.MAC)


def test_what_has_no_rule_is_missing_and_refused_by_name(table: Rules[Any]) -> None:
    known = ["add", "arrange", "axis", "batch_matmul", "clip", "fractional_bias", "matmul", "mul"]
    last = ["mvm", "quantized_mvm", "quantized_store", "store", "sum", "sum_of_maxima"]
    assert table.missing() == [*known, *last]
    table.rule(MatMul)(lambda op: "a product")
    assert "matmul" not in table.missing()
    assert table.of(MatMul())(MatMul()) == "a product"
    with pytest.raises(TypeError, match=r"^a backend has no rule for operation exp; expected one$"):
        table.of(Exp())
    with pytest.raises(TypeError, match=r"no rule for operation sum at level mac; expected one$"):
        table.of(Sum())


def test_a_rule_that_a_plug_in_lacks_is_a_mistake_of_the_plug_in(
    table: Rules[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Far(Op, name="far", levels=Level.FLOAT.to(Level.DIE)):
        infer, run = MatMul.infer, MatMul.run

    named = as_plugin(monkeypatch, Far.__module__, "far-arrays 1.0", "far")
    sentence = re.escape(
        f"{named}: a backend has no rule for operation far at level mac; expected one"
    )
    with pytest.raises(CimError, match=f"^{sentence}$"):
        table.of(Far())
    with pytest.raises(TypeError):
        table.of(Sum())


def test_an_operation_has_the_levels_and_the_rule_of_its_base(table: Rules[Any]) -> None:
    class Paired(MatMul, name="paired"):
        pass

    class Last(Paired, name="last", levels={Level.DIE}):
        pass

    table.rule(MatMul)(lambda: "of MatMul")
    assert Paired in operations_at(Level.MAC)
    assert table.of(Paired())() == "of MatMul"
    table.rule(Paired)(lambda: "its own")
    assert table.of(Last())() == table.of(Paired())() == "its own"
    assert table.of(MatMul())() == "of MatMul"
    assert Last not in operations_at(Level.MAC)


def test_a_rule_for_all_operations_is_the_default(table: Rules[Any]) -> None:
    table.rule(Op)(lambda: "any")
    assert not table.missing()
    assert table.of(Exp())() == "any"


def test_a_second_rule_is_refused(table: Rules[Any]) -> None:
    table.rule(MatMul, Exp)(lambda: 1)
    with pytest.raises(TypeError, match="a backend has two rules for Exp"):
        table.rule(Exp)(lambda: 2)


def test_levels_run_from_one_to_another() -> None:
    assert Level.FLOAT.to(Level.INTEGER) == {Level.FLOAT, Level.MAC, Level.INTEGER}
    assert Level.DIE.to(Level.DIE) == {Level.DIE}
