"""Writes a crowd's votes straight into the tables."""

from collections.abc import Sequence

from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Prompt, Response, Slot, Vote


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
                comparison=comparison,
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
