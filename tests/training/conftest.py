"""Start of fine-tuning: a 4-bit build of a small model, ready to be compiled again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cimtool.base.progress import silent
from cimtool.demo.data import DemoFiles
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.loading.embeddings import read_data
from cimtool.loading.source import ModelSource
from cimtool.passes.base import Job
from cimtool.simulation.die_program import Conditions
from cimtool.training.straight_through import Compiler

BITS = {"weight_bits": 4, "input_bits": 4, "activation_bits": 4}


def make_compiler(
    files: DemoFiles,
    conditions: Conditions | None = None,
    target: str = "isaac-rram-128",
    **flags: object,
) -> Compiler:
    """The compiler of a small model for 4 bits on a target."""
    settings = resolve(load_target(target), None, BITS | flags)
    poly = files.poly if files.poly.exists() else None
    model = ModelSource(files.projectors, poly).load()
    data = read_data(files.calibration, model)
    return Compiler(model.program, Job(settings, data.text, data.video, silent), conditions)


@pytest.fixture
def compiler_of() -> Callable[..., Compiler]:
    """`make_compiler`, for tests to choose the model and the noise."""
    return make_compiler
