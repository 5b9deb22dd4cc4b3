"""Program a gallery: the score with the videos as constants, its products on crossbars.

Values that depend on the videos alone are computed once. The products of a query with an item's
stored features become crossbar products, one column per item. Self terms are constants of digital
sums:

    vd = .. + (4 s_t + mu_t^2 / u).s_v + .. - 8 (mu_t s_t).mu_v - 8 mu_t.(mu_v s_v)

Two queries that drive the same cells are added first, if that takes no more input bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.hardware.bounds import lossless
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.figures import SettableReference
from cimtool.hardware.keys import ScoreMapping
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import LEFT_OUT, ProductBits, Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Add, MatMul
from cimtool.ir.backends import GALLERY
from cimtool.ir.format import round_half_up
from cimtool.ir.heads import Head
from cimtool.ir.integer import Requant
from cimtool.ir.op import Op
from cimtool.ir.program import Builder, Graph, Node, Program, as_inputs, keep, rewrite_each
from cimtool.passes.bias_correction import output_of
from cimtool.passes.converters import FIT_ROWS, fit_references
from cimtool.passes.formats import refit
from cimtool.passes.product_bits import ProductExamples, Steps
from cimtool.simulation.simulator import Runner

FIT_ITEMS = 1024
"""Items whose column sums decide a converter's step; more of them would not move it."""

DEFAULT_SHORTLIST = 100
"""Default length of a hybrid score's shortlist; all items of a smaller gallery."""

DISTANCE, COSINE = "ed", "cosine"
"""The statistics by which a shortlist is drawn up: the first, or the product of the second."""

SHORTLIST, SHORTLIST_PRODUCT = "shortlist", "mu.mu"
"""The graph that draws one up, and the product in it that the statistic adds."""

COMPONENTS = "components"
"""The product before it, of a query with the map to fewer dimensions; it stores no items."""

PRODUCT_LAYER, COMPONENTS_LAYER = f"{SHORTLIST}.{SHORTLIST_PRODUCT}", f"{SHORTLIST}.{COMPONENTS}"
"""The layers of this graph."""


@dataclass(frozen=True)
class ShortlistBits:
    """Bits in which an item stores each value (1: its sign), and bits of a query.

    With `dimensions` the values are this many components of `mu`, else `mu` itself.
    """

    item: int
    query: int
    dimensions: int | None = None

    def __str__(self) -> str:
        values = "mu" if self.dimensions is None else f"{self.dimensions} components"
        return f"items of {self.item} bits of {values} with queries of {self.query}"


def score_layers(head: Head, mapping: ScoreMapping) -> tuple[str, ...]:
    """Names by which settings address the products that a gallery puts on crossbars."""
    if mapping == "hybrid":
        return PRODUCT_LAYER, COMPONENTS_LAYER
    return tuple(f"score.{name}" for name in head.products) if mapping == "in-memory" else ()


def check_mapped(head: Head, program: Program, mapping: ScoreMapping) -> None:
    """Raise CimError if a score has an operation of query and item without a rule for arrays."""
    score = distance_graph(program.score) if mapping == "hybrid" else program.score
    fixed = set(as_inputs("video", program.video.outputs))
    for node in score.nodes:
        known = [name in fixed for name in node.inputs]
        if all(known):
            fixed.add(node.name)
        elif any(known) and GALLERY.find(type(node.op)) is None:
            raise CimError(
                f'score_mapping = {mapping}: head "{head.name}" computes {node.op.name} of a query '
                'and an item, which no array can; expected "digital"'
            )


def distance_graph(score: Graph) -> Graph:
    """The part of a compiled score that computes `ed` [n, m].

    Of a score whose one product is `mu.mu`, or which uses it as its `cosine`, it is -2 mu.mu, the
    squared distance of unit rows less 2. CimError for other scores without `ed`.
    """
    products = [name for name, op in score.operations(MatMul).items()]
    if DISTANCE in score.by_name:
        part = replace(score, name=SHORTLIST, outputs={DISTANCE: DISTANCE}).pruned()
    elif products == [SHORTLIST_PRODUCT] or COSINE in score.by_name:
        builder = Builder(SHORTLIST, score.inputs)
        node = score.by_name[SHORTLIST_PRODUCT]
        product = keep(builder, node.op, node, node.inputs)
        doubled = Add((np.asarray(-2),), np.asarray(0), builder.types[product].scale)
        part = builder.graph({DISTANCE: builder.add(DISTANCE, doubled, product)})
    else:
        raise CimError(
            "score_mapping = hybrid: the score does not use ed, by which items are "
            'shortlisted; expected "in-memory" or "digital"'
        )
    used = {name for node in part.nodes for name in node.inputs}
    return replace(part, inputs={k: known for k, known in part.inputs.items() if k in used})


def program_gallery(
    score: Graph,
    video: Mapping[str, Array],
    settings: Settings,
    examples: ProductExamples | None = None,
) -> Graph:
    """Rebuild a compiled score for fixed items: it takes the text features alone.

    `video` are the items' integer features (`mu`, `s` [M, d], self terms [M]). Converters are
    still lossless, so the result is `score`'s, bit for bit, except for products whose bits the
    settings give: these are fitted on `examples`. Without examples there are none. Raises CimError
    if an array cannot hold one value, sums do not fit the accumulator, or every product
    is left out.
    """
    graph = Programmer(score, video, settings, examples).graph()
    if not graph.operations(CrossbarMvm):
        raise CimError(
            "settings: weight_bits = 0 leaves out every product of the score, so nothing of an "
            "item is stored; expected at least one product with bits"
        )
    return graph


@dataclass(frozen=True)
class Product:
    """A product of a query and items: its name, both values, and its bits."""

    name: str
    query: str
    items: str
    bits: ProductBits


class Programmer:
    """One walk over a score: `fixed` are the values of the items, `mapped` those of a query."""

    def __init__(
        self,
        score: Graph,
        video: Mapping[str, Array],
        settings: Settings,
        examples: ProductExamples | None,
    ):
        self.score, self.settings, self.examples = score, settings, examples
        items = as_inputs("video", video)
        self.fixed = {name: value for name, value in items.items() if name in score.inputs}
        inputs = {name: known for name, known in score.inputs.items() if name not in self.fixed}
        self.builder = Builder(score.name, inputs)
        self.mapped = {name: name for name in inputs}
        self.products: dict[str, tuple[str, str]] = {}
        self.weights: dict[tuple[str, int | None], tuple[IntArray, int]] = {}
        self.stored: dict[tuple[str, int | None, Crossbar], StoredWeights] = {}

    def graph(self) -> Graph:
        """The rebuilt score."""
        for node in self.score.nodes:
            self._node(node)
        outputs = self.score.outputs
        return self.builder.graph({name: self._value(value) for name, value in outputs.items()})

    def _node(self, node: Node) -> None:
        known = [name in self.fixed for name in node.inputs]
        if all(known):
            self.fixed[node.name] = node.op.run(*(self.fixed[name] for name in node.inputs))
        elif any(known) or GALLERY.find(type(node.op)):
            GALLERY.of(node.op)(self, node.op, node)
        else:
            inputs = (self._value(name) for name in node.inputs)
            self.mapped[node.name] = self.builder.add(node.name, node.op, *inputs)

    @GALLERY.rule(MatMul)
    def product(self, op: MatMul, node: Node) -> None:
        """A product of a query and items is mapped where it is read."""
        query, items = node.inputs
        if query in self.fixed or items not in self.fixed:
            raise TypeError(f"{node.name}: expected the product of a query and an item")
        self.products[node.name] = (query, items)

    @GALLERY.rule(Add)
    def sum(self, op: Add, node: Node) -> None:
        """Items' terms go into the constant, products of one matrix are driven together."""
        offset = op.offset
        terms: list[tuple[Array, str]] = []
        driven: dict[str, list[tuple[Array, str]]] = {}
        for factor, name in zip(op.factors, node.inputs, strict=True):
            if name in self.fixed:
                offset = offset + np.ravel(factor * self.fixed[name])
            elif name in self.products:
                driven.setdefault(self.products[name][1], []).append((factor, name))
            else:
                terms.append((factor, self._value(name)))
        for same in driven.values():
            for factor, product in self._together(same):
                if product.bits.item == LEFT_OUT:
                    offset = offset + factor * self._mean(self._total(product))
                else:
                    terms.append((factor, self._crossbar(product)))
        factors = tuple(factor for factor, _ in terms)
        summed = Add(factors, offset, op.scale)
        values = (value for _, value in terms)
        self.mapped[node.name] = self.builder.add(node.name, summed, *values)

    def _together(self, same: list[tuple[Array, str]]) -> list[tuple[Array, Product]]:
        """One product in place of those that share a matrix, unless that costs more bits."""
        alone = [(factor, self._product(name)) for factor, name in same]
        factors = [int(factor) for factor, _ in same]
        common = math.gcd(*factors)
        if len(same) == 1 or not common:
            return alone
        queries = [product.query for _, product in alone]
        known = [self.builder.types[query] for query in queries]
        shares = tuple(np.asarray(factor // common) for factor in factors)
        unit = known[0].unit / abs(int(shares[0]))
        query = Add(shares, np.asarray(0), unit)
        if query.infer(*known).bits > sum(one.bits for one in known):
            return alone
        name = "_".join(name for _, name in same)
        wide = self.builder.add(f"{name}.query", query, *queries)
        items = alone[0][1].items
        return [(np.asarray(common), Product(name, wide, items, self._bits(name)))]

    def _value(self, name: str) -> str:
        if name not in self.mapped:
            product = self._product(name)
            if product.bits.item == LEFT_OUT:
                raise CimError(
                    f"settings: weight_bits = 0 leaves out {self.builder.name}.{name}, which the "
                    "score does not add to others; expected at least 2 bits"
                )
            self.mapped[name] = self._crossbar(product)
        return self.mapped[name]

    def _product(self, name: str) -> Product:
        query, items = self.products[name]
        return Product(name, self._value(query), items, self._bits(name))

    def _bits(self, name: str) -> ProductBits:
        if self.examples is None:
            return ProductBits()
        return self.settings.product_bits(f"{self.builder.name}.{name}")

    def _crossbar(self, product: Product) -> str:
        """The product in arrays, in as many slices and cycles as its values need."""
        layer = f"{self.builder.name}.{product.name}"
        weight, down = self._stored(product)
        bits = max(2, int(np.abs(weight).max()).bit_length() + 1)
        own = self.settings.of_layer(layer).with_weights(bits)
        try:
            own.check_hardware()
        except ValueError as error:
            raise CimError(f"{layer}: {error}") from None
        driven, narrowed = self._driven(product)
        known = self.builder.types[driven]
        crossbar = own.crossbar(own.input_code(known))
        key = product.items, product.bits.item, crossbar
        stored = self.stored.setdefault(key, StoredWeights(weight, crossbar))
        unit = known.unit * self.score.types[product.items].unit * 2**down
        bias = np.zeros(weight.shape[1], np.int64)
        op = CrossbarMvm(stored, bias, unit, crossbar.no_references)
        found = self.builder.add(product.name, op, driven)
        if product.bits == ProductBits():
            return found
        shift = narrowed + down
        lost = self._total(product) - (self._examples_of(driven).sum(axis=0) @ weight << shift)
        rescaled = Add((np.asarray(1 << shift),), self._mean(lost), unit / 2**shift)
        return self.builder.add(f"{product.name}.rescaled", rescaled, found)

    def _total(self, product: Product) -> IntArray:
        """The sum of a product [M] over the queries of the examples."""
        total: IntArray = self._examples_of(product.query).sum(axis=0) @ self.fixed[product.items].T
        return total

    def _mean(self, total: IntArray) -> IntArray:
        """The mean over the queries of the examples, of halves the larger."""
        assert self.examples is not None
        return (2 * total + self.examples.queries) // (2 * self.examples.queries)

    def _stored(self, product: Product) -> tuple[IntArray, int]:
        """The stored values of the items [K, M], and the power of two that they count in."""
        key = items, bits = product.items, product.bits.item
        if key not in self.weights:
            weight, shift = np.ascontiguousarray(self.fixed[items].T), 0
            if bits is not None:
                assert self.examples is not None
                known = replace(self.score, outputs={items: items})
                steps = Steps.of(self.examples.values(known), bits, signed=True)
                weight, shift = steps.codes(weight), steps.shift
            self.weights[key] = weight, shift
        return self.weights[key]

    def _driven(self, product: Product) -> tuple[str, int]:
        """The value that drives the arrays, and the power of two that it counts in."""
        known, bits = self.builder.types[product.query], product.bits.query
        if bits is None or bits >= known.bits:
            return product.query, 0
        steps = Steps.of(self._examples_of(product.query), bits, known.signed)
        return steps.requant(self.builder, f"{product.name}.driven", product.query), steps.shift

    def _examples_of(self, value: str) -> IntArray:
        """A value [rows, K] of the queries of the examples."""
        assert self.examples is not None
        return self.examples.values(self.builder.graph({value: value}))


def fit_gallery(
    graph: Graph,
    queries: Mapping[str, Array],
    right: Graph | None = None,
    settable: Sequence[SettableReference] = (),
) -> Graph:
    """Return a programmed graph with every converter set that is not provably lossless.

    `queries` are text features of calibration rows. As in a layer, the steps have the least error
    at the output, and the digital bias takes off each column's mean error. `right` is the same
    score, programmed for the queries' right items: their sums are the largest, and steps must leave
    room for them. References are set if they are `settable`. Raises CimError if the errors of
    converters no longer fit the accumulator.
    """
    layers = graph.operations(CrossbarMvm)
    if all(op.crossbar.law is None for op in layers.values()):
        return graph
    names = dict.fromkeys(n for layer in layers for n in (layer, *graph.by_name[layer].inputs))
    values = Runner(graph).values(as_inputs("text", queries), list(names))

    def fitted(node: Node) -> Node:
        op = layers.get(node.name)
        if op is None or op.crossbar.law is None:
            return node
        x = values[node.inputs[0]]
        known = None if right is None else right.by_name[node.name].op
        converted = _with_references(op, x[:FIT_ROWS], known, settable)
        if converted.exact:
            return node
        error = values[node.name] - output_of(converted, graph, node, x)
        bias = op.bias + round_half_up(error.mean(axis=0))
        return replace(node, op=replace(converted, bias=bias))

    changed = replace(graph, nodes=tuple(map(fitted, graph.nodes)))
    return rewrite_each(changed, Requant, refit)


def _with_references(
    op: CrossbarMvm, x: IntArray, right: Op | None, settable: Sequence[SettableReference]
) -> CrossbarMvm:
    """The product with references fitted on inputs `x` [n, K], some items and the right ones.

    Every item is a column, which an offset of its own would have to be fitted to: offsets are those
    of slices.
    """
    items = op.weight.shape[1]
    some = np.unique(np.linspace(0, items - 1, min(items, FIT_ITEMS)).astype(np.int64))
    weight = op.weight[:, some]
    if isinstance(right, CrossbarMvm):
        top = (1 << op.crossbar.weights.bits - 1) - 1
        weight = np.hstack([weight, np.clip(right.weight, -top, top)])
    stored = StoredWeights(weight, op.crossbar)
    sample = replace(op, stored=stored, bias=np.zeros(weight.shape[1], np.int64))
    scope = replace(op.crossbar.scope, columns=False, cycles=False)
    found = fit_references(sample, x, scope, settable)
    # What no column of the sample can clip may still be clipped in another, or the reverse.
    finest = op.crossbar.finest_references
    references = tuple(
        None if lossless(column.bounds, op.crossbar, op.weight.shape[0]) else one or finest
        for one, column in zip(found, op.layer.columns, strict=True)
    )
    return replace(op, references=references)
