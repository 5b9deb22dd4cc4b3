"""Bit check: how many values of two implementations of the integer contract differ (none may)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from cimtool.base.arrays import Array
from cimtool.base.errors import CheckFailed
from cimtool.ir.program import MODALITIES, Program
from cimtool.simulation.simulator import Simulator

REFERENCE_ROWS = 32
"""Rows of each modality on which the readable NumPy reference is compared."""

REFERENCE_PAIRS = 1 << 12
"""Pairs on which it is compared where the items lie in the memory, each slice in each cycle."""

REFERENCE = "the NumPy reference"

Features = Mapping[str, Array]


@dataclass(frozen=True)
class BitCount:
    """How many values of one output differ from the simulator's, and the first that does."""

    implementation: str
    output: str
    compared: int
    differing: int
    first_index: tuple[int, ...] | None = None
    simulator_value: float | None = None
    other_value: float | None = None

    def sentence(self) -> str:
        """What differs, for a message."""
        index = ", ".join(map(str, self.first_index or ()))
        return (
            f"{self.output}: {self.differing} of {self.compared} values differ between the "
            f"simulator and {self.implementation}, first at [{index}]: {self.simulator_value:.9g} "
            f"and {self.other_value:.9g}"
        )


def count_differences(implementation: str, output: str, simulated: Array, other: Array) -> BitCount:
    """Compare two arrays value by value; CheckFailed where their shapes differ."""
    if simulated.shape != other.shape:
        raise CheckFailed(
            f"{output}: the simulator gives shape {list(simulated.shape)} and {implementation} "
            f"{list(other.shape)}"
        )
    differs = simulated != other
    count = int(np.count_nonzero(differs))
    if not count:
        return BitCount(implementation, output, simulated.size, 0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), differs.shape))
    return BitCount(
        implementation,
        output,
        simulated.size,
        count,
        index,
        float(simulated[index]),
        float(other[index]),
    )


def count_features(
    implementation: str, modality: str, simulated: Features, other: Features
) -> list[BitCount]:
    """Compare the features of one modality; CheckFailed where an output is missing."""
    if set(simulated) != set(other):
        raise CheckFailed(
            f"{modality}: the simulator gives {', '.join(simulated)} and {implementation} "
            f"{', '.join(other)}"
        )
    return [
        count_differences(implementation, f"{modality}.{name}", values, other[name])
        for name, values in simulated.items()
    ]


def compare_implementations(
    implementation: str,
    text: tuple[Features, Features],
    video: tuple[Features, Features],
    logits: tuple[Array, Array],
) -> tuple[BitCount, ...]:
    """Compare (simulator's, other's) features of both modalities and their logits [n, m]."""
    counts = []
    for modality, (simulated, other) in zip(MODALITIES, (text, video), strict=True):
        counts += count_features(implementation, modality, simulated, other)
    return (*counts, count_differences(implementation, "logit", *logits))


def compare_with_reference(
    program: Program, rows: Mapping[str, Array], features: Mapping[str, Features], logits: Array
) -> tuple[BitCount, ...]:
    """Compare the simulator's results with the readable NumPy operations on the first rows.

    `rows` are embeddings by modality, `features` and `logits` [n, m] what the simulator made of
    them.
    """
    queries = REFERENCE_ROWS if program.gallery_items is None else few_rows(program.gallery_items)
    readable = Simulator(program, fast=False)
    # Many small products: a thread of BLAS for each modality, not a pool that waits for its others.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(len(MODALITIES)) as pool:
        jobs = {m: pool.submit(readable.encode, m, rows[m][:REFERENCE_ROWS]) for m in MODALITIES}
    found = {modality: job.result() for modality, job in jobs.items()}
    first = {
        m: {name: values[:REFERENCE_ROWS] for name, values in features[m].items()}
        for m in MODALITIES
    }
    items = REFERENCE_ROWS if program.gallery_items is None else None
    few = {name: values[:queries] for name, values in found["text"].items()}
    return compare_implementations(
        REFERENCE,
        (first["text"], found["text"]),
        (first["video"], found["video"]),
        (logits[:queries, :items], readable.score(few, found["video"])),
    )


def few_rows(items: int) -> int:
    """Queries of the NumPy reference against so many items in the memory: fewer for many."""
    return max(1, min(REFERENCE_ROWS, REFERENCE_PAIRS // items))


def failures(counts: Sequence[BitCount]) -> tuple[str, ...]:
    """One sentence for each output that differs."""
    return tuple(count.sentence() for count in counts if count.differing)
