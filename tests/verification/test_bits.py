from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CheckFailed
from cimtool.verification.bits import (
    compare_outputs,
    count_differences,
    outputs_of,
)


def test_equal_values_of_other_types_do_not_differ() -> None:
    found = count_differences("ONNX Runtime", "logit", np.array([[1.5]]), np.float32([[1.5]]))
    assert (found.compared, found.differing, found.first_index) == (1, 0, None)
    assert found.failures == ()


def test_a_difference_names_output_count_place_and_both_values() -> None:
    simulated = np.arange(12).reshape(3, 4)
    other = simulated.copy()
    other[1, 2] += 1
    other[2, 0] = -7
    found = count_differences("ONNX Runtime", "text.mu", simulated, other)
    assert (found.differing, found.first_index) == (2, (1, 2))
    assert found.failures == (
        "text.mu: 2 of 12 values differ between the simulator and ONNX Runtime, first at [1, 2]: "
        "6 and 7",
    )


def test_one_step_of_a_24_bit_logit_is_seen() -> None:
    value = (2**24 - 1) * 2.0**-20
    other = np.array([np.nextafter(np.float32(value), np.float32(99))])
    found = count_differences("x", "logit", np.array([value]), other)
    assert found.differing == 1
    left, right = found.sentence().split(": ")[-1].split(" and ")
    assert left != right


def test_a_value_that_is_no_number_differs() -> None:
    assert count_differences("x", "logit", np.array([np.nan]), np.array([np.nan])).differing == 1


def test_another_shape_fails() -> None:
    with pytest.raises(CheckFailed, match=r"logit: the simulator gives shape \[2\] and x \[3\]"):
        count_differences("x", "logit", np.zeros(2), np.zeros(3))


def test_a_missing_output_fails() -> None:
    with pytest.raises(CheckFailed, match=r"gives video\.mu, video\.s and x video\.mu"):
        compare_outputs("x", dict.fromkeys(("video.mu", "video.s"), np.zeros(2)),
                        {"video.mu": np.zeros(2)})  # fmt: skip


def test_all_outputs_of_both_sides_are_compared() -> None:
    one, two = {"mu": np.zeros((2, 3))}, {"mu": np.ones((4, 3))}
    simulated = outputs_of({"text": one, "video": two}, np.zeros((2, 4)))
    other = {"mu": np.zeros((4, 3))}
    counts = compare_outputs(
        "x", simulated, outputs_of({"text": one, "video": other}, np.zeros((2, 4)))
    )
    assert [(c.output, c.compared, c.differing) for c in counts] == [
        ("text.mu", 6, 0),
        ("video.mu", 12, 12),
        ("logit", 8, 0),
    ]
