"""Loss `reconstruction`: a plain autoencoder, which no constraint holds: the baseline of those.

L = mean over items of |decoded - row|^2 / 2 + kl KL(N(mu, s) || N(0, 1))
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Loss, Objective, Task, Terms
from cimtool.training.losses.constraints import drawn, kl_to_standard, squared_error
from cimtool.training.options import NotNegative, Optimisation
from cimtool.training.towers import Encoded, all_pairs_ed


class _ReconstructionObjective(Objective):
    options: Reconstruction

    def __init__(self, options: Reconstruction, task: Task) -> None:
        super().__init__(options, task)
        if task.decoder is None:
            raise CimError(
                'loss "reconstruction" needs a decoder, and the model has none; expected model '
                "autoencoder or variational-autoencoder"
            )

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        assert self.task.decoder is not None
        terms = {"reconstruction": squared_error(self.task.decoder(drawn(text)), batch.text)}
        if text.logvar is not None:
            terms["kl"] = self.options.kl * kl_to_standard(*text.gaussian)
        return Terms(terms)

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        return -all_pairs_ed(*text.moments, *video.moments)


class Reconstruction(Loss, name="reconstruction"):
    """Half the squared error of the decoder, and `kl` times the divergence of the Gaussians.

    Labels only choose the epoch. Beside the reconstruction `kl` weighs what it does in the losses
    with constraints.
    """

    optimisation: ClassVar[Optimisation] = Optimisation(
        epochs=30, batch=100, learning_rate=1e-3, weight_decay=1e-4
    )
    module: ClassVar[type[Objective]] = _ReconstructionObjective

    kl: NotNegative = 0.01
