"""The library: compile a model, load a bundle, encode, score and verify, with or without files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cimtool.compilation import Compilation, compile, prepare
from cimtool.emit.bundle import check_place
from cimtool.errors import CimError
from cimtool.files import sha256
from cimtool.inputs import Data, read_data
from cimtool.loading.modality import modality_file, modality_rows
from cimtool.matcher import Matcher, load, open_bundle
from cimtool.progress import Say, silent
from cimtool.scoring import simulate

if TYPE_CHECKING:
    from cimtool.costs.estimate import Estimate
    from cimtool.dies import NoiseOptions
    from cimtool.programmed import Programming
    from cimtool.verification.compare import Comparison
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
    "verify",
)


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
    samples: int | None = None,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: Path | str | None = None,
    noise: NoiseOptions | None = None,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    With `noise` the report has rows of the median die and of the worst in twenty. Writes
    `report.html`, `report.json` and `report.md` into `report` (default: the bundle's folder).
    Raises CheckFailed where a bit differs or a metric is over its limit in `max_drift`.
    """
    from cimtool.verification.run import verify_bundle

    opened = open_bundle(bundle)
    read = read_data(data, opened.model)
    return verify_bundle(
        opened,
        read,
        samples,
        seed,
        max_drift or {},
        Path(report) if report else opened.folder,
        say,
        noise,
    )


def compare(
    bundles: Sequence[Path | str],
    data: Data,
    *,
    samples: int | None = None,
    seed: int = 0,
    say: Say = silent,
) -> Comparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    Raises CheckFailed where a bit differs.
    """
    from cimtool.verification.compare import compare_bundles

    opened = [open_bundle(bundle) for bundle in bundles]
    rows = [read_data(data, one.model) for one in opened]
    return compare_bundles(opened, rows, samples, seed, say)


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
    from cimtool.verification.run import DEFAULT_SAMPLES

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
