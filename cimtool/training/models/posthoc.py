"""Model `posthoc`: uncertainty for encoders that stay as they are.

mu is the row, of unit norm, whatever is trained. Without epochs the variance is one number for all
rows, and a and b of the score are solved: ranks are those of the cosine, and the probability is
calibrated. With epochs a linear layer gives each row a variance of its own. With
`variance = posterior` the variance of a row is that of a projection after the rows that train
(`cimtool.training.posterior`), in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import ValidationInfo, field_validator
from torch import Tensor, nn

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.training.model import ProjectorModel
from cimtool.training.options import Number, Text, choice, refused, within
from cimtool.training.pairs import Pairs
from cimtool.training.posterior import Posterior, PosteriorFit, UnitRows, fit_posteriors
from cimtool.training.sigmoid import fitted_sigmoid, right_pairs
from cimtool.training.towers import TwoTower, all_pairs_ed

RANKED = 1000
"""Videos at most whose distances make a and b."""

LEAST_DISTANCE = 1e-6
"""Least mean squared distance of right pairs that the variance is made of."""


class FrozenProjector(nn.Module):
    """The row itself, and one log-variance for all its dimensions; it starts as a constant."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.logvar = nn.Linear(width, 1)
        nn.init.zeros_(self.logvar.weight)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows `x` [n, d] and their log-variances [n, d]."""
        return x, self.logvar(x).expand(-1, x.shape[1])

    def unseen(self, variances: Tensor) -> Tensor:
        """Return the variances [n, d] of rows of the data as if each had not been seen."""
        return variances


class PosteriorProjector(nn.Module):
    """The row itself, and the variance of its projection: `|factor x|^2 spread`."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        width = len(posterior.spread)
        self.factor = nn.Linear(width, width, bias=False)
        self.spread = nn.ParameterDict({"weight": torch.empty(width)})
        self.requires_grad_(False)
        self.factor.weight.copy_(torch.from_numpy(posterior.factor))
        self.spread["weight"].copy_(torch.from_numpy(posterior.spread))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows `x` [n, d] and their log-variances [n, d]."""
        leverage = self.factor(x).square().sum(1, keepdim=True)
        return x, (leverage * self.spread["weight"]).log()

    def unseen(self, variances: Tensor) -> Tensor:
        """Return the variances [n, d] of rows of the data as if each had not been seen."""
        leverage = variances.sum(1, keepdim=True) / self.spread["weight"].double().sum()
        unseen: Tensor = variances / (1 - leverage)
        return unseen


TRAINED, POSTERIOR = "trained", "posterior"


class PosthocModel(ProjectorModel, name="posthoc"):
    """Rows as they are, with a variance; as many dimensions as the rows have.

    The variance starts so that right pairs are as far apart as their samples would be: the mean
    squared distance of right pairs that train, divided among both sides and all dimensions.
    `variance` is `trained`, by a layer if there are epochs, or the `posterior` of a projection.
    `prior` is the posterior's prior precision, alpha and beta as a share of the mean eigenvalue of
    their factor; 0 chooses it on rows that are left out, or one variance for all rows.
    """

    layout: ClassVar[str] = "frozen"
    head: ClassVar[str] = "csd"
    closed_form: ClassVar[bool] = True

    variance: Annotated[Text, choice((TRAINED, POSTERIOR))] = TRAINED
    prior: Annotated[
        Number,
        within(lambda value: not value or 1e-3 <= value <= 1e3, "0, or from 0.001 to 1000"),
    ] = 0.0

    @field_validator("prior")
    @classmethod
    def _of_a_posterior(cls, prior: float, info: ValidationInfo) -> float:
        variance = info.data.get("variance")
        if prior and variance == TRAINED:
            raise refused(
                f"is {prior:g}, and model.variance is {variance}; expected {POSTERIOR}, or 0"
            )
        return prior

    @property
    def solved_by(self) -> str:
        """The option of a posterior, which is solved."""
        return f"model.variance = {POSTERIOR}" if self.variance == POSTERIOR else ""

    def build(self, text: int, video: int) -> TwoTower:
        """Return the variance of each modality; CimError if the rows differ in width."""
        self.require_one_width(text, video)
        return TwoTower(FrozenProjector(text), FrozenProjector(video))

    def prepare(self, towers: TwoTower, pairs: Pairs) -> None:
        """Give rows the posterior's variance if it is asked for and predicts something.

        Otherwise all rows of both sides have the variance of right pairs.
        """
        distance = _right_distance(pairs)
        if self.variance == POSTERIOR and (fit := self._posteriors(pairs, distance)) is not None:
            towers.text_proj = PosteriorProjector(fit.text)
            towers.video_proj = PosteriorProjector(fit.video)
            return
        with torch.no_grad():
            for projector in (towers.text_proj, towers.video_proj):
                assert isinstance(projector, FrozenProjector)
                width = projector.logvar.in_features
                projector.logvar.bias.fill_(math.log(distance / (2 * width)))

    def score_scale(self, pairs: Pairs) -> Mapping[str, float]:
        """The a and b of sigmoid(b - a ed) for the variance that training starts from.

        Raises CimError if the rows differ in width, or are of one modality.
        """
        if pairs.alone:
            raise CimError(
                'holds items of one modality, and model "posthoc" compares right pairs of two; '
                "expected rows of two"
            )
        self.require_one_width(pairs.text.shape[1], pairs.video.shape[1])
        some = _ranked(pairs)
        sides = some.text.double(), some.video.double()
        nothing = [torch.zeros_like(one) for one in sides]
        ed = all_pairs_ed(sides[0], nothing[0], sides[1], nothing[1]) + _right_distance(pairs)
        return solved_sigmoid(ed.numpy(), some)

    def deployed_scale(self, towers: TwoTower, pairs: Pairs) -> Mapping[str, float]:
        """The a and b of sigmoid(b - a ed) for towers as they are."""
        some = _ranked(pairs)
        sides = []
        encoded = towers.encode(some.text, some.video)
        for projector, side in zip((towers.text_proj, towers.video_proj), encoded, strict=True):
            assert isinstance(projector, FrozenProjector | PosteriorProjector)
            mu, variances = side.double().moments
            sides += [mu, projector.unseen(variances)]
        return solved_sigmoid(all_pairs_ed(*sides).cpu().numpy(), some)

    def deployed(self) -> Mapping[str, Any]:
        """Nothing: the layout needs no value beside the weights."""
        return {}

    def remarks(self, towers: TwoTower, held: Pairs) -> tuple[str, ...]:
        """The sentence on a posterior that predicts nothing."""
        if self.variance == TRAINED or isinstance(towers.text_proj, PosteriorProjector):
            return ()
        return (
            "One variance for all rows is kept: with the posterior's, pairs of rows that are left "
            "out are told apart no better at any prior that was tried.",
        )

    def _posteriors(self, pairs: Pairs, distance: float) -> PosteriorFit | None:
        """The posteriors of the rows that train; None if they predict nothing."""
        some = _ranked(pairs)
        rows = UnitRows(some.text.double().numpy(), some.video.double().numpy(), right_pairs(some))
        text, video = pairs.text.double().numpy(), pairs.video.double().numpy()
        return fit_posteriors(text, video, rows, distance, self.prior or None)


def solved_sigmoid(ed: FloatArray, pairs: Pairs) -> dict[str, float]:
    """The a and b that calibrate ed [n, m] of all texts and videos of `pairs`."""
    together = right_pairs(pairs)
    a, b = fitted_sigmoid(ed[together], ed[~together])
    return {"a": a, "b": b}


def _right_distance(pairs: Pairs) -> float:
    apart = pairs.text.double() - pairs.video[pairs.right].double()
    return max(float(apart.square().sum(1).mean()), LEAST_DISTANCE)


def _ranked(pairs: Pairs) -> Pairs:
    """The pairs of the first RANKED videos at most."""
    return pairs.among((pairs.right < RANKED).numpy())
