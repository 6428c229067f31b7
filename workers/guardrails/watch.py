"""Watches a run's figures against the rule table: one trouble is one alert, not a hundred.

    guards = Guardrails("ppo", settings.guards, per_look=settings.batch_size)
    breaches = guards.look(step, figures)
    report(context, breaches)

A rule alarms when k of its last n looks crossed the bound. It then stays raised, silently, until
ten looks in a row lay well inside, and a new alarm waits until twenty looks have passed since the
last. A rule that adjusts does so again after ten looks if the trouble stays, three times at most.
None is a figure that was not measured, which is no look; NaN or infinity is a finding of its own.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

from workers.contract.guards import GuardRule, rules_of
from workers.guardrails.breach import (
    Breach,
    GuardStop,
    first_stop,
    number,
    report,
    stop_error,
    with_unit,
)
from workers.guardrails.finite import RULE as FINITE
from workers.guardrails.finite import FiniteGuard
from workers.guardrails.readings import Memory, Reading, read

__all__ = ["Breach", "GuardStop", "Guardrails", "first_stop", "report", "stop_error"]

CLEAR_AFTER = 10  # looks well inside that end an alert
COOLDOWN = 20  # looks between two alerts of a rule
ADJUST_AGAIN = 10  # looks after which a trouble that stays is adjusted again
MOST_ADJUSTMENTS = 3  # per trouble


class Guardrails:
    """The guardrails of one run. `finite` decides about steps that give no numbers."""

    def __init__(
        self, kind: str, overrides: Mapping[str, Any] | None = None, *, per_look: int = 64
    ) -> None:
        """`per_look` is the number of answers behind the figures of one look: rules that pool
        answers look back over 1,000 of them and judge nothing before 100."""
        self.rules = [rule for rule in rules_of(kind, overrides) if rule.has_limit]
        self.per_look = per_look
        self.finite = FiniteGuard()
        self._memory: dict[str, Memory] = {}
        self._last_step = 0
        self._broken_evaluations = 0

    def look(self, step: int, figures: Mapping[str, float | None]) -> list[Breach]:
        """Judge the figures of a step; what newly alarms, outermost link first."""
        known = {name: float(v) for name, v in figures.items() if v is not None}
        breaches = self._non_finite(step, known)
        numbers = {name: value for name, value in known.items() if math.isfinite(value)}
        for rule in self.rules:
            if rule.action != "off":
                memory = self._memory.setdefault(rule.name, {})
                reading = read(rule, memory, numbers, per_look=self.per_look)
                if reading is not None and self._alarms(rule, memory, reading):
                    breaches.append(_breach(rule, memory, step, reading))
        self._last_step = step
        return breaches

    def is_raised(self, link: str, metric: str) -> bool:
        """Whether a rule of this link that reads `metric` has alarmed and not cleared since. One
        that only informs is no alarm."""
        if metric == FINITE.metric:
            return self.finite.told_since(self._last_step)
        return any(
            self._memory.get(rule.name, {}).get("raised", False)
            for rule in self.rules
            if (rule.link, rule.metric) == (link, metric) and rule.severity != "info"
        )

    def state(self) -> dict[str, Any]:
        """Plain JSON; `restore` of it in a new object goes on exactly here."""
        return copy.deepcopy(
            {
                "memory": self._memory,
                "finite": self.finite.state(),
                "last_step": self._last_step,
                "broken_evaluations": self._broken_evaluations,
            }
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        state = copy.deepcopy(dict(state))
        self._memory = state["memory"]
        self.finite.restore(state["finite"])
        self._last_step = state["last_step"]
        self._broken_evaluations = state["broken_evaluations"]

    def _non_finite(self, step: int, figures: Mapping[str, float]) -> list[Breach]:
        """A watched figure that is no number, unless its step was told of when it was skipped.

        An evaluation that is no number a second time in a row stops the run: nothing can be
        chosen by it any more.
        """
        watched = {name for rule in self.rules for name in (rule.metric, *rule.beside)}
        bad = sorted(n for n in watched if n in figures and not math.isfinite(figures[n]))
        evaluations = [name for name in bad if name.startswith("eval/")]
        if evaluations:
            self._broken_evaluations += 1
            again = self._broken_evaluations > 1
            return [self._not_a_number(step, evaluations[0], figures, again=again)]
        if any(name.startswith("eval/") and name in watched for name in figures):
            self._broken_evaluations = 0
        if not bad or self.finite.told_since(self._last_step + 1):
            return []
        return [self._not_a_number(step, bad[0], figures)]

    def _not_a_number(
        self, step: int, name: str, figures: Mapping[str, float], *, again: bool = False
    ) -> Breach:
        return self.finite.skip_or_stop(
            step, f"the figure {name}", skipped=False, again=again, value=figures[name]
        )

    def _alarms(self, rule: GuardRule, memory: Memory, reading: Reading) -> bool:
        """Whether this look raises the rule; keeps count of looks, alerts and calm."""
        k, n = rule.patience
        recent: list[int] = memory.setdefault("recent_looks", [])
        recent.append(int(reading.crossed))
        del recent[:-n]
        now = memory["looks"]
        since = now - memory.get("alerted_at", -COOLDOWN)
        if memory.get("raised"):
            memory["calm"] = memory["calm"] + 1 if reading.clear else 0
            if memory["calm"] >= CLEAR_AFTER:
                memory["raised"] = False
            again = rule.action == "adjust" and memory["alerts"] < MOST_ADJUSTMENTS
            if not (again and sum(recent) >= k and since >= ADJUST_AGAIN):
                return False
            memory["alerts"] += 1
        else:
            if sum(recent) < k or since < COOLDOWN:
                return False
            memory.update(raised=True, calm=0, alerts=1)
        memory["alerted_at"] = now
        memory.pop("trend", None)  # what is off the trend now begins a new one
        return True


def _breach(rule: GuardRule, memory: Memory, step: int, reading: Reading) -> Breach:
    side = "over" if rule.bound == "above" else "under"
    how_often = f" ({rule.patience_words})" if rule.patience[1] > 1 else ""
    done = {
        "warn": "The run goes on.",
        "adjust": f"Changed: {rule.adjustment_words}.",
        "stop": "The run was stopped; its state is kept as the checkpoint tagged failed.",
    }[rule.action]
    return Breach(
        rule=rule,
        action=rule.action,
        step=step,
        value=reading.value,
        threshold=reading.limit,
        message=f"{rule.title}: {rule.metric} at {with_unit(reading.value, rule.unit)}, {side} "
        f"{number(reading.limit)}{how_often}. {done} {rule.advice}",
        evidence=reading.evidence,
    )
