"""Published retrievals follow from geometry and clock, and from one another."""

from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.costs.retrievals import check_retrievals
from cimtool.hardware.target import Target, load_target, target_names


def with_retrieval(index: int, **changed: float) -> Target:
    target = load_target("dirc-rag-40nm")
    retrievals = list(target.retrievals)
    retrievals[index] = retrievals[index].model_copy(update=changed)
    return target.model_copy(update={"retrievals": tuple(retrievals)})


@pytest.mark.parametrize("name", target_names())
def test_shipped_targets_agree_with_themselves(name: str) -> None:
    found = check_retrievals(load_target(name), name)
    assert bool(found) == bool(load_target(name).retrievals)


def test_every_stored_bit_is_sensed_and_multiplied() -> None:
    """4 MiB in 16 x 128 x 128 cells: 128 bits each, of 2 + 8 cycles of 4 ns."""
    latencies = {
        one.retrieval: one.computed
        for one in check_retrievals(load_target("dirc-rag-40nm"), "here")
        if one.quantity == "latency"
    }
    assert latencies["4 MB"] == pytest.approx(128 * 10 * 0.004)
    assert latencies["SciFact"] == pytest.approx(latencies["4 MB"] * 1.9 / 4)


def test_energy_is_in_proportion_to_what_is_stored() -> None:
    *_, energy = check_retrievals(load_target("dirc-rag-40nm"), "here")
    assert energy.sentence() == (
        "energy 0.46 uJ of retrieval SciFact: 0.4541 from the 0.956 uJ of 4 MB by what is stored "
        "(-1.3%, within 2%)"
    )


@pytest.mark.parametrize(
    ("index", "changed", "sentence"),
    [
        (0, {"latency": 6.1}, r'latency = 6\.1 us of retrieval "4 MB": recomputed from 1280 cyc'),
        (0, {"latency": 4.4}, r'latency = 4\.4 us of retrieval "4 MB": .* 5\.12 us, .* within 15%'),
        (1, {"energy": 0.5}, r'energy = 0\.5 uJ of retrieval "SciFact": recomputed .* within 2%'),
    ],
)
def test_a_retrieval_that_disagrees_is_refused(
    index: int, changed: dict[str, float], sentence: str
) -> None:
    with pytest.raises(CimError, match=f"^here: {sentence}"):
        check_retrievals(with_retrieval(index, **changed), "here")


def test_a_target_without_a_clock_has_no_latency() -> None:
    target = load_target("dirc-rag-40nm").model_copy(update={"figures": ()})
    assert [one.quantity for one in check_retrievals(target, "here")] == ["energy"]


def test_a_clock_that_is_derived_from_nothing_said_confirms_nothing() -> None:
    target = load_target("dirc-rag-40nm")
    figures = tuple(
        one.model_copy(update={"status": "derived"} if one.quantity == "clock" else {})
        for one in target.figures
    )
    first, *_ = check_retrievals(target.model_copy(update={"figures": figures}), "here")
    said = "not confirmed: clock is derived; the file does not say from what"
    assert first.sentence().endswith(said)
    assert said not in check_retrievals(target, "here")[0].sentence()
