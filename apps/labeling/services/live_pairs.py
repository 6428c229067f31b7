"""Pairs that one person has in front of them as the answers come: written with their vote at once.

A turn of a conversation with two systems is such a pair. Its prompt is all that was said before, so
the prompts of one conversation hold one another, and all of them carry one `group_key`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.accounts.models import Project, User
from apps.common.transactions import prepared_cursor
from apps.labeling.models import Comparison, LabelingSettings, Prompt, Response, Slot, Task
from apps.labeling.services import votes
from apps.labeling.services.answers import AnswerFields, answer_from
from apps.labeling.services.importing import comparisons_import
from apps.labeling.services.notices import work_tell
from apps.labeling.services.projects import labeling_set_up
from apps.labeling.texts import fingerprint
from measures.messages import Messages

_LEASE = timedelta(hours=1)


@transaction.atomic
def live_pair_store(
    *,
    project: Project,
    annotator: User,
    row: Mapping[str, Any],
    batch: str,
    others: int,
    in_datasets: bool,
    left_is: str,
    shown_at: datetime,
    key: str,
    answer: AnswerFields,
) -> int:
    """Write a pair and this person's vote on it; returns the task, of the kind pair, or blind where
    no dataset is to read it.

    row: as in `comparisons_import`, with an `id` and the `group` of the conversation. others: so
    many further people are asked; 0: nobody else ever is, decided or not. left_is: the answer that
    stood left; shown_at: since when both stood there. Raises `RowsRefused` where the pair cannot be
    compared, and what `vote_cast` raises; then nothing is written.
    """
    labeling_set_up(project=project)
    # As an import: one after another, so that a prompt has one group.
    LabelingSettings.objects.select_for_update(no_key=True).get(project=project)
    group = _group_joined(project, row["prompt"], row["group"])
    stratum = Comparison.Stratum.RANDOM if others else Comparison.Stratum.PRIORITY
    wanted = {
        **row,
        "group": group,
        "overlap": 1 + others,
        "origin": Response.Origin.MODEL.value,
        "stratum": stratum.value,
    }
    report = comparisons_import(
        project=project,
        rows=[wanted],
        batch=batch,
        identical_answers="warn",
        blind=not in_datasets,
        tell=False,
    )
    kind = Task.Kind.PAIR if in_datasets else Task.Kind.BLIND
    task = Task.objects.get(project=project, kind=kind, external_id=row["id"])
    if in_datasets and not others:
        # One vote, by whoever wrote the prompt: no further vote is ever asked for.
        Task.objects.filter(pk=task.pk).update(
            slice=Comparison.Slice.TRAINING, inclusion_probability=1.0
        )
    slot = _slot_taken(task, annotator, left_is, shown_at)
    with prepared_cursor() as cursor:
        votes.cast(
            cursor,
            slot=slot,
            annotator=annotator.pk,
            answer=answer_from(**answer),
            key=key,
            source=votes.Vote.Source.PAGE,
            lease_next=False,
        )
    if others and not report.n_review:
        work_tell(project, 1)
    return task.pk


def _slot_taken(task: Task, annotator: User, left_is: str, shown_at: datetime) -> int:
    """Nobody else has seen the pair before this transaction ends, so its first place is free; of a
    pair that is held for review it was withdrawn."""
    slot = Slot.objects.filter(task=task).order_by("position").values_list("pk", flat=True)[0]
    Slot.objects.filter(pk=slot).update(
        state=Slot.State.LEASED,
        annotator=annotator,
        leased_at=shown_at,
        leased_until=shown_at + _LEASE,
        left_is=left_is,
    )
    return slot


def _group_joined(project: Project, prompt: Messages, group: str) -> str:
    """The group of a conversation's next prompt. One that is known already keeps its group, and the
    conversation's earlier prompts join it: what holds the same beginning is never split apart."""
    known = (
        Prompt.objects.filter(project=project, text_hash=fingerprint(prompt))
        .values_list("group_key", flat=True)
        .first()
    )
    if not known or known == group:
        return group
    Prompt.objects.filter(project=project, group_key=group).update(group_key=known)
    return known
