"""Time and memory of the golden model in C: encoding an item, beside the simulator on one thread.

    python benchmarks/c_model.py BUNDLE [--items 256] [--cc gcc] [--json FILE]

Exports the hand-off, compiles its model with `-O3 -march=native`, and encodes made-up items with
both, texts and videos alike; the best of five rounds of each: all items at once, where a weight is
read once for many, and one at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np
from harness import peak_bytes

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.ir.integer import Quantize
from cimtool.simulation.simulator import Simulator

ROUNDS = 5
BENCH = r"""
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    static text_code a[ITEMS][TEXT_WIDTH];
    static video_code b[ITEMS][VIDEO_WIDTH];
    static text_item text[ITEMS];
    static video_item video[ITEMS];
    double best = 1e9;
    FILE *file = fopen(argv[argc - 1], "rb");
    void *weights = malloc(MODEL_WEIGHTS_BYTES);
    if (!file || !weights || fread(weights, 1, MODEL_WEIGHTS_BYTES, file) != MODEL_WEIGHTS_BYTES)
        return 2;
    srand(1);
    for (int i = 0; i < ITEMS; i++) {
        for (int j = 0; j < TEXT_WIDTH; j++)
            a[i][j] = (text_code)(TEXT_LO + rand() % (TEXT_HI - TEXT_LO + 1));
        for (int j = 0; j < VIDEO_WIDTH; j++)
            b[i][j] = (video_code)(VIDEO_LO + rand() % (VIDEO_HI - VIDEO_LO + 1));
    }
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < ITEMS; i += BLOCK) {
            text_encode(weights, a[i], &text[i], BLOCK);
            video_encode(weights, b[i], &video[i], BLOCK);
        }
        if (now() - start < best)
            best = now() - start;
    }
    printf("%.9f\n", best / (2 * ITEMS));
    return 0;
}
"""


def main() -> None:
    """Print a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--items", type=int, default=256)
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    bundle = read_bundle(given.bundle)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "handoff"
        start = time.perf_counter()
        files = export_bundle(bundle, "handoff", folder)
        exported = time.perf_counter() - start
        size = sum(file.stat().st_size for file in files)
        of_model, of_one = (of_c(folder / "c", given.items, n, given.cc) for n in (given.items, 1))
    simulator = Simulator(bundle.program)
    together, alone = (of_simulator(simulator, given.items, n) for n in (given.items, 1))
    found = {
        "export, s": exported,
        "export, MB": size / 1e6,
        "peak memory of the export, MB": peak_bytes() / 1e6,
        "C, ms an item": 1e3 * of_model,
        "C one at a time, ms an item": 1e3 * of_one,
        "simulator, ms an item": 1e3 * together,
        "simulator one at a time, ms an item": 1e3 * alone,
        "ratio": of_model / together,
        "ratio, one at a time": of_one / alone,
    }
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def of_c(folder: Path, items: int, block: int, compiler: str) -> float:
    """Seconds that the compiled model takes to encode an item, so many at once."""
    (folder / "bench.c").write_text(BENCH, "utf-8")
    counts = [f"-DITEMS={items}", f"-DBLOCK={block}", f"-DROUNDS={ROUNDS}"]
    command = [compiler, "-O3", "-march=native", *counts, "bench.c", "model.c", "-o", "bench"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(
        ["./bench", "weights.bin"], cwd=folder, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def of_simulator(simulator: Simulator, items: int, block: int) -> float:
    """Seconds that the simulator takes on one thread to encode an item, so many at once."""
    rng, rows = np.random.default_rng(1), {}
    for graph in (simulator.program.text, simulator.program.video):
        (name, op), *_ = graph.operations(Quantize).items()
        codes = rng.integers(op.lo, op.hi, (items, graph.extent(name)), endpoint=True)
        rows[graph.name] = (codes * op.scale).astype(np.float32)
    best = float("inf")
    for _ in range(ROUNDS + 1):  # the first compiles
        start = time.perf_counter()
        for modality, x in rows.items():
            for first in range(0, items, block):
                simulator.encode(modality, x[first : first + block])
        best = min(best, time.perf_counter() - start)
    return best / (2 * items)


if __name__ == "__main__":
    main()
