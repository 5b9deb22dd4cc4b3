"""Directed vectors: the numbers at which a requantiser that is a little wrong shows it."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.files import place_in
from cimtool.handoff.directed_converter import converter_text
from cimtool.handoff.layers import write_numbers
from cimtool.handoff.part import HandoffPart, HandoffSource
from cimtool.handoff.requantiser import DIRECTED


def write_directed(source: HandoffSource, folder: Path) -> None:
    """Write `folder`/LAYER/ of each layer: inputs of requantiser and converters, and results."""
    for layer in source.layers:
        own = place_in(folder, layer.name)
        own.mkdir()
        if layer.op.crossbar.law is not None:
            (own / "converter.txt").write_text(converter_text(layer), "utf-8")
        for place, after in layer.requantisations.items():
            x = source.directed[place]
            after_folder = place_in(folder, place)
            after_folder.mkdir()
            write_numbers(after_folder / "requantiser_in.hex", x)
            write_numbers(after_folder / "requantiser_out.hex", after.rounded(x))


DIRECTED_PART = HandoffPart(
    folder="directed",
    title="Numbers at which a requantiser or a converter that is a little wrong shows it",
    write=write_directed,
    files={
        "LAYER/qN/requantiser_in.hex": f"{DIRECTED} inputs of every channel: next above and below "
        "a rounding threshold at either end of its range, ties, the ends",
        "LAYER/qN/requantiser_out.hex": "what requantisation N makes of them",
        "LAYER/converter.txt": "both sides of every threshold that a column reaches: slice, cycle "
        "and offset of the converter; cells times digits, and digits alone, that make the sum; the "
        "sum, and its code",
    },
)
