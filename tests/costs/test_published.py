"""Published figures follow from geometry, cycle time and one another; costs give them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.plugins import targets_folder
from cimtool.costs.charges import layer_cost
from cimtool.costs.published import Published, Retrievals, Searches, compare_published, full_array
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.totals import Cost
from cimtool.hardware.cam import Cam, cam_origins, load_cam
from cimtool.hardware.placement import floorplan
from cimtool.hardware.target import Target, load_target, target_names

POINTS = [
    (name, point.name) for name in target_names() for point in load_target(name).operating_points
]
OF_A_PRODUCT = {"throughput", "efficiency", "mvm_latency", "mvm_energy", "mac_energy"}


def full(rates: Rates) -> tuple[int, Cost]:
    """MACs and cost of one product that uses all of one array."""
    place, settings = full_array(rates)
    return place.macs, layer_cost(place, rates, settings, floorplan([place], rates.target))


@pytest.mark.parametrize("name", target_names())
def test_shipped_targets_agree_with_themselves(name: str) -> None:
    assert all(one.agrees for one in Published.check(load_target(name), name))


def test_throughput_is_recomputed_wherever_it_is_published() -> None:
    compared = [one for name in target_names() for one in compare_published(load_target(name))]
    throughputs = [one for one in compared if one.quantity == "throughput"]
    assert len(throughputs) == 13
    assert all(one.computed is not None for one in throughputs)


def test_colonnade_takes_a_cycle_of_its_clock_for_each_bit_of_an_input() -> None:
    _, cost = full(rates_at(load_target("colonnade-65nm"), "0.7 V"))
    assert cost.latency_ns.value == pytest.approx(8 * 10)


@pytest.mark.parametrize("name", ["prime-rram-256", "sonos-40nm", "dcim-22nm-tsmc", "ideal"])
def test_a_target_without_a_time_of_a_product_says_who_does_not_give_it(name: str) -> None:
    target = load_target(name)
    assert {f.quantity for f in target.figures}.isdisjoint(("mvm_latency", "clock", "read_latency"))
    assert any(said.startswith("the time of a product: not given by") for said in target.unmodelled)


@pytest.mark.parametrize(("name", "point"), POINTS)
def test_a_fully_used_array_costs_what_was_published(name: str, point: str) -> None:
    rates = rates_at(load_target(name), point)
    macs, cost = full(rates)
    latency, energy = cost.latency_ns.value, cost.energy_pj.value
    found: dict[str, float] = {}
    if energy is not None:
        found["efficiency"] = 2 * macs / energy
        found["mac_energy"] = energy / macs
    checked = 0
    for figure in (f for f in rates.target.figures if f.at == point):
        arrays = rates.arrays_in(figure.scope)
        assert arrays is not None
        if latency is not None:
            found["mvm_latency"] = latency
            found["throughput"] = 2 * macs * arrays / latency / 1000
        if energy is not None:
            found["mvm_energy"] = energy * arrays / 1000
        if figure.quantity in OF_A_PRODUCT:
            assert found[figure.quantity] == pytest.approx(figure.value, rel=0.05)
            checked += 1
    assert checked


def test_parts_of_the_charge_array_add_up_to_its_whole() -> None:
    rates = rates_at(load_target("charge-65nm-princeton"), "0.85 V")
    place, settings = full_array(rates)
    parts, whole = rates.part_energies(place, settings), rates.energies(place, settings)
    columns, conversions = parts["arrays"], parts["converters"]
    assert columns is not None
    assert conversions is not None
    assert whole["arrays"] is not None
    assert columns + conversions == pytest.approx(whole["arrays"].value, rel=0.02)


def test_isaac_reads_a_full_array_at_the_pace_of_its_converter() -> None:
    target = load_target("isaac-rram-128")
    point = load_target("dcim-28nm-isscc22").operating_points[0]
    rates = Rates(target, point)
    _, cost = full(rates)
    assert cost.latency_ns.value == pytest.approx(8 * 100)
    slower = target.model_copy(
        update={
            "figures": tuple(
                f.model_copy(update={"value": 0.64}) if f.quantity == "adc_rate" else f
                for f in target.figures
            )
        }
    )
    assert full(Rates(slower, point))[1].latency_ns.value == pytest.approx(8 * 200)


def changed(folder: Path, name: str, old: str, new: str) -> tuple[Target, str]:
    text = (targets_folder() / f"{name}.toml").read_text()
    assert old in text
    file = folder / f"{name}.toml"
    file.write_text(text.replace(old, new, 1))
    return load_target(file), str(file)


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        (
            "hermes-pcm-14nm",
            "value = 133\n",
            "value = 266\n",
            'throughput = 63.1 TOPS at operating point "one-phase": recomputed from 64 arrays of '
            "256 x 256 weights in 266 ns it is 31.54 TOPS, expected within 2%",
        ),
        (
            "hermes-pcm-14nm",
            "value = 52.9\n",
            "value = 13.4\n",
            'efficiency = 2.48 TOPS/W at operating point "four-phase": recomputed from the '
            "mvm_energy of 13.4 nJ it is 9.781 TOPS/W, expected within 2%",
        ),
        (
            "metis-dcim-12nm",
            "value = 800\n",
            "value = 400\n",
            "throughput = 52.4 TOPS at operating point \"int8\": recomputed",
        ),
        (
            "c2c-22nm-intel",
            "value = 0.124\n",
            "value = 0.2\n",
            "density = 2.4 TOPS/mm2 at operating point \"0.7 V\": recomputed",
        ),
    ],
)  # fmt: skip
def test_a_mismatch_is_one_sentence(
    tmp_path: Path, name: str, old: str, new: str, sentence: str
) -> None:
    target, file = changed(tmp_path, name, old, new)
    with pytest.raises(CimError) as caught:
        Published.check(target, file)
    assert str(caught.value).startswith(f"{file}: {sentence}")
    assert "\n" not in str(caught.value)


def test_two_percent_is_the_limit(tmp_path: Path) -> None:
    # 64 arrays of 2 x 65,536 operations in 133 ns are 63.07 TOPS.
    for value, agrees in (("64.3", True), ("64.4", False), ("61.9", True), ("61.8", False)):
        target, _ = changed(tmp_path, "hermes-pcm-14nm", "value = 63.1\n", f"value = {value}\n")
        assert next(one.agrees for one in compare_published(target)) is agrees


def test_an_array_without_limits_is_never_full() -> None:
    with pytest.raises(CimError, match="ideal: has no operating point, or an array without limits"):
        full_array(rates_at(load_target("ideal"), None))


BY_CONSTRUCTION = {
    ("c2c-22nm-intel", "1.1 V", "throughput"): ("mvm_latency",),
    ("charge-65nm-princeton", "0.85 V", "throughput"): ("mvm_latency",),
    ("charge-65nm-princeton", "1.2 V", "throughput"): ("mvm_latency",),
    ("dirc-rag-40nm", "1-bit", "throughput"): ("the precision of the point",),
    ("hermes-pcm-14nm", "four-phase", "efficiency"): ("mvm_energy",),
    ("hermes-pcm-14nm", "four-phase", "throughput"): ("mvm_latency",),
    ("hermes-pcm-14nm", "one-phase", "efficiency"): ("mvm_energy",),
    ("hermes-pcm-14nm", "one-phase", "throughput"): ("mvm_latency",),
    ("metis-dcim-12nm", "int8", "throughput"): ("clock",),
    ("neurram-rram-130nm", "in4/out6", "throughput"): ("mvm_latency",),
    ("neurram-rram-130nm", "in8/out10", "throughput"): ("mvm_latency",),
}


def test_figures_that_were_solved_from_the_published_one_are_said_to_confirm_nothing() -> None:
    found = {
        (name, one.point, one.quantity): one
        for name in target_names()
        for one in compare_published(load_target(name))
        if one.by_construction
    }
    assert {key: one.by_construction for key, one in found.items()} == BY_CONSTRUCTION
    said = found["hermes-pcm-14nm", "one-phase", "throughput"].sentence()
    assert said.endswith("(-0.0%), consistent by construction: mvm_latency was derived from it")


def test_a_shipped_figure_whose_source_is_a_recomputed_one_says_so() -> None:
    for name in target_names():
        for one in load_target(name).figures:
            solved = one.status == "derived" and " by the " in one.source
            assert bool(one.derived_from) or not solved, (name, one.quantity)


CHAIN = """
name = "mine"
title = "Mine"
base = "c2c-22nm-intel"
[[operating_points]]
name = "p"
precision = "8b"
input_bits = 8
weight_bits = 8
"""


def figure(quantity: str, value: float, unit: str, more: str = 'status = "confirmed"') -> str:
    said = f'quantity = "{quantity}"\nvalue = {value}\nunit = "{unit}"\n{more}\n'
    return f'[[figures]]\nat = "p"\nscope = "macro"\nsource = "x"\n{said}'


@pytest.mark.parametrize("through", [True, False])
def test_a_figure_may_be_derived_by_way_of_another(tmp_path: Path, through: bool) -> None:
    solved = 'status = "derived"\nderived_from = ["{}"]'
    file = tmp_path / "mine.toml"
    file.write_text(
        CHAIN
        + figure("density", 4, "TOPS/mm2")
        + figure("area", 0.124, "mm2")
        + figure("throughput", 0.496, "TOPS", solved.format("density"))
        + figure("mvm_latency", 4.13, "ns", solved.format("throughput" if through else "area"))
    )
    found = {one.quantity: one.by_construction for one in compare_published(load_target(file))}
    assert found == {
        "density": ("throughput",),
        "throughput": ("mvm_latency",) if through else (),
    }


def test_a_derived_figure_that_does_not_say_from_what_confirms_nothing(tmp_path: Path) -> None:
    derived, file = 'status = "derived"', tmp_path / "mine.toml"
    file.write_text(
        CHAIN
        + figure("density", 4, "TOPS/mm2")
        + figure("area", 0.124, "mm2", derived)
        + figure("efficiency", 16, "TOPS/W")
        + figure("mvm_energy", 0.128, "nJ", derived + '\nderived_from = ["area"]')
        + figure("throughput", 0.496, "TOPS")
        + figure("mvm_latency", 4.13, "ns")
    )
    found = {one.quantity: one for one in compare_published(load_target(file))}
    said = {name: one.unsaid for name, one in found.items()}
    assert said == {"density": ("area",), "efficiency": ("area",), "throughput": ()}
    assert (
        found["density"]
        .sentence()
        .endswith("(+0.0%), not confirmed: area is derived; the file does not say from what")
    )
    assert "derived" not in found["throughput"].sentence()


def with_retrieval(index: int, **changed: float) -> Target:
    target = load_target("dirc-rag-40nm")
    retrievals = list(target.retrievals)
    retrievals[index] = retrievals[index].model_copy(update=changed)
    return target.model_copy(update={"retrievals": tuple(retrievals)})


@pytest.mark.parametrize("name", target_names())
def test_shipped_retrievals_agree_with_themselves(name: str) -> None:
    found = Retrievals.check(load_target(name), name)
    assert bool(found) == bool(load_target(name).retrievals)


def test_every_stored_bit_is_sensed_and_multiplied() -> None:
    """4 MiB in 16 x 128 x 128 cells: 128 bits each, of 2 + 8 cycles of 4 ns."""
    latencies = {
        one.retrieval: one.computed
        for one in Retrievals.check(load_target("dirc-rag-40nm"), "here")
        if one.quantity == "latency"
    }
    assert latencies["4 MB"] == pytest.approx(128 * 10 * 0.004)
    assert latencies["SciFact"] == pytest.approx(latencies["4 MB"] * 1.9 / 4)


def test_energy_is_in_proportion_to_what_is_stored() -> None:
    *_, energy = Retrievals.check(load_target("dirc-rag-40nm"), "here")
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
        Retrievals.check(with_retrieval(index, **changed), "here")


def test_a_target_without_a_clock_has_no_latency() -> None:
    target = load_target("dirc-rag-40nm").model_copy(update={"figures": ()})
    assert [one.quantity for one in Retrievals.check(target, "here")] == ["energy"]


def test_a_clock_that_is_derived_from_nothing_said_confirms_nothing() -> None:
    target = load_target("dirc-rag-40nm")
    figures = tuple(
        one.model_copy(update={"status": "derived"} if one.quantity == "clock" else {})
        for one in target.figures
    )
    first, *_ = Retrievals.check(target.model_copy(update={"figures": figures}), "here")
    said = "not confirmed: clock is derived; the file does not say from what"
    assert first.sentence().endswith(said)
    assert said not in Retrievals.check(target, "here")[0].sentence()


def with_energy(value: float) -> Cam:
    cam = load_cam("fefet2-tcam-45nm")
    figures = tuple(
        one.model_copy(update={"value": value}) if one.quantity == "search_energy" else one
        for one in cam.figures
    )
    return cam.model_copy(update={"figures": figures})


@pytest.mark.parametrize("name", cam_origins())
def test_published_energies_agree_with_those_of_cells(name: str) -> None:
    assert all(
        abs(one.computed / one.published - 1) < 0.02 for one in Searches.check(load_cam(name), name)
    )


def test_an_energy_that_disagrees_is_refused() -> None:
    (found,) = Searches.check(load_cam("fefet2-tcam-45nm"), "here")
    assert found.sentence() == (
        "search_energy 1.5 pJ: 1.516 from 64 x 64 cells of 0.37 fJ (+1.0%), consistent by "
        "construction: search_cell_energy was derived from it"
    )
    cam = load_cam("fefet2-tcam-45nm")
    figures = tuple(one.model_copy(update={"derived_from": None}) for one in cam.figures)
    (found,) = Searches.check(cam.model_copy(update={"figures": figures}), "here")
    assert found.sentence().endswith(
        "(+1.0%), not confirmed: search_cell_energy is derived; the file does not say from what"
    )
    with pytest.raises(
        CimError, match=r"here: search_energy = 1.6 pJ: recomputed from .* within 2%"
    ):
        Searches.check(with_energy(1.6), "here")
