"""Directed numbers: every code that a column reaches, and faults that these numbers find."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from c_tools import c_compiler
from handoff_bench import numbers
from handoff_runs import PLAIN, shown_faults

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporter import Request
from cimtool.demo.data import DemoFiles
from cimtool.handoff.directed import converter_inputs, directed_text, write_directed
from cimtool.handoff.faults import COLUMN, FAULTS
from cimtool.handoff.layers import DrivenLayer, HandoffSource, driven_layers
from cimtool.handoff.requantiser import DIRECTED, mistakes

KINDS: dict[str, dict[str, object]] = {
    "pairs": {"encoding": "differential", "dac_bits": 3},
    "half-even": {"rounding": "half-even"},
    "floor": {"rounding": "floor", "dac_bits": 2},
    "an offset of each column": {"references": "cycle"},
    "levels": {"adc_bits": 3, "references": "levels"},
    "unit column": {"encoding": "offset", "offset_sum": "unit-column", "array": "12x33"},
    "leak": {"adc_bits": 6, "on_off_ratio": 30, "input_encoding": "offset"},
}


def layers_of(files: DemoFiles, folder: Path, kind: str) -> list[DrivenLayer]:
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        drift="given", output=folder, **{"array": "12x32", "adc_bits": 4} | KINDS[kind],
    )  # fmt: skip
    return driven_layers(read_bundle(bundle.folder), "text.*", None)


def every_sum(layer: DrivenLayer, k: int) -> np.ndarray:
    """All sums of digits and cells that any column of a slice could have, whatever it holds."""
    crossbar, op = layer.op.crossbar, layer.op
    low, high = op.stored.cells.bounds[k]
    ends = range(int(low.min()), int(high.max()) + 1)
    if not crossbar.column_leak:
        return np.array(ends)[:: 1 << crossbar.fraction_bits]
    totals = range(max(g.stop - g.start for g in op.stored.groups) * crossbar.digit_limits[1] + 1)
    most = (1 << layer.image.cell_bits) - 1
    made = {
        (cells << crossbar.fraction_bits) + crossbar.column_leak * total
        for total in totals
        for cells in range(most * total + 1)
    }
    return np.array(sorted(made & set(ends)))


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier", quick=("pairs",)
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_that_a_column_reaches(
    kind: str, narrow_trunk: DemoFiles, tmp_path: Path
) -> None:
    """And both sums next to each threshold, of a column whose offset the line says."""
    checked = 0
    for layer in layers_of(narrow_trunk, tmp_path / "bundle", kind):
        op, crossbar = layer.op, layer.op.crossbar
        inputs = converter_inputs(layer)
        kept = len(op.stored.cells.bounds)
        for k in range(kept):
            sums = every_sum(layer, k)
            low, high = op.stored.cells.bounds[k]
            for c in range(crossbar.reference_cycles):
                references = op.references[crossbar.reference_of(k, c)]
                if references is None:
                    references = crossbar.finest_references
                assert crossbar.law is not None
                fine = sums << crossbar.reference_bits
                law = references.law(crossbar.law)
                own = [one for one in inputs if (one.slice, one.cycle) == (k, c)]
                found = {one.code for one in own}
                every = np.broadcast_arrays(references.offset, low, high)
                for offset, lo, hi in np.stack(every, axis=-1).reshape(-1, 3):
                    codes = law.codes(fine - offset, references.step.item())
                    assert set(codes[(sums >= lo) & (sums <= hi)].tolist()) <= found
                    checked += 1
                for one in own:
                    shifted = np.array((one.sum << crossbar.reference_bits) - one.offset)
                    assert law.codes(shifted, references.step.item()) == one.code
                    assert one.offset in references.offset
                    assert low.min() <= one.sum <= high.max()
                offsets = {one.offset for one in own}
                for offset in offsets:
                    seen = [one.sum for one in own if one.offset == offset]
                    inside = (sums >= min(seen)) & (sums <= max(seen))
                    codes = law.codes(fine[inside] - offset, references.step.item())
                    edges = np.flatnonzero(np.diff(codes))
                    assert {*sums[inside][edges].tolist()} <= {*seen}
                    assert {*sums[inside][edges + 1].tolist()} <= {*seen}
    assert checked > 20


def test_a_line_an_input(narrow_trunk: DemoFiles, tmp_path: Path) -> None:
    (layer, *_) = layers_of(narrow_trunk, tmp_path / "bundle", "pairs")
    lines = [
        tuple(map(int, line.split()))
        for line in directed_text(converter_inputs(layer)).splitlines()
    ]
    inputs = converter_inputs(layer)
    assert [line[3:] for line in lines] == [
        (one.cells, one.digits, one.sum, one.code) for one in inputs
    ]
    assert min(one.sum for one in inputs) < 0 < max(one.sum for one in inputs)


@pytest.mark.thorough(
    "more circuits and faults; each simulator has one in the first tier", quick=("iverilog",)
)
@pytest.mark.parametrize("simulator", ["iverilog", "verilator"])
def test_faults_of_a_converter_are_found(
    simulator: str, handoff_of_kind: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    """With no array read, so that these numbers alone can show them."""
    folder = handoff_of_kind(PLAIN, tmp_path)
    steps = (folder / "steps.txt").read_text("utf-8").splitlines(keepends=True)
    (folder / "steps.txt").write_text(
        "".join(line for line in steps if not line.startswith("read ")), "utf-8"
    )
    (folder / "build").mkdir()
    c_compiler(simulator)
    script = (folder / "sv" / "bench.sh").read_text("utf-8").split("mkdir -p build\n")[0]
    converters = {one.name for one in FAULTS if (one.tap, one.file) == ("codes", COLUMN)}
    shown = [one for one in shown_faults(folder) if one[2] in converters]
    assert len(shown) == 4
    runs = "".join(f"simulate {simulator} build/faulty {number}\n" for number, _, _ in shown)
    sources = " ".join(f"sv/faulty/cim_{name}.sv" for name in ("adapter", "array", "column"))
    build = f"build {simulator} kind1 sv/faulty build/faulty '{sources}'\n"
    done = subprocess.run(
        ["sh", "-c", script + build + runs], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    for number, _, _ in shown:
        assert f"fault {number}: found at converter\n" in done.stdout


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_lost_bits_show_in_a_bundle(small_bundle: Path, tmp_path: Path) -> None:
    """In 95% of the channels in which any input of its range is requantised otherwise."""
    able = found = 0
    source = HandoffSource(read_bundle(small_bundle), Request())
    write_directed(source, tmp_path)
    for layer in source.layers:
        ((place, after),) = layer.requantisations.items()
        least, most = layer.reached(after)
        own, shape = tmp_path / place, (DIRECTED, len(least))
        x, shown = (
            numbers(own / f"requantiser_{name}.hex").reshape(shape) for name in ("in", "out")
        )
        assert ((x >= least) & (x <= most)).all()
        np.testing.assert_array_equal(after.rounded(x), shown)
        seen = mistakes(after, x)["LOW_BITS"].any(axis=0)
        possible = np.zeros_like(seen)
        every = range(int(least.min()), int(most.max()) + 1, 1 << 14)
        for first in every:
            given = np.clip(np.arange(first, first + (1 << 14))[:, None], least, most)
            possible |= mistakes(after, given)["LOW_BITS"].any(axis=0)
        able += possible.sum()
        found += (seen & possible).sum()
    assert able > 20
    assert found >= 0.95 * able, (found, able)
