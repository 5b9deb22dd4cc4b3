"""The worked example of docs/targets.md is a valid target that agrees with itself."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cimtool import cli
from cimtool.base.plugins import targets_folder
from cimtool.hardware.cam import Cam, WordArray, WordSense, cam_origins
from cimtool.hardware.figures import UNITS
from cimtool.hardware.settings import Overrides
from cimtool.hardware.target import Target, target_names

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = runpy.run_path(str(DOCS / "made_from_code.py"))["filled_in"](
    (DOCS / "targets.md").read_text()
)
WRITTEN = runpy.run_path(str(DOCS / "keys.py"))
TARGETS, SETTINGS = WRITTEN["target_schema"](), WRITTEN["settings_schema"]()


def test_the_worked_example_is_checked_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = PAGE.partition("test_docs_targets.py -->")[2]
    example = re.search(r"```toml\n(.*?)```", marked, re.DOTALL)
    printed = re.search(r"\$ cimtool targets check my-macro.toml\n((?:    .*\n)+)", marked)
    sentence = re.search(r"    (my-macro.toml: throughput = 2.05 .*)\n", marked)
    assert example is not None
    assert printed is not None
    assert sentence is not None
    monkeypatch.chdir(tmp_path)
    Path("my-macro.toml").write_text(example[1])
    assert cli.run(["targets", "check", "my-macro.toml"]) == 0
    expected = "".join(line.removeprefix("    ") for line in printed[1].splitlines(keepends=True))
    assert capsys.readouterr().out == expected
    Path("my-macro.toml").write_text(example[1].replace("value = 1.024", "value = 2.05"))
    assert cli.run(["targets", "check", "my-macro.toml"]) == 2
    assert capsys.readouterr().err == f"cimtool: error: {sentence[1]}\n"


def test_every_target_quantity_key_and_setting_is_on_the_page() -> None:
    assert [name for name in target_names() if f"| `{name}`" not in PAGE] == []
    assert [quantity for quantity in UNITS if f"`{quantity}`" not in PAGE] == []
    array = Target.model_fields["array"].annotation
    assert array is not None
    assert [key for key in array.model_fields if f"`array.{key}`" not in PAGE] == []
    settings = [key for key in Overrides.model_fields if key != "layers"]
    assert [key for key in settings if f"`{key}`" not in PAGE] == []


@pytest.mark.parametrize(
    "name",
    [f"{kind}.schema.json" for kind in ("target", "settings", "project", "cam", "handoff-layout")],
)
def test_what_is_written_from_the_declaration_is_todays(name: str) -> None:
    assert (DOCS / name).read_text() == WRITTEN["texts"]()[DOCS / name], "run: python docs/keys.py"


@pytest.mark.parametrize("name", target_names())
def test_a_shipped_target_keeps_to_the_schema(name: str) -> None:
    assert refused(TARGETS, (targets_folder() / f"{name}.toml").read_text()) == []


@pytest.mark.parametrize("name", cam_origins())
def test_a_shipped_cam_keeps_to_its_schema_and_page(name: str) -> None:
    text = (targets_folder() / "cam" / f"{name}.toml").read_text()
    assert refused(WRITTEN["file_schema"](Cam, ""), text) == []
    page = (DOCS / "galleries.md").read_text()
    assert f"| `{name}`" in page
    tables = {"array": WordArray, "sense": WordSense}
    keys = [f"`{table}.{key}`" for table, of in tables.items() for key in of.model_fields]
    assert [key for key in keys if key not in page] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('base = "ideal"\nname = "x"\ntitle = "x"\n[adc]\nbits = 6', []),
        ('base = "ideal"\nname = "x"\ntitle = "x"\n[adc]\nbits = 17', ["$.adc.bits"]),
        ('base = "ideal"\nname = "x"\n[adc]\nbit = 17', ["$", "$.adc"]),
        ('base = "ideal"\nname = "x"\ntitle = "x"\n[noise]\npreset = "neurram"', []),
        ('base = "ideal"\nname = "x"\ntitle = "x"\n[noise]\ng_max = 3', ["$.noise"]),
        ('name = "x"\ntitle = "x"', ["$"] * 8),
    ],
)
def test_the_schema_of_targets_finds_what_is_wrong(text: str, found: list[str]) -> None:
    assert refused(TARGETS, text) == found


def test_the_schema_of_settings_holds_for_the_example() -> None:
    *_, example = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert refused(SETTINGS, example) == []
    assert refused(SETTINGS, 'array = "12"\nadc_bits = "none"\n[layers.x]\ncell_bits = 2') == [
        "$.adc_bits",
        "$.array",
        "$.layers.x",
    ]


def refused(schema: Any, text: str) -> list[str]:
    errors = Draft202012Validator(schema).iter_errors(tomllib.loads(text))
    return sorted(error.json_path for error in errors)
