"""Quantizers of ONNX files: integers, scales and limits as the file has them, or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper

from cimtool.base.errors import CimError
from cimtool.ir.program import Graph
from cimtool.ir.quantized import QuantizedMvm, QuantizedStore
from cimtool.loading.onnx import constants as onnx_constants
from cimtool.loading.onnx.graph import describe_onnx, read_onnx_graph
from cimtool.loading.onnx.towers import translate

WIDTH, HIDDEN, D = 6, 5, 4
WriteOnnx = Callable[..., Path]
QONNX, MICROSOFT = "qonnx.custom_op.general", "com.microsoft"
node = helper.make_node

X = [
    node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
    node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
]
HEADS = [node("MatMul", ["h", "Wm"], ["mu"]), node("MatMul", ["h", "Wl"], ["logvar"])]


def weights() -> dict[str, np.ndarray]:
    """Integers of several kinds [WIDTH, HIDDEN], scales, zero points, and heads."""
    rng = np.random.default_rng(4)
    codes = rng.integers(-7, 8, (WIDTH, HIDDEN))
    rows = {"Wm": (HIDDEN, D), "Wl": (HIDDEN, D)}
    found = {name: rng.normal(size=shape).astype(np.float32) for name, shape in rows.items()}
    found["Wl"] *= np.float32(0.02)
    kinds = {"i8": np.int8, "i16": np.int16, "i4": ml_dtypes.int4}
    found |= {name: codes.astype(kind) for name, kind in kinds.items()}
    found |= {"u8": (codes + 100).astype(np.uint8), "z100": np.array(100, np.uint8)}
    found |= {"i8T": np.ascontiguousarray(found["i8"].T), "kernel": found["i8"].T[..., None]}
    found |= {"real": (codes * 0.0123).astype(np.float32), "ws": np.float32(0.0123)}
    found |= {
        "wsN": rng.uniform(0.01, 0.02, HIDDEN).astype(np.float32),
        "zN": np.zeros(HIDDEN, np.int8),
    }
    found |= {"b": rng.integers(-90, 90, HIDDEN).astype(np.int32), "bs": np.float32(0.02 * 0.0123)}
    found |= {"s": np.float32(0.02), "z": np.array(131, np.uint8), "z8": np.array(0, np.int8)}
    found |= {
        "z16": np.array(-3, np.int16),
        "lo": np.array(-4, np.int8),
        "hi": np.array(3, np.int8),
    }
    found |= {"last": np.array([-1])}
    return {name: np.asarray(array) for name, array in found.items()}


def layer(codes: str, scale: str = "ws", zero: str = "", **axis: int) -> list[NodeProto]:
    """A layer `h` on `xd`, of weights that are dequantized."""
    dequantized = node("DequantizeLinear", [codes, scale, *([zero] if zero else [])], ["w"], **axis)
    return [dequantized, node("MatMul", ["xd", "w"], ["h"])]


GRAPHS: dict[str, list[NodeProto]] = {
    "one scale": [*X, *layer("i8")],
    "a scale an output": [*X, *layer("i8", "wsN", "zN", axis=1)],
    "a scale an output, turned": [
        *X, node("DequantizeLinear", ["i8T", "wsN"], ["w"], axis=-2),
        node("Gemm", ["xd", "w"], ["h"], transB=1, alpha=0.5),
    ],
    "a transpose": [
        *X, node("DequantizeLinear", ["i8T", "wsN"], ["t"], axis=0),
        node("Transpose", ["t"], ["w"], perm=[1, 0]), node("MatMul", ["xd", "w"], ["h"]),
    ],
    "zero point of weights": [*X, *layer("u8", "ws", "z100")],
    "16 bits": [*X, *layer("i16")],
    "4 bits": [*X, *layer("i4")],
    "quantized in the file": [*X, node("QuantizeLinear", ["real", "ws", "z8"], ["q"]), *layer("q")],
    "QCDQ": [
        node("QuantizeLinear", ["x", "s", "z8"], ["xq"]), node("Clip", ["xq", "lo", "hi"], ["xc"]),
        node("DequantizeLinear", ["xc", "s", "z8"], ["xd"]),
        node("Clip", ["i8", "lo", "hi"], ["c"]), *layer("c"),
    ],
    "16 bits of the input": [
        node("QuantizeLinear", ["x", "s", "z16"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z16"], ["xd"]), *layer("i8"),
    ],
    "domain of onnxruntime": [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"], domain=MICROSOFT),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"], domain=MICROSOFT), *layer("i8"),
    ],
    "without a zero point": [
        node("QuantizeLinear", ["x", "s"], ["xq"]), node("DequantizeLinear", ["xq", "s"], ["xd"]),
        *layer("i8"),
    ],
    "bias of 32 bits": [
        *X, node("DequantizeLinear", ["i8", "ws"], ["w"]),
        node("DequantizeLinear", ["b", "bs"], ["bias"]), node("Gemm", ["xd", "w", "bias"], ["h"]),
    ],
    "convolution": [
        *X, node("DequantizeLinear", ["kernel", "wsN"], ["w"], axis=0),
        node("Unsqueeze", ["xd", "last"], ["u"]), node("Conv", ["u", "w"], ["k"]),
        node("Squeeze", ["k", "last"], ["h"]),
    ],
    "dequantized twice": [
        *X, node("DequantizeLinear", ["xq", "s", "z"], ["xe"]),
        *layer("i8")[:-1], node("MatMul", ["xe", "w"], ["a"]), node("MatMul", ["xd", "w"], ["c"]),
        node("Add", ["a", "c"], ["h"]),
    ],
}  # fmt: skip


def program(file: Path) -> Graph:
    return translate(read_onnx_graph(file))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_quantized_graph_computes_what_onnx_runtime_does(
    write_onnx: WriteOnnx, name: str
) -> None:
    held = weights()
    graph = program(file := write_onnx([*GRAPHS[name], *HEADS], held, opset=21))
    x = np.random.default_rng(1).normal(size=(40, WIDTH)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(file), options)
    mu, _ = session.run(["mu", "logvar"], {"x": x})
    np.testing.assert_allclose(graph.run({"x": x})["mu"], mu, rtol=1e-5, atol=1e-6)
    (store,) = graph.operations(QuantizedStore).values()
    assert (store.role, store.scale) == ("input", float(np.float32(0.02)))
    wanted = held["i8"].astype(int).clip(*((-4, 3) if name == "QCDQ" else (-7, 7)))
    for op in graph.operations(QuantizedMvm).values():
        np.testing.assert_array_equal(op.codes, wanted)
    assert graph.operations(QuantizedMvm)


def test_limits_are_those_of_the_codes_less_their_zero_point(write_onnx: WriteOnnx) -> None:
    wanted = {"one scale": (-131, 124, 8), "QCDQ": (-4, 3, 3)}
    wanted["16 bits of the input"] = (-32765, 32770, 16)
    for name, ends in wanted.items():
        graph = program(write_onnx([*GRAPHS[name], *HEADS], weights(), opset=21))
        (store,) = graph.operations(QuantizedStore).values()
        assert (store.lo, store.hi, store.bits) == ends


def test_channels_of_a_quantized_layer_keep_their_integers(write_onnx: WriteOnnx) -> None:
    split = node("Split", ["h0"], ["first", "rest"], axis=1)
    stored = [
        node("QuantizeLinear", ["h0", "s", "z8"], ["hq"]),
        node("DequantizeLinear", ["hq", "s", "z8"], ["hd"]),
        node("Split", ["hd"], ["h", "rest"], axis=1),
    ]
    held = weights() | {"sizes": np.array([3, 2])}
    held |= {name: held[name][:3] for name in ("Wm", "Wl")}
    for nodes in ([split, node("Identity", ["first"], ["h"])], stored):
        for one in nodes:
            if one.op_type == "Split" and len(one.input) == 1:
                one.input.append("sizes")
        chain = layer("i8", "wsN", axis=1)
        chain[-1].output[0] = "h0"
        (op,) = (
            program(write_onnx([*X, *chain, *nodes, *HEADS], held))
            .operations(QuantizedMvm)
            .values()
        )
        np.testing.assert_array_equal(op.codes, weights()["i8"])
        np.testing.assert_array_equal(op.weight_scale, weights()["wsN"])


def quant(
    x: str, bits: str, out: str, scale: str = "s", zero: str = "zero", **how: object
) -> NodeProto:
    how = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"} | how
    return node("Quant", [x, scale, zero, bits], [out], domain=QONNX, **how)


def qonnx_weights() -> dict[str, np.ndarray]:
    found = weights()
    numbers = {
        "zero": 0,
        "four": 4,
        "eight": 8,
        "one": 1,
        "none": 0,
        "many": 33,
        "half": 2.5,
        "far": 99,
    }
    found |= {name: np.array(number, np.float32) for name, number in numbers.items()}
    found["ws1N"], found["ws1"] = found["wsN"][None], found["ws"].reshape(1)
    return found


def test_weights_of_qonnx_are_rounded_as_it_does(write_onnx: WriteOnnx) -> None:
    held = qonnx_weights()
    rng = np.random.default_rng(8)
    held["real"] = rng.normal(size=(WIDTH, HIDDEN)).astype(np.float32) / 12
    for narrow, least in ((1, -7), (0, -8)):
        made = quant("real", "four", "w", "ws1N", narrow=narrow)
        nodes = [quant("x", "eight", "xd"), made, node("MatMul", ["xd", "w"], ["h"])]
        (op,) = program(write_onnx([*nodes, *HEADS], held)).operations(QuantizedMvm).values()
        np.testing.assert_array_equal(
            op.codes, np.rint((held["real"] / held["wsN"]).clip(least, 7)).astype(int)
        )
        assert op.weight_bits == 4
        np.testing.assert_array_equal(op.weight_scale, held["wsN"])


def test_zero_points_of_qonnx_may_be_those_of_channels(write_onnx: WriteOnnx) -> None:
    held, rng = qonnx_weights(), np.random.default_rng(8)
    held["real"] = rng.normal(size=(WIDTH, HIDDEN)).astype(np.float32) / 12
    held["zeros"] = np.arange(HIDDEN, dtype=np.float32)[None] + 5
    made = quant("real", "four", "w", "ws1N", "zeros", signed=0)
    nodes = [quant("x", "eight", "xd"), made, node("MatMul", ["xd", "w"], ["h"])]
    (op,) = program(write_onnx([*nodes, *HEADS], held)).operations(QuantizedMvm).values()
    steps = np.rint((held["real"] / held["wsN"] + held["zeros"]).clip(0, 15))
    np.testing.assert_array_equal(op.codes, steps - held["zeros"])


def test_a_zero_point_of_qonnx_moves_the_limits_behind_a_layer(write_onnx: WriteOnnx) -> None:
    held = qonnx_weights() | {"step": np.float32(0.25), "shift": np.float32(6)}
    nodes = [quant("x", "eight", "xd"), quant("real", "four", "w", "ws")]
    nodes += [
        node("MatMul", ["xd", "w"], ["g"]),
        quant("g", "four", "h", "step", "shift", signed=0),
    ]
    graph = program(write_onnx([*nodes, *HEADS], held))
    _, store = graph.operations(QuantizedStore).values()
    assert (store.role, store.scale, store.lo, store.hi) == ("activation", 0.25, -6, 9)


@pytest.mark.parametrize("shape", [(HIDDEN,), (1, HIDDEN)])
def test_a_bias_of_qonnx_may_have_32_bits(write_onnx: WriteOnnx, shape: tuple[int, ...]) -> None:
    held = qonnx_weights()
    held |= {"real": held["ws"] * np.ones((WIDTH, HIDDEN), np.float32)}
    offset = np.linspace(-3, 3, HIDDEN, dtype=np.float32)
    held |= {"offset": offset.reshape(shape), "wide": np.float32(32)}
    held |= {"fine": np.float32(2**-20)}
    nodes = [quant("x", "eight", "xd"), quant("real", "four", "w", "ws")]
    nodes += [quant("offset", "wide", "bq", "fine"), node("Gemm", ["xd", "w", "bq"], ["h"])]
    (op,) = program(write_onnx([*nodes, *HEADS], held)).operations(QuantizedMvm).values()
    np.testing.assert_array_equal(op.bias, np.rint(offset * 2.0**20) / 2**20)


@pytest.mark.parametrize(
    "signs",
    [node("BipolarQuant", ["real", "ws"], ["w"], domain=QONNX), quant("real", "one", "w", "ws")],
    ids=["bipolar", "1 bit"],
)
def test_weights_of_one_bit_are_signs(write_onnx: WriteOnnx, signs: NodeProto) -> None:
    nodes = [quant("x", "four", "xd"), signs, node("MatMul", ["xd", "w"], ["h"])]
    graph = program(write_onnx([*nodes, *HEADS], qonnx_weights()))
    (op,) = graph.operations(QuantizedMvm).values()
    np.testing.assert_array_equal(op.codes, np.where(qonnx_weights()["real"] >= 0, 1, -1))
    (store,) = graph.operations(QuantizedStore).values()
    assert (store.lo, store.hi, store.bits) == (-8, 7, 4)


MATMUL = node("MatMul", ["xd", "w"], ["h"])
DEQUANTIZED = node("DequantizeLinear", ["i8", "ws"], ["w"])

REFUSED: dict[str, tuple[list[NodeProto], str]] = {
    "scale 0": ([*X, *layer("i8", "bad0")], r"bad0 holds 0\.0; expected scales of at least 1\.18e"),
    "scale NaN": ([*X, *layer("i8", "badnan")], r"badnan holds nan; expected scales of at least"),
    "negative scale": ([*X, *layer("i8", "minus")], r"minus holds -1\.0; expected scales of at"),
    "infinite scale": ([*X, *layer("i8", "badinf")], r"badinf holds inf; expected scales of at"),
    "scale of half": (
        [*X, *layer("i8", "halfs")], r"halfs is of type float16; expected a scale of float"
    ),
    "scale from the input": (
        [node("Relu", ["x"], ["r"]), node("QuantizeLinear", ["x", "r", "z"], ["q"], "q")],
        r"q \(QuantizeLinear\): its input r is computed; expected a constant",
    ),
    "per axis on activations": (
        [node("QuantizeLinear", ["x", "six", "z6"], ["xq"], "q", axis=1)],
        r"q \(QuantizeLinear\): has a scale for each of 6 channels of what depends on the input",
    ),
    "scale an input": (
        [*X, *layer("i8", "six", axis=0)],
        r"its weights have a scale for each input; expected one, or one for each output",
    ),
    "scales of another extent": (
        [*X, *layer("i8", "six", axis=1)],
        r"has scales \[6\] along axis 1 of \[6, 5\]; expected one in all, or one for each place",
    ),
    "zero points of another extent": (
        [*X, *layer("i8", "wsN", "z8", axis=1)], r"has 5 scales and 1 zero points; expected equal "
                                                 r"numbers"
    ),
    "zero point of another type": (
        [*X, *layer("i8", "ws", "z")], r"z is of another type than i8; expected the same"
    ),
    "other scale": (
        [X[0], node("DequantizeLinear", ["xq", "ws", "z"], ["xd"]), *layer("i8")],
        r"has another scale or zero point than the quantizer of its input; expected the same",
    ),
    "blocks": (
        [*X, node("DequantizeLinear", ["i8", "six1"], ["w"], "d", axis=1, block_size=5), MATMUL],
        r"d \(DequantizeLinear\): has a scale for each 5 numbers \(block_size\); expected one",
    ),
    "float8": (
        [node("QuantizeLinear", ["x", "s", "z8f"], ["q"], "q")],
        r"q \(QuantizeLinear\): its codes are of type float8_e4m3fn; expected integers of 2, 4, 8",
    ),
    "float8 by its number": (
        [node("QuantizeLinear", ["x", "s"], ["q"], "q", output_dtype=TensorProto.FLOAT8E5M2)],
        r"its codes are of type float8e5m2; expected integers",
    ),
    "32 bits": (
        [*X, *layer("i32")], r"\(MatMul\): its weights are of 32 bits; expected at most 16"
    ),
    "real weights dequantized": (
        [*X, *layer("Wm")], r"Wm is of type float32; expected integers of 2, 4, 8 or 16 bits"
    ),
    "not quantized": (
        [node("DequantizeLinear", ["x", "s", "z"], ["xd"], "d"), *layer("i8")],
        r"d \(DequantizeLinear\): its input x is not a quantizer's; expected codes",
    ),
    "codes used": (
        [X[0], node("Relu", ["xq"], ["h"], "r")],
        r"r \(Relu\): its input xq is codes of a quantizer; expected rows of numbers: "
        r"DequantizeLinear right behind the quantizer, .*before a runtime optimises it",
    ),
    "narrow limits": (
        [X[0], node("Clip", ["xq", "z", "z"], ["xc"], "c")],
        r"c \(Clip\): limits codes to 131 \.\. 131; expected two codes at least",
    ),
    "two quantizers": (
        [*X, node("QuantizeLinear", ["x", "ws", "z"], ["q"]),
         node("DequantizeLinear", ["q", "ws", "z"], ["y"]), DEQUANTIZED,
         node("MatMul", ["xd", "w"], ["a"]), node("MatMul", ["y", "w"], ["c"]),
         node("Add", ["a", "c"], ["h"])],
        r"the input is read through different quantizers, .*x_stored and x_stored\.2\); expect",
    ),
    "dynamic": (
        [node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], "q")],
        r"q \(DynamicQuantizeLinear\): computes its scale from each row; expected constant scales",
    ),
    "integer operators": (
        [X[0], node("MatMulInteger", ["xq", "i8"], ["h"], "m")],
        r"m \(MatMulInteger\): uses integer operators; expected QuantizeLinear and",
    ),
    "bits 0": ([quant("x", "none", "h")], r"its bit width is 0; expected 1 to 16"),
    "bits 33": ([quant("x", "many", "h")], r"its bit width is 33; expected 1 to 16"),
    "bits 2.5": ([quant("x", "half", "h")], r"its bit width is 2\.5; expected a whole number"),
    "bits computed": ([quant("x", "x", "h")], r"its input x is computed; expected a constant"),
    "rounding": (
        [quant("x", "four", "h", rounding_mode="FLOOR")],
        r"rounding_mode is FLOOR; expected ROUND, halves to even",
    ),
    "zero point of QONNX": (
        [quant("x", "four", "h", zero="one")],
        r"its zero point is 1, which QONNX adds before it rounds; expected 0 for the input, or",
    ),
    "bits of a bias": (
        [quant("x", "eight", "xd"), quant("ws1", "many", "h")],
        r"its bit width is 33; expected 1 to 32",
    ),
    "zero points of other channels": (
        [quant("x", "eight", "xd"), quant("real", "four", "w", "ws", "six"), MATMUL],
        r"has zero points \[6\] for \[6, 5\]; expected one in all, or one along an axis",
    ),
    "zero point beyond": (
        [quant("x", "four", "xd"), quant("real", "four", "w", "ws", "far"), MATMUL],
        r"its zero point is 99; expected -8 to 7",
    ),
    "zero point of signs": (
        [quant("x", "four", "xd"), quant("real", "one", "w", "ws", "below"), MATMUL],
        r"its zero point is -1, which QONNX adds before it takes signs; expected 0 for 1 bit",
    ),
    "scale of QONNX": (
        [quant("x", "four", "xd"), quant("real", "four", "w", "six"), MATMUL],
        r"has scales \[6\] for \[6, 5\]; expected one in all, or one along an axis",
    ),
    "NaN among weights": (
        [quant("x", "four", "xd"), quant("nans", "four", "w", "ws"), MATMUL],
        r"nans holds nan; expected finite weights",
    ),
    "weights beyond float32": (
        [*X, *layer("i8", "vast")], r"w holds -?inf; expected finite weights"
    ),
    "attribute of another type": (
        [quant("x", "four", "h", signed="yes")], r"signed is b'yes'; expected a whole number"
    ),
    "rounding of another type": (
        [quant("x", "four", "h", rounding_mode=3)], r"rounding_mode is 3; expected ROUND"
    ),
    "order of axes": (
        [*X, node("DequantizeLinear", ["i8T", "ws"], ["t"]),
         node("Transpose", ["t"], ["w"], perm=[0, 0]), MATMUL],
        r"perm is \[0, 0\]; expected each of 2 axes once",
    ),
    "limits that are no numbers": (
        [X[0], node("Clip", ["xq", "nanz", "nanz"], ["xc"], "c")],
        r"c \(Clip\): limits codes to nan \.\. nan; expected two codes",
    ),
    "inputs missing": (
        [node("Quant", ["x"], ["h"], "q", domain=QONNX)], r"q \(Quant\): its input 4 is not there"
    ),
    "signs": ([quant("x", "one", "h")], r"makes signs of what depends on the input; expected 2"),
    "one code": ([quant("x", "one", "h", signed=0, narrow=1)], r"leaves one code; expected two"),
    "bipolar": (
        [node("BipolarQuant", ["x", "s"], ["h"], domain=QONNX)],
        r"makes signs of what depends on the input; expected weights, or 2 bits at least",
    ),
    "trunc": (
        [node("Trunc", ["x"] * 5, ["h"], "t", domain=QONNX)],
        r"t \(Trunc\): truncates bits; expected Quant",
    ),
    "operator of the domain": (
        [node("MultiThreshold", ["x", "s"], ["h"], "m", domain=QONNX)],
        rf"m \(MultiThreshold\): is of domain {QONNX} and not known here; expected",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_plain_quantizer_is_refused_in_one_sentence(
    write_onnx: WriteOnnx, what: str
) -> None:
    nodes, sentence = REFUSED[what]
    held = qonnx_weights() | {
        "bad0": np.float32(0), "badnan": np.float32(np.nan), "minus": np.float32(-1),
        "badinf": np.float32(np.inf), "halfs": np.float16(0.1),
        "nans": np.full((WIDTH, HIDDEN), np.nan, np.float32), "vast": np.float32(2e38),
        "nanz": np.float32(np.nan), "i32": weights()["i8"].astype(np.int32),
        "six": np.full(6, 0.1, np.float32), "z6": np.zeros(6, np.uint8),
        "below": np.float32(-1),
        "six1": np.full((6, 1), 0.1, np.float32), "z8f": np.array(0, ml_dtypes.float8_e4m3fn),
    }  # fmt: skip
    held = {name: np.asarray(array) for name, array in held.items()}
    if nodes[-1].output[0] not in ("h", "w"):
        nodes = [*nodes, node("DequantizeLinear", [nodes[-1].output[0], "s"], ["xd"]), *layer("i8")]
    file = write_onnx([*nodes, *HEADS], held, opset=21)
    with pytest.raises(CimError, match=sentence) as caught:
        program(file)
    assert str(file) in str(caught.value)


def test_constants_that_are_quantized_again_and_again_have_a_budget(
    write_onnx: WriteOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_constants, "LARGEST_RESULTS", 1000)
    held = weights() | {f"s{k}": np.array(0.01 * (k + 1), np.float32) for k in range(60)}
    many: list[NodeProto] = []
    for k in range(60):
        many += [
            node("DequantizeLinear", ["i8", f"s{k}"], [f"w{k}"], f"d{k}"),
            node("MatMul", ["xd", f"w{k}"], [f"y{k}"]),
        ]
        if k:
            many.append(node("Add", [f"y{k}", "h0" if k == 1 else f"h{k - 1}"], [f"h{k}"]))
    many[1].output[0], many[-1].output[0] = "h0", "h"
    file = write_onnx([*X, *many, *HEADS], held)
    with pytest.raises(CimError, match=r"d\d+ \(DequantizeLinear\): computes a constant of 240 b"):
        program(file)


def test_inspect_tells_how_a_graph_is_quantized(write_onnx: WriteOnnx) -> None:
    described = {
        "QDQ: layers keep their trained integers": [*X, *layer("i8")],
        "QONNX: layers keep their trained integers": [quant("x", "four", "h")],
        "as integer operators: is not compiled": [X[0], node("MatMulInteger", ["xq", "i8"], ["h"])],
    }
    for says, nodes in described.items():
        assert describe_onnx(write_onnx([*nodes, *HEADS], qonnx_weights()))["quantized"] == says
    plain = [node("MatMul", ["x", "real"], ["h"]), *HEADS]
    assert "quantized" not in describe_onnx(write_onnx(plain, qonnx_weights()))
