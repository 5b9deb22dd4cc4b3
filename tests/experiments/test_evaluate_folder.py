"""The folder of an evaluation: subjects kept as they are ranked, results, a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cimtool
from cimtool import cli
from cimtool.base.errors import CimError
from cimtool.base.folders import POINTS, read_sealed, sealed_text
from cimtool.demo.data import DemoFiles
from cimtool.experiments.engine import PointFolder
from cimtool.experiments.evaluate import Evaluation, Ranker

Run = Callable[..., Evaluation]


@pytest.fixture(scope="module")
def run(small_trunk: DemoFiles, small_bundle: Path) -> Run:
    def evaluate(output: Path | None = None, **more: Any) -> Evaluation:
        given: dict[str, Any] = {"poly": small_trunk.poly, "samples": (2,), "resamples": 20} | more
        data = given.pop("data", small_trunk.eval)
        return cimtool.evaluate(data, small_trunk.projectors, small_bundle, output=output, **given)

    return evaluate


@pytest.fixture(scope="module")
def whole(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("evaluation") / "whole"
    run(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the subjects that are ranked in this process."""
    names, outcome = list[str](), Ranker.outcome
    monkeypatch.setattr(Ranker, "outcome", lambda s, p: names.append(p.done) or outcome(s, p))
    return names


def test_a_folder_changes_no_figure(run: Run, whole: Path, ranked: list[str]) -> None:
    assert set(contents(whole)) > {"results.json", "evaluation.html", "evaluation.json"}
    assert len(list((whole / POINTS).iterdir())) == 4
    alone = run()
    assert len(ranked) == 4
    again = run(whole)
    assert (again.resumed, len(ranked)) == (4, 4)
    assert again.scores == alone.scores
    assert again.to_json() == alone.to_json()
    assert again.document().title in (whole / "evaluation.html").read_text()
    values = json.loads((whole / "results.json").read_text())
    assert [one["name"] for one in values["scores"]] == [one.name for one in alone.scores]


@pytest.mark.thorough("a sweep has the same in the first tier")
def test_results_are_the_same_in_several_processes_and_after_a_stop(
    run: Run, whole: Path, tmp_path: Path, ranked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = PointFolder.keep

    def stop_after_two(self: PointFolder[Any], *given: Any) -> None:
        if len(list((tmp_path / "cut" / POINTS).glob("*"))) == 2:
            raise KeyboardInterrupt
        keep(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(PointFolder, "keep", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut")
    assert not (tmp_path / "cut" / "results.json").exists()
    del ranked[:]
    assert run(tmp_path / "cut").resumed == 2
    assert len(ranked) == 2
    run(tmp_path / "two", jobs=2)
    assert len(ranked) == 2
    assert contents(tmp_path / "cut") == contents(whole) == contents(tmp_path / "two")


def forged(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def write(file: Path) -> None:
        values = read_sealed(file)
        del values["sha256"]
        change(values)
        file.write_text(sealed_text(values))

    return write


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-40]),
    "changed": lambda file: file.write_text(file.read_text().replace("1.0", "2.0", 1)),
    "no queries": forged(lambda v: v.pop("queries")),
    "fewer queries": forged(lambda v: v["queries"]["text"]["rank"].pop()),
    "another name": forged(lambda v: v["queries"]["text"].update(other=[1.0] * 40)),
    "no ranks": forged(lambda v: v["queries"]["video"].pop("rank")),
    "notes of numbers": forged(lambda v: v.update(notes=[1])),
}


@pytest.mark.thorough("an evaluation a fault", quick=("cut", "changed"))
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_point_is_ranked_again(
    name: str, run: Run, whole: Path, ranked: list[str]
) -> None:
    before = contents(whole)
    DAMAGES[name](max((whole / POINTS).iterdir()))
    assert run(whole).resumed == 3
    assert len(ranked) == 1
    assert contents(whole) == before


def test_a_folder_of_other_data_or_another_experiment_is_refused(
    run: Run, whole: Path, small_trunk: DemoFiles, tmp_path: Path, capsys: Any
) -> None:
    before = contents(whole)
    with np.load(small_trunk.eval) as held:
        data = {name: rows[:30] for name, rows in held.items()}
    with pytest.raises(CimError, match="holds a retrieval evaluation with another data set"):
        run(whole, data=data)
    assert contents(whole) == before
    (tmp_path / "sweep.json").write_text("{}")
    words = ["evaluate", "--data", str(small_trunk.eval), "-o", str(tmp_path)]
    assert cli.run(words) == 2
    said = capsys.readouterr().err
    assert "exists and holds no retrieval evaluation, so nothing is written there" in said
    assert said.count("\n") == 1
    assert set(contents(tmp_path)) == {"sweep.json"}


@pytest.mark.thorough("two evaluations")
def test_runs_are_written_whatever_is_known(
    run: Run, whole: Path, tmp_path: Path, ranked: list[str]
) -> None:
    run(trec=tmp_path / "alone")
    found = run(whole, trec=tmp_path / "runs", jobs=2)
    assert (found.resumed, len(ranked)) == (0, 4)
    assert contents(tmp_path / "runs") == contents(tmp_path / "alone")
    with pytest.raises(CimError, match="trec is written on this machine; expected jobs, not dask"):
        run(trec=tmp_path / "no", dask="tcp://127.0.0.1:1")
    assert not (tmp_path / "no").exists()


def test_the_command_says_what_it_wrote_and_took(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Any
) -> None:
    words = ["evaluate", "--data", str(small_trunk.eval), "--resamples", "9"]
    words += ["-o", str(tmp_path / "e")]
    assert cli.run(words) == 0
    assert "1 subject, 0 ranked by an earlier run" in capsys.readouterr().out
    assert cli.run(words) == 0
    said = capsys.readouterr().out
    assert "1 subject, 1 ranked by an earlier run" in said
    assert "evaluation.html" in said
