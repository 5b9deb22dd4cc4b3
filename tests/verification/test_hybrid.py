from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.simulation.simulator import Simulator
from cimtool.verification.hybrid import GraphStages, GraphValue, MixedGraph

from .conftest import D, MakeBundle, many_texts, two_branch

Array = np.ndarray


@pytest.fixture(scope="module")
def coarse(make_bundle: MakeBundle) -> Bundle:
    """Converters that round and clip, few bits, ranges of activations that differ by channel."""
    return make_bundle("coarse", target="isaac-rram-128", adc_bits=4, activation_bits=6)


@pytest.fixture(scope="module")
def branched(make_bundle: MakeBundle) -> Bundle:
    rows = many_texts(32, 2, D)
    rows["video"] = rows["video"][rows.pop("text_to_video")]
    return make_bundle("branched", module=two_branch, calibration=rows, target="hermes-pcm-14nm")


def forms(bundle: Bundle) -> dict[str, GraphStages]:
    programs = {stage.name: stage.program for stage in bundle.stages}
    return {
        graph: GraphStages(
            *(getattr(programs[stage], graph) for stage in ("lowered", "tiled")), last
        )
        for graph, last in zip(("text", "video", "score"), bundle.program.graphs, strict=False)
    }


def every_part(found: dict[str, GraphStages]) -> set[str]:
    return {part for one in found.values() for own in one.parts.values() for part in own}


def logits(found: dict[str, GraphStages], data: Embeddings, real: Iterable[str]) -> Array:
    real = set(real)
    features = {}
    for modality, x in (("text", data.text), ("video", data.video)):
        outputs = MixedGraph(found[modality], {"x": GraphValue(x)}, real).outputs()
        features |= {f"{modality}.{name}": value for name, value in outputs.items()}
    return MixedGraph(found["score"], features, real).outputs()["logit"].real


@pytest.fixture(params=["coarse", "branched", "plain"])
def made(request: pytest.FixtureRequest, data: Embeddings) -> tuple[Bundle, Embeddings]:
    name = {"plain": "bundle"}.get(request.param, request.param)
    if name == "branched":
        return request.getfixturevalue(name), embeddings_of(many_texts(20, 1, D, seed=5))
    return request.getfixturevalue(name), data


def test_everything_in_integers_is_the_compiled_model(made: tuple[Bundle, Embeddings]) -> None:
    bundle, data = made
    found = logits(forms(bundle), data, ())
    np.testing.assert_array_equal(found, Simulator(bundle.program).scores(data.text, data.video))


def test_nothing_in_integers_is_the_lowered_model(made: tuple[Bundle, Embeddings]) -> None:
    bundle, data = made
    lowered = next(stage.program for stage in bundle.stages if stage.name == "lowered")
    exact = Simulator(lowered).scores(data.text, data.video)
    every = forms(bundle)
    found = logits(every, data, every_part(every))
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-9 * np.abs(exact).max())


def test_the_parts_of_a_trunk(coarse: Bundle, bundle: Bundle) -> None:
    found = forms(coarse)["text"].parts
    assert found["fc1"] == ("text.fc1.weight_bits", "text.fc1.adc_bits")
    assert found["mu"] == tuple(f"text.mu.{k}_bits" for k in ("weight", "activation", "adc"))
    stored = {"x.stored", "mu_stored", "s_stored", "s_summed"}
    assert set(found) == stored | {"fc1", "fc2", "mu", "logvar"}
    assert forms(bundle)["text"].parts["fc2"] == (
        "text.fc2.weight_bits",
        "text.fc2.activation_bits",
    )
    assert set(forms(coarse)["score"].parts.values()) == {("score",)}


def test_what_a_part_changes(coarse: Bundle) -> None:
    text = forms(coarse)["text"]
    assert text.changed({"text.s_summed"}) >= {"s_summed", "s_total", "ed_self", "vd_self"}
    assert text.changed({"text.s_summed"}).isdisjoint(
        {"s_stored", "mu_stored", "mu_sum_squares", "mu"}
    )
    assert text.changed({"text.fc2.adc_bits"}).isdisjoint({"x.stored", "fc1", "relu1.stored"})
    compiled_alone = text.compiled.by_name.keys() - text.lowered.by_name.keys()
    assert not text.changed({"text.logvar.weight_bits"}).isdisjoint(compiled_alone)
    assert text.changed(()) == set()


class Hand:
    """The text projector of a trunk in plain NumPy; layers of integers run readably."""

    def __init__(self, bundle: Bundle, x: Array):
        programs = {stage.name: stage.program.text for stage in bundle.stages}
        self.lowered, self.tiled = programs["lowered"], programs["tiled"]
        self.compiled, self.x = bundle.program.text, x

    def trained(self, name: str, x: Array) -> Array:
        layer = self.lowered.by_name[name].op
        return x @ layer.weight + layer.bias

    def rounded_weights(self, name: str, stored: str, x: Array) -> Array:
        layer = self.tiled.by_name[name].op
        rows = x / self.compiled.types[stored].scale
        return (rows @ layer.weight + layer.bias) * layer.scale

    def codes(self, stored: str, x: Array) -> Array:
        op = self.compiled.by_name[stored].op
        half = 0.5 if stored != "x.stored" else 0.0
        steps = np.floor(x / op.scale + half) if half else np.rint(x / op.scale)
        return np.clip(steps, op.lo, op.hi).astype(np.int64)

    def converted(self, name: str, codes: Array, stage: str = "compiled") -> Array:
        layer = getattr(self, stage).by_name[name].op
        return layer.run(codes) * layer.scale


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def one_layer(h: Hand) -> Array:
    hidden = relu(h.trained("fc1", h.x))
    return h.trained("mu", relu(h.converted("fc2", h.codes("relu1.stored", hidden))))


def its_weights(h: Hand) -> Array:
    hidden = relu(h.trained("fc1", h.x))
    return h.trained("mu", relu(h.rounded_weights("fc2", "relu1.stored", hidden)))


def its_activation(h: Hand) -> Array:
    codes = h.codes("relu1.stored", relu(h.trained("fc1", h.x)))
    hidden = codes * h.compiled.types["relu1.stored"].scale
    return h.trained("mu", relu(h.trained("fc2", hidden)))


def its_converters(h: Hand) -> Array:
    hidden = relu(h.trained("fc1", h.x))
    codes = h.codes("relu1.stored", hidden)
    error = h.converted("fc2", codes) - h.converted("fc2", codes, "tiled")
    return h.trained("mu", relu(h.trained("fc2", hidden) + error))


def stored_mu(h: Hand) -> Array:
    hidden = relu(h.trained("fc2", relu(h.trained("fc1", h.x))))
    return h.codes("mu_stored", h.trained("mu", hidden)) * h.compiled.types["mu_stored"].scale


FC2 = {f"text.fc2.{key}_bits" for key in ("weight", "activation", "adc")}
BY_HAND = {
    "one layer": (FC2, one_layer),
    "its weights": ({"text.fc2.weight_bits"}, its_weights),
    "its activation": ({"text.fc2.activation_bits"}, its_activation),
    "its converters": ({"text.fc2.adc_bits"}, its_converters),
    "mu": ({"text.mu_stored"}, stored_mu),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_one_part_in_integers_by_hand(case: str, coarse: Bundle, data: Embeddings) -> None:
    integers: set[str]
    by_hand: Callable[[Hand], Array]
    integers, by_hand = BY_HAND[case]
    text = forms(coarse)["text"]
    real = every_part({"text": text}) - integers
    found = MixedGraph(text, {"x": GraphValue(data.text)}, real).outputs()["mu"].real
    expected = by_hand(Hand(coarse, data.text.astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    exact = (
        MixedGraph(text, {"x": GraphValue(data.text)}, every_part({"text": text}))
        .outputs()["mu"]
        .real
    )
    assert np.abs(found - exact).max() > 1e-4  # or nothing was tested


def test_an_input_left_real_keeps_what_converters_err(coarse: Bundle, data: Embeddings) -> None:
    text = forms(coarse)["text"]
    walk = MixedGraph(text, {"x": GraphValue(data.text)}, {"text.x.stored"})
    hand = Hand(coarse, data.text.astype(np.float64))
    codes = hand.codes("x.stored", hand.x)
    error = hand.converted("fc1", codes) - hand.converted("fc1", codes, "tiled")
    expected = hand.rounded_weights("fc1", "x.stored", hand.x) + error
    np.testing.assert_allclose(walk.value("fc1").real, expected, rtol=0, atol=1e-9)
    hidden = hand.codes("relu1.stored", relu(expected))
    np.testing.assert_array_equal(walk.value("relu1.stored").array, hidden)
    fc2 = hand.compiled.by_name["fc2"].op.run(hidden)
    np.testing.assert_array_equal(walk.value("fc2").array, fc2)


def test_a_stored_value_left_real_is_the_one_before_it(coarse: Bundle, data: Embeddings) -> None:
    """Its sums take it as it is, and all others as integers."""
    text = forms(coarse)["text"]
    walk = MixedGraph(text, {"x": GraphValue(data.text)}, {"text.mu_stored"})
    found = walk.outputs()
    values = Simulator(coarse.program).values("text", data.text, ["mu", "s_summed", "s_stored"])
    real = {name: value * text.compiled.types[name].scale for name, value in values.items()}
    np.testing.assert_allclose(found["mu"].real, real["mu"], rtol=1e-12)
    np.testing.assert_array_equal(found["s"].array, values["s_stored"])
    ed = np.square(real["mu"]).sum(axis=1) + real["s_summed"].sum(axis=1)
    np.testing.assert_allclose(found["ed_self"].real, ed, rtol=1e-12)


@pytest.mark.parametrize("end", ["integers", "real"])
def test_a_walk_starts_from_another(end: str, coarse: Bundle, data: Embeddings) -> None:
    text = forms(coarse)["text"]
    every = every_part({"text": text})
    start = every if end == "real" else set()
    first = MixedGraph(text, {"x": GraphValue(data.text)}, start)
    first.outputs()
    kept = first.kept()
    assert {"fc2", "mu_stored", "ed_self"} <= set(kept)
    assert "relu1" not in kept
    for part in every:
        changed = text.changed({part})
        before = {name: value for name, value in kept.items() if name not in changed}
        second = MixedGraph(text, {"x": GraphValue(data.text)}, start ^ {part}, before).outputs()
        alone = MixedGraph(text, {"x": GraphValue(data.text)}, start ^ {part}).outputs()
        for name, value in alone.items():
            np.testing.assert_array_equal(second[name].real, value.real)
