"""Every operator computes what ONNX Runtime does; what is not supported is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Graph
from cimtool.ir.source import Exp, L2Normalize, LayerNorm, Reciprocal, RmsNorm, Softmax
from cimtool.loading.onnx.graph import read_onnx_graph
from cimtool.loading.onnx.rules.quantized import QUANTIZERS
from cimtool.loading.onnx.towers import translate
from cimtool.loading.onnx.translation import RULES

WIDTH, HIDDEN, D = 6, 5, 4
WriteOnnx = Callable[..., Path]
Weights = dict[str, np.ndarray]
node = helper.make_node


PLACES = {
    "each": [1, HIDDEN], "group": [0, 1, -1], "spread": [-1, HIDDEN, 1], "first": [1],
    "zero": [0], "one": [1], "start": [-HIDDEN], "end": [2**62], "places": [0, 2, 4, 6, 8],
}  # fmt: skip
"""Numbers that shape operators take."""


def rng_weights() -> Weights:
    """A matrix and a few vectors by name, and the heads `Wm`, `Wl` on values of HIDDEN numbers."""
    rng = np.random.default_rng(4)
    shapes = {"W": (WIDTH, HIDDEN), "b": (HIDDEN,), "c": (HIDDEN,), "Wm": (HIDDEN, D),
              "Wl": (HIDDEN, D)}  # fmt: skip
    found = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found["Wl"] *= np.float32(0.02)
    found["row"] = found["b"].reshape(1, HIDDEN)
    found["WT"] = np.ascontiguousarray(found["W"].T)
    found["variance"] = rng.uniform(0.5, 2, HIDDEN).astype(np.float32)
    found |= {"low": np.float32(-0.3), "high": np.float32(0.4), "tiny": np.float32(1e-12)}
    found |= {name: np.array(own) for name, own in PLACES.items()}
    found |= {"kernel": found["WT"][..., None], "lone": np.ones(1, np.float32)}
    found |= {"double": rng.normal(size=(WIDTH, 2 * HIDDEN)).astype(np.float32)}
    found |= {"twice": rng.normal(size=2 * HIDDEN).astype(np.float32), "root": np.float32(0.5)}
    found |= {"two": np.float32(2), "three": np.float32(3), "twenty": np.float32(20)}
    found |= {"tokens": np.array([-1, HIDDEN, 2]), "flat": np.array([-1, 2 * HIDDEN])}
    found |= {"five": np.array([5]), "one_place": np.array(1), "uneven": np.array([3, 0, 9, 4, 4])}
    found |= {"mixing": found["W"][:2, :2].copy(), "positions": found["WT"][:, :2].copy()}
    found |= {"narrow": found["W"][:HIDDEN, :, None].copy()}
    found |= {"token": found["b"][:2].reshape(1, 1, 2).copy(), "first_place": np.array(0)}
    found |= {"two_places": np.array([2]), "thrice": np.array([1, 3]), "yes": np.array(True)}
    found |= {"by_heads": np.array([-1, 2, 1, 1]), "by_tokens": np.array([-1, HIDDEN, 2, 1])}
    found |= {"each_row": np.array([1, WIDTH, HIDDEN]), "thrice_zero": np.array([0, 1])}
    found |= {"six_ones": np.linspace(0.5, 1, WIDTH).astype(np.float32)}
    found |= {"five_ones": found["b"].reshape(HIDDEN, 1)}
    found |= {"start_at": np.float32(0.5), "stop_at": np.float32(5), "step_by": np.float32(1)}
    found |= {"thrice_one": np.array([3]), "parts": np.array([HIDDEN, 2 * HIDDEN])}
    found |= {"one_place_axis": np.array([1]), "under": np.array([-1, 1, 2])}
    found |= {"four": np.array([-1, 4]), "four_five": found["W"][:4].copy()}
    found |= {"six_of": np.array([6]), "seven": np.array([7])}
    found |= {"shape": np.array([-1, HIDDEN]), "kept": np.array([0, -1]), "last": np.array([-1])}
    found |= {"one_and_all": np.array([1, -1, 2]), "two_to_five": found["W"][:2].copy()}
    found |= {"before": np.array([-HIDDEN - 1]), "square": np.array([-1, 2, 2])}
    return found


def linear() -> NodeProto:
    return node("MatMul", ["x", "W"], ["h0"])


TOKENS = [
    node("Gemm", ["x", "double", "twice"], ["d0"]), node("Reshape", ["d0", "tokens"], ["t"]),
    linear(),
]  # fmt: skip
"""Five tokens of two numbers."""

CHAINS: dict[str, list[NodeProto]] = {
    "gemm": [node("Gemm", ["x", "W", "b"], ["h"])],
    "gemm with factors": [node("Gemm", ["x", "W", "b"], ["h"], alpha=0.5, beta=-2.0)],
    "gemm transposed": [node("Gemm", ["x", "WT", "row"], ["h"], transB=1)],
    "gemm without bias": [node("Gemm", ["x", "W"], ["h"])],
    "matmul and add": [linear(), node("Add", ["b", "h0"], ["h"])],
    "matmul of a transpose": [
        node("Transpose", ["WT"], ["turned"], perm=[1, 0]), node("MatMul", ["x", "turned"], ["h"])
    ],
    "batch norm": [
        linear(), node("BatchNormalization", ["h0", "b", "c", "c", "variance"], ["h"], epsilon=1e-3)
    ],
    "relu": [linear(), node("Relu", ["h0"], ["h"])],
    "leaky relu": [linear(), node("LeakyRelu", ["h0"], ["h"], alpha=0.2)],
    "leaky relu of slope 0": [linear(), node("LeakyRelu", ["h0"], ["h"], alpha=0.0)],
    "tanh": [linear(), node("Tanh", ["h0"], ["h"])],
    "sigmoid": [linear(), node("Sigmoid", ["h0"], ["h"])],
    "clip": [linear(), node("Clip", ["h0", "low", "high"], ["h"])],
    "clip above": [linear(), node("Clip", ["h0", "", "high"], ["h"])],
    "constants": [
        node("Constant", [], ["k"], value_float=0.25), linear(), node("Clip", ["h0", "k"], ["h"])
    ],
    "residual": [
        linear(), node("Relu", ["h0"], ["r"]), node("Add", ["h0", "r"], ["a"]),
        node("Sub", ["a", "h0"], ["h"]),
    ],
    "affine": [
        linear(), node("Mul", ["c", "h0"], ["m"]), node("Sub", ["m", "row"], ["a"]),
        node("Sub", ["high", "a"], ["q"]), node("Div", ["q", "variance"], ["h"]),
    ],
    "norm": [linear(), node("LpNormalization", ["h0"], ["h"], axis=-1, p=2)],
    "layer norm": [
        linear(), node("LayerNormalization", ["h0", "c", "b"], ["h"], axis=-1, epsilon=1e-2)
    ],
    "layer norm without offset": [linear(), node("LayerNormalization", ["h0", "c"], ["h"])],
    "norm of a limited mean square": [
        linear(), node("Mul", ["h0", "h0"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Clip", ["v", "three"], ["k"]), node("Sqrt", ["k"], ["l"]),
        node("Div", ["h0", "l"], ["h"]),
    ],
    "limited part of a norm": [
        linear(), node("ReduceL2", ["h0"], ["l"], axes=[-1]), node("Mul", ["l", "high"], ["p"]),
        node("Clip", ["p", "three"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "norm as torch writes it": [
        linear(), node("ReduceL2", ["h0"], ["l"], axes=[-1], keepdims=1),
        node("Clip", ["l", "tiny"], ["q"]), node("Shape", ["h0"], ["size"]),
        node("Expand", ["q", "size"], ["e"]), node("Div", ["h0", "e"], ["h"]),
    ],
    "nothing": [
        node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        node("Cast", ["d"], ["f"], to=TensorProto.FLOAT), node("Flatten", ["f"], ["g"]),
        node("MatMul", ["g", "W"], ["h0"]), node("Identity", ["h0"], ["i"]),
        node("Dropout", ["i"], ["o"]), node("Reshape", ["o", "shape"], ["p"]),
        node("Reshape", ["p", "kept"], ["h"]),
    ],
}  # fmt: skip

ALONE = {
    "Abs": {}, "Celu": {"alpha": 0.5}, "Elu": {"alpha": 0.7}, "Erf": {}, "Exp": {}, "Gelu": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "HardSwish": {}, "Mish": {}, "Neg": {}, "Selu": {},
    "Softplus": {}, "Softsign": {},
}  # fmt: skip
"""Operators of one input, each with attributes that are not its own defaults where it has any."""

CHAINS |= {
    kind.lower(): [linear(), node(kind, ["h0"], ["h"], **attributes)]
    for kind, attributes in ALONE.items()
}
CHAINS |= {
    "gelu by tanh": [linear(), node("Gelu", ["h0"], ["h"], approximate="tanh")],
    "prelu": [linear(), node("PRelu", ["h0", "c"], ["h"])],
    "silu": [linear(), node("Sigmoid", ["h0"], ["g"]), node("Mul", ["h0", "g"], ["h"])],
    "powers": [
        linear(), node("Pow", ["h0", "two"], ["s"]), node("Pow", ["h0", "three"], ["q"]),
        node("Add", ["s", "q"], ["h"]),
    ],
    "quotients": [
        linear(), node("Exp", ["h0"], ["e"]), node("Add", ["e", "high"], ["p"]),
        node("Div", ["b", "p"], ["i"]), node("Div", ["i", "p"], ["d"]),
        node("Reciprocal", ["p"], ["r"]), node("Log", ["p"], ["l"]), node("Add", ["d", "r"], ["f"]),
        node("Mul", ["f", "l"], ["h"]),
    ],
    "softplus as the newer exporter writes it": [
        linear(), node("Mul", ["h0", "two"], ["m"]), node("Softplus", ["m"], ["p"]),
        node("Div", ["p", "two"], ["d"]), node("Greater", ["m", "twenty"], ["g"]),
        node("Where", ["g", "h0", "d"], ["h"]),
    ],
}  # fmt: skip
CENTRED = [
    linear(), node("ReduceMean", ["h0"], ["m"], axes=[-1]), node("Sub", ["h0", "m"], ["z"]),
]  # fmt: skip

CHAINS |= {
    "rows less their means": [*CENTRED, node("Relu", ["z"], ["h"])],
    "means over the rows that they meet": [
        *CENTRED, node("Shape", ["h0"], ["s"]), node("Expand", ["m", "s"], ["e"]),
        node("Mul", ["e", "h0"], ["h"]),
    ],
    "means of tokens under other tokens": [
        *TOKENS, node("Slice", ["t", "zero", "two_places", "one_place_axis"], ["p"]),
        node("ReduceMean", ["p"], ["m"], axes=[2], keepdims=0),
        node("Reshape", ["m", "under"], ["r"]), node("Sub", ["p", "r"], ["z"]),
        node("Reshape", ["z", "four"], ["f"]), node("MatMul", ["f", "four_five"], ["h"]),
    ],
    "a multiple over its norm": [
        linear(), node("Mul", ["h0", "c"], ["g"]), node("ReduceL2", ["h0"], ["l"], axes=[-1]),
        node("Div", ["g", "l"], ["h"]),
    ],
    "a multiple of centred rows over their norm": [
        *CENTRED, node("Mul", ["z", "c"], ["g"]), node("ReduceL2", ["z"], ["l"], axes=[-1]),
        node("Div", ["g", "l"], ["h"]),
    ],
    "layer norm of two axes": [
        *TOKENS, node("LayerNormalization", ["t", "positions", "positions"], ["n"], axis=1),
        node("ReduceSum", ["n", "last"], ["h"], keepdims=0),
    ],
    "layer norm by parts": [
        linear(), node("ReduceMean", ["h0"], ["m"], axes=[-1]), node("Sub", ["h0", "m"], ["z"]),
        node("Pow", ["z", "two"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Add", ["v", "high"], ["e"]), node("Sqrt", ["e"], ["s"]),
        node("Div", ["z", "s"], ["u"]),
        node("Mul", ["u", "c"], ["g"]), node("Add", ["g", "b"], ["h"]),
    ],
    "layer norm of a variance with d - 1": [
        linear(), node("ReduceMean", ["h0"], ["m"], axes=[-1]),
        node("Expand", ["m", "each"], ["w"]),
        node("Sub", ["h0", "w"], ["z"]), node("Mul", ["z", "z"], ["q"]),
        node("ReduceMean", ["q"], ["v"], axes=[-1]), node("Mul", ["v", "high"], ["f"]),
        node("Add", ["f", "tiny"], ["e"]), node("Sqrt", ["e"], ["s"]),
        node("Reciprocal", ["s"], ["r"]), node("Mul", ["r", "z"], ["h"]),
    ],
    "centred rows over their norm": [
        linear(), node("ReduceMean", ["h0"], ["m"], axes=[-1]), node("Sub", ["h0", "m"], ["z"]),
        node("ReduceL2", ["z"], ["l"], axes=[-1]), node("Div", ["z", "l"], ["h"]),
    ],
    "rms norm by parts": [
        linear(), node("Mul", ["h0", "h0"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Add", ["v", "high"], ["e"]), node("Pow", ["e", "root"], ["s"]),
        node("Div", ["two", "s"], ["r"]), node("Mul", ["h0", "r"], ["h"]),
    ],
    "norm by parts": [
        linear(), node("Pow", ["h0", "two"], ["q"]), node("ReduceSum", ["q", "last"], ["v"]),
        node("Sqrt", ["v"], ["s"]), node("Max", ["s", "tiny"], ["k"]),
        node("Div", ["h0", "k"], ["h"]),
    ],
    "norm of squares from a limit": [
        linear(), node("ReduceSumSquare", ["h0"], ["v"], axes=[-1]),
        node("Max", ["v", "tiny"], ["k"]), node("Sqrt", ["k"], ["s"]),
        node("Div", ["h0", "s"], ["h"]),
    ],
    "norms along another axis": [
        *TOKENS, node("ReduceL2", ["t"], ["l"], axes=[1]), node("Shape", ["t"], ["size"]),
        node("Clip", ["l", "tiny"], ["q"]), node("Expand", ["q", "size"], ["e"]),
        node("Div", ["t", "e"], ["u"]), node("Gather", ["u", "one_place"], ["h"], axis=2),
    ],
    "norms that come to their places": [
        *TOKENS, node("ReduceL2", ["t"], ["l"], axes=[2]),
        node("Squeeze", ["l", "last"], ["s"]),
        node("Reshape", ["s", "spread"], ["k"]), node("Div", ["t", "k"], ["u"]),
        node("Gather", ["u", "one_place"], ["h"], axis=2),
    ],
    "a multiple of one of two equal centred values over their norm": [
        *CENTRED, node("ReduceMean", ["h0"], ["n"], axes=[-1]), node("Sub", ["h0", "n"], ["y"]),
        node("Mul", ["y", "y"], ["q"]), node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Sqrt", ["v"], ["l"]), node("Add", ["l", "tiny"], ["e"]),
        node("Mul", ["z", "c"], ["g"]), node("Mul", ["y", "b"], ["f"]),
        node("Div", ["g", "e"], ["u"]), node("Div", ["f", "e"], ["w"]),
        node("Add", ["u", "w"], ["h"]),
    ],
    "positions behind weights": [
        *TOKENS, node("MatMul", ["t", "mixing"], ["m"]), node("Add", ["m", "positions"], ["a"]),
        node("MatMul", ["a", "mixing"], ["p"]), node("Add", ["p", "five_ones"], ["k"]),
        node("Gather", ["k", "one_place"], ["h"], axis=2),
    ],
    "prototypes of fewer axes": [
        *(linear(), node("Unsqueeze", ["h0", "first"], ["u"])),
        node("Sub", ["u", "W"], ["d"]),
        node("Tanh", ["d"], ["e"]), node("ReduceMax", ["e"], ["h"], axes=[1], keepdims=0),
    ],
    "norm without an axis": [
        linear(), node("ReduceSumSquare", ["h0"], ["v"], axes=[1], keepdims=0),
        node("Div", ["v", "two"], ["f"]), node("Sqrt", ["f"], ["s"]),
        node("Unsqueeze", ["s", "last"], ["k"]), node("Div", ["h0", "k"], ["h"]),
    ],
    "group norm of one group": [
        linear(), node("Reshape", ["h0", "group"], ["g"]),
        node("InstanceNormalization", ["g", "lone", "lone"], ["i"]),
        node("Shape", ["h0"], ["size"]),
        node("Reshape", ["i", "size"], ["h"]),
    ],
    "group norm of five groups": [
        *TOKENS, node("InstanceNormalization", ["t", "b", "c"], ["i"]),
        node("ReduceMean", ["i"], ["h"], axes=[2], keepdims=0),
    ],
    "norms of groups with constants of channels": [
        *TOKENS, node("Reshape", ["t", "flat"], ["f"]),
        node("GroupNormalization", ["f", "twice", "twice"], ["g"], num_groups=5),
        node("Slice", ["g", "zero", "five", "first"], ["h"]),
    ],
    "attention": [
        *TOKENS, node("MatMul", ["t", "mixing"], ["q"]),
        node("Transpose", ["t"], ["k"], perm=[0, 2, 1]), node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["a"]), node("MatMul", ["a", "t"], ["o"]),
        node("ReduceMean", ["o"], ["h"], axes=[-1], keepdims=0),
    ],
    "softmax that torch looks for rows of nothing in": [
        linear(), node("Softmax", ["h0"], ["a"]), node("IsNaN", ["a"], ["n"]),
        node("Where", ["n", "low", "a"], ["h"]),
    ],
    "softmax over tokens": [
        *TOKENS, node("Softmax", ["t"], ["a"], axis=1), node("Mul", ["a", "t"], ["m"]),
        node("ReduceSum", ["m", "last"], ["h"], keepdims=0),
    ],
    "roots and other powers": [
        linear(), node("Abs", ["h0"], ["p"]), node("Add", ["p", "high"], ["q"]),
        node("Sqrt", ["q"], ["r"]), node("Pow", ["q", "high"], ["s"]),
        node("Add", ["r", "s"], ["h"]),
    ],
    "norms beside their rows, and under them": [
        linear(), node("ReduceL2", ["h0"], ["l"], axes=[-1]), node("Div", ["h0", "l"], ["u"]),
        node("ReduceMean", ["h0"], ["m"], axes=[-1]), node("Sub", ["h0", "m"], ["z"]),
        node("Mul", ["z", "z"], ["zz"]), node("ReduceMean", ["zz"], ["v"], axes=[-1]),
        node("Sqrt", ["v"], ["d"]), node("Concat", ["u", "l", "d"], ["j"], axis=-1),
        node("Slice", ["j", "two_places", "seven", "first"], ["h"]),
    ],
    "norms limited by a number that is spread over them": [
        linear(), node("ReduceL2", ["h0"], ["l"], axes=[-1]), node("Shape", ["l"], ["sizes"]),
        node("Expand", ["two", "sizes"], ["twos"]), node("Max", ["l", "twos"], ["q"]),
        node("Expand", ["tiny", "sizes"], ["tinies"]), node("Add", ["tinies", "q"], ["r"]),
        node("Div", ["h0", "r"], ["h"]),
    ],
    "the smallest of tokens": [
        *TOKENS, node("ReduceMin", ["t"], ["m"], axes=[2], keepdims=0),
        node("Add", ["m", "h0"], ["h"]),
    ],
    "the smallest number": [
        linear(), node("ReduceMin", ["h0"], ["m"], axes=[-1]), node("Sub", ["h0", "m"], ["h"]),
    ],
    "sums of magnitudes of tokens": [
        *TOKENS, node("ReduceL1", ["t"], ["m"], axes=[2]), node("Mul", ["t", "m"], ["n"]),
        node("ReduceL1", ["n"], ["h"], axes=[2], keepdims=0),
    ],
    "norms from a lower limit on": [
        linear(), node("ReduceL2", ["h0"], ["l"], axes=[-1]), node("Clip", ["l", "two"], ["q"]),
        node("Div", ["h0", "q"], ["h"]),
    ],
    "squares of norms from a lower limit on, then a factor": [
        linear(), node("ReduceSumSquare", ["h0"], ["s"], axes=[-1]),
        node("Max", ["s", "three"], ["m"]), node("Sqrt", ["m"], ["r"]),
        node("Mul", ["r", "high"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "largest and smallest tokens in order": [
        *TOKENS, node("TopK", ["t", "thrice_one"], ["k", "ki"], axis=1),
        node("TopK", ["t", "two_places"], ["s", "si"], axis=1, largest=0),
        node("Concat", ["k", "s"], ["j"], axis=1),
        node("ReduceMean", ["j"], ["h"], axes=[2], keepdims=0),
    ],
    "numbers of a token": [
        *TOKENS, node("ReduceMean", ["t"], ["m"], axes=[2]), node("Mul", ["t", "m"], ["o"]),
        node("Gather", ["o", "one_place"], ["h"], axis=2),
    ],
    "tokens of another order": [
        *TOKENS, node("Transpose", ["t"], ["k"], perm=[2, 0, 1]),
        node("Transpose", ["k"], ["s"], perm=[1, 0, 2]), node("Reshape", ["s", "flat"], ["f"]),
        node("Gather", ["f", "places"], ["h"], axis=1),
    ],
    "channels of the input": [node("Slice", ["x", "zero", "five", "first"], ["h"])],
    "uneven channels of a norm": [
        node("Gemm", ["x", "double", "twice"], ["d0"]), node("LpNormalization", ["d0"], ["u"]),
        node("Gather", ["u", "uneven"], ["h"], axis=1),
    ],
    "constants of tokens": [
        *TOKENS, node("Add", ["t", "positions"], ["a"]), node("MatMul", ["a", "mixing"], ["m"]),
        node("Reshape", ["m", "flat"], ["f"]), node("Slice", ["f", "zero", "five", "first"], ["h"]),
    ],
    "convolution over several places": [
        *TOKENS, node("Conv", ["t", "narrow"], ["o"]),
        node("ReduceMean", ["o"], ["h"], axes=[2], keepdims=0),
    ],
    "means of another value": [
        linear(), node("ReduceMean", ["x"], ["m"], axes=[-1]), node("Sub", ["h0", "m"], ["h"]),
    ],
    "an axis before the items": [
        linear(), node("Unsqueeze", ["h0", "zero"], ["u"]), node("Relu", ["u"], ["r"]),
        node("Squeeze", ["r", "zero"], ["h"]),
    ],
    "group normalization": [
        linear(), node("Reshape", ["h0", "spread"], ["g"]),
        node("GroupNormalization", ["g", "c", "b"], ["i"], num_groups=1),
        node("Reshape", ["i", "shape"], ["h"]),
    ],
    "convolution": [
        node("Unsqueeze", ["x", "last"], ["u"]), node("Conv", ["u", "kernel", "b"], ["k"]),
        node("Relu", ["k"], ["r"]), node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        node("Squeeze", ["t", "first"], ["h"]),
    ],
    "gated halves": [
        node("Gemm", ["x", "double", "twice"], ["d"]), node("Tanh", ["d"], ["a"]),
        node("Split", ["a"], ["p", "q"], axis=-1),
        node("Slice", ["d", "start", "end", "last"], ["r"]),
        node("Mul", ["p", "q"], ["m"]), node("Gather", ["d", "places"], ["o"], axis=1),
        node("Add", ["m", "r"], ["s"]), node("Add", ["s", "o"], ["h"]),
    ],
    "limits by constants": [
        linear(), node("Max", ["h0", "c", "low"], ["m"]), node("Min", ["high", "m"], ["h"])
    ],
    "computed constants": [
        node("Exp", ["high"], ["e"]), node("Transpose", ["WT"], ["T"], perm=[1, 0]),
        node("MatMul", ["x", "T"], ["h0"]), node("Unsqueeze", ["b", "zero"], ["u"]),
        node("Concat", ["u", "row"], ["p"], axis=0), node("Slice", ["p", "zero", "one"], ["s"]),
        node("Sqrt", ["variance"], ["v"]), node("Mul", ["s", "v"], ["w"]),
        node("Mul", ["h0", "e"], ["g"]), node("Add", ["g", "w"], ["h"]),
    ],
}  # fmt: skip
CHAINS |= {
    "a class token": [
        *TOKENS, node("Shape", ["t"], ["size"]),
        node("Gather", ["size", "first_place"], ["n"]),
        node("Unsqueeze", ["n", "zero"], ["u"]),
        node("Concat", ["u", "one", "two_places"], ["s"], axis=0),
        node("Expand", ["token", "s"], ["e"]), node("Concat", ["t", "e"], ["all"], axis=1),
        node("Relu", ["all"], ["r"]), node("ReduceMax", ["r"], ["m"], axes=[1], keepdims=0),
        node("Tile", ["m", "thrice"], ["w"]),
        node("Slice", ["w", "zero", "five", "first"], ["h"]),
    ],
    "learned queries of two heads": [
        *TOKENS, node("Shape", ["t"], ["size"]), node("Gather", ["size", "zero"], ["u"]),
        node("Concat", ["u", "one", "one"], ["s"], axis=0), node("Tile", ["token", "s"], ["q"]),
        node("MatMul", ["q", "mixing"], ["p"]),
        node("Reshape", ["p", "by_heads"], ["qh"]), node("Reshape", ["t", "by_tokens"], ["th"]),
        node("Transpose", ["th"], ["k"], perm=[0, 2, 3, 1]), node("MatMul", ["qh", "k"], ["a"]),
        node("Reshape", ["a", "flat"], ["f"]),
        node("Slice", ["f", "zero", "five", "first"], ["h"]),
    ],
    "a constant for each item": [
        linear(), node("Shape", ["h0"], ["size"]), node("ConstantOfShape", ["size"], ["z"]),
        node("Exp", ["z"], ["e"]), node("Mul", ["e", "h0"], ["m"]), node("Sub", ["e", "m"], ["h"]),
    ],
    "sums that letters name": [
        *TOKENS, node("Einsum", ["t", "mixing"], ["q"], equation="bld,dk->blk"),
        node("Einsum", ["q", "t"], ["s"], equation="bld,bmd -> bml"),
        node("Einsum", ["s", "b"], ["h"], equation="bml,m->bl"),
    ],
    "weights of each channel, before the value": [
        *TOKENS, node("Einsum", ["positions", "t"], ["q"], equation="lk,bld->bkd"),
        node("Einsum", ["mixing", "q"], ["r"], equation="kd,bkd->bkd"),
        node("MatMul", ["positions", "r"], ["o"]),
        node("ReduceMean", ["o"], ["h"], axes=[2], keepdims=0),
    ],
    "means and largest numbers of places": [
        *TOKENS, node("GlobalAveragePool", ["t"], ["m"]), node("GlobalMaxPool", ["t"], ["l"]),
        node("MaxPool", ["t"], ["w"], kernel_shape=[2]),
        node("AveragePool", ["t"], ["v"], kernel_shape=[2]),
        node("Concat", ["m", "l", "w", "v"], ["all"], axis=2), node("Tanh", ["all"], ["a"]),
        node("ReduceSum", ["a", "last"], ["h"], keepdims=0),
    ],
    "halves in another order": [
        linear(), node("Slice", ["h0", "two_places", "five", "first"], ["p"]),
        node("Slice", ["h0", "zero", "two_places", "first"], ["q"]), node("Neg", ["q"], ["o"]),
        node("Concat", ["p", "o"], ["h"], axis=-1),
    ],
    "a mean over tokens and channels": [
        *TOKENS, node("ReduceMean", ["t"], ["m"], axes=[1, 2]), node("Mul", ["t", "m"], ["o"]),
        node("ReduceMax", ["o"], ["h"], axes=[2], keepdims=0),
    ],
}  # fmt: skip
CONSTANTS: dict[str, list[NodeProto]] = {
    "weight norm": [
        node("ReduceL2", ["W"], ["n"], axes=[0]), node("Div", ["W", "n"], ["d"]),
        node("ReduceSum", ["d", "zero"], ["k"]),
    ],
    "reductions": [
        node("ReduceMean", ["W"], ["k1"], axes=[0]), node("ReduceMax", ["W"], ["k2"], axes=[0]),
        node("ReduceMin", ["W"], ["k3"], axes=[0]), node("ReduceProd", ["W"], ["k4"], axes=[0]),
        node("ReduceL1", ["W"], ["k5"], axes=[0]), node("ReduceSumSquare", ["W"], ["k6"]),
        node("Sum", ["k1", "k2", "k3", "k4", "k5", "k6"], ["k"]),
    ],
    "a causal mask": [
        node("Shape", ["W"], ["s"]), node("Expand", ["high", "s"], ["e"]),
        node("Trilu", ["e", "one_place"], ["u"], upper=0), node("Not", ["yes"], ["no"]),
        node("Greater", ["u", "W"], ["g"]), node("And", ["g", "yes"], ["a"]),
        node("Or", ["a", "no"], ["o"]), node("Where", ["o", "W", "low"], ["w"]),
        node("Clip", ["w", "", "high"], ["c2"]), node("Softmax", ["c2"], ["p"], axis=0),
        node("MatMul", ["c", "WT"], ["m"]), node("MatMul", ["m", "p"], ["k"]),
    ],
    "positions": [
        node("Range", ["start_at", "stop_at", "step_by"], ["r"]), node("Sin", ["r"], ["i"]),
        node("Cos", ["r"], ["o"]), node("Tile", ["i", "thrice_one"], ["t3"]),
        node("Split", ["t3", "parts"], ["p", "q"]), node("Size", ["p"], ["z"]),
        node("Cast", ["z"], ["f"], to=1), node("Mul", ["p", "f"], ["y"]),
        node("Add", ["y", "o"], ["k"]),
    ],
    "activations of constants": [
        node("Erf", ["b"], ["e"]), node("Gelu", ["e"], ["g"]), node("Mish", ["g"], ["m"]),
        node("Gelu", ["m"], ["y"], approximate="tanh"), node("LeakyRelu", ["y"], ["l"], alpha=0.3),
        node("Elu", ["l"], ["u"], alpha=0.7), node("HardSwish", ["u"], ["w"]),
        node("PRelu", ["w", "c"], ["p"]), node("Reshape", ["W", "each_row"], ["r"]),
        node("InstanceNormalization", ["r", "six_ones", "six_ones"], ["i"]),
        node("ReduceSum", ["i", "thrice_zero"], ["s"], keepdims=0), node("Add", ["p", "s"], ["k"]),
    ],
    "a norm of constants": [
        node("LayerNormalization", ["W", "c", "b"], ["n"]),
        node("Gemm", ["row", "W", "low"], ["g"], transB=1, alpha=0.5, beta=2.0),
        node("Flatten", ["g"], ["f"], axis=0), node("MatMul", ["f", "n"], ["k"]),
    ],
    "steps of all axes": [node("Slice", ["twice", "zero", "end", "", "two_places"], ["k"])],
    "a negative extent divided": [
        node("Shape", ["W"], ["s"], start=1), node("Neg", ["s"], ["m"]),
        node("Div", ["m", "two_places"], ["d"]), node("Cast", ["d"], ["k"], to=1),
    ],
    "shapes of an expansion": [
        node("Shape", ["row"], ["s"]),
        node("ConstantOfShape", ["two_places"], ["o"], value=helper.make_tensor("v", 7, [1], [1])),
        node("Equal", ["s", "o"], ["q"]), node("Where", ["q", "o", "s"], ["w"]),
        node("Expand", ["b", "w"], ["k"]),
    ],
}  # fmt: skip
"""Nodes of constants alone, as exporters leave them."""
CHAINS |= {
    name: [*nodes, linear(), node("Add", ["h0", "k"], ["h"])] for name, nodes in CONSTANTS.items()
}
CHAINS |= {
    "the largest of one value": [linear(), node("Max", ["h0"], ["m"]), node("Min", ["m"], ["h"])],
    "a slice backwards from before the numbers": [
        linear(),
        node("Slice", ["h0", "before", "before", "one_place_axis", "last"], ["k"]),
        node("Add", ["h0", "k"], ["h"]),
    ],
    "the one largest in no order": [
        linear(),
        node("TopK", ["h0", "one_place_axis"], ["k", "i"], sorted=0),
        node("Add", ["h0", "k"], ["h"]),
    ],
}
NEWEST = {"Swish", "RMSNormalization"}
"""Operators of newer sets than the runtime that tests use has for certain."""

NEWER = {
    "unequal groups": 21,
    "group normalization": 21,
    "norms of groups with constants of channels": 21,
    "activations of constants": 20,
    "gelu": 20,
    "gelu by tanh": 20,
    "mish": 18,
}
"""Operator sets of chains that the default one lacks an operator of."""


def way(name: str, *nodes: NodeProto) -> GraphProto:
    """One way of an `If`, with an output of this name."""
    out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, [], [out])


UNDER_ONE = [
    linear(), node("Unsqueeze", ["h0", "one"], ["row_of"]), node("Shape", ["row_of"], ["sizes"]),
    node("Gather", ["sizes", "one"], ["size"], axis=0), node("Equal", ["size", "one"], ["is_one"]),
]  # fmt: skip
"""Rows [n, 1, 5], and whether their second axis is of extent 1, as a squeeze of torch asks."""

BY_ITEMS = [*UNDER_ONE, node("Gather", ["sizes", "zero"], ["items"], axis=0)]
TAKEN = helper.make_graph(
    [node("Identity", ["items"], ["taken"])],
    *("taken", [], [helper.make_tensor_value_info("taken", TensorProto.INT64, [1])]),
)

SQUEEZED = way("in_one", node("Squeeze", ["row_of", "one"], ["in_one"]))
KEPT = way("as_it_was", node("Identity", ["row_of"], ["as_it_was"]))
CHAINS["a squeeze of an extent that is 1"] = [
    *UNDER_ONE, node("If", ["is_one"], ["h"], then_branch=SQUEEZED, else_branch=KEPT),
]  # fmt: skip
CHAINS["a squeeze of an extent that is not"] = [
    *UNDER_ONE, node("Not", ["is_one"], ["other"]),
    node("If", ["other"], ["h"], then_branch=KEPT, else_branch=SQUEEZED),
]  # fmt: skip
CHAINS["a branch by a number that is made of an extent"] = [
    *UNDER_ONE, node("Gather", ["sizes", "two_places"], ["five_of"], axis=0),
    node("Sub", ["five_of", "seven"], ["less"]),
    node("Cast", ["less"], ["way"], to=TensorProto.BOOL),
    node("If", ["way"], ["h"], then_branch=SQUEEZED, else_branch=KEPT),
]  # fmt: skip
CHAINS["a choice by an extent that is not as an exporter looks for"] = [
    *UNDER_ONE, node("Equal", ["sizes", "last"], ["open"]),
    node("Where", ["open", "one", "sizes"], ["grown"]),
    node("Expand", ["row_of", "grown"], ["wide"]), node("Squeeze", ["wide", "one"], ["h"]),
]  # fmt: skip

CHAINS["a limit that is spread over the items"] = [
    linear(), node("Shape", ["h0"], ["sizes"]), node("Expand", ["low", "sizes"], ["lows"]),
    node("Max", ["h0", "lows"], ["h"]),
]  # fmt: skip
CHAINS["attention to one token"] = [
    linear(),
    node("Unsqueeze", ["h0", "one"], ["row_of"]),
    node("MatMul", ["t", "two_to_five"], ["queries"]),
    node("Transpose", ["row_of"], ["keys"], perm=[0, 2, 1]),
    node("MatMul", ["queries", "keys"], ["scores"]),
    node("Softmax", ["scores"], ["weights"], axis=-1),
    node("MatMul", ["weights", "row_of"], ["attended"]),
    node("ReduceMean", ["attended"], ["h"], axes=[1], keepdims=0),
]
CHAINS["attention to one token"][:0] = TOKENS[:2]
CHAINS["norms of channels over their mean"] = [
    *TOKENS,
    node("ReduceL2", ["t"], ["norms"], axes=[1]),
    node("ReduceMean", ["norms"], ["mean"], axes=[-1]),
    node("Add", ["mean", "tiny"], ["guarded"]),
    node("Div", ["norms", "guarded"], ["relative"]),
    node("Mul", ["t", "relative"], ["grown"]),
    node("ReduceMean", ["grown"], ["h"], axes=[2], keepdims=0),
]
CHAINS["a batch norm of items as channels"] = [
    *TOKENS,
    node("Shape", ["t"], ["sizes"]),
    node("Gather", ["sizes", "zero"], ["items"]),
    node("Reshape", ["t", "one_and_all"], ["all"]),
    *(node("Tile", [name, "items"], [f"{name}_all"]) for name in ("b", "c", "variance")),
    node("BatchNormalization", ["all", "b_all", "c_all", "c_all", "variance_all"], ["normed"]),
    node("Reshape", ["normed", "tokens"], ["back"]),
    node("ReduceMean", ["back"], ["h"], axes=[2], keepdims=0),
]

NORM = [linear(), node("ReduceL2", ["h0"], ["l"], axes=[-1])]
OTHER_DIVISORS: dict[str, list[NodeProto]] = {
    "norms of another value": [
        linear(), node("ReduceL2", ["x"], ["l"], axes=[-1]), node("Div", ["h0", "l"], ["h"]),
    ],
    "norms up to a limit": [
        *NORM, node("Clip", ["l", "", "high"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "the smaller of norms and a number": [
        *NORM, node("Min", ["l", "high"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "the larger of norms and several numbers": [
        *NORM, node("Max", ["l", "variance"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "norms of centred rows from a limit on": [
        *CENTRED, node("ReduceL2", ["z"], ["l"], axes=[-1]), node("Max", ["l", "high"], ["q"]),
        node("Div", ["z", "q"], ["h"]),
    ],
    "a number added to norms": [
        *NORM, node("Add", ["l", "high"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "a number taken from norms": [
        *NORM, node("Sub", ["three", "l"], ["q"]), node("Div", ["h0", "q"], ["h"]),
    ],
    "rows over the standard deviation, without their mean": [
        *CENTRED, node("ReduceL2", ["z"], ["l"], axes=[-1]), node("Div", ["h0", "l"], ["h"]),
    ],
    "sums of squares": [
        linear(), node("ReduceSumSquare", ["h0"], ["l"], axes=[1]), node("Div", ["h0", "l"], ["h"]),
    ],
    "norms to a power": [
        *NORM, node("Pow", ["l", "high"], ["p"]), node("Div", ["h0", "p"], ["h"]),
    ],
    "norms by constants of channels": [
        linear(), node("ReduceSumSquare", ["h0"], ["l"], axes=[-1]), node("Mul", ["l", "variance"],
        ["m"]), node("Div", ["h0", "m"], ["h"]),
    ],
    **{
        f"norms of tokens over their channels, by {kind}": [
            *(linear(), node("Slice", ["h0", "one", "five", "first"], ["p"])),
            node("Reshape", ["p", "square"], ["t"]),
            node("ReduceSumSquare", ["t"], ["v"], axes=[2], keepdims=0),
            *(node("Sqrt", ["v"], ["s"]), node(kind, ["s", place], ["k"])),
            node("Div", ["t", "k"], ["u"]),
            node("ReduceMax", ["u"], ["m"], axes=[1], keepdims=0),
            node("MatMul", ["m", "two_to_five"], ["h"]),
        ]
        for kind, place in {"Unsqueeze": "first", "Reshape": "under"}.items()
    },
}  # fmt: skip
"""Values over what is not the norms of their own rows."""
CHAINS |= OTHER_DIVISORS
CHAINS["rows times their norms"] = [*NORM, node("Mul", ["h0", "l"], ["h"])]
CHAINS["norms times constants of channels"] = [*NORM, node("Mul", ["l", "b"], ["h"])]

HEADS = [node("MatMul", ["h", "Wm"], ["mu"]), node("MatMul", ["h", "Wl"], ["logvar"])]


def program(file: Path) -> Graph:
    return translate(read_onnx_graph(file))


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_computes_what_onnx_runtime_does(write_onnx: WriteOnnx, chain: str) -> None:
    file = write_onnx([*CHAINS[chain], *HEADS], rng_weights(), opset=NEWER.get(chain, 17))
    x = np.random.default_rng(1).normal(size=(9, WIDTH)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    wanted = dict(zip(("mu", "logvar"), session.run(["mu", "logvar"], {"x": x}), strict=True))
    found = program(file).run({"x": x.astype(np.float64)})
    wanted["s"] = np.exp(wanted.pop("logvar"))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())


OF_OWN_ROWS = (
    "norm as torch writes it",
    "norm of a limited mean square",
    "limited part of a norm",
    "a multiple over its norm",
    "a multiple of centred rows over their norm",
    "layer norm by parts",
    "layer norm of a variance with d - 1",
    "centred rows over their norm",
    "rms norm by parts",
    "norm by parts",
    "norm of squares from a limit",
    "norms along another axis",
    "norms that come to their places",
    "a multiple of one of two equal centred values over their norm",
    "norm without an axis",
)


@pytest.mark.parametrize("chain", [*OF_OWN_ROWS, *OTHER_DIVISORS])
def test_what_divides_its_own_rows_is_one_operation(write_onnx: WriteOnnx, chain: str) -> None:
    found = program(write_onnx([*CHAINS[chain], *HEADS], rng_weights()))
    norms = [one for one in found.nodes if isinstance(one.op, L2Normalize | LayerNorm | RmsNorm)]
    inverses = found.operations(Reciprocal)
    assert (bool(norms), bool(inverses)) == (chain in OF_OWN_ROWS, chain in OTHER_DIVISORS)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "int64", "uint64"])
def test_whole_numbers_of_any_size_become_weights(write_onnx: WriteOnnx, kind: str) -> None:
    whole = np.random.default_rng(3).integers(0, 100, (WIDTH, HIDDEN)).astype(kind)
    nodes = [
        node("Cast", ["whole"], ["real"], to=1), node("Mul", ["real", "low"], ["scaled"]),
        node("MatMul", ["x", "scaled"], ["h"]), *HEADS,
    ]  # fmt: skip
    tower = program(write_onnx(nodes, rng_weights() | {"whole": whole}))
    (found, *_) = tower.operations(Mvm).values()
    np.testing.assert_array_equal(found.weight, whole.astype(np.float32) * np.float32(-0.3))


def test_every_operator_is_in_a_chain() -> None:
    tried = {one.op_type for chain in CHAINS.values() for one in chain}
    assert tried | NEWEST | set(QUANTIZERS) >= set(RULES)  # rules/test_quantized.py has those


def test_a_softmax_over_one_number_leaves_no_queries(write_onnx: WriteOnnx) -> None:
    graph = program(write_onnx([*CHAINS["attention to one token"], *HEADS], rng_weights()))
    assert len(graph.operations(Mvm)) == 3
    assert not graph.operations(Softmax)


def test_a_matmul_and_its_bias_are_one_layer(write_onnx: WriteOnnx) -> None:
    graph = program(write_onnx([*CHAINS["matmul and add"], *HEADS], rng_weights()))
    assert [type(one.op) for one in graph.nodes] == [Mvm, Mvm, Mvm, Exp]
    np.testing.assert_array_equal(graph.nodes[0].op.bias, rng_weights()["b"])  # type: ignore[attr-defined]


def test_layers_have_the_names_of_their_weights(write_onnx: WriteOnnx) -> None:
    weights = rng_weights()
    weights |= {"net.0.weight": weights.pop("W"), "net.0.bias": weights.pop("b")}
    layer = node("Gemm", ["x", "net.0.weight", "net.0.bias"], ["h"], "/net/net.0/Gemm")
    graph = program(write_onnx([layer, *HEADS], weights))
    assert [one.name for one in graph.nodes] == ["net_0", "mu", "logvar", "s"]


ADDED = [linear(), node("Add", ["h0", "k"], ["h"])]
"""A constant `k` that is added."""

OUTER = [
    node("ConstantOfShape", ["column_shape"], ["u"]),
    node("ConstantOfShape", ["row_shape"], ["v"]),
]
"""Two constants whose product is large, or takes long."""

BATCH = ["h0", "b", "c", "c", "variance"]

REFUSED: dict[str, tuple[list[NodeProto], str]] = {
    "operator": (
        [linear(), node("Sin", ["h0"], ["h"], "act")],
        r"act \(Sin\): is periodic, which .*; expected it as a constant, such as position",
    ),
    "domain": (
        [linear(), node("Relu", ["h0"], ["h"], "mine", domain="com.example")],
        r"mine \(Relu\): is of domain com\.example and not known here; expected operators of",
    ),
    "unnamed": ([linear(), node("Sin", ["h0"], ["h"])], r"node 2 \(Sin\): is p"),
    "transA": ([node("Gemm", ["x", "W"], ["h"], "g", transA=1)], r"g \(Gemm\): transA = 1"),
    "shape": (
        [node("MatMul", ["x", "WT"], ["h"], "m")],
        r"m \(MatMul\): its weights have shape \[5, 6\]; expected \[6, any\] \(in, out\)",
    ),
    "gate": (
        [linear(), node("Mul", ["h0", "x"], ["h"], "m")],
        r"m \(Mul\): multiplies rows of 5 and of 6 numbers",
    ),
    "exponent": (
        [linear(), node("Pow", ["h0", "variance"], ["h"], "p")],
        r"p \(Pow\): has 5 exponents; expected one",
    ),
    "comparison": (
        [linear(), node("Greater", ["h0", "b"], ["g"], "g"), node("Where", ["g", "x", "x"], ["h"])],
        r"g \(Greater\): is supported for one number alone",
    ),
    "choice": (
        [
            linear(),
            node("Greater", ["h0", "high"], ["g"]),
            node("Where", ["g", "h0", "h0"], ["h"], "w"),
        ],
        r"w \(Where\): chooses by g, which depends on the input; expected a choice that is",
    ),
    "bias": (
        [node("Gemm", ["x", "W", "wide"], ["h"], "g")],
        r"g \(Gemm\): a constant has shape \[7\]; expected \[5\] or one number",
    ),
    "widths": (
        [linear(), node("Add", ["h0", "x"], ["h"], "a")],
        r"a \(Add\): adds rows of 5 and of 6 numbers",
    ),
    "zero": (
        [linear(), node("Div", ["h0", "nothing"], ["h"], "d")],
        r"d \(Div\): nothing holds 0; expected numbers to divide by",
    ),
    "not finite": (
        [node("Gemm", ["x", "W", "bad"], ["h"], "g")],
        r"g \(Gemm\): bad holds nan; expected finite weights",
    ),
    "variance": (
        [linear(), node("BatchNormalization", ["h0", "b", "c", "c", "negative"], ["h"], "bn")],
        r"bn \(BatchNormalization\): negative holds -1\.0; expected variances of at least 0",
    ),
    "one variance": (
        [linear(), node("BatchNormalization", ["h0", "b", "c", "c", "lone"], ["h"], "bn")],
        r"bn \(BatchNormalization\): lone has shape \[1\]; expected \[5\]",
    ),
    "training": (
        [linear(), node("Dropout", ["h0", "high", "yes"], ["h"], "drop")],
        r"drop \(Dropout\): training_mode is set; expected a model exported for inference",
    ),
    "numbers of a running batch": (
        [linear(), node("BatchNormalization", BATCH, ["h", "m", "v"], "bn")],
        r"bn \(BatchNormalization\): has 3 outputs, as in training; expected a model exported for",
    ),
    "epsilon of a batch norm": (
        [linear(), node("BatchNormalization", BATCH, ["h"], "bn", epsilon=np.nan)],
        r"bn \(BatchNormalization\): epsilon is nan; expected a number of at least 0",
    ),
    "no variance": (
        [linear(), node("BatchNormalization", [*BATCH[:4], "nothing"], ["h"], "bn", epsilon=0.0)],
        r"bn \(BatchNormalization\): nothing holds 0 and epsilon is 0; expected a sum above 0",
    ),
    "factor": (
        [
            linear(),
            node("BatchNormalization", ["h0", "huge", "b", "c", "faint"], ["h"], "bn", epsilon=0.0),
        ],
        r"bn \(BatchNormalization\): gamma / sqrt\(variance \+ epsilon\) comes to 3e\+57, beyond",
    ),
    "offset": (
        [linear(), node("BatchNormalization", ["h0", "ones", "b", "huge", "small"], ["h"], "bn")],
        r"bn \(BatchNormalization\): its offset comes to -\S*e\+39, beyond float32",
    ),
    "alpha": (
        [node("Gemm", ["x", "W"], ["h"], "g", alpha=np.nan)],
        r"g \(Gemm\): alpha is nan; expected a finite number",
    ),
    "beta": (
        [node("Gemm", ["x", "W", "b"], ["h"], "g", beta=np.inf)],
        r"g \(Gemm\): beta is inf; expected a finite number",
    ),
    "product": (
        [node("Gemm", ["x", "W", "huge"], ["h"], "g", beta=100.0)],
        r"g \(Gemm\): one of its biases comes to 3e\+39, beyond float32",
    ),
    "divisor": (
        [linear(), node("Div", ["h0", "faint"], ["h"], "d")],
        r"d \(Div\): 1 / faint comes to 1e\+40, beyond float32",
    ),
    "rank": (
        [linear(), node("Add", ["h0", "cube"], ["a"], "a"), node("Relu", ["a"], ["h"])],
        r"a \(Add\): a constant has shape \[1, 1, 1\]; expected \[5\] or one number, of",
    ),
    "rank of a factor": (
        [linear(), node("Mul", ["h0", "cube"], ["h"], "m")],
        r"m \(Mul\): a constant has shape \[1, 1, 1\]; expected \[5\] or one number, of at most tw",
    ),
    "limit of a norm": (
        [
            linear(),
            node("ReduceL2", ["h0"], ["l"], axes=[-1]),
            node("Clip", ["l", "odd"], ["q"], "c"),
            node("Div", ["h0", "q"], ["h"]),
        ],
        r"c \(Clip\): its limits are nan and inf; expected min below max",
    ),
    "slope": (
        [linear(), node("LeakyRelu", ["h0"], ["h"], "leak", alpha=-0.1)],
        r"leak \(LeakyRelu\): alpha is -0\.1\d*; expected a number of at least 0",
    ),
    "limits": (
        [linear(), node("Clip", ["h0", "high", "low"], ["h"], "c")],
        r"c \(Clip\): its limits are 0\.4 and -0\.3; expected min below max",
    ),
    "p": (
        [linear(), node("LpNormalization", ["h0"], ["h"], "n", p=1)],
        r"n \(LpNormalization\): p is 1; expected 2",
    ),
    "axis": (
        [linear(), node("LayerNormalization", ["h0", "c", "b"], ["h"], "ln", axis=0)],
        r"ln \(LayerNormalization\): axis is 0 of \[n, 5\]; expected the last one",
    ),
    "epsilon": (
        [linear(), node("LayerNormalization", ["h0", "c"], ["h"], "ln", epsilon=-1.0)],
        r"ln \(LayerNormalization\): epsilon is -1\.0; expected a number of at least 0",
    ),
    "axes": (
        [linear(), node("ReduceL2", ["h0"], ["l"], "r", axes=[0]), node("Div", ["h0", "l"], ["h"])],
        r"r \(ReduceL2\): reduces axes \[0\] of \[n, 5\]; expected some of each item's numbers",
    ),
    **{
        f"a choice between {what}": (
            [
                *(linear(), node("Softplus", ["h0"], ["s"]), node("Mul", ["s", "two"], ["d"])),
                *(node("Mul", ["h0", "two"], ["m"]), node("Greater", ["h0", "twenty"], ["g"])),
                node("Where", ["g", *ways], ["h"], "w"),
            ],
            r"w \(Where\): chooses by g, which depends on the input; expected",
        )
        for what, ways in {
            "a number and a softplus": ("twenty", "s"),
            "another value and a softplus": ("m", "s"),
            "a value and a multiple of its softplus": ("h0", "d"),
        }.items()
    },
    "integers": (
        [node("Cast", ["x"], ["i"], "c", to=TensorProto.INT64), node("MatMul", ["i", "W"], ["h"])],
        r"c \(Cast\): casts to another type than float or double",
    ),
    "root of a comparison": (
        [linear(), node("Greater", ["h0", "high"], ["g"]), node("Sqrt", ["g"], ["h"], "q")],
        r"q \(Sqrt\): its input g is a comparison; expected rows of numbers",
    ),
    "convolution": (
        [
            node("Unsqueeze", ["x", "last"], ["u"]),
            node("Conv", ["u", "broad"], ["h"], "c", pads=[1, 1]),
        ],
        r"c \(Conv\): has weights \[5, 6, 3\] for inputs \[n, 6, 1\]; expected width 1, with",
    ),
    "places": (
        [linear(), node("Gather", ["h0", "places"], ["h"], "g", axis=1)],
        r"g \(Gather\): takes channels beyond the 5 that there are",
    ),
    "rows apart": (
        [linear(), node("Slice", ["h0", "zero", "one"], ["h"], "s")],
        r"s \(Slice\): is along axis 0 of \[n, 5\]; expected the channels",
    ),
    "order": (
        [
            linear(),
            node("Reshape", ["h0", "group"], ["r"]),
            node("Transpose", ["r"], ["h"], "t", perm=[1, 0, 2]),
        ],
        r"mu has axes \[1, n, 4\]; expected \[n, d\]",
    ),
    "items last": (
        [linear(), node("Transpose", ["h0"], ["t"]), node("Softmax", ["t"], ["h"], "s")],
        r"s \(Softmax\): is over the items of \[5, n\]; expected an axis of each item's numbers",
    ),
    "axes twice": (
        [*TOKENS, node("Transpose", ["t"], ["h"], "t", perm=[0, 1, 1])],
        r"t \(Transpose\): perm is \[0, 1, 1\] of \[n, 5, 2\]; expected each of its axes once",
    ),
    "table of places": (
        [linear(), node("Gather", ["h0", "row_places"], ["h"], "g", axis=1)],
        r"g \(Gather\): takes places of shape \[1, 2\]; expected one, or a list of them",
    ),
    "product of too many": (
        [
            node("Gemm", ["x", "many"], ["m"]),
            node("Unsqueeze", ["m", "last"], ["k"]),
            node("Unsqueeze", ["m", "one"], ["r"]),
            node("MatMul", ["k", "r"], ["h"], "p"),
        ],
        r"p \(MatMul\): makes 9,000,000 numbers of an item; expected at most 4,194,304",
    ),
    "numbers of many values": (
        [
            node("Unsqueeze", ["x", "last"], ["k"]),
            node("Expand", ["k", "spread"], ["h0"]),
            *(node("Tanh", [f"h{i}"], [f"h{i + 1}"], f"n{i}") for i in range(9)),
            node("ReduceMean", ["h9"], ["h"], axes=[1], keepdims=0),
        ],
        r"n\d \(Tanh\): up to here an item has [0-9,]{10} numbers in all values and 0 multiply-"
        "adds; expected at most 16,777,216 and 4,294,967,296",
    ),
    "axes that are no whole numbers": (
        [linear(), node("Unsqueeze", ["h0", "lone"], ["h"], "u")],
        r"u \(Unsqueeze\): lone holds real numbers; expected whole ones",
    ),
    "an axis twice": (
        [linear(), node("Unsqueeze", ["h0", "same_axis"], ["h"], "u")],
        r"u \(Unsqueeze\): its axes are \[1, 1\] of 4; expected each once",
    ),
    "very many axes": (
        [linear(), node("Reshape", ["h0", "many_axes"], ["h"], "r")],
        r"r \(Reshape\): makes 70 axes; expected at most 24",
    ),
    "a product over the items": (
        [linear(), node("MatMul", ["five_ones", "h0"], ["h"], "m")],
        r"m \(MatMul\): sums inner, which is over the items; expected it in the result, as each",
    ),
    "a product with fewer numbers": (
        [linear(), node("MatMul", ["h0", "lone"], ["h"], "m")],
        r"m \(MatMul\): multiplies \[n, 5\] by \[1\]; expected \[\.\.\., r, k\] by",
    ),
    "numbers in many other places": (
        [
            node("Gemm", ["x", "many"], ["m"]),
            node("Unsqueeze", ["m", "last"], ["k0"]),
            node("Expand", ["k0", "by_thousand"], ["h0"]),
            *(
                node("Transpose", [f"h{i}"], [f"h{i + 1}"], f"n{i}", perm=[0, 2, 1])
                for i in range(60)
            ),
            node("ReduceMean", ["h60"], ["h"], axes=[1], keepdims=0),
        ],
        r"n\d+ \(Transpose\): up to here an item has [0-9,]{11} numbers in all values of the file",
    ),
    "constants of other groups": (
        [*TOKENS, node("InstanceNormalization", ["t", "six", "six"], ["h"], "i")],
        r"i \(InstanceNormalization\): its constants have shapes \[6\] and \[6\]; expected \[5\]",
    ),
    "product of other items": (
        [*TOKENS, node("MatMul", ["t", "h0"], ["h"], "m")],
        r"m \(MatMul\): multiplies \[n, 5, 2\] by \[n, 5\]; expected \[\.\.\., r, k\] by",
    ),
    "product of other extents": (
        [*TOKENS, node("MatMul", ["t", "t"], ["h"], "m")],
        r"m \(MatMul\): multiplies \[n, 5, 2\] by \[n, 5, 2\]; expected",
    ),
    "sum over items": (
        [linear(), node("ReduceSum", ["h0", "zero"], ["s"], "r"), node("Mul", ["h0", "s"], ["h"])],
        r"r \(ReduceSum\): reduces axes \[0\] of \[n, 5\]; expected some of each item's numbers",
    ),
    "unequal groups": (
        [
            linear(),
            node("GroupNormalization", ["h0", "b", "c"], ["h"], "g", num_groups=2),
        ],
        r"g \(GroupNormalization\): has 2 groups of 5 channels; expected groups of equal size",
    ),
    "group of one number": (
        [node("InstanceNormalization", ["x", "six", "six"], ["h"], "i")],
        r"i \(InstanceNormalization\): is over \[n, 6\]; expected channels of several numbers",
    ),
    "axis taken out": (
        [linear(), node("Squeeze", ["h0", "first"], ["h"], "q")],
        r"q \(Squeeze\): takes out axes \[1\] of \[n, 5\]; expected extents of 1",
    ),
    "axes of two": (
        [
            linear(),
            node("Unsqueeze", ["h0", "last"], ["u"]),
            node("Add", ["h0", "u"], ["h"], "a"),
        ],
        r"a \(Add\): adds \[n, 5\] and \[n, 5, 1\]; expected the same axes",
    ),
    "constants that do not fit": (
        [node("Concat", ["W", "WT"], ["k"], "k", axis=0), node("MatMul", ["x", "k"], ["h"])],
        r"k \(Concat\): its constants do not fit: all the input array dimensions except",
    ),
    "constants that grow": (
        [
            node("Unsqueeze", ["long", "zero"], ["u"]),
            node("Unsqueeze", ["long", "last"], ["v"]),
            node("Mul", ["u", "v"], ["k"], "k"),
            node("MatMul", ["x", "k"], ["h"]),
        ],
        r"k \(Mul\): computes a constant of 3,200,000,000 bytes; expected at most 1,073,741,",
    ),
    "constants that grow step by step": (
        [
            *(node("Concat", [f"g{i}"] * 2, [f"g{i + 1}"], f"k{i}", axis=0) for i in range(40)),
            node("MatMul", ["x", "g40"], ["h"]),
        ],
        r"k26 \(Concat\): computes a constant of 1,073,741,824 bytes after 1,073,741,808 of "
        "others; expected at most 1,073,741,824 in all",
    ),
    **{
        f"{kind} of 10^12": (
            [node(kind, inputs, ["k"], "k"), linear(), node("Add", ["h0", "k"], ["h"])],
            rf"k \({kind}\): computes a constant of [0-9,]{{17,}} bytes; expected at most",
        )
        for kind, inputs in {
            "ConstantOfShape": ["vast"],
            "Expand": ["high", "vast"],
            "Tile": ["b", "vast"],
            "Range": ["low", "far", "tiny"],
        }.items()
    },
    "numbers of repeats": (
        [*TOKENS, node("Tile", ["t", "thrice"], ["h"], "t")],
        r"t \(Tile\): repeats \[1, 3\] times; expected a number of at least 1 for each of 3 axes",
    ),
    "a sum of constants": (
        [
            node("Einsum", ["W", "b"], ["k"], "e", equation="ij,j->i"),
            linear(),
            node("Add", ["h0", "k"], ["h"]),
        ],
        r"e \(Einsum\): has only constants as inputs, .*; expected a value among its inputs, or",
    ),
    "a sum of constants over all axes": (
        [node("Einsum", ["W", "W"], ["k"], "e", equation="ab,cd->"), *ADDED],
        r"e \(Einsum\): has only constants as inputs, ",
    ),
    "a product of constants that takes long": (
        [*OUTER, node("MatMul", ["u", "v"], ["k"], "k"), *ADDED],
        r"k \(MatMul\): with it 20,000,000,000 multiply-adds compute .*; expected at most 17,179,8",
    ),
    "a product of constants that is large": (
        [*OUTER, node("Gemm", ["u", "u"], ["k"], "k", transB=1), *ADDED],
        r"k \(Gemm\): computes a constant of 3,200,000,000 bytes after 160,000,000 of others; exp",
    ),
    "a norm of constants that grows": (
        [
            node("LayerNormalization", ["tall", "long"], ["k"], "k"),
            *ADDED,
        ],
        r"k \(LayerNormalization\): computes a constant of 3,200,000,000 bytes",
    ),
    "texts among constants": (
        [node("Mul", ["words", "five"], ["k"], "k"), *ADDED],
        r"k \(Mul\): computes with texts or complex numbers; expected real ones",
    ),
    "a constant as texts": (
        [node("Cast", ["W"], ["k"], "k", to=TensorProto.STRING), *ADDED],
        r"k \(Cast\): its constants do not fit: a cast to texts",
    ),
    "a sum over the items": (
        [*TOKENS, node("Einsum", ["t", "positions"], ["h"], "e", equation="bld,ld->ld")],
        r"e \(Einsum\): sums b, which is over the items; expected it in the result",
    ),
    "an axis of no input": (
        [*TOKENS, node("Einsum", ["t", "positions"], ["h"], "e", equation="bld,ld->bz")],
        r"e \(Einsum\): has axis z in its result and in no input",
    ),
    "a sum over everything": (
        [*TOKENS, node("Einsum", ["t", "W"], ["h"], "e", equation="abc,de->")],
        r"e \(Einsum\): sums a, which is over the items; expected it in the result",
    ),
    "an equation without a result": (
        [*TOKENS, node("Einsum", ["t", "positions"], ["h"], "e", equation="bld,ld")],
        r'e \(Einsum\): is "bld,ld", without an arrow; expected one, and the axes of the result',
    ),
    "an equation with dots": (
        [*TOKENS, node("Einsum", ["t", "W"], ["h"], "e", equation="...d,dk->...k")],
        r'e \(Einsum\): is "\.\.\..*", with more than letters, .*; expected a letter for each axis',
    ),
    "an equation of other axes": (
        [*TOKENS, node("Einsum", ["t", "W"], ["h"], "e", equation="bd,dk->bk")],
        r'e \(Einsum\): is "bd,dk->bk" of values of 3 and 2 axes; expected a letter for each',
    ),
    "a known operator": (
        [linear(), node("ArgMax", ["h0"], ["h"], "a")],
        r"a \(ArgMax\): chooses numbers by their size; expected the numbers themselves: the mean",
    ),
    "places of the largest numbers": (
        [linear(), node("TopK", ["h0", "five"], ["g", "i"], "t"), node("Add", ["g", "i"], ["h"])],
        r"t \(TopK\): gives the places i of numbers, which others choose by; expected its values",
    ),
    "more numbers than there are": (
        [linear(), node("TopK", ["h0", "six_of"], ["h", "i"], "t")],
        r"t \(TopK\): takes \[6\] of 5 numbers; expected a number from 1 to 5",
    ),
    "items that are fixed": (
        [node("Reshape", ["x", "frozen"], ["h"], "r")],
        r"r \(Reshape\): to \[2, -1, 3\] fixes the items of \[n, 6\]; .* x\.shape\[0\], not len",
    ),
    "a sum of one input": (
        [*TOKENS, node("Einsum", ["t", "b"], ["h"], "e", equation="bld,k->bk")],
        r"e \(Einsum\): sums l of one input alone; expected axes of the result or of both",
    ),
    "the larger of two values": (
        [linear(), node("Neg", ["h0"], ["g"]), node("Max", ["h0", "c", "g"], ["h"], "m")],
        r"m \(Max\): compares 2 values; expected one and constants \(max\(a, b\) is a \+ Relu",
    ),
    "texts that are added": (
        [
            node("MatMul", ["x", "W"], ["h0"]),
            node("Relu", ["h0"], ["r"]),
            node("Mul", ["r", "words"], ["h"], "m"),
        ],
        r"m \(Mul\): its input words holds texts or complex numbers; expected real ones",
    ),
    "the number of items": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "first_place"], ["n"]),
            node("Cast", ["n"], ["r"], "c", to=TensorProto.FLOAT),
            linear(),
            node("Div", ["h0", "r"], ["h"]),
        ],
        r"c \(Cast\): computes with the number of items; expected numbers that do not depend",
    ),
    "the numbers of items": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "first_place"], ["n"]),
            node("Range", ["first_place", "n", "one_place"], ["r"], "r"),
            node("Cast", ["r"], ["k"], to=TensorProto.FLOAT),
            *ADDED,
        ],
        r"r \(Range\): computes with the number of items",
    ),
    "a diagonal": (
        [*TOKENS, node("Einsum", ["t", "b"], ["h"], "e", equation="bll,k->bk")],
        r'e \(Einsum\): is "bll,k->bk", with l twice in bll; expected each letter once there',
    ),
    "one input of a sum": (
        [*TOKENS, node("Einsum", ["t"], ["h"], "e", equation="bld->bl")],
        r'e \(Einsum\): is "bld->bl", of one input; expected two \(sums of one by a sum or mean',
    ),
    "values of other axes": (
        [*TOKENS, node("Concat", ["t", "h0"], ["h"], "c", axis=1)],
        r"c \(Concat\): joins \[n, 5, 2\], \[n, 5\] along axis 1; expected the same other axes",
    ),
    "values of other items": (
        [linear(), node("Concat", ["h0", "x"], ["h"], "c", axis=0)],
        r"c \(Concat\): joins \[n, 5\] along axis 0; expected one of each item's numbers",
    ),
    "a branch by a value": (
        [*UNDER_ONE, node("If", ["h0"], ["h"], "i", then_branch=SQUEEZED, else_branch=KEPT)],
        r"i \(If\): is a branch or a loop .*dynamo=True",
    ),
    "a branch by how many items there are": (
        [
            *UNDER_ONE,
            node("Gather", ["sizes", "first_place"], ["items"], axis=0),
            node("Greater", ["items", "one_place"], ["many_items"], "more"),
            node("If", ["many_items"], ["h"], "i", then_branch=SQUEEZED, else_branch=KEPT),
        ],
        r"more \(Greater\): computes with the number of items",
    ),
    **{
        f"a branch by {kind} of how many items there are": (
            [
                *UNDER_ONE,
                node("Gather", ["sizes", "first_place"], ["items"], axis=0),
                node(kind, ["items", "five"], ["number"], "counts"),
                node("Cast", ["number"], ["chosen"], to=TensorProto.BOOL),
                node("If", ["chosen"], ["h"], "i", then_branch=SQUEEZED, else_branch=KEPT),
            ],
            rf"counts \({kind}\): computes with the number of items",
        )
        for kind in ("Div", "Equal", "Mod")
    },
    "a branch by a number made of how many items there are": (
        [
            *BY_ITEMS,
            node("Sub", ["items", "seven"], ["number"]),
            node("Cast", ["number"], ["chosen"], to=TensorProto.BOOL),
            node("If", ["chosen"], ["h"], "i", then_branch=SQUEEZED, else_branch=KEPT),
        ],
        r"node 8 \(Cast\): computes with the number of items; expected numbers that do not depend",
    ),
    "a branch by there being one item": (
        [
            *BY_ITEMS,
            node("Equal", ["items", "one"], ["chosen"]),
            node("If", ["chosen"], ["h"], "i", then_branch=SQUEEZED, else_branch=KEPT),
        ],
        r"node 7 \(Equal\): computes with the number of items",
    ),
    "a branch by a branch by how many items there are": (
        [
            *BY_ITEMS,
            node("If", ["is_one"], ["number"], then_branch=TAKEN, else_branch=TAKEN),
            node("Sub", ["number", "seven"], ["less"]),
            node("Cast", ["less"], ["chosen"], to=TensorProto.BOOL),
            node("If", ["chosen"], ["h"], "i", then_branch=SQUEEZED, else_branch=KEPT),
        ],
        r"node 9 \(Cast\): computes with the number of items",
    ),
    "extents by there being one item": (
        [
            *BY_ITEMS,
            node("Equal", ["sizes", "one"], ["chosen"]),
            node("Where", ["chosen", "last", "sizes"], ["grown"], "w"),
            node("Reshape", ["row_of", "grown"], ["h"]),
        ],
        r"node 7 \(Equal\): computes with the number of items",
    ),
    "as many numbers as items, less some": (
        [
            *BY_ITEMS,
            node("Sub", ["items", "seven"], ["number"]),
            node("Slice", ["h0", "zero", "number", "one"], ["h"], "s"),
        ],
        r"s \(Slice\): computes with the number of items",
    ),
    "a number made of how many items there are": (
        [
            *BY_ITEMS,
            node("Sub", ["items", "seven"], ["number"]),
            node("Cast", ["number"], ["real"], "c", to=TensorProto.FLOAT),
            node("Mul", ["h0", "real"], ["h"]),
        ],
        r"c \(Cast\): computes with the number of items",
    ),
    "a branch with what is refused": (
        [
            *UNDER_ONE,
            node(
                *("If", ["is_one"], ["h"], "i"),
                then_branch=way("s", node("Sin", ["h0"], ["s"], "act")),
                else_branch=KEPT,
            ),
        ],
        r"act \(Sin\): is periodic",
    ),
    "a branch of fewer outputs": (
        [
            *UNDER_ONE,
            node("If", ["is_one"], ["a", "g"], "i", then_branch=SQUEEZED, else_branch=KEPT),
            node("Relu", ["g"], ["h"]),
        ],
        r"node 7 \(Relu\): its input g is not there",
    ),
    "a pool with steps of too few axes": (
        [
            *TOKENS,
            node("Transpose", ["t"], ["turned"], perm=[0, 2, 1]),
            node(
                *("AveragePool", ["turned"], ["p"], "p"),
                **{"kernel_shape": [HIDDEN], "auto_pad": "SAME_LOWER", "strides": [HIDDEN] * 2},
            ),
            node("Flatten", ["p"], ["h"]),
        ],
        r"p \(AveragePool\): auto_pad is SAME_LOWER with steps of \[5, 5\]",
    ),
    "a pool that pads": (
        [
            *TOKENS,
            node("Transpose", ["t"], ["turned"], perm=[0, 2, 1]),
            node(
                *("AveragePool", ["turned"], ["p"], "p"),
                **{"kernel_shape": [HIDDEN], "auto_pad": "SAME_UPPER"},
            ),
            node("Flatten", ["p"], ["h"]),
        ],
        r"p \(AveragePool\): auto_pad is SAME_UPPER.*; expected one window over all places",
    ),
    "windows of a pool": (
        [*TOKENS, node("MaxPool", ["t"], ["h"], "p", kernel_shape=[1])],
        r"p \(MaxPool\): is of windows \[1\] of \[n, 5, 2\], or pads these; expected one",
    ),
    "complex numbers": (
        [node("Cast", ["imaginary"], ["k"], "c", to=1), linear(), node("Add", ["h0", "k"], ["h"])],
        r"c \(Cast\): computes with texts or complex numbers; expected real ones",
    ),
    "a slice of no step": (
        [linear(), node("Slice", ["h0", "zero", "five", "one", "zero"], ["h"], "s")],
        r"s \(Slice\): its step is 0; expected another whole number",
    ),
    "the largest in no order": (
        [linear(), node("TopK", ["h0", "two_places"], ["h", "i"], "t", sorted=0)],
        r"t \(TopK\): takes 2 numbers in no order \(sorted = 0\); expected sorted = 1 \(torch: ",
    ),
    "means of a layer norm": (
        [
            linear(),
            node("LayerNormalization", ["h0", "c", "b"], ["n", "m"], "ln"),
            node("Add", ["n", "m"], ["h"], "a"),
        ],
        r"a \(Add\): its input m is output 2 of ln \(LayerNormalization\), which is not computed; "
        "expected only its first output",
    ),
    "deviations of a layer norm with a constant": (
        [
            linear(),
            node("LayerNormalization", ["h0", "c", "b"], ["n", "m", "v"], "ln"),
            node("Max", ["v", "b"], ["u"], "a"),
            node("Add", ["n", "u"], ["h"]),
        ],
        r"a \(Max\): its input v is output 3 of ln \(LayerNormalization\), which is not computed",
    ),
    "items in a narrow type": (
        [
            linear(),
            node("Shape", ["h0"], ["s"]),
            node("Gather", ["s", "first_place"], ["n"]),
            node("Cast", ["n"], ["i"], "narrow", to=TensorProto.INT8),
            node("Cast", ["i"], ["f"], to=1),
            node("Mul", ["h0", "f"], ["h"]),
        ],
        r"narrow \(Cast\): computes with the number of items",
    ),
    "reshape": (
        [linear(), node("Reshape", ["h0", "column"], ["h"], "r")],
        r"r \(Reshape\): to \[-1, 7\] changes the rows; expected \[-1, 5\]",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_supported_is_refused_by_name(write_onnx: WriteOnnx, what: str) -> None:
    nodes, sentence = REFUSED[what]
    odd = {"wide": np.ones(7), "nothing": np.zeros(HIDDEN), "bad": np.full(HIDDEN, np.nan),
           "negative": -np.ones(HIDDEN), "faint": np.full(HIDDEN, 1e-40),
           "huge": np.full(HIDDEN, 3e37), "cube": np.ones((1, 1, 1)), "odd": np.array(np.nan),
           "long": np.ones(20_000), "six": np.ones(6), "broad": np.ones((5, 6, 3)),
           "small": np.full(HIDDEN, 1e-4),
           "ones": np.ones(HIDDEN)}  # fmt: skip
    weights = rng_weights() | {name: array.astype(np.float32) for name, array in odd.items()}
    weights |= {"g0": np.ones(1, np.float32)}
    weights |= {"many": np.ones((WIDTH, 3000), np.float32), "row_places": np.array([[0, 1]])}
    weights |= {"same_axis": np.array([1, 1]), "many_axes": np.array([-1, 5, *[1] * 68])}
    weights["by_thousand"] = np.array([1, 3000, 1000])
    weights["spread"] = np.array([1, WIDTH, 3_000_000 // WIDTH])
    weights |= {"vast": np.array([10**12]), "far": np.float32(1), "frozen": np.array([2, -1, 3])}
    weights |= {"tall": np.ones((20_000, 1), np.float32)}
    weights |= {"flat_one": np.ones((1, 20_000), np.float32)}
    weights |= {"column_shape": np.array([20_000, 1000]), "row_shape": np.array([1000, 1000])}
    weights |= {"imaginary": np.full(HIDDEN, 1j)}
    weights |= {"words": np.array(["a", "b"], object)}
    weights |= {"yes": np.array(True), "column": np.array([-1, 7])}
    file = write_onnx([*nodes, *HEADS], weights, opset=NEWER.get(what, 17))
    with pytest.raises(CimError, match=r"text\.onnx: " + sentence):
        program(file)


@pytest.mark.parametrize("opset", [9, 13])
def test_a_batch_norm_that_trains_is_refused(write_onnx: WriteOnnx, opset: int) -> None:
    trains = node("BatchNormalization", BATCH, ["h", "m", "v", "sm", "sv"], "bn")
    file = write_onnx([linear(), trains, *HEADS], rng_weights(), opset=opset)
    with pytest.raises(CimError, match=r"bn \(BatchNormalization\): has 5 outputs, as in training"):
        program(file)


def test_a_branch_by_the_items_of_a_file_for_a_number_of_them_is_refused(
    write_onnx: WriteOnnx,
) -> None:
    nodes, sentence = REFUSED["a branch by a number made of how many items there are"]
    file = write_onnx([*nodes, *HEADS], rng_weights(), shape=(8, WIDTH))
    with pytest.raises(CimError, match=sentence):
        program(file)


def test_what_the_outputs_do_not_need_is_not_looked_at(write_onnx: WriteOnnx) -> None:
    loose = node("Softmax", ["x"], ["loose"])
    graph = program(write_onnx([*CHAINS["gemm"], loose, *HEADS], rng_weights()))
    assert [one.name for one in graph.nodes] == ["h", "mu", "logvar", "s"]


def test_a_value_of_the_file_does_not_take_the_name_of_the_variance(
    write_onnx: WriteOnnx,
) -> None:
    heads = [node("Exp", ["h0"], ["h"], "s"), *HEADS]
    graph = program(write_onnx([linear(), *heads], rng_weights()))
    assert [one.name for one in graph.nodes if isinstance(one.op, Exp)] == ["s_value", "s"]


def test_mu_and_logvar_have_one_width(write_onnx: WriteOnnx) -> None:
    heads = [node("MatMul", ["h", "Wm"], ["mu"]), node("Identity", ["h"], ["logvar"])]
    file = write_onnx([*CHAINS["gemm"], *heads], rng_weights())
    with pytest.raises(CimError, match=r"text\.onnx: mu has 4 dimensions and logvar 5; expected"):
        program(file)


def test_an_output_depends_on_the_input(write_onnx: WriteOnnx) -> None:
    heads = [node("MatMul", ["h", "Wm"], ["mu"]), node("Identity", ["b"], ["logvar"])]
    file = write_onnx([*CHAINS["gemm"], *heads], rng_weights())
    with pytest.raises(CimError, match=r"text\.onnx: logvar does not depend on the input"):
        program(file)


def test_outputs_may_be_means_of_rows_and_rows_less_them(write_onnx: WriteOnnx) -> None:
    heads = [
        node("ReduceMean", ["t"], ["mu"], axes=[2], keepdims=0),
        node("ReduceMean", ["h0"], ["m"], axes=[1]),
        node("Sub", ["h0", "m"], ["logvar"]),
    ]
    file = write_onnx([*TOKENS, *heads], rng_weights())
    x = np.random.default_rng(1).normal(size=(9, WIDTH)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    mu, logvar = session.run(["mu", "logvar"], {"x": x})
    found = program(file).run({"x": x.astype(np.float64)})
    np.testing.assert_allclose(found["mu"], mu, atol=1e-5)
    np.testing.assert_allclose(np.log(found["s"]), logvar, atol=1e-5)


def test_a_norm_is_one_number(write_onnx: WriteOnnx) -> None:
    heads = [node("MatMul", ["h", "Wm"], ["mu"]), node("ReduceL2", ["h"], ["logvar"], axes=[1])]
    file = write_onnx([*CHAINS["gemm"], *heads], rng_weights())
    with pytest.raises(CimError, match=r"mu has 4 dimensions and logvar 1; expected"):
        program(file)
