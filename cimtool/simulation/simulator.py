"""One loop over a graph: every stage, from float to crossbars, runs here on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.threads import PAIR_BLOCK, map_rows, side_by_side
from cimtool.base.untrusted import NUMBER
from cimtool.ir.arithmetic import Arrange
from cimtool.ir.integer import Dequantize, Quantize
from cimtool.ir.op import Op
from cimtool.ir.program import Graph, Node, Program, as_inputs
from cimtool.ir.types import Type, numbers_of_item, rows_of_item
from cimtool.simulation.device import Device
from cimtool.simulation.work import LITTLE, readable_work

ROW_BLOCK = 256
"""Rows of a projector that are computed at a time."""

DEVICE_BLOCKS = 16
"""Blocks per call of a device, because one block does not fill it."""

BLOCK_BYTES = 1 << 27
"""The most bytes that a projector's values take while a thread computes a block of rows."""

UNIT_COLUMNS, UNIT_ROWS = 4096, 24
"""A thread computes a unit of this many items and at least this many texts, to stay in cache."""

LEAST_COLUMNS = 64
"""A unit has this many items at least, even if a pair has many numbers."""

THREAD_ROWS = 128
"""Rows of a projector per thread and block."""

Features = Mapping[str, Array]
Result = TypeVar("Result")


class Runner:
    """Runs a graph. `fast` packs constants and picks kernels; else the readable operations run.

    If `device` is set, an integer graph runs there instead (`simulation/device.py`).
    """

    def __init__(self, graph: Graph, fast: bool = True, device: str | None = None):
        self.graph = graph
        types = graph.types
        rounds = bool(graph.operations(Quantize))
        # The contract rounds float32 inputs to integers; real graphs compute in float64.
        self._enter: Callable[[Any], Any] = (lambda value: value) if rounds else _as_float64
        self._leave: Callable[[Any, Type], Array] = lambda value, known: value
        prepare: Callable[..., Callable[..., Any]] = _readable
        if device is not None:
            backend = Device.opened(device)
            prepare, self._enter, self._leave = backend.prepare, backend.enter, backend.leave
        elif fast:
            from cimtool.simulation.kernels.operations import fast_kernel

            prepare = fast_kernel
        self.on_device = device is not None
        self.blocks = DEVICE_BLOCKS if self.on_device else 1
        self.threaded = fast and not self.on_device and _exact(graph)
        self._steps: list[Call] = []
        for node in graph.nodes:
            known = tuple(types[i] for i in node.inputs)
            self._steps += _steps(node, prepare(node.op, known, types[node.name]))
        self._last_use = {
            name: position for position, step in enumerate(self._steps) for name in step.inputs
        }

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs, by their names in the graph."""
        found = self.values(inputs, tuple(self.graph.outputs.values()))
        return {name: found[value] for name, value in self.graph.outputs.items()}

    def values(
        self,
        inputs: Mapping[str, Array],
        names: Sequence[str],
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Array]:
        """Compute named values of the graph, also inner ones. `given` comes from `derived`."""
        return _wide(self._narrow_values(inputs, names, given))

    def _narrow_values(
        self, inputs: Mapping[str, Array], names: Sequence[str], given: Mapping[str, Any]
    ) -> dict[str, Array]:
        """As `values`, but integers keep the narrow types in which they were computed or moved."""
        values = {name: self._enter(value) for name, value in inputs.items()} | dict(given)
        keep = set(names)
        for position, step in enumerate(self._steps):
            if step.name not in given:
                values[step.name] = step.kernel(*(values[i] for i in step.inputs))
            for name in set(step.inputs):
                if self._last_use[name] == position and name not in keep:
                    values.pop(name, None)
        types = self.graph.types
        return {name: self._leave(values[name], types[name]) for name in names}

    def over_blocks(
        self,
        x: Array,
        names: Sequence[str],
        seen: Callable[[dict[str, Array]], Result],
        given: Mapping[str, Array | None] = MappingProxyType({}),
    ) -> list[Result]:
        """Compute the named values block by block, and return what `seen` makes of each block.

        `x` [n, width] are embeddings. Values in `given` (all rows) are not computed again; None
        means that nothing reads the value. A floating-point product rounds differently for
        different block heights, so blocks of real numbers do not depend on the thread count.
        """
        return self._over_blocks(x, names, lambda found: seen(_wide(found)), given)

    def _over_blocks(
        self,
        x: Array,
        names: Sequence[str],
        seen: Callable[[dict[str, Array]], Result],
        given: Mapping[str, Array | None],
    ) -> list[Result]:
        """As `over_blocks`, with integers in narrow types."""
        height = block_height(self.graph, ROW_BLOCK * self.blocks, names)

        def of_block(block: slice) -> Result:
            known = {
                name: None if value is None else value[self._rows_of(name, block)]
                for name, value in given.items()
            }
            return seen(self._narrow_values({"x": x[block]}, names, known))

        if self.threaded:
            return map_rows(of_block, len(x), min(THREAD_ROWS, height))
        parts = [slice(start, start + height) for start in range(0, len(x), height)]
        if self.on_device:
            return [of_block(part) for part in parts]
        return side_by_side(of_block, parts)

    def _rows_of(self, name: str, items: slice) -> slice:
        """The rows of a value that are these items'."""
        rows, _ = rows_of_item(self.graph.types[name].shape[0])
        return slice(items.start * rows, items.stop * rows)

    def encode(self, x: Array) -> dict[str, Array]:
        """Compute a projector's outputs for embeddings `x` [n, width], in blocks of rows."""
        outputs = self.graph.outputs
        found = self.rows_of(x, list(outputs.values()))
        return {name: found[value] for name, value in outputs.items()}

    def rows_of(
        self,
        x: Array,
        names: Sequence[str],
        given: Mapping[str, Array | None] = MappingProxyType({}),
    ) -> dict[str, Array]:
        """Compute named values of a projector for embeddings `x` [n, width], in blocks of rows.

        `given` is the same as for `over_blocks`.
        """
        blocks = self._over_blocks(x, names, dict, given)
        if len(blocks) == 1:  # a copy would double the memory
            return _wide(blocks[0])
        return {name: _joined([block.pop(name) for block in blocks]) for name in names}

    def derived(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Any]:
        """Compute the values that depend on these inputs alone and that `values` needs."""
        values = {name: self._enter(value) for name, value in inputs.items()}
        rest = []
        for step in self._steps:
            if all(i in values for i in step.inputs):
                values[step.name] = step.kernel(*(values[i] for i in step.inputs))
            else:
                rest.append(step)
        needed = {name for step in rest for name in step.inputs} | set(names)
        unused = {step.name: None for step in self._steps if step.name in values}
        return unused | {name: value for name, value in values.items() if name in needed}


def _exact(graph: Graph) -> bool:
    """True if all values before the final scale are integers, so block heights do not matter."""
    nodes = (node for node in graph.nodes if not isinstance(node.op, Arrange | Dequantize))
    return all(graph.types[node.name].is_integer for node in nodes)


@dataclass(frozen=True)
class Call:
    """One step of a runner: the value's name, its inputs, and the kernel that computes it."""

    name: str
    inputs: tuple[str, ...]
    kernel: Callable[..., Any]


def _steps(node: Node, kernel: Callable[..., Any]) -> list[Call]:
    """The calls of a node. A kernel that packs its last input needs a separate call for it."""
    pack = getattr(kernel, "pack", None)
    if pack is None:
        return [Call(node.name, node.inputs, kernel)]
    *others, last = node.inputs
    packed = f"{last} packed for {node.name}"
    return [Call(packed, (last,), pack), Call(node.name, (*others, packed), kernel)]


def _as_float64(value: Array) -> Array:
    return value.astype(np.float64, copy=False) if value.dtype.kind == "f" else value


def _as_int64(value: Array) -> Array:
    return value.astype(np.int64, copy=False) if value.dtype.kind in "iu" else value


def _wide(values: Mapping[str, Array]) -> dict[str, Array]:
    """The values with all integers as int64."""
    return {name: _as_int64(value) for name, value in values.items()}


def _joined(parts: Sequence[Array]) -> Array:
    """Join blocks of rows into one array; integers become int64 in the same copy."""
    return np.concatenate(parts, dtype=np.int64 if parts[0].dtype.kind in "iu" else None)


def live_numbers(graph: Graph, kept: Sequence[str] = ()) -> int:
    """The most numbers per item that a runner of a projector holds at once.

    A value is freed after its last use unless it is an output or in `kept`.
    """
    numbers = {name: numbers_of_item(known.shape) for name, known in graph.types.items()}
    last = {name: place for place, node in enumerate(graph.nodes) for name in node.inputs}
    stays = {*kept, *graph.outputs.values()}
    held = most = sum(numbers[name] for name in graph.inputs)
    for place, node in enumerate(graph.nodes):
        held += numbers[node.name]
        most = max(most, held)
        freed = {name for name in node.inputs if last[name] == place} - stays
        held -= sum(numbers[name] for name in freed)
    return most


def block_height(graph: Graph, height: int, kept: Sequence[str] = ()) -> int:
    """Rows per block of a projector: `height`, or fewer if items are very large."""
    return max(1, min(height, BLOCK_BYTES // (NUMBER * live_numbers(graph, kept))))


def _readable(op: Op, types: object, known: object) -> Callable[..., Array]:
    return op.run


def run_rows(graph: Graph, x: Array) -> dict[str, Array]:
    """Compute a projector's outputs [n, width] with the readable operations, in blocks of rows."""
    return Runner(graph, fast=False).encode(x)


class Simulator:
    """Encodes items and scores pairs with a program of any stage.

    A graph is prepared when it is first used. If `little` is set, its readable operations run as
    long as all that was asked of it is little work: kernels may have to be compiled first.
    """

    def __init__(
        self,
        program: Program,
        fast: bool = True,
        device: str | None = None,
        *,
        little: bool = False,
    ):
        self.program = program
        self._graphs = {graph.name: graph for graph in program.graphs}
        self._runners: dict[tuple[str, bool], Runner] = {}
        self._fast, self._device = fast, device
        self._work: dict[str, int] | None = {} if little and fast and device is None else None

    def runner(self, name: str, **items: int) -> Runner:
        """The runner of the graph with this name, for so many items `n`, and `m` of pairs."""
        graph, fast = self._graphs[name], self._fast
        if self._work is not None:
            self._work[name] = self._work.get(name, 0) + readable_work(graph, items)
            fast = self._work[name] > LITTLE
        if (name, fast) not in self._runners:
            self._runners[name, fast] = Runner(graph, fast, self._device)
        return self._runners[name, fast]

    def encode(self, modality: str, x: Array) -> dict[str, Array]:
        """Compute features of embeddings `x` [n, width] of one modality, in blocks of rows."""
        return self.runner(modality, n=len(x)).encode(x)

    def values(self, modality: str, x: Array, names: Sequence[str]) -> dict[str, Array]:
        """Compute named inner values of one projector for embeddings `x`, in blocks of rows."""
        return self.runner(modality, n=len(x)).rows_of(x, names)

    def score(
        self,
        text: Features,
        video: Features | None = None,
        kind: type[np.float64] | type[np.float32] = np.float64,
    ) -> Array:
        """`logit` [n, m] of all pairs, computed in blocks of text rows.

        Compiled logits are exact in float32 too, which takes half the memory.
        """
        logits = np.empty((len(text["mu"]), self.columns(video)), kind)
        for rows, part in self.iter_score(text, video):
            logits[rows] = part["logit"]
        return logits

    def iter_score(
        self, text: Features, video: Features | None = None, names: Sequence[str] | None = None
    ) -> Iterator[tuple[slice, dict[str, Array]]]:
        """Yield (text rows, their scores against all videos) block by block, to bound memory.

        If `names` is set, these inner values are yielded in place of the outputs. If the program
        holds a gallery, `video` is ignored.
        """
        columns, gallery = self.columns(video), {}
        if self.program.gallery_items is None and video is not None:
            gallery = as_inputs("video", video)
        yield from self._iter_pairs("score", text, gallery, columns, names)

    def columns(self, video: Features | None) -> int:
        """Count the items that texts are scored against: the program's gallery, else `video`."""
        held = self.program.gallery_items
        if held is not None:
            return held
        if video is None:
            raise TypeError("this program holds no gallery: it scores against given videos")
        return len(video["mu"])

    def iter_distances(self, text: Features) -> Iterator[tuple[slice, Array]]:
        """Yield (text rows, their `ed` [rows, M] to the items in the arrays of the shortlist)."""
        graph = self._graphs["shortlist"]
        (value,) = graph.outputs.values()
        columns = int(graph.types[value].shape[1])
        for block, part in self._iter_pairs("shortlist", text, {}, columns, None):
            yield block, part["ed"]

    def _iter_pairs(
        self,
        graph: str,
        text: Features,
        gallery: Features,
        columns: int,
        names: Sequence[str] | None,
    ) -> Iterator[tuple[slice, dict[str, Array]]]:
        rows = len(text["mu"])
        runner = self.runner(graph, n=rows, m=columns)
        outputs = runner.graph.outputs
        wanted = tuple(outputs.values() if names is None else names)
        shapes = [runner.graph.types[name].shape for name in wanted]
        pairs = runner.threaded and all(shape == ("n", "m") for shape in shapes)
        numbers = runner.graph.numbers_of_pair
        wide = max(columns, 1)
        if pairs and gallery:
            wide = max(UNIT_COLUMNS // numbers, LEAST_COLUMNS)
        chunks = [
            runner.derived({k: v[start : start + wide] for k, v in gallery.items()}, wanted)
            for start in range(0, columns, wide)
        ]
        most = PAIR_BLOCK * runner.blocks // numbers
        height = max(UNIT_ROWS if pairs else 1, most // max(columns, 1))
        for start in range(0, rows, height):
            block = slice(start, min(start + height, rows))

            def compute(unit: tuple[slice, dict[str, Any]]) -> dict[str, Array]:
                queries = {name: value[unit[0]] for name, value in text.items()}
                return runner.values(as_inputs("text", queries), wanted, unit[1])

            found = self._pairs(compute, block, chunks) if pairs else compute((block, chunks[0]))
            given = wanted if names is not None else tuple(outputs)
            yield block, {name: found[value] for name, value in zip(given, wanted, strict=True)}

    def _pairs(
        self,
        compute: Callable[[tuple[slice, dict[str, Any]]], dict[str, Array]],
        block: slice,
        chunks: list[dict[str, Any]],
    ) -> dict[str, Array]:
        """Score a block of texts against all chunks of the gallery, in parallel units."""
        height = UNIT_ROWS if len(chunks) > 1 else 2 * UNIT_ROWS
        starts = range(block.start, block.stop, height)
        rows = [slice(start, min(start + height, block.stop)) for start in starts]
        units = [(part, chunk) for part in rows for chunk in chunks]
        found = side_by_side(compute, units)
        count = len(chunks)
        lines = [found[i : i + count] for i in range(0, len(found), count)]
        return {
            name: np.block([[part[name] for part in line] for line in lines]) for name in found[0]
        }

    def scores(self, text: Array, video: Array) -> Array:
        """`logit` [n, m] of all pairs of embeddings."""
        return self.score(self.encode("text", text), self.encode("video", video))
