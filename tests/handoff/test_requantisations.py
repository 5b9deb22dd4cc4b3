"""Sums that are requantised more than once: each requantisation has its taps and its numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handoff_bench import Bench, numbers
from handoff_runs import counts, handoff_of, run_goal, with_changed_line

from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.handoff.layers import driven_layers
from cimtool.handoff.stimuli import requantised


@pytest.fixture(scope="module")
def handoff(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a second layer whose sums are inputs of 8 bits for one head and of 6 for the other."""
    folder = tmp_path_factory.mktemp("requantisations")
    (folder / "bits.toml").write_text('[layers."text.mu"]\nactivation_bits = 6\n', "utf-8")
    return handoff_of(small_trunk, folder, {"array": "24x32", "settings": folder / "bits.toml"})


def test_each_is_tapped_as_the_program_computes_it(handoff: Path) -> None:
    layers = driven_layers(read_bundle(handoff.parent / "bundle"), "text.*", None)
    (layer,) = (one for one in layers if one.name == "text.fc2")
    assert list(layer.requantisations) == ["text.fc2/q0", "text.fc2/q1"]
    total = numbers(handoff / "taps/text.fc2/layer_sum.hex").reshape(len(layer.x), -1)
    expected = dict(requantised(layer.graph, layer.node, total))
    assert len(expected) == 2
    for place, after in layer.requantisations.items():
        shown = numbers(handoff / "taps" / place / "requantised.hex").reshape(total.shape)
        np.testing.assert_array_equal(shown, expected[after.name])
    highest = [int(values.max()) for values in expected.values()]
    assert max(highest) > 63 >= min(highest)


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_the_bench_compares_each(handoff: Path) -> None:
    bench = Bench(handoff)
    bench.run()
    assert not +bench.differing
    done = run_goal(handoff, "icarus")
    assert (done.returncode, done.stderr) == (0, "")
    found = counts(done.stdout)
    layers = driven_layers(read_bundle(handoff.parent / "bundle"), "text.*", None)
    sums = {one.name: len(one.x) * one.op.weight.shape[1] for one in layers}
    assert found["layer_sum"][0] == sum(sums.values())
    # Twice those of the second layer.
    assert found["requantised"][0] == sum(sums.values()) + sums["text.fc2"]
    assert bench.compared["requantised"] == found["requantised"][0]


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
@pytest.mark.parametrize(
    ("file", "tap"),
    [
        ("taps/text.fc2/q1/requantised.hex", "requantised"),
        ("directed/text.fc2/q1/requantiser_out.hex", "requantiser"),
        ("constants/text.fc2/q1/hi.hex", "requantised"),
    ],
)
def test_one_changed_line_of_the_second_fails(
    handoff: Path, tmp_path: Path, file: str, tap: str
) -> None:
    folder = tmp_path / "copy"
    done = run_goal(with_changed_line(handoff, folder, file), "icarus")
    assert done.returncode != 0
    assert next(name for name, (_, differ) in counts(done.stdout).items() if differ) == tap
