"""The site builds without a warning, asks no other host for anything, and fits its window."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page
from screen_readers import grave_faults

import cimtool

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SPHINX = re.search(r"-m (sphinx .*) docs build/docs", (ROOT / "Makefile").read_text("utf-8"))
NARROW, WIDE = {"width": 390, "height": 800}, {"width": 1600, "height": 1000}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, or the one that `.ci/run` built a moment ago."""
    if built := os.environ.get("CIMTOOL_BUILT_SITE"):
        return Path(built)
    assert SPHINX is not None
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", *SPHINX[1].split(), str(DOCS), str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.thorough("draws every page in each window")
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_window_and_load_nothing_from_elsewhere(
    site: Path, page: Page, events: list[str], size: dict[str, int], scheme: str
) -> None:
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    for name in ("index", "commands", "targets", "cost", "report"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"], name
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", background)[:3])) < 80) == (scheme == "dark")
    assert [event for event in events if not event.startswith(f"request {site.as_uri()}/")] == []
    assert len(events) > 10


@pytest.mark.thorough("all rules on pages of the site")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screen_readers_and_keyboards_are_served(site: Path, page: Page, scheme: str) -> None:
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme=scheme)
    for name in ("index", "cost", "report", "commands"):
        page.goto((site / f"{name}.html").as_uri())
        assert grave_faults(page) == [], name


@pytest.mark.thorough("every page of the site in a browser")
def test_the_search_finds_a_page_and_goes_there(site: Path, page: Page, events: list[str]) -> None:
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").fill("utilisation")
    page.keyboard.press("Enter")
    found = page.locator("#search-results li a", has_text="Is it worth it?")
    found.click()
    assert page.locator("h1").inner_text().startswith("Is it worth it?")
    assert [event for event in events if not event.startswith(f"request {site.as_uri()}/")] == []


@pytest.mark.thorough("every page of the site in a browser")
def test_the_ten_questions_have_links_on_the_first_page(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    rows = page.locator("#ten-questions tbody tr")
    answers = [row.locator("a").first.get_attribute("href") or "" for row in rows.all()]
    assert len(answers) == 10
    for answer in answers:
        file, _, section = answer.partition("#")
        text = (site / file).read_text("utf-8")
        assert not section or f'id="{section}"' in text, answer


@pytest.mark.thorough("builds the site")
def test_every_command_function_target_and_record_is_in_the_reference(site: Path) -> None:
    made = runpy.run_path(str(DOCS / "made_from_code.py"))
    for name, part in made["PARTS"].items():
        headings = re.findall(r"^##+ `(.+)`$", part(), re.MULTILINE)
        assert headings or name in (
            *("settings", "operators", "keys", "target-list", "project-keys"),
        )
        (file,) = [
            one for one in DOCS.glob("*.md") if f"made from the code: {name} " in one.read_text()
        ]
        text = (site / f"{file.stem}.html").read_text("utf-8")
        shown = {
            "".join(re.findall(r">([^<]+)<", one))
            for one in re.findall(r"<h[23]>.*?</h[23]>", text)
        }
        assert {heading for heading in headings if heading + "¶" not in shown} == set(), name


def test_every_class_that_a_function_returns_has_its_members_in_the_reference() -> None:
    made = runpy.run_path(str(DOCS / "made_from_code.py"))
    functions = [one for name in cimtool.API if inspect.isfunction(one := getattr(cimtool, name))]
    annotations = " ".join(inspect.signature(one).return_annotation for one in functions)
    classes = set(re.findall(r"\w+", annotations)) - {"dict", "str", "Array", "Mapping"}
    assert classes == {one.__name__ for one in made["RETURNED"]}
    page = made["PARTS"]["api"]()
    for member in ("`drift` | `DriftFindings`", "`best` | The epoch", "`to_markdown()` | The"):
        assert member in page


def test_every_page_is_in_the_contents() -> None:
    contents = (DOCS / "index.md").read_text("utf-8").splitlines()
    pages = {file.stem for file in DOCS.glob("*.md")} - {"index"}
    assert pages - set(contents) == set()
