"""How a bundle's settings lie on dies, and where its noise comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool.dies import MOST_TRIALS, NoiseOptions, arrays_of, conditions_of, dies
from cimtool.emit.bundle import read_bundle
from cimtool.errors import CimError
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.target import load_target
from cimtool.settings import resolve


@pytest.mark.parametrize(
    ("target", "across", "pairs"),
    [("hermes-pcm-14nm", 256, "columns"), ("neurram-rram-130nm", 256, "rows"),
     ("isaac-rram-128", 32, "columns"), ("ideal", None, "columns")],
)  # fmt: skip
def test_weights_lie_on_arrays_as_the_target_says(
    target: str, across: int | None, pairs: str
) -> None:
    settings = resolve(load_target(target), None, {})
    found = arrays_of(settings)
    assert (found.across, found.pairs) == (across, pairs)


def test_every_crossbar_layer_is_on_the_die_and_nothing_else(small_bundle: Path) -> None:
    bundle = read_bundle(small_bundle)
    conditions = conditions_of(bundle, NoiseOptions(1, model="pcm-generic", time="1h"))
    assert conditions.seconds == 3600.0
    (die,) = dies(bundle, conditions, 1)
    for before, after in zip(bundle.program.graphs, die.program.graphs, strict=True):
        assert [node.name for node in before.nodes] == [node.name for node in after.nodes]
        for one, other in zip(before.nodes, after.nodes, strict=True):
            if one.op.name == "crossbar_mvm":
                assert isinstance(other.op, NoisyMvm)
                assert after.types[other.name].hi.tolist() == before.types[one.name].hi.tolist()
            else:
                assert type(one.op) is type(other.op)


def test_too_many_trials_are_refused(small_bundle: Path) -> None:
    options = NoiseOptions(MOST_TRIALS + 1, model="pcm-generic")
    with pytest.raises(CimError, match=r"--trials is 100001; expected 1 to 100000 dies"):
        conditions_of(read_bundle(small_bundle), options)
