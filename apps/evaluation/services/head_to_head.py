"""Comparing two systems by people: opened with a plan that is fixed, looked at, ended."""

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop

from apps.accounts.models import Project, Role, User
from apps.accounts.services import audit_record, notice_give
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest, short_id
from apps.evaluation.models import HeadToHead, Look
from apps.evaluation.selectors.head_to_head import (
    plan_of,
    progress_of,
    result_now,
    result_to_json,
    votes_count,
    votes_of,
)
from apps.evaluation.selectors.outputs import models_of, outputs_of, prompt_facts
from apps.labeling.services.blind import blind_pairs_close, blind_pairs_queue
from apps.labeling.services.importing import MOST_BLIND_VOTES
from apps.labeling.texts import BadMessages, Messages, fingerprint, messages_from
from apps.monitoring.services.incidents import incident_open
from apps.training.models import Checkpoint, Run
from measures.head_to_head import FINAL, Plan, Result, Stopping, Verdict, result_of
from measures.model_ranking import LEAST_PEOPLE, LEAST_PROMPTS
from workers.contract.protocol import content_sha256

MOST_PROMPTS = 5_000
MOST_DAYS = 365
NO_ANSWER = "(This answer is empty.)"
STATISTICS = 1  # raised whenever the same votes would give other figures
_FIELDS = ("prompt", "response_a", "response_b", "group")


@dataclass(frozen=True, slots=True)
class PairOfAnswers:
    """A prompt and what the two systems said."""

    prompt: Messages
    first: str
    second: str
    facts: Mapping[str, str]

    @property
    def alike(self) -> bool:
        return self.first.strip() == self.second.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is planned. people: how many are wanted to share the votes evenly; nobody gives more
    than half as many again as an even share. prompts: at most so many, drawn by the id."""

    name: str
    first_name: str
    second_name: str
    prompts: int = 200
    people: int = 20
    votes_each: int = 1
    margin: float = 0.05
    stopping: str = Stopping.ANY_TIME
    repeat_days: int | None = None
    priority: float = 1.0


@transaction.atomic
def head_to_head_open(
    *,
    project: Project,
    user: User,
    asked: Asked,
    source: Run | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
) -> HeadToHead:
    """Put the pairs into the label queue and fix what will be concluded from which votes.

    source: a finished evaluation, whose policy is the first system and whose baseline the second;
    else rows with `prompt`, `response_a` of the first, `response_b` of the second and perhaps
    `group`. Prompts to which both gave the same answer are asked about nobody and count as ties.
    Raises `DomainError` naming the field (or the row), and then nobody is asked.
    """
    _asked_check(asked)
    found = answers_of_run(source) if source is not None else answers_of_rows(rows)
    found = _once(found)
    key = short_id()
    drawn = sorted(found, key=lambda pair: _digest(key, fingerprint(pair.prompt)))[: asked.prompts]
    differ = [pair for pair in drawn if not pair.alike]
    if not differ:
        raise DomainError(
            "Both systems gave the same answer to every prompt, so there is nothing to compare.",
            code="all_alike",
            field="source",
        )
    if len(differ) < LEAST_PROMPTS:
        raise DomainError(
            f"{len(differ)} prompts with two different answers; {LEAST_PROMPTS} are needed before "
            "anything can be said. Evaluate on more prompts.",
            code="too_few_prompts",
            field="source",
        )
    first, second = _checkpoints(source)
    even = math.ceil(len(differ) * asked.votes_each / asked.people)
    pairs, report = blind_pairs_queue(
        project=project,
        rows=[_row(key, n, pair, first, second, asked) for n, pair in enumerate(differ, start=1)],
        batch=f"head-to-head {key}",
        votes=asked.votes_each,
        most_each=math.ceil(1.5 * even),
        priority=asked.priority,
    )
    asked_about = report.n_created - report.n_review
    if asked_about < LEAST_PROMPTS:
        raise DomainError(
            f"{report.n_review} pairs hold a phrase that this project sends to review, which "
            f"leaves {asked_about}; {LEAST_PROMPTS} are needed.",
            code="too_few_prompts",
            field="source",
        )
    plan = Plan(
        prompts=asked_about,
        alike=len(drawn) - len(differ),
        votes_each=asked.votes_each,
        margin=asked.margin,
        stopping=Stopping(asked.stopping),
    )
    protocol = _protocol(differ, plan, asked, source, first, second)
    made = HeadToHead.objects.create(
        id=key,
        project=project,
        name=asked.name.strip(),
        first_name=asked.first_name.strip(),
        second_name=asked.second_name.strip(),
        first=first,
        second=second,
        source=source,
        pairs=pairs,
        n_prompts=plan.prompts,
        n_alike=plan.alike,
        votes_each=plan.votes_each,
        margin=plan.margin,
        alpha=plan.alpha,
        stopping=plan.stopping.value,
        protocol=protocol,
        protocol_sha256=content_sha256(protocol),
        repeat_days=asked.repeat_days,
        created_by=user,
    )
    audit_record(
        action="head_to_head.opened",
        actor=user,
        project=project,
        subject=made.pk,
        details={"pairs": len(differ), "votes": plan.votes, "protocol": made.protocol_sha256},
    )
    return made


def _asked_check(asked: Asked) -> None:
    for field in ("name", "first_name", "second_name"):
        text = getattr(asked, field).strip()
        most = longest(HeadToHead, field)
        if not text or len(text) > most or "\x00" in text:
            raise DomainError(f"From 1 to {most} characters.", field=field)
    if asked.first_name.strip() == asked.second_name.strip():
        raise DomainError("The two systems need different names.", field="second_name")
    whole = {
        "prompts": (LEAST_PROMPTS, MOST_PROMPTS),
        "people": (LEAST_PEOPLE, 1_000),
        "votes_each": (1, MOST_BLIND_VOTES),
    }
    for field, (least, most) in whole.items():
        if not least <= getattr(asked, field) <= most:
            raise DomainError(f"From {least:,} to {most:,}.", field=field)
    if asked.votes_each > asked.people:
        raise DomainError(
            "Nobody votes twice on a pair, so at most as many as people.", field="votes_each"
        )
    if not 0.005 <= asked.margin <= 0.25:
        raise DomainError("From 0.005 to 0.25.", field="margin")
    if asked.stopping not in [*Stopping]:
        raise DomainError(f"One of {', '.join(Stopping)}.", field="stopping")
    if asked.repeat_days is not None and not 1 <= asked.repeat_days <= MOST_DAYS:
        raise DomainError(f"From 1 to {MOST_DAYS} days.", field="repeat_days")


def answers_of_run(source: Run) -> list[PairOfAnswers]:
    """What a finished evaluation kept. Raises `Conflict` where it kept nothing."""
    if source.kind != Run.Kind.EVALUATE or source.state != Run.State.FINISHED:
        raise Conflict(
            "Choose an evaluation that has finished.", code="not_finished", field="source"
        )
    facts = prompt_facts(source)
    return [
        PairOfAnswers(one.prompt, one.response, one.other, facts.get(fingerprint(one.prompt), {}))
        for one in outputs_of(source)
    ]


def answers_of_rows(rows: Sequence[Mapping[str, Any]]) -> list[PairOfAnswers]:
    """Raises `DomainError` naming the first row and field that is not as expected."""
    if not rows:
        raise DomainError("Choose an evaluation, or give rows.", field="rows", code="no_rows")
    if len(rows) > 4 * MOST_PROMPTS:
        raise DomainError(f"At most {4 * MOST_PROMPTS:,} rows.", field="rows")
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            if unknown := sorted(set(row) - set(_FIELDS)):
                raise ValueError(f"{unknown[0]} is not a field; {', '.join(_FIELDS)} are")
            texts = {name: row.get(name) for name in ("response_a", "response_b")}
            if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
                raise ValueError(f"{wrong[0]} is not a text")
            group = row.get("group") or ""
            if not isinstance(group, str):
                raise ValueError("group is not a text")
            prompt = messages_from(row.get("prompt"), role="user")
            found.append(
                PairOfAnswers(
                    prompt,
                    str(texts["response_a"]),
                    str(texts["response_b"]),
                    {"group": group} if group else {},
                )
            )
        except (ValueError, BadMessages) as error:
            raise DomainError(
                f"Row {number}: {error}.", code="bad_rows", field="rows", row=number
            ) from None
    return found


def _once(pairs: Sequence[PairOfAnswers]) -> list[PairOfAnswers]:
    """Each prompt once: a second answer to it would count one prompt for two."""
    return list({fingerprint(pair.prompt): pair for pair in reversed(pairs)}.values())


def _checkpoints(source: Run | None) -> tuple[Checkpoint | None, Checkpoint | None]:
    if source is None:
        return None, None
    policy, other = models_of(source)
    found = Checkpoint.objects.in_bulk([pk for pk in (policy, other) if pk])
    return found.get(policy), found.get(other)


def _row(
    key: str,
    number: int,
    pair: PairOfAnswers,
    first: Checkpoint | None,
    second: Checkpoint | None,
    asked: Asked,
) -> dict[str, Any]:
    return {
        "id": f"{key}-{number}",
        "prompt": pair.prompt,
        "response_a": pair.first if pair.first.strip() else NO_ANSWER,
        "response_b": pair.second if pair.second.strip() else NO_ANSWER,
        "origin_ref_a": first.pk if first else asked.first_name.strip(),
        "origin_ref_b": second.pk if second else asked.second_name.strip(),
        **{name: value for name, value in pair.facts.items() if value},
    }


def _protocol(
    pairs: Sequence[PairOfAnswers],
    plan: Plan,
    asked: Asked,
    source: Run | None,
    first: Checkpoint | None,
    second: Checkpoint | None,
) -> dict[str, Any]:
    """What the conclusion rests on. Two head-to-heads with the same hash asked the same question
    of the same answers."""
    pairs = sorted(pairs, key=lambda pair: fingerprint(pair.prompt))
    return {
        "kind": "head_to_head",
        "statistics": STATISTICS,
        "prompts": content_sha256([fingerprint(pair.prompt) for pair in pairs]),
        "answers": {
            "first": content_sha256([[fingerprint(p.prompt), p.first] for p in pairs]),
            "second": content_sha256([[fingerprint(p.prompt), p.second] for p in pairs]),
        },
        "systems": {
            "first": {"name": asked.first_name.strip(), "sha256": first.sha256 if first else ""},
            "second": {
                "name": asked.second_name.strip(),
                "sha256": second.sha256 if second else "",
            },
        },
        "evaluation": source.pk if source else "",
        "plan": {
            "estimand": "mean over prompts, people and sides; ties and both bad count one half",
            "prompts": plan.prompts,
            "alike": plan.alike,
            "votes_each": plan.votes_each,
            "people": asked.people,
            "margin": plan.margin,
            "alpha": plan.alpha,
            "stopping": plan.stopping.value,
            "clusters": ["prompt", "person"],
        },
    }


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}:{text}".encode()).hexdigest()


# Looking, and ending.


def head_to_head_look(*, head_to_head: HeadToHead, by: User | None) -> Result:
    """What the votes say now; that somebody saw it is written down, once a person and number of
    votes. A comparison that is decided, or has all its votes, ends with this."""
    result = result_of(votes_of(head_to_head), plan_of(head_to_head))
    if result.verdict != Verdict.WAITING and result.n:
        estimate = result.estimate
        Look.objects.get_or_create(
            head_to_head=head_to_head,
            by=by,
            n_votes=result.n,
            defaults={
                "value": estimate.value if estimate else None,
                "low": estimate.low if estimate else None,
                "high": estimate.high if estimate else None,
                "verdict": result.verdict.value,
            },
        )
    progress = progress_of(head_to_head)
    complete = bool(result.n) and not progress.n_free + progress.n_held
    if result.verdict in FINAL or complete:
        return result_now(head_to_head_end(head_to_head=head_to_head, by=None))
    return result


@transaction.atomic
def head_to_head_end(*, head_to_head: HeadToHead, by: User | None) -> HeadToHead:
    """Ask nobody any more, and keep every figure as it is now. `by`: who ended it; nobody where it
    ended by itself. Ending again changes nothing. A first system that people like less is a
    critical incident."""
    found = (
        HeadToHead.objects.select_for_update(of=("self",))
        .select_related("pairs", "project")
        .get(pk=head_to_head.pk)
    )
    if found.ended_at is not None:
        return found
    blind_pairs_close(evaluation_set=found.pairs)
    result = result_of(votes_of(found), plan_of(found), ended=True)
    found.ended_at, found.ended_by = timezone.now(), by
    found.verdict, found.result = result.verdict.value, result_to_json(result)
    found.save(update_fields=["ended_at", "ended_by", "verdict", "result", "updated_at"])
    audit_record(
        action="head_to_head.ended",
        actor=by,
        project=found.project,
        subject=found.pk,
        details={"verdict": found.verdict, "votes": result.n},
    )
    notice_give(
        project=found.project,
        roles=(Role.ENGINEER, Role.ADMIN),
        kind="head_to_head.ended",
        text=_ENDED,
        values={"name": found.name},
        path=reverse("evaluation:head_to_head", args=[found.project.slug, found.pk]),
        by=by,
    )
    if result.verdict == Verdict.WORSE:
        _alarm(found, result)
    return found


_ENDED = gettext_noop("The head-to-head %(name)s has ended.")
RULE = "people_prefer_other"


def _alarm(found: HeadToHead, result: Result) -> None:
    """One incident of a model (or of a system of that name) while it is open."""
    estimate = result.estimate
    incident_open(
        project=found.project,
        key=f"head_to_head:{found.first_id or found.first_name}",
        link="evaluation",
        rule=RULE,
        title=f"People prefer {found.second_name} to {found.first_name}",
        message=f"In the head-to-head “{found.name}”, by {result.n:,} votes of {result.n_people:,} "
        "people. Where it is in service, take it back; read the answers on which it loses.",
        severity="critical",
        checkpoint=found.first,
        value=estimate.value if estimate else None,
        threshold=0.5,
    )


def head_to_heads_look() -> int:
    """Every minute, by the scheduler: those with votes that nobody has looked at; how many."""
    n = 0
    running = HeadToHead.objects.filter(ended_at__isnull=True).select_related("pairs")
    for found in running.exclude(project__archived_at__isnull=False):
        before = found.looks.aggregate(n=Max("n_votes"))["n"] or 0
        if votes_count(found) > before:
            head_to_head_look(head_to_head=found, by=None)
            n += 1
    return n


# A page for somebody outside.


@transaction.atomic
def head_to_head_share(*, head_to_head: HeadToHead, by: User, days: int) -> HeadToHead:
    """A link under which anybody may read the result until it expires; a new one each time, and the
    one before ends."""
    if not 1 <= days <= MOST_DAYS:
        raise DomainError(f"From 1 to {MOST_DAYS} days.", field="days")
    until = timezone.now() + timedelta(days=days)
    return _shared(head_to_head, by, secrets.token_urlsafe(24), until)


@transaction.atomic
def head_to_head_unshare(*, head_to_head: HeadToHead, by: User) -> HeadToHead:
    return _shared(head_to_head, by, "", None)


def _shared(found: HeadToHead, by: User, key: str, until: Any) -> HeadToHead:
    found.share_key, found.shared_until = key, until
    found.save(update_fields=["share_key", "shared_until", "updated_at"])
    audit_record(
        action="head_to_head.shared" if key else "head_to_head.unshared",
        actor=by,
        project=found.project,
        subject=found.pk,
        details={"until": until.isoformat()} if until else {},
    )
    return found
