"""The library: compile a model, load a bundle, encode, score and verify, with or without files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.files import check_output, sha256
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import Gallery, check_place
from cimtool.bundle.matcher import Matcher, load, open_bundle
from cimtool.bundle.scores import best_scores, check_scores_file, hybrid_scores, write_scores
from cimtool.deployment.compilation import (
    Compilation,
    compile,
    prepare,
    trained_model,
)
from cimtool.ir.program import MODALITIES
from cimtool.loading.data import Data, files_of, read_data, read_text
from cimtool.loading.modality import modality_file, modality_rows
from cimtool.loading.model import projector_files

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions
    from cimtool.costs.estimate import Estimate
    from cimtool.deployment.compilation import Projectors
    from cimtool.deployment.programming import Programming
    from cimtool.evaluation.run import Evaluation
    from cimtool.hardware.target import Target
    from cimtool.reference.surrogate import Polynomial
    from cimtool.sweeps.grid import Grid
    from cimtool.sweeps.results import Sweep, TableFormat
    from cimtool.training.fit_teacher import Fit
    from cimtool.training.hardware.page import CompiledEpoch
    from cimtool.training.projectors import ProjectorRun
    from cimtool.training.teacher_file import Kind as LabelKind
    from cimtool.training.teacher_file import Teacher
    from cimtool.training.trainer import Run
    from cimtool.tuning.knobs import CostName
    from cimtool.tuning.run import Tuned
    from cimtool.verification.compare import Comparison
    from cimtool.verification.references import Kind
    from cimtool.verification.report import Report

__all__ = (
    "Compilation",
    "Matcher",
    "compare",
    "compile",
    "cost",
    "evaluate",
    "fine_tune",
    "fit",
    "load",
    "prepare",
    "program",
    "read_data",
    "simulate",
    "sweep",
    "teacher",
    "train",
    "tune",
    "verify",
)


def simulate(
    bundle: Path | str,
    inputs: Data,
    *,
    output: Path | str | None = None,
    top: int | None = None,
    device: str | None = None,
    noise: NoiseOptions | None = None,
    say: Say = silent,
) -> dict[str, Array]:
    """Score all texts against all videos on the bit-accurate simulator.

    Returns `scores` float32 [n, m], or with `top` `top_index` and `top_score` [n, top] of each
    text's best videos, computed without the n x m scores; writes them as an `.npz` to `output`.
    `device` as in `load`. A bundle that holds a gallery looks at the texts alone; with a hybrid
    score it returns the best of each shortlist, all of it without `top`. With `noise` the scores of
    each die follow: `trial_scores` [T, n, m], `trial_rmse` [T] from the noise-free scores and,
    where the right pairs are known, `trial_r1` [T, 2].
    """
    if output is not None:
        check_scores_file(Path(output))
    matcher = load(bundle, device)
    if noise is not None:
        found = _of_dies(matcher, inputs, top, noise, say)
    elif matcher.bundle.gallery is None:
        found = _all_pairs(matcher, inputs, top, say)
    else:
        found = _against_gallery(matcher, matcher.bundle.gallery, inputs, top, say)
    if output is not None:
        write_scores(Path(output), found)
    return found


def _of_dies(
    matcher: Matcher, inputs: Data, top: int | None, noise: NoiseOptions, say: Say
) -> dict[str, Array]:
    from cimtool.verification.noisy import simulate_trials
    from cimtool.verification.run import check_gallery

    if top is not None:
        raise ArgumentError(
            "{top} keeps the best of noise-free scores; expected it without {noise}"
        )
    read = read_data(inputs, matcher.bundle.model)
    check_gallery(matcher.bundle, read)
    return simulate_trials(matcher.bundle, matcher.simulator, read, noise, say)


def _against_gallery(
    matcher: Matcher, gallery: Gallery, inputs: Data, top: int | None, say: Say
) -> dict[str, Array]:
    rows = read_text(inputs, matcher.bundle.model)
    say(f"encoding {len(rows)} texts")
    text = matcher.simulator.encode("text", rows)
    say(f"scoring {len(rows)} texts against {gallery.items} items in the memory")
    if gallery.shortlist is not None:
        items = matcher.bundle.gallery_features
        return hybrid_scores(matcher.simulator, text, items, gallery.shortlist, top)
    if top is None:
        return {"scores": matcher.score(text)}
    return best_scores(matcher.simulator, text, None, top)


def _all_pairs(matcher: Matcher, inputs: Data, top: int | None, say: Say) -> dict[str, Array]:
    read = read_data(inputs, matcher.bundle.model)
    say(f"encoding {len(read.text)} texts and {len(read.video)} videos")
    text, video = (matcher.simulator.encode(m, getattr(read, m)) for m in MODALITIES)
    say(f"scoring {len(read.text)} x {len(read.video)} pairs")
    if top is None:
        return {"scores": matcher.score(text, video)}
    return best_scores(matcher.simulator, text, video, top)


def program(
    bundle: Path | str,
    gallery: Data,
    *,
    output: Path | str | None = None,
    shortlist: int | None = None,
    chips: int | None = None,
    say: Say = silent,
) -> Programming:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`; `shortlist` is a hybrid score's, `chips` how many the gallery must
    fit on. Raises CimError for a bundle compiled with a digital score or programmed already, and a
    gallery that does not fit.
    """
    from cimtool.deployment.programming import Source, check_programmable, program_bundle

    opened = open_bundle(bundle)
    check_programmable(opened)
    card, file = opened.model, modality_file(gallery, "video")
    folder = opened.folder.with_name(f"{opened.name}+{file.stem if file else 'gallery'}")
    folder = Path(output or folder)
    check_place(folder)
    rows = modality_rows(gallery, "video", card.video_width, card.name, card.unit_rows)
    if file is None:
        source = Source(rows, "arrays", hashlib.sha256(rows.tobytes()).hexdigest())
    else:
        source = Source(rows, file.name, sha256(file))
    return program_bundle(opened, source, folder, shortlist, chips, say)


def verify(
    bundle: Path | str,
    data: Data,
    *,
    reference: Kind = "exact",
    samples: int | None = None,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: Path | str | None = None,
    noise: NoiseOptions | None = None,
    allow_calibration_rows: bool = False,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    Drift is against the exact score, or with `reference="mc"` against Monte Carlo of `samples` a
    side (default: 10). With `noise` the report has rows of the median die and of the worst in
    twenty, at the earliest time and at the one asked for. Rows that the bundle was calibrated on
    are refused unless `allow_calibration_rows`. Writes `report.html`, `report.json` and
    `report.md` into `report` (default: the bundle's folder). Raises CheckFailed where a bit differs
    or a metric is over its limit in `max_drift`.
    """
    from cimtool.verification.references import DEFAULT_SAMPLES, References
    from cimtool.verification.run import verify_bundle

    references = References(reference, DEFAULT_SAMPLES if samples is None else samples, seed)
    opened = open_bundle(bundle)
    read = read_data(data, opened.model)
    return verify_bundle(
        opened,
        read,
        references,
        max_drift or {},
        Path(report) if report else opened.folder,
        say,
        noise,
        allow_calibration_rows,
    )


def compare(
    bundles: Sequence[Path | str],
    data: Data,
    *,
    reference: Kind = "exact",
    samples: int | None = None,
    seed: int = 0,
    allow_calibration_rows: bool = False,
    say: Say = silent,
) -> Comparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    Raises CheckFailed where a bit differs.
    """
    from cimtool.verification.compare import compare_bundles
    from cimtool.verification.references import DEFAULT_SAMPLES, References

    references = References(reference, DEFAULT_SAMPLES if samples is None else samples, seed)
    opened = [open_bundle(bundle) for bundle in bundles]
    rows = [read_data(data, one.model) for one in opened]
    return compare_bundles(opened, rows, references, say, allow_calibration_rows)


def cost(
    bundle: Path | str,
    *,
    gallery: int | None = None,
    samples: int | None = None,
    operating_point: str | None = None,
) -> Estimate:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    With `gallery` also of a query scored against so many items, beside Monte Carlo with `samples` a
    side (default: 10). Figures are the target's at `operating_point` (default: its
    first); CimError for one that it does not have.
    """
    from cimtool.costs.estimate import estimate
    from cimtool.verification.references import DEFAULT_SAMPLES

    for name, value in (("gallery", gallery), ("samples", samples)):
        if value is not None and value < 1:
            raise ArgumentError("{} is {}; expected at least 1", Argument(name), value)
    opened = open_bundle(bundle)
    return estimate(
        opened.program,
        opened.settings,
        opened.target,
        samples=samples or DEFAULT_SAMPLES,
        dimension=opened.model.dimension,
        gallery=gallery,
        shortlist=None if opened.gallery is None else opened.gallery.shortlist,
        operating_point=operating_point,
    )


def sweep(
    projectors: Projectors,
    poly: Path | str | Polynomial | None = None,
    *,
    calibration: Data,
    data: Data,
    grid: Grid,
    target: str | Target | None = None,
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    head: str | None = None,
    trials: int | None = None,
    times: Sequence[str] = (),
    seed: int = 0,
    budget: Mapping[str, float] | None = None,
    jobs: int = 1,
    dask: str | None = None,
    table: TableFormat = "csv",
    allow_calibration_rows: bool = False,
    output: Path | str | None = None,
    say: Say = silent,
) -> Sweep:
    """Compile a model for every point of a grid, and measure drift and cost of each on `data`.

    `grid` has the values of settings (`weight_bits`), of `target`, and of keys of the target's file
    (`target.rows_active`). With `trials` dies are drawn, read at each of `times`; `jobs` processes
    or the Dask cluster at `dask` compute the points. Results go to `output` (default
    `exports/<model>.sweep`), where points that an earlier run has done are not computed again.
    Raises PointsFailed (a CheckFailed) where points failed or none is within the `budget`.
    """
    from cimtool.hardware.target import Target
    from cimtool.sweeps.command import Sources
    from cimtool.sweeps.grid import points, read_grid
    from cimtool.sweeps.results import check_format
    from cimtool.sweeps.run import Plan, check_evaluation, die_request, run_sweep
    from cimtool.verification.limits import check_metrics

    if jobs < 1:
        raise ArgumentError("{jobs} is {}; expected at least 1", jobs)
    dies = die_request(trials, times, seed)
    check_metrics("budget", budget or {})
    check_format(table)
    axes = read_grid(grid)
    file = Path(settings) if settings else None
    all_points = points(axes, target, file)
    named = Path(layer_map) if layer_map else None
    model = trained_model(projectors, poly, a, b, named, say, head)
    rows = read_data(calibration, model)
    read = read_data(data, model)
    check_evaluation(model, rows, read, allow_calibration_rows)
    files, sources = files_of(calibration), None
    named_files = projector_files(projectors)
    if named_files is not None and files and not isinstance(target, Target):
        sources = Sources(named_files, poly, files, file, a, b, named, head)
    plan = Plan(axes, all_points, dies, budget or {}, table, jobs, dask, sources)
    place = Path(output) if output else Path("exports") / f"{model.name}.sweep"
    return run_sweep(model, rows, read, plan, place, say)


def tune(
    projectors: Projectors,
    poly: Path | str | Polynomial | None = None,
    *,
    calibration: Data,
    data: Data,
    target: str | Target,
    budget: Mapping[str, float],
    cost: CostName = "arrays",
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    head: str | None = None,
    allow_calibration_rows: bool = False,
    output: Path | str | None = None,
    say: Say = silent,
    **flags: object,
) -> Tuned:
    """Choose the bits of each layer at the lowest `cost` within `budget`, as a settings file.

    Bits come off those that target, `settings` and `flags` say. They are chosen on every second
    video of `data` with its texts; steps that miss the budget on the others are taken back. The
    file goes to `output` (default `exports/<model>@<target>.settings.toml`). Raises CimError where
    the highest bits miss the budget on either half.
    """
    from cimtool.base.toml_files import read_toml
    from cimtool.hardware.settings import resolve
    from cimtool.hardware.target import Target, load_target
    from cimtool.sweeps.run import check_evaluation
    from cimtool.tuning.run import Job, run_tune
    from cimtool.verification.limits import check_metrics

    if not budget:
        raise ArgumentError("{budget} is missing; expected METRIC=VALUE, such as logit_rmse=0.2")
    check_metrics("budget", budget)
    chosen = target if isinstance(target, Target) else load_target(target)
    file = Path(settings) if settings else None
    resolved = resolve(chosen, file, flags)
    given = {name: value for name, value in flags.items() if value is not None}
    given = (read_toml(file) if file else {}) | given
    named = Path(layer_map) if layer_map else None
    model = trained_model(projectors, poly, a, b, named, say, head)
    place = Path(output or Path("exports") / f"{model.name}@{chosen.name}.settings.toml")
    check_output(place, ".toml")
    rows, read = read_data(calibration, model), read_data(data, model)
    check_evaluation(model, rows, read, allow_calibration_rows)
    job = Job(chosen, resolved, given, budget, cost)
    return run_tune(model, rows, read, job, place, say)


def teacher(
    projectors: Path | str | tuple[Path | str, Path | str] | None = None,
    data: Data | None = None,
    *,
    gaussians: Path | str | Mapping[str, Array] | None = None,
    layer_map: Path | str | None = None,
    pairs: int = 300_000,
    matched: float = 0.9,
    labels: LabelKind = "mc",
    samples: int | None = None,
    a: float = 0.1,
    b: float = 0.0,
    seed: int = 0,
    output: Path | str | None = None,
    say: Say = silent,
) -> Teacher:
    """Draw pairs, a share `matched` of them right ones, and label them with log p and log(1-p).

    Pairs are of `data` run through `projectors` (a checkpoint, two ONNX files), or of `gaussians`:
    arrays `text_mu`, `text_logvar` [n, d], `video_mu`, `video_logvar` [m, d] by name or in an
    `.npz`. Labels are Monte Carlo of `samples` a side (default: 10) or exact. Written to `output`
    where it is given.
    """
    from cimtool.training.items import gaussian_items, model_items
    from cimtool.training.teacher import Sigmoid
    from cimtool.training.teacher_file import check_pairs, make_teacher, write_teacher

    if (projectors is None) == (gaussians is None):
        given = "neither is" if gaussians is None else "both are"
        raise ArgumentError("{projectors} and {gaussians}: {} given; expected one of them", given)
    if (projectors is None) != (data is None):
        raise ArgumentError("{data} is what {projectors} are run on; expected both or neither")
    if labels == "exact" and samples is not None:
        raise ArgumentError("{samples} is given; exact labels have none ({labels} mc)")
    sigmoid = Sigmoid(a, b, 10 if samples is None else samples)
    check_pairs(pairs, matched, seed)
    if output is not None:
        check_output(Path(output), ".npz")
    files = projector_files(projectors)
    if files is not None and data is not None:
        named = Path(layer_map) if layer_map else None
        items = model_items(files, data, named, say)
    else:
        if layer_map is not None:
            raise ArgumentError("{layer_map} names layers of {projectors}; expected it with them")
        items = gaussian_items(gaussians or {})
    made = make_teacher(items, pairs, matched, labels, sigmoid, seed, say)
    if output is not None:
        write_teacher(made, Path(output))
    return made


def fit(
    teacher: Path | str | Teacher,
    *,
    degree: int = 4,
    alpha: float = 1e-3,
    scale_ed: float | None = None,
    scale_vd: float | None = None,
    seed: int = 0,
    output: Path | str | None = None,
    report: Path | str | None = None,
    say: Say = silent,
) -> Fit:
    """Fit the polynomial that stands for a teacher's logits, and check it on held-out pairs.

    ed and vd are divided by `scale_ed` and `scale_vd` first (default: what the teacher says). With
    `output` the polynomial is written there, and its report into `report` (default: beside it).
    """
    from cimtool.training.fit_page import write_fit
    from cimtool.training.fit_teacher import fit_teacher
    from cimtool.training.teacher_file import Teacher, read_teacher

    if output is not None:
        check_output(Path(output), ".json")
    known = teacher if isinstance(teacher, Teacher) else read_teacher(Path(teacher))
    found = fit_teacher(known, degree, alpha, scale_ed, scale_vd, seed, say)
    if output is not None:
        write_fit(found, Path(output), Path(report) if report else None)
    return found


def train(
    data: Data,
    output: Path | str,
    *,
    validation: Data | None = None,
    model: str | None = None,
    loss: str | None = None,
    poly: Path | str | None = None,
    start: Path | str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    held_out: float | None = None,
    seed: int = 0,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    resume: bool = False,
    say: Say = silent,
) -> ProjectorRun:
    """Train projectors into the folder `output`: `model.pth`, `last.pth`, the history and its page.

    Validates after each epoch on `validation`, or on a share `held_out` (0.1) of the videos, and
    keeps the best. `model` (trunk, or that of `start`) and `loss` (info-nce-poly with `poly` or one
    in `start`, else info-nce) are names; `options` their fields by `model.<field>` and
    `loss.<field>`. `device` is `cpu`, `cuda` or `cuda:N`. What else is None is the loss's own.
    Raises Diverged (a CheckFailed) where the loss stops being finite.
    """
    from cimtool.training.job import TrainingOptions, make_job
    from cimtool.training.projectors import train_projectors

    chosen = TrainingOptions(
        model=model,
        loss=loss,
        poly=Path(poly) if poly else None,
        start=Path(start) if start else None,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        held_out=held_out,
        seed=seed,
        device=device or "cpu",
        options=options,
    )
    return train_projectors(make_job(data, validation, chosen), Path(output), resume, say)


def fine_tune(
    projectors: Path | str,
    poly: Path | str | None = None,
    *,
    data: Data,
    calibration: Data,
    target: str | Target,
    output: Path | str,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    noise: NoiseOptions | None = None,
    settings: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    head: str | None = None,
    say: Say = silent,
    **flags: object,
) -> Run[CompiledEpoch]:
    """Fine-tune a checkpoint for a target into the folder `output`: `model.pth`, history and page.

    It learns to give its own float logits again once it is compiled, on rows of `data`; all else is
    as in `compile`. With `noise` dies are in the loop. Kept is what errs least on held-out rows.
    Raises Diverged (a CheckFailed), with that kept, where the loss stops being finite.
    """
    from cimtool.training.hardware.fine_tune import OPTIMISATION
    from cimtool.training.hardware.fine_tune import fine_tune as fine_tuned

    return fine_tuned(
        projectors,
        poly,
        data=data,
        calibration=calibration,
        target=target,
        output=Path(output),
        optimisation=OPTIMISATION.given(epochs=epochs, batch=batch, learning_rate=learning_rate),
        seed=seed,
        noise=noise,
        settings=settings,
        a=a,
        b=b,
        layer_map=layer_map,
        head=head,
        say=say,
        **flags,
    )


def evaluate(
    data: Data,
    *what: Projectors,
    head: str | None = None,
    poly: Path | str | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | str | None = None,
    leave_one_out: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    allow_calibration_rows: bool = False,
    say: Say = silent,
) -> Evaluation:
    """Measure how well bundles, trained projectors or (without any) the embeddings retrieve.

    A bundle is the path of its folder; `head`, `poly`, `a`, `b` and `layer_map` are of projectors,
    `head` also of the embeddings (cosine or euclidean). With `leave_one_out`, or where `data` are
    items of one modality (`rows`), right is what has an item's label, the item itself left out.
    Differences are to the first of several.
    """
    from cimtool.evaluation.run import check_sampling, evaluate_subjects
    from cimtool.evaluation.subjects import Options, subjects_of

    check_sampling(resamples, seed)
    options = Options(
        head,
        Path(poly) if poly else None,
        a,
        b,
        Path(layer_map) if layer_map else None,
        allow_calibration_rows,
    )
    subjects = subjects_of(data, what, options, say)
    return evaluate_subjects(subjects, leave_one_out, resamples, seed, say)
