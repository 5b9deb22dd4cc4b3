"""The notebooks are what their scripts make, run from top to bottom, and have pictures to see."""

from __future__ import annotations

import base64
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("pandas")

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
NAMES = ("choose_the_bits", "cost_of_a_query", "train_compile_verify")
PICTURES = {"choose_the_bits": 2, "cost_of_a_query": 3, "train_compile_verify": 4}
"""Least numbers of pictures that a reader sees."""

LONGEST = 60_000
"""Characters that one cell may print, pictures included."""


def test_each_notebook_is_that_of_its_script() -> None:
    made = runpy.run_path(str(FOLDER / "make.py"))
    assert tuple(file.stem for file in made["scripts"]()) == NAMES
    for script in made["scripts"]():
        kept = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
        assert kept == made["notebook"](script), script.name


@pytest.mark.thorough("whole pages and notebooks run in order")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_its_pictures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parents[1]), prepend=":")
    place = tmp_path / "examples" / "notebooks"
    place.mkdir(parents=True)
    (tmp_path / "exports").symlink_to(FOLDER.parents[1] / "exports")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    context = {"metadata": {"path": str(place)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=context).execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert not [one for one in outputs if one.output_type == "error"]
    shown = [one.data["text/html"] for one in outputs if "text/html" in one.get("data", {})]
    assert max(map(len, shown)) < LONGEST
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', "".join(shown))
    assert len(images) >= PICTURES[name]
    for image in images:
        root = ElementTree.fromstring(base64.b64decode(image))
        marks = [one for one in root.iter() if one.tag.endswith(("}path", "}rect", "}line"))]
        assert len(marks) > 5
    nbformat.write(notebook, tmp_path / f"{name}.ipynb")
