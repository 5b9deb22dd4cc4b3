from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from cimtool import api
from cimtool.bundle.compilation import Compilation
from cimtool.bundle.serial import ConstantTable, program_text
from cimtool.demo.data import DemoFiles
from cimtool.hardware.placement import Placement, placements

Prepare = Callable[..., Compilation]


@pytest.fixture(scope="module")
def prepared(medium_trunk: DemoFiles) -> Prepare:
    """Compile the model for a target with settings; the same ones once."""
    files = medium_trunk

    @cache
    def prepare(target: str, **flags: object) -> Compilation:
        return api.prepare(
            files.projectors,
            files.poly,
            calibration=files.calibration,
            drift="given",
            target=target,
            **flags,
        )

    return prepare


def first_layer(compilation: Compilation) -> Placement:
    return placements(compilation.stages[-1].program, compilation.settings)[0]


@pytest.mark.thorough("more of the same kind", quick=("flags0", "ideal"))
@pytest.mark.parametrize(
    ("target", "flags", "groups", "slices", "cycles", "arrays"),
    [
        # 256 rows, 512 columns: 2 groups of 128 rows; 4 cells a weight, 32 weights across.
        ("isaac-rram-128", {}, 2, 4, 8, 2 * 16),
        # 100 columns hold 25 weights, and no part of another.
        ("isaac-rram-128", {"array": "100x100"}, 3, 4, 8, 3 * 21),
        # A pair of cells a slice of 7 bits of magnitude.
        ("isaac-rram-128", {"encoding": "differential", "array": "256x64"}, 1, 4, 8, 64),
        ("isaac-rram-128", {"dac_bits": 2, "weight_bits": 5}, 2, 3, 5, 2 * 13),
        ("ideal", {}, 1, 1, 1, 1),
    ],
)
def test_arrays_cycles_and_slices_of_a_layer(
    target: str,
    flags: dict[str, object],
    groups: int,
    slices: int,
    cycles: int,
    arrays: int,
    prepared: Prepare,
) -> None:
    found = first_layer(prepared(target, **flags))
    assert (found.layer, found.rows, found.columns) == ("text.fc1", 256, 512)
    assert (found.row_groups, found.slices, found.cycles) == (groups, slices, cycles)
    assert found.arrays == arrays
    assert len(found.steps) == slices


@pytest.mark.thorough("a bundle a case", quick=("flags0", "flags1", "flags3"))
@pytest.mark.parametrize(
    ("target", "flags", "utilisation", "conversions"),
    [
        ("isaac-rram-128", {}, 1.0, 2 * 512 * 4 * 8),
        # 256 of 300 rows and 512 of 21 x 25 columns of weights, a unit column in none.
        ("isaac-rram-128", {"array": "100x100"}, 256 * 512 * 4 / (3 * 21 * 10_000), 3 * 512 * 32),
        ("isaac-rram-128", {"rows_active": 64}, 1.0, 4 * 512 * 4 * 8),
        ("ideal", {}, 1.0, 0),
        # 31 weights beside a unit column in each of 17 arrays, 2 row groups.
        (
            "isaac-rram-128",
            {"offset_sum": "unit-column"},
            256 * (512 * 4 + 17) / (2 * 17 * 128 * 128),
            2 * (512 * 4 + 17) * 8,
        ),
        # A reference column takes as much room, and is not converted.
        (
            "isaac-rram-128",
            {"encoding": "centred"},
            256 * (512 * 4 + 17) / (2 * 17 * 128 * 128),
            2 * 512 * 4 * 8,
        ),
    ],
)
def test_cells_used_and_conversions(
    target: str,
    flags: dict[str, object],
    utilisation: float,
    conversions: int,
    prepared: Prepare,
) -> None:
    found = first_layer(prepared(target, **flags))
    assert found.utilisation == pytest.approx(utilisation)
    assert found.conversions == conversions
    assert sum(height * width for height, width in found.tiles) == found.macs
    assert len(found.tiles) == found.arrays


def test_fewer_active_rows_are_read_one_after_another(prepared: Prepare) -> None:
    assert first_layer(prepared("isaac-rram-128")).reads == 1
    assert first_layer(prepared("isaac-rram-128", rows_active=48)).reads == 3


def test_redundant_columns_take_arrays_and_change_no_number(prepared: Prepare) -> None:
    plain, spared = prepared("isaac-rram-128"), prepared("isaac-rram-128", redundant_columns=15)
    layer = first_layer(spared)
    # 113 of 128 columns hold 28 weights of 4 cells, so 512 columns of weights take 19 arrays.
    assert (layer.array_columns, layer.column_parts, layer.row_parts) == (28, 19, 2)
    assert layer.utilisation == pytest.approx(512 * 4 / (19 * 128))
    one, other = (
        program_text(made.stages[-1].program, ConstantTable()) for made in (plain, spared)
    )
    assert one == other


def test_shared_exponents_are_held_beside_the_weights(prepared: Prepare) -> None:
    target = "dcim-28nm-isscc22"
    plain = first_layer(prepared(target, weight_bits=4))
    shared = first_layer(prepared(target, weight_bits=4, encoding="mxint"))
    assert plain.exponents == 0
    assert plain.held_bits == 4 * plain.macs
    assert shared.exponents == shared.row_groups * shared.columns
    assert shared.held_bits == 4 * shared.macs + 8 * shared.exponents == 4.25 * shared.macs
    assert (shared.arrays, shared.cells) == (plain.arrays, plain.cells)
