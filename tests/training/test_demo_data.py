from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.calibration_rows import row_digests
from cimtool.training import demo_data
from cimtool.training.demo_data import DemoSettings, prepare, prepare_demo

VERBS = ("parse", "sort", "merge", "open", "close", "count", "hash", "split", "join", "scale")
NOUNS = ("matrix", "socket", "buffer", "thread", "vector", "kernel", "header", "window")
TINY = DemoSettings(
    epochs=1,
    eval_rows=10,
    calibration_rows=20,
    width=8,
    hidden=16,
    batch=16,
    teacher_pairs=200,
    degree=2,
)


def function(verb: str, noun: str) -> str:
    body = f"    {noun}s = [{verb}_one_{noun}(item) for item in {noun}_items if item is not None]\n"
    tail = f"    return combine_{noun}({noun}s, how={verb!r}, strict=True)\n"
    text = f'    """{verb.title()} every {noun} that was handed over."""\n'
    return f"def f({noun}_items):\n{text}{body}{tail}"


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "sources"
    folder.mkdir()
    code = "\n".join(function(verb, noun) for verb in VERBS for noun in NOUNS)
    (folder / "module.py").write_text(code)
    return [folder]


def test_artefacts_fit_together_and_are_made_once(tmp_path: Path, sources: list[Path]) -> None:
    said: list[str] = []
    files = prepare(tmp_path / "cache", TINY, sources, said.append)
    assert "80 pairs" in "\n".join(said)
    state = torch.load(files.projectors, weights_only=True)
    assert {key.split(".")[0] for key in state} == {"text_proj", "video_proj"}
    poly = json.loads(files.poly.read_text())
    assert (poly["degree"], len(poly["coeff"]), poly["a"], poly["K"]) == (2, 5, 0.1, 10)
    for path, rows in ((files.train, 70), (files.calibration, 20), (files.eval, 10)):
        with np.load(path) as held:
            assert {key: held[key].shape for key in held} == {"text": (rows, 8), "video": (rows, 8)}
            assert {held[key].dtype for key in held} == {np.dtype(np.float32)}
    assert len(list((tmp_path / "cache").iterdir())) == 1

    before = files.projectors.stat().st_mtime_ns
    said.clear()
    assert prepare(tmp_path / "cache", TINY, sources, said.append) == files
    assert files.projectors.stat().st_mtime_ns == before
    assert len(said) == 1


def test_no_evaluation_row_is_a_calibration_row(tmp_path: Path, sources: list[Path]) -> None:
    """Functions that differ in punctuation alone are two pairs with the same rows."""
    twin = (
        (sources[0] / "module.py").read_text().replace(" was ", "; was ").replace(" is ", "  is ")
    )
    (sources[0] / "twin.py").write_text(twin)
    said: list[str] = []
    files = prepare(tmp_path / "cache", replace(TINY, calibration_rows=150), sources, said.append)
    assert "160 pairs" in "\n".join(said)
    with np.load(files.calibration) as calibration, np.load(files.eval) as held:
        assert 140 <= len(calibration["text"]) < 150
        assert len(calibration["text"]) == len(calibration["video"])
        for name in ("text", "video"):
            assert not np.isin(row_digests(calibration[name]), row_digests(held[name])).any()


def test_other_settings_have_a_folder_of_their_own(tmp_path: Path, sources: list[Path]) -> None:
    first = prepare(tmp_path / "cache", TINY, sources, print)
    second = prepare(tmp_path / "cache", replace(TINY, seed=1), sources, print)
    assert first.poly.parent != second.poly.parent
    assert first.poly.read_text() != second.poly.read_text()


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_data, "save_polynomial", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "cache", TINY, sources, print)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cached_folder_that_lost_a_file_is_named(tmp_path: Path, sources: list[Path]) -> None:
    files = prepare(tmp_path / "cache", TINY, sources, print)
    files.eval.unlink()
    with pytest.raises(CimError, match=r"lacks eval\.npz; delete it"):
        prepare(tmp_path / "cache", TINY, sources, print)


def test_bad_epochs_an_unwritable_folder_and_too_few_functions(
    tmp_path: Path, sources: list[Path]
) -> None:
    with pytest.raises(CimError, match="epochs is 0; expected 1 or more"):
        prepare_demo(tmp_path, 0, print)
    (tmp_path / "file").write_text("")
    with pytest.raises(CimError, match=r"cannot be written to .*file"):
        prepare(tmp_path / "file", TINY, sources, print)
    with pytest.raises(CimError, match="80 pairs; expected more than 80"):
        prepare(tmp_path, replace(TINY, eval_rows=80), sources, print)
