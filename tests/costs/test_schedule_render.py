"""A batch in words, in tables and as a picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace

import pytest
from quantities import known

from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.costs.schedule_picture import chips_of, panel, schedule_svg
from cimtool.costs.schedule_render import (
    batch_sentence,
    occupancy_table,
    rate_range,
    residents_sentence,
    schedule_table,
)
from cimtool.costs.totals import Quantity
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.program import Program

FullSize = Callable[[Target], Program]
SVG = "{http://www.w3.org/2000/svg}"


def estimated(full_size: FullSize, name: str, batch: int = 1, cores: int | None = None) -> Estimate:
    target = load_target(name)
    program = full_size(target)
    if cores is not None:
        chip = target.hierarchy.model_copy(update={"cores": cores})
        target = target.model_copy(update={"chip": chip})
    build = Configuration(target, resolve(target, None, {}))
    return replace(estimate(program, build, ScoredQuery(1024)), batch=batch)


def test_a_pipeline_in_a_sentence(full_size: FullSize) -> None:
    found = estimated(full_size, "isaac-rram-128")
    video = found.schedules["video"]
    longest = max(one.item_ns for one in video.occupancy)
    assert video.per_second.value == pytest.approx(1e9 / longest)
    assert batch_sentence(found) == (
        f"{1e9 / longest:,.0f} videos per second ({rate_range(video)}), "
        f"{known(found.video.latency_ns) / longest:.3g} times as many as one after another; the "
        "digital unit limits it"
    )
    many = estimated(full_size, "isaac-rram-128", 1000)
    assert batch_sentence(many).startswith("1,000 videos in 1.47")
    assert "share a load" not in batch_sentence(many)


def test_a_batch_that_shares_its_loads_says_so(full_size: FullSize) -> None:
    found = estimated(full_size, "metis-dcim-12nm", 32)
    assert batch_sentence(found).endswith("; 32 share a load")
    one, many = known(found.text.energy_pj), known(found.schedules["text"].energy_pj)
    loads = sum(place.held_bits for place in found.placements if place.graph == "text")
    unit = found.rates.prices.unit("dram")
    assert unit is not None
    assert one - many > 31 / 32 * loads * unit.value
    rows = {row.cells[0].text: row.cells[1].text for row in schedule_table(found).rows}
    assert rows["items that share a load"] == "32"


def test_layers_that_stay_are_named(full_size: FullSize) -> None:
    found = estimated(full_size, "metis-dcim-12nm", cores=70)
    assert found.floorplan.kept
    assert residents_sentence(found).startswith(f"{found.floorplan.kept[0]}, ")
    assert residents_sentence(found).endswith(f"are loaded into {found.floorplan.streaming}")
    assert residents_sentence(estimated(full_size, "metis-dcim-12nm")) == ""


def test_times_that_are_not_known_give_no_throughput(full_size: FullSize) -> None:
    found = estimated(full_size, "sonos-40nm", 4)
    one = found.schedules["text"]
    assert (one.per_second.value, one.latency_ns.missing) == (None, ("arrays",))
    assert batch_sentence(found) == ""
    rows = {row.cells[0].text: row.cells[1].text for row in schedule_table(found).rows}
    assert rows["per second"] == "not given"
    assert rows["batch of 4"].startswith("> ")
    assert (rows["bound by"], one.occupancy) == ("-", ())
    assert "There is no schedule: a time is not known." in schedule_svg(found, "x")


def test_every_part_has_a_row(full_size: FullSize) -> None:
    found = estimated(full_size, "metis-dcim-12nm", 4)
    rows = [[cell.text for cell in row.cells] for row in occupancy_table(found).rows]
    parts = {"digital unit", "DRAM channel", "write ports", "loaded arrays"}
    assert len(rows) == 2 * len(parts)
    assert {row[1] for row in rows} == parts
    assert all(0 < one.share <= 1 for s in found.schedules.values() for one in s.occupancy)


@pytest.mark.parametrize(("name", "batch"), [("isaac-rram-128", 3), ("metis-dcim-12nm", 2)])
def test_a_picture_shows_each_task(full_size: FullSize, name: str, batch: int) -> None:
    found = estimated(full_size, name, batch)
    text = schedule_svg(found, "a < b & c")
    root = ElementTree.fromstring(text)
    title = root.find(f"{SVG}title")
    assert title is not None
    assert (title.text or "") == "Schedule of a < b & c"
    assert len(text) < 400_000
    words = [one.text or "" for one in root.iter(f"{SVG}text")]
    assert "digital unit" in words
    assert any(word.startswith(f"text: {batch} items in ") for word in words)
    box = re.fullmatch(r"0 0 960 (\d+)", root.get("viewBox", ""))
    assert box is not None
    drawn = panel(found, "text", found.schedules["text"])
    if name == "isaac-rram-128":
        (row,) = [n for n, label in enumerate(drawn.rows) if label.startswith("text.fc1, ")]
        spans = [span for (at, _), spans in drawn.bars.items() if at == row for span in spans]
        assert [round(end - begin) for begin, end in spans] == [800] * batch


def test_a_layer_names_its_chips(full_size: FullSize) -> None:
    found = estimated(full_size, "hermes-pcm-14nm")
    layers = [one for one in found.placements if one.shares is None]
    # 32, 64, 32 and 32 arrays a side, 64 a chip.
    chips = chips_of(layers, found.floorplan)
    assert chips["text.fc1"] == ", chip 1"
    assert chips["text.fc2"] == ", chips 1 to 2"
    assert chips_of(layers[:1], replace(found.floorplan, chips=1)) == {}


@pytest.mark.parametrize(("low", "high", "said"), [
    (351_000.0, 514_662.0, "350,000 to 520,000"), (0.98, 1.04, "0.98 to 1.1"),
])  # fmt: skip
def test_the_ends_of_a_rate_are_rounded_outwards(
    full_size: FullSize, low: float, high: float, said: str
) -> None:
    video = estimated(full_size, "isaac-rram-128").schedules["video"]
    vars(video)["per_second"] = Quantity((low + high) / 2, (), low, high)
    assert rate_range(video) == said
