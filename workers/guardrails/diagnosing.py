"""The diagnosis of a run while it trains: it sees what the guardrails see, and says what it finds.

    breaches = guards.look(step, figures)
    breaches = diagnosis.look(context, step, figures, breaches)
    report(context, breaches)

Every finding is a piece of evidence and one alert. Where a guardrail has spoken of the same figure
its alert stands for both; where the diagnosis spoke first, the guardrail's alert brings no second
evidence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workers.context import RunContext
from workers.contract.events import Alert
from workers.contract.guard_rules import OFF
from workers.contract.guards import rules_of
from workers.contract.jobs import JobSpec
from workers.diagnosis.baseline import baseline_from_json
from workers.diagnosis.detective import Detective
from workers.diagnosis.experiments import next_experiments
from workers.diagnosis.verdict import CONTRACT, Finding, verdict
from workers.guardrails.watch import Breach, Guardrails, with_unit


class LiveDiagnosis:
    """One run's detective, beside its guardrails."""

    def __init__(
        self,
        spec: JobSpec,
        config: Mapping[str, Any],
        guards: Guardrails,
        overrides: Mapping[str, Any],
    ) -> None:
        """`spec` says of which kind the run is and brings the healthy runs it is compared with;
        `overrides` are the setting `guards`, for the rule that a found cause is."""
        kind = spec.kind
        healthy = baseline_from_json(spec.baseline) if spec.baseline else None
        self.detective = Detective(kind, config, healthy)
        self._guards = guards
        self._rule = next(rule for rule in rules_of(kind, overrides) if rule.test == "diagnosed")
        self._read = {one.rule: one.metrics[0] for one in self.detective.detectors}
        self._named = ""  # the link that was told of as the cause

    def look(
        self,
        context: RunContext,
        step: int,
        figures: Mapping[str, float | None],
        breaches: Sequence[Breach] = (),
    ) -> list[Breach]:
        """Show it a step; `breaches` are what the guardrails say of the same one. Returns them,
        with that of the cause where the rule wants it."""
        known = [
            replace(one, is_known=self.detective.is_raised(one.rule.link, one.rule.metric))
            for one in breaches
        ]
        found = self.detective.see(step, figures)
        cause = self._new_cause()
        for finding in found:
            if self._guards.is_raised(finding.link, self._read[finding.rule]):
                continue
            context.emit(finding.to_event())
            if finding != cause:
                context.emit(_alert(finding))
        return known if cause is None else [*known, self._breach(cause, step)]

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object goes on exactly here."""
        return {"detective": self.detective.state(), "named": self._named}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state:  # a checkpoint of before there was a diagnosis has none
            self.detective.restore(state["detective"])
            self._named = state["named"]

    def _new_cause(self) -> Finding | None:
        """What broke first, once for each link that is named; None while the rule is off."""
        named = verdict(self.detective.findings) if self._rule.action != OFF else None
        if named is None or named.first.link == self._named:
            return None
        self._named = named.first.link
        return named.first

    def _breach(self, cause: Finding, step: int) -> Breach:
        rule = replace(self._rule, link=cause.link)
        done = {
            "warn": "The run goes on.",
            "stop": "The run was stopped; its state is kept as the checkpoint tagged failed.",
        }[rule.action]
        return Breach(
            rule=rule,
            action=rule.action,
            step=step,
            value=math.nan,
            threshold=math.nan,
            message=f"{rule.title}: the link {rule.link}, from step {cause.onset} on. "
            f"{words_of(cause)} {done} {rule.advice}",
            is_known=True,
        )


def words_of(finding: Finding) -> str:
    """A finding for people: what, by how much, what is usual, and what to try next."""
    value = "" if finding.value is None else f": {with_unit(finding.value, finding.unit)}"
    usual = f", expected {finding.expected}" if finding.expected else ""
    next_one = next_experiments(finding.link, first=finding.experiment)[0]
    why = f" {finding.detail}" if finding.detail else ""
    return f"{finding.title}{value}{usual}.{why} Next: {_lower(next_one.title)}."


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _alert(finding: Finding) -> Alert:
    exact = finding.evidence_class == CONTRACT
    return Alert(
        rule=finding.rule,
        severity="critical" if exact else "warning",
        step=finding.step,
        message=words_of(finding),
        value=finding.value,
    )
