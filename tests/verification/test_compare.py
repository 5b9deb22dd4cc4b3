from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.embeddings import Embeddings
from cimtool.report.document import Sentence
from cimtool.report.terminal import terminal
from cimtool.verification.compare import (
    BundleComparison,
    compare_bundles,
    described,
)
from cimtool.verification.worth_table import worth_table

from .conftest import MakeBundle


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(
    make_bundle: MakeBundle, bundle: Bundle, data: Embeddings, told: list[str]
) -> BundleComparison:
    return compare_bundles([bundle, make_bundle("coarse", weight_bits=4)], data, say=told.append)


def test_only_what_differs_is_listed(found: BundleComparison) -> None:
    assert found.differing == {"weight_bits": ("8", "4")}


def test_fewer_bits_drift_more(found: BundleComparison) -> None:
    fine, coarse = (report.headline.float_centred_rmse for report in found.reports)
    assert coarse > 1.5 * fine
    assert found.reports[0].drift.rows[:3] == found.reports[1].drift.rows[:3]


def test_one_trained_model_is_sampled_once(found: BundleComparison, told: list[str]) -> None:
    assert [text for text in told if "Monte Carlo" in text] == [
        "small: Monte Carlo (K=10): 40 x 40 pairs"
    ]


def test_the_table_has_a_column_a_bundle(found: BundleComparison) -> None:
    text = terminal(found.document(), 100, verbose=True)
    assert max(map(len, text.splitlines())) <= 100
    lines = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line}
    assert lines["weight_bits"][-2:] == ["8", "4"]
    assert lines["step: quantized"][-2:] == [
        f"{report.drift.compiled_rows[3].get('step_centred_rmse'):.4f}" for report in found.reports
    ]
    assert "step: ONNX Runtime" in lines
    assert "small" in text
    assert "coarse" in text


def test_each_verdict_has_its_figures_and_its_energy(found: BundleComparison) -> None:
    said = [one.text for one in found.document().blocks if isinstance(one, Sentence)]
    for name, report in zip(found.names, found.reports, strict=True):
        own = [text for text in said if text.startswith(f"{name}: ")]
        assert own[0] == f"{name}: {report.drift.worth.sentence}"
        assert "ompute-in-memory " in own[1]
        (figures,) = worth_table(report.drift.worth, name)
        assert figures.title == name
        assert replace(figures, name="", level="shown") in found.document().blocks


@pytest.mark.thorough("two more bundles")
def test_two_heads_stand_side_by_side(
    make_bundle: MakeBundle, bundle: Bundle, data: Embeddings
) -> None:
    point = make_bundle("point", None, head="cosine")
    found = compare_bundles([bundle, point], data)
    assert found.differing == {
        "score": ("polynomial of degree 2", "cosine"),
        "errors from": ("exact", "cosine"),
    }
    text = terminal(found.document(), 100, verbose=True)
    lines = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line}
    first, second = (report.drift.compiled_rows for report in found.reports)
    steps = [
        [f"{row.get('step_centred_rmse') or 0:.4f}" for row in rows] for rows in (first, second)
    ]
    assert lines["step: polynomial or cosine"][-2:] == [steps[0][0], "-"]
    assert lines["step: quantized"][-2:] == [steps[0][3], steps[1][3]]


def test_the_degree_of_a_polynomial_differs_and_so_do_its_coefficients() -> None:
    line, other = (PcmePoly(Polynomial(1, (c, 0.0), 0.5)) for c in (-0.1, -0.2))
    curve = PcmePoly(Polynomial(2, (-0.1, 0.005, 0.0, 0.0, 0.0), 0.5))
    assert described([line, curve, Csd(0.1, 0.0)]) == (
        "polynomial of degree 1, ed alone",
        "polynomial of degree 2",
        "csd, 0 - 0.1 ed",
    )
    first, second = described([line, other])
    assert first.startswith("polynomial of degree 1, ed alone (")
    assert first != second
    assert len(set(described([line, line]))) == 1


def test_json_holds_every_report(found: BundleComparison) -> None:
    read = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert read["bundles"] == ["small", "coarse"]
    assert [one["settings"]["weight_bits"] for one in read["reports"]] == [8, 4]


def test_two_of_one_name_are_told_apart(found: BundleComparison) -> None:
    twice = BundleComparison((found.reports[0],) * 2, ("polynomial",) * 2)
    assert twice.names == ("small (1)", "small (2)")
    assert twice.differing == {}


def test_one_bundle_is_no_comparison(bundle: Bundle, data: Embeddings) -> None:
    with pytest.raises(CimError, match="1 bundle is given; expected at least two"):
        compare_bundles([bundle], data)


@pytest.mark.thorough("two more bundles")
def test_what_must_be_known_first_stands_before_the_table(
    make_bundle: MakeBundle, bundle: Bundle, data: Embeddings
) -> None:
    broken = make_bundle("turned", Polynomial(1, (0.1, 0.0), 0.05))
    found = compare_bundles([bundle, broken], data)
    text = " ".join(terminal(found.document(), 100, verbose=True).split())
    table = text.index("raw embeddings: R@1 text to video")
    for sentence in (
        "small: Raw embeddings retrieve ",
        "turned: the polynomial itself loses ",
        "turned: The surrogate was NOT CHECKED",
    ):
        assert text.index(sentence) < table
    assert text.startswith("small and turned small: The compiled model is ")
    assert "turned: No verdict: the float score is BROKEN" in text or "turned: The compiled" in text
    assert text.index("only 40 texts are queries: below 200") > table
