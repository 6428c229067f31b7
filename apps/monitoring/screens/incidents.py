"""Incidents as pages print them: words, tones, the timeline, the post-mortem's first draft."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode
from django.utils.timezone import localtime

from apps.common import registry
from apps.common.numbers import figure
from apps.common.playbook import advice
from apps.monitoring.models import Delivery, Incident, IncidentEntry
from apps.monitoring.stages import STAGE_NAMES, stage_name
from apps.training.models import Run
from workers.rules.diagnosis import Finding, verdict

TONES = {"critical": "bad", "warning": "warn", "info": ""}
STATE_TONES = {"open": "warn", "acknowledged": "live", "resolved": "good"}
LEARNED_WORDS = {
    "symptom": ("Symptom", "What was seen first, and where."),
    "assumption": ("Assumption", "Suspected causes, before the cause was known."),
    "root_cause": ("Root cause", "The actual cause."),
    "fix": ("Fix", "What was done, and the evidence that it helped."),
    "lesson": ("Lesson", "What to do differently, or to check, next time."),
}
EVENT_WORDS = {
    "opened": "that it opened",
    "escalated": "that it became critical",
    "resolved": "that it was resolved",
    "stage.changed": "which model a stage names",
    "round.waiting": "that a round waits for people",
    "round.finished": "that a round finished",
    "round.stopped": "that a round was stopped",
    "run.finished": "that a run finished",
    "run.failed": "that a run failed",
    "run.cancelled": "that a run was cancelled",
    "promotion.requested": "that somebody asks to promote a model",
    "promotion.approved": "that a promotion was approved",
    "promotion.overridden": "that a promotion was let through by override",
    "promotion.rejected": "that a promotion was rejected",
    "promotion.withdrawn": "that a promotion was withdrawn",
    "dataset.frozen": "that a dataset was frozen",
    "decisions.changed": "how many decisions changed",
    "votes.cast": "how many votes were cast",
    "test": "a test",
}
_CLASSES = {"contract": "exact", "probe": "fixed prompts", "trend": "trend"}


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One finding: what was measured, what was expected, since when."""

    title: str
    rule: str
    stage: str
    sort: str
    value: str
    expected: str
    start_step: int
    step: int
    detail: str
    playbook: str
    charts: str
    samples: tuple[str, ...]
    samples_url: str


@dataclass(frozen=True, slots=True)
class IncidentEvidence:
    """What the findings say together: the first, what may be first as well, what followed."""

    first: EvidenceRow
    alternatives: list[EvidenceRow]
    consequences: list[EvidenceRow]
    symptom: str
    assumption: str


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One line of the timeline."""

    at: datetime
    icon: str
    tone: str
    words: str
    by: Any = None
    text: str = ""
    url: str = ""
    badge: str = ""


def judged(incident: Incident, findings: Sequence[Finding]) -> IncidentEvidence | None:
    found = verdict(list(findings))
    if found is None or incident.run is None:
        return None
    run = incident.run
    first = row_of(run, found.first)
    others = [row_of(run, one) for one in found.alternatives]
    later = [row_of(run, one) for one in found.consequences]
    return IncidentEvidence(
        first, others, later, _symptom(first, later), _assumption(first, others)
    )


def row_of(run: Run, finding: Finding) -> EvidenceRow:
    slug = run.project.slug
    page = reverse("training:run", args=[slug, run.pk])
    value = f"{figure(finding.value)} {finding.unit}".strip() if finding.value is not None else ""
    return EvidenceRow(
        title=finding.title,
        rule=finding.rule,
        stage=stage_name(finding.stage),
        sort=_CLASSES.get(finding.evidence_class, finding.evidence_class),
        value=value,
        expected=finding.expected,
        start_step=finding.start_step,
        step=finding.step,
        detail=finding.detail or advice(finding.rule),
        playbook=registry.playbook_url(slug, finding.rule),
        charts=f"{page}?{urlencode({'tab': 'charts', 'step': finding.start_step})}",
        samples=finding.samples,
        samples_url=f"{page}?{urlencode({'tab': 'samples', 'until': finding.step})}",
    )


def _symptom(first: EvidenceRow, later: Sequence[EvidenceRow]) -> str:
    value = f": {first.value}, expected {first.expected}" if first.value and first.expected else ""
    text = f"{first.title}{value}, since step {first.start_step:,}."
    if later:
        names = "; ".join(f"{row.title} (step {row.start_step:,})" for row in later[:5])
        text += f" After it: {names}."
    return text


def _assumption(first: EvidenceRow, others: Sequence[EvidenceRow]) -> str:
    text = f"The stage “{first.stage}” broke first: its evidence starts earliest."
    if others:
        names = ", ".join(f"“{row.stage}”" for row in others)
        text += f" It began together with {names}, which an experiment has to rule out."
    return text


def learned_fields(
    incident: Incident, draft: IncidentEvidence | None, typed: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The fields of the post-mortem: what was typed and refused, else what is kept, else the draft
    from the evidence."""
    drafts = {"symptom": draft.symptom, "assumption": draft.assumption} if draft else {}
    if incident.state == Incident.State.RESOLVED:
        drafts = {}
    needed = ("root_cause", "fix") if incident.severity == "critical" else ()
    fields = []
    for name, (label, help_) in LEARNED_WORDS.items():
        kept = getattr(incident, name)
        value = (typed or {}).get(name, kept or drafts.get(name, ""))
        fields.append(
            {
                "name": name,
                "label": label,
                "help": help_,
                "value": value,
                "kept": kept,
                "needed": name in needed,
                "drafted": not kept and value == drafts.get(name) and bool(value),
            }
        )
    return fields


def timeline(
    entries: Iterable[IncidentEntry], deliveries: Iterable[Delivery], checks: Iterable[Run]
) -> list[TimelineLine]:
    """Everything that happened, oldest first."""
    lines = [line for part in _parts(entries) if (line := _line_of(part)) is not None]
    lines += [_delivery(one) for one in deliveries]
    lines += [
        TimelineLine(
            run.created_at,
            "list-checks",
            "",
            f"{run.get_kind_display()} started: {run.name} ({run.get_state_display()})",
            by=run.created_by,
            url=reverse("training:run", args=[run.project.slug, run.pk]),
        )
        for run in checks
    ]
    return sorted(lines, key=lambda line: line.at)


def _parts(entries: Iterable[IncidentEntry]) -> Iterable[list[IncidentEntry]]:
    """Entries one by one; alerts of a rule that follow each other, and were told to nobody,
    together."""
    return [list(part) for _, part in groupby(entries, key=_kind)]


def _kind(entry: IncidentEntry) -> Any:
    if entry.kind == "alert" and not entry.body.get("told"):
        return entry.body.get("rule"), entry.body.get("severity"), bool(entry.body.get("muted"))
    return entry.pk


def _line_of(part: Sequence[IncidentEntry]) -> TimelineLine | None:
    first, last = part[0], part[-1]
    line = _line(first)
    if len(part) == 1 or line is None:
        return line
    steps = [one.body["step"] for one in (first, last) if isinstance(one.body.get("step"), int)]
    span = f", steps {steps[0]:,} to {steps[1]:,}" if len(steps) == 2 else ""
    words = (
        f"{len(part):,} alerts of {first.body.get('rule')}{span}: {first.body.get('message', '')}"
    )
    return replace(line, at=last.at, words=words)


def _line(entry: IncidentEntry) -> TimelineLine | None:
    body = entry.body
    if entry.kind == "note":
        return TimelineLine(
            entry.at, "message-square", "", "Note", entry.by, text=body.get("text", "")
        )
    if entry.kind == "alert":
        tone = TONES.get(body.get("severity", ""), "")
        step = f" at step {body['step']:,}" if isinstance(body.get("step"), int) else ""
        badge = "told" if body.get("told") else "muted" if body.get("muted") else ""
        words = (
            f"{str(body.get('severity', 'alert')).capitalize()}{step}: {body.get('message', '')}"
        )
        return TimelineLine(entry.at, "triangle-alert", tone, words, text="", badge=badge)
    return _state_line(entry, body)


def _state_line(entry: IncidentEntry, body: dict[str, Any]) -> TimelineLine | None:
    if body.get("moved"):
        before, after = body["from"], body["to_cause"]
        words = (
            f"Cause moved from {before['title']} ({stage_name(before['link'])}) to "
            f"{after['title']} ({stage_name(after['link'])}), which began earlier or lies further "
            "out"
        )
        return TimelineLine(entry.at, "git-branch", "warn", words)
    if "cleared" in body:
        since = localtime(datetime.fromisoformat(body["cleared"]))
        words = f"The figure is back inside its limit since {since:%Y-%m-%d %H:%M %Z}"
        return TimelineLine(entry.at, "circle-check", "good", words)
    if "mute" in body:
        until = localtime(datetime.fromisoformat(body["until"]))
        words = f"Muted until {until:%Y-%m-%d %H:%M %Z}: {body['reason']}"
        return TimelineLine(entry.at, "eye-off", "", words, entry.by)
    if "wrote" in body:
        names = ", ".join(LEARNED_WORDS[name][0].lower() for name in body["wrote"])
        return TimelineLine(entry.at, "pencil", "", f"Wrote down: {names}", entry.by)
    if body.get("to") == "acknowledged":
        return TimelineLine(entry.at, "eye", "live", "Acknowledged", entry.by)
    if body.get("to") == "resolved":
        return TimelineLine(entry.at, "circle-check", "good", "Resolved", entry.by)
    return None


def _delivery(one: Delivery) -> TimelineLine:
    what = EVENT_WORDS.get(one.event, "of another alert")
    where = f"{one.channel.get_kind_display()} {one.channel.address}"
    if one.state == Delivery.State.SENT and one.sent_at is not None:
        return TimelineLine(one.sent_at, "bell", "", f"Notified {where}: {what}")
    if one.state == Delivery.State.FAILED:
        return TimelineLine(
            one.created_at, "bell", "bad", f"Could not notify {where} {what}", text=one.error
        )
    tried = f", tried {one.tries} times" if one.tries else ""
    return TimelineLine(
        one.created_at, "clock", "", f"Waiting to notify {where}: {what}{tried}", text=one.error
    )


def stages() -> list[tuple[str, str]]:
    return list(STAGE_NAMES.items())
