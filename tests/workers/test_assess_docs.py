"""docs/reward-models.md against the lines of the page."""

import re
from pathlib import Path

from measures.trust.lines import LINES
from workers.assess.judging import JUDGEMENTS, ON_THE_WEB

PAGE = (Path(__file__).parents[2] / "docs" / "reward-models.md").read_text()


def test_the_table_of_rules_holds_every_line_by_name_and_title() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE.split("<!-- rules")[1], re.M)
    found = [(name, title) for name, title, _ in rows if name in LINES]
    assert found == [(line.name, line.title) for line in LINES.values()]


def test_every_line_is_explained_in_order() -> None:
    assert re.findall(r"^### (\w+)$", PAGE, re.M) == list(LINES)


def test_every_line_is_measured_by_the_recipe_or_by_the_web_side() -> None:
    assert set(JUDGEMENTS) == set(LINES) - ON_THE_WEB
