"""Base of the models: classes that build two towers and know how they are deployed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, ValidationInfo
from torch import nn

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.named import Named
from cimtool.training.linear_start import LinearFit
from cimtool.training.options import Flag, Options, Text, choice, refused
from cimtool.training.pairs import Pairs
from cimtool.training.towers import TwoTower

ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "leaky-relu": nn.LeakyReLU,
    "none": nn.Identity,
}
"""Activations by the names that checkpoints give them."""

Activation = Annotated[Text, choice(ACTIVATIONS)]

WIDTHS = (64, 128, 256, 512, 1024, 2048)
"""The widths of hidden layers that are chosen from."""

FEW_PAIRS = 2000
"""Training pairs of two modalities up to which linear maps are where a model starts, or beside it.

Random weights learn less from so few than the maps have (docs/training.md).
"""

LINEAR_DIMENSIONS = 128
"""Dimensions of linear maps at most, unless a model says its own; narrower rows have fewer."""

WEIGHTS = 2.0
"""Weights of a model for each number of the rows that train it, at most."""


def widest(weights: Callable[[int], int], numbers: int) -> int:
    """Return the largest of WIDTHS at which a model keeps to WEIGHTS, or the smallest of all.

    `weights` counts those of both towers by the width of the hidden layers, `numbers` those of the
    rows.
    """
    return max((h for h in WIDTHS if weights(h) <= WEIGHTS * numbers), default=WIDTHS[0])


def _passes_rows_on(value: bool, info: ValidationInfo) -> bool:
    if value and info.data.get("activation") == "tanh":
        raise refused("is true, and model.activation is tanh; expected relu, leaky-relu or none")
    if value and info.data.get("hidden") == 1:
        raise refused("is true, and model.hidden is 1; expected 2 units or more")
    return value


LinearMaps = Annotated[Flag, AfterValidator(_passes_rows_on)]
"""An option `linear`, refused if the options before it would not pass linear maps on."""


class ProjectorModel(Options, Named):
    """Base of the models; a subclass in `cimtool/training/models/` is found by itself.

    Its fields are its options, each with a default, set as `model.<field>`.
    """

    kind: ClassVar[str] = "model"
    layout: ClassVar[str]
    """The layout of `cimtool.loading` that reads what is saved; it knows whether rows have unit
    norm and what ed and vd are divided by."""
    head: ClassVar[str] = "pcme-poly"
    """The head that the model is deployed with."""
    has_variance: ClassVar[bool] = True
    """True if the towers give `logvar` beside `mu`."""
    one_modality: ClassVar[bool] = False
    """True if both towers are one encoder of items, so that data are of one modality."""
    starts_from_rows: ClassVar[bool] = False
    """True if `mu` is the row as it is before training."""
    closed_form: ClassVar[bool] = False
    """True if the start is the model, so that nothing is trained unless epochs are asked for."""

    def deployed(self) -> Mapping[str, Any]:
        """Plain values that the layout needs beside the weights, such as an activation."""
        activation = getattr(self, "activation", None)
        return {} if activation is None else {"activation": activation}

    @abstractmethod
    def build(self, text: int, video: int) -> TwoTower:
        """Return untrained towers for rows of these widths; CimError for widths that do not fit.

        Whatever is drawn is drawn from torch's global generator.
        """

    @property
    def start_dimensions(self) -> int:
        """Dimensions of the linear maps that `begin` takes; 0 if training starts at random."""
        return 0

    @property
    def solved_by(self) -> str:
        """The option for which nothing can be trained, for an error; empty if it is not set."""
        return ""

    def for_few_pairs(self, given: Collection[str], text: int, video: int) -> Self:
        """The same model for few pairs of two modalities: started from linear maps if it can.

        Options that are `given` stay; `text` and `video` are the widths of rows.
        """
        return self

    def begin(self, towers: TwoTower, fit: LinearFit, pairs: Pairs) -> None:
        """Make untrained towers the linear maps; not called without `start_dimensions`."""
        raise NotImplementedError

    def prepare(self, towers: TwoTower, pairs: Pairs) -> None:
        """Set untrained towers by the pairs that train; most models leave them as drawn."""

    def score_scale(self, pairs: Pairs) -> Mapping[str, float]:
        """The a and b that a loss takes unless the user gives them; empty to leave the loss's."""
        return {}

    def deployed_scale(self, towers: TwoTower, pairs: Pairs) -> Mapping[str, float]:
        """The a and b of trained towers; empty if the loss or the user says them."""
        return {}

    def remarks(self, towers: TwoTower, held: Pairs) -> tuple[str, ...]:
        """Sentences on trained towers, in eval mode, and held-out pairs that end a run."""
        return ()

    @classmethod
    def sizes(cls, numbers: int, text: int, video: int) -> dict[str, Any]:
        """Options that follow the data if the user gives none.

        `numbers` are those of all rows that train, `text` and `video` the widths of rows.
        """
        return {}

    @classmethod
    def options_of(cls, text: Mapping[str, Array], video: Mapping[str, Array]) -> dict[str, Any]:
        """The options that show in the weights of saved towers, by their keys."""
        return {}

    def require_one_width(self, text: int, video: int) -> None:
        """Raise CimError if rows of texts and videos differ in width."""
        if text != video:
            raise CimError(
                f'the two sides have rows of {text} and {video} numbers; model "{self.name}" '
                "expects equal widths"
            )
