"""Writes votes with sides, times and names of people: a row per vote, pairs made as needed."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Prompt, Response, Slot, Vote


def person(username: str, *, imported: bool = True) -> User:
    return User.objects.get_or_create(
        username=username, defaults={"is_imported": imported, "is_active": not imported}
    )[0]


def votes_write(project: Project, rows: Iterable[dict[str, Any]]) -> None:
    """Each row: pair (any number), who (a User), choice; optionally left_is, active_ms, cast_at."""
    rows = list(rows)
    pairs = _pairs(project, dict.fromkeys(row["pair"] for row in rows))
    taken: Counter[int] = Counter()
    slots = []
    for row in rows:
        taken[row["pair"]] += 1
        slots.append(
            Slot(
                project=project,
                comparison=pairs[row["pair"]],
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
                comparison=slot.comparison,
                slot=slot,
                annotator=row["who"],
                choice=row["choice"],
                chosen={"a": slot.comparison.response_a, "b": slot.comparison.response_b}.get(
                    row["choice"]
                ),
                left_is=row.get("left_is", ""),
                active_ms=row.get("active_ms"),
                idempotency_key=f"{slot.comparison.pk}",
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
