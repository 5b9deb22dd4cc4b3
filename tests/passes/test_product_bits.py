"""Products of a score in the memory with bits of their own: exact sums, mean errors taken off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import Session
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import LayerSettings, Settings, resolve
from cimtool.hardware.target import load_target, target_names
from cimtool.ir.arithmetic import Add
from cimtool.ir.program import Graph, Program
from cimtool.passes.gallery import fit_gallery, program_gallery
from cimtool.passes.pipeline import compile_program
from cimtool.passes.product_bits import ProductExamples, Steps
from cimtool.simulation.simulator import Features, Simulator

PRODUCTS = "mu.mu", "mus.mu", "s.s_mu2.s", "s.mu2", "mu.mus"
ITEMS = 31
STATISTICS = "ed", "vd"
Bits = dict[str, tuple[int | None, int | None]]


@dataclass(frozen=True, repr=False)
class Compiled:
    program: Program
    text: Features
    video: Features
    examples: ProductExamples

    def programmed(self, bits: Bits, **flags: object) -> Graph:
        own = with_bits(resolve(load_target("ideal"), None, flags), bits)
        items = {name: value[:ITEMS] for name, value in self.video.items()}
        return program_gallery(self.program.score, items, own, self.examples)

    def logits(self, graph: Graph) -> Array:
        return Simulator(replace(self.program, score=graph)).score(self.text)

    @property
    def digital(self) -> Array:
        items = {name: value[:ITEMS] for name, value in self.video.items()}
        return Simulator(self.program).score(self.text, items)

    def inputs(self) -> dict[str, Array]:
        return {f"text.{name}": value for name, value in self.text.items()}


def with_bits(own: Settings, bits: Bits) -> Settings:
    layers = tuple(
        LayerSettings(pattern=f"score.{name}", weight_bits=item, activation_bits=query)
        for name, (item, query) in bits.items()
    )
    return own.model_copy(update={"layers": layers})


@pytest.fixture(scope="module")
def small(models: SimpleNamespace) -> Compiled:
    job = models.job(*models.data)
    program = compile_program(models.small, job, lambda text: None)[-1].program
    simulator = Simulator(program)
    text, video = simulator.encode("text", job.text), simulator.encode("video", job.video)
    return Compiled(program, text, video, ProductExamples(text, video))


def layers(graph: Graph) -> dict[str, CrossbarMvm]:
    return graph.operations(CrossbarMvm)


def test_as_many_bits_as_values_need_lose_nothing(small: Compiled) -> None:
    graph = small.programmed(dict.fromkeys(PRODUCTS, (16, 16)))
    np.testing.assert_array_equal(small.logits(graph), small.digital)


@pytest.mark.parametrize("product", PRODUCTS)
def test_bits_are_those_of_the_stored_values_and_of_the_queries(
    small: Compiled, product: str
) -> None:
    graph = small.programmed({product: (4, 3)})
    op = layers(graph)[product]
    assert np.abs(op.weight).max() <= 7
    assert op.crossbar.weights.bits <= 4
    (driven,) = graph.by_name[product].inputs
    assert graph.types[driven].bits <= 3
    others = {name: one.weight for name, one in layers(graph).items() if name != product}
    whole = layers(small.programmed({}))
    for name, weight in others.items():
        np.testing.assert_array_equal(weight, whole[name].weight)


bits = st.dictionaries(
    st.sampled_from(PRODUCTS),
    st.tuples(st.sampled_from([None, 0, 2, 3, 5, 8]), st.sampled_from([None, 2, 3, 5, 8])),
    min_size=1,
).filter(lambda found: any(found.get(name, (8, 8))[0] != 0 for name in PRODUCTS))


@settings(max_examples=examples(25))
@given(chosen=bits)
def test_the_mean_of_every_item_stays(small: Compiled, chosen: Bits) -> None:
    """Over the queries that it is fitted on, to the rounding of a constant a product."""
    whole, graph = small.programmed({}), small.programmed(chosen)
    for name in STATISTICS:
        error = (statistic(name, graph, small) - statistic(name, whole, small)).mean(axis=0)
        rounded = sum(factor(name, one, whole) for one in chosen)
        assert np.abs(error).max() <= rounded / 2 + 1e-9


def statistic(name: str, graph: Graph, small: Compiled) -> Array:
    """ed or vd [n, M] in integers."""
    return replace(graph, outputs={name: name}).pruned().run(small.inputs())[name]


def factor(name: str, product: str, whole: Graph) -> int:
    """The share that a product has in a statistic: units of it."""
    node = whole.by_name[name]
    assert isinstance(node.op, Add)
    return abs(int(dict(zip(node.inputs, node.op.factors, strict=True)).get(product, 0)))


@pytest.mark.thorough("other widths stand for these")
@settings(max_examples=examples(25))
@given(chosen=bits, encoding=st.sampled_from(["offset", "differential", "twos-complement"]))
def test_implementations_agree(small: Compiled, chosen: Bits, encoding: str) -> None:
    graph = small.programmed(chosen, encoding=encoding, array="64x64", cell_bits=2)
    readable = graph.run(small.inputs())["logit"]
    np.testing.assert_array_equal(small.logits(graph), readable)
    feeds = {f"text_{name}": value for name, value in small.text.items()}
    session = Session(file_bytes(onnx_model(graph)), "disable")
    found = session.run({name: feeds[name] for name in session.inputs})
    np.testing.assert_array_equal(found["logit"], readable)


@pytest.mark.thorough(
    "each target; one of a kind is in the first tier", quick=("isaac-rram-128", "dcim-28nm-isscc23")
)
@pytest.mark.parametrize("target", target_names())
def test_implementations_agree_on_every_target(small: Compiled, target: str) -> None:
    """With fitted converters, where the target has any."""
    chosen: Bits = {"mu.mu": (3, 4), "s.s_mu2.s": (5, 3), "s.mu2": (0, None), "mu.mus": (4, None)}
    own = with_bits(resolve(load_target(target), None, {"accumulator_bits": 48}), chosen)
    items = {name: value[:ITEMS] for name, value in small.video.items()}
    graph = program_gallery(small.program.score, items, own, small.examples)
    graph = fit_gallery(graph, small.text)
    readable = graph.run(small.inputs())["logit"]
    np.testing.assert_array_equal(small.logits(graph), readable)
    session = Session(file_bytes(onnx_model(graph)))
    feeds = {name: small.text[name.removeprefix("text_")] for name in session.inputs}
    np.testing.assert_array_equal(session.run(feeds)["logit"], readable)


def test_products_of_one_matrix_share_cells_where_their_bits_agree(small: Compiled) -> None:
    same = layers(small.programmed({"mu.mu": (4, None), "mus.mu": (4, 5)}))
    assert same["mu.mu"].weight is same["mus.mu"].weight
    apart = layers(small.programmed({"mu.mu": (4, None)}))
    assert np.abs(apart["mus.mu"].weight).max() > 7


def test_a_product_that_is_left_out_is_its_mean(small: Compiled) -> None:
    graph = small.programmed({"s.mu2": (0, None)})
    assert set(layers(graph)) == {*PRODUCTS} - {"s.mu2"}
    whole = small.programmed({})
    error = statistic("vd", whole, small) - statistic("vd", graph, small)
    share = factor("vd", "s.mu2", whole)
    product = small.text["s"] @ (small.video["mu"][:ITEMS] ** 2).T
    mean = np.floor(product.mean(axis=0) + 0.5).astype(int)
    np.testing.assert_array_equal(error, share * (product - mean))


def test_a_score_without_any_product_is_refused(small: Compiled) -> None:
    with pytest.raises(CimError, match="leaves out every product of the score"):
        small.programmed(dict.fromkeys(PRODUCTS, (0, None)))


@settings(max_examples=examples(200))
@given(
    values=st.lists(st.integers(-(1 << 20), 1 << 20), min_size=1, max_size=30),
    width=st.integers(2, 16),
)
def test_steps_lose_least_of_all_powers_of_two(values: list[int], width: int) -> None:
    x = np.asarray(values)
    found = Steps.of(x, width, signed=True)
    codes = found.codes(x)
    top = (1 << width - 1) - 1
    assert np.abs(codes).max() <= top
    lost = np.square((codes << found.shift) - x, dtype=np.float64).mean()
    for shift in range(22):
        other = np.clip(np.floor(x / 2**shift + 0.5), -top, top) * 2**shift
        assert lost <= np.square(other - x).mean() * (1 + 1e-12)
