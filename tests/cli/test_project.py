"""Project files: `init` guesses one, every command reads it, `run` does what is out of date."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from cimtool.cli import cli
from cimtool.cli.commands import init
from cimtool.cli.commands import run as run_command
from cimtool.cli.group import Command, CommandContext, command_files, records_by_command
from cimtool.cli.project import read_values, shared_options

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINT = ROOT / "tests/golden/checkpoints/small-trunk.safetensors"
WIDTH = 24
POLYNOMIAL = {
    "degree": 2, "coeff": [-6.25, 0.3125, 0.125, -0.0625, 0.03125], "bias": 0.5,
    "scale_ed": 64.0, "scale_vd": 64.0, "a": 0.1, "b": 0.0, "K": 10,
}  # fmt: skip
PROJECT = """
target = "isaac-rram-128"
bundle = "exports/small"
report = "report"
[model]
projectors = "model.safetensors"
[score]
poly = "poly.json"
[data]
calibration = "calibration.npz"
measured = "eval.npz"
[settings]
adc_bits = 5
"""
Cimtool = Callable[..., Any]
Write = Callable[[str], None]


def fill(folder: Path) -> None:
    """A model, its polynomial, and two files of rows."""
    rng = np.random.RandomState(5)
    shutil.copy(CHECKPOINT, folder / "model.safetensors")
    (folder / "poly.json").write_text(json.dumps(POLYNOMIAL))
    for name, count in (("calibration", 64), ("eval", 24)):
        text = rng.normal(size=(count, WIDTH)).astype(np.float32)
        np.savez(folder / f"{name}.npz", text=text, video=text + np.float32(0.1))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A filled folder, which is the current one."""
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here: Path) -> Write:
    """Write a project file."""

    def write_text(text: str) -> None:
        (here / "cimtool.toml").write_text(text, "utf-8")

    return write_text


def values_of(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text("utf-8"))


# init


def test_init_guesses_each_file_and_says_why(here: Path, cimtool: Cimtool) -> None:
    ran = cimtool("init")
    assert ran.status == 0
    assert "model.projectors = model.safetensors: the only checkpoint here" in ran.out
    assert "next: cimtool run" in ran.out
    assert values_of(here / "cimtool.toml") == {
        "target": "isaac-rram-128",
        "bundle": "exports/model@isaac-rram-128",
        "report": "report",
        "model": {"projectors": "model.safetensors"},
        "score": {"poly": "poly.json"},
        "data": {"calibration": "calibration.npz", "measured": "eval.npz"},
    }
    assert cimtool("compile", "--dry-run").status == 0


def test_init_takes_the_best_epoch_before_the_last(here: Path, cimtool: Cimtool) -> None:
    shutil.copy(here / "model.safetensors", here / "last.safetensors")
    assert values_of_init(here, cimtool)["model"] == {"projectors": "model.safetensors"}


def test_init_overwrites_nothing(here: Path, write: Write, cimtool: Cimtool) -> None:
    write("# mine\n")
    assert "cimtool.toml: is there already" in cimtool("init").sentence
    assert (here / "cimtool.toml").read_text() == "# mine\n"
    assert not (here / "cimtool.schema.json").exists()


def test_init_says_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cimtool: Cimtool
) -> None:
    monkeypatch.chdir(tmp_path)
    found = cimtool("init", "--json").json
    assert set(found["unknown"]) == {"model.projectors", "score.poly", "data.calibration"}
    ran = cimtool("run")
    assert ran.status == 2
    assert ran.sentence == (
        "cimtool.toml: model.projectors is missing, which compile needs; `cimtool train` makes one"
    )


def test_init_with_rows_alone_says_how_a_model_is_made(here: Path, cimtool: Cimtool) -> None:
    (here / "model.safetensors").unlink()
    ran = cimtool("init")
    assert ran.status == 2
    command = "cimtool train --data calibration.npz --test 0.2 --model linear -o trained"
    assert ran.sentence == (
        "no checkpoint of a known layout lies here, nor two ONNX files; "
        f"`{command}` makes one of these rows, and `cimtool init` in its folder goes on from there"
    )
    assert not (here / "cimtool.toml").exists()
    torch.save({"head.weight": torch.zeros(2, 3)}, here / "own.pth")
    assert "--projectors own.pth --calibration NPZ` shows how to export own.pth" in (
        cimtool("init").sentence
    )


def test_the_folder_of_a_training_is_a_project(
    here: Path, cimtool: Cimtool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, 80, 6)).astype(np.float32)
    np.savez(here / "rows.npz", text=rows[0], video=rows[0] + rows[1] / 4)
    words = ("--test", "0.3", "--model", "linear", "-o", "trained")
    assert cimtool("train", "--data", "rows.npz", *words).status == 0
    monkeypatch.chdir(here / "trained")
    assert cimtool("init").status == 0
    values = values_of(here / "trained" / "cimtool.toml")
    assert values["model"] == {"projectors": "model.pth"}
    assert values["data"] == {"calibration": "calibration.npz", "measured": "test.npz"}
    assert cimtool("compile", "--dry-run").status == 0


def test_init_leaves_out_rows_of_another_width(here: Path, cimtool: Cimtool) -> None:
    rows = np.ones((8, WIDTH + 1), np.float32)
    np.savez(here / "calibration.npz", text=rows, video=rows)
    assert values_of_init(here, cimtool)["data"] == {"calibration": "eval.npz"}


def test_init_takes_a_target_and_settings_that_lie_there(here: Path, cimtool: Cimtool) -> None:
    target = 'name = "mine"\nbase = "isaac-rram-128"\ntitle = "mine"\nfigures = []\n'
    (here / "mine.toml").write_text(target)
    (here / "bits.toml").write_text("adc_bits = 6\n")
    found = values_of_init(here, cimtool)
    assert (found["target"], found["settings"]) == ("mine.toml", "bits.toml")
    assert found["bundle"] == "exports/model@mine"


def test_init_takes_a_name_with_quotes_and_line_breaks(here: Path, cimtool: Cimtool) -> None:
    strange = 'a"\n[model]\\.safetensors'
    (here / "model.safetensors").rename(here / strange)
    assert values_of_init(here, cimtool)["model"] == {"projectors": strange}


def values_of_init(here: Path, cimtool: Cimtool) -> dict[str, Any]:
    assert cimtool("init").status == 0
    return values_of(here / "cimtool.toml")


def test_init_asks_in_a_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, cimtool: Cimtool
) -> None:
    shutil.copy(CHECKPOINT, here / "other.safetensors")
    answers = {"model.projectors": "other.safetensors", "target": "ideal"}
    asked = []

    def prompt(key: str, **more: Any) -> str:
        asked.append(key)
        return answers[key]

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(init.click, "prompt", prompt)
    found = values_of_init(here, cimtool)
    assert asked == ["model.projectors", "target"]
    assert (found["model"]["projectors"], found["target"]) == ("other.safetensors", "ideal")


# every command reads it


def test_a_command_says_what_the_file_gives(write: Write, cimtool: Cimtool) -> None:
    write(PROJECT)
    ran = cimtool("compile", "--dry-run", "-v")
    assert ran.status == 0
    assert "5 bits, steps" in ran.out
    keys = "model.projectors, score.poly, data.calibration, target, settings, bundle"
    assert ran.err.startswith(f"cimtool.toml: {keys}\n")


def test_options_override_the_file(write: Write, cimtool: Cimtool, here: Path) -> None:
    write(PROJECT)
    given = ("compile", "--drift", "given", "--dry-run", "--json")
    assert cimtool(*given).json["settings"]["adc_bits"] == 5
    assert cimtool(*given, "--adc-bits", 6).json["settings"]["adc_bits"] == 6
    (here / "bits.toml").write_text("adc_bits = 7\n")
    assert cimtool(*given, "--settings", "bits.toml").json["settings"]["adc_bits"] == 7
    assert cimtool(*given, "--target", "ideal").json["target"] == "ideal"


def test_another_file_by_its_path(here: Path, cimtool: Cimtool) -> None:
    below = here / "below"
    below.mkdir()
    for file in here.iterdir():
        if file.is_file():
            file.rename(below / file.name)
    (below / "cimtool.toml").write_text(PROJECT)
    ran = cimtool("compile", "--project", "below/cimtool.toml", "--dry-run", "--json")
    assert ran.json["settings"]["adc_bits"] == 5
    assert "expected a file" in cimtool("compile", "--project", "below").sentence


def test_layers_have_settings_of_their_own(write: Write, cimtool: Cimtool) -> None:
    write(f'{PROJECT}[settings.layers."text.mu"]\nadc_bits = 6\n')
    found = cimtool("compile", "--dry-run", "--json").json
    assert found["settings"]["layers"] == [{"pattern": "text.mu", "adc_bits": 6}]


def test_the_help_shows_the_file(write: Write, cimtool: Cimtool) -> None:
    assert "From the project file" not in cimtool("compile", "--help").out
    write(PROJECT)
    ran = cimtool("compile", "--help")
    assert ran.status == 0
    told = ran.out.partition("From the project file:")[2]
    assert '  model.projectors  "model.safetensors"\n' in told
    assert '  settings          {"adc_bits": 5}\n' in told


def test_a_command_without_records_reads_no_file(write: Write, cimtool: Cimtool) -> None:
    write("nonsense = [")
    assert cimtool("targets", "list").status == 0


def test_training_takes_no_build_without_hardware(write: Write, cimtool: Cimtool) -> None:
    write(PROJECT + '[train]\nloss = "no-such-loss"\n')
    ran = cimtool("train", "--data", "eval.npz", "-o", "run")
    assert ran.status == 2
    assert ran.err.startswith("cimtool.toml: train.loss\n")
    assert 'loss "no-such-loss" is not known' in ran.err


def keys_of(command: str, *words: str) -> list[str]:
    """The keys of the project file that a command takes."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    context = found.make_context(command, [*words], click.Context(cli, info_name="cimtool"))
    assert isinstance(context, CommandContext)
    return [one.key for one in context.used]


def test_training_with_hardware_takes_its_own_target(write: Write) -> None:
    write(PROJECT + '[train]\nhardware = "ideal"\n')
    keys = keys_of("train", "--data", "eval.npz", "-o", "run")
    assert sorted(keys) == ["data.calibration", "settings", "train.hardware"]


def test_a_cost_takes_rows_with_a_gallery_alone(write: Write) -> None:
    write(PROJECT)
    assert keys_of("cost") == ["bundle", "report"]
    write(f"gallery = 100\n{PROJECT}")
    assert sorted(keys_of("cost")) == ["bundle", "data.measured", "gallery", "report"]


def test_a_target_of_the_file_gives_way_to_those_of_a_grid(write: Write, cimtool: Cimtool) -> None:
    write(PROJECT)
    ran = cimtool("sweep", "--grid", "target=no-such-chip")
    assert ran.status == 2
    assert "no-such-chip" in ran.err
    assert "target" not in ran.err.splitlines()[0].split(": ")[1].split(", ")


def test_a_score_of_the_file_is_for_checkpoints_alone(write: Write, cimtool: Cimtool) -> None:
    write(PROJECT)
    assert cimtool("evaluate").err == "cimtool.toml: data.measured\n"
    ran = cimtool("evaluate", "model.safetensors")
    assert (ran.status, ran.err) == (0, "cimtool.toml: data.measured, score.poly\n")


def test_a_wrong_value_is_named_by_its_key(write: Write, cimtool: Cimtool) -> None:
    write(PROJECT.replace('poly.json"', 'poly.json"\na = -1'))
    assert "score.a in cimtool.toml is -1.0" in cimtool("compile").err


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('projectors = "x.pth"', ["unknown key projectors", "model.projectors", "[model]"]),
        ('[model]\nprojector = "x.pth"', ["unknown key model.projector", "model.projectors"]),
        ('[data]\ntarget = "ideal"', ["unknown key data.target", "above all tables"]),
        ("tarjet = 1", ["unknown key tarjet", "target"]),
        ("gallery = 1.5", ["gallery = 1.5", "an integer of at least 2"]),
        ("gallery = true", ["gallery = true", "an integer of at least 2"]),
        ("target = 3", ["target = 3", "a text"]),
        ('target = ""', ['target = ""', "a text"]),
        ("model = 3", ["model = 3", "a table"]),
        ("[score]\na = nan", ["score.a = NaN", "a finite number"]),
        ("[model]\nprojectors = []", ["model.projectors = []", "a file, or a list of two"]),
        ("[settings]\nadc_bit = 4", ["unknown key settings.adc_bit", "settings.adc_bits"]),
        ("[settings]\nadc_bits = 99", ["settings.adc_bits = 99", "must be"]),
        ("settings = 4", ["settings = 4", "a file or folder, or a table"]),
        ("[budgets]\nr1_los = 0.01", ["unknown key budgets.r1_los", 'did you mean "r1_loss"']),
        ("[budgets]\nr1_loss = 'low'", ["budgets = ", "a table of numbers by metric"]),
        ("[compile]\ndrft = 'mc=3'", ["unknown key compile.drft", "compile.drift"]),
        ("[compile]\nstages = 'no'", ['compile.stages = "no"', "true or false"]),
        ("compile = 1", ["compile = 1", "a table"]),
        ("[model]\nprojectors = 'gone.pth'", ['model.projectors = "gone.pth"', "no file gone.pth"]),
        ("x = [", ["not valid TOML"]),
        ("\0", ["not valid TOML"]),
        ("#" * 200_000, ["has 200,000 bytes"]),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(
    text: str, parts: list[str], write: Write, cimtool: Cimtool
) -> None:
    write(text)
    given = ("--calibration", "calibration.npz", "--target", "ideal")
    more = () if "gone" in text else ("--projectors", "model.safetensors")
    ran = cimtool("compile", *given, *more)
    assert ran.status == 2
    assert ran.sentence.startswith("cimtool.toml: ")
    assert not [part for part in parts if part not in ran.sentence], ran.sentence


def test_a_file_that_is_not_there(here: Path, cimtool: Cimtool) -> None:
    assert "gone.toml" in cimtool("compile", "--project", "gone.toml").sentence
    assert "cimtool init" in cimtool("run").sentence


def test_the_page_says_which_commands_take_which_key(write: Write) -> None:
    plain = {"gallery": "100", "budgets": "{ r1_loss = 0.02 }", "score.head": '"csd"'}
    plain |= {"score.a": "1.0", "score.b": "1.0", "model.ignore_uncertainty": "true"}
    values = dict.fromkeys(shared_options(), '"x"') | plain
    write("".join(f"{key} = {value}\n" for key, value in values.items()))
    table = runpy.run_path(str(ROOT / "docs/made_from_code.py"))["PARTS"]["project-keys"]()
    said = dict(re.findall(r"^\| `(\S+)` \| .* \| (.*) \|$", table, re.M))
    assert set(said) == set(shared_options())
    for words, options in records_by_command(cli, click.Context(cli)):
        assert f"`[{'.'.join(words)}]`" in table
        file = Path("cimtool.toml")
        taken = {one.key for one in read_values(file, command_files(), words, options, {}, None)}
        assert taken == {key for key, uses in said.items() if f"`{' '.join(words)}`" in uses}


# the schema


def test_every_shared_key_is_one_of_compile_or_verify() -> None:
    context = click.Context(cli)
    places = {
        one.place
        for _, options in records_by_command(cli, context)
        for one in options.values()
        if one.place
    }
    assert places == set(shared_options())


def test_the_schema_has_every_key_of_the_file_and_no_other(
    here: Path, write: Write, cimtool: Cimtool
) -> None:
    assert cimtool("init").status == 0
    schema = json.loads((here / "cimtool.schema.json").read_text())
    first = (here / "cimtool.toml").read_text().splitlines()[0]
    assert first == "#:schema ./cimtool.schema.json"
    tables = schema["properties"]
    assert schema["additionalProperties"] is False
    assert tables["model"]["properties"]["projectors"]["anyOf"][1]["maxItems"] == 2
    assert "adc_bits" in tables["settings"]["anyOf"][1]["properties"]
    assert "jobs" in tables["targets"]["properties"]["compare"]["properties"]
    assert "weight_bits" not in tables["compile"]["properties"], "it stands in [settings]"


PAGE = (ROOT / "docs/project-file.md").read_text("utf-8")
EXAMPLE = PAGE.partition("```toml\n")[2].partition("```")[0]


@pytest.mark.parametrize("text", [PROJECT, EXAMPLE])
def test_a_good_file_keeps_to_the_schema(text: str) -> None:
    assert refused(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "tarjet = 'ideal'",
        "gallery = 1",
        "target = ''",
        "[model]\nprojectors = ['a', 'b', 'c']",
        "[settings]\nadc_bits = 99",
        "[budgets]\nr1_loss = 'low'",
        "[budgets]\nr1_los = 0.01",
        "[compile]\nstages = 'no'",
        "[verify]\ncalibration_rows = 'maybe'",
    ],
)
def test_a_mistake_is_refused_by_the_schema(text: str) -> None:
    assert refused(text)


def refused(text: str) -> list[str]:
    schema = json.loads((ROOT / "docs/project.schema.json").read_text("utf-8"))
    return [one.message for one in Draft202012Validator(schema).iter_errors(tomllib.loads(text))]


# run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project after a run."""
    from contextlib import chdir

    from cimtool.cli import run

    folder = tmp_path_factory.mktemp("project")
    fill(folder)
    (folder / "cimtool.toml").write_text(PROJECT)
    with chdir(folder):
        assert run(["run"]) == 0
    return folder


@pytest.fixture
def again(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished project, which is the current folder."""
    shutil.copytree(finished, tmp_path / "again")
    monkeypatch.chdir(tmp_path / "again")
    return tmp_path / "again"


def change(folder: Path, before: str, after: str) -> None:
    file = folder / "cimtool.toml"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def steps_done(cimtool: Cimtool, *options: object) -> list[str]:
    steps = cimtool("run", "--json", *options).json["steps"]
    return [name for name, one in steps.items() if one["done"]]


def test_a_run_makes_the_bundle_the_report_and_its_page(again: Path, cimtool: Cimtool) -> None:
    assert (again / "exports/small/manifest.json").is_file()
    names = {file.name for file in (again / "report").iterdir()}
    assert names >= {"report.html", "report.json", "cost.json"}
    ran = cimtool("run")
    assert ran.status == 0
    first, *others = ran.out.splitlines()
    assert first == "small: bits agree"
    assert others[-2:] == [
        "nothing to do: compile, verify, cost are up to date",
        "page     report/report.html",
    ]
    assert not ran.err
    lines = [one for line in ran.out.splitlines() for one in textwrap.wrap(line, 80)]
    assert len(lines) <= 15
    assert "* warning: model.safetensors does not say its activation" in cimtool("run", "-v").out


def test_a_run_from_another_folder_finds_the_same(
    again: Path, monkeypatch: pytest.MonkeyPatch, cimtool: Cimtool
) -> None:
    monkeypatch.chdir(again.parent)
    ran = cimtool("run", "--project", "again/cimtool.toml")
    assert "nothing to do" in ran.out
    assert ran.out.endswith("page     again/report/report.html\n")


def test_a_changed_key_redoes_only_what_depends_on_it(again: Path, cimtool: Cimtool) -> None:
    change(again, "[settings]", "[cost]\nbatch = 2\n[settings]")
    assert steps_done(cimtool) == ["cost"]
    assert steps_done(cimtool) == []
    (again / "report" / "cost.json").unlink()
    assert steps_done(cimtool) == ["cost"]


@pytest.mark.thorough("a run of a project more")
def test_another_folder_of_the_report_compiles_nothing(again: Path, cimtool: Cimtool) -> None:
    change(again, 'report = "report"', 'report = "elsewhere"')
    assert steps_done(cimtool) == ["verify", "cost"]
    assert (again / "elsewhere/report.html").is_file()


@pytest.mark.thorough("compiles and verifies again")
def test_other_bits_of_a_converter_compile_again(again: Path, cimtool: Cimtool) -> None:
    change(again, "adc_bits = 5", "adc_bits = 6")
    ran = cimtool("run")
    assert "(settings changed)" in ran.out
    assert "nothing to do" not in ran.out
    assert len([line for line in ran.out.splitlines() if " s (" in line]) == 3


@pytest.mark.thorough("compiles and verifies again")
def test_another_file_of_rows_verifies_again(again: Path, cimtool: Cimtool) -> None:
    shutil.copy(again / "eval.npz", again / "other.npz")
    rows = dict(np.load(again / "other.npz"))
    np.savez(again / "eval.npz", **{name: one[:20] for name, one in rows.items()})
    assert steps_done(cimtool) == ["verify"]


@pytest.mark.thorough("three runs of a project for a rare end")
def test_a_file_that_changes_during_a_step_is_read_again(
    again: Path, monkeypatch: pytest.MonkeyPatch, cimtool: Cimtool
) -> None:
    change(again, "[settings]", "[verify]\nseed = 1\n[settings]")
    do = run_command._run

    def do_and_change(step: Command, inner: CommandContext) -> str:
        failure = do(step, inner)
        rows = dict(np.load(again / "eval.npz"))
        np.savez(again / "eval.npz", **{name: one[:20] for name, one in rows.items()})
        return failure

    with monkeypatch.context() as patched:
        patched.setattr(run_command, "_run", do_and_change)
        assert steps_done(cimtool) == ["verify"]
    assert "verify" in steps_done(cimtool)


def test_a_check_that_fails_ends_each_run_with_1(again: Path, cimtool: Cimtool) -> None:
    change(again, "[settings]", "[budgets]\nlogit_rmse = 1e-9\n[settings]")
    for ran in (cimtool("run"), cimtool("run")):
        assert ran.status == 1
        assert "logit_rmse" in ran.told.splitlines()[-1]
        assert ran.out.splitlines()[1].startswith("Failed: ")
    assert "nothing to do" in ran.out


def test_a_lock_of_another_form_is_one_sentence(again: Path, cimtool: Cimtool) -> None:
    for text in ("", "[]", "{}", '{"steps": {"compile": 3}}', '{"steps": {"compile": {"a": 1}}}'):
        (again / "cimtool.lock").write_text(text)
        ran = cimtool("run")
        assert ran.status == 2
        assert "cimtool.lock" in ran.sentence
        assert "remove it" in ran.sentence


def test_without_measured_rows_there_is_no_report(
    here: Path, write: Write, cimtool: Cimtool
) -> None:
    write(PROJECT.replace('measured = "eval.npz"', ""))
    ran = cimtool("run")
    assert ran.status == 0
    assert "there is no report: cimtool.toml has no data.measured" in ran.out


def test_a_run_needs_a_place_for_the_bundle(write: Write, cimtool: Cimtool) -> None:
    write(PROJECT.replace('bundle = "exports/small"', ""))
    assert "cimtool.toml: bundle is missing" in cimtool("run").sentence
