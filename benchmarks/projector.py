"""Speed of one projector's four layers on each kind of array, beside its peers and limits.

    benchmarks/projector.py --crosssim PYTHON --aihwkit PYTHON

`PYTHON` is an interpreter that has the simulator. cimtool's integers of the first inputs of a batch
(CHECKED_ROWS, all columns) are compared with the readable reference, and CrossSim's outputs of the
same inputs with cimtool's; with read noise CrossSim takes one input at a time (NOISY_BATCH).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import crosssim
import numpy as np
import onnx
import onnxruntime
import torch
from dies import die_kernels
from harness import (
    Row,
    all_rounds,
    forget_peak,
    in_child,
    parser,
    peak_bytes,
    report,
    side_by_side,
    trimmed_bytes,
    use_threads,
)
from layers import (
    BATCH,
    BITS,
    BUILDS,
    CHECKED_ROWS,
    LAYERS,
    ROWS,
    Array,
    Build,
    differing,
    inputs,
    joined,
    kernels,
    operations,
    run_all,
)
from onnx import TensorProto, helper, numpy_helper
from peers import Peer, int8_session, torch_loops

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.spec import Noise

ORT, LOOPS, CROSSSIM, AIHWKIT = "onnxruntime int8", "torch loops", "CrossSim", "aihwkit"


@dataclass(frozen=True)
class Contest:
    """An array of `BUILDS`, with `read` noise or none, and how many times each peer is aimed at."""

    build: str
    aims: Mapping[str, float]
    read: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The array and its noise."""
        return f"{self.build}, read noise a {self.read['redraw']}" if self.read else self.build


def read_noise(redraw: str) -> dict[str, Any]:
    """Read noise of a hundredth of a conductance."""
    return {"sigma": 0.01, "redraw": redraw}


CONTESTS = (
    Contest("lossless, unsigned", {ORT: 1}),
    Contest("lossless, signed", {ORT: 1}),
    Contest("1 slice, 1 cycle", {CROSSSIM: 15, AIHWKIT: 20, LOOPS: 8}),
    Contest("4 slices, 1 cycle", {CROSSSIM: 15, LOOPS: 10}),
    Contest("4 slices, 8 cycles", {CROSSSIM: 100, LOOPS: 20}),
    Contest("4 slices flipped, 8 cycles, signed", {LOOPS: 20}),
    Contest("4 slices, 8 cycles", {CROSSSIM: 500}, read_noise("cycle")),
    Contest("4 slices, 8 cycles", {CROSSSIM: 200}, read_noise("mvm")),
)

AIMED = {one.build for one in CONTESTS if CROSSSIM in one.aims}
"""Arrays that CrossSim has as well."""

NOISY_BATCH = 1
"""Inputs that CrossSim takes at a time with read noise: it copies the cells for each."""


def rate(build: Build) -> float:
    """Operations of a batch: slices x cycles x 2 B K N, or 2 B K N where lossless."""
    crossbar = build.crossbar
    count = 1 if build.step is None else crossbar.slices * len(crossbar.cycles)
    return float(count * sum(2 * BATCH * height * width for height, width in LAYERS))


def machine_limits() -> dict[str, float]:
    """Operations a second of large int8 products: the best that libraries get."""
    rows, width = 1024, 2048
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-127, 128, (n, width)).astype(np.int8) for n in (rows, width))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "limit",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, width])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, width])],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    unsigned, tensors = x.view(np.uint8), (torch.from_numpy(x), torch.from_numpy(w))
    onnx.checker.check_model(model)
    static = int8_session([rng.integers(-127, 128, shape) for shape in LAYERS], 0)
    narrow = np.ascontiguousarray(unsigned[:, : LAYERS[0][0]])
    taken = side_by_side(
        {
            "torch._int_mm": lambda: torch._int_mm(*tensors),
            "MatMulInteger": lambda: session.run(None, {"x": unsigned}),
            "onnxruntime int8, static": lambda: static(narrow),
        },
        10,
    )
    macs = dict.fromkeys(taken, width * width)
    macs["onnxruntime int8, static"] = sum(height * across for height, across in LAYERS)
    return {name: 2.0 * rows * macs[name] / t for name, t in taken.items()}


@dataclass(frozen=True)
class Entry:
    """One peer in a contest: a batch of so many inputs, how it is told, and what it computed."""

    run: Callable[[], object]
    batch: int = BATCH
    versions: str = ""
    outputs: Callable[[], list[Array]] | None = None


def crosssim_entry(
    contest: Contest, ops: Sequence[CrossbarMvm], given: Sequence[Array], python: str,
    ends: ExitStack, gpu: bool = False,
) -> Entry:  # fmt: skip
    """CrossSim on the same weights and inputs, with converters of the same steps."""
    build = BUILDS[contest.build]
    assert build.step is not None
    folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
    batch = NOISY_BATCH if contest.read else len(given[0])
    values = crosssim.parameters(build.crossbar, build.step, ROWS, max(n for _, n in LAYERS))
    values["simulation.useGPU"] = gpu
    if contest.read:
        sigma = contest.read["sigma"]
        values |= crosssim.error("read_noise", "NormalProportionalDevice", sigma)
    (folder / "parameters.json").write_text(json.dumps(values))
    arrays: dict[str, Any] = {f"weight{i}": op.weight for i, op in enumerate(ops)}
    arrays |= {f"inputs{i}": x[:batch] for i, x in enumerate(given)}
    np.savez(folder / "layers.npz", **arrays)
    peer = Peer(python, "crosssim_speed.py", str(folder))
    ends.callback(peer.close)

    def outputs() -> list[Array]:
        with np.load(folder / "outputs.npz") as arrays:
            return [arrays[name] for name in arrays.files]

    told = ", ".join(f"{name} {version}" for name, version in peer.versions.items())
    return Entry(peer, batch, told, None if contest.read else outputs)


def aihwkit_entry(python: str, ends: ExitStack) -> Entry:
    """`AnalogLinear` of aihwkit on random weights and inputs."""
    shape = {"layers": LAYERS, "batch": BATCH, "rows": ROWS, "bits": BITS}
    peer = Peer(python, "aihwkit_peer.py", json.dumps(shape))
    ends.callback(peer.close)
    return Entry(
        peer, versions=f"aihwkit {peer.versions['aihwkit']}, torch {peer.versions['torch']}"
    )


def entry(
    peer: str, contest: Contest, ops: list[CrossbarMvm], given: list[Array],
    pythons: Mapping[str, str | None], ends: ExitStack,
) -> Entry | None:  # fmt: skip
    """A peer's entry; None for a simulator whose interpreter is not given."""
    if peer == ORT:
        session = int8_session([op.weight for op in ops], 0 if given[0].dtype == np.uint8 else 128)
        return Entry(lambda: session(given[0].view(np.uint8)))
    if peer == LOOPS:
        loops = [torch_loops(op, x.astype(np.int64)) for op, x in zip(ops, given, strict=True)]
        return Entry(lambda: [loop() for loop in loops])
    python = pythons[peer]
    if python is None:
        return None
    if peer == AIHWKIT:
        return aihwkit_entry(python, ends)
    return crosssim_entry(contest, ops, given, python, ends)


def own_kernels(contest: Contest, ops: list[CrossbarMvm]) -> list[Callable[[Array], Array]]:
    """cimtool's layers, on a die where there is noise."""
    if not contest.read:
        return kernels(ops)
    noise = {"source": "a benchmark", "g_max": 25.0, "read": contest.read}
    return die_kernels(ops, Noise.model_validate(noise))[0]


def rows_of(
    contest: Contest, rounds: int, limit: float, pythons: Mapping[str, str | None]
) -> Iterator[Row]:
    """Yield the rows of one contest: cimtool and all of its peers, turn by turn."""
    build = BUILDS[contest.build]
    ops = operations(build)
    given, run = inputs(ops), own_kernels(contest, ops)
    with ExitStack() as ends, torch.inference_mode():
        entries = {peer: entry(peer, contest, ops, given, pythons, ends) for peer in contest.aims}
        candidates = {name: one.run for name, one in entries.items() if one is not None}
        taken = all_rounds({"": lambda: run_all(run, given), **candidates}, rounds)
        found = joined(run_all(run, given))
        speed = rate(build) / min(taken[""])
        for peer, one in entries.items():
            yield {
                "array": contest.name,
                "cimtool v/s": rates(BATCH, taken[""]),
                "GOP/s": round(speed / 1e9),
                "of int8 limit": f"{speed / limit:.0%}",
                "differing": "" if contest.read else differing(ops, found, given),
                "beside": peer if one is None else one.versions or peer,
                "its v/s": "no interpreter" if one is None else rates(one.batch, taken[peer]),
                "times faster": ""
                if one is None
                else times(BATCH, taken[""], one.batch, taken[peer]),
                "aim": contest.aims[peer],
                "equal outputs": "" if one is None else _equal(one, build, found),
            }


def rates(batch: int, seconds: Sequence[float]) -> str:
    """Vectors a second, by the best round and the median."""
    best, middle = (batch / f(seconds) for f in (min, median))
    places = 0 if best > 20 else 2
    return f"{best:.{places}f}, {middle:.{places}f}"


def times(batch: int, own: Sequence[float], peer_batch: int, theirs: Sequence[float]) -> str:
    """Their time of an input by ours, by best rounds and medians."""
    best, middle = (batch / peer_batch * f(theirs) / f(own) for f in (min, median))
    return f"{best:.3g}, {middle:.3g}"


def _equal(one: Entry, build: Build, found: Sequence[Array]) -> str:
    """The share of a peer's outputs that are cimtool's, to within half a code."""
    if one.outputs is None or build.step is None:
        return ""
    pairs = zip(one.outputs(), found, strict=True)
    equal = [np.abs(theirs - own[: len(theirs)]) < 2.0 ** (build.step - 1) for theirs, own in pairs]
    return f"{np.concatenate([e.ravel() for e in equal]).mean():.2%}"


def memory(build: Build) -> tuple[int, int]:
    """Bytes of one 2048x2048 layer's packed weights, and what a batch holds at most, with them."""
    use_threads()
    (layer,) = operations(build)[1:2]
    (x,) = inputs([layer])
    kernels([layer])[0](x)  # compiles, and loads libraries
    before = trimmed_bytes()
    run = kernels([layer])
    trimmed_bytes()
    forget_peak()
    run_all(run, [x])
    crossbar = layer.crossbar
    cells = 1.0 if build.step is None else crossbar.slices * crossbar.weights.cell_bits / 8
    return int(layer.weight.size * cells), peak_bytes() - before


def memory_rows(names: Sequence[str]) -> list[str]:
    """Memory of a batch, beside three times the packed weights plus the batch in and out."""
    batch = BATCH * (LAYERS[1][0] + 8 * LAYERS[1][1])
    lines = []
    for name in names:
        packed, held = in_child(memory, BUILDS[name])
        share = held / (3 * packed + batch)
        lines.append(
            f"memory, {name}: {held / 1e6:.1f} MB with {packed / 1e6:.1f} MB of packed weights,"
            f" {share:.0%} of three times these and the batch"
        )
    return lines


def main() -> None:
    own: argparse.ArgumentParser = parser(str(__doc__), rounds=7)
    own.add_argument("--only", metavar="TEXT", default="", help="arrays whose name has this")
    for peer in (CROSSSIM, AIHWKIT):
        help_text = f"an interpreter that has {peer}"
        own.add_argument(f"--{peer.lower()}", metavar="PYTHON", help=help_text)
    options = own.parse_args()
    use_threads()
    found = machine_limits()
    limit = max(found.values())
    pythons = {peer: vars(options)[peer.lower()] for peer in (CROSSSIM, AIHWKIT)}
    rows = [
        row
        for contest in CONTESTS
        if options.only in contest.name
        for row in rows_of(contest, options.rounds, limit, pythons)
    ]
    shown = ", ".join(f"{name} {value / 1e9:.0f}" for name, value in found.items())
    notes = [
        f"two numbers: by the best of {options.rounds} rounds, and by their medians",
        f"differing: of the first {CHECKED_ROWS} of {BATCH} inputs; CrossSim with read noise in "
        f"batches of {NOISY_BATCH}",
        f"int8 limits, GOP/s: {shown}",
        *memory_rows(list(BUILDS)),
    ]
    report("projector", rows, options.json, notes)


if __name__ == "__main__":
    main()
