"""Dies of a bundle: its settings on them, and the source of its noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError, CimWarning
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import MOST_TRIALS, NoiseOptions, conditions_of, dies, noise_of
from cimtool.demo.data import DemoFiles
from cimtool.hardware.noise.die import Arrays
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.target import load_target
from cimtool.ir.program import Graph
from cimtool.simulation import die_program
from cimtool.simulation.die_program import arrays_of, on_die

DEVICES = """
source = "a test"
g_max = 20.0
[programming]
sigma = [0.5]
[stuck]
p_on = 0.01
[adc]
offset = 0.5
[read]
sigma = 0.02
"""


@pytest.mark.parametrize(
    ("target", "across", "pairs"),
    [("hermes-pcm-14nm", 256, "columns"), ("neurram-rram-130nm", 256, "rows"),
     ("isaac-rram-128", 32, "columns"), ("ideal", None, "columns")],
)  # fmt: skip
def test_weights_lie_on_arrays_as_the_target_says(
    target: str, across: int | None, pairs: str
) -> None:
    settings = resolve(load_target(target), None, {})
    found = arrays_of(settings, "text.fc1", settings.weight_bits)
    assert (found.across, found.pairs) == (across, pairs)


def test_every_crossbar_layer_is_on_the_die_and_nothing_else(small_bundle: Path) -> None:
    bundle = read_bundle(small_bundle)
    conditions = conditions_of(bundle, NoiseOptions(1, model="pcm-generic", time="1h"))
    assert conditions.seconds == 3600.0
    (die,) = dies(bundle, conditions, 1)
    for before, after in zip(bundle.program.graphs, die.program.graphs, strict=True):
        assert [node.name for node in before.nodes] == [node.name for node in after.nodes]
        for one, other in zip(before.nodes, after.nodes, strict=True):
            if one.op.name == "crossbar_mvm":
                assert isinstance(other.op, NoisyMvm)
                assert after.types[other.name].hi.tolist() == before.types[one.name].hi.tolist()
            else:
                assert type(one.op) is type(other.op)


def test_too_many_trials_are_refused(small_bundle: Path) -> None:
    options = NoiseOptions(MOST_TRIALS + 1, model="pcm-generic")
    with pytest.raises(CimError, match=r"trials is 100001; expected 1 to 100000 dies"):
        conditions_of(read_bundle(small_bundle), options)


def test_a_corner_is_one_of_the_noise_model(small_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "noise.toml"
    corner = '[corners.ss]\nsource = "a test"\nstatus = "assumed"\nscale = { factor = 0.5 }\n'
    file.write_text(f'source = "a test"\ng_max = 20.0\n{corner}')
    bundle = read_bundle(small_bundle)
    found = conditions_of(bundle, NoiseOptions(1, model=file, corner="ss"))
    assert [one.name for one in found.noise.mechanisms] == ["scale"]
    assert found.when == "0 s, ss"
    assert conditions_of(bundle, NoiseOptions(1, model=file)).when == "0 s"
    with pytest.raises(CimError, match='corner "ff" is not known: nominal, ss'):
        conditions_of(bundle, NoiseOptions(1, model=file, corner="ff"))


def on_arrays(graph: Graph) -> dict[str, NoisyMvm]:
    return {node.name: node.op for node in graph.nodes if isinstance(node.op, NoisyMvm)}


def test_products_with_the_same_cells_share_a_die_but_not_their_reads(
    small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=tmp_path / "memory", target="isaac-rram-128", adc_bits=6,
        score_mapping="in-memory",
    )  # fmt: skip
    bundle = api.program(tmp_path / "memory", small_trunk.eval).bundle
    (tmp_path / "devices.toml").write_text(DEVICES)
    conditions = conditions_of(bundle, NoiseOptions(1, model=tmp_path / "devices.toml"))
    (die,) = dies(bundle, conditions, 1)
    found = on_arrays(die.program.score)
    one, other, apart = found["mu.mu"], found["mus.mu"], found["s.mu2"]
    for a, b in zip(one.cells.slices, other.layer.cells.slices, strict=True):
        np.testing.assert_array_equal(a.digits, b.digits)
    assert one.errors is not None
    assert other.errors is not None
    np.testing.assert_array_equal(one.errors.gain, other.errors.gain)
    for k, both in enumerate(zip(one.layer.references, other.layer.references, strict=True)):
        steps = [references.step.item() for references in both]
        pairs = zip((one, other), steps, strict=True)
        offsets = [op.errors.offset[:, k] / step for op, step in pairs]
        np.testing.assert_allclose(*offsets, atol=0.6 / min(steps))
    assert one.fresh is not None
    assert other.fresh is not None
    assert one.fresh.key != other.fresh.key
    digits, others = (op.cells.slices[0].digits for op in (one, apart))
    assert digits.shape == others.shape
    assert (digits != others).any()
    asked: dict[str, int] = {}

    def arrays(settings: Settings, layer: str, weight_bits: int) -> Arrays:
        asked[layer] = weight_bits
        return arrays_of(settings, layer, weight_bits)

    monkeypatch.setattr(die_program, "arrays_of", arrays)
    on_die(bundle.program, bundle.settings, conditions, 0)
    assert asked["score.s.mu2"] == apart.crossbar.weights.bits > asked["score.mu.mu"]
    assert "score.mus.mu" not in asked


def test_a_gallery_lies_on_arrays_by_the_bits_of_its_own_weights() -> None:
    settings = resolve(load_target("isaac-rram-128"), None, {})
    assert arrays_of(settings, "score.mu", 8).across == 32
    assert arrays_of(settings, "score.mu", 15).across == 16


@pytest.mark.parametrize(
    ("target", "warned"),
    [
        ("charge-16nm-princeton", True),
        ("acim-7nm-tsmc", True),
        ("isaac-rram-128", False),
        ("dirc-rag-40nm", False),  # SRAM over ReRAM
    ],
)
def test_errors_of_conductances_on_cells_of_sram_are_warned_of(
    target: str, warned: bool, recwarn: pytest.WarningsRecorder
) -> None:
    noise_of(load_target(target), "neurram")
    said = [str(one.message) for one in recwarn if one.category is CimWarning]
    assert bool(said) == warned
    if said:
        assert f'target "{target}" has cells of ' in said[0]
        assert "its noise has errors of one (programming); expected a noise model of" in said[0]


def test_read_noise_fits_every_cell(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (tmp_path / "n.toml").write_text('source = "a test"\ng_max = 1.0\n[read]\nsigma = 0.1\n')
    noise_of(load_target("acim-7nm-tsmc"), tmp_path / "n.toml")
    assert not recwarn
