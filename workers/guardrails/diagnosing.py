"""The diagnosis of a run while it trains: it sees what the guardrails see, and says what it finds.

    violations = guards.check(step, metrics)
    violations = diagnosis.check(context, step, metrics, violations)
    report(context, violations)

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
from workers.diagnosis.diagnoser import Diagnoser
from workers.diagnosis.experiments import next_experiments
from workers.diagnosis.verdict import CONTRACT, Finding, verdict
from workers.guardrails.watch import Guardrails, Violation, with_unit


class LiveDiagnosis:
    """One run's diagnoser, beside its guardrails."""

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
        self.diagnoser = Diagnoser(kind, config, healthy)
        self._guards = guards
        self._rule = next(rule for rule in rules_of(kind, overrides) if rule.test == "diagnosed")
        self._read = {one.rule: one.metrics[0] for one in self.diagnoser.detectors}
        self._named = ""  # the link that was reported as the cause

    def check(
        self,
        context: RunContext,
        step: int,
        metrics: Mapping[str, float | None],
        violations: Sequence[Violation] = (),
    ) -> list[Violation]:
        """Show it a step; `violations` are what the guardrails say of the same one. Returns them,
        with that of the cause where the rule wants it."""
        known = [
            replace(one, is_known=self.diagnoser.is_raised(one.rule.link, one.rule.metric))
            for one in violations
        ]
        found = self.diagnoser.see(step, metrics)
        cause = self._new_cause()
        for finding in found:
            if self._guards.is_raised(finding.link, self._read[finding.rule]):
                continue
            context.emit(finding.to_event())
            if finding != cause:
                context.emit(_alert(finding))
        return known if cause is None else [*known, self._violation(cause, step)]

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object continues exactly here."""
        return {"diagnoser": self.diagnoser.state(), "named": self._named}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state:  # a checkpoint of before there was a diagnosis has none
            self.diagnoser.restore(state["diagnoser"])
            self._named = state["named"]

    def _new_cause(self) -> Finding | None:
        """What broke first, once for each link that is named; None while the rule is off."""
        named = verdict(self.diagnoser.findings) if self._rule.action != OFF else None
        if named is None or named.first.link == self._named:
            return None
        self._named = named.first.link
        return named.first

    def _violation(self, cause: Finding, step: int) -> Violation:
        rule = replace(self._rule, link=cause.link)
        done = {
            "warn": "The run continues.",
            "stop": "The run was stopped; its state is kept as the checkpoint tagged failed.",
        }[rule.action]
        return Violation(
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
