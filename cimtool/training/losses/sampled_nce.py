"""Loss `sampled-nce`: InfoNCE of matching probabilities by sampling, with variances kept alive.

    L = -1/n sum_i (log(p_ii / sum_j p_ij) + log(p_ii / sum_j p_ji))
        - match (mean over right pairs of log p + mean over wrong pairs of log(1 - p))

p is the probability that `soft-contrastive` estimates, from samples z = mu + sigma noise. InfoNCE
asks which item is right, of several right ones for any; a sum over all pairs asks mostly which ones
are wrong, and with few right ones it presses the variance down. `match` holds the level of p, which
InfoNCE leaves free. The KL to N(0, 1), the information bottleneck of PCME (Chun et al., CVPR 2021),
keeps variances from vanishing.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from cimtool.training.loss import Batch, Objective, Terms
from cimtool.training.losses.info_nce import info_nce, variance_regulariser
from cimtool.training.losses.pairwise import SamplingObjective, SoftContrastive, right_and_wrong
from cimtool.training.options import Count, NotNegative, Number, Optimisation
from cimtool.training.towers import Encoded


class _SampledNceObjective(SamplingObjective):
    options: SampledNce

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        options = self.options
        log_p, log_1mp = self.logs(text, video)
        told = batch.items, batch.right
        return Terms(
            {
                "info_nce": info_nce(log_p, 1.0, *told),
                "match": options.match * balanced(log_p, log_1mp, *told),
                "variance": variance_regulariser(text, video, options.variance),
            }
        )


def balanced(
    log_p: Tensor, log_1mp: Tensor, items: Tensor | None = None, several: Tensor | None = None
) -> Tensor:
    """Return the cross-entropy of log p and log(1-p) [n, n], right and wrong pairs weighed alike.

    `right_and_wrong` tells them apart.
    """
    right, wrong = right_and_wrong(log_p, log_1mp, items, several)
    return -(right.mean() + wrong.mean())


class SampledNce(SoftContrastive, name="sampled-nce"):
    """InfoNCE of log p by `samples` draws a side, `match` times the balanced cross-entropy of p.

    `variance` weighs the KL to N(0, 1). `b` should be about a times the squared distance of two
    samples: with d dimensions and variances about 1 that is 2 a d.
    """

    module: ClassVar[type[Objective]] = _SampledNceObjective
    optimisation: ClassVar[Optimisation] = Optimisation(batch=256, learning_rate=1e-3)

    b: Number = 25.0
    samples: Count = 4
    match: NotNegative = 0.1
    variance: NotNegative = 0.3
