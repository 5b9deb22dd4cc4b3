"""The spread over dies, and the yield within limits: counts, doubt, and a closed form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.experiments.budgets import DriftBudget
from cimtool.experiments.dies import spread_over_dies, yields_of
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.sweep import Sweep
from cimtool.report.terminal import terminal

RunSweep = Callable[..., Sweep]


def test_the_spread_is_by_percentiles_of_each_metric() -> None:
    losses = np.linspace(0.0, 1.0, 21)
    metrics = [{"r1_loss": one, "r1_text_to_video": 1 - one} for one in losses]
    ends = [{name: (v - 0.1, v + 0.1) for name, v in one.items()} for one in metrics]
    found = spread_over_dies("1 h", "ss", metrics, ends)
    assert (found["time"], found["corner"]) == ("1 h", "ss")
    loss, share = found["r1_loss"], found["r1_text_to_video"]
    three = ("best", "median", "worst")
    assert [loss[name] for name in three] == pytest.approx([0.05, 0.5, 0.95])
    assert [share[name] for name in three] == pytest.approx([0.95, 0.5, 0.05])
    assert loss["values"] == losses.tolist()
    assert loss["low"][0] == -0.1
    assert set(found) == {"time", "corner", "r1_loss", "r1_text_to_video"}


def test_a_die_is_kept_by_its_own_figure_and_all_limits() -> None:
    dies = {
        "time": "0 s",
        "corner": None,
        "r1_loss": {
            "values": [0.0, 0.1, 0.1, 0.3],
            "low": [-0.1, 0.0, 0.0, 0.2],
            "high": [0.05, 0.1, 0.2, 0.4],
        },
        "logit_rmse": {
            "values": [1.0, 1.0, 3.0, 1.0], "low": [1.0, 1.0, 2.5, 1.0], "high": [1.0, 1.0, 4.0, 1]
        },
    }  # fmt: skip
    (one,) = yields_of([dies], {"r1_loss": 0.1})
    assert (one.time, one.dies, one.kept, one.in_doubt) == ("0 s", 4, 3, 1)
    (one,) = yields_of([dies], {"r1_loss": 0.1, "logit_rmse": 2.0})
    assert (one.kept, one.in_doubt) == (2, 0), "a die that surely breaks one limit is not in doubt"
    assert one.to_json()["share"] == 0.5
    assert one.text.startswith("50.0% (6.8 to 93.2), 2 of 4 dies read 0 s after programming, 0 in")
    assert yields_of([dies], {}) == ()
    assert yields_of([dies], {"map_loss": 1.0}) == (), "a metric that dies do not have"


@pytest.mark.parametrize(
    ("share", "trials", "budget", "sentence"),
    [
        (
            90.0,
            5,
            {"r1_loss": 0.1},
            "min_yield is 90; expected a share of dies above 0 and",
        ),
        (0.0, 5, {"r1_loss": 0.1}, "min_yield is 0; expected a share"),
        (0.9, None, {"r1_loss": 0.1}, "min_yield is a share of dies; expected trials with it"),
        (0.9, 5, {}, "the share of dies within a budget; expected budget with it"),
    ],
)
def test_a_least_yield_that_means_nothing_is_refused(
    share: float, trials: int | None, budget: dict[str, float], sentence: str
) -> None:
    with pytest.raises(CimError, match=sentence):
        DriftBudget(budget, share).check(trials)


STUCK = """
name = "stuck"
base = "ideal"
title = "cells that are stuck at full conductance"
[array]
rows = 64
columns = 64
encoding = "differential"
cell_bits = 7
cells_per_weight = 2
[noise]
source = "a test"
g_max = 40.0
[noise.stuck]
p_on = {}
"""


def test_the_yield_is_that_of_dies_without_a_stuck_cell(
    sweep_small: RunSweep, tmp_path: Path
) -> None:
    """A cell that conducts in full changes the scores: (1 - p)^cells of the dies have none."""
    target, p = tmp_path / "stuck.toml", 1e-4
    target.write_text(STUCK.format(p))
    run = partial(
        sweep_small, tmp_path / "s", {"weight_bits": [8]}, target=str(target), trials=10
    )  # fmt: skip
    (first,) = run().outcomes
    limit = first.metrics["logit_rmse"] * 1.00001
    found = run(budget={"logit_rmse": limit}, min_yield=0.1)
    assert found.resumed == 1, "another limit computes no die again"
    ((kept,),) = found.yields
    cells = 2 * 2 * (24 * 32 + 32 * 32 + 2 * 32 * 16)
    assert kept.share.low <= (1 - p) ** cells <= kept.share.high
    drifts = np.array(found.outcomes[0].dies[0]["logit_rmse"]["values"])
    assert np.any(drifts == first.metrics["logit_rmse"]), "a die without any is exact"
    assert kept.kept == np.sum(drifts <= limit)
    assert kept.kept <= kept.in_doubt < 10, "most intervals over 40 queries hold the limit"
    text, json = terminal(found.document(), verbose=True), found.to_json()
    assert f"within logit_rmse={limit:g} on 10% of dies: point 0" in text
    assert f"its yield is {kept.text}" in text
    (row,) = found.rows()
    assert (row["yield_0s"], row["yield_0s_low"]) == (kept.share.value, kept.share.low)
    assert json["points"][0]["yields"] == [kept.to_json()]
    assert json["budget"]["min_yield"] == 0.1
    with pytest.raises(
        PointsFailed, match=r"within the budget logit_rmse=\S+ on 99% of dies"
    ) as no:
        run(budget={"logit_rmse": limit}, min_yield=0.99)
    assert f"the highest yield is that of point 0: {kept.text}" in terminal(
        no.value.found.document()
    )


def test_a_target_brings_its_own_corners(sweep_small: RunSweep, tmp_path: Path) -> None:
    target = tmp_path / "stuck.toml"
    corner = 'source = "a test"\nstatus = "assumed"\nsupply = 0.7\nscale = { factor = 0.5 }\n'
    target.write_text(STUCK.format(1e-3) + f"[noise.corners.ss]\n{corner}")
    run = partial(sweep_small, grid={"weight_bits": [8]}, target=str(target), trials=1)
    (one,) = run(tmp_path / "s", corners=["ss", "nominal"]).outcomes
    assert [dies["corner"] for dies in one.dies] == ["ss", "nominal"]
    with pytest.raises(CimError, match='corner "ff" is not known: nominal, ss'):
        run(tmp_path / "no", corners=["ff"])


@pytest.mark.thorough("a sweep of dies more")
def test_redundant_columns_are_priced_in_their_row(sweep_small: RunSweep, tmp_path: Path) -> None:
    found = sweep_small(tmp_path / "s", {"redundant_columns": [0, 64]})
    none, half = found.rows()
    assert half["arrays"] > none["arrays"]
    assert [row["cells"] for row in (none, half)] == [128**2 * r["arrays"] for r in (none, half)]
    assert half["area_mm2"] > none["area_mm2"]
    assert half["area_missing"] == ""
    assert half["energy_pj"] == pytest.approx(none["energy_pj"]), "spare cells are not driven"


@pytest.mark.thorough("many dies")
def test_the_same_dies_are_read_at_every_corner(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = tmp_path / "noise.toml"
    noise.write_text(
        'source = "a test"\ng_max = 20.0\n[programming]\nsigma = [0.1]\n[corners.ss]\n'
        'source = "a test"\nstatus = "assumed"\nsupply = 0.7\nscale = { factor = 0.5 }\n'
    )
    grid, budget = {"weight_bits": [8]}, {"logit_rmse": 2.0}
    run = partial(sweep_small, grid=grid, noise_model=noise, trials=2, budget=budget)
    with monkeypatch.context() as few:
        few.setattr(
            "cimtool.experiments.compiled.DIES_AT_A_TIME", 1
        )  # the same however many are held
        plain = run(tmp_path / "plain")
    with pytest.raises(PointsFailed) as caught:
        run(tmp_path / "s", corners=["nominal", "ss"])
    found = caught.value.found
    nominal, slow = found.outcomes[0].dies
    assert (nominal["corner"], slow["corner"]) == ("nominal", "ss")
    assert nominal["logit_rmse"] == plain.outcomes[0].dies[0]["logit_rmse"]
    assert min(slow["logit_rmse"]["values"]) > max(nominal["logit_rmse"]["values"])
    ((kept, lost),) = found.yields
    assert (kept.kept, lost.kept, lost.when) == (2, 0, "0 s, ss")
    assert found.chosen is not None
    assert found.chosen.within == 0, "the budget holds at every corner"
    assert found.rows()[0]["yield_0s_ss"] == 0.0
    text = terminal(found.document(), verbose=True)
    assert "corner ss: 0.7 V (assumed, a test)" in text
    assert "dies read 0 s after programming at corner nominal" in text
    with pytest.raises(CimError, match='corner "sf" is not known: nominal, ss'):
        run(tmp_path / "no", corners=["sf"])
    assert not (tmp_path / "no").exists()
