"""A noise model fitted to measurements: programming error, drift and read noise, with intervals.

Two kinds of tables are known. Single devices: one line per reading.

    device,target,seconds,conductance        uS, seconds after programming

Column sums: one line per target, with the mean and the standard deviation in uS over `columns`
columns of `rows` cells. These cells were written to the same target and are driven alike.

    target,rows,columns,mean,deviation

The model is g = target + sigma(x) z when devices are first read, x = target / g_max, never below 0;
then g (t / t0)^-nu with nu normal, its mean a + b x; and each reading is off by a normal share.
t0 is the time of the first reading, and g_max the largest target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyval

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.csv_files import CsvColumn, header_of, read_table
from cimtool.base.errors import CimError
from cimtool.base.escapes import one_line, toml_string, visible
from cimtool.base.toml_files import validated
from cimtool.hardware.noise.spec import Noise

CONFIDENCE = 0.95
"""The share of chips for which all intervals together hold the parameters."""

FEWEST = 10
"""Devices (or columns) that a target needs at least."""

CERTAIN = 6
"""Standard errors by which a mean may be below 0 by chance."""

MOST_READINGS = 20_000_000

SIGMA_TERMS, DRIFT_TERMS = 3, 2
"""The most coefficients of programming.sigma and of drift.mean."""

ROUNDING = 1e-12
"""The share of a conductance below which float64 and its sums are not trusted."""

DEVICES = {
    "device": CsvColumn(0, 2**53, whole=True),
    "target": CsvColumn(0, 1e9),
    "seconds": CsvColumn(1e-9, 3.2e9),
    "conductance": CsvColumn(-1e9, 1e9),
}
SUMS = {
    "target": CsvColumn(0, 1e9),
    "rows": CsvColumn(1, 1 << 20, whole=True),
    "columns": CsvColumn(2, 1 << 30, whole=True),
    "mean": CsvColumn(-1e15, 1e15),
    "deviation": CsvColumn(0, 1e15),
}


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter of a mechanism, a number or a coefficient, and its interval's ends."""

    mechanism: str
    name: str
    power: int | None
    value: float
    low: float
    high: float

    @property
    def key(self) -> str:
        """The key in a noise model's file, with the power of a coefficient."""
        power = "" if self.power is None else f"[{self.power}]"
        return f"{self.mechanism}.{self.name}{power}"


@dataclass(frozen=True)
class NoiseFit:
    """A noise model fitted to a file, its parameters, and the measurements that it rests on.

    `notes` say what a reader must know of the fit beside the intervals.
    """

    file: str
    parameters: tuple[Parameter, ...]
    g_max: float
    t0: float | None
    measurements: int
    targets: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        """The noise model as the values of its file."""
        known = f"{self.measurements:,} measurements of {len(self.targets)} targets"
        found: dict[str, Any] = {"source": f"fitted to {self.file}: {known}", "g_max": self.g_max}
        if self.t0 is not None:
            found["t0"] = self.t0
        found["programming"] = {"sigma": self._coefficients("programming", "sigma")}
        if self.t0 is not None:
            found["drift"] = {
                name: {"polynomial": self._coefficients("drift", name)}
                for name in ("mean", "sigma")
            }
            found["read"] = {"sigma": self._coefficients("read", "sigma")[0]}
        return found

    def _coefficients(self, mechanism: str, name: str) -> list[float]:
        own = (mechanism, name)
        return [one.value for one in self.parameters if (one.mechanism, one.name) == own]

    @property
    def model(self) -> Noise:
        """The noise model; CimError if the parameters make none."""
        return validated(Noise, self.values, f"{self.file}: the fitted model")

    def text(self) -> str:
        """The text of the model's file, with the intervals as comments."""
        lines = [f"# {visible(one_line(note))}" for note in self.notes]
        for name, value in self.values.items():
            if isinstance(value, dict):
                own = (one for one in self.parameters if one.mechanism == name)
                lines.append("")
                lines += [f"# {p.key} = {p.value:.4g}, {p.low:.4g} to {p.high:.4g}" for p in own]
                lines += [f"[{name}]", *(f"{key} = {_toml(v)}" for key, v in value.items())]
            else:
                lines.append(f"{name} = {_toml(value)}")
        return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(v)}" for key, v in value.items()) + " }"
    return toml_string(value) if isinstance(value, str) else repr(value)


def fit_noise(file: Path) -> NoiseFit:
    """Fit a noise model to a table of devices or of column sums.

    A polynomial has as many coefficients as there are targets, at most three of sigma and two of
    nu; sigma is bound to at least 0. Raises CimError for a file that is neither, too few devices
    of a target, and devices that were not all read at the same times.
    """
    names = header_of(file)
    try:
        return _fit_sums(file) if "deviation" in names else _fit_devices(file)
    except np.linalg.LinAlgError:
        raise CimError(
            f"{file}: its targets or deviations are too far apart to be fitted together; expected "
            "measurements of one kind of device"
        ) from None


def _columns(file: Path, columns: dict[str, CsvColumn]) -> list[FloatArray]:
    blocks: list[list[FloatArray]] = []
    count = 0
    for rows in read_table(file, columns):
        blocks.append(list(rows.columns.values()))
        count += len(blocks[-1][0])
        if count > MOST_READINGS:
            raise CimError(f"{file}: has more than {MOST_READINGS:,} lines; expected fewer")
    if not blocks:
        raise CimError(f"{file}: has no line below its header; expected measurements")
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _fit_sums(file: Path) -> NoiseFit:
    target, rows, columns, mean, deviation = _columns(file, SUMS)
    for index in np.flatnonzero(columns < FEWEST):
        raise CimError(
            f"{file}: line {index + 2}: columns is {columns[index]:.0f}; expected at least {FEWEST}"
        )
    spread = deviation**2 * (columns - 1) / columns
    for index in np.flatnonzero(mean + CERTAIN * deviation / np.sqrt(columns) < 0):
        raise CimError(
            f"{file}: line {index + 2}: mean is {mean[index]:.10g}; expected a sum of "
            "conductances, which is not below 0"
        )
    # About the sum that the targets ask for, which is what the model's sigma is about.
    shift = (mean - rows * target) ** 2
    sigma = np.sqrt((spread + shift) / rows)
    g_max, levels = _largest(file, target), np.unique(target)
    scale = _scale(min(SIGMA_TERMS, len(levels)))
    parameters, notes = _programming(target, g_max, sigma, sigma / np.sqrt(2 * columns), scale)
    if (off := shift > spread).any():
        worst = int(np.argmax(off * np.abs(mean / rows - target)))
        notes.append(
            f"warning: {off.sum()} of {len(off)} means are farther from their targets than columns "
            f"scatter; the mean for {target[worst]:g} uS is {mean[worst] / rows[worst]:.4g} uS per "
            "cell: programming.sigma counts an error of scale or offset that all cells share as an "
            "error of each cell"
        )
    count, targets = int(columns.sum()), tuple(levels.tolist())
    return NoiseFit(file.name, tuple(parameters), g_max, None, count, targets, tuple(notes))


def _largest(file: Path, target: FloatArray) -> float:
    if target.max() <= 0:
        raise CimError(f"{file}: has no target above 0; expected one, as the largest is g_max")
    return float(target.max())


def _fit_devices(file: Path) -> NoiseFit:
    device, target, seconds, g = _columns(file, DEVICES)
    g_max = _largest(file, target)
    times = np.unique(seconds)
    order = np.lexsort((seconds, device))
    each = order.reshape(-1, len(times)) if len(order) % len(times) == 0 else order[:, None]
    whole = each.shape[1] == len(times) and (seconds[each] == times).all()
    if not whole or (np.diff(device[each], axis=1) != 0).any():
        raise CimError(
            f"{file}: its devices are not all read at the same times; expected one reading of each "
            f"at each of {len(times)} times"
        )
    if len(times) == 2:
        raise CimError(
            f"{file}: has readings at 2 times, which cannot tell drift from read noise; expected "
            "one time, or at least 3"
        )
    own, g = target[each], g[each]
    if (own != own[:, :1]).any():
        raise CimError(f"{file}: gives a device two targets; expected one")
    levels, level, counts = np.unique(own[:, 0], return_inverse=True, return_counts=True)
    for index in np.flatnonzero(counts < FEWEST):
        have = "1 device has" if counts[index] == 1 else f"{counts[index]} devices have"
        raise CimError(
            f"{file}: {have} the target {levels[index]:g}; expected at least {FEWEST} of each"
        )
    dynamic, reading, count = None, (0.0, 0.0), min(SIGMA_TERMS, len(levels))
    if len(times) > 1:
        dynamic = _dynamics(file, levels / g_max, level, np.log(times / times[0]), g)
        reading, count = dynamic.reading, count + len(dynamic.mean[0]) + 2
    scale = _scale(count)
    deviations = [
        _beside_read(*_deviation(g[level == k, 0], one), one, reading, scale)
        for k, one in enumerate(levels.tolist())
    ]
    sigma, error = np.array(deviations).T
    parameters, notes = _programming(levels, g_max, sigma, error, scale)
    if dynamic is not None:
        parameters += [
            *_coefficients("drift", "mean", dynamic.mean, scale),
            _deviation_of("drift", 0, *dynamic.drift, scale),
            _deviation_of("read", None, *dynamic.reading, scale),
        ]
        notes += _without_freedom("drift.mean", dynamic.targets, DRIFT_TERMS)
    t0, targets = float(times[0]) if len(times) > 1 else None, tuple(levels.tolist())
    return NoiseFit(file.name, tuple(parameters), g_max, t0, g.size, targets, tuple(notes))


def _without_freedom(key: str, targets: int, most: int) -> list[str]:
    """The warning that a polynomial with `most` terms meets each of so few targets, if it does."""
    if targets > most:
        return []
    few = "1 target leaves" if targets == 1 else f"{targets} targets leave"
    return [
        f"warning: {few} {key} no freedom: it meets each of them, and may be wrong between them; "
        f"measure {most + 1} targets or more"
    ]


PolynomialFit = tuple[FloatArray, FloatArray]
"""Coefficients from x^0 on [n], and their covariance [n, n]."""


@dataclass(frozen=True)
class _Dynamics:
    """Drift and read noise: the mean of nu, and variances of nu and of a reading with errors.

    `targets` are those whose drift is known.
    """

    mean: PolynomialFit
    drift: tuple[float, float]
    reading: tuple[float, float]
    targets: int


def _dynamics(
    file: Path, x: FloatArray, level: IntArray, later: FloatArray, g: FloatArray
) -> _Dynamics:
    """Fit ln g = ln g0 - nu ln(t / t0) device by device, `later` being ln(t / t0) [times]."""
    known = np.array([k for k in range(len(x)) if x[k] > 0 and (g[level == k] > 0).all()], np.int64)
    if not known.size:
        raise CimError(
            f"{file}: every target has readings of 0 or below, so drift cannot be fitted; expected "
            "a target without them"
        )
    held = np.isin(level, known)
    logs, level = np.log(g[held]), level[held]
    moved = later - later.mean()
    spread = float(moved @ moved)
    slope = logs @ moved / spread
    rest = logs - logs.mean(axis=1, keepdims=True) - slope[:, None] * moved
    freedom = len(logs) * (len(later) - 2)
    read = float((rest**2).sum()) / freedom
    read_error = max(read * math.sqrt(2 / freedom), ROUNDING**2)
    counts = np.array([(level == k).sum() for k in known])
    means = np.array([-slope[level == k].mean() for k in known])
    squares = np.array([slope[level == k].var(ddof=1) for k in known])
    errors = np.maximum(np.sqrt(squares / counts), ROUNDING)
    mean = _polynomial(x[known], means, errors, min(DRIFT_TERMS, len(known)))
    total = float(((counts - 1) * squares).sum() / (counts - 1).sum())
    error = total * math.sqrt(2 / float((counts - 1).sum()))
    variance = max(0.0, total - read / spread)
    error = math.hypot(error, read_error / spread)
    return _Dynamics(mean, (variance, error), (read, read_error), len(known))


def _deviation(g: FloatArray, target: float) -> tuple[float, float]:
    """The sigma of g = max(target + sigma z, 0), and its standard error.

    By maximum likelihood: of devices at 0 only that is known that they would be below.
    """
    from scipy.optimize import minimize_scalar  # slow to load
    from scipy.special import log_ndtr

    above = g[g > 0]
    below, off = len(g) - len(above), above - target
    square = float(off @ off)

    def loss(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        censored = below * float(log_ndtr(-target / sigma)) if below else 0.0
        return len(above) * log_sigma + square / (2 * sigma**2) - censored

    if square == 0:
        return 0.0, 0.0
    start = 0.5 * math.log(square / len(above))
    best = start
    if below and target > 0:
        ends = (start - 2, start + 3)
        best = float(minimize_scalar(loss, bounds=ends, method="bounded").x)
    step = 1e-3
    bend = (loss(best + step) - 2 * loss(best) + loss(best - step)) / step**2
    sigma = math.exp(best)
    return sigma, sigma / math.sqrt(max(bend, 1.0))


def _beside_read(
    sigma: float, error: float, target: float, reading: tuple[float, float], scale: float
) -> tuple[float, float]:
    """The part of sigma that is not read noise, and its standard error.

    It is the root of a difference of variances; of one below 0, as chance makes half of those that
    are 0, it is minus the root, so that a polynomial through several is not above them. The error
    is the farther end of the difference's interval, over `scale`: at 0 there is no tangent.
    """
    read, read_error = reading
    if read * target == 0:
        return sigma, error
    own = sigma**2 - read * target**2
    reach = scale * math.hypot(2 * sigma * error, read_error * target**2)
    low, middle, high = (
        math.copysign(math.sqrt(abs(one)), one) for one in (own - reach, own, own + reach)
    )
    return middle, max(middle - low, high - middle) / scale


def _polynomial(x: FloatArray, values: FloatArray, errors: FloatArray, terms: int) -> PolynomialFit:
    """Coefficients from x^0 on by weighted least squares, and their covariance."""
    powers = np.vander(x, terms, increasing=True)
    weights = 1 / errors**2
    normal: FloatArray = powers.T @ (powers * weights[:, None])
    covariance = np.linalg.inv(normal).astype(np.float64)
    coefficients: FloatArray = covariance @ (powers.T @ (weights * values))
    return coefficients, covariance


def _programming(
    target: FloatArray, g_max: float, sigma: FloatArray, error: FloatArray, scale: float
) -> tuple[list[Parameter], list[str]]:
    """The coefficients of programming.sigma, bound to at least 0 for x from 0 to 1, with notes.

    They are fitted to the `sigma` of each target, with their standard errors. The bound ones are
    nearest to the free ones c by their covariance L L': c + L L' A' u. A c are the values, and
    u >= 0 minimises the size of L' A' u + L^-1 c (its dual). The intervals are those of the free
    fit, widened to the bound values.
    """
    from scipy.optimize import nnls  # slow to load

    targets = len(np.unique(target))
    error = np.maximum(error, ROUNDING * g_max)
    fitted = _polynomial(target / g_max, sigma, error, min(SIGMA_TERMS, targets))
    free = _coefficients("programming", "sigma", fitted, scale)
    notes = _without_freedom("programming.sigma", targets, SIGMA_TERMS)
    coefficients, covariance = fitted
    grid = np.linspace(0.0, 1.0, 1001)
    values = np.asarray(polyval(grid, coefficients))
    if values.min() >= 0:
        return free, notes
    powers = np.vander(grid, len(coefficients), increasing=True)
    root = np.linalg.cholesky(covariance)
    dual, _ = nnls(root.T @ powers.T, -np.linalg.solve(root, coefficients))
    bound = coefficients + covariance @ (powers.T @ dual)
    rounding = 4 * float(np.finfo(np.float64).eps * np.abs(bound).sum())
    bound[0] += rounding - min(0.0, float(polyval(grid, bound).min()))
    found = [
        replace(one, value=value, low=min(one.low, value), high=max(one.high, value))
        for one, value in zip(free, bound.tolist(), strict=True)
    ]
    at = int(values.argmin())
    note = (
        f"warning: programming.sigma without a bound is {values[at]:.4g} uS at x = {grid[at]:.3g}, "
        "as read noise or too few devices hide it; it is limited to at least 0"
    )
    return found, [note, *notes]


def _coefficients(
    mechanism: str, name: str, fitted: PolynomialFit, scale: float
) -> list[Parameter]:
    """Coefficients with intervals of `scale` standard errors on each side."""
    coefficients, covariance = fitted
    errors = np.sqrt(np.diag(covariance))
    both = enumerate(zip(coefficients.tolist(), errors.tolist(), strict=True))
    return [
        Parameter(mechanism, name, power, value, value - scale * error, value + scale * error)
        for power, (value, error) in both
    ]


def _deviation_of(
    mechanism: str, power: int | None, variance: float, error: float, scale: float
) -> Parameter:
    """A sigma, whose interval is that of its variance."""
    ends = (variance, variance - scale * error, variance + scale * error)
    return Parameter(mechanism, "sigma", power, *(math.sqrt(max(0.0, end)) for end in ends))


def _scale(parameters: int) -> float:
    """Standard errors on each side, so that all intervals hold together (Bonferroni)."""
    from scipy.special import ndtri

    return float(ndtri(1 - (1 - CONFIDENCE) / (2 * parameters)))
