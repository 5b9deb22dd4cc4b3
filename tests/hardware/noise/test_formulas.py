"""Every shipped fit against its formula, written out here in arbitrary precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import log, mp, mpf, sqrt

from cimtool.hardware.noise.mechanisms.devices import ConductanceDrift, Flicker, Programming
from cimtool.hardware.noise.spec import Noise, load_noise

mp.dps = 30
HOUR, DAY, YEAR = 3600, 86400, 365.25 * 86400
SHARES = [mpf(i) / 20 for i in range(1, 21)]
"""20 conductances, as shares of g_max."""
TIMES = [0, HOUR, DAY, YEAR]

Law = Callable[[mpf], mpf]


def clamp(value: mpf, lo: str, hi: str) -> mpf:
    return min(max(value, mpf(lo)), mpf(hi))


def numbers(text: str) -> list[mpf]:
    return [mpf(part) for part in text.split()]


def power_series(text: str) -> Law:
    coefficients = numbers(text)
    return lambda x: sum((c * x**n for n, c in enumerate(coefficients)), mpf(0))


def hermes_nu(x: mpf) -> mpf:
    if x >= mpf("0.0945"):
        return mpf("-0.0436") * x**2 - mpf("0.0126") * x + mpf("0.0736")
    return clamp(mpf("-0.0387") * log(x) - mpf("0.0182"), "0.072", "0.13")


def hermes_nu_sigma_2(x: mpf) -> mpf:
    if x < mpf("0.3055"):
        return clamp(mpf("-0.0117") * log(x) - mpf("0.0057"), "0.0091", "0.04")
    return mpf("-0.0118") * x**2 + mpf("0.0093") * x + mpf("0.0073")


def hermes_nu_sigma_1(x: mpf) -> mpf:
    if x < mpf("0.3039"):
        return clamp(mpf("-0.0120") * log(x) - mpf("0.0023"), "0.0124", "0.04")
    return mpf("-0.0165") * x**2 + mpf("0.0116") * x + mpf("0.0104")


def hermes_q_2(x: mpf) -> mpf:
    if x < mpf("0.16"):
        return clamp(mpf("-0.0117") * log(x) - mpf("0.0069"), "0.015", "0.04")
    return mpf("0.0069") * x**3 - mpf("0.0280") * x**2 + mpf("0.0211") * x + mpf("0.0123")


def hermes_q_1(x: mpf) -> mpf:
    if x < mpf("0.1591"):
        return clamp(mpf("-0.0078") * log(x) + mpf("0.0038"), "0.0179", "0.04")
    return mpf("0.0664") * x**3 - mpf("0.1352") * x**2 + mpf("0.0768") * x + mpf("0.0088")


def pcm_nu(x: mpf) -> mpf:
    return clamp(mpf("-0.0155") * log(x) + mpf("0.0244"), "0.049", "0.1")


def pcm_nu_sigma(x: mpf) -> mpf:
    return clamp(mpf("-0.0125") * log(x) - mpf("0.0059"), "0.008", "0.045")


def pcm_q(x: mpf) -> mpf:
    return min(mpf("0.0088") / x ** mpf("0.65"), mpf("0.2"))


# name, g_max, t0, t_read, sigma (uS), nu, nu sigma, q
DRIFTING = [
    ("hermes-2-devices", "20.7", "300", "512e-9",
     power_series("0.16603 4.71806 -8.48101 4.68961"), hermes_nu, hermes_nu_sigma_2, hermes_q_2),
    ("hermes-1-device", "10.35", "200", "512e-9",
     power_series("0.15782 2.32444 -2.16311 0.68842"), hermes_nu, hermes_nu_sigma_1, hermes_q_1),
    ("pcm-generic", "25", "20", "250e-9",
     power_series("0.26348 1.965 -1.1731"), pcm_nu, pcm_nu_sigma, pcm_q),
]  # fmt: skip
NEURRAM = {
    "1s": "0.348 16.030 -43.853 45.393 -16.815",
    "1d": "0.701 22.086 -50.773 47.095 -16.458",
    "2d": "0.782 20.274 -43.507 37.062 -11.934",
}


def table(law: Law) -> list[float]:
    return [float(law(x)) for x in SHARES]


def x_of(noise: Noise, g: list[mpf]) -> np.ndarray:
    """Shares of g_max, from conductances in uS."""
    return np.array([float(value) for value in g]) / noise.g_max


@pytest.mark.parametrize("fit", DRIFTING, ids=[fit[0] for fit in DRIFTING])
def test_programming_errors_are_those_of_the_fit(fit: tuple) -> None:
    name, g_max, _, _, sigma, *_ = fit
    noise = load_noise(name)
    x = x_of(noise, [share * mpf(g_max) for share in SHARES])
    found = noise.of(Programming)[0].deviation(x, noise.g_max, 0.0)
    np.testing.assert_allclose(found, table(sigma), rtol=1e-12)


@pytest.mark.parametrize("seconds", TIMES)
@pytest.mark.parametrize("fit", DRIFTING, ids=[fit[0] for fit in DRIFTING])
def test_drift_and_its_spread_are_those_of_the_fit(fit: tuple, seconds: float) -> None:
    name, g_max, t0, _, _, nu, nu_sigma, _ = fit
    noise = load_noise(name)
    assert noise.t0 == float(t0)
    (drift,) = noise.of(ConductanceDrift)
    x = x_of(noise, [share * mpf(g_max) for share in SHARES])
    np.testing.assert_allclose(drift.sigma.at(x), table(nu_sigma), rtol=1e-12)
    passed = (mpf(seconds) + mpf(t0)) / mpf(t0)
    for away in (-1, 0, 2):
        exponent = drift.mean.at(x) + away * drift.sigma.at(x)
        expected = table(lambda s, k=away: passed ** -(nu(s) + k * nu_sigma(s)))
        found = drift.factor(exponent, seconds, noise.t0)
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("seconds", TIMES)
@pytest.mark.parametrize("fit", DRIFTING, ids=[fit[0] for fit in DRIFTING])
def test_read_noise_is_that_of_the_fit(fit: tuple, seconds: float) -> None:
    name, g_max, t0, t_read, _, _, _, q = fit
    noise = load_noise(name)
    assert noise.t0 is not None
    x = x_of(noise, [share * mpf(g_max) for share in SHARES])
    t, tr = mpf(seconds) + mpf(t0), mpf(t_read)
    expected = table(lambda s: q(s) * sqrt(log((t + tr) / (2 * tr))))
    np.testing.assert_allclose(
        noise.of(Flicker)[0].relative(x, seconds, noise.t0), expected, rtol=1e-11
    )


@pytest.mark.parametrize("time", NEURRAM)
def test_neurram_has_its_three_times(time: str) -> None:
    noise = load_noise("neurram")
    x = x_of(noise, [share * 40 for share in SHARES])
    found = noise.of(Programming)[0].deviation(x, noise.g_max, noise.seconds(time))
    np.testing.assert_allclose(found, table(power_series(NEURRAM[time])), rtol=1e-12)


def test_neurrams_second_fit_is_in_microsiemens() -> None:
    noise = load_noise("neurram-crosssim")
    g = [share * 40 for share in SHARES]
    law = power_series("1.053 0.2374 -0.01167 1.536e-4")
    found = noise.of(Programming)[0].deviation(x_of(noise, g), noise.g_max, 0.0)
    np.testing.assert_allclose(found, [float(law(value)) for value in g], rtol=1e-12)


def test_the_two_fits_of_neurram_differ_threefold_at_zero() -> None:
    zero = np.zeros(1)
    one, other = (load_noise(name) for name in ("neurram", "neurram-crosssim"))
    ratio = other.of(Programming)[0].deviation(zero, 40.0, 0.0) / one.of(Programming)[0].deviation(
        zero, 40.0, 1.0
    )
    assert 2.9 < ratio[0] < 3.1


def test_hermes_loses_a_third_of_small_and_a_tenth_of_large_conductances_in_a_day() -> None:
    noise = load_noise("hermes-2-devices")
    assert noise.t0 is not None
    (drift,) = noise.of(ConductanceDrift)
    gain = drift.factor(drift.mean.at(np.array([0.1, 1.0])), DAY, noise.t0)
    np.testing.assert_allclose(gain, [0.67, 0.91], atol=0.005)


@pytest.mark.parametrize("name", ["hermes-1-device", "hermes-2-devices", "pcm-generic"])
def test_erased_devices_take_the_clamped_ends(name: str) -> None:
    noise = load_noise(name)
    zero = np.zeros(1)
    (drift,), (flicker,) = noise.of(ConductanceDrift), noise.of(Flicker)
    for curve in (drift.mean, drift.sigma, flicker.q):
        assert curve.clamp is not None
        assert curve.at(zero)[0] == curve.clamp[1]
