"""Reference prices: scaling by node, supply and width, intervals, and a target's own prices."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from cimtool.base.errors import CimError
from cimtool.costs.charges import digital_cost
from cimtool.costs.operations import Operations
from cimtool.costs.prices import Prices, kind_of, reference
from cimtool.hardware.target import Target, load_target
from cimtool.hardware.technology import OperationName, Price


def changed(name: str, table: str, **values: Any) -> Target:
    target = load_target(name)
    own = getattr(target, table).model_copy(update=values)
    return target.model_copy(update={table: own})


def test_factors_are_those_of_the_corrigendum_of_stillmaker_and_baas() -> None:
    assert reference().factor("energy", 32, 0.9) == pytest.approx(0.4571, abs=5e-5)
    assert reference().factor("energy", 65, 1.3) == pytest.approx(2.604, abs=5e-4)
    # Between two nodes on the straight line.
    ends = [reference().factor("energy", node, 0.8) for node in (20, 32)]
    assert reference().factor("energy", 26, 0.8) == pytest.approx(sum(ends) / 2)


def test_every_kind_has_a_price_and_every_price_a_kind() -> None:
    prices = Prices(load_target("isaac-rram-128"), None)
    for kind in reference().kinds:
        unit = prices.unit(kind, 8)
        assert unit is not None, kind
        assert 0 < unit.low < unit.value < unit.high, kind
        assert all(unit.sources)
    assert {one.kind for one in reference().prices} <= set(reference().kinds)
    with pytest.raises(CimError, match=r'kind of operation "adition".*additions'):
        kind_of("adition")


def test_prices_at_the_node_of_a_source_are_the_sources() -> None:
    at_45 = Prices(changed("isaac-rram-128", "process", node=45.0, voltage=0.9), None)
    adder, multiplier, dram = (at_45.unit(k) for k in ("additions", "multiplications", "dram"))
    assert adder is not None
    assert multiplier is not None
    assert dram is not None
    assert adder.low * 8 == pytest.approx(0.1 / 4)  # 32 bits are cheaper a bit than 8
    assert multiplier.low * 32 * 32 == pytest.approx(3.1, rel=1e-3)
    assert (dram.low, dram.high) == pytest.approx((3.92, 2600 / 64))
    at_7 = Prices(changed("isaac-rram-128", "process", node=7.0, voltage=None), None)
    assert at_7.unit("additions").value < adder.value / 10
    assert at_7.unit("dram") == dram
    # One source alone has the assumed spread.
    register = at_45.unit("registers")
    assert register.high / register.low == pytest.approx(reference().spread ** 2)


def test_a_price_of_the_target_replaces_all_reference_prices() -> None:
    own = Price(kind="additions", value=0.5, bits=10, source="here", status="confirmed")
    prices = Prices(changed("isaac-rram-128", "digital", prices=(own,)), None)
    unit = prices.unit("additions")
    assert (unit.low, unit.value, unit.high, unit.status) == (0.05, 0.05, 0.05, "own")
    cost = digital_cost(Operations.of("additions", 3, 10), prices)
    assert cost.parts["digital"].energy.value == pytest.approx(1.5)
    assert cost.coverage == 1


def test_a_converter_of_other_bits_is_scaled_from_the_targets_own() -> None:
    prices = Prices(load_target("isaac-rram-128"), None)
    assert prices.converter(8, (1.667, 8)).value == 1.667
    six = prices.converter(6, (2.0, 8))
    assert (six.low, six.high) == pytest.approx((2 * 1.07 / 1.71, 2 * 1.20 / 1.67))
    assert six.own == six.value
    ladder = prices.converter(8, None)
    assert (ladder.low, ladder.high, ladder.own) == pytest.approx((1.67, 1.71, 0))


def test_what_no_target_says_is_named_as_assumed() -> None:
    said = " ".join(Prices(load_target("prime-rram-256"), None).assumptions())
    assert "45 nm at 1 V, assumed: the target states no node" in said
    hermes = load_target("hermes-pcm-14nm")
    said = " ".join(Prices(hermes, hermes.operating_points[0]).assumptions())
    assert said.startswith("digital prices are for 14 nm at 0.8 V")
    assert "at 1,000 MHz" in said
    colonnade = load_target("colonnade-65nm")
    assert Prices(colonnade, colonnade.operating_points[2]).voltage == 0.6


def test_a_digital_product_of_dirc_rag_is_within_the_interval() -> None:
    """0.956 uJ for 8,192 x 512 products of 8 bits at 40 nm and 0.8 V: arXiv 2510.25278."""
    prices = Prices(changed("isaac-rram-128", "process", node=40.0, voltage=0.8), None)
    work = Operations.of("multiplications", 1, 8, 8) + Operations.of("additions", 1, 25)
    energy = digital_cost(work, prices).energy_pj
    assert energy.low < 0.956e6 / (8192 * 512) < energy.high


def test_kinds_of_operations_are_those_that_a_target_may_price() -> None:
    assert set(reference().kinds) == set(get_args(OperationName))
