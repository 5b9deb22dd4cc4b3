"""Operations of trained models and their scores that no CIM hardware has.

`fold` and `lower` take them away.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir.arithmetic import Mul
from cimtool.ir.op import Level, Op
from cimtool.ir.surrogate import Polynomial
from cimtool.ir.types import Type, product_bounds, real, rows_of_item

LN2 = math.log(2)

NO_WEIGHT = -746.0
"""From here down `exp` is 0 in float64."""


class Unbounded(Op):
    """Base of the operations whose bounds do not follow from the bounds of the input."""

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape)


@dataclass(frozen=True, eq=False)
class BatchNorm(Unbounded, name="batch_norm", levels={Level.TRAINED}):
    """Batch normalisation at inference: `(x - mean) / sqrt(var + eps) * gamma + beta`."""

    gamma: Array
    beta: Array
    mean: Array
    var: Array
    eps: float

    @property
    def factor(self) -> Array:
        """`gamma / sqrt(var + eps)`, per channel."""
        return self.gamma / np.sqrt(self.var + self.eps)

    def run(self, *inputs: Array) -> Array:
        return (inputs[0] - self.mean) * self.factor + self.beta


class Monotone(Op):
    """Base of the functions of single numbers that rise everywhere."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        with np.errstate(over="ignore"):  # a bound beyond float64 is none
            return real(x.shape, self.run(x.lo), self.run(x.hi))


@dataclass(frozen=True, eq=False)
class Exp(Monotone, name="exp", levels=Level.TRAINED.to(Level.FLOAT)):
    """`exp(x)`: from log-variance to variance."""

    def run(self, *inputs: Array) -> Array:
        return np.exp(inputs[0])


@dataclass(frozen=True, eq=False)
class Tanh(Monotone, name="tanh", levels=Level.TRAINED.to(Level.FLOAT)):
    """The hyperbolic tangent."""

    def run(self, *inputs: Array) -> Array:
        return np.tanh(inputs[0])


@dataclass(frozen=True, eq=False)
class Sigmoid(Monotone, name="sigmoid", levels=Level.TRAINED.to(Level.FLOAT)):
    """`1 / (1 + exp(-x))`, as `(1 + tanh(x / 2)) / 2`, which cannot overflow."""

    def run(self, *inputs: Array) -> Array:
        return 0.5 + 0.5 * np.tanh(0.5 * inputs[0])


@dataclass(frozen=True, eq=False)
class Erf(Monotone, name="erf", levels=Level.TRAINED.to(Level.FLOAT)):
    """The error function, of which GELU is made: `x (1 + erf(x / sqrt(2))) / 2`."""

    def run(self, *inputs: Array) -> Array:
        from scipy.special import erf  # slow to load, and every command imports this

        value: Array = erf(inputs[0])
        return value


@dataclass(frozen=True, eq=False)
class Softplus(Monotone, name="softplus", levels=Level.TRAINED.to(Level.FLOAT)):
    """`log(1 + exp(x))`."""

    def run(self, *inputs: Array) -> Array:
        value: Array = np.logaddexp(0.0, inputs[0])
        return value


@dataclass(frozen=True, eq=False)
class Elu(Monotone, name="elu", levels=Level.TRAINED.to(Level.FLOAT)):
    """`x` above 0, `alpha (exp(x) - 1)` below, with alpha above 0."""

    alpha: float

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        return np.maximum(x, 0.0) + self.alpha * np.expm1(np.minimum(x, 0.0))


@dataclass(frozen=True, eq=False)
class Log(Unbounded, name="log", levels=Level.TRAINED.to(Level.FLOAT)):
    """The natural logarithm."""

    def run(self, *inputs: Array) -> Array:
        return np.log(inputs[0])


@dataclass(frozen=True, eq=False)
class LogGamma(Unbounded, name="log_gamma", levels=Level.TRAINED.to(Level.FLOAT)):
    """The logarithm of the gamma function, of numbers above 0."""

    def run(self, *inputs: Array) -> Array:
        from scipy.special import gammaln  # slow to load, and every command imports this

        value: Array = gammaln(inputs[0])
        return value


@dataclass(frozen=True, eq=False)
class Sqrt(Op, name="sqrt", levels=Level.TRAINED.to(Level.FLOAT)):
    """The square root of numbers of at least 0."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        return real(x.shape, 0.0, np.sqrt(np.maximum(x.hi, 0.0)))

    def run(self, *inputs: Array) -> Array:
        return np.sqrt(inputs[0])


@dataclass(frozen=True, eq=False)
class InverseRoot(Unbounded, name="inverse_root", levels=Level.TRAINED.to(Level.FLOAT)):
    """`1 / sqrt(x)` of numbers above 0."""

    def run(self, *inputs: Array) -> Array:
        return 1 / np.sqrt(inputs[0])


@dataclass(frozen=True, eq=False)
class Power(Unbounded, name="power", levels=Level.TRAINED.to(Level.FLOAT)):
    """`x` to a constant exponent; of numbers above 0 if it is no whole one."""

    exponent: float

    def run(self, *inputs: Array) -> Array:
        return np.power(inputs[0], self.exponent)


@dataclass(frozen=True, eq=False)
class Reciprocal(Unbounded, name="reciprocal", levels=Level.TRAINED.to(Level.FLOAT)):
    """`1 / x`."""

    def run(self, *inputs: Array) -> Array:
        return np.reciprocal(inputs[0])


@dataclass(frozen=True, eq=False)
class Abs(Op, name="abs", levels=Level.TRAINED.to(Level.FLOAT)):
    """`|x|`."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        return real(x.shape, 0.0, np.maximum(np.abs(x.lo), np.abs(x.hi)))

    def run(self, *inputs: Array) -> Array:
        return np.abs(inputs[0])


@dataclass(frozen=True, eq=False)
class Gate(Mul, name="gate", levels=Level.TRAINED.to(Level.FLOAT)):
    """Element by element product of two activations, as gates have it."""


@dataclass(frozen=True, eq=False)
class LeakyRelu(Monotone, name="leaky_relu", levels=Level.TRAINED.to(Level.FLOAT)):
    """`x` above 0, `slope * x` below, with a slope above 0."""

    slope: float

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        return np.maximum(x, 0.0) + self.slope * np.minimum(x, 0.0)


class Normalization(Op):
    """Base of the operations that divide rows by a norm: calibration sees its squares."""

    @abstractmethod
    def squared_norms(self, x: Array) -> Array:
        """The squares [n] of what rows are divided by, for inputs `x` [n, d]."""


@dataclass(frozen=True, eq=False)
class L2Normalize(Normalization, name="l2_normalize", levels=Level.TRAINED.to(Level.FLOAT)):
    """Rows divided by their Euclidean norm, or by `least` if that is larger."""

    least: float = 0.0

    def infer(self, *inputs: Type) -> Type:
        return real(inputs[0].shape, -1.0, 1.0)

    def squared_norms(self, x: Array) -> Array:
        return np.asarray(np.maximum(np.square(x).sum(axis=-1), self.least**2))

    def run(self, *inputs: Array) -> Array:
        norms: Array = np.linalg.norm(inputs[0], axis=-1, keepdims=True)
        return inputs[0] / np.maximum(norms, self.least)


@dataclass(frozen=True, eq=False)
class LayerNorm(Normalization, name="layer_norm", levels=Level.TRAINED.to(Level.FLOAT)):
    """Each row to mean 0 and variance 1, then a gain and an offset a channel.

    `(x - mean) / sqrt(var + eps) * gamma + beta`, mean and (biased) variance over the row. That is
    the centred row over its norm, with `d eps` in it, times `gamma sqrt(d)`.
    """

    gamma: Array
    beta: Array
    eps: float

    @property
    def factor(self) -> Array:
        """`gamma sqrt(d)`, per channel."""
        return np.asarray(self.gamma * np.sqrt(self.gamma.size))

    def squared_norms(self, x: Array) -> Array:
        width = x.shape[-1]
        return np.asarray(width * (x.var(axis=-1) + self.eps))

    def infer(self, *inputs: Type) -> Type:
        # One number of d is at most sqrt(d - 1) standard deviations from their mean.
        reach = np.abs(self.gamma) * np.sqrt(self.gamma.size - 1)
        return real(inputs[0].shape, self.beta - reach, self.beta + reach)

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        centred = x - x.mean(axis=-1, keepdims=True)
        unit: Array = centred / np.sqrt(self.squared_norms(x))[..., None]
        return unit * self.factor + self.beta


@dataclass(frozen=True, eq=False)
class RmsNorm(Normalization, name="rms_norm", levels=Level.TRAINED.to(Level.FLOAT)):
    """Each row to mean square 1, then a gain a channel: `x / sqrt(mean x^2 + eps) * gamma`."""

    gamma: Array
    eps: float

    @property
    def factor(self) -> Array:
        """`gamma sqrt(d)`, per channel."""
        return np.asarray(self.gamma * np.sqrt(self.gamma.size))

    def squared_norms(self, x: Array) -> Array:
        return np.asarray(np.square(x).sum(axis=-1) + x.shape[-1] * self.eps)

    def infer(self, *inputs: Type) -> Type:
        reach = np.abs(self.factor)
        return real(inputs[0].shape, -reach, reach)

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        return x / np.sqrt(self.squared_norms(x))[..., None] * self.factor


@dataclass(frozen=True, eq=False)
class Softmax(Op, name="softmax", levels=Level.TRAINED.to(Level.FLOAT)):
    """`exp(x + mask)` over its sum along each row.

    Of attention `mask` [rows of an item, d], or [1, d] if it is the same for all rows, is 0
    if a number counts and NO_WEIGHT, or less, if it does not; None if all count.
    """

    mask: Array | None = None

    @property
    def rows(self) -> int:
        """The rows of an item that the mask differs in."""
        return 1 if self.mask is None else len(self.mask)

    @property
    def counted(self) -> Array:
        """Truths [rows, d]: True if a number of a masked row counts."""
        return np.asarray(self.mask == 0)

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if self.mask is not None:
            rows, width = rows_of_item(x.shape[0])[0], int(x.shape[-1])
            if self.mask.ndim != 2 or self.mask.shape[1] != width or rows % self.rows:
                raise ValueError(f"a mask of {self.mask.shape} for {rows} rows of {width}")
            if not ((self.mask == 0) | (self.mask <= NO_WEIGHT)).all():
                raise ValueError(f"a mask is neither 0 nor {NO_WEIGHT:g} or less")
            if not self.counted.any(axis=1).all():
                raise ValueError("a mask has a row in which no number counts")
        return real(x.shape, 0.0, 1.0)

    def run(self, *inputs: Array) -> Array:
        (x,) = inputs
        if self.mask is not None:
            x = (x.reshape(-1, *self.mask.shape) + self.mask).reshape(x.shape)
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def counted_places(counted: Array) -> Array:
    """The places [rows, d] of an item's numbers that count.

    A number that does not count has the place of the first one of its row that does.
    """
    rows, width = counted.shape
    columns = np.where(counted, np.arange(width), counted.argmax(axis=1)[:, None])
    return np.asarray(np.arange(rows)[:, None] * width + columns)


@dataclass(frozen=True, eq=False)
class Sorted(Op, name="sorted", levels=Level.TRAINED.to(Level.FLOAT)):
    """The numbers of each row in descending order."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        return real(x.shape, np.min(x.lo), np.max(x.hi))

    def run(self, *inputs: Array) -> Array:
        return np.sort(inputs[0], axis=-1)[..., ::-1]


@dataclass(frozen=True, eq=False)
class LinearScore(Op):
    """Base of scores that are `factor * x + offset` of a statistic x [n, m]."""

    factor: float = 1.0
    offset: float = 0.0

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        lo, hi = product_bounds((np.asarray(self.factor),) * 2, (x.lo, x.hi))
        return real(x.shape, lo + self.offset, hi + self.offset)

    def run(self, *inputs: Array) -> Array:
        return self.factor * inputs[0] + self.offset


@dataclass(frozen=True, eq=False)
class DistanceScore(LinearScore, name="distance_score", levels=Level.TRAINED.to(Level.FLOAT)):
    """`factor * ed + offset` of a squared distance [n, m]."""

    scores_statistics = True


@dataclass(frozen=True, eq=False)
class CosineScore(LinearScore, name="cosine_score", levels=Level.TRAINED.to(Level.FLOAT)):
    """`factor * c + offset` of the inner products c [n, m] of rows at unit norm."""


@dataclass(frozen=True, eq=False)
class Inclusion(Unbounded, name="inclusion", levels=Level.TRAINED.to(Level.FLOAT)):
    """ProLIP's test of v against t less that of t against v [n, m]: above 0 if v is inside t.

    It is `inclusion_test` of its public code, see head `inclusion`. Inputs are mu_t, l_t [n, d],
    mu_v, l_v [m, d]; l are log-variances. Each dimension gives
    `prior(l_t, l_v) - (mu_t - mu_v)^2 weight(l_t, l_v)`.
    """

    holds_dimensions = True

    @staticmethod
    def prior(l_t: Array, l_v: Array) -> Array:
        """The part without means: `log((2 s_v + s_t) / (s_v + 2 s_t)) / 2 - (l_v - l_t)`."""
        u = l_v - l_t
        ends: Array = (np.logaddexp(u, -LN2) - np.logaddexp(u - LN2, 0.0)) / 2 - u
        return ends

    @staticmethod
    def weight(l_t: Array, l_v: Array) -> Array:
        """`(s_v - s_t) / ((s_v + 2 s_t) (2 s_v + s_t))`."""
        u = l_v - l_t
        ratio: Array = 2 * np.sinh(u / 2) / (5 + 4 * np.cosh(u))
        return ratio * np.exp(-(l_t + l_v) / 2)

    def infer(self, *inputs: Type) -> Type:
        mu_t, l_t, mu_v, l_v = (x.shape for x in inputs)
        if (mu_t, mu_v) != (l_t, l_v) or mu_t[1:] != mu_v[1:]:
            raise ValueError("means and log-variances of both sides are not of one extent")
        return real((mu_t[0], mu_v[0]))

    def run(self, *inputs: Array) -> Array:
        mu_t, l_t, mu_v, l_v = inputs
        total: Array = l_t.sum(axis=1)[:, None] - l_v.sum(axis=1)
        # One dimension of all pairs at a time: all of them would take d times the memory.
        for mu, s, nu, t in zip(mu_t.T, np.exp(l_t).T, mu_v.T, np.exp(l_v).T, strict=True):
            s = s[:, None]
            above, below = 2 * t + s, t + 2 * s
            square = np.square(mu[:, None] - nu)
            total += np.log(above / below) / 2 - square * (t - s) / (above * below)
        return total


@dataclass(frozen=True, eq=False)
class ProbitScore(Unbounded, name="probit_score", levels=Level.TRAINED.to(Level.FLOAT)):
    """`m / sqrt(1 + pi/8 v)`: E[sigmoid(z)] as a logit, for z of mean m and variance v, nearly.

    m = `factor` c + `offset` and v = `factor`^2 var, of a similarity of mean c and variance var,
    each [n, m] (MacKay 1992, doi 10.1162/neco.1992.4.5.720).
    """

    factor: float
    offset: float = 0.0

    scores_statistics = True

    @property
    def spread(self) -> float:
        """The factor of the variance under the root: `pi/8 factor^2`."""
        return math.pi / 8 * self.factor**2

    def run(self, *inputs: Array) -> Array:
        mean, variance = inputs
        return (self.factor * mean + self.offset) / np.sqrt(1 + self.spread * variance)


@dataclass(frozen=True, eq=False)
class PolynomialScore(Unbounded, name="polynomial_score", levels=Level.TRAINED.to(Level.FLOAT)):
    """The trained polynomial of ed and vd less its line, each [n, m]: the surrogate of the logit.

    `line` is its start and its slope over ed, None if vd is taken as it is. `fitted` are the ends
    of the ranges of the inputs that the polynomial was fitted on, two an input, none if they are
    not known. A polynomial that does not read vd has ed as its only input.
    """

    degree: int
    coeff: tuple[float, ...]
    bias: float
    scale_ed: float
    scale_vd: float
    line: tuple[float, float] | None
    fitted: tuple[float, ...]

    scores_statistics = True

    @property
    def polynomial(self) -> Polynomial:
        """The coefficients as a function of (ed, vd)."""
        return Polynomial(self.degree, self.coeff, self.bias, self.scale_ed, self.scale_vd)

    def run(self, *inputs: Array) -> Array:
        ed, vd = inputs if len(inputs) > 1 else (inputs[0], np.zeros_like(inputs[0]))
        return self.polynomial.evaluate(ed, vd, self.line)
