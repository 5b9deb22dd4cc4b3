"""Bit check: how many values of two implementations of the integer contract differ (none may)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CheckFailed
from cimtool.base.threads import PAIR_BLOCK, one_blas_thread
from cimtool.bundle.bundle import SHORTLIST, Bundle
from cimtool.emit.own_files import require_own_file
from cimtool.emit.runtime import ENCODE_BLOCK, Session
from cimtool.ir.program import MODALITIES, Program, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Features, Simulator, block_height
from cimtool.verification.stages import StageRuns, real_means

REFERENCE_ROWS = 32
"""Rows of each modality on which the readable NumPy reference is compared."""

REFERENCE_PAIRS = 1 << 12
"""Pairs on which it is compared where the items lie in the memory, each slice in each cycle."""

REFERENCE = "the NumPy reference"
ONNX = "ONNX Runtime"

Outputs = Mapping[str, Array]
"""Values by output: `text.mu`, ..., `logit`."""


@dataclass(frozen=True)
class BitCount:
    """Values of one output that differ from the simulator's: their number, and the first."""

    implementation: str
    output: str
    compared: int
    differing: int
    first_index: tuple[int, ...] | None = None
    simulator_value: float | None = None
    other_value: float | None = None

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence if some values differ."""
        return (self.sentence(),) if self.differing else ()

    def sentence(self) -> str:
        """The difference, for a message."""
        index = ", ".join(map(str, self.first_index or ()))
        return (
            f"{self.output}: {self.differing} of {self.compared} values differ between the "
            f"simulator and {self.implementation}, first at [{index}]: {self.simulator_value:.9g} "
            f"and {self.other_value:.9g}"
        )


def count_differences(implementation: str, output: str, simulated: Array, other: Array) -> BitCount:
    """Compare two arrays value by value; CheckFailed if their shapes differ."""
    if simulated.shape != other.shape:
        raise CheckFailed(
            f"{output}: the simulator gives shape {list(simulated.shape)} and {implementation} "
            f"{list(other.shape)}"
        )
    differs = simulated != other
    count = BitCount(implementation, output, simulated.size, int(np.count_nonzero(differs)))
    if not count.differing:
        return count
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), differs.shape))
    values = (float(simulated[index]), float(other[index]))
    return replace(count, first_index=index, simulator_value=values[0], other_value=values[1])


def compare_outputs(
    implementation: str, simulated: Outputs, other: Outputs
) -> tuple[BitCount, ...]:
    """Compare all outputs by name; CheckFailed if one is missing."""
    if set(simulated) != set(other):
        raise CheckFailed(
            f"the simulator gives {', '.join(simulated)} and {implementation} {', '.join(other)}"
        )
    return tuple(
        count_differences(implementation, name, values, other[name])
        for name, values in simulated.items()
    )


def outputs_of(features: Mapping[str, Features], logits: Array) -> dict[str, Array]:
    """Features of both modalities and logits [n, m] by the names that a count has."""
    named = {k: v for m in MODALITIES for k, v in as_inputs(m, features[m]).items()}
    return {**named, "logit": logits}


def count_against_onnx(bundle: Bundle, data: Embeddings, runs: StageRuns) -> tuple[BitCount, ...]:
    """Compare ONNX Runtime with the simulator on all rows, and add the row of the ONNX files.

    Raises CimError if one is not the file of the bundle's program.
    """
    rows: dict[str, Array] = {"text": data.text, "video": data.video}
    for graph in bundle.program.graphs:
        require_own_file(bundle.folder / f"{graph.name}.onnx", graph)
    features: dict[str, Features] = {
        graph.name: Session(bundle.folder / f"{graph.name}.onnx").encode(
            rows[graph.name], block_height(graph, ENCODE_BLOCK)
        )
        for graph in (bundle.program.text, bundle.program.video)
    }
    most = PAIR_BLOCK // bundle.program.score.numbers_of_pair
    score = Session(bundle.folder / "score.onnx")
    logits = score.score(features["text"], features["video"], most)
    simulated = outputs_of(runs.features, runs.scores)
    counts = compare_outputs(ONNX, simulated, outputs_of(features, logits))
    if bundle.program.shortlist is not None:
        counts += _compare_shortlist(bundle, runs, features["text"])
    runs.table.add(ONNX, logits, *real_means(bundle.program, features))
    if bundle.program.shortlist is not None:
        runs.table.answer_by(runs.answers)
    return counts


def _compare_shortlist(
    bundle: Bundle, runs: StageRuns, onnx_text: Features
) -> tuple[BitCount, ...]:
    """Compare the `ed` of all pairs by which items are shortlisted."""
    text = runs.features["text"]
    found = np.concatenate([ed for _, ed in runs.simulator.iter_distances(text)])
    onnx = Session(bundle.folder / SHORTLIST).distances(onnx_text, found.shape[1])
    few = reference_queries(found.shape[1])
    first = {name: value[:few] for name, value in text.items()}
    (_, readable), *_ = Simulator(bundle.program, fast=False).iter_distances(first)
    return (
        count_differences(ONNX, "shortlist.ed", found, onnx),
        count_differences(REFERENCE, "shortlist.ed", found[: len(readable)], readable),
    )


def count_against_reference(
    program: Program, rows: Mapping[str, Array], simulated: Outputs
) -> tuple[BitCount, ...]:
    """Compare the simulator's outputs with the readable NumPy operations on the first rows.

    `rows` are embeddings by modality.
    """
    held = program.gallery_items
    queries, items = (
        (REFERENCE_ROWS, REFERENCE_ROWS) if held is None else (reference_queries(held), held)
    )
    readable = Simulator(program, fast=False)
    # Many small products: a thread of BLAS for each modality, not a pool that waits for its others.
    with one_blas_thread, ThreadPoolExecutor(len(MODALITIES)) as pool:
        jobs = {m: pool.submit(readable.encode, m, rows[m][:REFERENCE_ROWS]) for m in MODALITIES}
    features = {modality: job.result() for modality, job in jobs.items()}
    few = {name: values[:queries] for name, values in features["text"].items()}
    logits = readable.score(few, features["video"])
    first = {name: values[:REFERENCE_ROWS] for name, values in simulated.items()}
    first["logit"] = simulated["logit"][:queries, :items]
    return compare_outputs(REFERENCE, first, outputs_of(features, logits))


def reference_queries(items: int) -> int:
    """Queries of the NumPy reference against the items in the memory: fewer for more items."""
    return max(1, min(REFERENCE_ROWS, REFERENCE_PAIRS // items))


def bit_sentences(counts: Sequence[BitCount]) -> tuple[str, ...]:
    """One sentence for each implementation compared with the simulator."""
    found = []
    for name in dict.fromkeys(count.implementation for count in counts):
        own = [count for count in counts if count.implementation == name]
        differing, compared = sum(one.differing for one in own), sum(one.compared for one in own)
        found.append(f"{differing} of {compared:,} values differ between the simulator and {name}")
    return tuple(found)
