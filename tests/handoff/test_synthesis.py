"""Synthesis of a layer's periphery by Yosys, in generic gates and in the cells of a library.

The library is that of Debian's package qflow-tech-osu018, or the file that CIMTOOL_LIBERTY names:

    apt-get download qflow-tech-osu018 && dpkg -x qflow-tech-osu018_*.deb osu
    CIMTOOL_LIBERTY=$PWD/osu/usr/share/qflow/tech/osu018/osu018_stdcells.lib python -m pytest \\
        tests/handoff/test_synthesis.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from handoff_runs import run_goal
from programs import installed

PACKAGED = "/usr/share/qflow/tech/osu018/osu018_stdcells.lib"
UNITS = ["cim_layer", "cim_layer_output"]


def parameters_of(handoff: Path) -> dict[str, int]:
    text = (handoff / "sv" / "kind1" / "parameters.svh").read_text("utf-8")
    return {name: int(n) for name, n in re.findall(r"(\w+) = (\d+);", text)}


@pytest.mark.thorough("Yosys maps some ten thousand gates")
def test_gates_and_path_of_a_layer(handoff: Path) -> None:
    installed("yosys", "CIMTOOL_REQUIRE_COMPILERS")
    done = run_goal(handoff, "synth", "LAYER=text.fc2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "text.fc2 (kind1), generic gates" in done.stdout
    line = r"(\w+): (\d+) gates, (\d+) of them flip-flops, longest path (\d+) gates"
    found = re.findall(line, done.stdout)
    assert [name for name, *_ in found] == UNITS
    known = parameters_of(handoff)
    (_, total, flops, path), (_, output_total, output_flops, output_path) = found
    # Accumulators and codes at least; the output unit keeps one requantised value.
    kept = known["WEIGHTS"] * (known["ACC_BITS"] // 2 + known["SLICES"] * 4)
    assert int(total) > int(flops) > kept
    assert int(output_flops) == known["OUT_BITS"]
    assert int(output_total) > 31 * known["LAYER_BITS"]  # a multiplier of 31 bits
    assert int(path) > 10 < int(output_path)


@pytest.mark.thorough("Yosys maps some ten thousand gates")
def test_cells_area_and_path_in_a_library(handoff: Path) -> None:
    installed("yosys", "CIMTOOL_REQUIRE_COMPILERS")
    library = Path(os.environ.get("CIMTOOL_LIBERTY", PACKAGED))
    if not library.is_file():
        pytest.skip(f"there is no {library}: CIMTOOL_LIBERTY names a library of cells")
    done = run_goal(handoff, "synth", "LAYER=text.fc2", f"LIBERTY={library}")
    assert (done.returncode, done.stderr) == (0, "")
    line = r"(\w+): (\d+) cells, (\d+) of them flip-flops, area (\d+), longest path (\d+) ps"
    found = re.findall(line, done.stdout)
    assert [name for name, *_ in found] == UNITS
    assert int(found[1][2]) == parameters_of(handoff)["OUT_BITS"]
    assert all(int(area) > int(cells) for _, cells, _, area, _ in found)
    assert all(int(path) > 1000 for *_, path in found)


@pytest.mark.thorough("a hand-off for a sentence")
@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("LAYER=text.fc9", "LAYER: text.fc9: no such layer; expected one of text.fc1, text.fc2, "),
        ("LIBERTY=none.lib", "LIBERTY: none.lib: no such file; expected an absolute path, or one "),
    ],
)
def test_a_mistake_is_told(setting: str, sentence: str, handoff: Path) -> None:
    installed("yosys", "CIMTOOL_REQUIRE_COMPILERS")
    done = run_goal(handoff, "synth", setting)
    assert done.returncode != 0
    assert f"sv/synth.sh: {sentence}" in done.stderr
    assert "longest path" not in done.stdout
