"""Random matchers of each head give the same integers in every implementation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_heads import HEADS, NOT_IN_C, c_differing, differing, random_matcher

from cimtool.base.errors import CimError
from cimtool.simulation.simulator import Simulator

BLOCKS, BLOCK, IN_C = 8, 6, 1

each_head = pytest.mark.parametrize("head", HEADS)


@pytest.mark.thorough(
    "more programs a head; some are in the first tier", quick=("0-maxsim", "0-probcosine")
)
@each_head
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_value_differs(head: str, block: int, tmp_path: Path) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        made = random_matcher(seed, head)
        compared, wrong = differing(made.program, made.rows)
        assert (compared > 0, wrong) == (True, 0), f"seed {seed}"
        if seed % BLOCK < IN_C and head not in NOT_IN_C:
            compared, wrong = c_differing(made.program, tmp_path / str(seed))
            assert (compared > 0, wrong) == (True, 0), f"seed {seed}"


@pytest.mark.parametrize("head", NOT_IN_C)
def test_the_c_model_refuses_items_of_several_rows(head: str, tmp_path: Path) -> None:
    made = random_matcher(0, head)
    with pytest.raises(CimError, match="as one row"):
        c_differing(made.program, tmp_path / head)


@pytest.mark.thorough(
    "twelve programs a head; two heads are in the first tier", quick=("maxsim", "csd-ranking")
)
@each_head
def test_compiled_scores_are_near_the_float_scores(head: str) -> None:
    errors = []
    for seed in range(2 * BLOCK):
        made = random_matcher(seed, head, least_bits=8)
        text, video = made.rows["text"][:4], made.rows["video"][:4]  # these calibrated it
        own, right = (Simulator(one).scores(text, video) for one in (made.program, made.trained))
        errors.append(np.abs(own - right).max() / max(np.abs(right).max(), 1.0))
    assert np.median(errors) < 0.05
    assert min(errors) > 0
