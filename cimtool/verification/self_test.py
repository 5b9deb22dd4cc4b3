"""A self-test: a small generated model, compiled and run by all implementations on this machine."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from cimtool.base.arrays import Array
from cimtool.base.errors import CimWarning, taking_warnings
from cimtool.base.progress import Say, silent
from cimtool.base.threads import thread_count
from cimtool.bundle.bit_choice import GIVEN
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.compilation import compile
from cimtool.emit.runtime import Session
from cimtool.hardware.target import target_origins
from cimtool.ir.program import MODALITIES
from cimtool.simulation.simulator import Features, Simulator
from cimtool.verification.api import verify
from cimtool.verification.bits import (
    ONNX,
    BitCount,
    compare_outputs,
    count_against_reference,
    outputs_of,
)

TARGET, ADC_BITS = "isaac-rram-128", 4
"""The target of the self-test, and bits with which its converters round."""

WIDTH, HIDDEN, DIMENSION, ROWS = 24, 40, 16, 64
"""Numbers of a row, of a hidden layer and of mu; rows of each modality."""

POLYNOMIAL = {"degree": 2, "coeff": [-6.0, 0.3, 0.1, -0.06, 0.03], "bias": 0.5} | {
    f"scale_{name}": 64.0 for name in ("ed", "vd")
}


@dataclass(frozen=True)
class SelfTest:
    """Values of the implementations that were compared, the seconds, and warnings of kernels."""

    bits: tuple[BitCount, ...]
    seconds: float
    warnings: tuple[str, ...]

    @property
    def differing(self) -> int:
        """Values that differ between the simulator and another implementation; 0 is right."""
        return sum(one.differing for one in self.bits)


def self_test() -> SelfTest:
    """Compile a small model, and run it by kernels, readable reference and ONNX Runtime.

    Nothing stays on the disk but the compiled kernels.
    """
    started, said = time.monotonic(), []

    def take(text: str, category: type[Warning]) -> bool:
        said.append(text)
        return issubclass(category, CimWarning)

    with tempfile.TemporaryDirectory() as folder, taking_warnings(take):
        bits = _compared(_small_bundle(Path(folder), TARGET, adc_bits=ADC_BITS))
    return SelfTest(bits, time.monotonic() - started, tuple(dict.fromkeys(said)))


def _compared(bundle: Bundle) -> tuple[BitCount, ...]:
    """The simulator's kernels against the readable operations and the bundle's ONNX files."""
    rows = _drawn(0)
    simulated = outputs_of(*_features(Simulator(bundle.program)))
    found = {m: Session(bundle.folder / f"{m}.onnx").encode(rows[m]) for m in MODALITIES}
    scored = Session(bundle.folder / "score.onnx").score(found["text"], found["video"])
    return (
        *count_against_reference(bundle.program, rows, simulated),
        *compare_outputs(ONNX, simulated, outputs_of(found, scored)),
    )


def _features(simulator: Simulator) -> tuple[dict[str, Features], Array]:
    """The features of both modalities, and the logits of all pairs."""
    features: dict[str, Features] = {m: simulator.encode(m, x) for m, x in _drawn(0).items()}
    return features, simulator.score(features["text"], features["video"], np.float32)


def warm(say: Say = silent, targets: Sequence[str] = ()) -> None:
    """Compile and run the small model for all targets, so that their kernels are kept.

    Covers `compile`, `simulate` and `verify`. Targets are shared by processes, of which each
    compiles what no other one does.
    """
    names = list(targets or target_origins())
    jobs: list[Callable[[], None]] = [_verify_one, *(partial(_run_one, name) for name in names)]
    with ProcessPoolExecutor(
        min(thread_count(), len(jobs)), mp_context=get_context("spawn")
    ) as pool:
        started = [pool.submit(job) for job in jobs]
        for count, one in enumerate(as_completed(started), 1):
            one.result()
            say(f"kernels: {count} of {len(started)} parts are kept")


def _verify_one() -> None:
    with tempfile.TemporaryDirectory() as folder:
        verify(_small_bundle(Path(folder), TARGET).folder, data=_drawn(1))


def _run_one(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _features(Simulator(_small_bundle(Path(folder), target).program))


def _small_bundle(folder: Path, target: str, **settings: int) -> Bundle:
    """The bundle of the small model, calibrated with the rows that it then runs on."""
    model, poly = folder / "self-test.safetensors", folder / "poly.json"
    save_file(_weights(), model)
    poly.write_text(json.dumps(POLYNOMIAL), "utf-8")
    return compile(
        model, poly, calibration=_drawn(0), target=target, output=folder / "bundle", drift=GIVEN,
        **settings,
    )  # fmt: skip


def _drawn(seed: int) -> dict[str, Array]:
    """Rows of texts, and of videos near them."""
    generator = np.random.default_rng(seed)
    text = generator.normal(size=(ROWS, WIDTH))
    video = text + 0.3 * generator.normal(size=text.shape)
    return {"text": text.astype(np.float32), "video": video.astype(np.float32)}


def _weights() -> dict[str, Array]:
    """The weights of layout `trunk`."""
    generator = np.random.default_rng(2)
    shapes = {"trunk.0": (HIDDEN, WIDTH), "trunk.3": (HIDDEN, HIDDEN)}
    shapes |= dict.fromkeys(("mu", "logvar"), (DIMENSION, HIDDEN))
    found: dict[str, Array] = {}
    for tower in ("text_proj", "video_proj"):
        for name, (out, width) in shapes.items():
            found[f"{tower}.{name}.weight"] = generator.normal(size=(out, width)) / width**0.5
            found[f"{tower}.{name}.bias"] = np.full(out, -2.0 if name == "logvar" else 0.1)
        for name in ("trunk.1", "trunk.4"):
            for part in ("weight", "running_var"):
                found[f"{tower}.{name}.{part}"] = generator.uniform(0.5, 1.5, HIDDEN)
            for part in ("bias", "running_mean"):
                found[f"{tower}.{name}.{part}"] = 0.1 * generator.normal(size=HIDDEN)
    return {name: values.astype(np.float32) for name, values in found.items()}
