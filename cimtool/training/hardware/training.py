"""A compiled model in training: it learns to give the logits of the float model again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.ir.arithmetic import Mvm, TensorKeys
from cimtool.ir.program import MODALITIES, Graph, as_inputs
from cimtool.loading.checkpoint import Checkpoint
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Simulator
from cimtool.training.hardware.compiled import Compiled, Compiler, Weights, rmse
from cimtool.training.hardware.forward import forward
from cimtool.training.hardware.page import CompiledEpoch, fine_tuning_page
from cimtool.training.hardware.parameters import with_tensors
from cimtool.training.hardware.plan import tensor
from cimtool.training.held_out import HELD_OUT, held_texts
from cimtool.training.history import Means
from cimtool.training.loss import Terms
from cimtool.training.optimisation import Optimisation
from cimtool.training.pairs import full_batches
from cimtool.training.trainer import Diverged, Trainable

MOST_HELD_OUT = 512
"""Videos that are held out to judge by, at most."""


@dataclass(frozen=True, eq=False)
class FineTuningJob:
    """A checkpoint, `keys` of its layers by modality and node, how it is compiled, and the rows
    that it learns from; `settings` are plain values for the history."""

    checkpoint: Checkpoint
    keys: Mapping[str, Mapping[str, TensorKeys]]
    compiler: Compiler
    rows: Embeddings
    optimisation: Optimisation
    seed: int
    settings: Mapping[str, Any]


class HardwareTraining(Trainable[IntArray, CompiledEpoch]):
    """The layers of a model, through what compilation made of them at the start of an epoch.

    A batch is rows of texts; `right` is the video that each text is trained beside. Raises CimError
    where there are fewer rows than a batch.
    """

    compiled: Compiled

    def __init__(self, job: FineTuningJob) -> None:
        self.job, self.settings = job, job.settings
        self.rng = np.random.default_rng(job.seed)
        self.draws = torch.Generator().manual_seed(job.seed)
        self.right, self.learn, self.held = split_rows(job.rows, self.rng)
        if len(self.learn) < job.optimisation.batch:
            raise ArgumentError(
                "{}: {batch} is {} and there are {} texts to learn from; expected a batch of at "
                "most as many",
                job.rows.file,
                job.optimisation.batch,
                len(self.learn),
            )
        program = job.compiler.program
        self.teacher = Simulator(program)
        self.rows = {"text": job.rows.text, "video": job.rows.video}
        self.features = {m: self.teacher.encode(m, rows) for m, rows in self.rows.items()}
        self.layers = {m: layer_tensors(getattr(program, m)) for m in MODALITIES}

    def parameters(self) -> Iterator[Tensor]:
        """Weight and bias of each layer, text first."""
        for layers in self.layers.values():
            for pair in layers.values():
                yield from pair

    def schedule(
        self, optimizer: torch.optim.Optimizer
    ) -> torch.optim.lr_scheduler.LRScheduler | None:
        """A cosine from the learning rate to 0."""
        optimisation = self.job.optimisation
        steps = optimisation.epochs * (len(self.learn) // optimisation.batch)
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def batches(self) -> Iterator[IntArray]:
        """Draw batches of texts."""
        return full_batches(self.rng.permutation(self.learn), self.job.optimisation.batch)

    def terms(self, batch: IntArray) -> Terms:
        """How far the compiled model's logits of all pairs of a batch are from the float ones."""
        videos = self.right[batch]
        features: dict[str, Tensor] = {}
        for modality, own in zip(MODALITIES, (batch, videos), strict=True):
            x = {"x": torch.from_numpy(self.rows[modality][own])}
            plan = self.compiled.plans[modality]
            found = forward(plan, x, self.layers[modality], self.draws)
            features |= as_inputs(modality, found)
        logits = forward(self.compiled.plans["score"], features, {}, self.draws)["logit"]
        wanted = torch.from_numpy(self._wanted(batch, videos)).float()
        return Terms({"distillation": distillation(logits, wanted)})

    def validated(self, number: int, means: Means | None) -> CompiledEpoch:
        """Compile the weights of this moment, and compare all pairs of held-out rows."""
        try:
            self.compiled = self.job.compiler.compile(self._weights())
        except CimError as error:
            if means is None:
                raise
            raise Diverged(f"{error}; a lower learning rate may help") from None
        videos = np.unique(self.right[self.held])
        rows = self.rows["text"][self.held], self.rows["video"][videos]
        logits = self.job.compiler.logits(self.compiled, *rows)
        distance = rmse(logits, self._wanted(self.held, videos))
        return CompiledEpoch(number, None if means is None else means.loss, distance)

    def checkpoint(self, epoch: CompiledEpoch) -> dict[str, Any]:
        """The checkpoint that it started from, with new weights and biases of layers."""
        new = {}
        for modality, layers in self._weights().items():
            for node, (weight, bias) in layers.items():  # none of a variance that no score reads
                keys = self.job.keys[modality][node]
                new[keys.weight] = weight
                if keys.bias is not None:
                    new[keys.bias] = bias
        found: dict[str, Any] = with_tensors(self.job.checkpoint.content, new)
        return found

    def page(self, history: Sequence[CompiledEpoch], stopped: str | None) -> str:
        """The error by epoch."""
        return fine_tuning_page(self.settings, history, stopped)

    def _weights(self) -> dict[str, Weights]:
        """Copies of the weights, by modality and layer."""
        return {
            modality: {
                name: (weight.detach().numpy().copy(), bias.detach().numpy().copy())
                for name, (weight, bias) in layers.items()
            }
            for modality, layers in self.layers.items()
        }

    def _wanted(self, text: IntArray, video: IntArray) -> Array:
        """The float model's logits [n, m] of rows by number."""
        queries, items = (
            {name: value[rows] for name, value in self.features[modality].items()}
            for modality, rows in zip(MODALITIES, (text, video), strict=True)
        )
        return self.teacher.score(queries, items)


def distillation(logits: Tensor, wanted: Tensor) -> Tensor:
    """Return how far logits [n, m] are from those wanted, as the sum of two parts.

    log(1 + e / v), e the mean square difference and v the variance of all logits wanted; and the
    divergence in nats of the softmax over a text's videos from the one wanted, plus that over a
    video's texts, each a mean. The logarithm keeps an error that all logits share, which ranks
    nothing and may be many times their spread, from outweighing the rankings.
    """
    squares = functional.mse_loss(logits, wanted) / wanted.var(correction=0)
    ways = (logits, wanted), (logits.T, wanted.T)
    return torch.log1p(squares) + sum((_divergence(*way) for way in ways), torch.zeros(()))


def _divergence(logits: Tensor, wanted: Tensor) -> Tensor:
    found, target = (x.log_softmax(dim=1) for x in (logits, wanted))
    return functional.kl_div(found, target, reduction="batchmean", log_target=True)


def split_rows(data: Embeddings, rng: np.random.Generator) -> tuple[IntArray, IntArray, IntArray]:
    """The video beside each text, and the texts to learn from and to judge by: no video is in both.

    Where the right video of a text is not known a random one stands beside it: the loss looks at
    all pairs of a batch alike. Raises CimError for too few rows.
    """
    texts, videos = len(data.text), len(data.video)
    right = data.text_to_video
    if right is None:
        right = rng.integers(videos, size=texts)
    held = held_texts(right, np.arange(videos), min(MOST_HELD_OUT, int(HELD_OUT * videos)), rng)
    if not held.any() or held.all():
        raise CimError(
            f"{data.file}: {texts} texts and {videos} videos are too few to hold some of them out; "
            "expected 10 or more"
        )
    return right, np.flatnonzero(~held), np.flatnonzero(held)


def layer_tensors(graph: Graph) -> dict[str, tuple[Tensor, Tensor]]:
    """The layers' weights and biases as float32 tensors that want gradients."""
    return {
        node.name: (
            tensor(node.op.weight.T).requires_grad_(),
            tensor(node.op.bias).requires_grad_(),
        )
        for node in graph.nodes
        if isinstance(node.op, Mvm)
    }
