"""docs/guardrails.md and docs/jobs.md against the rules."""

from pathlib import Path

from workers.contract.guards import RULES, failure_kind
from workers.guardrails.table import PAGE, page

JOBS = Path(__file__).parents[3] / "docs" / "jobs.md"


def test_the_page_prints_the_rules_as_they_are():
    text = PAGE.read_text()
    assert page(text) == text, "run: python -m workers.guardrails.table"


def test_every_rule_that_can_stop_a_run_has_its_failure_explained():
    text = JOBS.read_text()
    kinds = {failure_kind(rule.name) for rule in RULES if "stop" in rule.actions}
    assert {kind for kind in kinds if f"`{kind}`" not in text} == set()
