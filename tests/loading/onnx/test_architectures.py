"""Architectures as people write them in torch come in as ONNX and compile to the last bit."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn
from torch._export import utils as export_utils
from torch._export.utils import _materialize_cpp_cia_ops
from torch.onnx._internal.exporter._registration import ONNXRegistry

import cimtool.api as api
from cimtool.base.errors import CimError
from cimtool.bundle.compilation import Compilation
from cimtool.bundle.serial import Constants, ConstantTable, program_text, read_program
from cimtool.costs.estimate import ScoredQuery, estimate
from cimtool.emit.onnx import onnx_files
from cimtool.handoff.c.model import c_model
from cimtool.handoff.stimuli import chosen_layers
from cimtool.hardware.configuration import Configuration
from cimtool.ir.program import MODALITIES
from cimtool.loading.onnx.graph import read_onnx_graph
from cimtool.loading.onnx.towers import translate
from cimtool.loading.source import ModelSource
from cimtool.simulation.simulator import Simulator
from tests.kits.agreement import require_one_result, require_same

WIDTH, HIDDEN, D, ROWS, TOKENS = 8, 12, 12, 64, 8
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


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    """`x + f(norm(x))`, as a block of a transformer has it."""

    def __init__(self, norm: nn.Module, inner: nn.Module):
        super().__init__()
        self.norm, self.inner = norm, inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Gated(nn.Module):
    """A gated layer as of Llama: `down(silu(gate(x)) * up(x))`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16)
        self.down = nn.Linear(16, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class RmsByHand(nn.Module):
    """An RMS norm as models before torch 2.4 wrote it."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class ClipProjection(nn.Module):
    """CLIP's: a matrix, unit rows, and the logit scale that is stored as a logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_post = nn.LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.randn(WIDTH, D))
        self.logit_scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.ln_post(x) @ self.proj
        return rows / rows.norm(dim=-1, keepdim=True) * self.logit_scale.exp().sqrt()


class PcmeHead(nn.Module):
    """PCME's: mu and log-variance are a layer plus a gated one, then a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.gate = nn.Linear(WIDTH, D), nn.Linear(WIDTH, D)
        self.layer_norm = nn.LayerNorm(D)
        self.logvar_fc, self.logvar_gate = nn.Linear(WIDTH, D), nn.Linear(WIDTH, D)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mu = self.layer_norm(self.fc(x) + torch.sigmoid(self.gate(x)))
        logvar = self.logvar_fc(x) * torch.sigmoid(self.logvar_gate(x))
        return nn.functional.normalize(mu, dim=-1), logvar


class Encoder(nn.Module):
    """A block of a transformer over TOKENS tokens of a row, then the mean of these."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.positions = nn.Parameter(torch.randn(TOKENS, HIDDEN))
        self.before, self.between = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, 3, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(HIDDEN, 16), nn.GELU(), nn.Linear(16, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(-1, TOKENS, WIDTH)) + self.positions
        normed = self.before(tokens)
        tokens = tokens + self.attention(normed, normed, normed)[0]
        return (tokens + self.inner(self.between(tokens))).mean(1)


class Attended(nn.Module):
    """Attention by torch's function, or by hand, of one head; all tokens go into the layer behind.

    Or their first alone does.
    """

    def __init__(self, by_hand: bool):
        super().__init__()
        self.by_hand = by_hand
        self.query, self.key, self.value = (nn.Linear(WIDTH, HIDDEN) for _ in range(3))
        self.out = nn.Linear(HIDDEN if by_hand else TOKENS * HIDDEN, HIDDEN)
        self.register_buffer("bias", torch.linspace(-1, 1, TOKENS**2).view(TOKENS, TOKENS))

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.shape[0], TOKENS, WIDTH)
        q, k, v = self.query(x), self.key(x), self.value(x)
        if self.by_hand:
            weights = (q @ k.transpose(-1, -2) / HIDDEN**0.5).softmax(-1)
            return self.out((weights @ v)[:, 0])
        q, k, v = (one.view(-1, TOKENS, 2, HIDDEN // 2).transpose(1, 2) for one in (q, k, v))
        heads = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        return self.out(heads.transpose(1, 2).flatten(1))


class Causal(nn.Module):
    """A block of a transformer that sees tokens before each alone, and torch's own causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.layer = nn.TransformerEncoderLayer(
            HIDDEN, 3, 16, activation="gelu", batch_first=True, norm_first=True
        )
        self.query, self.key = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
        tokens = self.layer(self.embed(x.reshape(-1, TOKENS, WIDTH)), src_mask=mask, is_causal=True)
        by_heads = (
            one.view(-1, TOKENS, 2, HIDDEN // 2).transpose(1, 2)
            for one in (self.query(tokens), self.key(tokens), tokens)
        )
        attended = nn.functional.scaled_dot_product_attention(*by_heads, is_causal=True)
        return attended.transpose(1, 2).reshape(-1, TOKENS, HIDDEN)[:, -1]


class Padded(nn.Module):
    """Attention without its last tokens, by a mask of all items, and by one filled in by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.query, self.value = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN)
        self.register_buffer("padding", torch.arange(TOKENS)[None] >= TOKENS - 2)
        self.register_buffer("future", torch.ones(TOKENS, TOKENS).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(x.shape[0], TOKENS, WIDTH)
        padding = self.padding.expand(x.shape[0], -1)
        tokens = (
            tokens
            + self.attention(
                tokens, tokens, tokens, key_padding_mask=padding, attn_mask=self.future
            )[0]
        )
        scores = self.query(tokens) @ self.value(tokens).transpose(1, 2) / HIDDEN**0.5
        scores = scores + -10000.0 * self.padding[:, None].float()
        scores = scores.masked_fill(self.future, torch.finfo(scores.dtype).min)
        scores = scores - scores.amax(dim=-1, keepdim=True)
        return (scores.softmax(-1) @ self.value(tokens)).mean(1)


class ClassToken(nn.Module):
    """A learned row before the tokens, as of ViT, whose output goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(TOKENS + 1, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.out = nn.Linear(WIDTH, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        tokens = [self.class_token.expand(rows, -1, -1), x.reshape(rows, TOKENS, WIDTH)]
        embedded = torch.cat(tokens, dim=1) + self.positions
        normed = self.norm(embedded)
        return self.out((embedded + self.attention(normed, normed, normed)[0])[:, 0])


class AttentionPool(nn.Module):
    """PCME's: learned queries attend to tokens; their outputs join the mean and the largest.

    Queries go through norms and layers that no item changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, 2, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.after = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(3 * WIDTH, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(x.shape[0], TOKENS, WIDTH)
        queries = self.norm(self.queries.expand(x.shape[0], -1, -1))
        pooled = self.attention(queries, tokens, tokens)[0] + queries
        parts = [self.after(pooled).mean(1), tokens.mean(1), tokens.amax(1)]
        return self.out(torch.cat(parts, dim=-1))


class AnyTokens(nn.Module):
    """Attention in letters over however many tokens a row has."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(HIDDEN))
        self.key, self.value = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(x.shape[0], -1, WIDTH)
        weights = torch.einsum("bld,d->bl", self.key(tokens), self.query).softmax(-1)
        return torch.einsum("bl,bld->bd", weights, self.value(tokens))


class PieNet(nn.Module):
    """PVSE's and PCME's: tokens weighed by their own softmax, beside a layer of their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, 1))
        self.base, self.local = nn.Linear(2 * WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(x.shape[0], TOKENS, WIDTH)
        weights = self.attention(tokens).transpose(1, 2).softmax(-1)
        local = torch.sigmoid(self.local((weights @ tokens).squeeze(1)))
        whole = torch.cat([tokens.mean(1), tokens.sum(1)], dim=-1)
        return self.norm(self.base(whole) + local)


class Ordered(nn.Module):
    """PCME++'s: each channel's numbers weighed by their order; and the mean of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.shares = nn.Parameter(torch.randn(TOKENS, 1))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(x.shape[0], TOKENS, WIDTH))
        ordered = tokens.sort(dim=1, descending=True).values
        pooled = (ordered * self.shares.softmax(0)).sum(1)
        return pooled + tokens.topk(3, dim=1).values.mean(1) - tokens.topk(1, 1, False).values[:, 0]


class Spread(nn.Module):
    """Standard deviations of tokens, and their generalised mean (GeM)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.power = nn.Parameter(torch.tensor(2.7))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(x.shape[0], TOKENS, WIDTH))
        mean = tokens.clamp(min=0.8).pow(self.power).mean(1).pow(1 / self.power)
        return mean + tokens.std(1)


def behind_a_layer(*inner: nn.Module) -> Callable[[], nn.Module]:
    """A layer, modules of `HIDDEN` numbers, another layer, heads."""
    layers = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
    return lambda: Heads(copy.deepcopy(nn.Sequential(layers[0], *inner, layers[1])))


def batch_normed() -> nn.Module:
    blocks: list[nn.Module] = []
    for width in (WIDTH, HIDDEN, HIDDEN):
        blocks += [nn.Linear(width, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Dropout()]
    return Heads(nn.Sequential(*blocks))


def convolved() -> nn.Module:
    layers = nn.Conv1d(WIDTH, HIDDEN, 1), nn.BatchNorm1d(HIDDEN), nn.GELU(), nn.Flatten()
    return Heads(nn.Sequential(Applied(lambda x: x.unsqueeze(-1)), *layers))


def residual() -> nn.Module:
    inner = nn.Sequential(nn.Linear(HIDDEN, 16), nn.GELU(), nn.Linear(16, HIDDEN))
    return Heads(nn.Sequential(nn.Linear(WIDTH, HIDDEN), Residual(nn.LayerNorm(HIDDEN), inner)))


def rms_normed() -> nn.Module:
    inner = nn.Sequential(nn.Linear(HIDDEN, 16), nn.SiLU(), nn.Linear(16, HIDDEN))
    return Heads(nn.Sequential(nn.Linear(WIDTH, HIDDEN), Residual(RmsByHand(), inner)))


def dense() -> nn.Module:
    """A head of sentence-transformers: Dense with tanh, then Normalize."""
    unit = Applied(lambda rows: nn.functional.normalize(rows, p=2, dim=1))
    return nn.Sequential(nn.Linear(WIDTH, D), nn.Tanh(), unit)


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "layer norm, gelu, residual": residual,
    "silu-gated": lambda: Heads(Gated()),
    "three of batch norm and relu": batch_normed,
    "rms norm": rms_normed,
    "clip projection": ClipProjection,
    "dense, tanh, normalise": dense,
    "pcme head": PcmeHead,
    "convolution of width 1": convolved,
    "glu": lambda: Heads(nn.Sequential(nn.Linear(WIDTH, 2 * HIDDEN), nn.GLU(dim=-1))),
    "group norm": behind_a_layer(nn.GroupNorm(1, HIDDEN), nn.Mish()),
    "group norm of three groups": behind_a_layer(nn.GroupNorm(3, HIDDEN), nn.ReLU()),
    "multi-head attention over 8 tokens": lambda: Heads(Encoder()),
    "causal attention": lambda: Heads(Causal()),
    "attention with a class token": lambda: Heads(ClassToken()),
    "attention pooling by learned queries": lambda: Heads(AttentionPool()),
    "attention beside means and sums of tokens": lambda: Heads(PieNet()),
}
"""Those that are compiled for all of TARGETS."""

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "attention by torch's function": lambda: Heads(Attended(by_hand=False)),
    "attention by hand": lambda: Heads(Attended(by_hand=True)),
    "attention without padding": lambda: Heads(Padded()),
    "attention of any number of tokens": lambda: Heads(AnyTokens()),
    "spread in place of attention": lambda: Heads(Spread()),
    "norm from a limit on": behind_a_layer(
        Applied(lambda x: nn.functional.normalize(x, dim=-1, eps=3.0))
    ),
    "order in place of attention": lambda: Heads(Ordered()),
    "a blend of two values": behind_a_layer(
        Applied(lambda x: torch.lerp(x, x.relu(), torch.tensor(0.8)))
    ),
    "smallest numbers and sums of magnitudes": behind_a_layer(
        Applied(lambda x: x - x.amin(-1, keepdim=True) + nn.functional.normalize(x, p=1, dim=-1))
    ),
    "group norm of pairs": behind_a_layer(nn.GroupNorm(6, HIDDEN)),
    "weight norm": lambda: Heads(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, HIDDEN))),
    "spectral norm": lambda: Heads(
        nn.Sequential(nn.utils.spectral_norm(nn.Linear(WIDTH, HIDDEN)), nn.Tanh())
    ),
    "gelu": behind_a_layer(nn.GELU()),
    "gelu by tanh": behind_a_layer(nn.GELU(approximate="tanh")),
    "silu": behind_a_layer(nn.SiLU()),
    "mish far below 0": behind_a_layer(
        Applied(lambda x: nn.functional.mish(1.3 * x - torch.full((HIDDEN,), 6.7)))
    ),
    "softplus": behind_a_layer(nn.Softplus(beta=2.0)),
    "mish": behind_a_layer(nn.Mish()),
    "elu": behind_a_layer(nn.ELU(0.7)),
    "selu": behind_a_layer(nn.SELU()),
    "celu": behind_a_layer(nn.CELU(0.7)),
    "prelu": behind_a_layer(nn.PReLU(HIDDEN)),
    "hard swish": behind_a_layer(nn.Hardswish()),
    "log sigmoid": behind_a_layer(nn.LogSigmoid()),
    "softsign": behind_a_layer(nn.Softsign()),
    "quick gelu": behind_a_layer(Applied(lambda x: x * torch.sigmoid(1.702 * x))),
}
"""Those that are compiled for one target."""

OLDER = {"attention by torch's function": 14, "causal attention": 14}
"""The operator set for which torch writes GELU and layer norms by their parts; 13 of others."""


def built(name: str, seed: int) -> nn.Module:
    """An architecture with weights of a seed; norms away from where they start."""
    torch.manual_seed(seed)
    module = (ARCHITECTURES | ACTIVATIONS)[name]().eval()
    with torch.no_grad():
        for key, array in [*module.named_parameters(), *module.named_buffers()]:
            if not array.is_floating_point():
                continue
            if array.ndim == 1 and "logit" not in key:
                array.copy_(torch.rand_like(array) + 0.5)
            elif array.ndim > 1:
                array.copy_(torch.randn_like(array) / np.sqrt(array.shape[-1]))
    return module


def rows_of(name: str) -> dict[str, np.ndarray]:
    """Rows of both modalities for an architecture."""
    width = TOKENS * WIDTH if "attention" in name else WIDTH
    rng = np.random.default_rng(5)
    return {m: rng.normal(size=(ROWS, width)).astype(np.float32) for m in MODALITIES}


def output_names(module: nn.Module, rows: np.ndarray) -> list[str]:
    """Names for the outputs of a module."""
    return ["mu", "logvar"] if len(outputs(module, rows[:2])) > 1 else ["mu"]


def score_of(module: nn.Module, rows: np.ndarray) -> dict[str, Any]:
    """The options of a score for a module: of distances where it has a variance, else a cosine."""
    if len(output_names(module, rows)) == 1:
        return {"head": "cosine"}
    return {"head": "csd", "a": 0.3, "b": 1.0}


@cache
def exported(folder: Path, name: str, seed: int, exporter: str) -> Path:
    """The ONNX file of an architecture by one of torch's exporters, written once."""
    module, rows = built(name, seed), rows_of(name)["text"][:2]
    file = folder / f"{len(list(folder.iterdir()))}.onnx"
    options: dict[str, object] = {"dynamic_axes": {"x": {0: "n"}}}
    if exporter == "older operators":
        options["opset_version"] = OLDER.get(name, 13)
    if exporter == "newer":
        pytest.importorskip("onnxscript")
        items = {0: torch.export.Dim("n")}
        options = {"dynamic_shapes": (items,), "external_data": False, "verbose": False}
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (torch.from_numpy(rows),), str(file), dynamo=exporter == "newer",
                input_names=["x"], output_names=output_names(module, rows), **options,
            )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return file


@pytest.fixture(scope="module", autouse=True)
def one_registry() -> Iterator[None]:
    """Torch's exporter reads all operators of its library for each file; here it does so once.

    No test registers an operator of its own, for which torch looks through them each time.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(export_utils, "_materialize_cpp_cia_ops", cache(_materialize_cpp_cia_ops))
        once = staticmethod(cache(ONNXRegistry.from_torchlib))
        patched.setattr(ONNXRegistry, "from_torchlib", once)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def outputs(module: nn.Module, x: np.ndarray) -> dict[str, np.ndarray]:
    """Mu and, where there is one, the variance that torch computes in double."""
    with torch.no_grad():
        found = module.double()(torch.from_numpy(x).double())
    module.float()
    if isinstance(found, Tensor):
        return {"mu": found.numpy()}
    return {"mu": found[0].numpy(), "s": found[1].exp().numpy()}


@pytest.mark.thorough(
    "every architecture; the first ones are in the first tier",
    quick=("legacy", "layer norm, gelu, residual-newer"),
)
@pytest.mark.parametrize("exporter", ["legacy", "older operators", "newer"])
@pytest.mark.parametrize("name", ARCHITECTURES | ACTIVATIONS)
def test_the_float_program_is_torchs(folder: Path, name: str, exporter: str) -> None:
    module, rows = built(name, 1), rows_of(name)
    tower = translate(read_onnx_graph(exported(folder, name, 1, exporter)))
    found = tower.run({"x": rows["text"].astype(np.float64)})
    require_same(found, outputs(module, rows["text"]))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_modules_come_in_without_a_file(name: str) -> None:
    modules, rows = (built(name, 1), built(name, 2)), rows_of(name)
    model = ModelSource(modules, **score_of(modules[0], rows["text"])).load()
    for module, tower, x in zip(modules, model.towers, rows.values(), strict=True):
        require_same(tower.run({"x": x.astype(np.float64)}), outputs(module, x))


COMPILED = [(name, target) for name in ARCHITECTURES for target in TARGETS]
COMPILED += [(name, TARGETS[0]) for name in ACTIVATIONS]


@pytest.mark.thorough(
    "every architecture; two are in the first tier",
    quick=(
        "layer norm, gelu, residual-isaac",
        "three of batch norm and relu-dcim",
    ),
)
@pytest.mark.parametrize(("name", "target"), COMPILED)
def test_what_is_compiled_is_the_same_to_the_last_bit(folder: Path, name: str, target: str) -> None:
    modules, rows = [built(name, seed) for seed in (1, 2)], rows_of(name)
    files = [exported(folder, name, seed, "legacy") for seed in (1, 2)]
    score = score_of(modules[0], rows["text"])
    compiled = api.prepare(
        (files[0], files[1]), calibration=rows, drift="given", target=target, **score
    )
    stages = {stage.name: stage.program for stage in compiled.stages}
    for program in stages.values():
        table = ConstantTable()
        text = program_text(program, table)
        assert (
            program_text(read_program(text, Constants(table.arrays), "p"), ConstantTable()) == text
        )
    require_one_result(compiled, rows)
    for modality, module in zip(MODALITIES, modules, strict=True):
        trained = Simulator(stages["trained"]).encode(modality, rows[modality])
        mu = outputs(module, rows[modality])["mu"]
        if compiled.model.head.name == "cosine":
            mu /= np.linalg.norm(mu, axis=1, keepdims=True)
        require_same({"mu": trained["mu"]}, {"mu": mu})
        lowered = Simulator(stages["lowered"]).encode(modality, rows[modality])["mu"]
        folded = Simulator(stages["folded"]).encode(modality, rows[modality])["mu"]
        assert np.abs(lowered - folded).max() <= 1e-3 * np.ptp(folded)


ATTENTION = "multi-head attention over 8 tokens"


@pytest.fixture(scope="module")
def attention(folder: Path) -> Compilation:
    """The architecture of this name compiled for one target."""
    files = [exported(folder, ATTENTION, seed, "legacy") for seed in (1, 2)]
    return api.prepare(
        (files[0], files[1]),
        calibration=rows_of(ATTENTION),
        drift="given",
        target=TARGETS[0],
        head="csd",
        a=0.3,
        b=1.0,
    )


def test_attention_is_the_same_in_all_backends_whatever_the_block(attention: Compilation) -> None:
    rows, final = rows_of(ATTENTION)["text"][:5], attention.stages[-1].program
    calibrated = next(one.program for one in attention.stages if one.name == "calibrated")
    wanted = Simulator(final).encode("text", rows)
    model = onnx.load_from_string(onnx_files(final, calibrated)["text.onnx"])
    names = [port.name for port in model.graph.output]
    evaluated = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: rows})
    others = [Simulator(final, device="cpu").encode("text", rows)]
    others += [dict(zip(names, evaluated, strict=True))]
    for found in others:
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value)
    alone = [Simulator(final).encode("text", rows[i : i + 1]) for i in range(len(rows))]
    for name, value in wanted.items():
        np.testing.assert_array_equal(np.concatenate([one[name] for one in alone]), value)


def test_attention_keeps_its_scores(attention: Compilation) -> None:
    rows, stages = rows_of(ATTENTION), {one.name: one.program for one in attention.stages}
    scores = [
        Simulator(stages[name]).scores(rows["text"], rows["video"])
        for name in ("trained", "converters fitted")
    ]
    rmse = np.sqrt(np.square(scores[1] - scores[0]).mean())
    assert rmse < 0.06 * scores[0].std()


def test_attention_is_told_and_counted(attention: Compilation) -> None:
    notes = "\n".join(attention.notes)
    (driven,) = (note for note in attention.notes if "driven 8 times per item" in note)
    assert {"text.attention,", "video.attention,"} <= set(driven.split())
    assert notes.count("a product of two activations, 768 multiply-adds per item") == 4
    assert re.search(r"softmax of 8 numbers: exp on .* worst error .* worst relative error", notes)
    final = attention.stages[-1].program
    cost = estimate(
        final, Configuration(attention.target, attention.settings), ScoredQuery(D, samples=10)
    )
    layers = {
        "embed": WIDTH * HIDDEN,
        "attention": 3 * HIDDEN**2,
        "body_attention_out_proj": HIDDEN**2,
    }
    layers |= {"inner_0": 16 * HIDDEN, "inner_2": 16 * HIDDEN}
    assert cost.text.macs == TOKENS * sum(layers.values()) + 2 * HIDDEN * D
    assert {cost.products[f"text.{layer}"] for layer in layers} == {TOKENS}
    assert cost.products["text.mu"] == 1


def test_what_takes_one_row_of_an_item_refuses_tokens(attention: Compilation) -> None:
    final = attention.stages[-1].program
    with pytest.raises(
        CimError, match=r"^text\.x_arranged: an item has several rows \(tokens, .*\), which"
    ):
        chosen_layers(final, "*")
    with pytest.raises(CimError, match=r"^text\.x_arranged: expected the input as one row$"):
        c_model(final, "model")
