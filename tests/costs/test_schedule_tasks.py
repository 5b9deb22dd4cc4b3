"""The tasks of graphs: which wait for which, what they hold, and what loads hold of layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from quantities import known

from cimtool.bundle.bundle import read_bundle
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.costs.schedule import Resource
from cimtool.costs.schedule_batch import PARTS, key_of
from cimtool.costs.schedule_once import once
from cimtool.costs.schedule_tasks import (
    DIGITAL,
    DRAM,
    LOADED,
    WaveKey,
    in_order,
    loads_of,
    shared_arrays,
)
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.placement import Placement, floorplan
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.program import Program

FullSize = Callable[[Target], Program]


def estimated(full_size: FullSize, name: str, **changed: object) -> Estimate:
    target = load_target(name).model_copy(update=changed)
    settings = resolve(target, None, {})
    return estimate(full_size(target), Configuration(target, settings), ScoredQuery(1024))


def test_layers_wait_for_their_inputs_and_hold_their_arrays(small_bundle: Path) -> None:
    found = bundle_cost(read_bundle(small_bundle), 1)
    tasks = found.work(found.program.text).tasks(WaveKey())
    layers = ["text.fc1", "text.fc2", "text.logvar", "text.mu"]
    products = {task.name: index for index, task in enumerate(tasks) if task.name in layers}
    assert sorted(products) == layers
    for name, index in products.items():
        time = known(found.layers[name].latency_ns)
        assert tasks[index].holds == ((Resource(name), round(time * 1e9)),)
    assert {r for task in tasks for r, _ in task.holds} == {DIGITAL, *map(Resource, products)}

    def before(position: int) -> set[int]:
        return {one for p in tasks[position].after for one in (p, *before(p))}

    first, second, *heads = (products[name] for name in layers)
    assert first in before(second)
    assert all(second in before(head) for head in heads)
    # The heads take other codes of the same values, which the digital unit rounds in turn.
    starts = once(tasks).starts
    assert abs(starts[heads[0]] - starts[heads[1]]) < tasks[heads[0]].ticks


def test_all_tiles_are_loaded_once_and_multiplied_once_an_item(full_size: FullSize) -> None:
    found = estimated(full_size, "dcim-28nm-isscc23")
    work = found.work(found.program.text)
    for parts in (1, 2, 4):
        loads = list(loads_of(work, 8 // parts))
        assert len(loads) == 1280 * parts
        bits = sum(place.held_bits for place in work.streamed)
        assert sum(load.bits for load in loads) == pytest.approx(bits)
        tasks = work.tasks(WaveKey(3, parts))
        reads = sum(n for task in tasks for r, n in task.holds if r == DRAM)
        assert reads / 1e9 == pytest.approx(bits / 8 / 25.6)
        # 4 cycles at 182 MHz for three items, in each load.
        spent = [task for task in tasks if task.buffer and not task.shared]
        assert {task.ticks for task in spent} == {round(4 * 1e12 / 182) * 3}
        assert len(spent) == len(loads)
    # A part is loaded again when its products are done.
    loads_at = [index for index, task in enumerate(tasks) if task.name == "load"]
    for turn, position in enumerate(loads_at):
        (buffer,) = {tasks[position].buffer}
        assert buffer == Resource(LOADED, 1 + turn % 4)
        before = [tasks[after] for after in tasks[position].after]
        assert len(before) == (turn >= 4)
        assert all(one.buffer == buffer and not one.shared for one in before)


def test_a_wave_in_groups_takes_the_same_time_of_every_resource(full_size: FullSize) -> None:
    found = estimated(full_size, "metis-dcim-12nm")
    work = found.work(found.program.text)
    held = []
    for groups in (1, 4):
        times: dict[Resource, int] = {}
        for task in work.tasks(WaveKey(10, 2, groups)):
            for resource, ticks in task.holds:
                times[resource] = times.get(resource, 0) + ticks
        held.append(times)
    assert held[0] == held[1]


def test_parts_are_tried_until_their_reads_alone_take_as_long(full_size: FullSize) -> None:
    found = estimated(full_size, "dcim-28nm-isscc23")
    work = found.work(found.program.text)
    asked: list[int] = []

    def chosen(*shares: float) -> int:
        """The parts if the wave takes these shares of its reads with 2, 1, 4 and 8 of them."""
        of_parts = dict(zip(PARTS, shares, strict=True))
        asked.clear()

        def length(key: WaveKey) -> float:
            asked.append(key.parts)
            return of_parts[key.parts] * work.read_ticks

        return key_of(work, 1, length).parts

    assert chosen(3, 4, 2, 1.5) == 8
    assert chosen(3, 2.98, 2.99, 2.98) == 2  # none gains a hundredth
    assert set(asked) == set(PARTS)
    assert chosen(1, 0.5, 0.5, 0.5) == 2
    assert set(asked) == {2}  # no schedule is shorter than its reads


def place(layer: str, arrays: int) -> Placement:
    return Placement(
        "text", layer, 8 * arrays, 8, 8, 8, "twos-complement", "offset", 1, 1, 1, 1, 1, arrays, 1,
        8, 8, 8, 0, 0, 512, None, (None,),
    )  # fmt: skip


def test_layers_that_lie_in_the_same_arrays_hold_them_in_turn() -> None:
    target = load_target("c2c-22nm-intel")  # one array of eight sets of weights
    layers = [place("text.a", 5), place("text.b", 3), place("text.c", 4)]
    four = target.model_copy(update={"chip": target.hierarchy.model_copy(update={"cores": 4})})
    plan = floorplan(layers, four)
    assert plan.resident
    # Tiles 0 to 4 are in arrays 0 to 3 and 0 again, 5 to 7 in 1 to 3, 8 to 11 in all.
    held = shared_arrays(layers, plan)
    assert held["text.a"] == held["text.c"]
    assert set(held["text.b"]) < set(held["text.a"])
    assert Resource("arrays 1 to 1") in set(held["text.a"]) - set(held["text.b"])
    # With room for all, each has its own.
    more = target.model_copy(update={"chip": target.hierarchy.model_copy(update={"cores": 12})})
    assert shared_arrays(layers, floorplan(layers, more)) == {
        one.layer: (Resource(one.layer),) for one in layers
    }


def test_nodes_keep_their_order_if_no_loaded_cells_are_shared(full_size: FullSize) -> None:
    found = estimated(full_size, "dcim-28nm-isscc22")
    work = found.work(found.program.text)
    assert in_order(work) == found.program.text.nodes
