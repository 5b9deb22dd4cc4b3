"""Constant masks of attention: every spelling of them is what ONNX Runtime computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, helper

from cimtool.base.errors import CimError
from cimtool.ir.program import Graph
from cimtool.ir.source import Softmax
from cimtool.loading.onnx.builder import Rows
from cimtool.loading.onnx.graph import read_onnx_graph
from cimtool.loading.onnx.towers import translate

TOKENS, D = 4, 3
WIDTH = 2 * TOKENS**2
WriteOnnx = Callable[..., Path]
node = helper.make_node

CAUSAL = np.tril(np.ones((TOKENS, TOKENS), bool))
HIDDEN = np.where(CAUSAL, 0.0, -np.inf)
BIASES = -0.5 * np.abs(np.arange(TOKENS)[:, None] - np.arange(TOKENS))

CONSTANTS = {
    "scores": np.array([-1, 2, TOKENS, TOKENS]), "flat": np.array([-1, WIDTH]),
    "by_heads": np.array([-1, TOKENS, TOKENS]),
    "Wm": np.random.default_rng(2).normal(size=(WIDTH, D)),
    "causal": CAUSAL, "future": ~CAUSAL, "hidden": HIDDEN, "biases": BIASES + HIDDEN,
    "far": np.where(CAUSAL, 0.0, -1e9), "near": np.where(CAUSAL, 0.0, -100.0),
    "lowest": np.where(CAUSAL, 0.0, np.finfo(np.float32).min), "away": np.where(CAUSAL, 0.0, 1e4),
    "least": np.finfo(np.float32).min, "infinite": -np.inf, "minus": -1e4, "half": 0.5, "zero": 0.0,
    "heads": np.stack([HIDDEN, BIASES])[None], "pad": np.array([0, 0, 0, -np.inf]),
    "padded": np.array([[False, False, False, True]]), "last": np.array([-1]), "low": -2.0,
    "every": np.full((TOKENS, TOKENS), -np.inf), "one": np.array([1]), "ones": np.array([1, 1]),
    "nought": np.array([0]),
    "four": np.array([4]), "three": np.array([3]),
    "places": np.array([3, 2, 1, 0]), "largest": np.array([3]), "odd": np.array(np.nan),
}  # fmt: skip

FORMS: dict[str, list[NodeProto]] = {
    "-inf added": [node("Add", ["t", "hidden"], ["m"])],
    "-inf before": [node("Add", ["hidden", "t"], ["m"])],
    "-1e9 added": [node("Add", ["t", "far"], ["m"])],
    "float32's least added": [node("Add", ["t", "lowest"], ["m"])],
    "10,000 taken": [node("Sub", ["t", "away"], ["m"])],
    "a number too near to be a mask": [node("Add", ["t", "near"], ["m"])],
    "biases and -inf": [node("Add", ["t", "biases"], ["m"])],
    "a mask of each head": [node("Add", ["t", "heads"], ["m"])],
    "-inf chosen": [node("Where", ["future", "infinite", "t"], ["m"])],
    "scores chosen": [node("Where", ["causal", "t", "minus"], ["m"])],
    "a number chosen": [node("Where", ["causal", "t", "low"], ["m"])],
    "nothing chosen after": [
        node("Add", ["t", "hidden"], ["a"]), node("Softmax", ["a"], ["b"], axis=-1),
        node("Where", ["future", "zero", "b"], ["m"]),
    ],
    "one of two values": [
        node("Relu", ["t"], ["r"]), node("Where", ["causal", "t", "r"], ["m"]),
    ],
    "an attention sink beside masked scores": [
        node("Add", ["t", "hidden"], ["a"]), node("Slice", ["t", "nought", "one", "three"], ["k"]),
        node("Tanh", ["k"], ["sink"]), node("Concat", ["a", "sink"], ["c"], axis=3),
        node("Softmax", ["c"], ["s"], axis=3),
        node("Slice", ["s", "nought", "four", "three"], ["m"]),
    ],
    "two masks": [node("Add", ["t", "hidden"], ["a"]), node("Add", ["a", "pad"], ["m"])],
    "a mask, then a choice": [
        node("Add", ["t", "hidden"], ["a"]), node("Where", ["padded", "infinite", "a"], ["m"]),
    ],
    "scaled behind": [
        node("Where", ["future", "infinite", "t"], ["a"]), node("Mul", ["a", "half"], ["b"]),
        node("Div", ["b", "half"], ["m"]),
    ],
    "the larger of it and the least": [
        node("Add", ["t", "lowest"], ["a"]), node("Max", ["a", "least"], ["m"]),
    ],
    "less its largest": [
        node("Add", ["t", "biases"], ["a"]), node("ReduceMax", ["a"], ["l"], axes=[-1]),
        node("Sub", ["a", "l"], ["m"]),
    ],
    "values added behind": [node("Add", ["t", "hidden"], ["a"]), node("Add", ["a", "t"], ["m"])],
    "moved behind": [
        node("Add", ["t", "heads"], ["a"]), node("Reshape", ["a", "by_heads"], ["r"]),
        node("Unsqueeze", ["r", "one"], ["u"]), node("Squeeze", ["u", "one"], ["q"]),
        node("Softmax", ["q"], ["s"]), node("Reshape", ["s", "scores"], ["m"]),
    ],
    "along another axis": [
        node("Add", ["t", "hidden"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2]),
        node("Softmax", ["b"], ["m"], axis=2),
    ],
    "other places": [
        node("Add", ["t", "hidden"], ["a"]), node("Gather", ["a", "places"], ["m"], axis=3),
    ],
    "a finite one that no softmax reads": [node("Sub", ["t", "away"], ["a"]),
                                           node("Relu", ["a"], ["m"])],
}  # fmt: skip
"""Nodes from scores `t` [n, 2, 4, 4] to what is read by a softmax, `m`."""


def masks_of_file() -> dict[str, np.ndarray]:
    return {
        name: array.astype(np.float32) if array.dtype == np.float64 else array
        for name, array in ((name, np.asarray(value)) for name, value in CONSTANTS.items())
    }


def written(write_onnx: WriteOnnx, nodes: list[NodeProto]) -> Path:
    """A file of scores, these nodes, a softmax and a layer of all weights."""
    before = node("Reshape", ["x", "scores"], ["t"])
    behind = [node("Softmax", ["m"], ["p"]), node("Reshape", ["p", "flat"], ["f"])]
    mu = node("MatMul", ["f", "Wm"], ["mu"])
    logvar = node("MatMul", ["f", "Wm"], ["logvar"])
    return write_onnx([before, *nodes, *behind, mu, logvar], masks_of_file(), shape=("n", WIDTH))


def program(file: Path) -> Graph:
    return translate(read_onnx_graph(file))


@pytest.mark.parametrize("form", FORMS)
def test_a_masked_softmax_is_what_onnx_runtime_computes(write_onnx: WriteOnnx, form: str) -> None:
    file = written(write_onnx, FORMS[form])
    x = 2 * np.random.default_rng(1).normal(size=(7, WIDTH)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(["mu"], {"x": x})
    found = program(file).run({"x": x.astype(np.float64)})["mu"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def masks(graph: Graph) -> list[np.ndarray]:
    """The masks of a program's softmaxes, all that have one."""
    ops = (one.op for one in graph.nodes)
    return [op.mask for op in ops if isinstance(op, Softmax) and op.mask is not None]


def test_numbers_that_may_weigh_something_are_added(write_onnx: WriteOnnx) -> None:
    assert not masks(program(written(write_onnx, FORMS["a number too near to be a mask"])))
    (mask,) = masks(program(written(write_onnx, FORMS["biases and -inf"])))
    np.testing.assert_array_equal(mask, np.tile(HIDDEN, (2, 1)))


def test_a_mask_that_all_rows_share_is_kept_once(write_onnx: WriteOnnx) -> None:
    nodes = [node("Add", ["t", "pad"], ["m"])]
    (mask,) = masks(program(written(write_onnx, nodes)))
    np.testing.assert_array_equal(mask, CONSTANTS["pad"][None])


REFUSED = {
    "no number left": (
        [node("Add", ["t", "every"], ["m"])],
        r"\(Softmax\): has a row in which a mask leaves no number, which has no softmax",
    ),
    "a mask that depends on the input": (
        [node("Greater", ["t", "zero"], ["g"]), node("Where", ["g", "t", "infinite"], ["m"], "w")],
        r"w \(Where\): chooses by g, which depends on the input; expected a choice that is the",
    ),
    "a mask times a value": (
        [node("Add", ["t", "hidden"], ["a"]), node("Mul", ["a", "t"], ["m"], "u")],
        r"u \(Mul\): reads a mask of attention with -inf; expected a softmax of masked numbers",
    ),
    "a mask times what is below 0": (
        [node("Add", ["t", "hidden"], ["a"]), node("Mul", ["a", "low"], ["m"], "u")],
        r"u \(Mul\): reads a mask of attention with -inf; expected a softmax of masked numbers",
    ),
    "a mask that something else reads": (
        [node("Add", ["t", "hidden"], ["a"]), node("Relu", ["a"], ["m"], "r")],
        r"r \(Relu\): reads a mask of attention with -inf; expected a softmax of masked numbers",
    ),
    "a mask under a limit": (
        [node("Add", ["t", "hidden"], ["a"]), node("Max", ["a", "low"], ["m"], "l")],
        r"l \(Max\): reads a mask of attention with -inf; expected a softmax of masked numbers",
    ),
    "the largest along axes": (
        [node("Add", ["t", "hidden"], ["a"]), node("ReduceMax", ["a"], ["m"], "l", axes=[2, 3])],
        r"l \(ReduceMax\): reads a mask of attention with -inf; expected a softmax of masked",
    ),
    "what is no number": (
        [node("Add", ["t", "odd"], ["m"], "a")], r"a \(Add\): odd holds nan; expected finite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_constant_mask_is_refused(write_onnx: WriteOnnx, what: str) -> None:
    nodes, sentence = REFUSED[what]
    with pytest.raises(CimError, match=r"text\.onnx: .*" + sentence):
        program(written(write_onnx, nodes))


def test_a_mask_is_no_output(write_onnx: WriteOnnx) -> None:
    nodes = [
        *(node("Reshape", ["x", "scores"], ["t"]), node("Add", ["t", "hidden"], ["a"])),
        *(node("Reshape", ["a", "flat"], ["mu"]), node("Identity", ["x"], ["logvar"])),
    ]
    file = write_onnx(nodes, masks_of_file(), shape=("n", WIDTH))
    with pytest.raises(CimError, match=r"mu is an attention mask; expected a softmax of the m"):
        program(file)


def test_masks_that_are_added_again_and_again_take_one_step_each(write_onnx: WriteOnnx) -> None:
    doubled = [node("Add", [f"a{i}", f"a{i}"], [f"a{i + 1}"]) for i in range(1500)]
    lower = [node("Add", [f"a{i}", "far"], [f"a{i + 1}"]) for i in range(1500)]
    halves = [node("Mul", ["a60", "half"], ["m"])]
    first = node("Add", ["t", "hidden"], ["a0"])
    (mask,) = masks(program(written(write_onnx, [first, *doubled[:60], *halves])))
    np.testing.assert_array_equal(mask, np.tile(HIDDEN, (2, 1)))
    many = [first, *lower, node("Identity", ["a1500"], ["m"])]
    (mask,) = masks(program(written(write_onnx, many)))
    np.testing.assert_array_equal(mask, np.tile(HIDDEN, (2, 1)))


ITEMS = 7
"""A prime that is no extent of an item's."""


def whole(view: Rows, values: np.ndarray) -> np.ndarray:
    """The numbers [..., of all items, ...] that a view has of values [items, numbers]."""
    after = view.extents[view.items] // view.before
    shape = view.extents
    apart = view.places.reshape(*shape[: view.items], view.before, after, *shape[view.items + 1 :])
    taken = values[:, apart]
    moved = np.moveaxis(taken, 0, view.items + 1)
    return moved.reshape(view.sizes(ITEMS))


@pytest.mark.parametrize("seed", range(30))
def test_moves_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    view, values = Rows.in_order("x", (1, 24)), rng.normal(size=(ITEMS, 24))
    wanted = values
    for _ in range(40):
        match rng.integers(6):
            case 0:
                order = [int(i) for i in rng.permutation(view.rank)]
                view, wanted = view.reordered(order), wanted.transpose(order)
            case 1:
                sizes = [2, 3, 4, ITEMS]
                joined = int(rng.integers(3))
                rng.shuffle(sizes)
                sizes[joined : joined + 2] = [sizes[joined] * sizes[joined + 1]]
                found = view.reshaped(sizes, ITEMS)
                if found is not None and view.size == 24:
                    view, wanted = found, wanted.reshape(sizes)
            case 2 if view.rank < 6:
                axis = int(rng.integers(view.rank + 1))
                view, wanted = view.expanded(axis), np.expand_dims(wanted, axis)
            case 3:
                ones = [i for i, n in enumerate(wanted.shape) if n == 1]
                if ones:
                    view, wanted = view.squeezed(ones[0]), wanted.squeeze(ones[0])
            case 4:
                axis = int(rng.integers(view.rank))
                if axis != view.items:
                    places = rng.permutation(wanted.shape[axis])
                    view, wanted = view.taken(axis, places), np.take(wanted, places, axis)
            case 5:
                axis = int(rng.integers(view.rank))
                order = view.last(axis)
                assert view.reordered(order).back(order).alike(view)
        np.testing.assert_array_equal(whole(view, values), wanted)
    assert view.covers(24)


def test_a_reshape_that_mixes_items_is_none() -> None:
    view = Rows.in_order("x", (4, 1, 6), 1)
    assert view.reshaped([ITEMS, 24], ITEMS) is None
    assert view.reshaped([4, ITEMS, 5], ITEMS) is None
    joined = view.reshaped([4 * ITEMS, 6], ITEMS)
    assert joined is not None
    assert (joined.text, joined.before) == ("[4n, 6]", 4)
