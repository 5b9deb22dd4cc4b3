"""The report's page in a real browser: what it shows, that it sorts, and that it asks for nothing.

The report is of the repository's reference bundle, with dies, and of names that are hostile.
"""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page
from screen_readers import grave_faults

from cimtool import api
from cimtool.bundle.dies import NoiseOptions
from cimtool.report.html import html
from cimtool.verification.report import Report

BUNDLE = Path(__file__).resolve().parents[2] / "exports" / "reference-small@isaac-rram-128"
HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)> "quoted" ' + "x" * 80
ROWS = 30


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
def address(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page whose names are hostile."""
    subject = replace(report.subject, bundle=HOSTILE, model=HOSTILE)
    hostile = replace(
        report,
        subject=replace(subject, data=replace(subject.data, file=HOSTILE)),
        causes=replace(report.causes, advice=(HOSTILE,)),
        notes=(HOSTILE,),
    )
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html(hostile.document()))
    return file.as_uri()


def test_the_page_loads_without_a_complaint_or_a_request(
    page: Page, events: list[str], address: str
) -> None:
    page.goto(address)
    page.evaluate("document.fonts.ready.then(() => 0)")
    assert events == [f"request {address}"]
    assert page.title().startswith("<script>alert(1)</script>")
    assert page.evaluate("document.scripts.length") == 1
    assert page.locator("img").count() == 1


@pytest.mark.thorough("all rules in each window", quick=("narrow-dark",))
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400], ids=["narrow", "middle", "wide"])
def test_screen_readers_and_keyboards_are_served(
    page: Page, address: str, scheme: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(address)
    assert grave_faults(page) == []
    page.evaluate("""() => {
        const image = new Image();
        image.removeAttribute('alt');
        document.querySelector('main').append(image);
    }""")
    assert [one.partition(":")[0] for one in grave_faults(page)] == ["image-alt"], "it finds faults"


@pytest.mark.thorough("a browser for each")
def test_the_policy_stops_what_is_not_the_pages_own(page: Page, address: str) -> None:
    page.goto(address)
    with page.expect_console_message() as complaint:
        page.evaluate("""() => {
            const script = document.createElement('script');
            script.textContent = 'window.ran = 1';
            const image = new Image();
            image.src = 'file:///x.png';
            document.body.append(script, image);
        }""")
    assert page.evaluate("window.ran === undefined")
    assert "Content Security Policy" in complaint.value.text


@pytest.mark.thorough("a browser for each")
def test_the_pictures_are_there(page: Page, address: str, report: Report) -> None:
    page.goto(address)
    sizes = page.locator("svg[role=img]:not(details svg)").evaluate_all(
        "all => all.map(svg => { const box = svg.getBoundingClientRect();"
        " return [box.width, box.height, svg.getAttribute('aria-label').length] })"
    )
    columns = sum(len(layer.converters) for layer in report.causes.layers)
    assert len(sizes) == 8 + columns
    assert all(min(size) > 10 for size in sizes)
    image = page.locator("img").evaluate("i => [i.complete, i.naturalWidth, i.alt.length]")
    assert image[0]
    assert min(image[1:]) > 10


@pytest.mark.thorough("draws a page in each window", quick=("360-True",))
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(
    chromium: Browser, address: str, width: int, dark: bool
) -> None:
    with chromium.new_page(
        viewport={"width": width, "height": 900},
        is_mobile=width < 600,
        color_scheme="dark" if dark else "light",
    ) as page:
        page.goto(address)
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", ground))) < 60) is dark


def test_the_first_screen_answers_in_order(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(address)
    cards = page.locator(".cards > section")
    names = ["survive", "cause", "clipping", "fit", "energy", "unmodelled", "figures"]
    assert cards.evaluate_all("all => all.map(s => s.id)") == names
    tops = cards.evaluate_all("all => all.map(s => s.getBoundingClientRect().top)")
    assert tops == sorted(tops)


def test_tables_sort_by_number_and_say_so(page: Page, address: str) -> None:
    page.goto(address)
    heads = page.locator("#budget table").first.locator("thead th")
    column = heads.all_text_contents().index("RMSE")
    for wanted, down in (("ascending", False), ("descending", True)):
        heads.nth(column).get_by_role("button").click()
        sorts = heads.evaluate_all("all => all.map(c => c.ariaSort)")
        assert sorts[column] == wanted
        assert [s for s in sorts if s] == [wanted]
        values = sort_keys(page, column)
        known = [value for value in values if not math.isnan(value)]
        assert known == sorted(known, reverse=down)
        assert len(known) > 5
        assert all(math.isnan(value) for value in values[len(known) :])
    heads.first.get_by_role("button").click()
    first = sort_keys(page, 0)
    assert first == list(range(len(first)))


def sort_keys(page: Page, column: int) -> list[float]:
    """The numbers by which a column of the budget sorts, from the top."""
    rows = page.locator("#budget table").first.locator("tbody tr")
    keys = rows.evaluate_all("(all, k) => all.map(r => r.cells[k].dataset.value)", column)
    return [float(key) for key in keys]


@pytest.mark.thorough("a browser for each")
def test_words_sort_by_alphabet(page: Page, address: str) -> None:
    page.goto(address)
    table = page.locator("#sensitivity table").first
    table.locator("thead th").nth(1).get_by_role("button").click()
    kinds = table.locator("tbody tr > :nth-child(2)").all_text_contents()
    assert kinds == sorted(kinds)
    assert len(set(kinds)) > 3


@pytest.mark.thorough("a browser for each")
def test_a_table_sorts_by_keyboard(page: Page, address: str) -> None:
    page.goto(address)
    button = page.locator("#budget th:nth-child(2) button").first
    button.evaluate("b => b.focus({focusVisible: true})")
    assert button.evaluate("b => getComputedStyle(b).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert button.evaluate("b => b.closest('th').ariaSort") == "ascending"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('th').cellIndex") == 2


@pytest.mark.thorough("a browser for each")
def test_the_first_stop_of_the_keyboard_skips_to_the_content(page: Page, address: str) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


@pytest.mark.thorough("a browser for each")
def test_a_screen_reader_finds_its_way(page: Page, address: str) -> None:
    page.goto(address)
    headings = page.locator("h1, h2, h3, h4")
    levels = headings.evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    steps = [after - before for before, after in pairwise(levels)]
    assert max(steps) == 1
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))
    links = page.locator("a").evaluate_all("all => all.map(a => a.hash.slice(1))")
    assert set(links) <= set(ids)
    assert page.locator("td, th").count() > 200
    assert page.locator("table:not(:has(caption))").count() == 0


@pytest.mark.thorough("a second start of the browser")
def test_the_page_is_whole_without_its_script(page: Page, chromium: Browser, address: str) -> None:
    page.goto(address)
    with chromium.new_page(java_script_enabled=False) as bare:
        bare.goto(address)
        assert bare.locator("tr").count() == page.locator("tr").count()
        assert bare.locator("button").count() == 0


@pytest.mark.thorough("a browser for each")
def test_paper_is_light_and_holds_what_was_folded(
    page: Page, address: str, pdftotext: str, tmp_path: Path
) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(address)
    page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    done = subprocess.run(
        [pdftotext, "-layout", str(tmp_path / "report.pdf"), "-"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Does it survive?" in done.stdout
    assert "without each query's mean difference" in " ".join(done.stdout.split())
    assert "constants.safetensors" in done.stdout
    assert page.locator("details[open]").count() == 0
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 29, 33)"
    frames = page.locator(".wide").evaluate_all("all => all.map(w => getComputedStyle(w).overflow)")
    assert set(frames) == {"visible"}
