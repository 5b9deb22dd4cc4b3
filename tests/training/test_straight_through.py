from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.ir.arithmetic import SumOfMaxima
from cimtool.ir.backends import STRAIGHT_THROUGH
from cimtool.ir.program import Graph, Node
from cimtool.simulation.simulator import Simulator
from cimtool.training.fine_tune import layer_tensors
from cimtool.training.straight_through import (
    Compiler,
    GraphPlan,
    Site,
    StoredFormat,
    column_integers,
    forward,
    round_ste,
)


def test_halves_go_up_or_to_even_and_the_derivative_is_one() -> None:
    x = torch.tensor([-1.5, -0.5, 0.5, 1.2], requires_grad=True)
    assert round_ste(x).tolist() == [-1.0, 0.0, 1.0, 1.0]
    assert round_ste(x, half_even=True).tolist() == [-2.0, -0.0, 0.0, 1.0]
    round_ste(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 4


def test_a_stored_value_is_a_multiple_of_its_scale_and_clipped_ones_have_no_gradient() -> None:
    x = torch.tensor([[0.6, -3.0], [9.0, 1.4]], requires_grad=True)
    kept = StoredFormat(0, 15, torch.tensor([0.5, 1.0]), half_even=False)(x)
    assert kept.tolist() == [[0.5, 0.0], [7.5, 1.0]]
    kept.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_largest_weight_of_each_output_is_the_largest_integer() -> None:
    weights = torch.tensor([[0.7, -1.4, 0.3], [0.0, 0.0, 0.0]])
    whole, unit = column_integers(weights, 7)
    assert torch.allclose(unit[:, 0], torch.tensor([0.2, 1 / 7]))
    assert whole.tolist() == [[4.0, -7.0, 2.0], [0.0, 0.0, 0.0]]


def test_maxima_of_pairs_are_those_of_arrays() -> None:
    op, x = SumOfMaxima(2, 3), np.random.default_rng(0).normal(size=(8, 15))
    site = Site(Node("maxima", op, ("x",)), GraphPlan(Graph("score", {}, (), {}), {}, {}), {}, None)
    found = STRAIGHT_THROUGH.of(op)(op, site, torch.from_numpy(x))
    np.testing.assert_array_equal(found.numpy(), op.run(x))


@pytest.mark.parametrize(("model", "most"), [("small_trunk", 0.05), ("small_two_branch", 0.1)])
def test_it_computes_what_the_compiled_program_computes(
    model: str, most: float, compiler_of: Callable[..., Compiler], request: pytest.FixtureRequest
) -> None:
    """It is off by at most so much of what compiling errs, of which two-branch models err little.

    Their rows go past the layers in 16 bits.
    """
    files: DemoFiles = request.getfixturevalue(model)
    compiler = compiler_of(files)
    graphs = {"text": compiler.program.text, "video": compiler.program.video}
    parameters = {name: layer_tensors(graph) for name, graph in graphs.items()}
    compiled = compiler.compile(parameters)
    simulator = Simulator(compiled.program)
    features, logits = {}, []
    with np.load(files.eval) as rows:
        for modality in graphs:
            x = rows[modality]
            found = forward(
                compiled.plans[modality], {"x": torch.from_numpy(x)}, parameters[modality]
            )
            exact = simulator.encode(modality, x)
            graph = getattr(compiled.program, modality)
            unit = float(graph.types[graph.outputs["mu"]].unit)
            steps = found["mu"].detach().numpy() / unit - exact["mu"]
            # A sum on an edge of rounding may fall on the other side in float32.
            assert np.mean(np.abs(steps) > 0.5) < 0.02
            features |= {f"{modality}.{name}": value for name, value in found.items()}
        for program in (compiled.program, compiler.program):
            logits.append(Simulator(program).scores(rows["text"], rows["video"]))
    ours = forward(compiled.plans["score"], features, {})["logit"].detach().numpy()
    off = np.sqrt(np.square(ours - logits[0]).mean())
    assert off < most * np.sqrt(np.square(logits[1] - logits[0]).mean())


def test_all_layers_get_gradients(
    small_two_branch: DemoFiles, compiler_of: Callable[..., Compiler]
) -> None:
    compiler = compiler_of(small_two_branch)
    parameters = {m: layer_tensors(getattr(compiler.program, m)) for m in ("text", "video")}
    compiled = compiler.compile(parameters)
    features = {}
    with np.load(small_two_branch.eval) as rows:
        for modality, own in parameters.items():
            x = torch.from_numpy(rows[modality])
            found = forward(compiled.plans[modality], {"x": x}, own)
            features |= {f"{modality}.{name}": value for name, value in found.items()}
    forward(compiled.plans["score"], features, {})["logit"].square().mean().backward()
    for own in parameters.values():
        for weight, bias in own.values():
            assert weight.grad is not None
            assert bias.grad is not None
            assert weight.grad.abs().sum() > 0


def test_weights_that_share_exponents_are_not_trained(
    small_trunk: DemoFiles, compiler_of: Callable[..., Compiler]
) -> None:
    compiler = compiler_of(small_trunk, target="dcim-28nm-isscc22", encoding="mxfp")
    parameters = {m: layer_tensors(getattr(compiler.program, m)) for m in ("text", "video")}
    with pytest.raises(CimError, match='encoding = "mxfp": training rounds weights to one unit'):
        compiler.compile(parameters)
