"""The picture: well-formed, every array in it once, in no other array's place."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from cimtool.bundle.placement_picture import MOST_SQUARES, _levels, _position, _slots, placement_svg
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placements
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.program import Program

FullSize = Callable[[Target], Program]
SVG = "{http://www.w3.org/2000/svg}"


def placed(full_size: FullSize, name: str) -> tuple[tuple[Placement, ...], Floorplan]:
    target = load_target(name)
    layers = placements(full_size(target), resolve(target, None, {}))
    return layers, floorplan(layers, target)


@pytest.mark.thorough("more of the same kind", quick=("hermes",))
@pytest.mark.parametrize("name", ["hermes-pcm-14nm", "dcim-28nm-isscc23", "c2c-22nm-intel"])
def test_every_array_has_a_square_of_its_own(full_size: FullSize, name: str) -> None:
    layers, plan = placed(full_size, name)
    slots = _slots(layers, plan)
    levels = _levels(plan, len(slots), 1)
    assert len(slots) == plan.tiles == len(set(slots))
    corners = {_position(slot, levels) for slot in slots}
    assert len(corners) == plan.tiles
    root = ElementTree.fromstring(placement_svg(layers, plan, "x"))
    paths = root.findall(f".//{SVG}path")
    coloured = [path.get("d", "") for path in paths if "outline" in path.get("class", "")]
    assert sum(d.count("M") for d in coloured) == plan.tiles


def test_arrays_take_a_second_set_once_each_has_one(full_size: FullSize) -> None:
    layers, plan = placed(full_size, "c2c-22nm-intel")
    assert _slots(layers, plan)[:9] == list(range(9))  # one array: its 8 sets, then a new load
    two = plan.chip.model_copy(update={"cores": 2})
    several = Floorplan(plan.tiles, 8, 2, two, 1, plan.rounds)
    assert _slots(layers, several)[:4] == [0, 8, 1, 9]


def test_each_graph_begins_with_a_load_of_its_own(full_size: FullSize) -> None:
    layers, plan = placed(full_size, "metis-dcim-12nm")
    assert plan.loads
    first = sum(layer.arrays for layer in layers if layer.layer.startswith("text."))
    assert _slots(layers, plan)[first] == plan.rounds["text"] * 4


def test_what_stays_is_a_block_before_the_loads(full_size: FullSize) -> None:
    target = load_target("metis-dcim-12nm")
    chip = target.hierarchy.model_copy(update={"cores": 40})
    layers = placements(full_size(target), resolve(target, None, {}))
    plan = floorplan(layers, target.model_copy(update={"chip": chip}), [layers[1].layer])
    assert plan.kept == (layers[1].layer,)
    assert plan.streaming == 40 - layers[1].arrays
    slots = _slots(layers, plan)
    assert len(slots) == plan.tiles == len(set(slots))
    # The first layer is loaded into the second block, the second stays in the first.
    first, second = layers[0].arrays, layers[0].arrays + layers[1].arrays
    assert slots[0] == 40
    assert slots[first:second] == list(range(layers[1].arrays))
    assert max(slots) < 40 * (1 + plan.loads)
    text = placement_svg(layers, plan, "x")
    assert ">stays<" in text
    assert f">load {plan.loads}<" in text
    assert f"{plan.loads} loads of {plan.streaming} arrays" in text


@pytest.mark.thorough("more of the same kind", quick=("ideal",))
@pytest.mark.parametrize("name", ["ideal", "colonnade-65nm", "puma-rram-128", "hermes-pcm-14nm"])
def test_a_picture_is_drawn_and_described(full_size: FullSize, name: str) -> None:
    layers, plan = placed(full_size, name)
    text = placement_svg(layers, plan, "a < b & c")
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert (title.text or "").endswith("a < b & c")
    assert all(layer.layer in (description.text or "") for layer in layers)
    assert "prefers-color-scheme: dark" in text
    assert len(text) < 4_000_000
    box = re.fullmatch(r"0 0 960 (\d+)", root.get("viewBox", ""))
    assert box is not None
    assert int(box[1]) < 2000


@pytest.mark.thorough("a browser; the page of a report opens in the first tier")
def test_the_picture_opens_in_a_browser_and_asks_for_nothing(
    full_size: FullSize, page: Page, events: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "placement.svg"
    file.write_text(placement_svg(*placed(full_size, "hermes-pcm-14nm"), "a < b & c"))
    page.goto(file.as_uri())
    box = page.locator("svg").bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    assert events == [f"request {file.as_uri()}"]


def test_a_square_stands_for_several_arrays_where_there_are_too_many(full_size: FullSize) -> None:
    layers, plan = placed(full_size, "dcim-28nm-isscc22")
    assert plan.tiles > MOST_SQUARES
    text = placement_svg(layers, plan, "x")
    assert "a square is 4 tiles" in text
    squares = text.count("M") - text.count("Macro")
    assert squares < 3 * MOST_SQUARES


def test_a_square_is_filled_as_far_as_its_array_is_used(full_size: FullSize) -> None:
    layers, plan = placed(full_size, "sonos-40nm")  # 1,024 of 1,152 rows
    text = placement_svg(layers[:1], floorplan(layers[:1], load_target("sonos-40nm")), "x")
    assert layers[0].utilisation == pytest.approx(1024 / 1152)
    heights = re.findall(r"v([\d.]+)h", text)
    assert set(map(float, heights)) == {3.6, float(f"{3.6 * 1024 / 1152:.3g}")}
    assert plan.chips is None


def test_without_a_layer_there_is_a_picture_of_nothing() -> None:
    plan = floorplan((), load_target("isaac-rram-128"))
    root = ElementTree.fromstring(placement_svg((), plan, "x"))
    assert not [p for p in root.findall(f".//{SVG}path") if "outline" in p.get("class", "")]
