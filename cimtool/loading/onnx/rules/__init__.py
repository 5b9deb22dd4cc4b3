"""Rules that turn ONNX operators into operations, and reasons why other operators do not compile.

Each module registers its own rules. The operators' definitions: https://onnx.ai/onnx/operators/.
An operator without a rule has a reason: why hardware of multiply, add and clip cannot compute it.
If its inputs are constants, most such operators are computed while a file is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from cimtool.base.named import nearest, register_modules

PAGE = "docs/onnx-projectors.md"
"""The page that lists operators that compile, and operators that do not."""

REASONS = {
    "And Equal GreaterOrEqual Hardmax IsInf Less LessOrEqual Not OneHot Or Shrink ThresholdedRelu "
    "Xor": (
        "is a comparison or a choice, which multiply, add and clip cannot do; expected an "
        "activation (Relu, Clip, HardSigmoid), or a choice that is made before the file is exported"
    ),
    "Compress NonZero Unique": (
        "makes a number of values that depends on its input; expected a fixed number for each item"
    ),
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": (
        "draws random numbers; expected a model that is exported for inference, whose outputs are "
        "mu and logvar, not samples of them"
    ),
    "If Loop Scan SequenceMap": (
        "is a branch or a loop that is decided as the graph runs; expected one branch, or a loop "
        "of fixed length written out, as torch's newer exporter does (torch.onnx.export(..., "
        "dynamo=True))"
    ),
    "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt "
    "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence": (
        "makes or takes a list of values; expected the values themselves, as Split and Concat "
        "have them"
    ),
    "AffineGrid Col2Im ConvInteger ConvTranspose DeformConv GridSample LRN LpPool MaxRoiPool "
    "MaxUnpool Resize RoiAlign Upsample": (
        "is over neighbouring places, as of images; expected embeddings: export the projector "
        "alone, behind the part that embeds"
    ),
    "Cos Sin Tan": (
        "is periodic, which a short polynomial cannot follow; expected it as a constant, such as "
        "position embeddings, or the numbers before it"
    ),
    "Acos Acosh Asin Asinh Atan Atanh Cosh Det Sinh": (
        "is a function that has no rule; expected Tanh, Sigmoid, Softplus, Erf, Exp or Log, or "
        "functions made of these"
    ),
    "Ceil Floor Mod Round Sign": (
        "jumps from one value to the next; expected the numbers before it, or a quantizer "
        "(QuantizeLinear, then DequantizeLinear)"
    ),
    "BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor": (
        "is for the bits of whole numbers; expected real numbers, rows of embeddings"
    ),
    "CausalConvWithState CumProd GRU LSTM LinearAttention RNN": (
        "keeps a state from token to token; expected a network of tokens side by side, such as "
        "attention, a layer for each token, or their mean"
    ),
    "ArgMax ArgMin NonMaxSuppression": (
        "chooses numbers by their size; expected the numbers themselves: the mean or the largest "
        "of tokens, all of them, or some in their order (sort, topk)"
    ),
    "ReduceLogSumExp": (
        "is a logarithm of a sum of powers; expected a mean, a largest number or a softmax"
    ),
    "LogSoftmax": "is the logarithm of a softmax; expected the softmax, or the numbers before",
    "GatherElements GatherND ReverseSequence Scatter ScatterElements ScatterND TensorScatter": (
        "takes or sets numbers at places that the input decides; expected Gather or Slice at "
        "constant places, Concat, or a product with a constant of ones and zeros"
    ),
    "ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer": (
        "is for texts or files, not numbers; expected rows of embeddings"
    ),
    "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT": (
        "is a transform of signals; expected MatMul by its matrix, a constant"
    ),
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss": (
        "is a loss of a training; expected the projector alone, exported for inference"
    ),
    "EyeLike Range Size": "has extents that the input decides; expected a constant",
    "Attention RotaryEmbedding": (
        "is a whole block as one operator; expected its parts, which torch.onnx.export writes "
        "with opset_version=20"
    ),
}
"""The end of the error for each group of operators; a key joins their names by spaces."""

INSTEAD = {
    "CastLike": "Cast to float",
    "CenterCropPad": "Slice, or Concat with a constant",
    "CumSum": "MatMul by a constant triangle of ones",
    "DepthToSpace": "Reshape and Transpose",
    "GlobalLpPool": "ReduceL2",
    "Mean": "Add, then Mul by a constant",
    "MeanVarianceNormalization": "LayerNormalization",
    "Pad": "Concat with a constant",
    "ReduceLogSum": "ReduceSum, then Log",
    "ReduceProd": "Mul of two values at a time",
    "SpaceToDepth": "Reshape and Transpose",
    "Sum": "Add of two values at a time",
    "SwiGLU": "Split, Swish and Mul",
    "Trilu": "Mul by a constant of ones and zeros",
}
"""Operators to write instead of an operator without a rule."""

UNSUPPORTED = {kind: reason for kinds, reason in REASONS.items() for kind in kinds.split()} | {
    kind: f"has no rule of its own; expected {operators} in its place"
    for kind, operators in INSTEAD.items()
}
"""The end of the error for each operator."""

OF_DOMAINS = {
    "com.microsoft": (
        "is one of onnxruntime's own; expected the graph as it was exported, before a runtime "
        "optimised it"
    ),
    "ai.onnx.ml": (
        "is one of the classical models of domain ai.onnx.ml; expected layers: MatMul, Add and "
        "activations"
    ),
}
"""The end of the error for all operators of a domain."""


def unsupported(kind: str, domain: str, supported: Iterable[str]) -> str:
    """The end of the error on an operator; `supported` are ONNX's operators that compile."""
    if not domain:
        known = f"has no rule{nearest(kind, supported)}; expected an operator that {PAGE} lists"
        return UNSUPPORTED.get(kind, known)
    return OF_DOMAINS.get(
        domain,
        f"is of domain {domain} and not known here; expected operators of ONNX itself "
        "(a function that the file defines is put in by onnx.inliner.inline_local_functions)",
    )


register_modules(__name__, __path__)
