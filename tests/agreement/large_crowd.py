"""Crowds of a few thousand votes in a moment, with the decisions that voting would have left."""

from collections.abc import Sequence

import numpy as np
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Decision, Prompt, Response, Slot, Vote
from apps.labeling.services.decision_words import decision_said
from measures.voting import CHOICES, DEFAULT_RULE, decide


def people_write(project: Project, n: int) -> list[User]:
    return User.objects.bulk_create(
        [
            User(username=f"imported.{project.slug}.{k}", is_imported=True, is_active=False)
            for k in range(n)
        ]
    )


def crowd_write(
    project: Project,
    people: Sequence[User],
    votes: Sequence[tuple[int, int, int]],
    *,
    golds: Sequence[int] = (),
) -> list[Comparison]:
    """votes: (item, index of a person, index into `CHOICES`); golds[item]: such an index or −1."""
    n = 1 + max(item for item, _, _ in votes)
    prompts = Prompt.objects.bulk_create(
        [
            Prompt(
                project=project,
                messages=[{"role": "user", "content": f"Question {i}: is tap water safe?"}],
                text_hash=f"p{i}",
                group_key=f"g{i % 40}",
            )
            for i in range(n)
        ]
    )
    sides = {
        side: Response.objects.bulk_create(
            [
                Response(
                    prompt=prompt,
                    messages=[{"role": "assistant", "content": f"Answer {side} to question {i}."}],
                    text_hash=f"{side}{i}",
                )
                for i, prompt in enumerate(prompts)
            ]
        )
        for side in "ab"
    }
    of_item: dict[int, list[tuple[int, int]]] = {}
    for item, person, choice in votes:
        of_item.setdefault(item, []).append((person, choice))
    words = [str(choice) for choice in CHOICES]
    comparisons = Comparison.objects.bulk_create(
        [
            Comparison(
                project=project,
                prompt=prompts[i],
                response_a=sides["a"][i],
                response_b=sides["b"][i],
                gold=words[golds[i]] if len(golds) and golds[i] >= 0 else "",
                overlap=max(5, len(of_item.get(i, ()))),
                n_votes=len(of_item.get(i, ())),
            )
            for i in range(n)
        ]
    )
    slots = Slot.objects.bulk_create(
        [
            Slot(
                project=project,
                task=comparisons[item],
                position=place,
                state=Slot.State.DONE,
                annotator=people[person],
            )
            for item, cast in of_item.items()
            for place, (person, _) in enumerate(cast, start=1)
        ]
    )
    flat = [(item, *vote) for item, cast in of_item.items() for vote in cast]
    Vote.objects.bulk_create(
        [
            Vote(
                project=project,
                comparison=comparisons[item],
                slot=slot,
                annotator=people[person],
                choice=words[choice],
                chosen=sides[words[choice]][item] if choice < 2 else None,
                idempotency_key=f"{item}-{person}",
                source=Vote.Source.IMPORT,
                cast_at=timezone.now(),
            )
            for slot, (item, person, choice) in zip(slots, flat, strict=True)
        ]
    )
    decisions = []
    for item, cast in of_item.items():
        counts = np.bincount([choice for _, choice in cast], minlength=4).tolist()
        made = decide(dict(zip(CHOICES, counts, strict=True)), votes_possible=5)
        decisions.append(
            Decision(
                comparison=comparisons[item],
                project=project,
                outcome=made.outcome.value,
                winner=made.winner or "",
                n_a=counts[0],
                n_b=counts[1],
                n_tie=counts[2],
                n_both_bad=counts[3],
                n_agreeing=made.n_agreeing,
                share=made.share,
                reason=decision_said(made, DEFAULT_RULE),
            )
        )
    Decision.objects.bulk_create(decisions)
    return comparisons


def spammed_votes(
    *, n_items: int, n_people: int, per_item: int, spammers: int, accuracy: float, seed: int
) -> tuple[list[tuple[int, int, int]], list[int]]:
    """(votes, truth of each item): two-way, the first `spammers` people flip coins."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n_items)
    votes = []
    for item in range(n_items):
        for person in rng.choice(n_people, per_item, replace=False):
            q = 0.5 if person < spammers else accuracy
            right = rng.random() < q
            votes.append((item, int(person), int(truth[item] if right else 1 - truth[item])))
    return votes, truth.tolist()
