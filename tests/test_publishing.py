"""Publishing: the own steps of the workflow, and files that name the version."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

import cimtool

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
JOBS = WORKFLOW["jobs"]


def script(name: str) -> str:
    (found,) = (step["run"] for step in JOBS["build"]["steps"] if step.get("name") == name)
    return str(found)


@pytest.mark.parametrize(
    ("tag", "changes", "sentence"),
    [
        (f"v{cimtool.__version__}", f"## {cimtool.__version__} (2030-01-01)\n", ""),
        (f"v{cimtool.__version__}", "## Unreleased\n", "CHANGELOG.md: has no heading '## "),
        ("v9.9", f"## {cimtool.__version__} (2030-01-01)\n", "tag v9.9; expected v"),
    ],
)
def test_a_tag_that_is_not_the_version_ends_the_workflow(
    tag: str, changes: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "cimtool").mkdir()
    (tmp_path / "cimtool" / "__init__.py").write_bytes(
        (ROOT / "cimtool" / "__init__.py").read_bytes()
    )
    (tmp_path / "CHANGELOG.md").write_text(changes)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script("The tag is the version")],
        cwd=tmp_path, env=os.environ | {"GITHUB_REF_NAME": tag},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr.startswith(sentence)
    assert (done.returncode != 0) == bool(sentence) == bool(done.stderr)


def test_only_the_upload_may_ask_for_an_identity_and_only_for_a_tag() -> None:
    # YAML 1.1 reads the key `on` as true.
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}
    assert WORKFLOW["permissions"] == {}
    assert JOBS["build"]["permissions"] == {"contents": "read"}
    assert JOBS["publish"]["permissions"] == {"id-token": "write"}
    assert JOBS["publish"]["needs"] == "build"
    assert not any("run" in step for step in JOBS["publish"]["steps"])


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == cimtool.__version__
    assert citation["cff-version"] == "1.2.0"


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_a_form_asks_for_what_is_needed(form: Path) -> None:
    fields = yaml.safe_load(form.read_text())
    assert {"name", "description", "labels", "body"} == set(fields)
    assert any(one.get("validations", {}).get("required") for one in fields["body"])
    assert len({one["id"] for one in fields["body"]}) == len(fields["body"])
