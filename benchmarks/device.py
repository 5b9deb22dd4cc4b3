"""Speed of layers on a GPU, beside this machine's CPU, torch's loops on the GPU and CrossSim there.

    benchmarks/device.py [--device cuda] [--crosssim PYTHON]

The four layers of `layers.py`, in batches of each size; inputs and outputs are on the device, as
they are between layers. The CPU takes batches of 256. Below them whole text projectors, from NumPy
to NumPy. `PYTHON` is an interpreter that has CrossSim and CuPy. All integers are compared with the
CPU's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import torch
from harness import THREADS, Row, all_rounds, parser, report, side_by_side, use_threads
from layers import BATCH, BUILDS, Array, inputs, joined, kernels, limits, operations, run_all
from model import compiled, full_size, rows_of
from peers import torch_loops
from projector import AIMED, Contest, crosssim_entry, rates, times

import cimtool
from cimtool.demo.data import DemoFiles
from cimtool.gpu.plugin import TorchDevice
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.types import integer

BATCHES = BATCH, 4096

ITEMS = 16384
"""Texts that whole projectors encode."""

TARGETS = "isaac-rram-128", "hermes-pcm-14nm"

PEERS = "CPU", "torch loops", "CrossSim"

Run = Callable[[], object]


def waited(run: Callable[[], list[torch.Tensor]]) -> Callable[[], list[torch.Tensor]]:
    """The outputs, when the device has computed them."""

    def call() -> list[torch.Tensor]:
        found = run()
        if found[0].is_cuda:
            torch.cuda.synchronize()
        return found

    return call


def on_device(
    ops: list[CrossbarMvm], given: list[Array], device: str
) -> Callable[[], list[torch.Tensor]]:
    """The layers' outputs of inputs that are on the device."""
    backend, (lo, hi) = TorchDevice(device), limits(ops[0].crossbar)
    types = [(integer(("n", len(op.weight)), lo, hi, 1.0),) for op in ops]
    run = [backend.prepare(op, t, op.infer(*t)) for op, t in zip(ops, types, strict=True)]
    there = [backend.enter(x.astype(np.int64)) for x in given]
    return waited(lambda: [kernel(x) for kernel, x in zip(run, there, strict=True)])


def loops_of(
    ops: list[CrossbarMvm], given: list[Array], device: str
) -> Callable[[], list[torch.Tensor]]:
    """The same layers in plain loops of torch."""
    wide = [x.astype(np.int64) for x in given]
    loops = [torch_loops(op, x, device) for op, x in zip(ops, wide, strict=True)]
    return waited(lambda: [loop() for loop in loops])


def layer_row(name: str, batch: int, options: argparse.Namespace) -> Row:
    """The layers of an array in batches of a size, and all peers, turn by turn."""
    converts = BUILDS[name].step is not None
    ops = operations(BUILDS[name])
    few, cpu = inputs(ops), kernels(ops)
    given = [np.resize(x, (batch, x.shape[1])) for x in few]
    run = on_device(ops, given, options.device)
    candidates: dict[str, Run] = {"": run, "CPU": lambda: run_all(cpu, few)}
    with ExitStack() as ends, torch.inference_mode():
        if converts:
            candidates["torch loops"] = loops_of(ops, given, options.device)
        if options.crosssim is not None and name in AIMED:
            contest, gpu = Contest(name, {}), options.device != "cpu"
            one = crosssim_entry(contest, ops, given, options.crosssim, ends, gpu)
            candidates["CrossSim"] = one.run
        taken = all_rounds(candidates, options.rounds)
        pairs = zip(run(), joined(run_all(cpu, few)), strict=True)
        differing = sum(int((y.cpu().numpy() != np.resize(x, y.shape)).sum()) for y, x in pairs)
    return made_row(name, batch, taken, differing)


def made_row(name: str, batch: int, taken: dict[str, list[float]], differing: int) -> Row:
    """A row of the table, from wall times of the device ("") and of its peers."""
    found: dict[str, object] = {
        "array": name,
        "batch": batch,
        "device v/s": rates(batch, taken[""]),
        "differing": differing,
    }
    for peer in PEERS:
        size = BATCH if peer == "CPU" else batch
        if peer in taken:
            found[f"{peer} v/s"] = rates(size, taken[peer])
            found[f"times {peer}"] = times(batch, taken[""], size, taken[peer])
        else:
            found |= {f"{peer} v/s": "", f"times {peer}": ""}
    return found


def matcher_lines(files: DemoFiles, target: str, options: argparse.Namespace) -> Iterator[str]:
    """Whole texts, and scores of all pairs, on the device beside the CPU."""
    bundle = compiled(files, target, target=target)
    text, video = rows_of(files)
    many = np.resize(text, (ITEMS, text.shape[1]))
    cpu, there = cimtool.load(bundle.folder), cimtool.load(bundle.folder, device=options.device)
    taken = side_by_side(
        {"device": lambda: there.encode_text(many), "cpu": lambda: cpu.encode_text(text)},
        options.rounds,
    )
    expected, found, items = cpu.encode_text(text), there.encode_text(text), cpu.encode_video(video)
    differing = sum(int((found[name] != value).sum()) for name, value in expected.items())
    yield (
        f"{target}, whole texts: device {ITEMS / taken['device']:.0f}/s, CPU"
        f" {len(text) / taken['cpu']:.0f}/s, {differing} differing"
    )
    taken = side_by_side(
        {
            "device": lambda: there.score(expected, items),
            "cpu": lambda: cpu.score(expected, items),
        },
        options.rounds,
    )
    differing = int((there.score(expected, items) != cpu.score(expected, items)).sum())
    yield (
        f"{target}, {len(text)} x {len(video)} scores: device {1e3 * taken['device']:.0f} ms, CPU"
        f" {1e3 * taken['cpu']:.0f} ms, {differing} differing"
    )


def main() -> None:
    own = parser(str(__doc__), rounds=7)
    own.add_argument("--device", default="cuda", metavar="NAME", help="cpu, cuda or cuda:N")
    own.add_argument("--only", metavar="TEXT", default="", help="arrays whose name has this")
    own.add_argument("--crosssim", metavar="PYTHON", help="an interpreter with CrossSim and CuPy")
    options = own.parse_args()
    use_threads()
    names = [name for name in BUILDS if options.only in name]
    rows = [layer_row(name, batch, options) for name in names for batch in BATCHES]
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    notes = [
        f"device {options.device}: {card}; the CPU has {THREADS} threads",
        f"two numbers: by the best of {options.rounds} rounds, and by their medians",
    ]
    if not options.only:
        with full_size() as files:
            for target in TARGETS:
                notes += matcher_lines(files, target, options)
    report("device", rows, options.json, notes)


if __name__ == "__main__":
    main()
