"""Every operator of ONNX has a rule, or a reason that a page and a sentence say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import onnx
import pytest

from cimtool.loading.onnx.rules import PAGE, UNSUPPORTED, unsupported
from cimtool.loading.onnx.translation import RULES

ROOT = Path(__file__).parents[4]
OPERATORS = {one.name for one in onnx.defs.get_all_schemas_with_history() if not one.domain}
NEWER = {"BitCast", "CausalConvWithState", "CumProd", "LinearAttention", "SwiGLU"}
"""Operators that older versions of the library do not know."""


def test_every_operator_has_a_rule_or_a_reason() -> None:
    assert not set(RULES) & set(UNSUPPORTED)
    assert set(UNSUPPORTED) - NEWER <= OPERATORS
    assert set(RULES) | set(UNSUPPORTED) | {"Constant"} >= OPERATORS


@pytest.mark.parametrize("reason", sorted(set(UNSUPPORTED.values())))
def test_a_reason_says_what_works(reason: str) -> None:
    assert re.fullmatch(r"(is|has|makes|draws|jumps|keeps|chooses|takes) .*; expected .*", reason)
    assert len(reason) < 200


def test_the_page_lists_the_operators_that_are_refused() -> None:
    filled = runpy.run_path(str(ROOT / "docs" / "made_from_code.py"))["filled_in"]
    page = filled((ROOT / PAGE).read_text("utf-8"))
    _, _, table = page.partition("| refused operators |")
    listed, _, _ = table.partition("\n\n")
    assert set(re.findall(r"`(\w+)`", listed.replace("|", "\n"))) >= set(UNSUPPORTED)
    for row in listed.splitlines()[2:]:
        operators = re.findall(r"`(\w+)`", row.split("|")[1])
        assert operators
        assert set(operators) <= set(UNSUPPORTED)
        assert len({UNSUPPORTED[kind].split(";")[0] for kind in operators}) == 1, row


def test_operators_of_others() -> None:
    assert "before a runtime optimised it" in unsupported("FusedMatMul", "com.microsoft", RULES)
    assert "expected layers: MatMul" in unsupported("Scaler", "ai.onnx.ml", RULES)
    assert unsupported("Relu6", "", RULES) == (
        'has no rule; did you mean "Relu"?; expected an operator that docs/onnx-projectors.md lists'
    )
