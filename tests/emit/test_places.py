"""Exports of a program whose layers are called after places outside: none is written there.

A bundle with such a name is refused when it is read. These programs are made in memory.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.files import place_in
from cimtool.bundle.bundle import Bundle, read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.exporters import Exporter, Request, export_bundle
from cimtool.handoff.cam import CAM_PART
from cimtool.handoff.handoff import PARTS
from cimtool.handoff.layers import HandoffPart, HandoffSource
from cimtool.ir.program import Graph

OUTSIDE = "../../../x"


class OfLayers(Exporter):
    """An exporter of a plug-in: a file a layer."""

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        return set()

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        for node in bundle.program.text.nodes:
            place_in(folder, f"text.{node.name}.txt").write_text("x")


def renamed(graph: Graph, before: str, after: str) -> Graph:
    """The graph with another name of one value."""

    def name(one: str) -> str:
        return after if one == before else one

    nodes = tuple(
        replace(node, name=name(node.name), inputs=tuple(map(name, node.inputs)))
        for node in graph.nodes
    )
    outputs = {key: name(value) for key, value in graph.outputs.items()}
    return replace(graph, nodes=nodes, outputs=outputs)


@pytest.fixture
def forged(small_bundle: Path) -> Bundle:
    """A bundle whose layer `text.fc1` has another name in memory."""
    bundle = read_bundle(small_bundle)
    text = renamed(bundle.program.text, "fc1", OUTSIDE)
    vars(bundle)["program"] = replace(bundle.program, text=text)
    return bundle


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A place for an export, with folders above it."""
    return tmp_path / "some/deep/folder/out"


@pytest.mark.thorough(
    "each format; some are in the first tier", quick=("handoff", "onnx", "of-layers")
)
@pytest.mark.parametrize("name", [*Exporter.family, "of-layers"])
def test_no_exporter_writes_outside(
    name: str, forged: Bundle, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Exporter.family, "of-layers", OfLayers)
    top = output.parents[2]
    if name in ("onnx", "c"):  # their files have names that are known
        export_bundle(forged, name, output)
        assert all(file.is_relative_to(output) for file in top.rglob("*") if file.is_file())
        return
    with pytest.raises(CimError, match="is not a path below the folder that is written"):
        export_bundle(forged, name, output)
    assert not [file for file in top.rglob("*") if file.is_file()]


# Files of a search are named as those of layers are; the bundle has none.
@pytest.mark.thorough("each part; some are in the first tier", quick=("images", "taps", "c]"))
@pytest.mark.parametrize(
    "part", [part for part in PARTS if part is not CAM_PART], ids=lambda part: part.folder
)
def test_no_part_of_a_hand_off_writes_outside(
    part: HandoffPart, forged: Bundle, output: Path
) -> None:
    own = output / part.folder
    own.mkdir(parents=True)
    request = Request(noise=NoiseOptions(model="neurram", trials=1))
    if any("LAYER/" in file for file in part.told):
        with pytest.raises(CimError, match="is not a path below the folder that is written"):
            part.write(HandoffSource(forged, request), own)
    else:
        part.write(HandoffSource(forged, request), own)
    written = [file for file in output.parents[2].rglob("*") if file.is_file()]
    assert all(file.is_relative_to(output) for file in written)


@pytest.mark.parametrize("name", ["testvectors", "handoff"])
def test_a_feature_of_such_a_name_is_not_written_outside(
    name: str, small_bundle: Path, output: Path
) -> None:
    bundle = read_bundle(small_bundle)
    text = bundle.program.text
    outputs = {OUTSIDE if one == "vd_self" else one: v for one, v in text.outputs.items()}
    score, names = bundle.program.score, {"text.vd_self": f"text.{OUTSIDE}"}
    inputs = {names.get(one, one): known for one, known in score.inputs.items()}
    nodes = tuple(
        replace(node, inputs=tuple(names.get(one, one) for one in node.inputs))
        for node in score.nodes
    )
    vars(bundle)["program"] = replace(
        bundle.program,
        text=replace(text, outputs=outputs),
        score=replace(score, inputs=inputs, nodes=nodes),
    )
    with pytest.raises(CimError, match="is not a path below the folder that is written"):
        export_bundle(bundle, name, output, Request(layers="text.mu"))
    assert not [file for file in output.parents[2].rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    "name", ["", "/etc/x", "//etc/x", "..", "a/../../b", "a//b", "./a", "a/.", "a\0b"]
)
def test_what_is_no_place_below_a_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(CimError, match="expected names separated by /"):
        place_in(tmp_path, name)


@pytest.mark.parametrize("name", ["a", "a/b", "...", "..a/b..", "text.fc1.2"])
def test_what_is_a_place_below_a_folder(name: str, tmp_path: Path) -> None:
    place = place_in(tmp_path, name)
    assert place.resolve().is_relative_to(tmp_path.resolve())
