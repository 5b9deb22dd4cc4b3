"""Integers of the compiler, held as digests: whatever is rebuilt, no number may change.

`golden/checkpoints` holds models that `train` and `fit` once made of such items as below, a few
epochs each; `golden/integers.json` digests of the features and scores of every case, which depend
neither on the CPU nor on the number of threads. After a change that is meant to change integers, or
with a new target,

    python tests/test_same_integers.py

records them anew.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from cimtool import api
from cimtool.bundle.dies import NoiseOptions
from cimtool.simulation.simulator import Simulator

Array = np.ndarray
Flags = Mapping[str, Any]

SHIPPED = Path(__file__).resolve().parents[1] / "targets"
GOLDEN = Path(__file__).resolve().parent / "golden"
CHECKPOINTS, INTEGERS = GOLDEN / "checkpoints", GOLDEN / "integers.json"

CALIBRATION, ROWS, CLASSES = 64, 20, 4
TRIALS, SHORTLIST = 2, 5
MODELS = (
    "trunk",
    "two-branch",
    "tanh-projectors",
    "cross-attention",
    "autoencoder",
    "variational-autoencoder",
)
ONE_MODALITY = ("autoencoder", "variational-autoencoder")
WIDTH = {"small-trunk": 24} | dict.fromkeys(MODELS, 12)
"""Numbers in a row of each checkpoint's embeddings."""

OWN_TARGETS = {
    "pairs-in-rows": """
        name = "pairs-in-rows"
        base = "prime-rram-256"
        title = "PRIME with small arrays, pairs in rows"
        figures = []
        [array]
        rows = 64
        columns = 64
        pairs = "rows"
        signed_rows = 32
        signed_cols = 32
        """,
    "measured": """
        name = "measured"
        base = "isaac-rram-128"
        title = "ISAAC with a measured 3-bit converter"
        figures = []
        [adc]
        bits = 3
        transfer = [0.4, 1.7, 2.25, 3.5, 4.75, 5.25, 6.75]
        """,
    "measured-differences": """
        name = "measured-differences"
        base = "hermes-pcm-14nm"
        title = "HERMES with a measured 4-bit converter"
        figures = []
        [adc]
        bits = 4
        transfer = [0.4, 1.3, 2.7, 3.1, 4.5, 5.5, 6.9, 7.2, 8.6, 9.4, 10.5, 11.5, 12.3, 13.8, 14.2]
        """,
}

OWN_NOISE = {
    "read-mvm": """
        [read]
        sigma = 0.05
        """,
    "read-cycle": """
        [read]
        sigma = 0.05
        redraw = "cycle"
        """,
    "write-verify": """
        devices = 2
        [programming]
        sigma = [0.5, 1.0]
        tolerance = 0.75
        """,
    "faults": """
        [stuck]
        p_on = 0.01
        p_off = 0.02
        spare_columns = 2
        [adc]
        offset = 0.5
        gain = 0.02
        inl = 0.5
        columns_per_converter = 3
        """,
    "wires": """
        [ir_drop]
        wire_resistance = 2.0
        drive = 0.5
        """,
}


def items(model: str, count: int, seed: int) -> dict[str, Array]:
    """Rows by modality, a video's its text's turned round with noise, and their classes.

    All are integers over a power of two, of the generator whose numbers no version of NumPy may
    change.
    """
    rng, width = np.random.RandomState(seed), WIDTH[model]
    labels = np.arange(count) % CLASSES
    text = fractions(np.random.RandomState(9), (CLASSES, width), 512)[labels]
    text = text + fractions(rng, (count, width), 512)
    video = text[:, ::-1] + fractions(rng, text.shape, 96)
    return {"text": text, "video": video, "labels": labels}


def fractions(rng: np.random.RandomState, shape: tuple[int, ...], largest: int) -> Array:
    """Whole 256ths, from -largest/256 to largest/256."""
    return (rng.randint(-largest, largest + 1, shape) / 256).astype(np.float32)


Reads = tuple[tuple[str | None, str], ...]
"""Times at which dies are read, None the earliest, each with its drift compensation."""


@dataclass(frozen=True)
class Case:
    """A checkpoint compiled for a target with settings; with `reads`, dies of it.

    Targets and noise models are names of shipped ones, of OWN_TARGETS or of OWN_NOISE; a `noise` of
    None is the target's own.
    """

    model: str
    target: str
    flags: Flags = field(default_factory=dict)
    noise: str | None = None
    reads: Reads = ()

    def digests(self, folder: Path) -> dict[str, str]:
        """Digests of all that the case computes, by what it is."""
        if self.reads:
            return dict(self._of_dies(folder))
        mapping = self.flags.get("score_mapping", "digital")
        if mapping == "digital":
            return self._of_program(folder)
        bundle, rows = self.bundle(folder), self.rows
        matcher = api.load(bundle)
        text, video = matcher.encode_text(rows["text"]), matcher.encode_video(rows["video"])
        found = {"text": of_integers(text), "video": of_integers(video)}
        if mapping == "in-memory":
            return found | {"logits": of_scores(matcher.score(text))}
        ed = np.concatenate([block for _, block in matcher.simulator.iter_distances(text)])
        best = api.simulate(bundle, rows)
        return found | {
            "ed": of_integers({"ed": ed}),
            "indices": of_integers({"indices": best["top_index"]}),
            "logits": of_scores(best["top_score"]),
        }

    def bundle(self, folder: Path) -> Path:
        """The folder of the bundle, with a gallery where its score is in the memory."""
        bundle = api.compile(**self._sources(folder), output=folder / "bundle").folder
        if self.flags.get("score_mapping", "digital") == "digital":
            return bundle
        return api.program(bundle, self.rows, output=folder / "programmed").bundle.folder

    @property
    def rows(self) -> dict[str, Array]:
        """The items that are encoded and scored."""
        return items(self.model, ROWS, 1)

    def _sources(self, folder: Path) -> dict[str, Any]:
        """The arguments of `compile`."""
        suffix = ".safetensors" if self.model == "small-trunk" else ".pth"
        poly, rows = CHECKPOINTS / f"{self.model}.json", items(self.model, CALIBRATION, 0)
        alone = {"rows": rows["text"], "labels": rows["labels"]}
        return {
            "projectors": CHECKPOINTS / f"{self.model}{suffix}",
            "poly": poly if poly.exists() and "head" not in self.flags else None,
            "calibration": alone if self.model in ONE_MODALITY else rows,
            "target": file_of(self.target, OWN_TARGETS, "", folder),
            "drift": "given",
            **self.flags,
        }

    def _of_program(self, folder: Path) -> dict[str, str]:
        compilation = api.prepare(**self._sources(folder))
        simulator = Simulator(compilation.stages[-1].program)
        rows = api.read_data(self.rows, compilation.model)
        text, video = simulator.encode("text", rows.text), simulator.encode("video", rows.video)
        logits = simulator.score(text, video, np.float32)
        return {
            "text": of_integers(text),
            "video": of_integers(video),
            "logits": of_scores(logits),
        }

    def _of_dies(self, folder: Path) -> Iterator[tuple[str, str]]:
        bundle, head = self.bundle(folder), 'source = "made up"\ng_max = 25.0\n'
        noise = self.noise and file_of(self.noise, OWN_NOISE, head, folder)
        for time, compensation in self.reads:
            options = NoiseOptions(TRIALS, 3, time, compensation, noise)
            found = api.simulate(bundle, self.rows, noise=options)
            yield f"{time or 'earliest'}, {compensation}", of_scores(found["trial_scores"])


def file_of(name: str, own: Mapping[str, str], head: str, folder: Path) -> str:
    """A shipped name as it is; else the path of a file with `head` and the text in `own`."""
    if name not in own:
        return name
    file = folder / f"{name}.toml"
    file.write_text(head + own[name], "utf-8")
    return str(file)


def of_integers(named: Mapping[str, Array]) -> str:
    """A digest of arrays of integers: names, shapes and values."""
    found = hashlib.sha256()
    for name, values in sorted(named.items()):
        assert values.dtype.kind in "iu", name
        found.update(f"{name}{list(values.shape)}".encode())
        found.update(np.ascontiguousarray(values, "<i8").tobytes())
    return found.hexdigest()[:16]


def of_scores(scores: Array) -> str:
    """A digest of float32 scores: shape and bytes."""
    assert scores.dtype == np.float32
    found = hashlib.sha256(f"{list(scores.shape)}".encode())
    found.update(np.ascontiguousarray(scores, "<f4").tobytes())
    return found.hexdigest()[:16]


def run_onnx(file: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name of a bundle's file in ONNX Runtime, which needs nothing of cimtool."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    kinds = {one.name: one.type[len("tensor(") : -1] for one in session.get_inputs()}
    typed = {
        name: inputs[name].astype("float32" if kind == "float" else kind)
        for name, kind in kinds.items()
    }
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, typed), strict=True))


def prefixed(**features: Mapping[str, Array]) -> dict[str, Array]:
    """Features of modalities as the inputs of `score.onnx`: `text_mu`."""
    return {f"{m}_{name}": values for m, own in features.items() for name, values in own.items()}


ISAAC, HERMES, PRIME = "isaac-rram-128", "hermes-pcm-14nm", "prime-rram-256"
SMALLEST = "autoencoder"  # a layer of signed inputs, one of unsigned, and nothing else

IN_MEMORY: Flags = {"score_mapping": "in-memory", "accumulator_bits": 48}
HYBRID: Flags = {"score_mapping": "hybrid", "accumulator_bits": 48, "shortlist": SHORTLIST}

COARSE: Flags = {"array": "8x48", "adc_bits": 3}
"""Two and three row groups in the layers of `autoencoder`, and converters that round."""

DIFFERENTIAL = COARSE | {"encoding": "differential"}
POLARITY = DIFFERENTIAL | {"adc_on": "polarity"}
OFFSET = COARSE | {"encoding": "offset"}
FLIP = COARSE | {"encoding": "offset-flip"}
EXACT = COARSE | {"encoding": "twos-complement", "adc_bits": "lossless"}
ANALOG: Flags = {"shift_add": "analog", "adc_bits": 6}
UNIT_COLUMN: Flags = {"offset_sum": "unit-column"}
LEAKING: Flags = {"on_off_ratio": 12.5}
DRIVEN: Flags = {"on_off_ratio": 12.5, "unused_rows": "driven"}
OFFSET_INPUTS: Flags = {"input_encoding": "offset"}
BIPOLAR_INPUTS: Flags = {"input_encoding": "bipolar"}

ARRAYS: dict[str, tuple[str, Flags]] = {
    "differential": (ISAAC, DIFFERENTIAL),
    "differential, offset inputs": (ISAAC, DIFFERENTIAL | OFFSET_INPUTS),
    "differential, bipolar inputs": (ISAAC, DIFFERENTIAL | BIPOLAR_INPUTS),
    "differential, analog": (ISAAC, DIFFERENTIAL | ANALOG),
    "differential, driven, offset inputs": (ISAAC, DIFFERENTIAL | DRIVEN | OFFSET_INPUTS),
    "polarity": (ISAAC, POLARITY),
    "polarity, offset inputs": (ISAAC, POLARITY | OFFSET_INPUTS),
    "polarity, bipolar inputs": (ISAAC, POLARITY | BIPOLAR_INPUTS),
    "polarity, analog": (ISAAC, POLARITY | ANALOG),
    "polarity, leaking, offset inputs": (ISAAC, POLARITY | LEAKING | OFFSET_INPUTS),
    "polarity, driven, offset inputs": (ISAAC, POLARITY | DRIVEN | OFFSET_INPUTS),
    "offset": (ISAAC, OFFSET),
    "offset, offset inputs": (ISAAC, OFFSET | OFFSET_INPUTS),
    "offset, bipolar inputs": (ISAAC, OFFSET | BIPOLAR_INPUTS),
    "offset, analog": (ISAAC, OFFSET | ANALOG),
    "offset, leaking": (ISAAC, OFFSET | LEAKING),
    "offset, leaking, offset inputs": (ISAAC, OFFSET | LEAKING | OFFSET_INPUTS),
    "offset, driven, offset inputs": (ISAAC, OFFSET | DRIVEN | OFFSET_INPUTS),
    "offset, unit column": (ISAAC, OFFSET | UNIT_COLUMN),
    "offset, unit column, analog": (ISAAC, OFFSET | UNIT_COLUMN | ANALOG),
    "offset, unit column, offset inputs": (ISAAC, OFFSET | UNIT_COLUMN | OFFSET_INPUTS),
    "flip": (ISAAC, FLIP),
    "flip, offset inputs": (ISAAC, FLIP | OFFSET_INPUTS),
    "flip, bipolar inputs": (ISAAC, FLIP | BIPOLAR_INPUTS),
    "flip, analog": (ISAAC, FLIP | ANALOG),
    "flip, driven, offset inputs": (ISAAC, FLIP | DRIVEN | OFFSET_INPUTS),
    "flip, unit column": (ISAAC, FLIP | UNIT_COLUMN),
    "flip, unit column, analog": (ISAAC, FLIP | UNIT_COLUMN | ANALOG),
    "exact": (ISAAC, EXACT),
    "exact, offset inputs": (ISAAC, EXACT | OFFSET_INPUTS),
    "exact, bipolar inputs": (ISAAC, EXACT | BIPOLAR_INPUTS),
    "half-even": (ISAAC, FLIP | {"rounding": "half-even"}),
    "floor": (ISAAC, FLIP | {"rounding": "floor"}),
    "differences half-even": (ISAAC, DIFFERENTIAL | {"rounding": "half-even"}),
    "differences floor": (ISAAC, DIFFERENTIAL | {"rounding": "floor"}),
    "measured": ("measured", {}),
    "measured, analog": ("measured", {"shift_add": "analog"}),
    "measured differences": ("measured-differences", {}),
    "pairs in rows": ("pairs-in-rows", {}),
    "pairs in rows, differences": ("pairs-in-rows", {"adc_on": "difference"}),
    "rows active": (ISAAC, OFFSET | {"rows_active": 3, "adc_bits": 2}),
    "1-bit converter": (ISAAC, {"adc_bits": 1}),
    "2-bit converter of differences": (HERMES, {"adc_bits": 2}),
    "2-bit inputs a cycle": (ISAAC, COARSE | {"dac_bits": 2}),
    "3-bit inputs a cycle": (ISAAC, COARSE | {"dac_bits": 3, "input_encoding": "bipolar"}),
    "8-bit inputs a cycle, 1-bit cells": (ISAAC, COARSE | {"dac_bits": 8, "cell_bits": 1}),
    "3-bit cells": (ISAAC, COARSE | {"cell_bits": 3}),
    "few bits": (ISAAC, {"weight_bits": 3, "input_bits": 4, "activation_bits": 4}),
    "many bits": (PRIME, {"weight_bits": 14, "input_bits": 12, "activation_bits": 12}),
    "memory, polarity, offset inputs": (ISAAC, IN_MEMORY | POLARITY | OFFSET_INPUTS),
    "memory, unit column": (ISAAC, IN_MEMORY | OFFSET | UNIT_COLUMN),
    "memory, analog, bipolar inputs": (ISAAC, IN_MEMORY | FLIP | ANALOG | BIPOLAR_INPUTS),
    "memory, driven, offset inputs": (ISAAC, IN_MEMORY | OFFSET | DRIVEN | OFFSET_INPUTS),
    "memory, measured": ("measured", IN_MEMORY),
}
"""Targets and settings of `autoencoder`: arrays that shipped targets alone do not show."""

OWN_LAYERS: Flags = {
    "layers": {
        "text.*": {"weight_bits": 6, "adc_bits": 6},
        "*.mu": {"adc_bits": "lossless", "activation_bits": 10},
        "video.logvar": {"weight_bits": 5, "activation_bits": 5, "adc_bits": 3},
    }
}
CSD: Flags = {"head": "csd", "a": 0.1, "b": 1.0}
W4A4: Flags = {"weight_bits": 4, "activation_bits": 4}

QUANTIZATION: dict[str, tuple[str, Flags]] = {
    "layers of their own": (ISAAC, COARSE | OWN_LAYERS),
    "few feature bits": (ISAAC, {"feature_bits": 4}),
    "many feature bits": (PRIME, {"feature_bits": 12, "accumulator_bits": 63}),
    "percentile": (PRIME, {"calibrator": "percentile", "activation_bits": 4}),
    "minmax": (PRIME, W4A4 | {"calibrator": "minmax"}),
    "gptq": (HERMES, {"weight_rounding": "gptq", "weight_bits": 4}),
    "gptq on ISAAC": (ISAAC, W4A4 | {"weight_rounding": "gptq"}),
    "not equalised": (ISAAC, {"equalise": False}),
    "biases not corrected": (ISAAC, COARSE | {"bias_correction": False}),
    "csd": (ISAAC, COARSE | CSD),
    "euclidean": (ISAAC, COARSE | {"head": "euclidean"}),
    "csd in the memory": (ISAAC, IN_MEMORY | COARSE | CSD),
}
"""Targets and settings of `trunk`: how numbers become integers, and its other scores."""

EARLIEST: Reads = ((None, "none"),)
A_DAY: Reads = ((None, "none"), ("1d", "none"), ("1d", "global"))
BY_COLUMN: Reads = (*A_DAY, ("1d", "column"), (None, "global"))

DIES: dict[str, tuple[str, str, Flags, str | None, Reads]] = {
    "hermes-pcm-14nm": (SMALLEST, HERMES, {}, None, BY_COLUMN),
    "neurram-rram-130nm": (SMALLEST, "neurram-rram-130nm", {}, None, BY_COLUMN),
    "small-trunk": ("small-trunk", "sonos-40nm", {}, "pcm-generic", A_DAY),
    "hermes-1-device": (SMALLEST, ISAAC, FLIP, "hermes-1-device", A_DAY),
    "hermes-2-devices": (SMALLEST, PRIME, {}, "hermes-2-devices", A_DAY),
    "neurram": (SMALLEST, ISAAC, COARSE | {"dac_bits": 3}, "neurram", A_DAY),
    "neurram-crosssim": (SMALLEST, PRIME, {}, "neurram-crosssim", EARLIEST),
    "memory": ("variational-autoencoder", HERMES, IN_MEMORY, "hermes-2-devices", A_DAY),
    "memory, read noise": (SMALLEST, ISAAC, IN_MEMORY, "read-cycle", EARLIEST),
    "offset": (SMALLEST, ISAAC, OFFSET, "pcm-generic", A_DAY),
    "leaking": (SMALLEST, ISAAC, POLARITY | LEAKING | OFFSET_INPUTS, "pcm-generic", EARLIEST),
    "measured": (SMALLEST, "measured", {}, "pcm-generic", EARLIEST),
    "pairs in rows": (SMALLEST, "pairs-in-rows", {}, "pcm-generic", EARLIEST),
    "read noise of products": (SMALLEST, ISAAC, OFFSET | OFFSET_INPUTS, "read-mvm", EARLIEST),
    "read noise of cycles": (SMALLEST, ISAAC, OFFSET, "read-cycle", EARLIEST),
    "read noise, bipolar": (SMALLEST, ISAAC, POLARITY | BIPOLAR_INPUTS, "read-mvm", EARLIEST),
    "write-verify": (SMALLEST, ISAAC, COARSE, "write-verify", EARLIEST),
    "faults": (SMALLEST, ISAAC, COARSE, "faults", EARLIEST),
    "faults of pairs": (SMALLEST, PRIME, {}, "faults", EARLIEST),
    "wires": (SMALLEST, ISAAC, COARSE, "wires", EARLIEST),
}
"""Dies: their model, target, settings, noise model and reads."""


def cases() -> Iterator[tuple[str, Case]]:
    """Every case with its name in `integers.json`."""
    targets = sorted(file.stem for file in SHIPPED.glob("*.toml"))
    mappings = {"digital": {}, "in-memory": IN_MEMORY, "hybrid": HYBRID}
    for target in targets:
        for mapping, flags in mappings.items():
            yield f"small-trunk/{target}/{mapping}", Case("small-trunk", target, flags)
    for model in MODELS:
        for target in targets:
            yield f"{model}/{target}", Case(model, target)
    for name, (target, flags) in ARRAYS.items():
        yield f"arrays/{name}", Case(SMALLEST, target, flags)
    for name, (target, flags) in QUANTIZATION.items():
        yield f"quantization/{name}", Case("trunk", target, flags)
    for name, die in DIES.items():
        yield f"dies/{name}", Case(*die)


CASES = dict(cases())

IN_ONNX = (
    "small-trunk/acim-7nm-tsmc/digital",
    "trunk/puma-rram-128",
    "two-branch/hermes-pcm-14nm",
    "tanh-projectors/prime-rram-256",
    "cross-attention/sonos-40nm",
    "variational-autoencoder/neurram-rram-130nm",
    "arrays/polarity, driven, offset inputs",
    "arrays/measured",
    "arrays/memory, unit column",
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(INTEGERS.read_text("utf-8"))
    return found


def test_every_case_is_recorded_and_every_shipped_noise_model_has_one(
    recorded: dict[str, dict[str, str]],
) -> None:
    assert list(recorded) == list(CASES)
    models = {file.stem for file in (SHIPPED / "noise").glob("*.toml")}
    assert models <= {case.noise for case in CASES.values()}


FIRST = (
    *("isaac-rram-128", "small-trunk/dcim-22nm-tsmc/digital", "small-trunk/neurram-rram-130nm/d"),
    *("differential, bipolar", "differential, driven", "polarity, analog", "polarity, leaking"),
    *("arrays/offset, offset inputs", "arrays/offset, leaking]", "arrays/offset, unit column]"),
    *("flip, bipolar", "flip, analog]", "flip, driven", "flip, unit column, analog"),
    *("exact, offset", "arrays/half-even", "differences floor", "measured]", "measured diff"),
    *("pairs in rows]", "rows active", "1-bit conv", "2-bit inputs", "3-bit cells", "many bits"),
    *("memory, unit column", "memory, measured", "dies/wires"),
)
"""Cases of the first tier: each target's family, code, mapping and kind of array once or more."""


@pytest.mark.thorough("each target and array; a diagonal is in the first tier", quick=FIRST)
@pytest.mark.parametrize("name", CASES)
def test_the_integers_are_those_recorded(
    name: str, recorded: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    assert CASES[name].digests(tmp_path) == recorded[name]


@pytest.mark.thorough(
    "other models and arrays; some are in the first tier",
    quick=("acim", "cross-attention", "arrays/"),
)
@pytest.mark.parametrize("name", IN_ONNX)
def test_onnx_runtime_computes_the_same(
    name: str, recorded: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    bundle = CASES[name].bundle(tmp_path)
    rows = api.read_data(CASES[name].rows, api.load(bundle).bundle.model)
    text, video = (
        run_onnx(bundle / f"{m}.onnx", {"x": getattr(rows, m)}) for m in ("text", "video")
    )
    scores = run_onnx(bundle / "score.onnx", prefixed(text=text, video=video))
    digests = {"text": of_integers(text), "video": of_integers(video)}
    assert digests | {"logits": of_scores(scores["logit"])} == recorded[name]


def record() -> None:
    """Write `integers.json` anew, a case a line."""
    lines = []
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            lines.append(f"{json.dumps(name)}: {json.dumps(case.digests(Path(folder)))}")
    INTEGERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    record()
    print(f"wrote {INTEGERS}: {len(CASES)} cases")
