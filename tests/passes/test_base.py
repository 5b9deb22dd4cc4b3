"""Projectors whose values have very many numbers an item: fewer rows at once, or refused."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import passed

from cimtool.base import threads
from cimtool.base.errors import CimError
from cimtool.base.untrusted import memory_limited
from cimtool.bundle.serial import ConstantTable, program_text
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Arrange
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph, Program
from cimtool.passes.base import (
    LEAST_ROWS,
    MOST_BYTES,
    Job,
    both_projectors,
    require_room,
    rows_with_room,
)
from cimtool.simulation import simulator
from cimtool.simulation.simulator import (
    ROW_BLOCK,
    block_height,
    live_numbers,
    run_rows,
)


def spread(side: int) -> Graph:
    """Four numbers spread to side x side an item, of which the first four are taken."""
    builder = TowerBuilder(4)
    places = np.arange(side**2).reshape(side, side) % 4
    many = builder.add("many", Arrange(1, places), "x")
    return builder.tower(builder.add("few", Arrange(side, np.arange(4)[None, :]), many))


def job(rows: int, notes: list[str] | None = None) -> Job:
    """A job with so many calibration rows of four numbers."""
    note = ([] if notes is None else notes).append
    zeros = np.arange(rows * 4.0).reshape(rows, 4)
    settings = resolve(load_target("ideal"), None, {})
    return Job(settings, zeros, zeros, note, "cal.npz")


def test_values_are_counted_while_they_are_held() -> None:
    graph = spread(100)
    assert live_numbers(graph) == 4 + 10_000
    assert live_numbers(graph, ["x", "many", "few"]) == 4 + 10_000 + 4
    chain = TowerBuilder(4)
    value = "x"
    for i in range(5):
        value = chain.add(
            f"wide{i}", Arrange(1, np.arange(400)[None] % (4 if i == 0 else 400)), value
        )
    made = chain.tower(value)
    assert live_numbers(made) == 800
    assert live_numbers(made, [node.name for node in made.nodes]) == 5 * 400


def test_as_many_rows_as_there_is_room_for_are_taken_evenly_spaced() -> None:
    graph, numbers = spread(600), 4 + 600**2
    notes: list[str] = []
    few = rows_with_room(graph, job(1000, notes), "biases are corrected")
    assert notes == [
        f"tower: biases are corrected on {len(few)} of 1,000 rows, as many as fit in memory"
    ]
    assert len(few) == MOST_BYTES // (8 * numbers)
    steps = np.diff(few[:, 0]) / 4
    assert set(steps) == {5.0, 6.0}
    assert few[0, 0] == 0
    assert len(rows_with_room(spread(6), job(1000, notes), "")) == 1000
    assert len(notes) == 1
    with memory_limited(1 << 34):  # the same build
        np.testing.assert_array_equal(rows_with_room(graph, job(1000), ""), few)


def test_an_item_without_room_for_a_few_rows_is_refused_and_the_limit_may_be_said() -> None:
    graph = spread(2100)
    sentence = (
        r"^cal\.npz: tower\.many \(arrange\): 4,410,000 numbers per item, 4,410,004 with other "
        r"values in use, so 16 rows take 564,480,512 bytes of memory; expected at most "
        r"536,870,912, or a larger max_memory$"
    )
    with pytest.raises(CimError, match=sentence):
        require_room(graph, job(100))
    with memory_limited(1 << 30):
        require_room(graph, job(100))
        assert len(rows_with_room(graph, job(100), "")) == LEAST_ROWS
    require_room(graph, job(10))
    require_room(spread(2000), job(100))


@pytest.mark.thorough("large items")
def test_notes_on_the_text_projector_come_first_whichever_is_ready_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    text, video = (replace(spread(2), name=name) for name in ("text", "video"))
    notes, video_is_done = list[str](), threading.Event()

    def change(graph: Graph, job: Job) -> Graph:
        if graph.name == "text":
            assert video_is_done.wait(60)
        job.note(graph.name)
        video_is_done.set()
        return graph

    made = both_projectors(Program(text, video, text), job(2, notes), change)
    assert notes == ["text", "video"]
    assert [one.name for one in made] == notes


def test_rows_of_large_items_are_computed_in_smaller_blocks() -> None:
    assert block_height(spread(100), ROW_BLOCK) == ROW_BLOCK
    graph = spread(1000)
    assert block_height(graph, ROW_BLOCK) == 16
    rows = np.random.default_rng(0).normal(size=(40, 4))
    np.testing.assert_array_equal(run_rows(graph, rows)["mu"], graph.run({"x": rows})["mu"])


@pytest.mark.thorough("more of the same kind")
@pytest.mark.parametrize(
    "flags",
    [
        {"calibrator": "minmax"},
        {"calibrator": "percentile", "target": "isaac-rram-128"},
        {"calibrator": "tails", "weight_rounding": "gptq"},
    ],
    ids=["minmax", "percentile", "tails"],
)
def test_blocks_of_rows_change_no_build(
    models: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, flags: dict[str, object]
) -> None:
    def built() -> list[tuple[str, dict[str, bytes]]]:
        job = models.job(*models.data, **flags)
        texts = []
        for program in passed(models.small, job, "calibrated", "quantized", "converters fitted"):
            table = ConstantTable()
            text = program_text(program, table)
            texts.append((text, {k: v.tobytes() for k, v in table.arrays.items()}))
        return texts

    whole = built()
    monkeypatch.setattr(simulator, "ROW_BLOCK", 7)
    monkeypatch.setattr(simulator, "THREAD_ROWS", 5)
    assert built() == whole
