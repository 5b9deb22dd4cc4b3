"""A run before it begins: the checkpoint that it starts from and all else, read and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cimtool.base.errors import Argument, ArgumentError, CimError, naming
from cimtool.base.files import sha256
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, item_names
from cimtool.base.named import nearest
from cimtool.gpu.torch_device import device_of
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.checkpoint import Checkpoint, read_checkpoint
from cimtool.loading.embeddings import (
    Embeddings,
    EmbeddingsLike,
    File,
    embeddings_in,
    require_vectors,
    with_unit_rows,
)
from cimtool.loading.layouts import Layout, recognise
from cimtool.loading.model import MODALITIES_KEY, check_modalities, modalities_of
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.provenance import Provenance, provenance_of
from cimtool.loading.qrels import judged_rows
from cimtool.loading.score import inner_polynomial
from cimtool.loading.source import foreign_fit
from cimtool.loading.weights import Weights, find_weights
from cimtool.training.arguments import TrainingOptions
from cimtool.training.linear_fit import FOLDS
from cimtool.training.losses import Loss
from cimtool.training.model import FEW_PAIRS
from cimtool.training.models import ProjectorModel
from cimtool.training.options import Optimisation, by_kind, check_seed
from cimtool.training.pairs import (
    HELD_OUT,
    Pairs,
    Split,
    check_batches,
    set_aside,
    some_of,
    split,
    unseen,
    with_right,
    with_validation,
)
from cimtool.training.towers import TwoTower


@dataclass(frozen=True, eq=False)
class Start:
    """The weights of both modalities by the keys of a tower's state dict, and the values beside."""

    text: Weights
    video: Weights
    content: Mapping[str, Any]

    @property
    def file(self) -> str:
        """The checkpoint's file."""
        return self.text.file

    @cached_property
    def poly(self) -> Polynomial | None:
        """The polynomial that the checkpoint holds."""
        return inner_polynomial(self.file, self.content)

    @cached_property
    def provenance(self) -> Provenance | None:
        """The rows that it and its ancestors were trained on; None if it keeps none."""
        return provenance_of(self.content, self.file)

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings of the run that wrote the checkpoint; none if it was no run."""
        found = self.content.get("config")
        return found if isinstance(found, Mapping) else {}

    def trained_on(self, digest: str) -> bool:
        """True if that run trained on the data with this digest, or on a part of them."""
        return self.config.get("data") == digest

    def split(self, digest: str) -> Split | None:
        """The part of the data with this digest that run held out; None if it had other data.

        Raises CimError if it trained on all of them.
        """
        if not self.trained_on(digest):
            return None
        share, seed = self.config.get("held_out"), self.config.get("split_seed")
        if isinstance(share, float) and isinstance(seed, int):
            return Split(share, seed, self.config.get("test") or 0.0)
        raise ArgumentError(
            "{}: was trained on all of {data}, so none of it can be held out; expected "
            "{validation}",
            self.file,
        )

    def model(self) -> str:
        """The name of the model that trains this layout; CimError if none does."""
        layout = recognise(self.text, self.video)
        names = [
            name for name, model in ProjectorModel.family.items() if model.layout == layout.name
        ]
        if layout.name in names or len(names) == 1:
            return layout.name if layout.name in names else names[0]
        trained = self.config.get("model")
        if trained in names:
            return str(trained)
        raise ArgumentError(
            '{}: which model trains layout "{}" is not clear ({}); name it with {model}',
            self.file,
            layout.name,
            ", ".join(names) or "none does",
        )

    def load(self, towers: TwoTower, model: str) -> None:
        """Put the weights into towers; CimError naming the key that is missing or does not fit."""
        for module, own in ((towers.text_proj, self.text), (towers.video_proj, self.video)):
            wanted = module.state_dict()
            for key in own.arrays:
                if key not in wanted:
                    raise CimError(
                        f"{own.file}: {own.keys[key]} is not a weight of model "
                        f'"{model}"{nearest(key, wanted)}'
                    )
            for key, tensor in wanted.items():
                layer, _, parameter = key.rpartition(".")
                if parameter == "num_batches_tracked" and key not in own.arrays:
                    continue  # counts batches for nothing that is computed here
                array = own.get(layer, parameter, tuple(tensor.shape))
                tensor.copy_(torch.from_numpy(array))
        one_block = towers.text_proj is towers.video_proj
        for key, array in self.text.arrays.items():
            if one_block and not np.array_equal(array, self.video.arrays[key]):
                raise CimError(
                    f"{self.file}: {self.text.keys[key]} and {self.video.keys[key]} differ; "
                    f'expected the same, as model "{model}" has one block for both'
                )


def read_start(path: Path) -> Start:
    """Read a checkpoint with the weights of both modalities; CimError if it is none."""
    checkpoint = read_checkpoint(path)
    return Start(*find_weights(checkpoint), checkpoint.content)


CALIBRATION_PAIRS = 4096
"""Pairs for a compilation, at most, beside those that are set aside for tests."""

MODEL = "trunk"
"""The model if neither `model` nor `start` says one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingJob:
    """A model, a loss and their data; the plain `settings` decide every byte of the result.

    `test` are rows, as they were given, that are set aside: nothing in the run sees them; if there
    are such, `calibration` has some of the others, for a compilation. `files` names what `settings`
    holds a digest of: data, validation, poly and start; `called` names both sides.
    """

    model: ProjectorModel
    loss: Loss
    optimisation: Optimisation
    seed: int
    device: torch.device
    pairs: Pairs
    held: Pairs
    start: Start | None
    polynomial: Polynomial | None
    settings: Mapping[str, Any]
    files: Mapping[str, str | None]
    remarks: tuple[str, ...] = ()
    test: Embeddings | None = None
    calibration: Embeddings | None = None
    called: Modalities = TEXT_VIDEO

    @cached_property
    def provenance(self) -> Provenance:
        """The rows that the model is trained on, and those of its start."""
        own, start = Provenance.of(self.pairs.text.numpy(), self.pairs.video.numpy()), self.start
        return own if start is None else own.after(start.provenance, self.settings["start"])

    @cached_property
    def unseen(self) -> Pairs:
        """The pairs to measure the result on: those set aside, or else those that validate."""
        if self.test is None:
            return self.held
        rows = _unit_rows(self.test, type(self.model))
        return Pairs.of(rows, np.arange(len(rows.text)))

    @property
    def by_comparison(self) -> bool:
        """True if the loss is given pairs or triplets of items."""
        return bool(self.loss.compares) and self.pairs.compared is not None

    @property
    def layout(self) -> type[Layout]:
        """The layout that the model is saved in."""
        return Layout.named(self.model.layout, "layout")

    @property
    def deployed(self) -> dict[str, Any]:
        """Plain values of a checkpoint beside weights and polynomial: the head, perhaps a and b."""
        return {"head": self.model.head, **self.model.deployed(), **self.loss.deployed()}


def make_job(
    data: EmbeddingsLike,
    validation: EmbeddingsLike | None,
    wanted: TrainingOptions,
    qrels: File | None = None,
) -> TrainingJob:
    """Read what is asked for; CimError, one sentence, for whatever does not fit.

    `qrels` judges pairs of `data`: what it grades above 0 is right, and nothing else.
    """
    for name, value in (("validation", validation), ("test", wanted.test)):
        if qrels is not None and value is not None:
            raise ArgumentError(
                "{} and {qrels}, which judges {data} alone, are both given; expected one of them",
                Argument(name),
            )
    seed, device_name = wanted.seed or 0, wanted.device or "cpu"
    check_seed(seed)
    device, options = device_of(device_name), by_kind(wanted.options or {})
    given = {"poly": wanted.poly, "start": wanted.start}
    paths = {name: Path(file) for name, file in given.items() if file}
    poly = paths.get("poly")
    start = read_start(paths["start"]) if "start" in paths else None
    kind, loss = _model_and_loss(wanted, start, options["loss"])
    optimisation = loss.optimisation.given(vars(wanted))
    if kind.closed_form and wanted.epochs is None:
        optimisation = replace(optimisation, epochs=0)
    modalities = modalities_for(wanted, start)
    read, held_rows = embeddings_in(data, modalities), None
    given_rows = with_right(judged_rows(read, qrels))
    rows = _unit_rows(given_rows, kind)
    if validation is not None:
        held_rows = _unit_rows(embeddings_in(validation, modalities), kind)
    for one in filter(None, (rows, held_rows)):
        _require_fit(one, kind)
    by_comparison = _by_comparison(rows, loss)
    asked = {"held_out": wanted.held_out, "test": wanted.test}
    shares = {name: share for name, share in asked.items() if share is not None}
    if held_rows is None:
        parts = _drawn_parts(given_rows, rows, shares, seed, start)
    else:
        parts = _given_parts(rows, held_rows, shares, start)
    if optimisation.epochs:
        with naming(rows.file):
            check_batches(parts.pairs, optimisation.batch, loss.group, by_comparison)
    model = _model(kind, start, parts.pairs, options["model"])
    _require_trainable(model, optimisation.epochs, start)
    with naming(rows.file):
        scale = model.score_scale(parts.pairs)
    free = type(loss).model_fields.keys() - options["loss"].keys()
    loss = loss.model_copy(update={name: scale[name] for name in sorted(scale.keys() & free)})
    polynomial = _polynomial(poly, loss, start)
    fitted = () if poly is None else _fit_remarks(poly, paths.get("start"), start)
    settings = {
        "model": model.name,
        **{f"model.{name}": value for name, value in model.model_dump().items()},
        "loss": loss.name,
        **{f"loss.{name}": value for name, value in loss.model_dump().items()},
        **asdict(optimisation),
        "seed": seed,
        "device": device_name,
        **parts.settings,
        **({} if modalities is None else {MODALITIES_KEY: ",".join(modalities)}),
        "data": parts.digest,
        "validation": parts.held_digest,
        **{name: sha256(paths[name]) if name in paths else None for name in given},
    }
    files = {"data": rows.file, "validation": None if held_rows is None else held_rows.file}
    files |= {name: str(paths[name]) if name in paths else None for name in given}
    unjudged = len(read.text) - len(given_rows.text)
    text, video = given_rows.called
    judged = (f"{unjudged} {text}s without a right {video} were left out.",) if unjudged else ()
    return TrainingJob(
        model=model,
        loss=loss,
        optimisation=optimisation,
        seed=seed,
        device=device,
        pairs=parts.pairs,
        held=parts.held,
        start=start,
        polynomial=polynomial,
        settings=settings,
        files=files,
        remarks=(*judged, *parts.set_aside, *fitted, *parts.left_out),
        test=parts.test,
        calibration=parts.calibration,
        called=given_rows.called,
    )


def _model_and_loss(
    wanted: TrainingOptions, start: Start | None, options: Mapping[str, Any]
) -> tuple[type[ProjectorModel], Loss]:
    """The kind of model, and the loss; CimError if they contradict each other or `poly`."""
    model_kind, loss_kind = kinds_of(wanted, start)
    if wanted.poly and not loss_kind.needs_polynomial:
        raise ArgumentError(
            '{poly} is given, but loss "{}" has no polynomial; expected none', loss_kind.name
        )
    loss = loss_kind(**options)
    if loss.needs_variance and not model_kind.has_variance:
        raise CimError(
            f'loss "{loss.name}" needs a variance, but model "{model_kind.name}" has none; '
            "expected another loss or model"
        )
    return model_kind, loss


def _by_comparison(rows: Embeddings, loss: Loss) -> bool:
    """True if the loss learns from pairs or triplets of the rows; CimError if it cannot learn."""
    if rows.compared is not None and loss.compares not in ("", rows.compared.kind):
        raise CimError(
            f'{rows.file}: holds {rows.compared.kind}, and loss "{loss.name}" takes '
            f"{loss.compares}; expected these, or the other loss"
        )
    by_comparison = bool(loss.compares) and rows.compared is not None
    if loss.needs_labels and rows.labels is None and not by_comparison:
        raise CimError(
            f'{rows.file}: labels is missing, the class of each text, which loss "{loss.name}" '
            "needs"
        )
    return by_comparison


@dataclass(frozen=True, eq=False)
class _Parts:
    """The pairs that train and those that validate, and the rows that are set aside (`test`).

    `calibration` are some of the rows that are not set aside, as they were given.
    `part` is the split that drew them; None if validation data were given. Digests are of the data
    and of these. `set_aside` and `left_out` are remarks on pairs that are in no part.
    """

    pairs: Pairs
    held: Pairs
    digest: str
    test: Embeddings | None = None
    calibration: Embeddings | None = None
    part: Split | None = None
    held_digest: str | None = None
    set_aside: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The shares and the seed of the split, by the names of a run's settings."""
        part = self.part
        return {
            "held_out": None if part is None else part.share,
            "split_seed": None if part is None else part.seed,
            "test": None if part is None else part.test or None,
        }


def _drawn_parts(
    given: Embeddings, rows: Embeddings, shares: Mapping[str, float], seed: int, start: Start | None
) -> _Parts:
    """Draw the parts from the data; `rows` are those `given`, as the model takes them."""
    digest = data_digest(rows)
    part = _split(shares, seed, start, digest)
    test, calibration, rest, said = None, None, rows, list[str]()
    if part.test:
        drawn, others = set_aside(rows, part.test, part.seed)
        test, rest = given.among(drawn), rows.among(others)
        calibration = given.among(some_of(others, CALIBRATION_PAIRS, part.seed))
        if equal := len(drawn) - int(drawn.sum() + others.sum()):
            said.append(
                f"{equal} pairs that share a row with one that was set aside were left out."
            )
    pairs, held = split(rest, part.share / (1 - part.test), part.seed)
    held, unused = _unseen_by(start, held, rows.file)
    return _Parts(
        pairs, held, digest,
        test=test, calibration=calibration, part=part, set_aside=tuple(said), left_out=unused,
    )  # fmt: skip


def _given_parts(
    rows: Embeddings, held_rows: Embeddings, shares: Mapping[str, float], start: Start | None
) -> _Parts:
    """Train on `rows` and validate on other ones; CimError for shares, or if `start` saw them."""
    for name in shares:
        raise ArgumentError(
            "{} and {validation} are both given; expected one of them", Argument(name)
        )
    digest, held_digest = data_digest(rows), data_digest(held_rows)
    if start is not None and start.trained_on(held_digest):
        raise CimError(f"{held_rows.file}: {start.file} was trained on it; expected unseen pairs")
    pairs, held = with_validation(rows, held_rows)
    said: tuple[str, ...] = ()
    if left_out := len(rows.text) - len(pairs):
        also = f"that are also in {held_rows.file}"
        said = (f"{left_out} pairs {also} were left out of training.",)
    held, unused = _unseen_by(start, held, held_rows.file)
    return _Parts(pairs, held, digest, held_digest=held_digest, left_out=(*said, *unused))


def _unseen_by(start: Start | None, held: Pairs, file: str) -> tuple[Pairs, tuple[str, ...]]:
    """The pairs of a file without those that `start` was trained on, and a remark on these."""
    if start is None or start.provenance is None:
        return held, ()
    found = unseen(held, start.provenance, file, start.file)
    if not (seen := len(held) - len(found)):
        return found, ()
    return found, (
        f"{start.file} was trained on {seen} of the {len(held)} pairs that were to "
        "validate; they were left out of validation.",
    )


def _fit_remarks(poly: Path, file: Path | None, start: Start | None) -> Sequence[str]:
    """Remarks if the polynomial was fitted to neither `start`, from a file, nor its ancestors."""
    digests = []
    if file is not None and start is not None:
        known = start.provenance
        digests = [sha256(file), *(() if known is None else known.ancestors)]
    return foreign_fit(poly, "the start of this run", digests)


def _unit_rows(rows: Embeddings, model: type[ProjectorModel]) -> Embeddings:
    """The rows as the model's layout takes them."""
    return with_unit_rows(rows) if Layout.named(model.layout, "layout").unit_rows else rows


def _require_fit(rows: Embeddings, model: type[ProjectorModel]) -> None:
    """Raise CimError for rows that the model cannot take or that say nothing to learn.

    Two texts of one video need the same labels: its class is theirs.
    """
    require_vectors(rows)
    if model.one_modality and not rows.alone:
        both = " and ".join(rows.called)
        raise CimError(
            f'{rows.file}: holds {both}, and model "{model.name}" has one encoder; '
            "expected items of one modality, rows [n, in] with labels [n]"
        )
    if rows.alone and rows.labels is None and rows.compared is None:
        raise CimError(
            f"{rows.file}: labels is missing, so each row can only find itself; expected rows [n, "
            "in] with labels [n], or with pairs or triplets"
        )
    if rows.labels is None or rows.text_to_video is None:
        return
    first = np.full(len(rows.video), -1)
    first[rows.right[::-1]] = np.arange(len(rows.right))[::-1]
    other = (rows.labels != rows.labels[first[rows.right]]).reshape(len(rows.text), -1).any(axis=1)
    if other.any():
        text = int(np.argmax(other))
        video = int(rows.right[text])
        own, earlier = (
            " ".join(map(str, np.flatnonzero(one))) or "none" if one.ndim else str(one)
            for one in (rows.labels[text], rows.labels[first[video]])
        )
        (texts, _), (_, name) = item_names(rows.called), rows.called
        raise CimError(
            f"{rows.file}: {texts} {first[video]} and {text} belong to {name} {video}, and their "
            f"labels are {earlier} and {own}; expected one class, or the same ones"
        )


def kinds_of(
    wanted: TrainingOptions, start: Start | None
) -> tuple[type[ProjectorModel], type[Loss]]:
    """The model and the loss that are asked for, or those that `start` and a polynomial suggest."""
    model = wanted.model or (MODEL if start is None else start.model())
    loss = wanted.loss
    if loss is None:
        has_poly = bool(wanted.poly) or (start is not None and start.poly is not None)
        loss = "info-nce-poly" if has_poly else "info-nce"
    return ProjectorModel.named(model, "model"), Loss.named(loss, "loss")


def _model(
    kind: type[ProjectorModel], start: Start | None, pairs: Pairs, options: Mapping[str, Any]
) -> ProjectorModel:
    """The model with the options of the user, of `start`, or those that follow the data.

    Those of `start` are of the run that made it, if any, show in its weights, or stand beside them
    by name.
    """
    if start is None:
        numbers = pairs.text.numel() + pairs.video.numel()
        widths = pairs.text.shape[1], pairs.video.shape[1]
        model = kind(**{**kind.sizes(numbers, *widths), **options})
        return model.for_few_pairs(options, *widths) if few(pairs) else model
    run = start.config if start.config.get("model") == kind.name else {}
    names = kind.model_fields
    before = {name: run[f"model.{name}"] for name in names if f"model.{name}" in run}
    shown = kind.options_of(start.text.arrays, start.video.arrays)
    said = {name: start.content[name] for name in names if name in start.content}
    return kind(**{**before, **shown, **said, **options})


def _require_trainable(model: ProjectorModel, epochs: int, start: Start | None) -> None:
    """Raise CimError for epochs, or a start, of a model that is solved from the rows alone."""
    if not model.solved_by:
        return
    solved = f"{model.solved_by} is solved from the rows that train"
    if start is not None:
        raise ArgumentError("{}, and {start} is given; expected none", solved)
    if epochs:
        raise ArgumentError("{}, and {epochs} is {}; expected none, or 0", solved, epochs)


def few(pairs: Pairs) -> bool:
    """True for so few pairs of two modalities that linear maps are hard to better.

    A pair for each fold at least: fewer say nothing on a penalty.
    """
    return len(pairs.video) >= FOLDS and len(pairs) <= FEW_PAIRS and not pairs.alone


def modalities_for(wanted: TrainingOptions, start: Start | None) -> Modalities | None:
    """The modalities that are asked for, or those of `start`."""
    asked = wanted.modalities
    if asked is not None:
        return check_modalities(asked, Argument("modalities"))
    return None if start is None else modalities_of(Checkpoint(start.file, start.content))


def _split(asked: Mapping[str, float], seed: int, start: Start | None, digest: str) -> Split:
    """The shares `held_out` and `test` of data that validate and that are set aside.

    What the run that made `start` held out of the same data is held out again: of any other part
    that run has seen most pairs.
    """
    before = None if start is None else start.split(digest)
    if start is not None and before is not None:
        for name, known in (("held_out", before.share), ("test", before.test)):
            if asked.get(name, known) != known:
                raise ArgumentError(
                    "{} is {:g}, and {} held out {:g} of the same data and was trained on the "
                    "rest; expected the same, or none",
                    Argument(name),
                    asked[name],
                    start.file,
                    known,
                )
        return before
    for name, share in asked.items():
        if not 0 < share < 1:
            raise ArgumentError(
                "{} is {:g}; expected a share between 0 and 1", Argument(name), share
            )
    part = Split(asked.get("held_out", HELD_OUT), seed, asked.get("test", 0.0))
    if part.share + part.test >= 1:
        raise ArgumentError(
            "{held_out} {:g} and {test} {:g} leave no pair to train on", part.share, part.test
        )
    return part


def _polynomial(poly: Path | None, loss: Loss, start: Start | None) -> Polynomial | None:
    """The polynomial that was given, or else the one inside `start`."""
    if not loss.needs_polynomial:
        return None
    if poly is not None:
        return read_polynomial(poly)
    if start is not None and start.poly is not None:
        return start.poly
    raise ArgumentError(
        'loss "{}" needs a polynomial; expected {poly} FILE, as `cimtool fit` writes it', loss.name
    )


def data_digest(rows: Embeddings) -> str:
    """The SHA-256 of all that decides what is learnt of rows."""
    found = hashlib.sha256()
    told = [] if rows.compared is None else list(rows.compared.arrays.values())
    if rows.judged is not None:
        told += [rows.judged.text, rows.judged.video]
    for array in (rows.text, rows.video, rows.right, rows.labels, *told):
        if array is not None:
            found.update(str((array.shape, array.dtype.str)).encode())
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
