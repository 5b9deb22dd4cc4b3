"""A compiled model in all forms that run it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cimtool.base.arrays import Array
from cimtool.bundle.compilation import Compilation
from cimtool.emit.onnx import onnx_files
from cimtool.emit.runtime import Session
from cimtool.ir.program import MODALITIES
from cimtool.simulation.simulator import Simulator


def require_one_result(compiled: Compilation, rows: Mapping[str, Array]) -> dict[str, bytes]:
    """Compare simulator, readable reference and ONNX Runtime to the last bit; the files."""
    final, stages = compiled.stages[-1].program, {s.name: s.program for s in compiled.stages}
    written = onnx_files(final, stages["calibrated"])
    simulator, units = Simulator(final), {}
    for modality, graph in zip(MODALITIES, (final.text, final.video), strict=True):
        own = simulator.encode(modality, rows[modality])
        plain = graph.run({"x": rows[modality]})
        session = Session(written[f"{modality}.onnx"]).encode(rows[modality])
        for feature, value in own.items():
            np.testing.assert_array_equal(value, plain[feature])
            np.testing.assert_array_equal(value, session[feature])
        units[modality] = own
    score = Session(written["score.onnx"]).score(units["text"], units["video"])
    np.testing.assert_array_equal(score, simulator.score(units["text"], units["video"]))
    plain = Session(written["float.onnx"]).run(rows)["logit"]
    trained = Simulator(stages["trained"]).scores(rows["text"], rows["video"])
    np.testing.assert_allclose(plain, trained, rtol=1e-5, atol=1e-5 * np.ptp(trained))
    return written


def require_same(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Compare real numbers within 1e-5 of each value's range."""
    for name, value in wanted.items():
        assert np.abs(found[name] - value).max() <= 1e-5 * np.ptp(value), name
