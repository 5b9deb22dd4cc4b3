"""An output that is one of the inputs is refused before any work, by every command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from cimtool import api, cli
from cimtool.base.errors import CimError
from cimtool.cli.group import Command, FilePath
from cimtool.demo.data import DemoFiles


def commands(group: click.Group = cli.cli) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found) if isinstance(found, click.Group) else (found,)


def test_every_output_is_under_the_name_that_is_checked() -> None:
    outputs = [one for command in commands() for one in command.params if "-o" in one.opts]
    assert len(outputs) >= 14
    assert all(one.name == "output" for one in outputs)
    assert all(isinstance(one.type, FilePath) for one in outputs)
    assert all(isinstance(command, Command) for command in commands())


def by_a_new_folder(file: Path, other: Path) -> Path:
    """The file's path through a folder that is made when it is written."""
    return file.parent / "new" / ".." / file.name


@pytest.mark.parametrize("link", [None, os.symlink, os.link, by_a_new_folder])
def test_embeddings_are_not_replaced_by_scores(
    link: object,
    cimtool: Callable[..., Any],
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    inputs = output = tmp_path / "ev.npz"
    inputs.write_bytes(small_trunk.eval.read_bytes())
    if callable(link):
        output = link(inputs, tmp_path / "other.npz") or tmp_path / "other.npz"
    ran = cimtool("simulate", small_bundle, "--inputs", inputs, "-o", output)
    assert (ran.status, ran.out) == (2, "")
    assert ran.sentence == (
        f"--output {output}: is the file of --inputs, which would be overwritten; expected another "
        "file"
    )
    assert inputs.read_bytes() == small_trunk.eval.read_bytes()


def test_arguments_names_and_pairs_are_inputs_as_well(
    cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    for name in ("a.json", "a.toml", "a.npz"):
        (tmp_path / name).write_bytes(b"the user's own")
    json, toml, npz = (tmp_path / f"a.{suffix}" for suffix in ("json", "toml", "npz"))
    data = [
        "--budget",
        "logit_rmse=1",
        "--projectors",
        small_trunk.projectors,
        "--calibration",
        npz,
        "--data",
        npz,
    ]
    for named, ran in {
        "TEACHER": cimtool("fit", json, "-o", json),
        "CSV": cimtool("noise", "fit", toml, "-o", toml),
        "--target": cimtool("tune", *data, "--target", toml, "-o", toml),
        "--data": cimtool("teacher", "--data", small_trunk.eval, "--data", npz, "-o", npz),
    }.items():
        assert f": is the file of {named}, which would be overwritten" in ran.sentence
        assert ran.status == 2
    assert {file.read_bytes() for file in tmp_path.iterdir()} == {b"the user's own"}


def test_an_earlier_output_is_replaced(
    cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    command = ("simulate", small_bundle, "--inputs", small_trunk.eval, "-o", tmp_path / "s.npz")
    assert [cimtool(*command).status for _ in range(2)] == [0, 0]


def test_functions_of_the_library_refuse_as_their_commands_do(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    npz, json, toml, xml = (tmp_path / f"a.{suffix}" for suffix in ("npz", "json", "toml", "xml"))
    for file in (npz, json, toml, xml):
        file.write_bytes(small_trunk.eval.read_bytes())
    before = npz.read_bytes()
    toml.write_text("weight_bits = 8\n")
    trunk, poly = small_trunk.projectors, small_trunk.poly
    rows = {"calibration": small_trunk.calibration, "data": small_trunk.eval}
    compiled = {"calibration": npz, "target": "ideal"}
    grid = {"weight_bits": [8]}
    calls: dict[str, Callable[[], object]] = {
        "inputs": lambda: api.simulate(small_bundle, npz, output=npz),
        "queries": lambda: api.search(small_bundle, tmp_path, (npz, npz), top=1, output=npz),
        "data": lambda: api.teacher(trunk, npz, output=npz),
        "gaussians": lambda: api.teacher(gaussians={"text": npz}, output=npz),
        "teacher": lambda: api.fit(json, output=json),
        "settings": lambda: api.tune(
            trunk, poly, **rows, target="ideal", budget={"logit_rmse": 1.0},
            settings=toml, output=toml,
        ),
        "calibration": lambda: api.compile(trunk, poly, **compiled, output=npz),
        "projectors": lambda: api.compile((json, npz), poly, **compiled, output=json),
        "poly": lambda: api.sweep(trunk, npz, **rows, target="ideal", grid=grid, output=npz),
        "layer_map": lambda: api.sweep(
            trunk, poly, **rows, target="ideal", grid=grid, output=toml, layer_map=toml
        ),
        "gallery": lambda: api.program(small_bundle, npz, output=npz),
        "add": lambda: api.change_gallery(small_bundle, add=npz, output=npz),
        "validation": lambda: api.train(rows["data"], npz, validation=npz),
        "start": lambda: api.train_grid(rows["data"], npz, grid={"seed": [1]}, start=npz),
        "target": lambda: api.fine_tune(
            trunk, poly, **rows, target=str(toml), output=toml
        ),
        "qrels": lambda: api.verify(small_bundle, rows["data"], qrels=xml, junit=xml),
        "what": lambda: api.evaluate(rows["data"], npz, trec=npz),
    }  # fmt: skip
    for name, call in calls.items():
        with pytest.raises(CimError, match=rf"^\w+ .*: is the file of {name}, which would be"):
            call()
    with pytest.raises(CimError, match="is the file of gallery"):
        api.encode(small_bundle, npz, output=npz)
    assert npz.read_bytes() == json.read_bytes() == before
    assert toml.read_text() == "weight_bits = 8\n"


def test_what_functions_write_into_a_folder_replaces_none_of_their_inputs(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    qrels, runs = tmp_path / "report.md", tmp_path / "text_to_video.qrels"
    for file in (qrels, runs):
        file.write_text("0 0 0 1\n")
    calls: tuple[Callable[[], object], ...] = (
        lambda: api.verify(small_bundle, small_trunk.eval, qrels=qrels, report=tmp_path),
        lambda: api.evaluate(small_trunk.eval, qrels=runs, trec=tmp_path),
    )
    for call in calls:
        with pytest.raises(CimError, match="is the file of qrels, which would be overwritten"):
            call()
    with pytest.raises(CimError, match="is in the bundle small@isaac"):
        api.encode(small_bundle, small_trunk.eval, output=small_bundle / "gallery")
    assert qrels.read_text() == runs.read_text() == "0 0 0 1\n"


def test_judgements_are_not_replaced_by_those_that_are_written(
    cimtool: Callable[..., Any], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    qrels = tmp_path / "text_to_video.qrels"
    qrels.write_text("0 0 0 1\n")
    command = ("evaluate", "--data", small_trunk.eval, "--qrels", qrels, "--trec")
    ran = cimtool(*command, tmp_path)
    assert ran.status == 2
    assert ran.sentence.endswith(
        f"{qrels}: is the file of --qrels, which would be overwritten; expected another file"
    )
    assert qrels.read_text() == "0 0 0 1\n"
    assert cimtool(*command, tmp_path / "other", "--head", "cosine").status == 0


@pytest.mark.thorough("two whole commands; names that are given are in the first tier")
def test_names_that_a_command_chooses_are_compared_with_its_inputs(
    cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files = {name: tmp_path / name for name in ("report.md", "test.npz")}
    files["report.md"].write_text("0 0 0 1\n")
    files["test.npz"].write_bytes(small_trunk.train.read_bytes())
    before = {name: file.read_bytes() for name, file in files.items()}
    data = ("--data", small_trunk.eval)
    command = ("verify", small_bundle, *data, "--qrels", files["report.md"], "--report", tmp_path)
    ran = cimtool(*command)
    assert (ran.status, "report.md: is the file of --qrels, which would be" in ran.sentence) == (
        2,
        True,
    )
    own = ("--data", files["test.npz"], "--test", "0.1", "--epochs", "1")
    ran = cimtool("train", *own, "-o", tmp_path)
    assert (ran.status, "test.npz: is the file of --data, which would be" in ran.sentence) == (
        2,
        True,
    )
    assert {name: file.read_bytes() for name, file in files.items()} == before


def test_nothing_of_others_is_written_into_a_bundle(
    cimtool: Callable[..., Any], small_bundle: Path, small_trunk: DemoFiles
) -> None:
    before = sorted(small_bundle.rglob("*"))
    data = ("--data", small_trunk.eval)
    for command in (
        ("verify", small_bundle, *data, "--junit", small_bundle / "checks.xml"),
        ("verify", small_bundle, *data, "--report", small_bundle / "rep"),
        ("simulate", small_bundle, "--inputs", small_trunk.eval, "-o", small_bundle / "s.npz"),
        ("encode", small_bundle, "--gallery", small_trunk.eval, "-o", small_bundle / "g"),
        ("evaluate", small_bundle, *data, "--trec", small_bundle / "t"),
        ("export", small_bundle, "--format", "onnx", "-o", small_bundle / "c"),
        ("cost", small_bundle, "-o", small_bundle / "c"),
    ):
        ran = cimtool(*command)
        assert (ran.status, "is in the bundle small@isaac" in ran.sentence) == (2, True)
    assert sorted(small_bundle.rglob("*")) == before
