"""The rules about people and data as their page prints them."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.forms import BoundField

from apps.monitoring.forms import AlarmsForm
from apps.monitoring.selectors.people import IS_OFF, MISSING, QUIET, RAISED, ProjectRule

STATE_WORDS = {
    QUIET: "quiet",
    RAISED: "raised",
    MISSING: "not enough to judge",
    IS_OFF: "off",
}
STATE_TONES = {QUIET: "good", RAISED: "bad", MISSING: "", IS_OFF: ""}


@dataclass(frozen=True, slots=True)
class RuleRow:
    """`limit`, `on`: the fields of the form."""

    one: ProjectRule
    state: str
    tone: str
    limit: BoundField
    on: BoundField


def rule_rows(rules: Iterable[ProjectRule], form: AlarmsForm) -> list[RuleRow]:
    return [
        RuleRow(
            one=one,
            state=STATE_WORDS[one.state],
            tone=STATE_TONES[one.state],
            limit=form[f"limit_{one.rule.name}"],
            on=form[f"on_{one.rule.name}"],
        )
        for one in rules
    ]
