"""The sources of a model: constants where both forms have them, and what is refused by name."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_tools import STRICT, c_compiler, differing
from random_heads import c_differing

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.c.model import CModel, c_model
from cimtool.handoff.stimuli import chosen_layers
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import Head, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.integer import Quantize
from cimtool.ir.program import Builder, Program
from cimtool.loading.embeddings import read_embeddings
from cimtool.passes.pipeline import compile_program
from cimtool.simulation.simulator import Simulator
from tests.kits.small_models import QUADRATIC, small_models

SAME = r"""
#include "weights.h"
#include <stdio.h>
int main(void) {
    return fwrite(&model_weights, 1, sizeof model_weights, stdout) != sizeof model_weights;
}
"""


GALLERY = r"""
#include "model.c"
#include <stdio.h>
static int64_t weights[MODEL_WEIGHTS_BYTES / 8 + 1];
int main(void) {
    static text_code x[ROWS * TEXT_WIDTH];
    static text_item text[ROWS];
    FILE *file = fopen("weights.bin", "rb"), *codes = fopen("codes.bin", "rb");
    if (fread(weights, 1, MODEL_WEIGHTS_BYTES, file) != MODEL_WEIGHTS_BYTES ||
        fread(x, sizeof *x, ROWS * TEXT_WIDTH, codes) != ROWS * TEXT_WIDTH)
        return 1;
    text_encode(weights, x, text, ROWS);
    for (int i = 0; i < ROWS; i++) {
        static model_gallery scores[MODEL_GALLERY];
        gallery_scores(weights, &text[i], scores);
        for (int j = 0; j < MODEL_GALLERY; j++)
            printf("%lld\n", (long long)scores[j]);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(small_bundle: Path) -> Program:
    return read_bundle(small_bundle).program


@pytest.fixture(scope="module")
def model(program: Program) -> CModel:
    return c_model(program, "small")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_constants_in_c_lie_as_those_of_the_file(
    model: CModel, tmp_path: Path, compiler: str
) -> None:
    (tmp_path / "weights.h").write_text(model.weights_header, "utf-8")
    (tmp_path / "same.c").write_text(SAME, "utf-8")
    command = [c_compiler(compiler), *STRICT, "same.c", "-o", "same"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./same"], cwd=tmp_path, check=True, capture_output=True)
    assert len(done.stdout) > 1_000
    assert done.stdout == model.weights


def test_every_value_of_the_program_is_shown_once(program: Program, model: CModel) -> None:
    shown = [one.name for one in model.seen]
    assert len(shown) == len(set(shown))
    left = {
        node.op.name
        for graph in program.graphs
        for node in graph.nodes
        if f"{graph.name}.{node.name}" not in shown
    }
    assert left == {"quantize", "axis", "dequantize"}
    for index in range(len(shown)):
        assert model.source.count(f"CIM_SEE({index}, ") == 1


@pytest.mark.thorough("a shortlist in C; layers in C are in the first tier")
@pytest.mark.parametrize(
    "stored", [{}, {"shortlist_bits": 2, "shortlist_dimensions": 5, "query_bits": 3}]
)
def test_the_distances_of_a_shortlist_are_those_of_the_simulator(
    small_trunk: DemoFiles, tmp_path: Path, stored: dict[str, int]
) -> None:
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="isaac-rram-128", adc_bits=4, score_mapping="hybrid", shortlist=3,
        output=tmp_path / "hybrid",
    )  # fmt: skip
    bundle = api.program(tmp_path / "hybrid", small_trunk.eval, **stored).bundle
    export_bundle(bundle, "handoff", tmp_path / "handoff")
    folder = tmp_path / "handoff" / "c"
    rows = read_embeddings(small_trunk.eval).text
    (op,) = bundle.program.text.operations(Quantize).values()
    op.run(rows).astype(np.int16).tofile(folder / "codes.bin")
    (folder / "gallery.c").write_text(GALLERY, "utf-8")
    command = [c_compiler("gcc"), *STRICT, f"-DROWS={len(rows)}", "gallery.c", "-o", "gallery"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./gallery"], cwd=folder, check=True, capture_output=True, text=True)
    found = np.array(done.stdout.split(), np.int64)
    simulator = Simulator(bundle.program)
    blocks = simulator.iter_distances(simulator.encode("text", rows))
    expected = np.concatenate([distances for _, distances in blocks])
    assert expected.shape == (len(rows), 40)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    assert len(np.unique(found)) > 100
    compared, wrong = differing(tmp_path / "handoff")
    assert (compared > 10_000, wrong) == (True, 0)


def test_inputs_beyond_32_bits_are_refused_by_the_name_of_their_layer(program: Program) -> None:
    text = program.text
    (first, codes), *_ = text.operations(Quantize).items()
    layer, op = next(iter(text.operations(CrossbarMvm).items()))
    builder = Builder("text", text.inputs)
    x = builder.add(first, replace(codes, lo=-(1 << 40), hi=1 << 40), "x")
    wide = replace(op.crossbar, accumulator_bits=62)
    op = replace(op, stored=replace(op.stored, crossbar=wide))
    alone = builder.graph({"mu": builder.add(layer, op, x)})
    expected = rf"text\.{layer}: its inputs reach 1099511627776, beyond 32 bits, which the C model"
    with pytest.raises(CimError, match=expected):
        c_model(replace(program, text=alone), "small")


@pytest.mark.parametrize("head", [PcmePoly(QUADRATIC), Csd(0.1, 0.5)], ids=lambda one: one.name)
def test_a_variance_that_no_row_changes_agrees(head: Head, tmp_path: Path) -> None:
    """It is a constant beside the layers; every layer has one row of inputs and can be handed over.

    So is the variance of linear maps, with which a training on few pairs starts.
    """
    models, towers = small_models(), []
    for seed in (7, 8):
        tower = models.trunk(np.random.default_rng(seed))
        logvar = tower.by_name["logvar"].op
        still = Mvm(np.zeros_like(logvar.weight), logvar.bias - 3)
        towers.append(models.with_ops(tower, logvar=still))
    program = assemble(*towers, head)
    final = compile_program(program, models.job(*models.data), silent)[-1].program
    assert len(chosen_layers(final, "*")) == 6
    compared, differ = c_differing(final, tmp_path / "c")
    assert compared > 1_000
    assert differ == 0
