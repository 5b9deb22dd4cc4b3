"""The quantized models of this folder, trained and exported anew: `python make.py`, in this folder.

Made once, in an environment of its own (Python 3.11), with torch 2.13.0, brevitas 0.13.4, qonnx
1.0.0, torchao 0.18.0, onnx 1.23.0, onnxoptimizer 0.4.2 and onnxscript 0.7.2. They are tested
without these packages:

* `brevitas-qcdq.onnx` and `brevitas-qonnx.onnx`: one network in both of brevitas' formats.
  Weights of 4 bits with a scale for each output, a batch norm, activations of 4 bits.
* `brevitas-qonnx.npz`: what qonnx's own executor computes of it on `x` [32, 16]: `codes` and
  `hidden`, what the two quantizers of activations give, and `sums`, the first layer's output.
* `torchao-pt2e.onnx`: 8 bits, with zero points, by torchao's PT2E flow and torch's exporter.
"""

import copy
from pathlib import Path

import brevitas.nn as qnn
import numpy as np
import onnx
import torch
from brevitas.export import export_onnx_qcdq, export_qonnx
from brevitas.quant import Int8WeightPerChannelFloat
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_shapes import InferShapes
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)

WIDTH, HIDDEN, D = 16, 12, 8
NAMES = {"input_names": ["x"], "output_names": ["mu", "logvar"]}
FOLDER = Path(__file__).parent


class Plain(nn.Module):
    """The network in real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm = nn.Linear(WIDTH, HIDDEN), nn.BatchNorm1d(HIDDEN)
        self.mu, self.logvar = nn.Linear(HIDDEN, D), nn.Linear(HIDDEN, D)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.norm(self.fc1(x)))
        return self.mu(h), 0.3 * self.logvar(h)


class Quantized(nn.Module):
    """The network with brevitas' quantizers."""

    def __init__(self) -> None:
        super().__init__()
        weights = {"weight_quant": Int8WeightPerChannelFloat, "weight_bit_width": 4}
        self.x = qnn.QuantIdentity(bit_width=8)
        self.fc1, self.norm = qnn.QuantLinear(WIDTH, HIDDEN, **weights), nn.BatchNorm1d(HIDDEN)
        self.act = qnn.QuantReLU(bit_width=4)
        self.mu = qnn.QuantLinear(HIDDEN, D, **weights)
        self.logvar = qnn.QuantLinear(HIDDEN, D, **weights)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.act(self.norm(self.fc1(self.x(x))))
        return self.mu(h), 0.3 * self.logvar(h)


def trained(network: nn.Module) -> nn.Module:
    """The network after 200 steps towards the outputs of one that is drawn."""
    teacher = Plain().eval()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(200):
        x = torch.randn(64, WIDTH)
        pairs = zip(network(x), teacher(x), strict=True)
        loss = sum((own - wanted).square().mean() for own, wanted in pairs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


def brevitas_files() -> None:
    network = trained(Quantized())
    for name, export in (("qcdq", export_onnx_qcdq), ("qonnx", export_qonnx)):
        file = FOLDER / f"brevitas-{name}.onnx"
        rows = {"dynamic_axes": {"x": {0: "n"}}, "dynamo": False}
        export(copy.deepcopy(network), torch.zeros(2, WIDTH), str(file), **NAMES, **rows)
    model = ModelWrapper(str(FOLDER / "brevitas-qonnx.onnx"))
    x = np.random.default_rng(1).normal(size=(32, WIDTH)).astype(np.float32)
    model.set_tensor_shape("x", x.shape)
    model = model.transform(InferShapes())
    values = execute_onnx(model, {"x": x}, return_full_exec_context=True)
    weights = {tensor.name for tensor in model.graph.initializer}
    quantizers = [n for n in model.graph.node if n.op_type == "Quant" and n.input[0] not in weights]
    codes, hidden = (values[node.output[0]] for node in quantizers)
    first = next(node for node in model.graph.node if node.op_type == "Gemm")
    sums = values[first.output[0]]
    np.savez_compressed(FOLDER / "brevitas-qonnx.npz", x=x, codes=codes, hidden=hidden, sums=sums)


def torchao_file() -> None:
    network, x = trained(Plain()), torch.randn(64, WIDTH)
    shapes = {"dynamic_shapes": {"x": {0: torch.export.Dim("n")}}}
    exported = torch.export.export(network, (x,), **shapes).module()
    quantizer = X86InductorQuantizer()
    quantizer.set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported, quantizer)
    prepared(x)
    file = FOLDER / "torchao-pt2e.onnx"
    torch.onnx.export(
        convert_pt2e(prepared), (x,), str(file), **NAMES, **shapes, dynamo=True, external_data=False
    )
    model = onnx.load(file)
    for node in model.graph.node:  # paths of the machine
        del node.metadata_props[:]
    onnx.save(model, file)


if __name__ == "__main__":
    torch.manual_seed(0)
    brevitas_files()
    torchao_file()
