"""Writes a crowd's votes straight into the tables."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.agreement.services.reports import report_refresh
from apps.labeling import services as labeling
from apps.labeling.models import (
    Comparison,
    Guideline,
    LabelingSettings,
    Prompt,
    Response,
    Slot,
    Vote,
)
from tests.labeling.pairs import annotators_make, leased, rows_make


def crowd_write(
    project: Project, votes: Sequence[Sequence[str]], *, golds: Sequence[str] = (), stratum="random"
) -> list[Comparison]:
    """`votes[i]` are the choices on comparison i; annotator k casts the k-th of each."""
    made = []
    people = [
        User.objects.get_or_create(
            username=f"crowd-{k}", defaults={"is_imported": True, "is_active": False}
        )[0]
        for k in range(max(map(len, votes)))
    ]
    start = Comparison.objects.count()
    for number, choices in enumerate(votes, start=start):
        prompt = Prompt.objects.create(
            project=project, messages=[], text_hash=f"p{number}", group_key=f"g{number}"
        )
        a, b = (
            Response.objects.create(prompt=prompt, messages=[], text_hash=f"{side}{number}")
            for side in "ab"
        )
        comparison = Comparison.objects.create(
            project=project,
            prompt=prompt,
            response_a=a,
            response_b=b,
            stratum=stratum,
            overlap=max(3, len(choices)),
            gold=golds[number - start] if golds else "",
        )
        made.append(comparison)
        for k, choice in enumerate(choices):
            slot = Slot.objects.create(
                project=project,
                task=comparison,
                position=k + 1,
                state="done",
                annotator=people[k],
            )
            Vote.objects.create(
                project=project,
                comparison=comparison,
                slot=slot,
                annotator=people[k],
                choice=choice,
                chosen={"a": a, "b": b}.get(choice),
                idempotency_key=f"{comparison.pk}",
                cast_at=timezone.now(),
            )
    return made


# Writes votes with sides, times and names of people: a row per vote, pairs made as needed.


def person(username: str, *, imported: bool = True) -> User:
    return User.objects.get_or_create(
        username=username, defaults={"is_imported": imported, "is_active": not imported}
    )[0]


def votes_write(project: Project, rows: Iterable[dict[str, Any]]) -> None:
    """Each row: pair (any number), who (a User), choice; optionally left_is, active_ms, cast_at,
    guideline."""
    rows = list(rows)
    pairs = _pairs(project, dict.fromkeys(row["pair"] for row in rows))
    taken: Counter[int] = Counter()
    slots = []
    for row in rows:
        taken[row["pair"]] += 1
        slots.append(
            Slot(
                project=project,
                task=pairs[row["pair"]],
                position=taken[row["pair"]],
                state="done",
                annotator=row["who"],
            )
        )
    Slot.objects.bulk_create(slots)
    moment = timezone.now()
    Vote.objects.bulk_create(
        [
            Vote(
                project=project,
                comparison_id=slot.task_id,
                slot=slot,
                annotator=row["who"],
                choice=row["choice"],
                chosen={"a": slot.task.response_a, "b": slot.task.response_b}.get(row["choice"]),
                left_is=row.get("left_is", ""),
                active_ms=row.get("active_ms"),
                guideline=row.get("guideline"),
                idempotency_key=f"{slot.task.pk}",
                cast_at=row.get("cast_at", moment),
            )
            for row, slot in zip(rows, slots, strict=True)
        ]
    )


def _pairs(project: Project, numbers: Iterable[int]) -> dict[int, Comparison]:
    numbers, start = list(numbers), Prompt.objects.count()
    prompts = Prompt.objects.bulk_create(
        [
            Prompt(
                project=project,
                messages=[{"role": "user", "content": f"Question {number}?"}],
                text_hash=f"p{start}-{number}",
                group_key=f"g{start}-{number}",
            )
            for number in numbers
        ]
    )
    first, second = (
        Response.objects.bulk_create(
            [
                Response(prompt=prompt, messages=[], text_hash=f"{side}{prompt.text_hash}")
                for prompt in prompts
            ]
        )
        for side in "ab"
    )
    made = Comparison.objects.bulk_create(
        [
            Comparison(project=project, prompt=prompt, response_a=a, response_b=b)
            for prompt, a, b in zip(prompts, first, second, strict=True)
        ]
    )
    return dict(zip(numbers, made, strict=True))


# Projects with comparisons that votes did not settle.


def disputed_make(
    project: Project, n: int = 1, votes: str = "ab", start: int = 1, **settings: object
) -> tuple[list[Comparison], list[User]]:
    """n comparisons on which person k cast the k-th of `votes`: "a", "b", "t" for tie.

    With as many votes as the project takes, and no majority, they are contested.
    """
    rule = {"overlap": len(votes), "max_overlap": len(votes), "least_votes": 2}
    rule |= {"least_agreeing": 2, "least_share": 0.6, "random_share": 1.0} | settings
    LabelingSettings.objects.update_or_create(project=project, defaults=rule)
    labeling.labeling_set_up(project=project)
    labeling.comparisons_import(project=project, rows=rows_make(n, start=start))
    people = annotators_make(project, len(votes))
    choices = {"a": "a", "b": "b", "t": "tie"}
    for person, choice in zip(people, votes, strict=True):
        for _ in range(n):
            cast(project, person, choices[choice])
    names = [f"pair-{number}" for number in range(start, start + n)]
    return list(Comparison.objects.filter(external_id__in=names).order_by("pk")), people


def cast(project: Project, person: User, choice: str) -> labeling.VoteResult:
    lease = leased(project, person)
    return labeling.vote_cast(
        slot=lease.slot,
        annotator=person,
        idempotency_key=lease.key,
        choice=choice,
        lease_next=False,
    )


def newer_guideline(project: Project, by: User, text: str = "A new sentence.") -> Guideline:
    return labeling.guideline_publish(project=project, body=text, by=by)


# A crowd that compares three models of planted strength.

WINS = {("strong", "middle"): 0.7, ("middle", "weak"): 0.7, ("strong", "weak"): 0.85}


def models_write(
    project: Project, *, people: int = 8, pairs: int = 240, named: bool = True
) -> None:
    """Two people vote on each pair; every tenth vote is a tie, every twentieth both bad."""
    draw = random.Random(11)
    voters = [person(f"voter-{number}") for number in range(people)]
    met, rows = [], []
    for number in range(pairs):
        first, second = draw.choice(list(WINS))
        chance = WINS[first, second]
        if number % 2:
            first, second, chance = second, first, 1 - chance
        met.append((first, second))
        for who in draw.sample(voters, 2):
            kind = draw.random()
            choice = "a" if draw.random() < chance else "b"
            choice = "tie" if kind < 0.1 else "both_bad" if kind > 0.95 else choice
            rows.append(
                {"pair": number, "who": who, "choice": choice, "left_is": draw.choice("ab")}
            )
    votes_write(project, rows)
    comparisons = Comparison.objects.filter(project=project).order_by("pk")
    for (first, second), one in zip(met, comparisons, strict=True):
        for name, response in ((first, one.response_a), (second, one.response_b)):
            response.messages = [{"role": "assistant", "content": "word " * draw.randint(5, 50)}]
            if named:
                response.origin, response.origin_ref = Response.Origin.MODEL, name
            response.save()
    half = comparisons.values("prompt_id")[: pairs // 2]
    Prompt.objects.filter(pk__in=list(half.values_list("prompt_id", flat=True))).update(topic="law")
    report_refresh(project=project)
