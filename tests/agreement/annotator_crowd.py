"""Writes votes with sides, times and names of people: a row per vote, pairs made as needed."""

from collections.abc import Iterable
from datetime import datetime
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
    pairs: dict[int, Comparison] = {}
    taken: dict[int, int] = {}
    start = Prompt.objects.count()
    moment: datetime = timezone.now()
    for row in rows:
        if row["pair"] not in pairs:
            name = f"{start}-{row['pair']}"
            prompt = Prompt.objects.create(
                project=project,
                messages=[{"role": "user", "content": f"Question {row['pair']}?"}],
                text_hash=f"p{name}",
                group_key=f"g{name}",
            )
            answers = Response.objects.bulk_create(
                [Response(prompt=prompt, messages=[], text_hash=f"{side}{name}") for side in "ab"]
            )
            pairs[row["pair"]] = Comparison.objects.create(
                project=project, prompt=prompt, response_a=answers[0], response_b=answers[1]
            )
        pair = pairs[row["pair"]]
        taken[pair.pk] = taken.get(pair.pk, 0) + 1
        slot = Slot.objects.create(
            project=project, comparison=pair, position=taken[pair.pk], state="done",
            annotator=row["who"],
        )  # fmt: skip
        Vote.objects.create(
            project=project,
            comparison=pair,
            slot=slot,
            annotator=row["who"],
            choice=row["choice"],
            chosen={"a": pair.response_a, "b": pair.response_b}.get(row["choice"]),
            left_is=row.get("left_is", ""),
            active_ms=row.get("active_ms"),
            idempotency_key=f"{pair.pk}",
            cast_at=row.get("cast_at", moment),
        )
