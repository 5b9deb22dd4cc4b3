"""The loop: compile, judge, then an epoch of gradients through what the compilation decided."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.progress import Say
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import MODALITIES, Graph, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Simulator
from cimtool.training.hardware.compiled import Compiled, Compiler, Weights, rmse
from cimtool.training.hardware.forward import forward
from cimtool.training.hardware.objective import distillation
from cimtool.training.hardware.pairs import Pairs, pairs_of
from cimtool.training.hardware.plan import tensor
from cimtool.training.options import whole


@dataclass(frozen=True)
class FineTuning:
    """How a model is fine-tuned: AdamW without decay of weights, the rate falling as a cosine.

    Raises CimError for a number out of its range.
    """

    epochs: int = 5
    batch: int = 128
    learning_rate: float = 6e-5
    seed: int = 0

    def __post_init__(self) -> None:
        whole("epochs", self.epochs, 1)
        whole("batch", self.batch, 2)
        if not 0 < self.learning_rate < math.inf:
            raise ArgumentError("{learning_rate} is {:g}; expected more than 0", self.learning_rate)
        if not 0 <= self.seed < 2**63:
            raise ArgumentError("{seed} is {}; expected 0 to 2^63 - 1", self.seed)


@dataclass(frozen=True)
class Epoch:
    """The mean loss of an epoch, and the compiled model's logit RMSE on held-out rows after it.

    Epoch 0 is the start, before any step: its loss is None.
    """

    number: int
    loss: float | None
    rmse: float


@dataclass(frozen=True, eq=False)
class Best:
    """The weights with the least error, what each epoch came to, and why it ended early, if so."""

    weights: Mapping[str, Weights]
    history: tuple[Epoch, ...]
    stopped: str | None


def fine_tuned(compiler: Compiler, data: Embeddings, options: FineTuning, say: Say) -> Best:
    """Fine-tune the compiler's program; the weights whose compiled form errs least are kept.

    Stops at a loss that is not finite, and at weights that no longer compile. Raises CimError where
    there are fewer rows than a batch.
    """
    rng = np.random.default_rng(options.seed)
    learn, held = pairs_of(data, rng)
    if len(learn) < options.batch:
        raise ArgumentError(
            "{}: {batch} is {} and there are {} texts to learn from; expected a batch of at most "
            "as many",
            data.file,
            options.batch,
            len(learn),
        )
    steps = options.epochs * (len(learn) // options.batch)
    run = _Run(compiler, data, options, steps)
    history: list[Epoch] = []
    best: Mapping[str, Weights] = {}
    loss: float | None = None
    stopped = None
    for epoch in range(options.epochs + 1):
        start = time.perf_counter()
        weights = run.weights()
        try:
            compiled = compiler.compile(weights)
        except CimError as error:
            if epoch == 0:
                raise
            stopped = f"{error}; a lower learning rate may help"
            break
        history.append(Epoch(epoch, loss, run.error(compiled, held)))
        if history[-1] is best_epoch(history):
            best = weights
        found = f"compiled logit RMSE {history[-1].rmse:.4g} on {len(held)} held-out texts"
        if epoch == options.epochs:
            say(f"fine-tuned: {found}")
            break
        loss = run.epoch(compiled, learn.batches(options.batch, rng))
        took = time.perf_counter() - start
        say(f"epoch {epoch + 1} of {options.epochs}: {found}; loss {loss:.4g}, {took:.1f} s")
        if not math.isfinite(loss):
            stopped = f"epoch {epoch + 1}: the loss is {loss}; expected a lower learning rate"
            break
    return Best(best, tuple(history), stopped)


def best_epoch(history: Sequence[Epoch]) -> Epoch:
    """Return the first epoch of the least error."""
    return min(history, key=lambda epoch: epoch.rmse)


class _Run:
    """The weights that change, and what they learn from: rows and the float model's features."""

    def __init__(self, compiler: Compiler, data: Embeddings, options: FineTuning, steps: int):
        self.compiler = compiler
        self.rows = {"text": data.text, "video": data.video}
        self.teacher = Simulator(compiler.program)
        self.features = {m: self.teacher.encode(m, rows) for m, rows in self.rows.items()}
        self.parameters = {m: layer_tensors(getattr(compiler.program, m)) for m in MODALITIES}
        tensors = [t for own in self.parameters.values() for pair in own.values() for t in pair]
        self.optimizer = torch.optim.AdamW(tensors, lr=options.learning_rate, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, max(steps, 1))
        self.draws = torch.Generator().manual_seed(options.seed)

    def weights(self) -> dict[str, Weights]:
        """Copies of the weights, by modality and layer."""
        return {
            modality: {
                name: (weight.detach().numpy().copy(), bias.detach().numpy().copy())
                for name, (weight, bias) in own.items()
            }
            for modality, own in self.parameters.items()
        }

    def wanted(self, text: IntArray, video: IntArray) -> Array:
        """The float model's logits [n, m] of rows by number."""
        queries = {name: value[text] for name, value in self.features["text"].items()}
        items = {name: value[video] for name, value in self.features["video"].items()}
        return self.teacher.score(queries, items)

    def error(self, compiled: Compiled, held: Pairs) -> float:
        """The logit RMSE of the compiled model over all pairs of held-out texts and videos."""
        videos = np.unique(held.video)
        rows = self.rows["text"][held.text], self.rows["video"][videos]
        return rmse(self.compiler.logits(compiled, *rows), self.wanted(held.text, videos))

    def epoch(self, compiled: Compiled, batches: Iterator[tuple[IntArray, IntArray]]) -> float:
        """Take a step for each batch; return the mean loss, at once where it is not finite."""
        losses = []
        for text, video in batches:
            logits = self._logits(compiled, text, video)
            wanted = torch.from_numpy(self.wanted(text, video)).float()
            loss = distillation(logits, wanted)
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                break
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            self.schedule.step()
        return float(np.mean(losses))

    def _logits(self, compiled: Compiled, text: IntArray, video: IntArray) -> Tensor:
        features: dict[str, Tensor] = {}
        for modality, own in zip(MODALITIES, (text, video), strict=True):
            x = torch.from_numpy(self.rows[modality][own])
            found = forward(
                compiled.plans[modality], {"x": x}, self.parameters[modality], self.draws
            )
            features |= as_inputs(modality, found)
        return forward(compiled.plans["score"], features, {}, self.draws)["logit"]


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
