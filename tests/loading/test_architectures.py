"""Architectures as people write them in torch come in as ONNX and compile to the last bit."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cimtool.api as api
from cimtool.emit.onnx import onnx_files
from cimtool.emit.runtime import Session
from cimtool.ir.program import MODALITIES
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator, run_graph

WIDTH, HIDDEN, D, ROWS = 8, 12, 5, 64
TARGETS = ("isaac-rram-128", "hermes-pcm-14nm", "dcim-22nm-tsmc")


class Heads(nn.Module):
    """A body of `HIDDEN` numbers and linear heads for mu and logvar."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body
        self.mu, self.logvar = nn.Linear(HIDDEN, D), nn.Linear(HIDDEN, D)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(x)
        return self.mu(hidden), 0.3 * self.logvar(hidden)


def activated(activation: nn.Module) -> Callable[[], nn.Module]:
    """A layer, an activation, another layer."""
    return lambda: Heads(
        nn.Sequential(nn.Linear(WIDTH, HIDDEN), activation, nn.Linear(HIDDEN, HIDDEN))
    )


class Gated(nn.Module):
    """A gated layer as of Llama: `down(silu(gate(x)) * up(x))`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16)
        self.down = nn.Linear(16, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "gelu": activated(nn.GELU()),
    "gelu by tanh": activated(nn.GELU(approximate="tanh")),
    "silu": activated(nn.SiLU()),
    "softplus": activated(nn.Softplus(beta=2.0)),
    "mish": activated(nn.Mish()),
    "elu": activated(nn.ELU(0.7)),
    "selu": activated(nn.SELU()),
    "hard swish": activated(nn.Hardswish()),
    "log sigmoid": activated(nn.LogSigmoid()),
    "silu-gated": lambda: Heads(Gated()),
}


def built(name: str, seed: int) -> nn.Module:
    """An architecture with weights of a seed; norms away from where they start."""
    torch.manual_seed(seed)
    module = ARCHITECTURES[name]().eval()
    with torch.no_grad():
        for key, array in [*module.named_parameters(), *module.named_buffers()]:
            if "norm" in key and array.is_floating_point():
                array.copy_(torch.rand_like(array) + 0.5)
    return module


def exported(module: nn.Module, file: Path, dynamo: bool) -> Path:
    """The ONNX file of a module by either of torch's exporters."""
    options: dict[str, object] = {"dynamic_axes": {"x": {0: "n"}}}
    if dynamo:
        pytest.importorskip("onnxscript")
        rows = {0: torch.export.Dim("n")}
        options = {"dynamic_shapes": (rows,), "external_data": False, "verbose": False}
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (torch.zeros(2, WIDTH),), str(file), dynamo=dynamo, input_names=["x"],
                output_names=["mu", "logvar"], **options,
            )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return file


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {m: rng.normal(size=(ROWS, WIDTH)).astype(np.float32) for m in MODALITIES}


def outputs(module: nn.Module, x: np.ndarray) -> dict[str, np.ndarray]:
    """Mu and the variance that torch computes in double."""
    with torch.no_grad():
        mu, logvar = module.double()(torch.from_numpy(x).double())
    module.float()
    return {"mu": mu.numpy(), "s": logvar.exp().numpy()}


def require_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Compare within 1e-5 of each value's range."""
    for name, value in wanted.items():
        assert np.abs(found[name] - value).max() <= 1e-5 * np.ptp(value), name


@pytest.mark.parametrize("dynamo", [False, True], ids=["legacy", "newer"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_float_program_is_torchs(
    tmp_path: Path, rows: dict[str, np.ndarray], name: str, dynamo: bool
) -> None:
    module = built(name, 1)
    file = exported(module, tmp_path / "text.onnx", dynamo)
    towers = ModelSource((file, file)).load_projectors().towers
    found = run_graph(towers[0], {"x": rows["text"].astype(np.float64)})
    require_same(found, outputs(module, rows["text"]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_is_compiled_is_the_same_to_the_last_bit(
    tmp_path: Path, rows: dict[str, np.ndarray], name: str, target: str
) -> None:
    modules = [built(name, seed) for seed in (1, 2)]
    files = [
        exported(module, tmp_path / f"{modality}.onnx", False)
        for modality, module in zip(MODALITIES, modules, strict=True)
    ]
    options: dict[str, object] = {"calibration": rows, "target": target, "head": "csd"}
    compiled = api.prepare((files[0], files[1]), a=0.3, b=1.0, **options)
    stages = {stage.name: stage.program for stage in compiled.stages}
    final = compiled.stages[-1].program
    written = onnx_files(final, stages["calibrated"])
    simulator, readable = Simulator(final), {"text": final.text, "video": final.video}
    units = {}
    for modality, module in zip(MODALITIES, modules, strict=True):
        own = simulator.encode(modality, rows[modality])
        plain = run_graph(readable[modality], {"x": rows[modality]})
        session = Session(written[f"{modality}.onnx"]).encode(rows[modality])
        for feature, value in own.items():
            np.testing.assert_array_equal(value, plain[feature])
            np.testing.assert_array_equal(value, session[feature])
        units[modality] = own
        trained = Simulator(stages["trained"]).encode(modality, rows[modality])
        require_same({"mu": trained["mu"]}, {"mu": outputs(module, rows[modality])["mu"]})
        lowered = Simulator(stages["lowered"]).encode(modality, rows[modality])["mu"]
        folded = Simulator(stages["folded"]).encode(modality, rows[modality])["mu"]
        assert np.abs(lowered - folded).max() <= 1e-3 * np.ptp(folded)
    score = Session(written["score.onnx"]).score(units["text"], units["video"])
    np.testing.assert_array_equal(score, simulator.score(units["text"], units["video"]))
    plain = Session(written["float.onnx"]).run(rows)["logit"]
    trained = Simulator(stages["trained"]).scores(rows["text"], rows["video"])
    np.testing.assert_allclose(plain, trained, rtol=1e-5, atol=1e-5 * np.ptp(trained))
