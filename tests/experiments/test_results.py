"""The files of a sweep: JSON, CSV, Parquet, and the text for a terminal."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from cimtool.base.errors import CimError
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.sweep import Sweep
from cimtool.report.document import sentences
from cimtool.report.terminal import terminal

RunSweep = Callable[..., Sweep]
GRID = {"adc_bits": [4, "lossless"], "encoding": ["differential", "twos-complement"]}


@pytest.fixture(scope="module")
def swept(sweep_small: RunSweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Four points: two are done, one is digital, one contradicts itself."""
    with pytest.raises(PointsFailed) as caught:
        sweep_small(
            tmp_path_factory.mktemp("sweeps") / "s", GRID, budget={"r1_loss": 1.0}, table="parquet"
        )
    return caught.value.found


def test_json_holds_all_of_it(swept: Sweep) -> None:
    values = json.loads((swept.written[0].parent / "results.json").read_text())
    assert values == json.loads(json.dumps(swept.to_json()))
    assert values["grid"] == GRID
    assert [point["values"] for point in values["points"]] == [
        {"adc_bits": bits, "encoding": encoding}
        for bits in GRID["adc_bits"]
        for encoding in GRID["encoding"]
    ]
    assert [point["state"] for point in values["points"]] == ["done", "failed", "done", "done"]
    assert values["points"][1]["metrics"] == {}
    assert values["budget"]["limits"] == {"r1_loss": 1.0}
    assert set(values["pareto"]) == {"energy_pj", "conversions", "arrays"}
    assert "resumed" not in values


def test_a_table_has_a_row_a_point(swept: Sweep, sweep_small: RunSweep, tmp_path: Path) -> None:
    found = pyarrow.parquet.read_table(swept.written[0].parent / "results.parquet").to_pylist()
    assert [row["adc_bits"] for row in found] == ["4", "4", "lossless", "lossless"]
    with pytest.raises(PointsFailed):
        sweep_small(tmp_path / "s", GRID)
    with (tmp_path / "s" / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(found) == 4
    for row, other, outcome in zip(rows, found, swept.outcomes, strict=True):
        assert list(row) == list(other)
        assert row["state"] == other["state"]
        if outcome.error is None:
            assert float(row["logit_rmse"]) == other["logit_rmse"] == outcome.metrics["logit_rmse"]
            assert int(row["arrays"]) == other["arrays"] == outcome.cost["arrays"]
        else:
            assert row["logit_rmse"] == ""
            assert other["logit_rmse"] is None
            assert row["error"] == other["error"] == outcome.error


def test_parquet_without_its_package_is_told(
    sweep_small: RunSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(CimError, match=r'pip install "cimtool\[parquet\]"'):
        sweep_small(tmp_path / "s", GRID, table="parquet")
    assert not (tmp_path / "s").exists()


def test_the_text_tells_points_failures_and_the_choice(swept: Sweep) -> None:
    lines = terminal(swept.of_this_run()).splitlines()
    before = swept.remarks.faults
    warned = [f"* {text}" for text in swept.remarks.warnings]
    assert lines[: len(before) + 1] == ["Sweep of projectors", *before]
    verdict, *others = lines[len(before) + 1 :]
    assert verdict.startswith("The chosen point, 3 (adc_bits=lossless, encoding=twos-complement), ")
    assert "is as good as Monte Carlo with K=10" in verdict
    assert ", not shown to differ from its float score, " in verdict
    assert verdict.endswith(" better than raw rows in int8.")
    assert sentences(swept.verdict)[0] == verdict
    energy, *others = others
    assert energy.startswith("Energy per query: ")
    assert energy == sentences(swept.verdict)[1]
    told = [line.strip() for line in terminal(swept.of_this_run(), verbose=True).splitlines()]
    for name in ("raw rows in int8, ", "float score, R@1 %", "as exact as K samples"):
        assert any(line.startswith(name) for line in told)
    assert [line for line in others if line in warned] == warned
    lines = terminal(swept.of_this_run(), verbose=True).splitlines()
    start = next(
        i for i, line in enumerate(lines) if line.endswith("eval.npz, against the exact score")
    )
    assert "centred" in lines[start + 1]
    assert lines[start + 2].split()[:5] == ["point", "front", "adc_bits", "encoding", "RMSE"]
    assert "4 points: 3 done (0 by an earlier run), 1 failed" in lines
    assert any(line.startswith("* point 1 failed: ") and "adds digitally" in line for line in lines)
    chosen = next(line for line in lines if line.startswith("cheapest of 3 points within"))
    assert ", by arrays: " in chosen, "a digital array converts nothing"
    assert any(line.startswith("next: cimtool compile --projectors ") for line in lines)
