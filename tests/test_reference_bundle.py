"""The reference bundle of the repository: today's compiler makes the same program and constants.

After a change that is meant to change them:

    python tests/test_reference_bundle.py

writes it anew from the recipe below, model and data included.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cimtool import api
from cimtool.base.arrays import Array
from cimtool.bundle.bundle import CONSTANTS, PROGRAM, Bundle
from cimtool.emit.runtime import Session

REFERENCE = Path(__file__).resolve().parents[1] / "exports" / "reference-small@isaac-rram-128"
WIDTH, HIDDEN, D = 16, 24, 12
CALIBRATION, ROWS = 64, 40
ADC_BITS = 4  # at the target's own 8 bits no converter would round
POLYNOMIAL = {
    "degree": 2,
    "coeff": [-6.25, 0.3125, 0.125, -0.0625, 0.03125],
    "bias": 0.5,
    "scale_ed": 64.0,
    "scale_vd": 64.0,
    "a": 0.1,
    "b": 0.0,
    "K": 10,
}


def build(folder: Path) -> Bundle:
    """Make the model and its calibration data, and compile them into `folder`.

    RandomState is the generator whose numbers no version of numpy may change; all are integers
    over a power of two.
    """
    rng = np.random.RandomState(2027)
    with tempfile.TemporaryDirectory() as temporary:
        made, folder = Path(temporary), folder.resolve()
        save_file(projectors(rng), made / "reference-small.safetensors")
        (made / "poly.json").write_text(json.dumps(POLYNOMIAL), "utf-8")
        np.savez(made / "calibration.npz", **rows(rng, CALIBRATION))
        with chdir(made):  # notes name files as they are given
            return api.compile(
                "reference-small.safetensors",
                "poly.json",
                calibration="calibration.npz",
                target="isaac-rram-128",
                drift="given",
                output=folder,
                adc_bits=ADC_BITS,
            )


def projectors(rng: np.random.RandomState) -> dict[str, Array]:
    """A state dict of layout `trunk`: the video's weights are the text's, moved a little."""
    shapes = {"0": (HIDDEN, WIDTH), "3": (HIDDEN, HIDDEN), "mu": (D, HIDDEN), "logvar": (D, HIDDEN)}
    state: dict[str, Array] = {}
    for name, shape in shapes.items():
        key = f"trunk.{name}" if name.isdigit() else name
        # A narrow range of logvar: fewer terms of exp, shorter programs.
        text = fractions(rng, shape, 16 if name == "logvar" else 96)
        state[f"text_proj.{key}.weight"] = text
        state[f"video_proj.{key}.weight"] = text + fractions(rng, shape, 4)
        for modality in ("text", "video"):
            bias = fractions(rng, shape[:1], 64)
            state[f"{modality}_proj.{key}.bias"] = bias - 3 if name == "logvar" else bias
    for modality in ("text", "video"):
        for name in ("1", "4"):
            key = f"{modality}_proj.trunk.{name}"
            state[f"{key}.weight"] = 1 + fractions(rng, (HIDDEN,), 32)
            state[f"{key}.bias"] = fractions(rng, (HIDDEN,), 32)
            state[f"{key}.running_mean"] = fractions(rng, (HIDDEN,), 64)
            state[f"{key}.running_var"] = 1 + fractions(rng, (HIDDEN,), 64)
    return state


def rows(rng: np.random.RandomState, count: int) -> dict[str, Array]:
    """Embeddings by modality; a video's row is its text's with noise."""
    text = fractions(rng, (count, WIDTH), 512)
    return {"text": text, "video": text + fractions(rng, text.shape, 64)}


def fractions(rng: np.random.RandomState, shape: tuple[int, ...], largest: int) -> Array:
    """Whole 256ths, from -largest/256 to largest/256."""
    return (rng.randint(-largest, largest + 1, shape) / 256).astype(np.float32)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("rebuilt") / REFERENCE.name).folder


def test_the_program_is_the_same(rebuilt: Path) -> None:
    stored, made = ((folder / PROGRAM).read_text("utf-8") for folder in (REFERENCE, rebuilt))
    assert made.splitlines() == stored.splitlines()


def test_the_constants_are_the_same(rebuilt: Path) -> None:
    stored, made = (load_file(folder / CONSTANTS) for folder in (REFERENCE, rebuilt))
    assert sorted(made) == sorted(stored)
    for name, constant in stored.items():
        np.testing.assert_array_equal(made[name], constant, err_msg=name, strict=True)


def test_its_onnx_files_give_what_the_simulator_gives() -> None:
    matcher = api.load(REFERENCE)
    data = rows(np.random.RandomState(7), ROWS)
    simulated = matcher.scores(data)
    text, video = (Session(REFERENCE / f"{m}.onnx").encode(data[m]) for m in ("text", "video"))
    scores = Session(REFERENCE / "score.onnx").score(text, video)
    np.testing.assert_array_equal(scores, simulated)
    assert len(np.unique(scores)) > ROWS, "a constant score would agree with anything"


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in REFERENCE.iterdir()) < 300_000


if __name__ == "__main__":
    print(f"wrote {build(REFERENCE).folder}")
