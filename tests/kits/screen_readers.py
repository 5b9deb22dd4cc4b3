"""Faults of a page that hinder people who use screen readers or keyboards, by axe-core."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

GRAVE = ("serious", "critical")


def grave_faults(page: Page) -> list[str]:
    """The serious and critical findings, each with the first element that has it."""
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in Axe().run(page).response["violations"]
        if one["impact"] in GRAVE
    ]
