"""Taking a comparison out of the queue and putting it back: dropped, or waiting for a person.

Whatever moves a comparison's state moves its decision with it: a dropped comparison is not
"accepted", and one that waits for a person is not "contested".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from django.db import connection, transaction
from django.db.models import Count, Q

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.labeling.models import (
    Choice,
    Comparison,
    Decision,
    DiscardedVote,
    Guideline,
    LabelingSettings,
    Skip,
    Slot,
    Task,
    Vote,
)
from apps.labeling.services.answers import counts_read
from apps.labeling.services.bulk_statements import NEW_SLOTS, OLD_SLOTS, SET_ASIDE
from apps.labeling.services.deciding import decision_store
from apps.labeling.services.notices import ruling_tell, work_tell
from apps.labeling.services.redeciding import policy_of

# Votes of these slots decide; former ones, hidden repeats and audits do not.
DECIDING = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


@transaction.atomic
def comparison_drop(*, comparison: Comparison, by: User, reason: str = "") -> None:
    """Take a comparison out of the queue; its votes stay, and it can be put back.

    Leases that are out may still be answered; the comparison stays dropped.
    """
    found = comparison_lock(comparison)
    if found.state == Comparison.State.DROPPED:
        raise Conflict("This comparison is dropped already.", code="already_dropped")
    before = found.state
    words = f"dropped: {reason.strip() or 'by hand'}"
    tasks_set_aside([found.pk], Comparison.State.DROPPED, words)
    _record("comparison.dropped", found, by, {"from": before, "reason": reason.strip()[:300]})


def tasks_set_aside(ids: Sequence[int], state: str, reason: str) -> None:
    """Out of the queue, for a person to look at (`reason` says why) or for good. The caller has
    locked the comparisons; their votes stay."""
    dropped = state == Comparison.State.DROPPED
    outcome = Decision.Outcome.DROPPED if dropped else Decision.Outcome.NEEDS_REVIEW
    words = reason if dropped else f"needs review: {reason}"
    with connection.cursor() as cursor:
        cursor.execute(
            SET_ASIDE,
            {
                "ids": list(ids),
                "state": str(state),
                "outcome": str(outcome),
                "reason": reason,
                "words": words,
            },
        )


@transaction.atomic
def comparison_reopen(
    *, comparison: Comparison, by: User, was: Mapping[str, str] | None = None
) -> None:
    """Put back what a person or a rule took from the votes: the votes decide again.

    For comparisons that were dropped, sent to review, adjudicated or made gold. `was` is what
    `comparison_make_gold` answered with, to take that back too. Those who skipped the comparison do
    not get it again; a single further skip sends it to review again.
    """
    found = comparison_lock(comparison)
    decision = Decision.objects.filter(comparison=found).first()
    aside = found.state in (Comparison.State.DROPPED, Comparison.State.REVIEW)
    if not aside and (decision is None or decision.outcome != Decision.Outcome.ADJUDICATED):
        raise Conflict(
            "This comparison is in the queue, or its votes have decided it.", code="not_put_aside"
        )
    before = found.state
    back = {"state": Comparison.State.OPEN, "review_reason": ""}
    if was is not None:
        back |= {name: was[name] for name in ("stratum", "gold", "gold_explanation")}
    Comparison.objects.filter(pk=found.pk).update(**back)
    state = decision_from_votes(found)
    if state == Comparison.State.OPEN:
        _places_back(found)
    _record("comparison.reopened", found, by, {"from": before, "to": str(state)})


@transaction.atomic
def task_drop(*, task: Task, by: User) -> None:
    """Take a task out of the queue; its answers stay, and it can be put back."""
    found = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    if found.state == Task.State.DROPPED:
        raise Conflict("This task is dropped already.", code="already_dropped")
    tasks_set_aside([found.pk], Task.State.DROPPED, "dropped: by hand")
    _record("task.dropped", found, by, {"from": found.state, "to": "dropped"})


@transaction.atomic
def task_reopen(*, task: Task, by: User) -> None:
    """Put a task that is no pair back; those who skipped it do not get it."""
    found = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    if found.state not in (Task.State.DROPPED, Task.State.REVIEW):
        raise Conflict("This task is in the queue or answered already.", code="not_put_aside")
    done = found.n_votes >= found.overlap
    state = Task.State.DECIDED if done else Task.State.OPEN
    Task.objects.filter(pk=found.pk).update(state=state, review_reason="")
    _places_back(found)
    _record("task.reopened", found, by, {"from": found.state, "to": str(state)})


def decision_from_votes(comparison: Comparison) -> str:
    """Decide by the votes alone, whatever a person ruled before; returns the new state.

    The caller holds the comparison's row and has set its state to open.
    """
    Decision.objects.filter(comparison=comparison).update(
        outcome=Decision.Outcome.NEEDS_VOTES, winner=""
    )
    with connection.cursor() as cursor:
        counts = counts_read(cursor, comparison.pk)
        if not any(counts.values()):
            Decision.objects.filter(comparison=comparison).delete()
            return Comparison.State.OPEN
        decision_store(
            cursor,
            project=comparison.project_id,
            comparison=comparison.pk,
            counts=counts,
            overlap=comparison.overlap,
            policy=policy_of(project=comparison.project),
        )
    return Comparison.objects.values_list("state", flat=True).get(pk=comparison.pk)


def decision_set(
    comparison: Comparison, outcome: Decision.Outcome, *, winner: str = "", reason: str
) -> None:
    """Write what a person, or a rule about people, made of a comparison; counts stay the votes'."""
    Decision.objects.update_or_create(
        comparison_id=comparison.pk,
        defaults={"outcome": outcome, "winner": winner, "reason": reason[:300]},
        create_defaults={
            "outcome": outcome,
            "winner": winner,
            "reason": reason[:300],
            "project_id": comparison.project_id,
        },
    )


def slots_withdraw(comparison: int) -> None:
    """No further votes are asked for; leases that are out may still be answered."""
    Slot.objects.filter(task_id=comparison, state=Slot.State.FREE, kind__in=DECIDING).update(
        state=Slot.State.WITHDRAWN
    )


def comparison_lock(comparison: Comparison) -> Comparison:
    return (
        Comparison.objects.select_for_update(no_key=True, of=("self",))
        .select_related("project")
        .get(pk=comparison.pk)
    )


def _places_back(comparison: Task) -> None:
    """Free as many withdrawn slots as the comparison still wants votes."""
    overlap = Task.objects.values_list("overlap", flat=True).get(pk=comparison.pk)
    # Hidden repeats and audit re-votes are no places for votes that decide.
    places = Slot.objects.filter(task=comparison, kind__in=DECIDING)
    live = places.exclude(state=Slot.State.WITHDRAWN).count()
    back = places.filter(state=Slot.State.WITHDRAWN).order_by("position")
    wanted = list(back.values_list("pk", flat=True))[: max(0, overlap - live)]
    Slot.objects.filter(pk__in=wanted).update(state=Slot.State.FREE)


def _record(action: str, comparison: Task, by: User, details: dict[str, str]) -> None:
    audit_record(
        action=action,
        actor=by,
        project=comparison.project,
        subject=comparison.external_id or str(comparison.pk),
        details=details,
    )


# What people make of a comparison that votes did not settle: a ruling, a gold pair, a new round.
#
# Nothing of what annotators did is lost. An adjudicated comparison keeps its votes beside the
# ruling; one that is sent to re-annotation keeps them as an earlier round, which decides nothing
# any more. Who ruled, and why, is for the caller to record in the same transaction.

MOST_AT_ONCE = 5_000
LONGEST_EXPLANATION = 4_000

LeftOut = Literal["newer", "no_votes", "dropped", "gold"]
WHY_LEFT_OUT: dict[LeftOut, str] = {
    "newer": "was judged under that version already",
    "no_votes": "has no votes to judge again",
    "dropped": "is dropped: put it back first",
    "gold": "is a gold or practice pair",
}


@transaction.atomic
def comparison_adjudicate(*, comparison: Comparison, choice: str, reason: str, by: User) -> None:
    """Settle a comparison by judgement; its votes stay and are counted beside it.

    Votes that were still asked for are no longer; leases that are out may still be answered and
    change the counts only. `reason` says why, in words for whoever reads the decision.
    """
    found = _settled(comparison, choice, reason)
    _record("comparison.adjudicated", found, by, {"choice": choice, "reason": reason})
    ruling_tell(found, choice, by)


@transaction.atomic
def comparison_make_gold(
    *, comparison: Comparison, choice: str, explanation: str, by: User
) -> dict[str, str]:
    """Settle a comparison and measure people by it from now on.

    It becomes of stratum gold: where the project deals gold pairs, everybody who has not met it
    gets it once, beside the overlap. Its regular votes stay regular votes. Answers with what it was
    before, for `comparison_reopen`. Errors: `Conflict` where it is a gold pair already, or has a
    label that says otherwise (`labelled_otherwise`): a published label is not overwritten.
    """
    text = explanation.strip()
    if not text:
        raise DomainError(
            "Explain why, for the people who are tested with it.", field="explanation"
        )
    if len(text) > LONGEST_EXPLANATION:
        raise DomainError(f"At most {LONGEST_EXPLANATION:,} characters.", field="explanation")
    locked = comparison_lock(comparison)
    if locked.stratum in (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE):
        raise Conflict("This comparison is a gold pair already.", code="already_gold")
    if locked.gold and locked.gold != choice:
        raise Conflict(
            f"This comparison came with the label “{locked.get_gold_display()}”, which a gold pair "
            "may not contradict. Adjudicate it, or drop it.",
            code="labelled_otherwise",
            field="choice",
        )
    was = {
        "stratum": locked.stratum,
        "gold": locked.gold,
        "gold_explanation": locked.gold_explanation,
    }
    found = _settled(comparison, choice, f"made gold: {text}")
    Comparison.objects.filter(pk=found.pk).update(
        stratum=Comparison.Stratum.GOLD, gold=choice, gold_explanation=text
    )
    _record("comparison.made_gold", found, by, {"choice": choice, "from": was["stratum"]})
    return was


@dataclass(frozen=True, slots=True)
class SentAgain:
    """What was sent to re-annotation: {comparison: {choice: votes that became an earlier round}},
    and how many were left out for which reason. `n_wanted`: new votes asked for at least."""

    votes: dict[int, dict[str, int]] = field(default_factory=dict)
    left_out: dict[LeftOut, int] = field(default_factory=dict)
    n_wanted: int = 0

    @property
    def n_votes(self) -> int:
        return sum(sum(counts.values()) for counts in self.votes.values())


@transaction.atomic
def comparisons_send_again(
    *, project: Project, comparisons: Sequence[int], guideline: Guideline, by: User
) -> SentAgain:
    """Have comparisons judged again under a guideline that is newer than some of their votes.

    Their votes become an earlier round: history that decides nothing. Free slots in the number of
    the project's overlap take their place, ahead of what is drawn at random, and whoever voted or
    skipped before may get the pair again. A lease that is out stays; its answer joins the earlier
    round. Comparisons this cannot be done to are left out and counted.

    Errors: `Conflict` (`guideline_outdated`) unless `guideline` is the project's newest version.
    """
    if len(comparisons) > MOST_AT_ONCE:
        raise DomainError(f"At most {MOST_AT_ONCE:,} at once.", field="comparisons")
    newest = Guideline.objects.filter(project=project).order_by("-version").first()
    if newest is None or newest.pk != guideline.pk:
        raise Conflict(
            "A newer version of the guidelines has come out. Look at it, then send again.",
            code="guideline_outdated",
        )
    wanted = list(comparisons)
    # In the order every vote locks: slots, then comparisons.
    locked = Slot.objects.select_for_update(no_key=True).filter(task__in=wanted)
    list(locked.order_by("pk").values_list("pk"))
    chosen = list(
        Comparison.objects.select_for_update(no_key=True, of=("self",))
        .filter(project=project, pk__in=wanted)
        .order_by("pk")
    )
    if len(chosen) != len(set(wanted)):
        raise Missing("There is no such comparison in this project.")
    votes, left_out = rounds_of(project=project, comparisons=chosen, guideline=guideline)
    base = (LabelingSettings.objects.filter(project=project).first() or LabelingSettings()).overlap
    sent = SentAgain(votes, left_out, base * len(votes))
    if votes:
        skips = _round_begin(list(votes), base, guideline)
        audit_record(
            action="comparisons.sent_again",
            actor=by,
            project=project,
            subject=f"guideline {guideline.version}",
            details={
                "comparisons": len(votes),
                "votes": sent.n_votes,
                "first": sorted(votes)[:20],
                "skips": skips[:20],
            },
        )
        work_tell(project, len(votes), again=True)
    return sent


def rounds_of(
    *, project: Project, comparisons: Sequence[Comparison], guideline: Guideline
) -> tuple[dict[int, dict[str, int]], dict[LeftOut, int]]:
    """Which of these could be sent again, with their votes per choice, and why the others not."""
    ids = [comparison.pk for comparison in comparisons]
    counting = Vote.objects.filter(
        comparison__in=ids, is_current=True, slot__kind__in=DECIDING
    ).order_by()
    counts: dict[int, dict[str, int]] = {}
    for pk, choice, n in counting.values_list("comparison", "choice").annotate(n=Count("pk")):
        counts.setdefault(pk, dict.fromkeys(Choice.values, 0))[choice] = n
    older = set(  # imported votes name no version: they are older than any
        counting.filter(Q(guideline=None) | Q(guideline__version__lt=guideline.version))
        .values_list("comparison", flat=True)
        .distinct()
    )
    votes: dict[int, dict[str, int]] = {}
    left_out: dict[LeftOut, int] = {}
    for comparison in comparisons:
        why = _why_left_out(comparison, counts, older)
        if why is None:
            votes[comparison.pk] = counts[comparison.pk]
        else:
            left_out[why] = left_out.get(why, 0) + 1
    return votes, left_out


def _why_left_out(
    comparison: Comparison, counts: dict[int, dict[str, int]], older: set[int]
) -> LeftOut | None:
    if comparison.state == Comparison.State.DROPPED:
        return "dropped"
    if comparison.stratum in (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE):
        return "gold"
    if comparison.pk not in counts:
        return "no_votes"
    if comparison.pk not in older:
        return "newer"
    return None


def _round_begin(comparisons: list[int], base: int, guideline: Guideline) -> list[str]:
    """The slots of a new round in place of the old ones; returns the reasons of former skips."""
    skips = Skip.objects.filter(task__in=comparisons)
    reasons = list(skips.order_by("pk").values_list("reason", flat=True))
    skips.delete()
    DiscardedVote.objects.filter(vote__comparison__in=comparisons).update(was=Slot.Kind.FORMER)
    values: dict[str, int | list[int]] = {"ids": comparisons, "base": base}
    with connection.cursor() as cursor:
        cursor.execute(OLD_SLOTS, values)
        Comparison.objects.filter(pk__in=comparisons).update(
            state=Comparison.State.OPEN, overlap=base, n_votes=0, review_reason=""
        )
        cursor.execute(NEW_SLOTS, values)
    Decision.objects.filter(comparison__in=comparisons).update(
        outcome=Decision.Outcome.NEEDS_VOTES,
        winner="",
        n_a=0,
        n_b=0,
        n_tie=0,
        n_both_bad=0,
        n_agreeing=0,
        share=0.0,
        posteriors=None,
        reason=f"sent to re-annotation under version {guideline.version} of the guidelines; "
        "no votes yet",
    )
    return reasons


def _settled(comparison: Comparison, choice: str, reason: str) -> Comparison:
    if choice not in Choice.values:
        raise DomainError("Choose A, B, tie or both bad.", field="choice")
    found = comparison_lock(comparison)
    if found.state == Comparison.State.DROPPED:
        raise Conflict("This comparison is dropped; put it back first.", code="already_dropped")
    slots_withdraw(found.pk)
    Comparison.objects.filter(pk=found.pk).update(state=Comparison.State.DECIDED, review_reason="")
    decision_set(found, Decision.Outcome.ADJUDICATED, winner=choice, reason=reason)
    return found


# An annotator's improved version of the better answer, kept as a response written by a person.
