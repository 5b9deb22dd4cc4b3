"""A pass of the pipeline: its options, what it requires and leaves, and the rows it computes on."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError
from cimtool.base.threads import side_by_side
from cimtool.base.untrusted import MAX_MEMORY, NUMBER, memory_size
from cimtool.hardware.settings import Settings
from cimtool.ir.op import Level
from cimtool.ir.program import Graph, Program
from cimtool.ir.types import numbers_of_item
from cimtool.simulation.simulator import live_numbers


@dataclass(frozen=True)
class Job:
    """Inputs of every pass in addition to the program: calibration rows, and the bits of layers.

    `text` and `video` are the rows of a `file`, `text_to_video` the right video of each text, None
    if it is not known. `note` takes one line on a decision of a pass that a user must know, such as
    the error of an approximation. `source` is the program in real numbers from which the passes
    start; if there is none, `run_passes` takes the program that it is given.
    """

    settings: Settings
    text: Array
    video: Array
    note: Callable[[str], None]
    file: str = "calibration"
    text_to_video: IntArray | None = None
    source: Program | None = None

    def rows(self, modality: str) -> Array:
        """The calibration rows [n, width] float32 of one modality."""
        return self.text if modality == "text" else self.video

    def halves(self) -> Iterator[tuple[Array, Array]]:
        """Texts and videos of each of two halves of the rows."""
        places = half_rows(len(self.text), len(self.video), self.text_to_video)
        return ((self.text[texts], self.video[videos]) for texts, videos in places)


HALF_ROWS, LEAST_HALF = 256, 16
"""Rows of each modality in a half of them: those that are scored at most, and those needed."""


def half_rows(
    texts: int, videos: int, text_to_video: IntArray | None
) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """Places of every second video with its texts, and of the others.

    Where `text_to_video` is None, every second row of each.
    """
    of_text = np.arange(texts) if text_to_video is None else text_to_video[:texts]
    even, odd = (
        (np.flatnonzero(of_text % 2 == turn), np.arange(turn, videos, 2)) for turn in (0, 1)
    )
    return even, odd


RIGHT_ROWS = "rows of the scale that the model was trained on"
"""The first thing to look at if a model's numbers are too large to compile."""


class Pass(ABC):
    """A map from program to program: a frozen dataclass whose fields are its options.

    `name` names its stage, which bundles keep if `kept` or if no other stage follows. An `optional`
    pass that returns the program as it is has no stage. `doing` is the line of progress while it
    runs. It takes a program at the level `requires`, calibrated if
    `requires_calibration`, to the level `leaves`.
    """

    name: ClassVar[str]
    doing: ClassVar[str]
    kept: ClassVar[bool] = True
    optional: ClassVar[bool] = False
    requires: ClassVar[Level]
    requires_calibration: ClassVar[bool] = False
    leaves: ClassVar[Level]

    @abstractmethod
    def apply(self, program: Program, job: Job) -> Program:
        """The program after this pass."""


def both_projectors(
    program: Program, job: Job, change: Callable[[Graph, Job], Graph]
) -> tuple[Graph, Graph]:
    """Both projectors as `change` makes them, side by side in threads.

    The notes of the text projector come first, as if it were changed first.
    """

    def changed(graph: Graph) -> tuple[Graph, list[str]]:
        said: list[str] = []
        return change(graph, replace(job, note=said.append)), said

    (text, first), (video, second) = side_by_side(changed, [program.text, program.video])
    for sentence in (*first, *second):
        job.note(sentence)
    return text, video


MOST_BYTES = 1 << 29
"""Bytes that values may take on rows that are computed at once, if nothing else is said."""

LEAST_ROWS = 16
"""A mean over fewer rows than these says little of a layer."""


def room_for(graph: Graph, job: Job, kept: Sequence[str] = ()) -> int:
    """Rows of a projector that there is room for, whose values are freed unless they are `kept`.

    Raises CimError if there is no room for LEAST_ROWS.
    """
    return _rows_with_room(graph, job, live_numbers(graph, kept))


def require_room(graph: Graph, job: Job) -> None:
    """Raise CimError if the values of a projector leave no room for LEAST_ROWS of its rows."""
    room_for(graph, job)


def rows_with_room(graph: Graph, job: Job, doing: str, kept: Sequence[str] = ()) -> Array:
    """The calibration rows of a projector; evenly spaced ones if there is no room for all.

    Values are freed after their last use, unless they are `kept`. The number of rows follows from
    the graph alone: a larger limit of memory lets larger items in, and changes no build. A note
    says if not all rows are taken, and for which step (`doing`). Raises CimError if there is no
    room for LEAST_ROWS.
    """
    rows = job.rows(graph.name)
    most = room_for(graph, job, kept)
    if most >= len(rows):
        return rows
    job.note(f"{graph.name}: {doing} on {most:,} of {len(rows):,} rows, as many as fit in memory")
    return rows[np.arange(most) * len(rows) // most]


def _rows_with_room(graph: Graph, job: Job, numbers: int) -> int:
    """The rows that there is room for, if an item has `numbers` numbers in memory at once."""
    least, item = min(LEAST_ROWS, len(job.rows(graph.name))), NUMBER * numbers
    said = os.environ.get(MAX_MEMORY)
    limit = MOST_BYTES if said is None else max(MOST_BYTES, memory_size(said))
    if item * least <= limit:
        return max(least, MOST_BYTES // item)
    sizes = {node.name: numbers_of_item(graph.types[node.name].shape) for node in graph.nodes}
    widest = graph.by_name[max(sizes, key=sizes.__getitem__)]
    raise ArgumentError(
        "{}: {:,} numbers per item, {:,} with other values in use, so {} rows take {:,} bytes of "
        "memory; expected at most {:,}, or a larger {max_memory}",
        f"{job.file}: {graph.layer(widest)} ({widest.op.name})",
        sizes[widest.name],
        numbers,
        least,
        item * least,
        limit,
    )
