"""Loss `siamese`: pairs of a batch, of one class drawn together, of two classes held apart.

    mean over pairs of   balance z d^2 + (1 - balance) (1 - z) max(0, margin - d)

d is the distance of two points and z is 1 for two items of one class. Hadsell, Chopra and LeCun
(2006) square the hinge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.training.latent import Constraints, Prices, same_class
from cimtool.training.loss import Loss, Objective, Task, Terms
from cimtool.training.optimisation import Optimisation
from cimtool.training.options import not_negative, positive


@dataclass(frozen=True)
class Siamese(Loss, name="siamese"):
    """Pairs of two classes are held `margin` apart; `squared_hinge` squares what they lack.

    `balance`, between 0 and 1, is the weight of pairs of one class. `reconstruction` is that of the
    decoder's error and `kl` that of the Gaussians' divergence, where a model has them. A batch is
    made of `per_class` items of each class in turn.
    """

    needs_labels: ClassVar[bool] = True
    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=30, batch=100, learning_rate=1e-3, weight_decay=1e-4
    )

    margin: float = 4.0
    balance: float = 0.5
    squared_hinge: bool = False
    reconstruction: float = 0.1
    kl: float = 0.001
    per_class: int = 10

    def __post_init__(self) -> None:
        positive(self, "margin", "per_class")
        not_negative(self, "reconstruction", "kl")
        if not 0 < self.balance < 1:
            raise CimError(f"loss.balance is {self.balance:g}; expected a share between 0 and 1")

    def objective(self, task: Task) -> Objective:
        """Return the objective, which has no parameters; a decoder is the model's."""
        return _SiameseObjective(self, task)


class _SiameseObjective(Constraints):
    def __init__(self, options: Siamese, task: Task) -> None:
        super().__init__(task, Prices(options.reconstruction, options.kl))
        self.options = options

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        options = self.options
        same, other = same_class(labels)
        lacking = functional.relu(options.margin - distances)
        apart = lacking.square() if options.squared_hinge else lacking
        together = options.balance * distances.square()[same].sum()
        parted = (1 - options.balance) * apart[other].sum()
        near = (lacking[other] > 0).float().sum() / other.sum().clamp(min=1)
        pairs = len(labels) * (len(labels) - 1)
        return Terms({"siamese": (together + parted) / pairs}, {"wrong within margin": near})
