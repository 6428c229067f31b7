"""The named alternative: vote, decide, lease the next pair, written as one would write it first.

Correct under concurrency, a call per thing: select_for_update, get, save, update_or_create. Django
must be set up before this is imported.
"""

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, OuterRef
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Guideline, LabelingSettings, Skip, Slot, Vote
from measures.voting import decide


@transaction.atomic
def lease(project: Project, annotator: User) -> Slot:
    """The next free slot, with its comparison's texts; it is this annotator's from now on."""
    mine = Slot.objects.filter(task=OuterRef("task"), annotator=annotator)
    skipped = Skip.objects.filter(task=OuterRef("task"), annotator=annotator)
    slot: Any = (
        Slot.objects.select_for_update(skip_locked=True, of=("self",))
        .filter(~Exists(mine), ~Exists(skipped), project=project, state="free")
        .order_by("shuffle")
        .first()
    )
    slot.state, slot.annotator, slot.left_is = "leased", annotator, "a"
    slot.leased_at = timezone.now()
    slot.leased_until = slot.leased_at + timedelta(seconds=900)
    slot.save()
    return Slot.objects.select_related("task__prompt", "task__response_a", "task__response_b").get(
        pk=slot.pk
    )


@transaction.atomic
def vote(project: Project, annotator: User, slot_id: int, choice: str) -> tuple[Vote, Slot]:
    """Store the vote, decide its comparison, lease the next slot."""
    Membership.objects.get(project=project, user=annotator)
    slot = Slot.objects.select_for_update().get(pk=slot_id, annotator=annotator)
    comparison = Comparison.objects.select_for_update().get(pk=slot.task_id)
    settings = LabelingSettings.objects.get(project=project)
    chosen = {"a": comparison.response_a_id, "b": comparison.response_b_id}
    stored = Vote.objects.create(
        project=project,
        comparison=comparison,
        slot=slot,
        annotator=annotator,
        choice=choice,
        chosen_id=chosen.get(choice),
        left_is=slot.left_is,
        guideline=Guideline.objects.filter(project=project).latest("version"),
        idempotency_key=str(slot.pk),
        cast_at=timezone.now(),
    )
    slot.state, slot.leased_until = "done", None
    slot.save()
    counts = dict(
        Vote.objects.filter(comparison=comparison, is_current=True)
        .values_list("choice")
        .annotate(n=Count("id"))
    )
    decision = decide(counts, services.rule_of(settings))
    Decision.objects.update_or_create(
        comparison=comparison,
        defaults={
            "project": project,
            "outcome": decision.outcome,
            "winner": decision.winner or "",
            "n_a": counts.get("a", 0),
            "n_b": counts.get("b", 0),
            "n_tie": counts.get("tie", 0),
            "n_both_bad": counts.get("both_bad", 0),
            "n_agreeing": decision.n_agreeing,
            "share": decision.share or 0.0,
            "reason": decision.reason[:300],
        },
    )
    comparison.n_votes = decision.n_votes
    comparison.state = "decided" if decision.winner else "open"
    comparison.save()
    return stored, lease(project, annotator)
