"""Taps and steps of a hand-off: enough for a bench that reads files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from handoff_bench import Bench, numbers

from cimtool import api
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.c.expected import REAL_ROWS
from cimtool.handoff.constants import write_constants
from cimtool.handoff.images import write_images
from cimtool.handoff.layers import Lanes, driven_layers
from cimtool.handoff.steps import STEPS, STEPS_FILE, steps_text
from cimtool.handoff.taps import write_ends, write_taps
from cimtool.hardware.image import ImageSpec
from cimtool.loading.embeddings import read_embeddings
from cimtool.simulation.simulator import Simulator


def exported(bundle: Bundle, folder: Path, pattern: str = "*") -> Bench:
    layers = driven_layers(bundle, pattern, None)
    lanes = Lanes.of(layers)
    for name in ("images", "constants", "taps"):
        (folder / name).mkdir(parents=True)
    write_images(bundle, {one.name: one.op for one in layers}, folder / "images")
    write_constants(layers, folder / "constants")
    write_taps(layers, lanes, folder / "taps")
    (folder / STEPS_FILE).write_text(steps_text(layers, lanes))
    return Bench(folder)


KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "4-bit converters": ("isaac-rram-128", {"adc_bits": 4}),
    "several arrays": ("isaac-rram-128", {"adc_bits": 4, "array": "10x24", "rows_active": 4}),
    "lossless": ("isaac-rram-128", {}),
    "no converters": ("ideal", {}),
    "digital": ("dcim-22nm-tsmc", {}),
    "pairs in rows": ("neurram-rram-130nm", {}),
    "polarity and leak": ("prime-rram-256", {"adc_bits": 4, "unused_rows": "driven"}),
    "polarity and references": (
        "isaac-rram-128",
        {"encoding": "differential", "adc_on": "polarity", "adc_bits": 3, "references": "column"},
    ),
    "unit column": ("isaac-rram-128", {"encoding": "offset", "offset_sum": "unit-column"}),
    "unit column and cycles": (
        "isaac-rram-128",
        {
            "encoding": "offset",
            "offset_sum": "unit-column",
            "references": "cycle",
            "adc_bits": 4,
            "array": "20x29",
        },
    ),
    "reference column": ("isaac-rram-128", {"encoding": "centred", "adc_bits": 4}),
    "levels": ("isaac-rram-128", {"adc_bits": 3, "references": "levels"}),
    "offset inputs": ("isaac-rram-128", {"input_encoding": "offset", "adc_bits": 4}),
    "analog shift-and-add": ("sonos-40nm", {"adc_bits": 6}),
    "half-even": ("isaac-rram-128", {"rounding": "half-even", "adc_bits": 4}),
    "floor": ("isaac-rram-128", {"rounding": "floor", "adc_bits": 4}),
    "16-bit weights": ("puma-rram-128", {"accumulator_bits": 48}),
}


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier",
    quick=("4-bit", "several arrays", "digital", "leak"),
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bench_that_reads_files_alone_sees_every_tap(
    kind: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    target, choices = KINDS[kind]
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target=target, output=tmp_path / "bundle", **choices,
    )  # fmt: skip
    bench = exported(bundle, tmp_path / "handoff")
    bench.run()
    assert not +bench.differing
    assert set(bench.compared) == {
        *("digits", "sums", "codes", "shift_add", "layer sums", "requantised"),
    }
    assert min(bench.compared.values()) > 1000


@pytest.fixture(scope="module")
def bundle(small_bundle: Path) -> Bundle:
    return read_bundle(small_bundle)


SIGNED = {
    "columns": "signed_rows = 256\nsigned_cols = 64",
    "rows": "signed_rows = 128\nsigned_cols = 128",
}


@pytest.mark.parametrize("pairs", SIGNED)
def test_lanes_have_the_order_of_the_target(
    pairs: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """Of the last in every respect, on pairs that lie in columns and in rows."""
    target = tmp_path / "own.toml"
    target.write_text(
        'name = "own"\ntitle = "Own order"\nbase = "prime-rram-256"\nfigures = []\n'
        f'[array]\npairs = "{pairs}"\n{SIGNED[pairs]}\n'
        '[image]\ncolumns = "slice-major"\npair = "negative-first"\nrows = "descending"\n'
        'word_bits = 12\nbit_order = "msb-first"\ndigits = "binary"\n'
    )
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target=str(target), output=tmp_path / "bundle", array="24x20",
    )  # fmt: skip
    assert bundle.target.cell_order != ImageSpec()
    bench = exported(bundle, tmp_path / "handoff")
    bench.run()
    assert not +bench.differing


@pytest.fixture(scope="module")
def whole(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taps") / "whole"
    exported(bundle, folder)
    return folder


@pytest.mark.parametrize(
    ("file", "tap"),
    [
        ("taps/text.fc2/r0/g0.digits.hex", "digits"),
        ("taps/text.fc2/r0.c0/g0.sums.hex", "sums"),
        ("taps/text.fc2/r0.c0/g0.codes.hex", "codes"),
        ("taps/text.fc2/r0.c0/g0.shift_add.hex", "shift_add"),
        ("taps/text.fc2/layer_sum.hex", "layer sums"),
        ("taps/text.fc2/q0/requantised.hex", "requantised"),
        ("images/text.fc2/r0.c0/cells.hex", "sums"),
        ("constants/text.fc2/bias.hex", "layer sums"),
        ("constants/text.fc2/q0/shift.hex", "requantised"),
        ("constants/text.fc2/steps.hex", "codes"),
    ],
)
def test_one_changed_digit_is_seen(whole: Path, tmp_path: Path, file: str, tap: str) -> None:
    shutil.copytree(whole, tmp_path / "copy")
    lines = (tmp_path / "copy" / file).read_text().splitlines()
    # A digit of the first lane, in a line that is not zero.
    at = next(i for i, line in enumerate(lines) if int(line, 16))
    lines[at] = lines[at][:-1] + f"{int(lines[at][-1], 16) ^ 1:x}"
    (tmp_path / "copy" / file).write_text("\n".join(lines) + "\n")
    bench = Bench(tmp_path / "copy")
    bench.run()
    assert bench.differing[tap] > 0


def test_steps_are_words_and_numbers_that_are_explained(whole: Path) -> None:
    lines = [line.split() for line in (whole / STEPS_FILE).read_text().splitlines()]
    assert {line[0] for line in lines} == set(STEPS)
    counts = {word: {len(line) for line in lines if line[0] == word} for word in STEPS}
    assert {len(one) for one in counts.values()} == {1}
    names = {"layer", "cells", "inputs", "converter", "slice", "cycle", "program", "sum"}
    for word, *rest in lines:
        texts = {"read": 3, "requantise": 2}.get(word, int(word in names))
        assert all(one.lstrip("-").isdigit() for one in rest[texts:])


def test_the_ends_are_those_of_the_simulator(
    bundle: Bundle, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    inputs = read_embeddings(small_trunk.eval)
    write_ends(bundle.program, driven_layers(bundle, "*", inputs), inputs, tmp_path)
    simulator = Simulator(bundle.program, fast=False)
    rows = {m: getattr(inputs, m)[:REAL_ROWS] for m in ("text", "video")}
    features = {m: simulator.encode(m, x) for m, x in rows.items()}
    for modality, found in features.items():
        for name, values in found.items():
            shown = numbers(tmp_path / modality / f"{name}.hex")
            np.testing.assert_array_equal(shown[-values.size :], values.ravel())
    score = bundle.program.score
    ((_, seen),) = simulator.iter_score(features["text"], features["video"], ["ed", "vd"])
    count = len(numbers(tmp_path / "text/ed_self.hex"))
    for name, values in seen.items():
        shown = numbers(tmp_path / "score" / f"{name}.hex").reshape(count, count)
        np.testing.assert_array_equal(shown[-REAL_ROWS:, -REAL_ROWS:], values)
    (logit,) = score.by_name[score.outputs["logit"]].inputs
    polynomial = numbers(tmp_path / "score/polynomial.hex")
    np.testing.assert_array_equal(
        numbers(tmp_path / "score/logit.hex"), score.by_name[logit].op.run(polynomial)
    )
