"""R@1 of the ways of a query: from the bundle's report, or measured on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.files import REPORT_FILES
from cimtool.base.intervals import Change
from cimtool.base.json_files import read_json
from cimtool.base.typed_fields import fits
from cimtool.bundle.bundle import Bundle
from cimtool.costs.accuracy import WayAccuracy, accuracy_by_kind
from cimtool.costs.scored_pairs import R1, ScoredPairs
from cimtool.costs.ways import WayKind
from cimtool.ir.program import MODALITIES
from cimtool.loading.calibration_rows import require_unseen
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.reference.metrics import RAW_INT8
from cimtool.simulation.simulator import Simulator
from cimtool.verification.drift import StageRow
from cimtool.verification.ranked_data import ranked_data, raw_products
from cimtool.verification.report_format import FORMAT_VERSION, LARGEST_REPORT


def accuracy_of_rows(
    bundle: Bundle,
    rows: Iterable[StageRow],
    samples: int,
    items: int,
    source: str,
    gain: Change | None,
) -> WayAccuracy:
    """The accuracy by the rows of a report, which end with the compiled model.

    `gain` is what that model finds more than raw rows, None if it is not known.
    """
    stages = {row.stage: row.with_interval(R1) for row in rows}
    built = list(stages.values())[-1] if stages else None
    kind: WayKind = "digital" if bundle.program.gallery_items is None else "in the memory"
    kind = kind if bundle.program.shortlist is None else "shortlist"
    raw, sampled = stages.get(RAW_INT8), stages.get(f"Monte Carlo (K={samples})")
    known = accuracy_by_kind(raw, sampled, built, kind)
    return WayAccuracy(known, items, source, _gains(raw, gain, kind))


def _gains(raw: Change | None, gain: Change | None, kind: WayKind) -> dict[WayKind, Change]:
    """The gain of the build; none where machines compute what it does, for want of raw rows."""
    found = Change(0.0, 0.0, 0.0) if raw is None else gain
    return {} if found is None else {kind: found}


def accuracy_on(pairs: ScoredPairs) -> WayAccuracy:
    """The accuracy on data: of raw rows, and of the digital score."""
    raw = raw_products(pairs.data)
    of_raw, (built, gain) = None if raw is None else pairs.found(raw)[0], pairs.found(pairs.scores)
    known = accuracy_by_kind(of_raw, None, built, "digital")
    gains = _gains(of_raw, gain, "digital")
    return WayAccuracy(known, len(pairs.data.video), pairs.data.file, gains)


def scored_pairs(bundle: Bundle, data: EmbeddingsLike, qrels: File | None) -> ScoredPairs:
    """Read data, and encode and score them by a bundle.

    Raises CimError if nothing is right in them, for rows that the bundle was calibrated on, and for
    a bundle that holds its gallery.
    """
    read = ranked_data(bundle.model, data, qrels, None)
    if bundle.gallery is not None:
        raise ArgumentError(
            "{data} is {}; {} holds its gallery, whose R@1 `cimtool verify` measures",
            read.file,
            bundle.name,
        )
    if not read.truth.ranks:
        raise ArgumentError(
            "{data} is {}, which does not say what is right for a {}; expected pairs or judgements",
            read.file,
            read.called[0],
        )
    require_unseen(bundle.calibration, read, bundle.name, CimError("which did not set its ranges"))
    digital = Simulator(bundle.program)
    text, video = (digital.encode(name, getattr(read, name)) for name in MODALITIES)
    return ScoredPairs(read, text, video, digital.score(text, video))


def reported_accuracy(bundle: Bundle, samples: int) -> WayAccuracy | None:
    """The accuracy that the bundle's own `report.json` has; None if there is no report.

    Raises CimError for a file that is no report, and for the report of another bundle.
    """
    file = bundle.folder / REPORT_FILES[0]
    if not file.is_file():
        return None
    values = read_json(file, LARGEST_REPORT)
    with naming(file):
        if not isinstance(values, dict) or values.get("format_version") != FORMAT_VERSION:
            raise CimError(
                f"is not a report of format_version {FORMAT_VERSION}; verify the bundle again, or "
                "remove the file"
            )
        known = values.get("provenance")
        if not isinstance(known, dict) or known.get("files") != bundle.manifest["files"]:
            raise CimError(
                f"is the report of another bundle than {bundle.name}; verify this one, or remove "
                "the file"
            )
        try:
            rows = [_row(one) for one in values["rows"]]
            items = values["data"]["videos"]
            gain = values["worth"]["gain"]
            gained = None if gain is None else _between(gain["value"], gain)
        except (KeyError, TypeError, ValueError):
            rows, items = [], None
        if not rows or not fits(items, int):
            raise CimError("lacks rows of stages or the number of items; verify the bundle again")
    return accuracy_of_rows(bundle, rows, samples, items, REPORT_FILES[0], gained)


def _row(values: Mapping[str, Any]) -> StageRow:
    """A row with its R@1 alone, if it has one; KeyError, TypeError or ValueError for others."""
    metrics, ends = values["metrics"], values["intervals"]
    if R1 not in metrics or R1 not in ends:
        return StageRow(str(values["stage"]))
    r1 = _between(metrics[R1], ends[R1])
    return StageRow(str(values["stage"]), {R1: r1.value}, intervals={R1: r1.interval})


def _between(value: Any, ends: Mapping[str, Any]) -> Change:
    return Change(float(value), float(ends["low"]), float(ends["high"]))
