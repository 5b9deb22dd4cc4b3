"""The taps of a layer, and of a hand-off: enough for a bench that reads files alone."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of
from handoff_bench import Bench, numbers

from cimtool import api
from cimtool.base.arrays import IntArray
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.exporter import Request
from cimtool.demo.data import DemoFiles
from cimtool.handoff.images import CONSTANTS_PART, IMAGES_PART
from cimtool.handoff.layers import HandoffSource, sum_bits
from cimtool.handoff.steps import STEPS, STEPS_FILE, steps_text
from cimtool.handoff.stimuli import END_ROWS, worst_column
from cimtool.handoff.taps import TAPS_PART, column_places, layer_sum, taps, write_ends
from cimtool.hardware.image import ImageSpec
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.loading.embeddings import read_embeddings
from cimtool.simulation.simulator import Simulator

PLAIN = crossbar_of(8, 3, 2, "offset-flip", 6, "offset", 5, 4, "half-up", 32)
FORMS = {
    "plain": PLAIN,
    "lossless": changed(PLAIN, adc_bits=None),
    "polarity": changed(PLAIN, encoding="differential", adc_on="polarity", rows_active=3),
    "analog": changed(PLAIN, encoding="differential", shift_add="analog", input_encoding="bipolar"),
    "unit column": changed(PLAIN, offset_sum="unit-column", input_encoding="twos-complement"),
    "leak": changed(PLAIN, leak=900, unused_rows="driven"),
    "table": changed(PLAIN, rounding=None, transfer=tuple(range(5, 15 * 19, 19))),
    "digital": changed(PLAIN, encoding="twos-complement", adc_bits=None),
}


def layer(form: str) -> tuple[CrossbarMvm, IntArray]:
    rng = np.random.default_rng(3)
    hardware = FORMS[form]
    finest = hardware.fraction_bits
    steps: tuple[int | None, ...] = (None,) * hardware.slices
    if hardware.converter.bits is not None:
        steps = tuple(int(s) for s in finest + rng.integers(1, 4, hardware.slices))
    unit_step = 3 if hardware.unit_column else None
    weight = rng.integers(-31, 32, (21, 4))
    stored, bias = StoredWeights(weight, hardware), rng.integers(-9, 9, 4)
    op = CrossbarMvm(stored, bias, np.ones(4), at_steps(hardware, steps, unit_step))
    return op, rng.integers(-15, 16, (6, 21))


@pytest.mark.parametrize("form", FORMS)
def test_the_last_tap_is_what_the_layer_computes(form: str) -> None:
    op, x = layer(form)
    np.testing.assert_array_equal(layer_sum(op, taps(op, x).shift_add), op.run(x))


@pytest.mark.parametrize("form", FORMS)
def test_each_tap_follows_from_the_one_before(form: str) -> None:
    op, x = layer(form)
    found, crossbar = taps(op, x), op.crossbar
    driving, groups = crossbar.digits(x), crossbar.tiling.groups(len(op.weight))
    width = op.weight.shape[1]
    cells = op.stored.cells.slices
    idle = crossbar.column_leak * crossbar.tiling.idle(len(op.weight))
    zero = crossbar.digits(np.zeros((1, 1), np.int64))
    for (c, digits), (r, group) in product(enumerate(driving), enumerate(groups)):
        np.testing.assert_array_equal(found.digits[:, c], digits)
        unused = idle[r] * zero[c, 0, 0]
        for k, column in enumerate(cells):
            sums = digits[:, group] @ column.digits[group] + unused
            np.testing.assert_array_equal(found.sums[:, r, c, k * width : (k + 1) * width], sums)
    places = column_places(op.layer)
    for part, references in zip(places, op.references, strict=True):
        sums, codes = found.sums[..., part], found.codes[..., part]
        expected = sums
        if references is not None:
            assert crossbar.law is not None
            expected = crossbar.law.codes(sums, references.step.item())
        np.testing.assert_array_equal(codes, expected)
    assert (places[-1].start == width * crossbar.slices) == crossbar.unit_column


@pytest.mark.parametrize("form", FORMS)
def test_no_input_makes_a_larger_column_sum_than_the_worst(form: str) -> None:
    op, _ = layer(form)
    worst = worst_column(op, np.full(21, -15), np.full(21, 15))
    reached = taps(op, worst[None]).sums[..., : op.weight.shape[1] * op.crossbar.slices].max()
    rng = np.random.default_rng(5)
    for x in (rng.integers(-15, 16, (200, 21)), rng.choice([-15, 0, 15], (200, 21))):
        assert taps(op, x).sums.max() <= reached or op.crossbar.unit_column
    signs = np.concatenate([15 * np.sign(op.weight.T), -15 * np.sign(op.weight.T)])
    assert taps(op, signs).sums.max() <= reached
    assert int(reached).bit_length() < sum_bits(op)
    assert (np.abs(worst) <= 15).all()


def test_a_worst_column_worked_by_hand() -> None:
    hardware = crossbar_of(2, 7, 8, "differential", 8, "bipolar", 4, 4, "half-up", 32)
    weight = np.array([[1, 5], [-3, 0], [100, 1], [-90, 90]])
    stored, steps = StoredWeights(weight, hardware), at_steps(hardware, (3,))
    op = CrossbarMvm(stored, np.zeros(2, np.int64), np.ones(2), steps)
    assert len(op.stored.slices) == 1
    assert worst_column(op, np.full(4, -7), np.full(4, 7)).tolist() == [0, 0, 7, -7]
    assert taps(op, np.array([[0, 0, 7, -7]])).sums.max() == 7 * 190


def exported(bundle: Bundle, folder: Path) -> Bench:
    source = HandoffSource(bundle, Request())
    for part in (IMAGES_PART, CONSTANTS_PART, TAPS_PART):
        (folder / part.folder).mkdir(parents=True)
        part.write(source, folder / part.folder)
    (folder / STEPS_FILE).write_text(steps_text(source.layers, source.lanes, source.search))
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
    quick=("several arrays", "digital", "leak"),
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bench_that_reads_files_alone_sees_every_tap(
    kind: str, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    target, choices = KINDS[kind]
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", target=target, output=tmp_path / "bundle", **choices,
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


@pytest.mark.thorough("the other place of pairs; one is in the first tier", quick=("columns",))
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
        drift="given", target=str(target), output=tmp_path / "bundle", array="24x20",
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
    words = {line[0] for line in lines}
    # Others are of searches, and of targets with write-verify.
    assert set(STEPS) - words == {"search", "store", "match", "rank", "write_verify"}
    counts = {word: {len(line) for line in lines if line[0] == word} for word in words}
    assert {len(one) for one in counts.values()} == {1}
    names = {"layer", "cells", "inputs", "converter", "slice", "cycle", "program"}
    names |= {"sum", "direct"}
    for word, *rest in lines:
        texts = {"read": 3, "requantise": 2}.get(word, int(word in names))
        assert all(one.lstrip("-").isdigit() for one in rest[texts:])


def test_the_ends_are_those_of_the_simulator(
    bundle: Bundle, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    inputs = read_embeddings(small_trunk.eval)
    write_ends(HandoffSource(bundle, Request(inputs=inputs)), tmp_path)
    simulator = Simulator(bundle.program, fast=False)
    rows = {m: getattr(inputs, m)[:END_ROWS] for m in ("text", "video")}
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
        np.testing.assert_array_equal(shown[-END_ROWS:, -END_ROWS:], values)
    (logit,) = score.by_name[score.outputs["logit"]].inputs
    polynomial = numbers(tmp_path / "score/polynomial.hex")
    np.testing.assert_array_equal(
        numbers(tmp_path / "score/logit.hex"), score.by_name[logit].op.run(polynomial)
    )
