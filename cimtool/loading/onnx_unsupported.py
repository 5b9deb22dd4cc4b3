"""Operators of ONNX that are known and do not compile: why, and what does."""

from __future__ import annotations

RECURRENT = (
    "keeps a state from token to token; expected a network of tokens side by side, as attention, "
    "a layer of each token or their mean is"
)
SORTED = "chooses numbers by their size; expected the mean or the largest of tokens, or all of them"
POWERS = "is a logarithm of a sum of powers; expected a mean, a largest number or a softmax"

UNSUPPORTED = {
    "ArgMax": SORTED,
    "GRU": RECURRENT,
    "LSTM": RECURRENT,
    "LogSoftmax": "is the logarithm of a softmax; expected the softmax, or the numbers before",
    "RNN": RECURRENT,
    "ReduceLogSumExp": POWERS,
    "TopK": SORTED,
}
"""The sentence's end for each."""
