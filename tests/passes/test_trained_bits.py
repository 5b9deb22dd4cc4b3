"""Layers of whole weights keep them through every pass, whatever the options and the hardware."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Add, Clip, Mvm, scalar
from cimtool.ir.format import round_half_up
from cimtool.ir.heads import TowerBuilder, assemble
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import Graph, Program
from cimtool.ir.quantized import QuantizedMvm, QuantizedStore
from cimtool.ir.source import BatchNorm
from cimtool.ir.surrogate import Polynomial
from cimtool.passes.base import Job
from cimtool.passes.pipeline import compile_program
from cimtool.passes.trained_bits import trained_bits, trained_bits_notes, with_trained_bits
from cimtool.simulation.simulator import Runner

WIDTH, HIDDEN, D, ROWS = 12, 10, 6, 48
QUADRATIC = Polynomial(2, (-0.1, 0.002, 1e-4, -1e-5, 2e-6), 0.3)
UNSIGNED = QuantizedStore("activation", 4, scale=0.15, lo=0, hi=15)


def layer(
    rng: np.random.Generator, rows: int, columns: int, bits: int = 4, lowest: int = -7
) -> QuantizedMvm:
    codes = rng.integers(lowest, 2 ** (bits - 1), (rows, columns))
    codes[0, 0] = lowest
    scale = np.float32(rng.uniform(0.02, 0.05, columns)).astype(np.float64)
    bias = rng.normal(size=columns) * 0.2
    return QuantizedMvm(codes * scale, bias, weight_scale=scale, weight_bits=bits)


def tower(seed: int, read: QuantizedStore | None, **first: int) -> Graph:
    """Two layers of whole weights, a batch norm between them; x is quantized by `read`."""
    rng, builder = np.random.default_rng(seed), TowerBuilder(WIDTH)
    x = "x" if read is None else builder.add("x_stored", read, "x")
    h = builder.add("fc1", layer(rng, WIDTH, HIDDEN, **first), x)
    gamma, var = rng.uniform(0.5, 1.5, (2, HIDDEN))
    norm = BatchNorm(-gamma, rng.normal(size=HIDDEN), rng.normal(size=HIDDEN), var, 1e-5)
    h = builder.add("relu", Clip(scalar(0.0), scalar(np.inf)), builder.add("norm", norm, h))
    h = builder.add("h_stored", UNSIGNED, h)
    mu, logvar = (builder.add(name, layer(rng, HIDDEN, D), h) for name in ("mu", "logvar"))
    return builder.tower(mu, builder.add("halved", Add((scalar(0.1),), scalar(0.0)), logvar))


def compiled(
    towers: Graph, target: str = "isaac-rram-128", **options: object
) -> tuple[Program, Job, dict[str, Program]]:
    trained = assemble(towers, towers, PcmePoly(QUADRATIC))
    settings = with_trained_bits(Configuration.of(target, None, options), trained)
    rng = np.random.default_rng(2)
    rows = (rng.normal(size=(2, ROWS, WIDTH)) * [[[0.3]], [[2.0]]]).astype(np.float32)
    job = Job(settings, *rows, silent)
    return trained, job, {s.name: s.program for s in compile_program(trained, job, silent)}


SIGNED = QuantizedStore("input", 8, scale=0.02, lo=-128, hi=127)
ASYMMETRIC = QuantizedStore("input", 8, scale=0.02, lo=-30, hi=225)


@pytest.mark.thorough(
    "more of the same kind", quick=("calibrated-options0", "signed-options1", "uint8-options2")
)
@pytest.mark.parametrize("options", [{}, {"weight_rounding": "gptq"}, {"calibrator": "minmax"}])
@pytest.mark.parametrize("read", [None, SIGNED, ASYMMETRIC], ids=["calibrated", "signed", "uint8"])
def test_integers_and_products_stay_as_they_are(
    read: QuantizedStore | None, options: dict[str, object]
) -> None:
    trained, job, stages = compiled(tower(1, read), **options)
    for modality in ("text", "video"):
        source, graph = getattr(trained, modality), getattr(stages["quantized"], modality)
        layers = graph.operations(Mvm)
        assert list(layers) == ["fc1", "mu", "logvar"]
        for name, op in layers.items():
            whole = source.by_name[name].op
            np.testing.assert_array_equal(op.weight, whole.codes)
            assert whole.codes.any()
        (value,) = graph.by_name["fc1"].inputs
        found = Runner(graph).values({"x": job.rows(modality)}, ["fc1", value, "h_stored"])
        assert graph.types["h_stored"].bits == 4
        assert np.ptp(graph.types[value].unit) == 0
        if read is None:
            bias = source.by_name["fc1"].op.bias / graph.types["fc1"].unit
            np.testing.assert_array_equal(layers["fc1"].bias, round_half_up(bias))
        else:
            codes = np.rint(job.rows(modality) / np.float32(read.scale)).clip(read.lo, read.hi)
            wanted = codes.astype(int) @ source.by_name["fc1"].op.codes
            np.testing.assert_array_equal(found["fc1"], wanted)


def test_a_zero_point_costs_no_bit_of_the_hardware() -> None:
    """The store's limits less the zero point take 9 bits; the layer reads codes from 0."""
    for target, read, code in (
        ("isaac-rram-128", ASYMMETRIC, (0, 255)),
        ("isaac-rram-128", SIGNED, (-128, 127)),
        ("hermes-pcm-14nm", SIGNED, (0, 255)),  # its inputs have no -128
    ):
        _, _, stages = compiled(tower(1, read), target)
        graph = stages["tiled"].text
        known = graph.types[graph.by_name["fc1"].inputs[0]]
        op = graph.by_name["fc1"].op
        assert isinstance(op, CrossbarMvm)
        assert (int(known.lo.min()), int(known.hi.max())) == code
        assert op.crossbar.inputs.bits == 8


def test_weights_take_a_bit_more_where_cells_hold_magnitudes() -> None:
    trained = assemble(tower(1, SIGNED, bits=8, lowest=-128), tower(1, SIGNED), PcmePoly(QUADRATIC))
    for target, bits in (("isaac-rram-128", 8), ("dcim-22nm-tsmc", 8), ("hermes-pcm-14nm", 9)):
        settings = Configuration.of(target, None, {}).settings
        assert trained_bits(trained, settings)["text.fc1"] == {
            "weight_bits": bits, "activation_bits": 8,
        }  # fmt: skip
    magnitudes = Configuration.of("dcim-22nm-tsmc", None, {"encoding": "sign-magnitude"}).settings
    assert trained_bits(trained, magnitudes)["text.fc1"]["weight_bits"] == 9


def test_trained_integers_are_refused_where_weights_share_exponents() -> None:
    towers = tower(1, SIGNED)
    with pytest.raises(CimError, match=r'"mxint": text\.fc1 has trained integers, which are kept'):
        compiled(towers, "dcim-28nm-isscc22", encoding="mxint", weight_bits=4)
    compiled(towers, "dcim-28nm-isscc22", encoding="sign-magnitude", weight_bits=4)


def test_a_bit_too_many_is_refused() -> None:
    wide = tower(1, SIGNED, bits=16, lowest=-(2**15))
    with pytest.raises(
        CimError,
        match=r"^text\.fc1: its weights minus their zero point need 17 "
        r"bi",
    ):
        compiled(wide, "hermes-pcm-14nm")


def test_bits_of_the_file_hold_unless_fewer_are_asked_for() -> None:
    trained = assemble(*[tower(1, SIGNED)] * 2, PcmePoly(QUADRATIC))

    def bits(**options: object) -> int:
        build = Configuration.of("isaac-rram-128", None, options)
        return with_trained_bits(build, trained).of_layer("video.mu").weight_bits

    assert bits() == bits(weight_bits=6) == 4
    with pytest.raises(
        CimError, match=r"^settings: weight_bits = 3: text\.fc1 has trained integer"
    ):
        bits(weight_bits=3)
    with pytest.raises(CimError, match=r"activation_bits = 2: video\.mu has trained integers of 4"):
        bits(layers={"video.mu": {"activation_bits": 2}})


def test_the_note_names_layers_and_bits() -> None:
    trained = assemble(tower(1, SIGNED), tower(1, None), PcmePoly(QUADRATIC))
    settings = Configuration.of("isaac-rram-128", None, {}).settings
    (note,) = trained_bits_notes(trained, settings)
    assert note.startswith("6 layers keep their trained integers, which rounding, equalisation and")
    assert "text.fc1 (4 x 8), text.mu (4 x 4)" in note
    assert "video.fc1 (4), video.mu (4 x 4)" in note


def test_constants_behind_codes_are_finer_than_codes() -> None:
    """A norm's offset and a limit that are no whole codes: what is stored behind is exact."""
    rng, builder = np.random.default_rng(3), TowerBuilder(WIDTH)
    codes = replace(UNSIGNED, lo=-8, hi=7)
    h = builder.add("fc1", layer(rng, WIDTH, HIDDEN), builder.add("x_stored", SIGNED, "x"))
    h = builder.add("h_stored", codes, h)
    gamma, var = rng.uniform(0.5, 1.5, (2, HIDDEN))
    norm = BatchNorm(gamma, rng.normal(size=HIDDEN), rng.normal(size=HIDDEN), var, 1e-5)
    h = builder.add("norm", norm, builder.add("limited", Clip(scalar(-0.4), scalar(0.7)), h))
    h = builder.add("n_stored", replace(UNSIGNED, bits=8, scale=0.011, lo=-128, hi=127), h)
    mu, logvar = (builder.add(name, layer(rng, HIDDEN, D), h) for name in ("mu", "logvar"))
    _, job, stages = compiled(builder.tower(mu, logvar))
    graph = stages["quantized"].text
    found = Runner(graph).values({"x": job.rows("text")}, ["h_stored", "n_stored"])
    real = norm.run(np.clip(found["h_stored"] * 0.15, -0.4, 0.7))
    wanted = np.clip(round_half_up(real / 0.011), -128, 127)
    np.testing.assert_array_equal(found["n_stored"], wanted)
    assert np.ptp(wanted) > 50
