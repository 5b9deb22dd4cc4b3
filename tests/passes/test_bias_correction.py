"""Corrected biases: the means of layers meet those of real numbers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from small_models import passed

from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Graph
from cimtool.passes.bias_correction import correct_bias, layer_means


def biases(graph: Graph) -> dict[str, list[int]]:
    return {n.name: n.op.bias.tolist() for n in graph.nodes if isinstance(n.op, Mvm)}


def test_correcting_twice_is_correcting_once(models: SimpleNamespace) -> None:
    job = models.job(*models.data, weight_bits=4, bias_correction=False)
    lowered, quantized = passed(models.small, job, "lowered", "quantized")
    plain = quantized.text
    means = layer_means(lowered.text, job.text)
    once = correct_bias(plain, job.text, means)
    twice = correct_bias(once, job.text, means)
    assert biases(once) != biases(plain)
    assert biases(twice) == biases(once)


def test_means_are_real_numbers_whatever_the_units(models: SimpleNamespace) -> None:
    job = models.job(
        *models.data, weight_bits=16, activation_bits=16, input_bits=16, accumulator_bits=48
    )
    stages = passed(models.small, job, "lowered", "quantized")
    wanted, found = (layer_means(program.text, job.text) for program in stages)
    assert wanted.keys() == found.keys() == {"fc1", "fc2", "mu", "logvar"}
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-3)
