"""Programs as text: read back they are the same, whatever they hold."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cimtool.api import Compilation, prepare
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.bundle.serial import (
    FACTOR_ROWS,
    Constants,
    ConstantTable,
    as_computed,
    column_factors,
    narrowed,
    program_text,
    read_program,
    scaled_columns,
)
from cimtool.demo.data import DemoFiles
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Program
from cimtool.ir.types import integer, real, type_text
from cimtool.simulation.simulator import Simulator


@pytest.fixture(scope="module")
def compilation(small_two_branch: DemoFiles) -> Compilation:
    files = small_two_branch
    return prepare(
        files.projectors,
        calibration=files.calibration,
        drift="given",
        target="hermes-pcm-14nm",
        adc_bits=6,
    )


def stored(program: Program) -> tuple[str, dict[str, Array]]:
    table = ConstantTable()
    return program_text(program, table), table.arrays


def test_every_stage_is_read_back_as_it_was(
    compilation: Compilation, small_two_branch: DemoFiles
) -> None:
    with np.load(small_two_branch.eval) as data:
        rows = data["text"][:5], data["video"][:5]
    for stage in compilation.stages:
        text, arrays = stored(stage.program)
        again = read_program(text, Constants(arrays), "program.json")
        assert stored(again)[0] == text
        assert {k: v.tobytes() for k, v in stored(again)[1].items()} == {
            k: v.tobytes() for k, v in arrays.items()
        }
        for before, after in zip(stage.program.graphs, again.graphs, strict=True):
            assert [n.name for n in before.nodes] == [n.name for n in after.nodes]
            assert before.outputs == after.outputs
            if stage.name != "calibrated":  # ranges are not stored
                for name, known in before.types.items():
                    assert type_text(known) == type_text(after.types[name])
        np.testing.assert_array_equal(
            Simulator(again).scores(*rows), Simulator(stage.program).scores(*rows)
        )


def test_a_node_is_a_line(compilation: Compilation) -> None:
    program = compilation.stages[-1].program
    text, _ = stored(program)
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    nodes = [json.loads(line) for line in lines if line.startswith('{"name"')]
    assert [n["name"] for n in nodes] == [n.name for g in program.graphs for n in g.nodes]
    assert json.loads(text).keys() == {"text", "video", "score"}


finite = st.floats(allow_nan=False, allow_infinity=True)


@given(
    st.one_of(
        hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=4), elements=finite),
        hnp.arrays(np.float64, 3, elements=st.floats(width=32, allow_nan=False)),
        hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=4)),
        hnp.arrays(np.int64, 3, elements=st.integers(-128, 255)),
        hnp.arrays(np.bool_, 3),
    )
)
def test_narrowing_loses_nothing(array: Array) -> None:
    packed = narrowed(array)
    assert packed.nbytes <= array.nbytes
    again = as_computed(packed)
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.array([-128, 127]), np.int8), (np.array([0, 255]), np.uint8),
        (np.array([-1, 255]), np.int16), (np.array([0, 1 << 16]), np.int32),
        (np.array([0, 1 << 40]), np.int64), (np.array([0.5]), np.float32),
        (np.array([0.1]), np.float64), (np.array([1e300]), np.float64),
        (np.zeros((0, 2), np.int64), np.int8),
    ],
)  # fmt: skip
def test_the_narrowest_type_that_holds_it_is_taken(array: Array, kind: type) -> None:
    assert narrowed(array).dtype == kind


def test_equal_arrays_are_kept_once_and_unequal_shapes_are_not_equal() -> None:
    table = ConstantTable()
    assert table.add("a", np.zeros(4)) == "a"
    assert table.add("b", np.zeros(4)) == "a"
    assert table.add("c", np.zeros((2, 2))) == "c"
    assert table.add("d", np.zeros(4, np.int64)) == "d"
    assert ConstantTable(table.names).add("e", np.zeros(4)) == "a"


def test_types_are_told_in_a_few_words() -> None:
    known = integer(("n", 8), -127, 127, 0.5)
    assert type_text(known) == "int [n, 8] 8 bits -127..127 unit 0.5"
    uneven = integer(("n", 2), 0, 3, np.array([0.25, 2.0]))
    assert type_text(uneven) == "int [n, 2] 2 bits 0..3 unit 0.25..2"
    assert type_text(real(("n",))) == "real [n]"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-40],
        lambda text: text.replace('"video"', '"audio"'),
        lambda text: text.replace('"crossbar_mvm"', '"crossbar_mvn"', 1),
        lambda text: text.replace('"bias"', '"by"', 1),
        lambda text: text.replace('"stored"', '"waits"', 1),
        lambda text: text.replace('"cell_bits"', '"bits_of_cells"', 1),
        lambda text: text.replace('{"name": "differential"', '{"name": "diferential"', 1),
        lambda text: text.replace('"constant": "', '"constant": "no.', 1),
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace('"nodes": [', '"nodes": [3,', 1),
    ],
)
def test_what_is_no_program_is_refused_with_the_file(compilation: Compilation, change) -> None:  # type: ignore[no-untyped-def]
    text, arrays = stored(compilation.stages[-1].program)
    with pytest.raises(CimError, match=r"^here/program\.json: |not known"):
        read_program(change(text), Constants(arrays), "here/program.json")


def test_programs_share_what_is_made_of_a_constant(compilation: Compilation) -> None:
    *_, earlier, last = (stage for stage in compilation.stages if stage.kept)
    table = ConstantTable()
    text = program_text(last.program, table)
    others = ConstantTable(table.names)
    earlier_text = program_text(earlier.program, others, "earlier/")
    constants = Constants(table.arrays)
    read = read_program(text, constants, "program.json")
    again = read_program(earlier_text, constants.joined(others.arrays), "stages.json")
    mine, theirs = (
        [node.op for node in one.text.nodes if isinstance(node.op, CrossbarMvm)]
        for one in (read, again)
    )
    assert theirs
    assert all(a.stored is b.stored for a, b in zip(mine, theirs, strict=True))


@pytest.fixture(scope="module")
def with_levels(small_two_branch: DemoFiles) -> Program:
    made = prepare(
        small_two_branch.projectors,
        calibration=small_two_branch.calibration,
        drift="given",
        target="hermes-pcm-14nm",
        adc_bits=3,
        references="levels",
    )
    return made.stages[-1].program


def test_levels_are_read_back_as_they_were(with_levels: Program) -> None:
    text, arrays = stored(with_levels)
    again = read_program(text, Constants(arrays), "program.json")
    assert stored(again)[0] == text
    for a, b in zip(layers_of(with_levels), layers_of(again), strict=True):
        x = np.random.default_rng(0).integers(-99, 99, (3, len(a.weight)))
        np.testing.assert_array_equal(a.run(x), b.run(x))


def test_steps_of_columns_are_read_back_as_they_were(small_two_branch: DemoFiles) -> None:
    made = prepare(
        small_two_branch.projectors, calibration=small_two_branch.calibration, drift="given",
        target="hermes-pcm-14nm", adc_bits=3, references="gain",
    )  # fmt: skip
    program = made.stages[-1].program
    text, arrays = stored(program)
    again = read_program(text, Constants(arrays), "program.json")
    assert stored(again)[0] == text
    apart = 0
    for a, b in zip(layers_of(program), layers_of(again), strict=True):
        x = np.random.default_rng(0).integers(-99, 99, (3, len(a.weight)))
        np.testing.assert_array_equal(a.run(x), b.run(x))
        apart += sum(one is not None and one.step.size > 1 for one in b.references)
    assert apart
    name = next(key for key in arrays if key.endswith("step"))
    for change, said in ((0, "converter step 0: must be at least 1"), (0.5, "expected whole")):
        broken = arrays | {name: arrays[name].astype(type(change)) * change}
        with pytest.raises(CimError, match=said):
            read_program(text, Constants(broken), "program.json")


def layers_of(program: Program) -> list[CrossbarMvm]:
    return list(program.text.operations(CrossbarMvm).values())


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("thresholds", lambda t: t[::-1], "thresholds must rise"),
        ("thresholds", lambda t: t[:-1], "6 thresholds and 8 values; 8 codes have 7 and 8"),
        ("thresholds", lambda t: t << 20, "thresholds must lie within 512 steps"),
        ("levels", lambda t: t * 0, "values must rise"),
        ("levels", lambda t: np.append(t, 99), "7 thresholds and 9 values; 8 codes have 7 and 8"),
        ("levels", lambda t: t[None], "expected whole numbers in a row"),
        ("levels", lambda t: t / 2, "expected whole numbers in a row"),
    ],
)
def test_levels_that_are_none_are_refused(with_levels: Program, part, change, said) -> None:  # type: ignore[no-untyped-def]
    text, arrays = stored(with_levels)
    name = next(key for key in arrays if key.endswith(part))
    broken = arrays | {name: change(arrays[name].astype(np.int64))}
    with pytest.raises(CimError, match=rf"^here/program\.json: is not a program .*{said}"):
        read_program(text, Constants(broken), "here/program.json")


@given(st.integers(0, 2**32 - 1))
def test_folded_weights_are_factors_of_the_trained_ones_to_the_last_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(FACTOR_ROWS + 16, 8)).astype(np.float32)
    base[rng.random(base.shape) < 0.1] = 0
    by = rng.lognormal(0, 3, 8) * rng.choice([-1, 1, 0], 8)
    wanted = scaled_columns(base, by)
    found = column_factors(base, wanted)
    assert found is not None
    np.testing.assert_array_equal(scaled_columns(base, found), wanted)
    for row in (0, len(base) - 1):  # told apart by the first rows, and beyond them
        other = wanted.copy()
        other[row, 0] += 1
        assert column_factors(base, other) is None


def test_an_array_is_the_base_of_one_other_alone() -> None:
    rng = np.random.default_rng(0)
    base, table = rng.normal(size=(16, 8)).astype(np.float32), ConstantTable()
    table.encoded("a", base)
    kept = [table.encoded(name, scaled_columns(base, np.full(8, by))) for name, by in
            (("b", 3.0), ("c", 5.0))]  # fmt: skip
    assert kept == [{"constant": "a", "factors": "b.factors"}, {"constant": "c"}]
    assert table.encoded("later", scaled_columns(base, np.full(8, 3.0))) == kept[0]
    constants = Constants(table.arrays)
    np.testing.assert_array_equal(
        constants.scaled("a", "b.factors"), scaled_columns(base, np.full(8, 3.0))
    )
    with pytest.raises(ValueError, match="a has two sets of factors"):
        constants.scaled("a", "c")
    with pytest.raises(ValueError, match="are not factors of the columns"):
        Constants(table.arrays).scaled("a", "c")
