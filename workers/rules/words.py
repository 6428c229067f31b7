"""Rules in words, and the table of docs/guardrails.md: `python -m workers.rules.words`."""

from pathlib import Path

from workers.rules.choices import guardrails_of
from workers.rules.engine import with_unit
from workers.rules.rule import STAGES, Rule, number
from workers.rules.table import RULES

PAGE = Path(__file__).parents[2] / "docs" / "guardrails.md"
BEGIN, END = "<!-- rules -->", "<!-- end of rules -->"
HEAD = (
    "| rule | watches | fires when | after | does | may | adjust does | severity | what to do |",
    "|---|---|---|---|---|---|---|---|---|",
)
# How a rule's metrics meet its limit.
_TESTS = {
    "level": "the metric itself",
    "scaled": "the metric over the size of another",
    "beyond_noise": "the metric, by {errors} standard errors at least",
    "first": "the metric over its first value of the run",
    "fallen": "how far the metric lies under its first value",
    "risen": "how far the metric lies over its first value",
    "apart": "the metric less another",
    "departs": "the distance from {exactly}",
    "unimitated": "the ratio either way, while a loss is under {share} of its first value",
    "median_of_first": "the median of {window} checks over the first value",
    "chance": "the median of {window} checks of its mean with that of known pairs; without these "
    "under {alone}, with the own pairs' over {own_over}",
    "floor": "the metric, against the higher of the limit and {share} of its first value",
    "together": "each metric over its own limit",
    "changed": "any change from the first value",
    "at_start": "the first check of the run",
    "never_moves": "the metric is still 0 after {after} updates",
    "median": "the median of {window} checks",
    "burst": "how many of {window} checks are over {times} × their median",
    "pooled": "the last {window} checks, pooled",
    "window": "the mean over the last 1,000 answers, once there are 100",
    "spread": "the standard deviation over the last 1,000 answers, once there are 100, with raw "
    "scores under {share} of their first deviation",
    "jump": "the metric over the 95 % quantile of its last 50 checks, itself over {effect}",
    "break": "the distance from the run's own trend, by {effect} at least",
    "rise": "the metric over its lowest so far, by {effect} at least",
    "fall": "the share of the gain that is lost, by {errors} standard errors at least, while the "
    "optimised score rises",
    "flat": "the gain since the first checks, with {share} of the first entropy or more",
    "alone": "the gain of the means of {window} checks over the first ones, while what is right "
    "gains under {success}",
    "uniform": "the variety over its first value, with a calibrated reward over {reward_over}",
    "gap": "the difference of two metrics, z over {z} against its own past",
    "canaries": "pairs whose better answer is known: {reads}",
    "unusual": "z over {z} against healthy runs at this step, by {effect} at least",
    "finite": "whether a loss, a gradient or a watched metric is NaN or infinite",
    "diagnosed": "whether the diagnosis names a stage that broke first",
}


def test_words(rule: Rule) -> str:
    """How the rule's metrics meet its limit."""
    given = {name: number(value) for name, value in rule.given.items()}
    if "share" in rule.given:
        given["share"] = f"{rule.given['share']:.0%}".replace("%", " %")
    return _TESTS[rule.test].format(**given)


def condition(rule: Rule) -> str:
    """When the rule's limit is crossed."""
    if not rule.bound or rule.test in ("unusual", "finite"):
        return test_words(rule)
    side = "over" if rule.bound == "above" else "under"
    how = "" if rule.test == "level" else f": {test_words(rule)}"
    return f"{side} {with_unit(rule.limit, rule.unit)}{how}"


def text() -> str:
    """Markdown: a table per stage, and why its limits are what they are below it."""
    parts = []
    for stage in STAGES:
        rules = [rule for rule in RULES if rule.stage == stage]
        why = [
            f"- `{rule.name}` ({', '.join(rule.kinds)}): *{rule.source}*"
            for rule in rules
            if rule.source
        ]
        parts.append(f"### {stage.capitalize()}\n\n" + "\n".join((*HEAD, *map(_row, rules))))
        parts += ["\n".join(why)] if why else []
    return "\n\n".join(parts)


def _row(rule: Rule) -> str:
    # A rule as the kind shows it that can do most of it.
    shown = max(
        (r for kind in rule.kinds for r in guardrails_of(kind) if r.name == rule.name),
        key=lambda r: len(r.actions),
        default=rule,
    )
    does = [rule.action] if rule.actions else []
    does += ["explains"] if rule.diagnoses else []
    cells = [
        f"`{rule.name}` ({', '.join(rule.kinds)})",
        ", ".join(f"`{name}`" for name in rule.metrics) or "the diagnosis",
        condition(rule),
        rule.patience_words + (f", from check {rule.grace + 1} on" if rule.grace else ""),
        ", ".join(does),
        ", ".join(action for action in shown.actions if action != rule.action) or "–",
        shown.adjustment_words or "–",
        rule.severity,
        f"[{rule.page}](playbook/{rule.page}.md)",
    ]
    return f"| {' | '.join(cells)} |"


def page(old: str) -> str:
    """`old` with the table as it is now."""
    before, rest = old.split(BEGIN)
    return f"{before}{BEGIN}\n{text()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
