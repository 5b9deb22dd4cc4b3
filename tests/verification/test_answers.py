from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from cimtool.base.intervals import Change
from cimtool.hardware.figures import Figure
from cimtool.verification.answers import (
    STATUSES,
    calibration_sentences,
    clipping_sentence,
    noisiest_sentence,
    survival_sentence,
)
from cimtool.verification.report import Report

from .conftest import changed


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Change(0.05, 0.03, 0.07), "It loses R@1"),
        (Change(0.01, -0.01, 0.02), "No sure loss of R@1"),
        (Change(-0.05, -0.06, -0.01), "It gains R@1"),
        (None, "not known"),
    ],
)
def test_whether_it_survives(report: Report, loss: Change | None, words: str) -> None:
    found = changed(report, headline=replace(report.headline, r1_loss=loss))
    assert words in survival_sentence(found)


def test_the_worst_clipping_is_named(report: Report) -> None:
    first, *others = report.causes.layers
    column, *rest = first.converters
    clipped = replace(column, step=3, clipped=0.25, conversions=4000)
    found = changed(report, layers=(replace(first, converters=(clipped, *rest)), *others))
    assert clipping_sentence(found) == (
        f"{first.layer}, {column.column}: 25.000% of 4,000 column sums are clipped."
    )


def test_the_noisiest_layer_is_named(report: Report) -> None:
    layers = report.causes.layers
    noisy = [replace(one, own_sqnr_db=30.0 + i) for i, one in enumerate(layers)]
    found = noisiest_sentence(changed(report, layers=noisy[::-1]))
    assert found is not None
    assert f"{layers[0].layer}, with a signal 30.0 dB" in found
    quiet = tuple(replace(one, own_sqnr_db=None) for one in layers)
    assert noisiest_sentence(changed(report, layers=quiet)) is None


def test_lossless_converters_do_not_clip(report: Report) -> None:
    lossless = tuple(
        replace(one, converters=tuple(replace(c, step=None) for c in one.converters))
        for one in report.causes.layers
    )
    assert "lossless" in clipping_sentence(changed(report, layers=lossless))


def test_every_status_has_a_meaning() -> None:
    assert set(STATUSES) == set(get_args(Figure.model_fields["status"].annotation))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            Change(0.02, 0.01, 0.03),
            "is LOST: the compiled score's error less that of exact is 2.0 [1.0, 3.0] points.",
        ),
        (
            Change(0.02, -0.01, 0.05),
            "is kept: the compiled score's error less that of exact is 2.0 [-1.0, 5.0] points.",
        ),
        (
            Change(-0.02, -0.03, -0.01),
            "is kept: the compiled score's error less that of exact is -2.0 [-3.0, -1.0] points.",
        ),
    ],
)
def test_calibration_is_lost_if_other_texts_could_not_explain_it(
    report: Report, loss: Change, words: str
) -> None:
    last = report.drift.final
    row = replace(last, losses={**last.losses, "calibration_error_loss": loss})
    first, _ = calibration_sentences(changed(report, rows=(*report.drift.rows[:-1], row)))
    assert first == f"Calibration {words}"


def test_calibration_errors_stand_beside_each_other(report: Report) -> None:
    *_, said = calibration_sentences(report)
    shown = {row.stage: row for row in report.drift.rows}
    expected = []
    for stage in ("exact", "-ed", "polynomial", "ONNX Runtime"):
        found = shown[stage].with_interval("calibration_error")
        assert found is not None
        low, high = 100 * found.low, 100 * found.high
        assert found.low <= found.value <= found.high
        expected.append(f"{stage} {100 * found.value:.1f}% [{low:.1f}, {high:.1f}]")
    assert said == f"Calibration error: {', '.join(expected)}."


def test_without_a_reference_calibration_is_not_lost(unknown_report: Report) -> None:
    said = list(calibration_sentences(unknown_report))
    assert [one.partition(":")[0] for one in said][-1] == "Calibration error"
    assert not any("LOST" in one or "-ed" in one for one in said)
