from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool import api, cli
from cimtool.base.errors import CimError
from cimtool.base.progress import Say
from cimtool.bundle.bundle import read_bundle
from cimtool.demo import walk as demo_module
from cimtool.demo.commands.demo import demo_commands
from cimtool.demo.data import DemoFiles, DemoSettings
from cimtool.demo.encoder import EncoderFiles
from cimtool.demo.walk import (
    FIRST,
    FIRST_POLY,
    SAMPLED,
    prepare_demo,
    run_demo,
    settings_for,
)

VERBS = ("parse", "sort", "merge", "open", "close", "count", "hash", "split", "join", "scale")
NOUNS = ("matrix", "socket", "buffer", "thread", "vector", "kernel", "header", "window", "table")
TINY = DemoSettings(
    epochs=1,
    batch=32,
    eval_rows=10,
    few_rows=6,
    calibration_rows=20,
    width=8,
    first_pairs=400,
    last_pairs=400,
    sampled_pairs=300,
    samples=(2, 3),
    options={"model.hidden": 16, "model.width": 8, "model.linear": False},
)
JUDGED = replace(
    TINY,
    pretrained=True,
    rate=3e-4,
    matched=0.1,
    options=DemoSettings.of_encoder(1).options | {"model.hidden": 8, "model.width": 4},
    eval_rows=40,
    calibration_rows=30,
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
    files = prepare_demo(tmp_path / "cache", TINY, sources, said.append)
    assert "90 pairs" in "\n".join(said)
    checkpoint = torch.load(files.projectors, weights_only=True)
    assert checkpoint["config"]["model.hidden"] == 16
    assert len(checkpoint["config"]["data"]) == 64, "a digest of the rows that trained"
    poly = json.loads(files.poly.read_text())
    assert poly["degree"] in (1, 2)
    start = torch.load(files.teacher, weights_only=True)
    assert (start["a"], start["b"]) == (0.1, 25.0)
    assert (poly["a"], poly["b"], poly["K"]) == (0.1, 25.0, None)
    assert "is enough: " in "\n".join(said)
    for fitted in (FIRST_POLY, files.poly.name):
        found = json.loads(files.poly.with_name(Path(fitted).stem + ".fit.json").read_text())
        table = found["comparison"]
        assert (table["data"], table["items"]) == ("few.npz", [6, 6])
        for one in table["candidates"]:
            recall = one["r1_text_to_video"]
            assert 0 <= recall["low"] <= recall["value"] <= recall["high"] <= 1
    for labels, options in ((FIRST, {"pairs": 400}), (SAMPLED, {"pairs": 300, "labels": "mc"})):
        by_hand = tmp_path / labels
        api.teacher(files.teacher, files.train, matched=0.5, output=by_hand, **options)
        assert by_hand.read_bytes() == files.poly.with_name(labels).read_bytes()
    assert start["config"]["data"] == checkpoint["config"]["data"]
    assert not files.missing()
    assert len(list((tmp_path / "cache").iterdir())) == 1

    before = files.projectors.stat().st_mtime_ns
    said.clear()
    assert prepare_demo(tmp_path / "cache", TINY, sources, said.append) == files
    assert files.projectors.stat().st_mtime_ns == before
    assert len(said) == 1


@pytest.mark.thorough("the demo is made again by hand")
def test_the_commands_come_to_the_same_by_hand(
    tmp_path: Path, sources: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = prepare_demo(tmp_path / "cache", TINY, sources, print)
    commands = demo_commands(files, TINY, "ideal", tmp_path / "by-hand")
    for line in commands:
        assert cli.run(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    made, again = files.poly.parent, tmp_path / "by-hand"
    names = ["teacher/model.pth", "demo/model.pth", "demo/history.json", "last.npz", "poly.json"]
    for name in (*names, "poly.fit.html"):
        assert (made / name).read_bytes() == (again / name).read_bytes(), name
    assert (again / "bundle" / "report.html").is_file()
    assert (again / "scores.npz").is_file()


class DrawnRows:
    """An encoder whose rows are drawn, the same for the same text."""

    def __init__(self, files: EncoderFiles) -> None:
        assert files == ENCODER

    def rows(self, texts: Sequence[str], most: int) -> np.ndarray:
        drawn = [np.random.default_rng([*text.encode()]).normal(size=8) for text in texts]
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


ENCODER = EncoderFiles(Path("weights"), Path("vocabulary"))


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "find_encoder", lambda: ENCODER)
    monkeypatch.setattr(demo_module, "Encoder", DrawnRows)


@pytest.mark.thorough("the demo once more, on other rows")
def test_queries_with_several_right_answers(
    encoder: None, tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_module, "installed_sources", lambda: sources)
    monkeypatch.setattr(DemoSettings, "of_encoder", lambda epochs: JUDGED)
    said: list[str] = []
    folders = tmp_path / "cache", tmp_path / "out"
    found = run_demo("ideal", 1, *folders, said.append, rows="encoder")
    assert said[0] == "rows of all-MiniLM-L6-v2 (int8)"
    assert found.queries is not None
    assert found.queries.queries == len(np.load(found.files.eval)["text"])
    assert found.queries.ambiguous > 0
    train = torch.load(found.files.projectors, weights_only=True)["config"]
    assert train["model.linear"] is True
    for file in (found.files.train, found.files.eval, found.files.few):
        assert found.files.judged(file) is not None
    for line in demo_commands(found.files, JUDGED, "ideal", tmp_path / "by-hand"):
        measures = ("train", "fit", "verify", "evaluate")
        assert ("--qrels" in line) == (line.split()[1] in measures)


def test_rows_of_the_encoder_need_it_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(demo_module, "find_encoder", lambda: ENCODER)
    assert settings_for(3, "encoder", said.append).pretrained
    assert settings_for(3, None, said.append).pretrained
    assert not settings_for(3, "tf-idf", said.append).pretrained
    monkeypatch.setattr(demo_module, "find_encoder", lambda: None)
    assert settings_for(3, "tf-idf", said.append) == DemoSettings(3)
    assert settings_for(3, None, said.append) == DemoSettings(3)
    with pytest.raises(CimError, match=r"rows is encoder, and all-MiniLM-L6-v2 .* not installed"):
        settings_for(3, "encoder", said.append)
    assert said == [
        *["rows of all-MiniLM-L6-v2 (int8)"] * 2,
        *["rows of TF-IDF and SVD, which nobody trained"] * 2,
        "rows of TF-IDF and SVD, which nobody trained: all-MiniLM-L6-v2 (int8) is not installed "
        "(demo-requirements.txt)",
    ]


@pytest.mark.thorough("the demo is made again by hand")
def test_the_commands_come_to_the_same_by_hand_with_judgements(
    encoder: None, tmp_path: Path, sources: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = prepare_demo(tmp_path / "cache", JUDGED, sources, print)
    for line in demo_commands(files, JUDGED, "ideal", tmp_path / "by-hand"):
        assert cli.run(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    for name in ("teacher/model.pth", "demo/model.pth", "poly.json"):
        made = files.poly.parent / name
        assert made.read_bytes() == (tmp_path / "by-hand" / name).read_bytes(), name


def test_other_settings_have_a_folder_of_their_own(tmp_path: Path, sources: list[Path]) -> None:
    first = prepare_demo(tmp_path / "cache", TINY, sources, print)
    second = prepare_demo(tmp_path / "cache", replace(TINY, last_pairs=300), sources, print)
    assert first.poly.parent != second.poly.parent
    assert first.poly.read_text() != second.poly.read_text()


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_module.api, "fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare_demo(tmp_path / "cache", TINY, sources, print)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_closed_output_is_no_folder_that_cannot_be_written(
    tmp_path: Path, sources: list[Path]
) -> None:
    def closed(text: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        prepare_demo(tmp_path / "cache", TINY, sources, closed)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cached_folder_that_lost_a_file_is_named(tmp_path: Path, sources: list[Path]) -> None:
    files = prepare_demo(tmp_path / "cache", TINY, sources, print)
    files.eval.unlink()
    with pytest.raises(CimError, match=r"lacks eval\.npz; delete it"):
        prepare_demo(tmp_path / "cache", TINY, sources, print)


def test_an_unwritable_folder(tmp_path: Path, sources: list[Path]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "circle").symlink_to("circle")
    for name, said in (("file", "is a file"), ("circle", "is a link that leads nowhere")):
        with pytest.raises(CimError, match=rf"{name}: cannot be written \(.*{name} {said}"):
            prepare_demo(tmp_path / name, TINY, sources, print)


def test_a_full_disk_is_told_before_the_work(tmp_path: Path, sources: list[Path]) -> None:
    told: list[str] = []
    many = replace(TINY, eval_rows=1 << 45)
    with pytest.raises(CimError, match=r"cache/\w+: takes .* bytes or more, and the disk of "):
        prepare_demo(tmp_path / "cache", many, sources, told.append)
    assert told == []
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def made(small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """Calls for trained artefacts, answered with the small model."""
    calls: list[tuple[Path, int]] = []

    def make(cache: Path, settings: DemoSettings, sources: Sequence[Path], step: Say) -> DemoFiles:
        calls.append((cache, settings.epochs))
        step(f"training for {settings.epochs} epochs")
        return small_trunk

    small_trunk.poly.with_name(FIRST_POLY).write_bytes(small_trunk.poly.read_bytes())
    monkeypatch.setattr(demo_module, "prepare_demo", make)
    monkeypatch.setattr(demo_module, "find_encoder", lambda: None)
    return calls


def test_the_demo_leaves_a_bundle_scores_and_a_report(
    made: list[tuple[Path, int]], tmp_path: Path
) -> None:
    steps: list[str] = []
    found = run_demo("isaac-rram-128", 3, tmp_path / "cache", tmp_path / "out", steps.append)
    assert made == [(tmp_path / "cache", 3)]
    assert [step.split()[0] for step in steps] == [
        *("rows", "training", "compiling", "simulating", "verifying", "evaluating"),
    ]  # fmt: skip
    assert read_bundle(found.bundle).target.name == "isaac-rram-128"
    assert found.bundle == tmp_path / "out" / "demo@isaac-rram-128"
    assert (found.bundle / "report.html").is_file()
    assert found.scores.is_file()
    assert not found.report.failures
    assert [one.kind for one in found.stages.scores] == [
        *("float", "Monte Carlo", "Monte Carlo", "Monte Carlo") * 2, "compiled", "embeddings"
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "demo@isaac-rram-128",
        "demo@isaac-rram-128.scores.npz",
    ]


def test_mistakes_are_found_before_training(made: list[tuple[Path, int]], tmp_path: Path) -> None:
    with pytest.raises(CimError, match='did you mean "ideal"'):
        run_demo("idal", 3, tmp_path, tmp_path, print)
    (tmp_path / "demo@ideal").write_text("mine")
    with pytest.raises(CimError, match="exists and is not a bundle"):
        run_demo("ideal", 3, tmp_path, tmp_path, print)
    with pytest.raises(CimError, match="epochs is 10001; expected at most 10,000"):
        run_demo("ideal", 10_001, tmp_path, tmp_path, print)
    (tmp_path / "out" / "demo@ideal.scores.npz").mkdir(parents=True)
    with pytest.raises(CimError, match=r"scores\.npz: is a folder; expected a file"):
        run_demo("ideal", 3, tmp_path, tmp_path / "out", print)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(CimError, match="is a link that leads nowhere"):
        run_demo("ideal", 3, tmp_path, tmp_path / "circle", print)
    assert made == []


@pytest.mark.parametrize("option", ["--out", "--cache"])
def test_nothing_is_written_into_a_bundle(
    option: str, small_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(small_bundle.rglob("*"))
    folders = {"--out": tmp_path / "out", "--cache": tmp_path / "cache", option: small_bundle}
    words = [str(word) for pair in folders.items() for word in pair]
    assert cli.run(["demo", "--epochs", "1", *words]) == 2
    assert "is in the bundle small@isaac-rram-128" in capsys.readouterr().err
    assert sorted(small_bundle.rglob("*")) == before


@pytest.mark.thorough("a second demo")
def test_the_command_tells_a_line_a_step_and_where_everything_is(
    made: list[tuple[Path, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert cli.run(["demo", "--target", "ideal", "--epochs", "2", *folders]) == 0
    out, error = capsys.readouterr()
    assert all(" choosing bits, " in line for line in error.splitlines())
    assert [line.split(maxsplit=2)[2] for line in out.splitlines()[1:3]] == [
        "training for 2 epochs",
        "compiling for ideal",
    ]
    assert "compared with" in out
    report = tmp_path / "out" / "demo@ideal" / "report.html"
    assert f"report  {report}\n" in out
    by_hand = [line.split()[:2] for line in out.splitlines() if line.startswith("  cimtool ")]
    assert [name for _, name in by_hand] == [
        *("train", "teacher", "fit") * 2, "compile", "simulate", "verify", *("evaluate",) * 2
    ]  # fmt: skip
    assert cli.run(["demo", "--target", "ideal", *folders, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bundle"] == str(report.parent)
    assert found["report"]["passed"] is True
    assert [epochs for _, epochs in made] == [2, 6]


def test_epochs_below_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert cli.run(["demo", "--epochs", "0", *folders]) == 2
    assert "--epochs is 0; expected an integer of at least 1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
