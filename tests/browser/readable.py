"""What every page must be: no serious fault that a checker sees, and no scrolling sideways."""

import os
from collections.abc import Sequence
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def readable(page: Page, name: str, themes: Sequence[str] = ("light", "dark")) -> None:
    """Asserts it in each theme; keeps pictures where SCREENSHOTS says, for people to look at."""
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        if folder := os.environ.get("SCREENSHOTS"):
            page.screenshot(
                path=Path(folder) / f"{name}-{theme}.png", full_page=True, caret="initial"
            )
        found = Axe().run(page).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not serious, [
            (name, theme, v["id"], [node["html"][:160] for node in v["nodes"][:3]]) for v in serious
        ]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, theme)
