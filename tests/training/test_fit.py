"""A teacher's fit: which pairs it sees, what it says of the others, and in which statistics."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.reference.surrogate import Polynomial, exponents
from cimtool.training.fit import (
    FLOOR,
    condition,
    fit_logit,
    fit_teacher,
    noise_weights,
    polynomial_text,
)
from cimtool.training.items import gaussian_items
from cimtool.training.teacher import Labels, TeacherSigmoid
from cimtool.training.teacher_file import LabelKind, Teacher, make_teacher


def teacher(kind: LabelKind = "exact", pairs: int = 1500, rows: int = 60) -> Teacher:
    rng = np.random.default_rng(2)
    text = rng.normal(size=(rows, 48))
    given = {
        "text_mu": text,
        "video_mu": text + 0.8 * rng.normal(size=text.shape),
        "text_logvar": rng.normal(size=text.shape) * 0.2 - 2.5,
        "video_logvar": rng.normal(size=text.shape) * 0.2 - 2.5,
    }
    return make_teacher(gaussian_items(given), pairs, 0.5, kind, TeacherSigmoid(K=6), seed=1)


def test_the_fit_of_exact_labels_is_within_a_hundredth_on_pairs_it_did_not_see() -> None:
    found = fit_teacher(teacher(rows=120))
    assert [one.group for one in found.errors] == ["all pairs", "right pairs", "wrong pairs"]
    assert found.errors[0].rmse < 0.01
    assert found.errors[0].pairs == len(found.held) == sum(one.pairs for one in found.errors[1:])
    assert found.notes == ()


def test_errors_are_those_of_the_held_out_labels() -> None:
    found = fit_teacher(teacher("mc"), degree=2)
    off = found.polynomial.evaluate(found.held.ed, found.held.vd) - found.held.logit
    whole, right, _ = found.errors
    assert whole.rmse == pytest.approx(np.sqrt(np.mean(off**2)))
    assert (whole.bias, whole.worst) == pytest.approx((off.mean(), np.abs(off).max()))
    assert found.matched is not None
    assert right.bias == pytest.approx(off[found.matched].mean())
    assert found.held.standard_error is not None
    assert whole.noise == pytest.approx(np.sqrt(np.mean(found.held.standard_error**2)))


def test_a_pair_that_was_drawn_again_is_in_one_part_only() -> None:
    made = teacher("mc", pairs=900, rows=20)
    found = fit_teacher(made, degree=2, seed=3)
    kept = np.isin(made.labels.ed, found.held.ed)
    distinct = len(np.unique(made.labels.ed))
    assert distinct < 450  # so most pairs are drawn more than once
    assert len(np.unique(found.held.ed)) == round(distinct / 10)
    assert kept.sum() == len(found.held) == len(made) - found.fitted


def test_another_seed_holds_out_other_pairs() -> None:
    made = teacher()
    parts = [set(fit_teacher(made, 1, seed=seed).held.ed) for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


def test_the_domain_is_that_of_the_fitted_pairs() -> None:
    made = teacher()
    found = fit_teacher(made, 1)
    seen = ~np.isin(made.labels.ed, found.held.ed)
    for name, values in (("ed", made.labels.ed[seen]), ("vd", made.labels.vd[seen])):
        assert found.domain[name] == (values.min(), values.max())


def test_divisors_are_the_teachers_or_those_given() -> None:
    made = teacher()
    divided = replace(made, scale_ed=48.0, scale_vd=48.0**2)
    own, given = fit_teacher(divided), fit_teacher(made, scale_ed=48.0, scale_vd=48.0**2)
    assert own.polynomial == given.polynomial
    raw = fit_teacher(made)
    assert given.domain["ed"] == pytest.approx(np.array(raw.domain["ed"]) / 48)
    assert given.domain["vd"] == pytest.approx(np.array(raw.domain["vd"]) / 48**2)
    np.testing.assert_allclose(
        own.polynomial.evaluate(made.labels.ed / 48, made.labels.vd / 48**2),
        raw.polynomial.evaluate(made.labels.ed, made.labels.vd),
        atol=1e-9,
    )
    assert fit_teacher(divided, scale_ed=1.0, scale_vd=1.0).polynomial == raw.polynomial


def test_what_is_known_of_the_teacher_goes_into_the_polynomial() -> None:
    fitted = fit_teacher(teacher("mc")).polynomial
    assert (fitted.a, fitted.b, fitted.K, fitted.fit_logit) == (0.1, 0.0, 6, True)
    assert fit_teacher(teacher()).polynomial.K is None


def test_noisy_labels_weigh_less() -> None:
    made = teacher("mc")
    known = made.labels
    # What is wrong by 5 at large ed is said to be noisy there.
    far = known.ed > np.median(known.ed)
    spoilt = replace(known, log_p=np.where(far, known.log_p + 5, known.log_p))
    told = replace(spoilt, standard_error=np.exp((known.ed - known.ed.mean()) / known.ed.std() * 4))
    untold = replace(spoilt, standard_error=None)

    def error(labels: Labels) -> float:
        fitted = fit_teacher(replace(made, labels=labels), degree=2).polynomial
        off = fitted.evaluate(known.ed, known.vd) - known.logit
        return float(np.sqrt(np.mean(off[~far] ** 2)))

    assert error(told) < 0.5 * error(untold)


def test_what_cannot_be_known_is_said() -> None:
    noted = " ".join(fit_teacher(teacher("mc")).notes)
    assert "the labels are Monte Carlo, so the errors hold their noise too" in noted
    assert "such a label is off the exact logit by -" in noted
    known = teacher().labels
    bare = Labels(known.ed, known.vd, known.log_p, known.log_1mp)
    found = fit_teacher(Teacher(bare, clipped=500))
    assert found.notes[0].startswith("warning: 500 labels (25.0%) are probabilities clipped at 1e-")
    assert "how the labels were made is not known" in found.notes[1]
    assert "a and b are not in the file" in found.notes[2]
    assert [one.group for one in found.errors] == ["all pairs"]
    assert found.errors[0].noise is None


def test_what_is_taken_for_probabilities_is_said() -> None:
    made = teacher()
    said = [fit_teacher(replace(made, probabilities=taken)).notes for taken in (True, False)]
    assert said[1] == ()
    assert len(said[0]) == 1
    assert said[0][0].startswith("warning: all of y lies in [0, 1] and is taken for probabilities")


def test_the_offset_of_monte_carlo_labels_is_about_what_is_said() -> None:
    made, exact = teacher("mc"), teacher()
    off = float(np.mean(made.labels.logit - exact.labels.logit))
    (text,) = (note for note in fit_teacher(made).notes if "off the exact logit by" in note)
    assert float(text.split(" by ")[1].split()[0]) == pytest.approx(off, rel=0.5)


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [(0.0, "scale_ed is 0; expected a finite"), (np.inf, "scale_ed is inf; expected a finite")],
)
def test_divisors_that_cannot_be_are_refused(scale: float, sentence: str) -> None:
    with pytest.raises(CimError, match=f"^{sentence}"):
        fit_teacher(teacher(), scale_ed=scale)


@pytest.mark.parametrize("pairs", [0, 1, 2, 16])
def test_too_few_pairs_are_refused_with_the_files_name(pairs: int) -> None:
    made = replace(teacher(), file="few.npz")
    few = replace(made, labels=made.labels.of(np.arange(pairs)), matched=None)
    with pytest.raises(CimError, match=r"^few\.npz: there are \d+ pairs to fit; .* has 15 coeff"):
        fit_teacher(few)


FITTED = """
import numpy as np
from cimtool.training.fit import fit_teacher
from cimtool.training.teacher import Labels
from cimtool.training.teacher_file import Teacher
ed, vd, off = np.random.default_rng(0).uniform(size=(3, 20000))
logit = -ed - ed * vd**2
found = fit_teacher(Teacher(Labels(ed, vd, logit, np.zeros(20000), off)))
print([x.hex() for x in (*found.polynomial.coeff, found.condition)])
"""


def test_bits_do_not_depend_on_threads() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", FITTED],
            env=os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout
        for threads in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1] != ""


def labelled(ed: FloatArray, vd: FloatArray, logit: FloatArray) -> Labels:
    return Labels(ed, vd, logit, np.zeros_like(logit))


def sample(mean: float, spread: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(0)
    ed = mean + spread * rng.uniform(-1, 1, 800)
    vd = 60 + 20 * rng.uniform(-1, 1, 800)
    u, v = (ed - mean) / spread, (vd - 60) / 20
    return ed, vd, -30 - 5 * u + v + 0.3 * u * v + 0.2 * u**4 - 0.1 * v**3


@settings(deadline=None, max_examples=20)
@given(st.floats(1, 1000), st.floats(0.02, 0.5))
def test_a_polynomial_is_found_again(mean: float, share: float) -> None:
    ed, vd, logit = sample(mean, share * mean)
    fitted = fit_logit(labelled(ed, vd, logit), alpha=1e-9)
    np.testing.assert_allclose(fitted.evaluate(ed, vd), logit, atol=1e-5)
    x, y = ed / fitted.scale_ed, vd / fitted.scale_vd
    assert 0.5 <= x.max() <= 1
    assert 0.5 <= y.max() <= 1


def test_exported_coefficients_hold_in_plain_arithmetic() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    p = fit_logit(labelled(ed, vd, logit), alpha=1e-9)
    x, y = ed / p.scale_ed, vd / p.scale_vd
    terms = [x ** (n - j) * y**j for n in range(1, 5) for j in range(n + 1)]
    plain = p.bias + sum(c * t for c, t in zip(p.coeff, terms, strict=True))
    np.testing.assert_allclose(plain, logit, atol=1e-6)


def test_coefficients_that_raw_features_cannot_hold_are_refused() -> None:
    ed, vd, logit = sample(300.0, 0.003)
    with pytest.raises(CimError, match=r"degree 4 in raw ed and vd loses .*try a lower degree"):
        fit_logit(labelled(ed, vd, logit))
    assert fit_logit(labelled(ed, vd, logit), degree=1).degree == 1


def test_ed_that_never_varies_and_labels_that_are_not_finite_are_refused() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    with pytest.raises(CimError, match=r"ed is 7\.0 for all"):
        fit_logit(labelled(np.full_like(ed, 7.0), vd, logit))
    with pytest.raises(CimError, match="logit reaches inf"):
        fit_logit(labelled(ed, vd, np.full_like(ed, -np.inf)))


def test_a_point_embedding_without_variance_can_be_fitted() -> None:
    ed = np.linspace(1, 50, 100)
    fitted = fit_logit(labelled(ed, np.zeros(100), -0.1 * ed), degree=2)
    np.testing.assert_allclose(fitted.evaluate(ed, np.zeros(100)), -0.1 * ed, atol=1e-3)


def test_a_written_polynomial_reads_back_to_the_same_bits() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    fitted = replace(fit_logit(labelled(ed, vd, logit)), a=0.2, b=1.0, K=6)
    read = json.loads(polynomial_text(fitted))
    assert Polynomial(**read | {"coeff": tuple(read["coeff"])}) == fitted
    assert (read["a"], read["b"], read["K"], read["fit_logit"]) == (0.2, 1.0, 6, True)


@pytest.mark.parametrize("degree", range(1, 7))
def test_every_degree_finds_a_polynomial_of_its_own(degree: int) -> None:
    ed, vd, _ = sample(300.0, 60.0)
    u, v = (ed - 300) / 60, (vd - 60) / 20
    logit = -30 + sum(0.5 * u**i * v**j for i, j in exponents(degree))
    fitted = fit_logit(labelled(ed, vd, logit), degree, 1e-9)
    assert (fitted.degree, fitted.a, fitted.K) == (degree, None, None)
    np.testing.assert_allclose(fitted.evaluate(ed, vd), logit, atol=1e-6)


@pytest.mark.parametrize(
    ("pairs", "degree", "alpha", "sentence"),
    [
        (800, 0, 0.1, "degree is 0; expected 1 to 6"),
        (800, 7, 0.1, "degree is 7; expected 1 to 6"),
        (800, 4, -1.0, "alpha is -1.0; expected a finite number, 0 or more"),
        (800, 4, math.inf, "alpha is inf; expected a finite number, 0 or more"),
        (14, 4, 0.1, "there are 14 pairs to fit; a polynomial of degree 4 has 15 coefficients"),
        (0, 1, 0.1, "there are 0 pairs to fit; a polynomial of degree 1 has 3 coefficients"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    pairs: int, degree: int, alpha: float, sentence: str
) -> None:
    some = labelled(*(values[:pairs] for values in sample(300.0, 60.0)))
    with pytest.raises(CimError, match=f"^{sentence}"):
        fit_logit(some, degree, alpha)


def test_labels_that_are_all_the_same_are_refused() -> None:
    ed, vd, _ = sample(300.0, 60.0)
    with pytest.raises(CimError, match=r"labels are all -13\.8155 \(logit\); expected"):
        fit_logit(labelled(ed, vd, np.full_like(ed, -13.81551)))


def test_what_varies_by_rounding_alone_does_not_vary() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    rounding = 1e-15 * np.random.default_rng(0).uniform(-1, 1, len(ed))
    with pytest.raises(CimError, match=r"labels are all -13 \(logit\); expected"):
        fit_logit(labelled(ed, vd, -13 * (1 + rounding)))
    with pytest.raises(CimError, match=r"labels are all \S+ \(logit\); expected"):
        fit_logit(Labels(ed, vd, np.log(0.5) * (1 + rounding), np.full_like(ed, np.log(0.5))))
    with pytest.raises(CimError, match=r"ed is \S+ for all of the teacher's pairs"):
        fit_logit(labelled(300 * (1 + rounding), vd, logit), degree=1)


def test_a_pair_of_weight_2_counts_as_two() -> None:
    ed, vd, logit = (values[:30] for values in sample(300.0, 60.0))
    twice = (np.concatenate([x, x[:10]]) for x in (ed, vd, logit))
    weights = np.repeat([2.0, 1.0], [10, 20])
    weighted = fit_logit(labelled(ed, vd, logit), 2, 1e-9, weights)
    np.testing.assert_allclose(
        weighted.evaluate(ed, vd), fit_logit(labelled(*twice), 2, 1e-9).evaluate(ed, vd), atol=1e-6
    )


def test_weights_follow_the_noise_that_is_usual_at_ed_and_vd() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    error = np.exp(ed / 100)
    known = replace(labelled(ed, vd, logit), standard_error=error)
    weights = noise_weights(known)
    assert weights is not None
    np.testing.assert_allclose(weights * error**2, (weights * error**2)[0], rtol=1e-4)
    assert weights.mean() == pytest.approx(1)
    assert noise_weights(labelled(ed, vd, logit)) is None
    assert noise_weights(replace(known, standard_error=np.zeros_like(ed))) is None


def test_an_error_that_goes_with_the_label_does_not_pull_the_fit() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    chance = np.random.default_rng(4).normal(size=len(ed)) * 0.2
    known = Labels(ed, vd, logit + chance, np.zeros_like(ed), np.exp(2 * chance))
    off = fit_logit(known, weights=noise_weights(known)).evaluate(ed, vd) - logit
    assert abs(off.mean()) < 0.02
    by_own = fit_logit(known, weights=np.exp(-4 * chance)).evaluate(ed, vd) - logit
    assert by_own.mean() < -0.1


def test_no_weight_grows_without_bound() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    tiny = replace(labelled(ed, vd, logit), standard_error=np.where(ed < 300, 1e-12, FLOOR / 1e3))
    weights = noise_weights(tiny)
    assert weights is not None
    np.testing.assert_allclose(weights, 1, rtol=1e-5)


def test_the_condition_number_is_that_of_the_centred_features() -> None:
    u = np.linspace(-1, 1, 101)
    some = labelled(300 + u, np.full(101, 7.0), u)
    assert condition(some, 1) == pytest.approx(1)
    features = np.stack([u / u.std(), (u / u.std()) ** 2], axis=1)
    features -= features.mean(axis=0)
    assert condition(some, 2) == pytest.approx(np.linalg.cond(features))
    heavy = np.where(u > 0.5, 1e4, 1.0)
    assert condition(some, 2, heavy) > 3 * condition(some, 2)


def test_the_domain_stands_in_the_file() -> None:
    ed, vd, logit = sample(300.0, 60.0)
    fitted = fit_logit(labelled(ed, vd, logit))
    text = polynomial_text(fitted, {"ed": (240.0, 360.0), "vd": (40.0, 80.0)})
    assert json.loads(text)["domain"] == {"ed": [240.0, 360.0], "vd": [40.0, 80.0]}
    assert "domain" not in json.loads(polynomial_text(fitted))


def test_statistics_beyond_reach_are_named() -> None:
    ed, vd, logit = sample(100.0, 20.0)
    with pytest.raises(CimError, match=r"ed reaches 1\.2e\+202 .* expected less than 1e\+100"):
        fit_logit(labelled(1e200 * ed, vd, logit))
    with pytest.raises(CimError, match=r"vd reaches .* expected less than 1e\+100"):
        fit_logit(labelled(ed, 1e200 * vd, logit))


def test_a_statistic_that_varies_by_rounding_alone_has_no_part() -> None:
    ed, _, logit = sample(100.0, 20.0)
    rounded = 5 * (1 + 1e-15 * np.random.default_rng(1).standard_normal(len(ed)))
    fitted = fit_logit(labelled(ed, rounded, logit))
    assert fitted.coeff == fit_logit(labelled(ed, np.full_like(ed, 5.0), logit)).coeff
    known = dict(zip(exponents(4), fitted.coeff, strict=True))
    assert {known[i, j] for i, j in known if j} == {0.0}
    assert condition(labelled(ed, rounded, logit), 4) < 1e4
