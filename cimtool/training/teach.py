"""A teacher from what a caller gives: items chosen, pairs drawn and labelled, the file written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.base.files import check_output
from cimtool.base.progress import Say, silent
from cimtool.loading.data import EmbeddingsLike, File
from cimtool.loading.source import ModelSource, Projectors
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.training.items import gaussian_items, model_items
from cimtool.training.teacher import Sigmoid
from cimtool.training.teacher_file import (
    LabelKind,
    Teacher,
    check_pairs,
    make_teacher,
    write_teacher,
)


def teacher(
    projectors: Projectors | None = None,
    data: EmbeddingsLike | None = None,
    *,
    gaussians: File | Mapping[str, Array] | None = None,
    layer_map: File | None = None,
    pairs: int = 300_000,
    matched: float = 0.9,
    labels: LabelKind = "mc",
    samples: int | None = None,
    a: float = 0.1,
    b: float = 0.0,
    seed: int = 0,
    output: File | None = None,
    say: Say = silent,
) -> Teacher:
    """Draw pairs, a share `matched` of them right ones, and label them with log p and log(1-p).

    Pairs are of `data` run through `projectors`, or of `gaussians`: arrays `text_mu`, `text_logvar`
    [n, d], `video_mu`, `video_logvar` [m, d] by name or in an `.npz`. Labels are Monte Carlo of
    `samples` a side (default: 10) or exact. Written to `output` where it is given. Raises CimError
    for any mistake.
    """
    if (projectors is None) == (gaussians is None):
        given = "neither is" if gaussians is None else "both are"
        raise ArgumentError("{projectors} and {gaussians}: {} given; expected one of them", given)
    if (projectors is None) != (data is None):
        raise ArgumentError("{data} is what {projectors} are run on; expected both or neither")
    if labels == "exact" and samples is not None:
        raise ArgumentError("{samples} is given; exact labels have none ({labels} mc)")
    sigmoid = Sigmoid(a, b, DEFAULT_SAMPLES if samples is None else samples)
    check_pairs(pairs, matched, seed)
    if output is not None:
        check_output(Path(output), ".npz")
    if projectors is not None and data is not None:
        items = model_items(ModelSource(projectors, layer_map=layer_map), data, say)
    elif layer_map is not None:
        raise ArgumentError("{layer_map} names layers of {projectors}; expected it with them")
    else:
        items = gaussian_items(gaussians or {})
    made = make_teacher(items, pairs, matched, labels, sigmoid, seed, say)
    if output is not None:
        write_teacher(made, Path(output))
    return made
