"""Comparing systems by people: opened with a plan that is fixed, looked at, ended."""

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import combinations
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
    progress_of,
    result_by_votes,
    result_now,
    result_to_json,
    simulated_count,
    votes_count,
)
from apps.evaluation.selectors.outputs import models_of, outputs_of, prompt_facts
from apps.labeling.models import EvaluationSet, Task
from apps.labeling.services.blind import blind_pairs_close, blind_pairs_queue
from apps.labeling.services.importing import MOST_BLIND_VOTES
from apps.labeling.texts import BadMessages, fingerprint, messages_from
from apps.monitoring.services.incidents import incident_open
from apps.training.models import Checkpoint, Run
from apps.training.selectors.protocols import refusal_of
from measures.head_to_head import FINAL, LEAST_EXACT, Plan, Result, Stopping, Verdict
from measures.messages import Messages
from measures.model_ranking import LEAST_PEOPLE, LEAST_PROMPTS
from measures.several_systems import BASELINE, LEAST_SYSTEMS, MOST_SYSTEMS
from workers.contract.protocol import content_sha256

MOST_PROMPTS = 5_000
MOST_DAYS = 365
MOST_NAME = longest(HeadToHead, "first_name")
NO_ANSWER = "(This answer is empty.)"
STATISTICS = 1  # raised whenever the same votes would give other figures
ANSWERS = tuple(f"response_{letter}" for letter in "abcdefgh")  # of each system, in their order
MOST_PAIRS = MOST_SYSTEMS * (MOST_SYSTEMS - 1) // 2


@dataclass(frozen=True, slots=True)
class Answers:
    """A prompt and what each system said, in their order."""

    prompt: Messages
    texts: tuple[str, ...]
    facts: Mapping[str, str]

    @property
    def alike(self) -> bool:
        return len({text.strip() for text in self.texts}) == 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems' answers to one prompt, by the systems' places."""

    answers: Answers
    one: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is planned. people: how many are wanted to share the votes evenly; nobody gives more
    than half as many again as an even share. prompts: at most so many, drawn by the id. more_names:
    of further systems; pairs_each: pairs of systems on a prompt, where there are more than two."""

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
    more_names: Sequence[str] = ()
    pairs_each: int = 1

    @property
    def systems(self) -> list[str]:
        return [name.strip() for name in (self.first_name, self.second_name, *self.more_names)]


@transaction.atomic
def head_to_head_open(
    *,
    project: Project,
    user: User,
    asked: Asked,
    source: Run | None = None,
    more_sources: Sequence[Run] = (),
    rows: Sequence[Mapping[str, Any]] = (),
) -> HeadToHead:
    """Put the pairs into the label queue and fix what will be concluded from which votes.

    source: a finished evaluation, whose policy is the first system and whose baseline the second;
    more_sources: evaluations by the same protocol, whose policies are further systems, by
    `more_names` or else the names of their runs; prompts are those that all were asked. Else rows
    with `prompt`, `response_a` of the first, `response_b` of the second (`response_c` to
    `response_h` of further ones) and perhaps `group`. Prompts to which both of two gave the same
    answer are asked about nobody and count as ties; of more systems only answers that differ are
    paired, so that strengths are of prompts on which they do. Raises `DomainError` naming the field
    (or the row), and then nobody is asked.
    """
    models = _models(source, more_sources)
    if more_sources and not asked.more_names:
        names = [model.run.name if model else "" for model in models[2:]]
        asked = replace(asked, more_names=[name[:MOST_NAME] for name in names])
    _asked_check(asked)
    if source is None:
        found = _once(answers_of_rows(rows, len(asked.systems)))
    else:
        found = answers_of_runs(source, more_sources, asked)
    key = short_id()
    drawn = sorted(found, key=lambda pair: _digest(key, fingerprint(pair.prompt)))[: asked.prompts]
    differ = [pair for pair in drawn if not pair.alike]
    if not differ:
        raise DomainError(
            "The systems gave the same answer to every prompt, so there is nothing to compare.",
            code="all_alike",
            field="source",
        )
    _enough(asked, len(differ), f"{len(differ)} prompts with two different answers")
    drawn_pairs = pairs_drawn(key, differ, len(asked.systems), asked.pairs_each)
    if asked.more_names:
        _connected(asked, drawn_pairs)
    even = math.ceil(len(drawn_pairs) * asked.votes_each / asked.people)
    pairs, report = blind_pairs_queue(
        project=project,
        rows=[_row(key, n, pair, models, asked) for n, pair in enumerate(drawn_pairs, start=1)],
        batch=f"head-to-head {key}",
        votes=asked.votes_each,
        most_each=math.ceil(1.5 * even),
        priority=asked.priority,
    )
    n_pairs = report.n_created - report.n_review
    prompts = _prompts_asked(pairs) if asked.more_names else n_pairs
    _enough(
        asked,
        prompts,
        f"{report.n_review} pairs hold a phrase that this project sends to review, which leaves "
        f"{prompts}",
    )
    plan = Plan(
        prompts=prompts,
        alike=len(drawn) - len(differ),
        votes_each=asked.votes_each,
        margin=asked.margin,
        stopping=Stopping(asked.stopping),
        pairs=n_pairs if asked.more_names else None,
    )
    protocol = _protocol(drawn, plan, asked, [source, *more_sources] if source else [], models)
    made = HeadToHead.objects.create(
        id=key,
        project=project,
        name=asked.name.strip(),
        first_name=asked.first_name.strip(),
        second_name=asked.second_name.strip(),
        more_names=asked.systems[2:],
        n_pairs=plan.pairs,
        first=models[0],
        second=models[1],
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
        details={"pairs": len(drawn_pairs), "votes": plan.votes, "protocol": made.protocol_sha256},
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
    _more_check(asked)
    whole = {
        "prompts": (LEAST_PROMPTS if asked.more_names else LEAST_EXACT, MOST_PROMPTS),
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


def _more_check(asked: Asked) -> None:
    most = MOST_NAME
    systems = asked.systems
    for number, name in enumerate(systems[2:], start=3):
        if not name or len(name) > most or "\x00" in name:
            raise DomainError(f"System {number}: from 1 to {most} characters.", field="more_names")
        if systems.count(name) > 1:
            raise DomainError(f"'{name}' names two systems.", field="more_names")
    if len(systems) > MOST_SYSTEMS:
        raise DomainError(
            f"{len(systems)} systems; from {LEAST_SYSTEMS} to {MOST_SYSTEMS} where there are more "
            "than two.",
            field="more_names",
        )
    pairs = len(systems) * (len(systems) - 1) // 2
    if not 1 <= asked.pairs_each <= pairs:
        raise DomainError(
            f"From 1 to {pairs}: {len(systems)} systems have so many pairs.", field="pairs_each"
        )


def _enough(asked: Asked, prompts: int, found: str) -> None:
    """`DomainError` with the number that is needed where nothing could be concluded."""
    least = LEAST_PROMPTS if asked.more_names else LEAST_EXACT
    if prompts < least:
        raise DomainError(
            f"{found}; {least} are needed before anything can be said. Bring more prompts.",
            code="too_few_prompts",
            field="source",
        )
    if prompts < LEAST_PROMPTS and asked.people < LEAST_EXACT:
        raise DomainError(
            f"With fewer than {LEAST_PROMPTS} prompts each person's votes count as one, and "
            f"{LEAST_EXACT} people are the fewest that can tell.",
            code="too_few_people",
            field="people",
        )


def pairs_drawn(key: str, differ: Sequence[Answers], systems: int, each: int) -> list[Pair]:
    """On every prompt `each` pairs of systems whose answers differ: of those the least asked about
    so far, so that each two systems meet about as often, and each is response A as often as B."""
    if systems == 2:
        return [Pair(answers, 0, 1) for answers in differ]
    met: Counter[tuple[int, int]] = Counter()
    ahead: Counter[int] = Counter()  # how much more often a system is A than B
    found = []
    for answers in differ:
        texts = [text.strip() for text in answers.texts]
        could = [
            pair for pair in combinations(range(systems), 2) if texts[pair[0]] != texts[pair[1]]
        ]
        place = fingerprint(answers.prompt)
        could.sort(key=lambda pair: (met[pair], _digest(key, f"{place} {pair}")))
        for one, other in could[:each]:
            met[one, other] += 1
            if ahead[one] > ahead[other] or (
                ahead[one] == ahead[other] and _digest(key, f"{place} {one}") < "8"
            ):
                one, other = other, one
            ahead[one] += 1
            ahead[other] -= 1
            found.append(Pair(answers, one, other))
    return found


def _connected(asked: Asked, pairs: Sequence[Pair]) -> None:
    """`DomainError` where the pairs would not join all systems, or ask too little about one."""
    names = asked.systems
    groups = [{place} for place in range(len(names))]
    prompts: dict[int, set[int]] = {place: set() for place in range(len(names))}
    for pair in pairs:
        joined = [group for group in groups if group & {pair.one, pair.other}]
        if len(joined) > 1:
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
        for place in (pair.one, pair.other):
            prompts[place].add(id(pair.answers))
    if len(groups) > 1:
        told = "; ".join(", ".join(names[place] for place in sorted(group)) for group in groups)
        raise DomainError(
            "Nothing would compare these groups of systems, whose answers are the same wherever "
            f"they meet: {told}.",
            code="not_connected",
            field="rows",
        )
    place = min(prompts, key=lambda place: len(prompts[place]))
    if len(prompts[place]) < LEAST_PROMPTS:
        raise DomainError(
            f"{names[place]} would be compared on {len(prompts[place])} prompts; {LEAST_PROMPTS} "
            "are needed for each system. Bring more prompts, or ask about more pairs on each.",
            code="too_few_prompts",
            field="pairs_each",
        )


def _prompts_asked(pairs: EvaluationSet) -> int:
    """Prompts with a pair that people are asked about."""
    asked = Task.objects.filter(
        pk__gte=pairs.first_task,
        pk__lte=pairs.last_task,
        project=pairs.project_id,
        kind=Task.Kind.BLIND,
        state=Task.State.OPEN,
    )
    return asked.values("prompt").distinct().count()


def answers_of_runs(source: Run, more: Sequence[Run], asked: Asked) -> list[Answers]:
    """What finished evaluations kept of the prompts that all were asked, each once. Raises
    `Conflict` where one has not finished, `DomainError` where they cannot be set side by side or
    their number is not that of the names."""
    if len(asked.more_names) != len(more):
        raise DomainError(
            f"{len(asked.more_names)} names for {len(more)} further evaluations: an evaluation has "
            "the answers of two systems, and each further one those of one more.",
            field="more_names",
            code="two_systems",
        )
    for field, run in (("source", source), *(("more_sources", run) for run in more)):
        if run.kind != Run.Kind.EVALUATE or run.state != Run.State.FINISHED:
            raise Conflict(
                "Choose an evaluation that has finished.", code="not_finished", field=field
            )
    if len({source.pk, *(run.pk for run in more)}) <= len(more):
        raise DomainError("An evaluation is named twice.", field="more_sources", code="twice")
    if (refusal := refusal_of([source, *more])) is not None:
        raise DomainError(refusal.message, field="more_sources", code="protocols_differ")
    facts = prompt_facts(source)
    others = [
        {fingerprint(one.prompt): one.response for one in reversed(outputs_of(run))} for run in more
    ]
    found = []
    for one in outputs_of(source):
        place = fingerprint(one.prompt)
        if all(place in texts for texts in others):
            texts = (one.response, one.other, *(texts[place] for texts in others))
            found.append(Answers(one.prompt, texts, facts.get(place, {})))
    return _once(found)


def answers_of_rows(rows: Sequence[Mapping[str, Any]], systems: int = 2) -> list[Answers]:
    """Of so many systems. Raises `DomainError` naming the first row and field that is not as
    expected."""
    if not rows:
        raise DomainError("Choose an evaluation, or give rows.", field="rows", code="no_rows")
    if len(rows) > 4 * MOST_PROMPTS:
        raise DomainError(f"At most {4 * MOST_PROMPTS:,} rows.", field="rows")
    found = []
    named = ANSWERS[:systems]
    fields = ("prompt", *named, "group")
    for number, row in enumerate(rows, start=1):
        try:
            if unknown := sorted(set(row) - set(fields)):
                raise ValueError(
                    f"{unknown[0]} is not a field of {systems} systems; {', '.join(fields)} are"
                )
            texts = {name: row.get(name) for name in named}
            if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
                raise ValueError(f"{wrong[0]} is not a text")
            group = row.get("group") or ""
            if not isinstance(group, str):
                raise ValueError("group is not a text")
            prompt = messages_from(row.get("prompt"), role="user")
            found.append(
                Answers(
                    prompt,
                    tuple(map(str, texts.values())),
                    {"group": group} if group else {},
                )
            )
        except (ValueError, BadMessages) as error:
            raise DomainError(
                f"Row {number}: {error}.", code="bad_rows", field="rows", row=number
            ) from None
    return found


def _once(pairs: Sequence[Answers]) -> list[Answers]:
    """Each prompt once: a second answer to it would count one prompt for two."""
    return list({fingerprint(pair.prompt): pair for pair in reversed(pairs)}.values())


def _models(source: Run | None, more: Sequence[Run]) -> list[Checkpoint | None]:
    """Of each system in its order; None for one that is served or comes from a file."""
    if source is None:
        return [None, None]
    ids = [*models_of(source), *(models_of(run)[0] for run in more)]
    found = Checkpoint.objects.select_related("run").in_bulk([pk for pk in ids if pk])
    return [found.get(pk) for pk in ids]


def _row(
    key: str,
    number: int,
    pair: Pair,
    models: Sequence[Checkpoint | None],
    asked: Asked,
) -> dict[str, Any]:
    """Of several systems the id ends with the places of the two."""
    one, other = (pair.answers.texts[place] for place in (pair.one, pair.other))
    origins = [
        model.pk if place < len(models) and (model := models[place]) else asked.systems[place]
        for place in (pair.one, pair.other)
    ]
    places = f"-{pair.one}-{pair.other}" if asked.more_names else ""
    return {
        "id": f"{key}-{number}{places}",
        "prompt": pair.answers.prompt,
        "response_a": one if one.strip() else NO_ANSWER,
        "response_b": other if other.strip() else NO_ANSWER,
        "origin_ref_a": origins[0],
        "origin_ref_b": origins[1],
        **{name: value for name, value in pair.answers.facts.items() if value},
    }


def _protocol(
    pairs: Sequence[Answers],
    plan: Plan,
    asked: Asked,
    sources: Sequence[Run],
    models: Sequence[Checkpoint | None],
) -> dict[str, Any]:
    """What the conclusion rests on. Two head-to-heads with the same hash asked the same question
    of the same answers."""
    pairs = sorted(pairs, key=lambda pair: fingerprint(pair.prompt))
    answers = [
        content_sha256([[fingerprint(p.prompt), p.texts[place]] for p in pairs])
        for place in range(len(asked.systems))
    ]
    hashes = [model.sha256 if model else "" for model in models]
    made: dict[str, Any] = {
        "kind": "head_to_head",
        "statistics": STATISTICS,
        "prompts": content_sha256([fingerprint(pair.prompt) for pair in pairs]),
        "answers": {
            "first": answers[0],
            "second": answers[1],
        },
        "systems": {
            "first": {"name": asked.first_name.strip(), "sha256": hashes[0]},
            "second": {"name": asked.second_name.strip(), "sha256": hashes[1]},
        },
        "evaluation": sources[0].pk if sources else "",
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
    if plan.is_exact:
        made["plan"] |= {"interval": "exact, by votes that share neither prompt nor person"}
    if asked.more_names:
        made["answers"] |= {"more": answers[2:]}
        known = hashes[2:] or [""] * len(asked.more_names)
        made["systems"] |= {
            "more": [
                {"name": name, "sha256": sha256}
                for name, sha256 in zip(asked.systems[2:], known, strict=True)
            ]
        }
        if sources:
            made["more_evaluations"] = [run.pk for run in sources[1:]]
        made["plan"] |= {
            "estimand": "Bradley-Terry strengths against the second system; a tie is half a win, "
            "both bad is left out",
            "pairs": plan.pairs,
            "pairs_each": asked.pairs_each,
            "multiplicity": "Holm over all differences",
        }
    return made


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}:{text}".encode()).hexdigest()


# Looking, and ending.


def head_to_head_look(*, head_to_head: HeadToHead, by: User | None) -> Result:
    """What the votes say now; that somebody saw it is written down, once a person and number of
    votes. A comparison that is decided, or has all its votes, ends with this."""
    result = result_by_votes(head_to_head)
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
    critical incident; of simulated votes it is none."""
    found = (
        HeadToHead.objects.select_for_update(of=("self",))
        .select_related("pairs", "project")
        .get(pk=head_to_head.pk)
    )
    if found.ended_at is not None:
        return found
    blind_pairs_close(evaluation_set=found.pairs)
    result = result_by_votes(found, ended=True)
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
    worse = result.verdict == Verdict.WORSE or _baseline_is_better(result)
    if worse and not simulated_count(found):
        _alarm(found, result)
    return found


_ENDED = gettext_noop("The head-to-head %(name)s has ended.")
RULE = "people_prefer_other"


def _baseline_is_better(result: Result) -> bool:
    """Of several systems: whether the first is told to be worse than the baseline."""
    return result.several is not None and any(
        one.told and (one.first, one.second) == (0, BASELINE) and (one.value or 0.0) < 0.5
        for one in result.several.differences
    )


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
