"""The library: compile a model, load a bundle, encode, score and verify, with or without files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cimtool.arrays import Array
from cimtool.compilation import (
    Compilation,
    compile,
    prepare,
    trained_model,
)
from cimtool.emit.bundle import Gallery, check_place
from cimtool.errors import CimError
from cimtool.files import sha256
from cimtool.inputs import Data, files_of, read_data, read_text
from cimtool.ir.program import MODALITIES
from cimtool.loading.modality import modality_file, modality_rows
from cimtool.matcher import Matcher, load, open_bundle
from cimtool.progress import Say, silent
from cimtool.scores import best_scores, check_scores_file, hybrid_scores, write_scores

if TYPE_CHECKING:
    from torch import nn

    from cimtool.costs.estimate import Estimate
    from cimtool.dies import NoiseOptions
    from cimtool.hardware.target import Target
    from cimtool.programmed import Programming
    from cimtool.reference.surrogate import Polynomial
    from cimtool.sweeps.grid import Grid
    from cimtool.sweeps.results import Sweep, TableFormat
    from cimtool.verification.compare import Comparison
    from cimtool.verification.references import Kind
    from cimtool.verification.report import Report

__all__ = (
    "Compilation",
    "Matcher",
    "compare",
    "compile",
    "cost",
    "load",
    "prepare",
    "program",
    "read_data",
    "simulate",
    "sweep",
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
        raise CimError("--top keeps the best of noise-free scores; expected it without --noise")
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
    from cimtool.programmed import Source, check_programmable, program_bundle

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

    for name, value in (("--gallery", gallery), ("--samples", samples)):
        if value is not None and value < 1:
            raise CimError(f"{name} is {value}; expected at least 1")
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
    projectors: Path | str | tuple[nn.Module, nn.Module],
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
    from cimtool.sweeps.choice import check_budget
    from cimtool.sweeps.command import Sources
    from cimtool.sweeps.grid import points, read_grid
    from cimtool.sweeps.results import check_format
    from cimtool.sweeps.run import Plan, check_evaluation, die_request, run_sweep

    if jobs < 1:
        raise CimError(f"--jobs is {jobs}; expected at least 1")
    dies = die_request(trials, times, seed)
    check_budget(budget or {})
    check_format(table)
    axes = read_grid(grid)
    file = Path(settings) if settings else None
    all_points = points(axes, target, file)
    named = Path(layer_map) if layer_map else None
    model = trained_model(projectors, poly, a, b, named, say)
    rows = read_data(calibration, model)
    read = read_data(data, model)
    check_evaluation(model, rows, read, allow_calibration_rows)
    files, sources = files_of(calibration), None
    if isinstance(projectors, Path | str) and files and not isinstance(target, Target):
        sources = Sources(Path(projectors), poly, files, file, a, b, named)
    plan = Plan(axes, all_points, dies, budget or {}, table, jobs, dask, sources)
    place = Path(output) if output else Path("exports") / f"{model.name}.sweep"
    return run_sweep(model, rows, read, plan, place, say)
