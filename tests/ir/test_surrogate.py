from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import PolynomialFeatures

from cimtool.base.errors import CimError
from cimtool.ir.surrogate import MAX_DEGREE, Polynomial, exponents

numbers = st.floats(-1e6, 1e6, allow_nan=False)
positive = st.floats(1e-3, 1e6)


@st.composite
def polynomials(draw):
    degree = draw(st.integers(1, MAX_DEGREE))
    count = len(exponents(degree))
    coeff = draw(st.lists(numbers, min_size=count, max_size=count))
    return Polynomial(degree, tuple(coeff), draw(numbers), draw(positive), draw(positive))


def exact_value(poly, ed, vd):
    """The polynomial as it is written, in rational numbers."""
    x, y = Fraction(ed) / Fraction(poly.scale_ed), Fraction(vd) / Fraction(poly.scale_vd)
    terms = zip(exponents(poly.degree), poly.coeff, strict=True)
    return Fraction(poly.bias) + sum(Fraction(c) * x**i * y**j for (i, j), c in terms)


@pytest.mark.parametrize("degree", range(1, MAX_DEGREE + 1))
def test_terms_are_in_the_order_of_scikit_learn(degree):
    features = PolynomialFeatures(degree, include_bias=False).fit(np.zeros((1, 2)))
    assert exponents(degree) == [tuple(row) for row in features.powers_.tolist()]


@given(
    poly=polynomials(),
    center=st.tuples(numbers, numbers),
    half=st.tuples(positive, positive),
    line=st.none() | st.tuples(numbers, numbers),
    u=st.fractions(-2, 2, max_denominator=50),
    v=st.fractions(-2, 2, max_denominator=50),
)
def test_shifted_is_the_same_polynomial_exactly(poly, center, half, line, u, v):
    matrix = poly.shifted(center[0], half[0], center[1], half[1], line)
    assert len(matrix) == poly.degree + 1
    assert all(len(row) == poly.degree + 1 for row in matrix)
    assert all(
        c == 0 for i, row in enumerate(matrix) for j, c in enumerate(row) if i + j > poly.degree
    )
    value = sum(c * u**i * v**j for i, row in enumerate(matrix) for j, c in enumerate(row))
    ed = Fraction(center[0]) + Fraction(half[0]) * u
    start, slope = map(Fraction, line or (0, 0))
    vd = start + slope * ed + Fraction(center[1]) + Fraction(half[1]) * v
    assert value == exact_value(poly, ed, vd)


def test_about_its_line_a_polynomial_has_small_coefficients():
    """ed and vd of real pairs lie in a narrow band; in the rectangle that it spans terms cancel."""
    # -x - x^3 + 0.2 y^3, with x = (ed - 500) / 300 and y = (vd - (4 ed - 240)) / 20.
    coeff = dict.fromkeys(exponents(3), 0.0) | {(1, 0): -1.0, (3, 0): -1.0, (0, 3): 0.2}
    own = Polynomial(3, tuple(coeff.values()), 0.0)
    raw = own.shifted(-500 / 300, 1 / 300, -88.0, 1 / 20, (0.0, -60.0))
    poly = Polynomial(3, tuple(float(raw[i][j]) for i, j in coeff), float(raw[0][0]))
    line = (-240.0, 4.0)
    about = poly.shifted(500.0, 300.0, 0.0, 20.0, line)
    across = poly.shifted(500.0, 300.0, 1760.0, 1220.0)
    sums = [float(sum(abs(c) for row in table for c in row)) for table in (about, across)]
    assert sums[0] == pytest.approx(2.2)
    assert sums[1] > 1e5
    ed, near = np.linspace(200, 800, 50), np.random.default_rng(0).uniform(-20, 20, 50)
    x, y = (ed - 500) / 300, near / 20
    wanted = -x - x**3 + 0.2 * y**3
    np.testing.assert_allclose(poly.evaluate(ed, near, line), wanted, atol=1e-8)
    np.testing.assert_allclose(poly.evaluate(ed, 4 * ed - 240 + near), wanted, atol=1e-8)
    assert poly.is_constant((600.0, 600.0 + 1e-9), (0.0, 1e-9), line)
    assert not poly.is_constant((200.0, 800.0), (-20.0, 20.0), line)
    assert poly.jitter(ed, near, 1e-3, line) < 0.01 < poly.jitter(ed, 4 * ed - 240 + near, 1e-3)


@given(poly=polynomials(), seed=st.integers(0, 100))
def test_evaluate_is_as_accurate_as_the_values_spread(poly, seed):
    rng = np.random.default_rng(seed)
    ed, vd = rng.uniform(300, 301, (2, 3)), rng.uniform(900, 905, (2, 3))
    found = poly.evaluate(ed, vd)
    expected = [exact_value(poly, *pair) for pair in zip(ed.flat, vd.flat, strict=True)]
    matrix = poly.shifted(300.5, 0.5, 902.5, 2.5)
    size = sum(abs(c) for row in matrix for c in row)
    for x, y in zip(found.flat, expected, strict=True):
        # Below the normal range a float64 has no relative accuracy: 1e-300 is the floor.
        assert abs(Fraction(float(x)) - y) <= Fraction(1, 10**14) * size + Fraction(1, 10**300)


def test_evaluate_does_not_cancel_in_a_narrow_band():
    # (ed - 400)^6 written out in raw powers: their sum is 1e16 times its value.
    coeff = dict.fromkeys(exponents(6), 0.0)
    signed = {1: -6 * 400.0**5, 2: 15 * 400.0**4, 3: -20 * 400.0**3, 4: 15 * 400.0**2, 5: -2400.0}
    for power, c in (signed | {6: 1.0}).items():
        coeff[power, 0] = c
    poly = Polynomial(6, tuple(coeff.values()), bias=400.0**6)
    ed = np.linspace(399, 401, 9)
    np.testing.assert_allclose(poly.evaluate(ed, np.ones(9)), (ed - 400) ** 6, atol=1e-15)


def test_scales_divide_the_features():
    poly = Polynomial(1, (2.0, 3.0), bias=1.0, scale_ed=4.0, scale_vd=16.0)
    assert poly.evaluate(6.0, 8.0) == 2 * 6 / 4 + 3 * 8 / 16 + 1


def test_evaluate_of_one_value_of_equal_values_and_of_none():
    poly = Polynomial(1, (2.0, 3.0), bias=1.0)
    np.testing.assert_array_equal(poly.evaluate([[5.0, 5.0]], [[1.0, 2.0]]), [[14.0, 17.0]])
    assert poly.evaluate(np.empty((0, 4)), np.empty((0, 4))).shape == (0, 4)


def test_evaluate_leaves_its_input_as_it_is():
    ed, vd = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    Polynomial(2, (1.0, 2.0, 3.0, 4.0, 5.0), bias=0.0).evaluate(ed, vd)
    assert ed.tolist() == [1.0, 2.0]
    assert vd.tolist() == [3.0, 5.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_evaluate_refuses_statistics_that_are_not_finite(bad):
    with pytest.raises(CimError, match=r"vd ranges from .* expected finite"):
        Polynomial(1, (2.0, 3.0), bias=1.0).evaluate([1.0, 2.0], [1.0, bad])


def test_evaluate_refuses_terms_beyond_float64():
    poly = Polynomial(2, (0.0, 0.0, 1e100, 0.0, 0.0), bias=0.0)
    with pytest.raises(CimError, match="beyond float64"):
        poly.evaluate([1e110, 2e110], [1.0, 1.0])


@pytest.mark.parametrize(
    ("coeff", "constant"),
    [
        ((0.0, 0.0), True),
        ((1e-9, -1e-12), True),
        ((0.1, 0.0), False),
        ((0.0, 1e-3), False),
    ],
)
def test_is_constant_over_the_domain(coeff, constant):
    poly = Polynomial(1, coeff, bias=-13.8)
    assert poly.is_constant((140.0, 150.0), (100.0, 200.0)) is constant


def test_a_small_probability_is_not_constant_for_being_small():
    poly = Polynomial(1, (1e-12, 0.0), bias=0.0, fit_logit=False)
    assert not poly.is_constant((140.0, 150.0), (100.0, 200.0))


def test_whether_it_is_constant_depends_on_the_domain():
    # (ed - 400)^2 hardly moves where ed hardly does.
    poly = Polynomial(2, (-800.0, 0.0, 1.0, 0.0, 0.0), bias=400.0**2 - 5)
    assert poly.is_constant((399.999, 400.001), (1.0, 2.0))
    assert not poly.is_constant((390.0, 410.0), (1.0, 2.0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"degree": 4, "coeff": (1.0,) * 13}, "coeff has 13 numbers; degree 4 has 14$"),
        ({"degree": 4, "coeff": (1.0,) * 9}, r"degree 4 has 14 \(9 belong to degree 3\)"),
        ({"degree": 4, "coeff": (1.0,) * 15}, "the constant is not one of them"),
        ({"degree": 9, "coeff": (1.0,) * 54}, "degree is 9; expected 1 to 8"),
        ({"degree": 0, "coeff": ()}, "degree is 0"),
        ({"coeff": (1.0, np.nan)}, r"coeff\[1\] is nan"),
        ({"bias": np.inf}, "bias is inf"),
        ({"a": np.nan}, "a is nan"),
        ({"scale_ed": 0.0}, "scale_ed is 0.0; expected more than 0"),
        ({"scale_vd": -2.0}, "scale_vd is -2.0"),
    ],
)
def test_bad_polynomials_are_refused(fields, message):
    with pytest.raises(CimError, match=message):
        Polynomial(**({"degree": 1, "coeff": (1.0, 2.0), "bias": 0.0} | fields))


def test_a_change_beyond_float64_is_infinite() -> None:
    steep = Polynomial(2, (1e100, 0.0, 0.0, 0.0, 0.0), 0.0)
    ed = np.linspace(0.0, 1e100, 5)
    assert steep.jitter(ed, ed, 1e-3) == np.inf
