"""The rows that a sweep or a tuning compiles with and measures on, and their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cimtool.base.errors import ArgumentError
from cimtool.bundle.compilation import calibration_rows, fit_rows
from cimtool.experiments.engine import content_digest, program_bytes
from cimtool.experiments.options import SweepOptions, TuneOptions
from cimtool.loading.calibration_rows import require_unseen, without_seen
from cimtool.loading.digests import digests_of
from cimtool.loading.embeddings import Embeddings, read_data, require_rivals
from cimtool.loading.model import Model
from cimtool.verification.ranked_data import check_items, ranked_data


def measured_rows(
    model: Model, options: SweepOptions | TuneOptions
) -> tuple[Embeddings, Embeddings]:
    """Read the rows that calibrate a model, and those that measure it.

    `options` say which they are, with what they are judged, and whether rows that are in both are
    refused, measured or dropped. Raises CimError if the data rank nothing, for refused rows, and
    for a gallery that is smaller than that of the data.
    """
    seen = options.calibration_rows
    calibrating = read_data(options.calibration, model)
    evaluated = ranked_data(model, options.data, options.qrels, options.distractors)
    require_rivals(evaluated)
    check_items(options.gallery, evaluated)
    if seen == "allow":
        return calibrating, evaluated
    known = digests_of(*calibration_rows(calibrating, []))
    if seen == "drop":
        (evaluated,) = without_seen([known], [evaluated], model.name)
    else:
        require_unseen(known, evaluated, model.name)
    return calibrating, evaluated


MOST_ITEMS = 10**12
"""The largest gallery that a query is priced against."""


def check_gallery(gallery: int | None) -> None:
    """Raise CimError for a gallery that is no gallery, or is beyond MOST_ITEMS."""
    if gallery is not None and not 2 <= gallery <= MOST_ITEMS:
        raise ArgumentError("{gallery} is {:,}; expected 2 to {:,} items", gallery, MOST_ITEMS)


IDENTITY: Mapping[str, str] = {
    "model": "model",
    "calibration": "calibration data",
    "data": "evaluation data",
    "reference": "reference",
}
"""Words for the parts of `measured_identity`."""


def measured_identity(
    model: Model, reference: str, calibration: Embeddings, data: Embeddings
) -> dict[str, str]:
    """Digests, by name, of the contents that all points of one folder share."""
    score = json.dumps([model.a, model.b, model.head.to_json()])
    rows = *calibration_rows(calibration, []), *fit_rows(calibration).values()
    return {
        "model": content_digest(program_bytes(model.program, score)),
        "calibration": content_digest(*rows),
        "data": data.digest,
        "reference": reference,
    }
