"""Layout `pcme`: the heads of PCME's encoders, which attend to the tokens of a row.

    attended(net) = sum over tokens of softmax(net.w_2 tanh(net.w_1 token)) token
    mu     = normalize(layer_norm(out + sigmoid(pie_net.fc attended(pie_net.attention))))
    logvar = 2 logsigma, logsigma = uncertain_net.fc attended(uncertain_net.attention) + own

For images, `out` is `fc` of the mean token and `own` is `uncertain_net.fc2` of it. For captions,
recurrent networks compute both from the tokens; a row holds `out`, `own`, then the tokens. Without
`uncertain_net`, items are points, as in PVSE. Keys and arithmetic follow
https://github.com/naver-ai/pcme, which samples `mu + exp(logsigma) noise`.
"""

from __future__ import annotations

import numpy as np

from cimtool.ir.arithmetic import Axis, BatchMatMul, Sum, plus
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import L2Normalize, Sigmoid, Softmax, Tanh
from cimtool.ir.types import rows_of_item
from cimtool.loading.layout import Layout, arranged, count_tokens, linear, read_layer_norm
from cimtool.loading.weights import Weights

PIE, UNCERTAIN = "pie_net", "uncertain_net"
OUT, OWN = "fc", f"{UNCERTAIN}.fc2"

RECURRENT = {OUT: "rnn", OWN: f"{UNCERTAIN}.rnn"}
"""The recurrent networks of captions; each replaces a layer of images."""


class Pcme(Layout, name="pcme"):
    """Keys `fc`, `pie_net`, `uncertain_net`; all others belong to the encoder before the tokens."""

    description = "PCME's pie_net and uncertain_net, in its img_enc and txt_enc"
    layers = (
        OUT,
        *(f"{PIE}.{name}" for name in ("attention.w_1", "attention.w_2", "fc", "layer_norm")),
        *(f"{UNCERTAIN}.{name}" for name in ("attention.w_1", "attention.w_2", "fc")),
        OWN,
    )
    reads_tokens = True

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the PIE-Net has an attention."""
        return weights.layer(f"{PIE}.attention.w_1") in weights.layers

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the head; CimError if a key is missing or a shape does not fit."""
        _refuse_others(weights)
        b = _TokenBuilder(weights)
        gate = b.add("pie_net_gate", Sigmoid(), b.local(PIE))
        total = b.add("mu_sum", plus(1, 1), b.outer(OUT), gate)
        norm = read_layer_norm(weights, weights.layer(f"{PIE}.layer_norm"), b.d)
        mu = b.add("mu", L2Normalize(), b.add("mu_norm", norm, total))
        if not _has_variance(weights):
            return b.tower(mu)
        return b.tower(mu, b.add("logvar", plus(2, 2), b.local(UNCERTAIN), b.outer(OWN)))

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of a row."""
        networks = [f"{weights.prefix}.{RECURRENT[role]}" for role in _given(weights)]
        before = f" behind what {' and '.join(networks)} made of them," if networks else ","
        return (
            f"{weights.file}: {weights.prefix} is compiled from its tokens on: a row is its "
            f"tokens{before} without the encoder before them; all tokens of a row count, as no "
            "padding mask is known",
        )


class _TokenBuilder(TowerBuilder):
    """Builds a head on rows that hold the vectors [d] of recurrent networks, then the tokens."""

    def __init__(self, weights: Weights):
        self.weights, given = weights, _given(weights)
        self.width, self.d = linear(weights, weights.layer(f"{PIE}.fc")).weight.shape
        before = self.d * len(given)
        count = count_tokens(weights, self.width, before)
        super().__init__(before + count * self.width)
        places = np.arange(before).reshape(len(given), 1, self.d)
        vectors = (arranged(self, "x", own) for own in places)
        self.given = dict(zip(given, vectors, strict=True))
        places = np.arange(count * self.width).reshape(count, self.width) + before
        self.tokens, self.channels = (arranged(self, "x", own) for own in (places, places.T))
        total = self.add("tokens_total", Axis(1), self.add("tokens_sum", Sum(), self.channels))
        self.mean = self.add("tokens_mean", plus(1 / count), self._in_one_row(total))

    def outer(self, role: str) -> str:
        """The vector [n, d] to add to `local`: from the row, or a layer of the mean token."""
        if role in self.given:
            return self.given[role]
        layer = linear(self.weights, self.weights.layer(role), self.width, self.d)
        return self.add(role.replace(".", "_"), layer, self.mean)

    def local(self, net: str) -> str:
        """The layer [n, d] after a network's attention to the tokens."""
        layer = linear(self.weights, self.weights.layer(f"{net}.fc"), self.width, self.d)
        return self.add(f"{net}_fc", layer, self._attended(net))

    def _attended(self, net: str) -> str:
        """The sum [n, width] of the tokens, weighted by the softmax of their scores."""
        names = (self.weights.layer(f"{net}.attention.{name}") for name in ("w_1", "w_2"))
        inner = linear(self.weights, next(names), self.width, has_bias=False)
        score = linear(self.weights, next(names), inner.weight.shape[1], 1, has_bias=False)
        hidden = self.add(f"{net}_tanh", Tanh(), self.add(f"{net}_w_1", inner, self.tokens))
        scores = self._in_one_row(self.add(f"{net}_w_2", score, hidden))
        shares = self.add(f"{net}_shares", Softmax(), scores)
        return self.add(f"{net}_attended", BatchMatMul(1, self.width), shares, self.channels)

    def _in_one_row(self, column: str) -> str:
        """The numbers [k n, 1] of an item in one row [n, k]."""
        rows, _ = rows_of_item(self.types[column].shape[0])
        return arranged(self, column, np.arange(rows)[None])


def _has_variance(weights: Weights) -> bool:
    return any(layer.startswith(f"{UNCERTAIN}.") for layer in weights.layers)


def _given(weights: Weights) -> list[str]:
    """The roles for which the file has a recurrent network instead of a layer."""
    roles = (OUT, OWN) if _has_variance(weights) else (OUT,)
    return [
        role
        for role in roles
        if weights.layer(role) not in weights.layers and RECURRENT[role] in weights.layers
    ]


def _refuse_others(weights: Weights) -> None:
    """Raise CimError for a key of the head that is not read; the encoder's keys are left out."""
    tops, networks = (OUT, PIE, UNCERTAIN), RECURRENT.values()
    own = weights.among(lambda name: name.partition(".")[0] in tops and name not in networks)
    own.refuse_others([weights.layer(role) for role in Pcme.layers], Pcme.name)
