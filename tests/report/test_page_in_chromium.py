"""The report's page in a real browser: what it shows, that it sorts, and that it asks for nothing.

The report is of the repository's reference bundle, with dies, and of names that are hostile.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cimtool import api
from cimtool.bundle.dies import NoiseOptions
from cimtool.verification.page import html
from cimtool.verification.report import Report

if TYPE_CHECKING:
    from conftest import Chromium

BUNDLE = Path(__file__).resolve().parents[2] / "exports" / "reference-small@isaac-rram-128"
HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)> "quoted" ' + "x" * 80
ROWS = 30

NUMBERS = "JSON.stringify([...{table}.tBodies[0].rows].map(r => r.cells[{column}].dataset.value))"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    rng = np.random.default_rng(5)
    text = rng.normal(size=(ROWS, api.load(BUNDLE).bundle.model.text_width)).astype(np.float32)
    return api.verify(
        BUNDLE,
        {"text": text, "video": text[::-1].copy(), "text_to_video": np.arange(ROWS)[::-1].copy()},
        report=tmp_path_factory.mktemp("report"),
        noise=NoiseOptions(trials=2, model="neurram", time="1d"),
    )


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page whose names are hostile."""
    hostile = replace(
        report,
        bundle=HOSTILE,
        model=HOSTILE,
        data=replace(report.data, file=HOSTILE),
        notes=(HOSTILE,),
        advice=(HOSTILE,),
    )
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html(hostile))
    return file.as_uri()


def complaints(browser: Chromium) -> list[object]:
    """What was logged, printed or thrown, and what was asked for beside the page itself."""
    names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    found: list[object] = [
        e for e in browser.events if e["method"] in (*names, "Page.javascriptDialogOpening")
    ]
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return found + [url for url in asked[1:] if not url.startswith("data:")]


def test_the_page_loads_without_a_complaint_or_a_request(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    chromium.value("document.fonts.ready.then(() => 0)")
    assert complaints(chromium) == []
    assert chromium.value("document.title").startswith("<script>alert(1)</script>")
    assert chromium.value("document.scripts.length") == 1
    assert chromium.value("document.querySelectorAll('img').length") == 1


def test_the_policy_stops_what_is_not_the_pages_own(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    chromium.value(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); const i = new Image(); i.src = 'file:///x.png';"
        " document.body.append(i); return 0 })()"
    )
    assert chromium.value("window.ran === undefined")
    assert "Content Security Policy" in str(chromium.wait_for_log())


def test_the_pictures_are_there(chromium: Chromium, page: str, report: Report) -> None:
    chromium.open(page)
    sizes = chromium.value(
        "[...document.querySelectorAll('svg[role=img]')].filter(s => !s.closest('details'))"
        ".map(s => { const b = s.getBoundingClientRect(); return [b.width, b.height, "
        "s.getAttribute('aria-label').length] })"
    )
    columns = sum(len(layer.converters) for layer in report.layers)
    assert len(sizes) == 6 + columns
    assert all(min(size) > 10 for size in sizes)
    image = chromium.value(
        "(() => { const i = document.querySelector('img'); return [i.complete, i.naturalWidth,"
        " i.alt.length] })()"
    )
    assert image[0]
    assert min(image[1:]) > 10


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(
    chromium: Chromium, page: str, width: int, dark: bool
) -> None:
    chromium.open(page, width=width, dark=dark)
    assert chromium.value("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    chromium.value("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert chromium.value("document.documentElement.scrollWidth") <= width
    ground = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", ground))) < 60) is dark


def test_the_first_screen_answers_in_order(chromium: Chromium, page: str) -> None:
    chromium.open(page, width=1440)
    cards = chromium.value("[...document.querySelectorAll('.cards > section')].map(s => s.id)")
    names = ["survive", "fit", "cause", "clipping", "energy", "unmodelled", "figures"]
    assert cards == names
    tops = chromium.value(
        "[...document.querySelectorAll('.cards > section')].map(s => s.getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)


def test_tables_sort_by_number_and_say_so(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    table = "document.querySelector('#budget table')"
    headings = chromium.value(f"[...{table}.tHead.rows[0].cells].map(c => c.textContent)")
    column = headings.index("RMSE")
    button = f"{table}.tHead.rows[0].cells[{column}].querySelector('button')"
    order = NUMBERS.format(table=table, column=column)
    for wanted, down in (("ascending", False), ("descending", True)):
        chromium.value(f"{button}.click()")
        sorts = chromium.value(f"[...{table}.tHead.rows[0].cells].map(c => c.ariaSort)")
        assert sorts[column] == wanted
        assert [s for s in sorts if s] == [wanted]
        values = [float(value) for value in json.loads(chromium.value(order))]
        known = [value for value in values if not math.isnan(value)]
        assert known == sorted(known, reverse=down)
        assert len(known) > 5
        assert all(math.isnan(value) for value in values[len(known) :])
    chromium.value(f"{table}.tHead.rows[0].cells[0].querySelector('button').click()")
    first = json.loads(chromium.value(NUMBERS.format(table=table, column=0)))
    assert [float(value) for value in first] == list(range(len(first)))


def test_words_sort_by_alphabet(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    table = "document.querySelector('#sensitivity table')"
    chromium.value(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
    kinds = chromium.value(f"[...{table}.tBodies[0].rows].map(r => r.cells[1].textContent)")
    assert kinds == sorted(kinds)
    assert len(set(kinds)) > 3


def test_a_table_sorts_by_keyboard(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    button = "document.querySelector('#budget th:nth-child(2) button')"
    chromium.value(f"{button}.focus({{focusVisible: true}})")
    assert chromium.value(f"getComputedStyle({button}).outlineStyle") == "solid"
    chromium.key("Enter", 13, "\r")
    assert chromium.value(f"{button}.closest('th').ariaSort") == "ascending"
    chromium.key("Tab", 9)
    assert chromium.value("document.activeElement.closest('th').cellIndex") == 2


def test_the_first_stop_of_the_keyboard_skips_to_the_content(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    chromium.key("Tab", 9)
    assert chromium.value("document.activeElement.className") == "skip"
    assert chromium.value("document.activeElement.getBoundingClientRect().left") >= 0
    chromium.key("Enter", 13, "\r")
    assert chromium.value("document.activeElement.id") == "content"


def test_a_screen_reader_finds_its_way(chromium: Chromium, page: str) -> None:
    chromium.open(page)
    levels = chromium.value(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    steps = [after - before for before, after in pairwise(levels)]
    assert max(steps) == 1
    ids = chromium.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    links = chromium.value("[...document.querySelectorAll('a')].map(a => a.hash.slice(1))")
    assert set(links) <= set(ids)
    assert chromium.value("document.querySelectorAll('td, th').length") > 200
    assert chromium.value("document.querySelectorAll('table:not(:has(caption))').length") == 0


def test_the_page_is_whole_without_its_script(page: str, chromium: Chromium) -> None:
    chromium.open(page)
    with_script = chromium.value("document.querySelectorAll('tr').length")
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    chromium.events.clear()
    chromium.send("Page.reload")
    chromium.wait("Page.loadEventFired")
    nodes = chromium.send("DOM.getDocument", depth=-1)["root"]
    found = str(nodes)
    assert found.count("'nodeName': 'TR'") == with_script
    assert "'nodeName': 'BUTTON'" not in found


def test_paper_is_light_and_holds_what_was_folded(
    chromium: Chromium, page: str, tmp_path: Path
) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("there is no pdftotext")
    chromium.open(page, dark=True)
    (tmp_path / "report.pdf").write_bytes(chromium.pdf())
    done = subprocess.run(
        ["pdftotext", "-layout", str(tmp_path / "report.pdf"), "-"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Does it survive?" in done.stdout
    assert "RMSE after removing each query's mean difference" in done.stdout
    assert "constants.safetensors" in done.stdout
    assert chromium.value("document.querySelectorAll('details[open]').length") == 0
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    chromium.send("Emulation.setEmulatedMedia", media="print", features=[dark])
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("getComputedStyle(document.body).color") == "rgb(26, 29, 33)"
    frames = "[...document.querySelectorAll('.wide')].map(w => getComputedStyle(w).overflow)"
    assert set(chromium.value(frames)) == {"visible"}
