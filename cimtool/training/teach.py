"""A teacher from what a caller gives: items chosen, pairs drawn and labelled, the file written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.base.files import check_output
from cimtool.base.progress import Say
from cimtool.loading.data import EmbeddingsLike, File
from cimtool.loading.source import ModelSource
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

if TYPE_CHECKING:
    from cimtool.loading.source import Projectors


def teach(
    projectors: Projectors | None,
    layer_map: File | None,
    data: EmbeddingsLike | None,
    gaussians: File | Mapping[str, Array] | None,
    pairs: int,
    matched: float,
    labels: LabelKind,
    samples: int | None,
    a: float,
    b: float,
    seed: int,
    output: File | None,
    say: Say,
) -> Teacher:
    """Label pairs of data run through projectors, or of Gaussians; CimError for any mistake."""
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
        items = model_items(ModelSource.of(projectors, layer_map=layer_map), data, say)
    elif layer_map is not None:
        raise ArgumentError("{layer_map} names layers of {projectors}; expected it with them")
    else:
        items = gaussian_items(gaussians or {})
    made = make_teacher(items, pairs, matched, labels, sigmoid, seed, say)
    if output is not None:
        write_teacher(made, Path(output))
    return made
