"""A teacher: labelled pairs with all that is known of them; made from items, kept as an `.npz`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.errors import Argument, ArgumentError, CimError, naming
from cimtool.base.files import check_output, keeping_inputs, replace_files
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, sizes_text
from cimtool.base.named import require_one, unknown
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.loading.checkpoint import require_suffix
from cimtool.loading.embeddings import embeddings_in
from cimtool.loading.npy import read_npz
from cimtool.loading.provenance import TrainedShares
from cimtool.loading.source import ModelSource
from cimtool.report.document import Document, Sentence
from cimtool.report.formats import number, whole
from cimtool.report.result import Result
from cimtool.report.table import Column, make_table
from cimtool.training.arguments import LabelKind, TeacherOptions
from cimtool.training.items import Items, encoded_items, gaussian_items
from cimtool.training.options import check_count, check_seed
from cimtool.training.random_trunk import NAME, random_trunk
from cimtool.training.teacher import (
    Labels,
    TeacherSigmoid,
    exact_labels,
    monte_carlo_labels,
    pair_groups,
)

LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)

COLUMNS = ("ed", "vd", "y", "log_p", "log_1mp", "standard_error", "text", "video", "matched")
"""Arrays of a teacher's file that have a value a pair, [n]."""

NUMBERS = ("a", "b", "scale_ed", "scale_vd")
INTEGERS = ("K", "seed", "dimension")

LOG_TOLERANCE = 1e-4
"""Tolerance within which log_p, log_1mp and y of a file must agree."""

MADE = {"mc": "Monte Carlo labels, K = {},", "exact": "exact labels"}
"""The words for kinds of labels."""

CLIP = 1.05e-6
"""A probability this near 0 or 1 counts as clipped: at 1e-6, as float32 may have rounded it."""


@dataclass(frozen=True, eq=False, repr=False)
class Teacher(Result):
    """Labels of pairs in raw ed and vd, and where they come from; None is what is not known.

    `kind` is how they were made, with `K` samples a side (None for exact ones). `origin` says in
    words where `a` and `b` come from, `start` which random weights the pairs are of. `scale_ed` and
    `scale_vd` are what the layout's polynomial wants the statistics divided by. `text`, `video` [n]
    are the rows of each pair, `matched` [n] says where they belong together. `clipped` more pairs
    of the file have a label that only bounds the true one, and are left out. `probabilities` says
    that the file's labels were taken for such, as all of them lie in [0, 1]. `dimension` is the
    extent d of mu and s. `model` is the SHA-256 of the projectors that the pairs are of, `trained`
    the shares of the rows drawn from that these were trained on; `called` are the names of both
    modalities.
    """

    labels: Labels
    kind: LabelKind | None = None
    a: float | None = None
    b: float | None = None
    K: int | None = None
    seed: int | None = None
    scale_ed: float = 1.0
    scale_vd: float = 1.0
    text: IntArray | None = None
    video: IntArray | None = None
    matched: BoolArray | None = None
    clipped: int = 0
    probabilities: bool = False
    dimension: int | None = None
    model: str | None = None
    trained: TrainedShares | None = None
    called: Modalities = TEXT_VIDEO
    file: str = "the teacher"
    origin: str | None = None
    start: str | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def document(self) -> Document:
        """The labels, where their pairs come from, and their ranges."""
        labels, matched, error = self.labels, self.matched, self.labels.standard_error
        noise = None if error is None else float(np.sqrt(np.mean(np.square(error))))
        right = None if matched is None else float(np.mean(matched))
        how = MADE.get(self.kind or "", "labels of a kind that is not known").format(self.K)
        if self.a is not None and self.b is not None:
            how += f" of sigmoid(b - a D) with a = {self.a:g}, b = {self.b:g} ({self.origin})"
        said = [] if self.start is None else [self.start]
        if self.trained is not None:
            rows = self.trained.said(self.called)
            said.append(f"the model was trained on {rows} that pairs are drawn from")
        if self.kind == "mc":
            said.append(f"standard error of a label: {noise:.3g} (root mean square)")
        statistics = {"ed": labels.ed, "vd": labels.vd, "logit": labels.logit}
        ends: dict[str, Callable[[Array], float]]
        ends = {"least": np.min, "mean": np.mean, "most": np.max}
        columns = [Column("group"), Column("pairs", whole)]
        columns += [Column(f"{end} {name}", number) for name in statistics for end in ends]
        table_rows = [
            (group, mask.sum(), *(f(x[mask]) for x in statistics.values() for f in ends.values()))
            for group, mask in pair_groups(len(self), matched).items()
        ]
        values = {
            "pairs": len(self),
            "matched": right,
            "labels": self.kind,
            **{name: getattr(self, name) for name in ("K", "a", "b", "origin", "seed")},
            "divisors": {"ed": self.scale_ed, "vd": self.scale_vd},
            "ranges": {name: [x.min(), x.max()] for name, x in statistics.items()},
            "standard_error": noise,
            "model": self.model,
            "trained": None if self.trained is None else vars(self.trained),
        }
        share = "" if right is None else f", {right:.1%} of them right ones"
        table = make_table("Statistics and labels", columns, table_rows).named("pairs")
        return Document(
            f"{len(self):,} pairs{share}; {how}", (table, *map(Sentence, said)), lambda: values
        )


LARGEST_LOGVAR = 80
"""Random weights scatter around a log-variance; float32 holds exp of up to 88."""

MOST_PAIRS = 100_000_000
"""Pairs of a teacher, each of nine numbers."""


def check_pairs(pairs: int, matched: float, seed: int) -> None:
    """Raise CimError if there is no pair, the share is not 0 to 1, or no seed in [0, 2^64)."""
    check_count("pairs", pairs, 1, MOST_PAIRS)
    if not 0 <= matched <= 1:
        raise ArgumentError("{matched} is {}; expected a share, 0 to 1", matched)
    if not 0 <= seed < 2**64:
        raise ArgumentError("{seed} is {}; expected 0 to 2^64 - 1", seed)


def make_teacher(
    items: Items,
    pairs: int,
    matched: float,
    kind: LabelKind,
    sigmoid: TeacherSigmoid,
    seed: int = 0,
    say: Say = silent,
) -> Teacher:
    """Draw `pairs` pairs of items, a share `matched` of them right ones, and label them.

    Raises CimError as `check_pairs` and `items.drawn` do, and naming file and rows of a pair whose
    statistics or labels are not finite, or whose exact probability is not reached.
    """
    check_pairs(pairs, matched, seed)
    if kind not in LABEL_KINDS:
        raise unknown("labels", kind, LABEL_KINDS)
    text, video = items.text, items.video
    rows = items.drawn(pairs, matched, seed)
    sizes = sizes_text((len(text), len(video)), items.called)
    say(f"labelling {pairs:,} pairs of {sizes}")
    with naming(items.file):
        if kind == "exact":
            labels = exact_labels(text, video, rows, sigmoid.a, sigmoid.b, say, items.called)
        else:
            labels = monte_carlo_labels(text, video, rows, sigmoid, seed, say, items.called)
    samples, right = None if kind == "exact" else sigmoid.K, items.matched(rows)
    scales = items.scale_ed, items.scale_vd
    known = {name: getattr(items, name) for name in ("model", "trained", "called")}
    made = labels, kind, sigmoid.a, sigmoid.b, samples, seed
    return Teacher(*made, *scales, *rows, right, dimension=text.d, **known)


def sigmoid_of(
    file: str, a: float | None, b: float | None, given: Mapping[str, Any]
) -> tuple[TeacherSigmoid, str]:
    """The sigmoid of the `given` fields, else of `a` and `b`, which `file` keeps; and their origin.

    Raises ArgumentError if neither says one.
    """
    known = {name: x for name, x in (("a", a), ("b", b)) if x is not None} | dict(given)
    if missing := [name for name in ("a", "b") if name not in known]:
        raise ArgumentError(
            "{}: does not say {} of the probability E[sigmoid(b - a D)] that pairs are labelled "
            "with; expected {}",
            file,
            " and ".join(missing),
            ArgumentError("{a} and {b}") if len(missing) > 1 else Argument(missing[0]),
        )
    origin = {name: "as given" if name in given else f"of {file}" for name in ("a", "b")}
    if origin["a"] == origin["b"]:
        return TeacherSigmoid(**known), f"a and b {origin['a']}"
    return TeacherSigmoid(**known), ", ".join(f"{name} {said}" for name, said in origin.items())


@keeping_inputs
@takes(TeacherOptions)
def teacher(options: TeacherOptions, say: Say = silent) -> Teacher:
    """Draw pairs, a share `matched` of them right ones, and label them with log p and log(1-p).

    Pairs are of `data` run through `projectors`, or through the random weights that `train` with
    this seed starts from, their log-variances around `logvar`; or of `gaussians`: arrays `text_mu`,
    `text_logvar` [n, d], `video_mu`, `video_logvar` (or `image_mu`, `image_logvar`) [m, d] by name
    or in an `.npz`. Labels are exact, or Monte Carlo ("mc") of `samples` a side (default: 10). `a`
    and `b` are the sigmoid's (default: those that the checkpoint keeps). Written to `output` where
    it is given. Raises CimError for any mistake, and for an a or b that neither says.
    """
    projectors, data, gaussians = options.projectors, options.data, options.gaussians
    logvar = options.logvar
    _check_origin(options)
    if options.labels == "exact" and options.samples is not None:
        raise ArgumentError("{samples} is given; exact labels have none ({labels} mc)")
    said = {"a": options.a, "b": options.b, "K": options.samples}
    known: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    TeacherSigmoid(**{"a": 1.0, "b": 0.0, **known})  # what is given, before a file is read
    check_pairs(options.pairs, options.matched, options.seed)
    if options.output is not None:
        check_output(Path(options.output), ".npz")
    start = None
    if projectors is not None and data is not None:
        source = ModelSource(projectors, layer_map=options.layer_map)
        model = source.for_rows(data).load_projectors()
        sigmoid, origin = sigmoid_of(str(source), model.a, model.b, known)
        items = encoded_items(model, data, source.digest_of(model), say)
    elif logvar is not None and data is not None:
        sigmoid, origin = sigmoid_of(NAME, None, None, known)
        model, trunk = random_trunk(embeddings_in(data), logvar, options.seed)
        items = encoded_items(model, data, None, say)
        said_of = ", ".join(f"model.{name}={_option_text(one)}" for name, one in trunk.items())
        start = f"Pairs of random weights ({said_of}); train with seed {options.seed} starts there"
    else:
        items = gaussian_items(gaussians or {})
        sigmoid, origin = sigmoid_of(items.file, None, None, known)
    drawn = options.pairs, options.matched, options.labels
    made = make_teacher(items, *drawn, sigmoid, options.seed, say)
    made = replace(made, origin=origin, start=start)
    if options.output is not None:
        write_teacher(made, Path(options.output))
    return made


def _check_origin(options: TeacherOptions) -> None:
    """Raise ArgumentError unless items are of one origin, and given with what belongs to it."""
    origins = options.projectors, options.logvar, options.gaussians
    if (count := sum(one is not None for one in origins)) != 1:
        raise ArgumentError(
            "{projectors}, {logvar} and {gaussians}: {} given; expected one of them",
            "none is" if not count else "two are" if count == 2 else "all are",
        )
    if (options.gaussians is None) != (options.data is not None):
        raise ArgumentError(
            "{data} is what {} run on; expected both or neither",
            ArgumentError("{projectors} are")
            if options.logvar is None
            else ArgumentError("the random weights of {logvar} are"),
        )
    if options.layer_map is not None and options.projectors is None:
        raise ArgumentError("{layer_map} names layers of {projectors}; expected it with them")
    if options.logvar is not None:
        check_seed(options.seed)
        if not abs(options.logvar) <= LARGEST_LOGVAR:
            expected = f"a number from -{LARGEST_LOGVAR} to {LARGEST_LOGVAR}"
            raise ArgumentError("{logvar} is {}; expected {}", options.logvar, expected)


def write_teacher(teacher: Teacher, file: Path) -> None:
    """Write a teacher that `make_teacher` made; the same one gives the same bytes.

    Raises CimError if the place cannot be written.
    """
    labels = teacher.labels
    arrays: dict[str, Any] = {"ed": labels.ed, "vd": labels.vd, "y": labels.logit}
    arrays |= {"log_p": labels.log_p, "log_1mp": labels.log_1mp}
    arrays |= {"standard_error": labels.standard_error, "labels": teacher.kind}
    named = ("text", "video", "matched", *NUMBERS, "seed")
    arrays |= {name: getattr(teacher, name) for name in named}
    arrays |= {"K": teacher.K or 0, "dimension": teacher.dimension or 0}
    arrays |= {} if teacher.model is None else {"model": teacher.model}
    if (shares := teacher.trained) is not None:
        arrays["trained"] = np.array([shares.text, shares.video])
    if teacher.called != TEXT_VIDEO:
        arrays["called"] = np.array(teacher.called)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    replace_files(file.parent, {file.name: buffer.getvalue()}, "the teacher")


def read_teacher(path: Path) -> Teacher:
    """Read a teacher's `.npz`: this tool's, or any with `ed`, `vd` and `y`.

    Without `log_p` and `log_1mp`, `y` is the logit, or if all of it is in [0, 1] the
    probability (`probabilities` says so): pairs whose probability was clipped at 1e-6 are then left
    out and counted. Raises CimError for an array that is missing, not numbers, not finite, or of
    another length.
    """
    require_suffix(path, "a teacher", (".npz",))
    values = read_npz(path, (*COLUMNS, *NUMBERS, *INTEGERS, "labels", "model", "trained", "called"))
    with naming(path):
        for name in ("ed", "vd", "y"):
            require_one(values, (name,))
        return replace(_teacher_of(values), file=str(path))


def _teacher_of(values: Mapping[str, Array]) -> Teacher:
    columns = {name: _column(values[name], name) for name in COLUMNS if name in values}
    for name, column in columns.items():
        if len(column) != len(columns["ed"]):
            raise CimError(
                f"ed has {len(columns['ed'])} pairs and {name} {len(column)}; expected equal "
                "numbers"
            )
    if ("log_p" in columns) != ("log_1mp" in columns):
        raise CimError("holds one of log_p and log_1mp; expected both, or neither")
    known = (name for name in (*NUMBERS, *INTEGERS) if name in values)
    numbers = {name: _one_number(values, name) for name in known}
    for name in ("K", "dimension"):
        numbers[name] = numbers.get(name) or None
    labels, kept = _labels(columns)
    kind = str(values.get("labels", ""))
    return Teacher(
        labels.of(kept),
        kind=kind if kind in LABEL_KINDS else None,
        text=columns["text"][kept].astype(np.int64) if "text" in columns else None,
        video=columns["video"][kept].astype(np.int64) if "video" in columns else None,
        matched=columns["matched"][kept] > 0 if "matched" in columns else None,
        clipped=len(columns["ed"]) - len(kept),
        probabilities=_are_probabilities(columns),
        model=str(values["model"]) if "model" in values else None,
        trained=TrainedShares(*_two(values["trained"], "trained")) if "trained" in values else None,
        called=_two(values["called"], "called") if "called" in values else TEXT_VIDEO,
        **numbers,
    )


def _two(value: Array, name: str) -> tuple[Any, Any]:
    """The shares `trained` or the names `called`, one of each modality."""
    array = np.asarray(value)
    if name == "trained":
        expected = "two shares, 0 to 1"
        good = array.dtype.kind == "f" and bool(((array >= 0) & (array <= 1)).all())
    else:
        expected = "two names, such as text and image"
        good = array.dtype.kind == "U" and all(array.flat)
    if array.shape != (2,) or not good:
        raise CimError(f"{name} is {array.tolist()!r}; expected {expected}")
    first, second = array.tolist()
    return first, second


def _column(value: Array, name: str) -> FloatArray:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or array.size != max(array.shape, default=0):
        raise CimError(
            f"{name} is of {array.dtype} and shape {list(array.shape)}; expected one number per "
            "pair"
        )
    column = array.reshape(-1).astype(np.float64)
    good = np.isfinite(column)
    if not good.all():
        pair = int(np.argmin(good))
        raise CimError(f"{name} of pair {pair} is {column[pair]}; expected finite numbers")
    least = column.min(initial=0)
    if name == "standard_error" and least < 0:
        raise CimError(f"standard_error holds {least}; expected 0 or more")
    if name in ("text", "video") and (least < 0 or (column != np.floor(column)).any()):
        raise CimError(f"{name} holds numbers that are not rows; expected integers from 0")
    return column


def _one_number(values: Mapping[str, Array], name: str) -> Any:
    """One finite number of the file; of INTEGERS one count, exact."""
    array = np.asarray(values[name])
    value = array.reshape(-1)[0] if array.size == 1 and array.dtype.kind in "fiu" else np.nan
    if not np.isfinite(value) or (name in INTEGERS and (int(value) != value or value < 0)):
        expected = "one integer, 0 or more" if name in INTEGERS else "one finite number"
        raise CimError(f"{name} is {array.tolist()!r}; expected {expected}")
    if name in ("a", "scale_ed", "scale_vd") and value <= 0:
        raise CimError(f"{name} is {value:g}; expected a number above 0")
    return int(value) if name in INTEGERS else float(value)


def _are_probabilities(columns: Mapping[str, FloatArray]) -> bool:
    """True if a file has no log-probabilities and all of `y` lies in [0, 1]."""
    if "log_p" in columns:
        return False
    y = columns["y"]
    return bool(len(y)) and y.min() >= 0 and y.max() <= 1


def _require_logs(columns: Mapping[str, FloatArray]) -> None:
    """Raise CimError if log_p and log_1mp are not logarithms of p and 1 - p, and y their logit.

    What differs by less than float32 rounds counts as equal.
    """
    y, log_p, log_1mp = (columns[name] for name in ("y", "log_p", "log_1mp"))
    with np.errstate(over="ignore"):
        wrong = np.abs(np.exp(log_p) + np.exp(log_1mp) - 1) > LOG_TOLERANCE
    wrong |= np.abs(log_p - log_1mp - y) > LOG_TOLERANCE * (1 + np.abs(y))
    if wrong.any():
        pair = int(np.argmax(wrong))
        raise CimError(
            f"pair {pair} has y {y[pair]:.6g}, log_p {log_p[pair]:.6g} and log_1mp "
            f"{log_1mp[pair]:.6g}; expected log p, log(1 - p), and their difference as y"
        )


def _labels(columns: Mapping[str, FloatArray]) -> tuple[Labels, IntArray]:
    """The labels of all pairs, and the numbers of those that were not clipped."""
    from scipy.special import log_expit, logit  # slow to load, and every command imports this

    ed, vd, y = (columns[name] for name in ("ed", "vd", "y"))
    error = columns.get("standard_error")
    everything = np.arange(len(y))
    if "log_p" in columns:
        _require_logs(columns)
        return Labels(ed, vd, columns["log_p"], columns["log_1mp"], error), everything
    if not _are_probabilities(columns):
        return Labels(ed, vd, log_expit(y), log_expit(-y), error), everything
    kept = np.flatnonzero((y > CLIP) & (y < 1 - CLIP))
    if not len(kept):
        raise CimError(
            f"all {len(y)} labels are probabilities clipped at 1e-6, so no logit can be recovered; "
            "make a teacher with `cimtool teacher`, which never clips"
        )
    safe = logit(np.clip(y, CLIP, 1 - CLIP))
    # A standard error beside probabilities would be the probability's own: not the logit's.
    return Labels(ed, vd, log_expit(safe), log_expit(-safe)), kept


def _option_text(value: float) -> str:
    """A number or a truth value as an option of `train` takes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"
