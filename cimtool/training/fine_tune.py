"""Fine-tuning: a trained model learns to give its own logits again once it is compiled.

The loss compares the logits that the compiled model would give for all pairs of a batch with those
of the float model, so it needs no labels. Formats, ranges and bias corrections come from a
compilation of the weights at the beginning of each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import sha256
from cimtool.base.progress import Say, silent
from cimtool.bundle.compilation import calibration_rows
from cimtool.bundle.dies import noise_of
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import SettingOptions
from cimtool.ir.arithmetic import Mvm, TensorKeys
from cimtool.ir.program import MODALITIES, Graph, as_inputs
from cimtool.loading.checkpoint import Checkpoint, is_float8, read_checkpoint, single
from cimtool.loading.embeddings import Embeddings, read_data
from cimtool.loading.model import Model
from cimtool.loading.provenance import KEY as PROVENANCE
from cimtool.loading.provenance import Provenance, provenance_of
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.simulation.die_program import Conditions
from cimtool.simulation.simulator import Simulator
from cimtool.training.arguments import FineTuneOptions
from cimtool.training.history import CompiledEpoch, Means
from cimtool.training.loss import Terms
from cimtool.training.options import MOST_EPOCHS, Optimisation, check_count, check_seed
from cimtool.training.page import fine_tuning_page
from cimtool.training.pairs import HELD_OUT, full_batches, held_texts
from cimtool.training.straight_through import Compiler, forward, tensor
from cimtool.training.trainer import (
    Diverged,
    Run,
    RunPlace,
    Trainable,
    Trainer,
    alone_to_train,
    check_new,
)

OPTIMISATION = Optimisation(epochs=5, batch=128, learning_rate=6e-5, weight_decay=0.0)
"""The usual one; the learning rate falls as a cosine."""

MOST_HELD_OUT = 512
"""Videos that are held out to judge by, at most."""


@dataclass(frozen=True, repr=False)
class FineTuningRun(Run[CompiledEpoch]):
    """A run that has fine-tuned a model; `remarks` are on it and on the rows that judged epochs."""

    remarks: tuple[str, ...]


def fine_tune_model(options: FineTuneOptions, say: Say) -> FineTuningRun:
    """Fine-tune the model of a checkpoint."""
    source, flags = ModelSource.of(options), options.part(SettingOptions)
    configuration = Configuration.of(options.target, options.settings, flags)
    optimisation = OPTIMISATION.given(vars(options))
    check_count("epochs", optimisation.epochs, 1, MOST_EPOCHS)
    place = RunPlace.of(Path(options.output))
    data, seed, noise = options.data, options.seed, options.noise
    check_new(place, resumable=False)
    check_seed(seed)
    if not isinstance(source.projectors, Path):
        raise CimError(f"{source}: only a checkpoint can be fine-tuned; expected one file")
    model = source.for_rows(data).load(say)
    checkpoint = read_checkpoint(source.projectors)
    keys = tensor_keys(model, checkpoint.file)
    rows = read_data(data, model)
    ranges = calibration_rows(read_data(options.calibration, model), [])
    facts = {
        "start": str(source),
        "hardware": configuration.target.name,
        "epochs": optimisation.epochs,
        "batch": optimisation.batch,
        "learning_rate": optimisation.learning_rate,
        "seed": seed,
        **{name: value for name, value in flags.items() if value is not None},
    }
    conditions = None
    if noise is not None:
        facts |= {"noise": str(noise.model or "the target's"), "time": noise.time}
        die_noise = noise_of(configuration.target, noise.model).at_corner(noise.corner)
        conditions = Conditions(die_noise, die_noise.seconds(noise.time), seed=seed)
    compiler = Compiler(model.program, Job(configuration.settings, *ranges, silent), conditions)
    training = HardwareTraining(checkpoint, keys, compiler, rows, optimisation, seed, facts)
    with alone_to_train(place):
        check_new(place, resumable=False)
        run = Trainer(training, optimisation, place, say).run()
    return FineTuningRun(**vars(run), remarks=(*model.warnings, *training.remarks))


@dataclass(eq=False)
class HardwareTraining(Trainable[IntArray, CompiledEpoch]):
    """The layers of a model, through what compilation made of them at the start of an epoch.

    They are tensors of `start` by `keys`, modality and node, and learn from `data` by the
    logits of the compiler's float program; `settings` are plain values for the history. A batch is
    rows of texts; `right` is the video that each text is trained beside. Raises CimError if
    there are fewer rows than a batch.
    """

    start: Checkpoint
    keys: Mapping[str, Mapping[str, TensorKeys]]
    compiler: Compiler
    data: Embeddings
    optimisation: Optimisation
    seed: int
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.draws = torch.Generator().manual_seed(self.seed)
        self.right, self.learn, self.held = split_rows(self.data, self.rng)
        if len(self.learn) < self.optimisation.batch:
            raise ArgumentError(
                "{}: {batch} is {} but only {} texts are for training; expected a batch of at most "
                "that",
                self.data.file,
                self.optimisation.batch,
                len(self.learn),
            )
        self.before = provenance_of(self.start.content, self.start.file)
        program = self.compiler.program
        self.teacher = Simulator(program)
        self.rows = {"text": self.data.text, "video": self.data.video}
        self.features = {m: self.teacher.encode(m, rows) for m, rows in self.rows.items()}
        self.layers = {m: layer_tensors(getattr(program, m)) for m in MODALITIES}

    @cached_property
    def provenance(self) -> Provenance:
        """The rows that it learns from, and those that the start was trained on."""
        videos = np.unique(self.right[self.learn])
        own = Provenance.of(self.data.text[self.learn], self.data.video[videos])
        return own.after(self.before, sha256(Path(self.start.file)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """The number of held-out pairs that the start was trained on, if any."""
        if self.before is None:
            return ()
        rows = self.data.text[self.held], self.data.video[self.right[self.held]]
        seen = int(self.before.known_pairs(*rows).sum())
        if not seen:
            return ()
        return (
            f"{self.start.file} was trained on {seen} of the {len(self.held)} pairs that choose "
            "the epoch; their error is not an error on unseen rows.",
        )

    def parameters(self) -> Iterator[Tensor]:
        """Weight and bias of each layer, text first."""
        for layers in self.layers.values():
            for pair in layers.values():
                yield from pair

    def schedule(
        self, optimizer: torch.optim.Optimizer
    ) -> torch.optim.lr_scheduler.LRScheduler | None:
        """A cosine from the learning rate to 0."""
        steps = self.optimisation.epochs * (len(self.learn) // self.optimisation.batch)
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def batches(self) -> Iterator[IntArray]:
        """Draw batches of texts."""
        return full_batches(self.rng.permutation(self.learn), self.optimisation.batch)

    def terms(self, batch: IntArray) -> Terms:
        """Distance of the compiled model's logits of all pairs of a batch from the float ones."""
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

    def validated(self, number: int, means: Means) -> CompiledEpoch:
        """Compile the weights of this moment, and compare all pairs of held-out rows."""
        try:
            self.compiled = self.compiler.compile(self.layers)
        except CimError as error:
            if not number:
                raise
            raise Diverged(f"{error}; a lower learning rate may help") from None
        videos = np.unique(self.right[self.held])
        rows = self.rows["text"][self.held], self.rows["video"][videos]
        errors = self.compiler.errors(self.compiled, *rows, self._wanted(self.held, videos))
        return CompiledEpoch(number, means.loss, *errors)

    def checkpoint(self, epoch: CompiledEpoch) -> dict[str, Any]:
        """The checkpoint that it started from, with new weights and biases of layers and rows."""
        new = {}
        for modality, layers in self.layers.items():
            for node, (weight, bias) in layers.items():  # none of a variance that no score reads
                keys = self.keys[modality][node]
                new[keys.weight] = weight.detach().numpy().copy()  # in C order, as it is saved
                if keys.bias is not None:
                    new[keys.bias] = bias.detach().numpy().copy()
        found: dict[str, Any] = with_tensors(self.start.content, new)
        found[PROVENANCE] = self.provenance.values()
        return found

    def page(self, history: Sequence[CompiledEpoch], stopped: str | None) -> str:
        """The error by epoch."""
        return fine_tuning_page(self.settings, history, stopped)

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
    total = torch.log1p(functional.mse_loss(logits, wanted) / wanted.var(correction=0))
    divergences = torch.zeros(())
    for ours, theirs in ((logits, wanted), (logits.T, wanted.T)):
        log_p, log_q = ours.log_softmax(dim=1), theirs.log_softmax(dim=1)
        divergences = divergences + functional.kl_div(
            log_p, log_q, reduction="batchmean", log_target=True
        )
    return total + divergences


def split_rows(data: Embeddings, rng: np.random.Generator) -> tuple[IntArray, IntArray, IntArray]:
    """The video beside each text, and the texts to learn from and to judge by: no video is in both.

    If the right video of a text is not known a random one stands beside it: the loss looks at
    all pairs of a batch alike. Raises CimError for too few rows.
    """
    texts, videos = len(data.text), len(data.video)
    right = data.text_to_video
    if right is None:
        right = rng.integers(videos, size=texts)
    held = held_texts(right, np.arange(videos), min(MOST_HELD_OUT, int(HELD_OUT * videos)), rng)
    if not held.any() or held.all():
        raise CimError(
            f"{data.file}: {data.counted} are too few to hold some of them out; expected 10 or more"
        )
    return right, np.flatnonzero(~held), np.flatnonzero(held)


def layer_tensors(graph: Graph) -> dict[str, tuple[Tensor, Tensor]]:
    """The layers' weights and biases as float32 tensors that want gradients."""
    return {
        name: (tensor(op.weight.T).requires_grad_(), tensor(op.bias).requires_grad_())
        for name, op in graph.operations(Mvm).items()
    }


def tensor_keys(model: Model, file: str) -> dict[str, dict[str, TensorKeys]]:
    """The tensors of the checkpoint `file` that a model's layers are, by modality and node.

    Raises CimError for a layer that is no Linear of the file, or is one of both modalities.
    """
    keys: dict[str, dict[str, TensorKeys]] = {}
    layers: dict[str, str] = {}
    for graph in (model.program.text, model.program.video):
        keys[graph.name] = {}
        for name, op in graph.operations(Mvm).items():
            layer = f"{graph.name}.{name}"
            if op.keys is None:
                raise CimError(
                    f"{file}: layout {model.layout}: {layer} has no weight [out, in] in the file, "
                    "which holds it as several tensors or as [in, out]; only a Linear can be "
                    "fine-tuned"
                )
            other = layers.setdefault(op.keys.weight, layer)
            if other != layer:
                raise CimError(
                    f"{file}: layout {model.layout}: {other} and {layer} are both "
                    f"{op.keys.weight}; only layers of one modality can be fine-tuned"
                )
            keys[graph.name][name] = op.keys
    return keys


def with_tensors(content: Mapping[str, Any], new: Mapping[str, Array], above: str = "") -> Any:
    """A checkpoint's values as torch saves them, nested as before, with new arrays by full key."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, Mapping):
            found[key] = with_tensors(value, new, name)
        elif isinstance(value, np.ndarray):
            array = single(new.get(name, value))
            # An encoder's, which numpy and torch know under types of their own.
            array = array.astype(np.float32) if is_float8(array) else np.array(array)
            found[key] = torch.from_numpy(array)
        else:
            found[key] = value
    return found
