"""The rule table as docs/guardrails.md prints it: `python -m workers.guardrails.table`."""

from pathlib import Path

from workers.contract.guard_rules import LINKS, GuardRule
from workers.contract.guards import RULES, rules_of
from workers.guardrails.watch import number, with_unit

PAGE = Path(__file__).parents[2] / "docs" / "guardrails.md"
BEGIN, END = "<!-- rules -->", "<!-- end of rules -->"
HEAD = (
    "| guardrail | watches | alarms when | after | does | may | adjust does | severity |",
    "|---|---|---|---|---|---|---|---|",
)
_WORDS = {
    "level": "{side} {limit}",
    "scaled": "{side} {limit}",
    "first": "{side} {limit}",
    "floor": "{side} {limit} or {share} of the first value, whichever is higher",
    "window": "{side} {limit}, mean of up to 1,000 answers",
    "spread": "{side} {limit} over up to 1,000 answers, and raw scores under {share} of "
    "their first deviation",
    "jump": "{side} {limit} of the last 50 checks, and {side} {least}",
    "break": "{side} {limit} off its trend, and by {least} at least",
    "rise": "{side} {limit}, and by {least} at least",
    "fall": "{side} {limit} is lost, by {least} standard errors at least, while `eval/score` rises",
    "flat": "{side} {limit}, with {share} of the first entropy or more",
    "uniform": "{side} {limit}, with a calibrated reward over {least}",
    "finite": "a loss, gradient or watched figure is NaN or infinite",
    "diagnosed": "a detector speaks, and the diagnosis names the link that broke first",
}


def condition(rule: GuardRule) -> str:
    """When the rule's bound is crossed, in words."""
    return _WORDS[rule.test].format(
        side="over" if rule.bound == "above" else "under",
        limit=with_unit(rule.threshold, rule.unit),
        share=f"{rule.share:.0%}".replace("%", " %"),
        least=number(rule.least),
    )


def text() -> str:
    """Markdown: a table per link of the diagnosis, and the advice below it."""
    parts = []
    for link in LINKS:
        rules = [rule for rule in RULES if rule.link == link]
        if rules:
            rows = "\n".join((*HEAD, *map(_row, rules)))
            parts.append(f"### {link.capitalize()}\n\n{rows}\n\n" + "\n".join(map(_advice, rules)))
    return "\n\n".join(parts)


def _row(rule: GuardRule) -> str:
    # A rule as the kind shows it that can do most of it.
    shown = max(
        (r for kind in rule.kinds for r in rules_of(kind) if r.name == rule.name),
        key=lambda r: len(r.actions),
    )
    cells = [
        f"`{rule.name}` ({', '.join(rule.kinds)})",
        ", ".join(f"`{name}`" for name in (rule.metric, *rule.beside) if name) or "all figures",
        condition(rule),
        rule.patience_words + (f", from check {rule.grace + 1} on" if rule.grace else ""),
        rule.action,
        ", ".join(action for action in shown.actions if action != rule.action) or "–",
        shown.adjustment_words or "–",
        rule.severity,
    ]
    return f"| {' | '.join(cells)} |"


def _advice(rule: GuardRule) -> str:
    return f"- `{rule.name}` ({', '.join(rule.kinds)}): {rule.advice} *{rule.source}*"


def page(old: str) -> str:
    """`old` with the table as it is now."""
    before, rest = old.split(BEGIN)
    return f"{before}{BEGIN}\n{text()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
