"""Measured chips: what is written is read back to the last bit, and what is no chip is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.chip import chip_die, read_chip
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import CellBand, Devices, Die
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.simulation.chip_program import LayerOfChip
from cimtool.simulation.die_program import Conditions, DieProgram, on_die
from cimtool.simulation.simulator import Simulator

DESIGNS: dict[str, dict[str, Any]] = {
    "offset cells with flipped columns": {},
    "pairs in two rows": {"target": "neurram-rram-130nm", "adc_bits": 6},
    "a reference column": {"target": "isaac-rram-128", "adc_bits": 5, "encoding": "centred"},
}


@pytest.fixture(scope="module", params=DESIGNS)
def bundle(
    request: pytest.FixtureRequest,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bundle:
    design = DESIGNS[request.param]
    if not design:
        return read_bundle(small_bundle)
    return api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", output=tmp_path_factory.mktemp("chips") / "small", **design,
    )  # fmt: skip


@pytest.fixture(scope="module")
def written(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chip") / "chip"
    export_bundle(bundle, "conductances", folder)
    return folder


@pytest.fixture
def chip(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "chip"))


def layers(die: DieProgram) -> Iterator[NoisyMvm]:
    for graph in die.program.graphs:
        yield from (node.op for node in graph.nodes if isinstance(node.op, NoisyMvm))


def same(one: DieProgram, other: DieProgram) -> None:
    for a, b in zip(layers(one), layers(other), strict=True):
        assert a.cells.fraction_bits == b.cells.fraction_bits
        found, wanted = (
            [one and one.step.tolist() for one in op.layer.references] for op in (a, b)
        )
        assert found == wanted
        for left, right in zip(a.cells.slices, b.cells.slices, strict=True):
            np.testing.assert_array_equal(left.digits, right.digits)


def test_a_chip_as_programmed_is_the_noise_free_model(bundle: Bundle, written: Path) -> None:
    die, _ = chip_die(bundle, written)
    for op in layers(die):
        perfect = op.perfect.stored.cells
        assert op.cells.fraction_bits == perfect.fraction_bits
        assert op.frozen
        for one, other in zip(op.cells.slices, perfect.slices, strict=True):
            np.testing.assert_array_equal(one.digits, other.digits)
    header = (written / "text.fc1.csv").read_text().partition("\n")[0]
    assert header == "core,array,row,column,level,target_conductance,tolerance"


def test_a_chip_as_programmed_scores_as_one_die(
    small_bundle: Path, small_chip: Path, small_trunk: DemoFiles
) -> None:
    with np.load(small_trunk.eval) as rows:
        few = {name: rows[name][:4] for name in ("text", "video")}
    found = api.simulate(small_bundle, few, chip=small_chip)
    np.testing.assert_array_equal(found["trial_scores"][0], found["scores"])


def test_the_same_bundle_gives_the_same_bytes(
    bundle: Bundle, written: Path, tmp_path: Path
) -> None:
    export_bundle(bundle, "conductances", tmp_path / "again")
    for file in written.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def drawn_lines(layer: LayerOfChip, noise: Noise, die: Die) -> Iterator[str]:
    """A drawn die's cells as a chip's file, with a column of what was read of each."""
    devices = Devices(
        noise, layer.stored.crossbar.weights.cell_maximum, layer.arrays.on_off_ratio, die
    )
    yield "array,row,column,conductance\n"
    number = layer.first
    for block, (_, digits) in enumerate(layer.bands()):
        at = block * (layer.stored.crossbar.tiling.height or len(layer.stored.weight))
        held = enumerate([*digits.weights, digits.references])
        *g, references = (devices.conductances(d, layer.name, at, i) for i, d in held)
        for matrix in layer.on_arrays(CellBand(np.stack(g), references)):
            for (row, column), value in np.ndenumerate(matrix):
                yield f"{number},{row},{column},{float(value)!r}\n"
            number += 1


def test_a_drawn_die_goes_through_csv_to_the_same_bits(bundle: Bundle, chip: Path) -> None:
    values = {"source": "a test", "g_max": 20.0, "programming": {"sigma": [0.5]}}
    noise = Noise.model_validate(values)
    file = chip / "chip.toml"
    file.write_text(re.sub("g_max = .*", "g_max = 20.0", file.read_text()))
    known = read_chip(chip, bundle).layers
    for name, layer in known.items():
        lines = drawn_lines(layer, noise, Die(3, 0, 0.0))
        (chip / f"{name}.csv").write_text("".join(lines))
    die, sentence = chip_die(bundle, chip)
    same(die, on_die(bundle.program, bundle.settings, Conditions(noise, 0.0, "none", 3), 0))
    cells = sum(one.cells for one in known.values())
    assert sentence == f"chip {chip}: {cells:,} of {cells:,} cells have a conductance, 0 are stuck"


@pytest.fixture(scope="module")
def small_chip(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chip") / "chip"
    export_bundle(read_bundle(small_bundle), "conductances", folder)
    return folder


HEAD = "core,array,row,column,level,target_conductance,tolerance\n"
CELL = "array,row,column,conductance\n"
STATE = "array,row,column,state\n"
THRESHOLD = "array,converter,code,threshold\n"
LADDER = "".join(f"0,0,{code},{code - 0.5}\n" for code in range(1, 16))
HOSTILE = {
    "no header": ("text.fc1.csv", "", "line 1: is not a line of column names"),
    "a strange column": ("text.fc1.csv", "array,row,column,conductanse\n",
                         'line 1: has a column conductanse; expected array, row, column, target'),
    "a column too few": ("text.fc1.csv", "array,row,conductance\n", "line 1: has no column colu"),
    "a column twice": ("text.fc1.csv", "array,row,row\n", "line 1: names column row twice"),
    "a text": ("text.fc1.csv", CELL + "0,0,0,0.5\n0,0,1,many\n",
               "line 3: conductance is many; expected a number from -2 to 2"),
    "not a number": ("text.fc1.csv", CELL + "0,0,0,nan\n", "line 2: conductance is nan; expected"),
    "too much": ("text.fc1.csv", CELL + "0,0,0,2.1\n", "line 2: conductance is 2.1; expected"),
    "an empty field": ("text.fc1.csv", CELL + "0,0,0,\n", "line 2: conductance is empty; expected"),
    "an empty line": ("text.fc1.csv", CELL + "\n0,0,0,1\n", "line 2: has 1 column; expected 4"),
    "a long row": ("text.fc1.csv", CELL + "0,0,0,1,1\n", "line 2: has 5 columns; expected 4"),
    "half a row": ("text.fc1.csv", CELL + "0,0,0.5,1\n", "line 2: column is 0.5; expected an int"),
    "another layer's array": ("text.fc1.csv", CELL + "99,0,0,1\n",
                              "line 2: array is 99; expected an integer from 0 to"),
    "a row that is not there": ("text.fc1.csv", CELL + "0,999,0,1\n", "line 2: row is 999; exp"),
    "a cell twice": ("text.fc1.csv", CELL + "0,0,0,1\n0,0,1,1\n0,0,0,1\n",
                     "line 4: names a cell again; expected it once"),
    "an endless line": ("text.fc1.csv", CELL + "1" * 9999, "line 2: is longer than 4096 bytes"),
    "no text": ("text.fc1.csv", CELL + "0,0,0,\xe9\n", "line 2: is not plain text; expected ASCII"),
    "no layer": ("text.fc9.csv", CELL, 'belongs to no layer; expected text.fc1.csv,'),
    "no state": ("stuck.csv", STATE + "0,0,0,open\n", "line 2: state is open; expected on or off"),
    "stuck twice": ("stuck.csv", STATE + "0,0,0,on\n0,0,0,off\n", "line 3: names a cell again"),
    "stuck outside": ("stuck.csv", STATE + "0,900,0,on\n", "line 2: names a cell beyond array 0;"),
    "one threshold": ("converters.csv", THRESHOLD + "0,0,1,0.5\n",
                      "converter 0 of array 0 has no threshold for code 2; expected 1 to 15"),
    "thresholds that fall": ("converters.csv", THRESHOLD + LADDER.replace("3,2.5", "3,0"),
                             "converter 0 of array 0 has a threshold of code 3 below the last"),
    "a threshold twice": ("converters.csv", THRESHOLD + LADDER + "0,0,1,0.5\n",
                          "line 17: gives a threshold again"),
    "a code too many": ("converters.csv", THRESHOLD + LADDER + "0,0,16,16\n",
                        "line 17: code is 16; expected at most 15"),
    "no such converter": ("converters.csv", THRESHOLD + "0,9999,1,0.5\n",
                          "line 2: converter is 9999; expected at most"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_measurement_is_one_sentence(
    name: str, small_bundle: Path, small_chip: Path, tmp_path: Path
) -> None:
    file, content, said = HOSTILE[name]
    chip = Path(shutil.copytree(small_chip, tmp_path / "chip"))
    (chip / file).write_bytes(content.encode("latin-1"))
    with pytest.raises(CimError) as caught:
        chip_die(read_bundle(small_bundle), chip)
    assert str(caught.value).startswith(f"{chip / file}: {said}")


def test_the_chip_of_another_bundle_is_refused(
    small_bundle: Path, small_chip: Path, tmp_path: Path
) -> None:
    chip = Path(shutil.copytree(small_chip, tmp_path / "chip"))
    bundle = read_bundle(small_bundle)
    file = chip / "chip.toml"
    file.write_text(re.sub('constants = ".', 'constants = "x', file.read_text()))
    with pytest.raises(CimError, match=r"chip.toml: constants differ from those of small@isaac"):
        read_chip(chip, bundle)
    file.write_text(re.sub("g_max = .*", "g_max = 0", file.read_text()))
    with pytest.raises(CimError, match=r"chip.toml: g_max = 0: must be a number above 0"):
        read_chip(chip, bundle)
    file.unlink()
    with pytest.raises(CimError, match=r"is not a chip \(it has no chip.toml\)"):
        read_chip(chip, bundle)


def test_thresholds_that_were_set_are_not_measured(small_trunk: DemoFiles, tmp_path: Path) -> None:
    bundle = api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", output=tmp_path / "small", target="isaac-rram-128", adc_bits=4,
        references="levels",
    )  # fmt: skip
    export_bundle(bundle, "conductances", tmp_path / "chip")
    die, _ = chip_die(bundle, tmp_path / "chip")
    graph = bundle.program.text
    for node in die.program.text.nodes:
        if isinstance(node.op, NoisyMvm):
            x = np.zeros((1, len(node.op.perfect.weight)), np.int64)
            np.testing.assert_array_equal(node.op.run(x), graph.by_name[node.name].op.run(x))
    (tmp_path / "chip" / "converters.csv").write_text(THRESHOLD + LADDER)
    with pytest.raises(CimError, match=r"^text\.fc1: its converters have thresholds that were set"):
        chip_die(bundle, tmp_path / "chip")


def test_stuck_cells_and_measured_converters_change_what_they_should(
    small_bundle: Path, small_chip: Path, tmp_path: Path
) -> None:
    bundle = read_bundle(small_bundle)
    chip = Path(shutil.copytree(small_chip, tmp_path / "chip"))
    (chip / "stuck.csv").write_text(STATE + "0,0,0,on\n0,1,1,off\n")
    ladders = [f"0,{k},{code},{code - 0.5}\n" for k in (0, 5) for code in range(1, 16)]
    (chip / "converters.csv").write_text(THRESHOLD + "".join(ladders))
    die, sentence = chip_die(bundle, chip)
    assert sentence.endswith("2 are stuck")
    perfect, first = bundle.program.text.by_name["fc1"].op, next(layers(die))
    assert isinstance(perfect, CrossbarMvm)
    unit = 1 << first.cells.fraction_bits
    cells = np.stack([s.digits for s in first.cells.slices], axis=2) / unit
    digits = np.stack([s.digits for s in perfect.stored.slices], axis=2).astype(float)
    expected = digits.copy()
    expected[0, 0, 0] = perfect.crossbar.weights.cell_maximum
    expected[1, 0, 1] = 0
    np.testing.assert_array_equal(cells, expected)
    assert first.measured is not None
    assert (first.measured.table >= 0).sum() == 2 * len(perfect.stored.groups)
    (chip / "stuck.csv").unlink()
    die, _ = chip_die(bundle, chip)  # thresholds half way between codes are the formula's
    rows = np.random.default_rng(0).normal(size=(4, 24)).astype(np.float32)
    for name, values in Simulator(die.program).encode("text", rows).items():
        np.testing.assert_array_equal(values, Simulator(bundle.program).encode("text", rows)[name])


def test_a_chip_beside_drawn_dies_is_refused(small_bundle: Path, small_chip: Path) -> None:
    with pytest.raises(CimError, match=r"chip replaces drawn dies; expected it without"):
        api.simulate(small_bundle, {}, noise=NoiseOptions(), chip=small_chip)


def test_layers_are_chosen_and_measured_chips_are_not_replaced(
    small_bundle: Path, small_chip: Path, tmp_path: Path
) -> None:
    bundle, said = read_bundle(small_bundle), list[str]()
    export_bundle(bundle, "conductances", tmp_path / "one", Request("text.mu", say=said.append))
    assert said == ["takes about 131.1 kB: text.mu 131.1 kB", "text.mu: written, layer 1 of 1"]
    assert sorted(f.name for f in (tmp_path / "one").iterdir()) == ["chip.toml", "text.mu.csv"]
    die, _ = chip_die(bundle, tmp_path / "one")  # the other layers are as programmed
    assert all(op.cells.fraction_bits == 0 for op in layers(die))
    with pytest.raises(CimError, match=r"exists and is not an earlier export"):
        export_bundle(bundle, "conductances", tmp_path / "one")
    with pytest.raises(CimError, match=r'layers "text.nu" matches no layer; .*mean "text.mu"'):
        export_bundle(bundle, "conductances", tmp_path / "two", Request("text.nu"))
    assert not (tmp_path / "two").exists()
