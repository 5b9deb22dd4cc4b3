"""Gain of calibrators and weight rounding: bits by method by model, against the float score.

    python benchmarks/quantization.py --clip PAIRS.npz [--seed N] --demo demo-cache/HASH [--items N]

Models and data are those of benchmarks/data_sets.py. What is measured is the quantized program,
before converters are fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from data_sets import Case, cases, with_cases
from harness import parser, report, use_threads

from cimtool.base.arrays import Array
from cimtool.base.progress import silent
from cimtool.bundle.compilation import calibration_rows
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.program import Program
from cimtool.loading.embeddings import read_data
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.reference.metrics import top1_agreement
from cimtool.simulation.simulator import Simulator

TARGET = "isaac-rram-128"
BITS = ((4, 4), (4, 8), (6, 6), (8, 8))
METHODS = (("minmax", "nearest"), ("tails", "nearest"), ("tails", "gptq"))


def measured(case: Case, items: int) -> Iterator[dict[str, Any]]:
    """One row for each choice of bits and method; what calibrates alike is calibrated once."""
    text, video = case.unseen.text[:items], case.unseen.video[:items]
    model = ModelSource(case.projectors, case.poly).load()
    rows = calibration_rows(read_data(case.calibration, model), [])
    target = load_target(TARGET)

    def scores(program: Program) -> Array:
        found = Simulator(program)
        return found.score(found.encode("text", text), found.encode("video", video))

    def passed(passes: slice, program: Program, flags: dict[str, object]) -> Program:
        job = Job(resolve(target, None, flags), *rows, silent)
        return run_passes(passes_for(job.settings)[passes], program, job, silent)[-1].program

    fold, lower, quantize = slice(1), slice(1, 3), slice(3, 4)
    folded = passed(fold, model.program, {})
    reference = scores(model.program)
    lowered: dict[object, Program] = {}
    for weight_bits, bits in BITS:
        for calibrator, rounding in METHODS:
            flags: dict[str, object] = {"calibrator": calibrator, "weight_rounding": rounding}
            own = {"weight_bits": weight_bits, "input_bits": bits, "activation_bits": bits}
            if (calibrator, bits) not in lowered:
                lowered[calibrator, bits] = passed(lower, folded, flags | own)
            found = scores(passed(quantize, lowered[calibrator, bits], flags | own))
            yield {
                "model": case.name,
                "weights": weight_bits,
                "activations": bits,
                **flags,
                "logit RMSE": float(np.sqrt(np.square(found - reference).mean())),
                "top-1 %": 100 * top1_agreement(found, reference),
            }


def main() -> None:
    options = parser(str(__doc__), rounds=1)
    options.add_argument("--items", type=int, default=300, help="rows of each modality")
    given = with_cases(options)
    use_threads()
    rows: list[dict[str, Any]] = []
    for case in cases(given):
        rows += measured(case, given.items)
    report("quantization", rows, given.json)


if __name__ == "__main__":
    main()
