"""Speed of the simulator at encoding items, beside torch float32 and onnxruntime int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import Row, arguments, report, side_by_side, use_threads
from model import compiled, full_size, rows_of
from peers import torch_loops

import cimtool
from cimtool.bundle.bundle import Bundle
from cimtool.demo.data import DemoFiles
from cimtool.emit.runtime import Session
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Graph
from cimtool.simulation.simulator import ROW_BLOCK

SECONDS = 2
"""Limits for 1,500 texts and 1,500 videos on `ideal`."""

CONVERTED_ROWS = 256
"""Texts that are encoded on targets with converters: plain loops over groups are slow."""

Array = np.ndarray[Any, Any]


def float_layers(bundle: Bundle, modality: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weight and bias of the four layers, BatchNorm folded, in the order fc1, fc2, mu, logvar."""
    (folded,) = (stage.program for stage in bundle.stages if stage.name == "folded")
    graph = getattr(folded, modality)
    ops = {node.name: node.op for node in graph.nodes}
    names = ("fc1", "fc2", "mu", "logvar")
    return [
        (torch.from_numpy(ops[n].weight).float(), torch.from_numpy(ops[n].bias).float())
        for n in names
    ]


def encode_float(layers: list[tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> None:
    """The same layers in float32: mu and the variance."""
    fc1, fc2, mu, logvar = layers
    with torch.inference_mode():
        for rows in torch.split(x, ROW_BLOCK):
            hidden = torch.addmm(fc1[1], rows, fc1[0]).relu_()
            hidden = torch.addmm(fc2[1], hidden, fc2[0]).relu_()
            torch.addmm(mu[1], hidden, mu[0])
            torch.addmm(logvar[1], hidden, logvar[0]).exp_()


def lossless(files: DemoFiles, rounds: int) -> list[Row]:
    """All items on `ideal`: one integer product a layer."""
    bundle = compiled(files, "ideal", target="ideal")
    text, video = rows_of(files)
    matcher = cimtool.load(bundle.folder)
    layers = [float_layers(bundle, modality) for modality in ("text", "video")]
    tensors = torch.from_numpy(text), torch.from_numpy(video)
    sessions = [Session(bundle.folder / f"{m}.onnx", threads=2) for m in ("text", "video")]

    def encode_both() -> None:
        for both in zip(layers, tensors, strict=True):
            encode_float(*both)

    candidates: dict[str, Callable[[], object]] = {
        "cimtool": lambda: (matcher.encode_text(text), matcher.encode_video(video)),
        "torch": encode_both,
        "onnxruntime": lambda: (sessions[0].encode(text), sessions[1].encode(video)),
    }
    taken = side_by_side(candidates, rounds)
    names = {"torch": "torch float32", "onnxruntime": "text.onnx, video.onnx in onnxruntime"}
    return [
        row("ideal", len(text) + len(video), taken["cimtool"], names[other], taken[other])
        for other in names
    ]


def row(target: str, items: int, ours: float, beside: str, theirs: float) -> Row:
    return {
        "target": target,
        "items": items,
        "cimtool s": ours,
        "items/s": round(items / ours),
        "beside": beside,
        "its s": theirs,
        "times faster": theirs / ours,
    }


def crossbars(graph: Graph) -> dict[str, tuple[CrossbarMvm, str]]:
    """The layers of a graph, each with the name of its input."""
    return {n.name: (n.op, n.inputs[0]) for n in graph.nodes if isinstance(n.op, CrossbarMvm)}


def converted(files: DemoFiles, name: str, rounds: int, **choices: Any) -> Row:
    """Whole texts in cimtool beside the layers alone in plain loops, which get their inputs."""
    bundle = compiled(files, name, **choices)
    text = rows_of(files)[0][:CONVERTED_ROWS]
    matcher = cimtool.load(bundle.folder)
    layers = crossbars(bundle.program.text)
    names = [*layers, *(x for _, x in layers.values())]
    values = matcher.simulator.values("text", text, names)
    plain = []
    for layer, (op, x) in layers.items():
        plain.append(torch_loops(op, values[x]))
        # float32 is exact below 2^24 only, so the loops may be off by a little, not by a lot.
        np.testing.assert_allclose(plain[-1]().numpy() + op.bias, values[layer], rtol=1e-3, atol=64)
    with torch.inference_mode():
        taken = side_by_side(
            {
                "cimtool": lambda: matcher.encode_text(text),
                "loops": lambda: [loop() for loop in plain],
            },
            rounds,
        )
    return row(name, len(text), taken["cimtool"], "plain torch float32 loops", taken["loops"])


def main() -> None:
    options = arguments(str(__doc__), rounds=5)
    use_threads()
    with full_size() as files:
        rows = lossless(files, options.rounds)
        few = min(options.rounds, 2)
        rows.append(converted(files, "hermes-pcm-14nm", few, target="hermes-pcm-14nm"))
        rows.append(converted(files, "isaac, adc 7", few, target="isaac-rram-128", adc_bits=7))
    notes = [
        f"The limit on ideal is {SECONDS} s; the first row takes {rows[0]['cimtool s']:.2f} s."
    ]
    report("simulate", rows, options.json, notes)


if __name__ == "__main__":
    main()
