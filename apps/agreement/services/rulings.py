"""Ruling on disputes: what is done to the comparison, and the ruling that says who did it and why.

Labeling moves the comparison; the ruling is written in the same transaction. Everybody rules on
what they have seen: `seen` is the newest ruling of the page they acted from (0 for none), and where
somebody else has ruled since, nothing is done and the ruling is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Count

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.agreement.models import Ruling, VotesShown
from apps.agreement.selectors.disputes import guideline_of, ruling_newest, votes_hidden
from apps.common.errors import Conflict, DomainError
from apps.common.transactions import retried
from apps.labeling import services as labeling
from apps.labeling.models import Choice, Comparison, Slot, Vote

LONGEST_NOTE = 1_000
_DECIDING = (Slot.Kind.REGULAR, Slot.Kind.GOLD)
WAS = "was"  # key of `votes_before` under which a gold ruling keeps what it replaced


@retried
@transaction.atomic
def dispute_adjudicate(
    *, comparison: Comparison, choice: str, cause: str, note: str, by: User, seen: int
) -> Ruling:
    """Settle a dispute: the choice becomes the decision, and the votes stand beside it."""
    given = _given(Ruling.Action.ADJUDICATED, cause=cause, note=note, choice=choice)
    reason = f"adjudicated, {given['words']}" + (f": {given['note']}" if given["note"] else "")

    def act() -> None:
        labeling.comparison_adjudicate(comparison=comparison, choice=choice, reason=reason, by=by)

    return _ruled(comparison, by, seen, given, act)


@retried
@transaction.atomic
def dispute_drop(*, comparison: Comparison, cause: str, note: str, by: User, seen: int) -> Ruling:
    """Take a comparison out of the project's data; it can be put back."""
    given = _given(Ruling.Action.DROPPED, cause=cause, note=note, cause_needed=False)
    reason = ": ".join(part for part in (given["words"], given["note"]) if part)

    def act() -> None:
        labeling.comparison_drop(comparison=comparison, by=by, reason=reason)

    return _ruled(comparison, by, seen, given, act)


@retried
@transaction.atomic
def dispute_make_gold(
    *, comparison: Comparison, choice: str, cause: str, note: str, by: User, seen: int
) -> Ruling:
    """Settle a dispute and measure people by it from now on; the note is its explanation."""
    given = _given(Ruling.Action.MADE_GOLD, cause=cause, note=note, choice=choice)
    if not given["note"]:
        raise DomainError("Explain why, for the people who are tested with it.", field="note")

    def act() -> dict[str, Any]:
        was = labeling.comparison_make_gold(
            comparison=comparison, choice=choice, explanation=given["note"], by=by
        )
        return {WAS: was}

    return _ruled(comparison, by, seen, given, act)


@retried
@transaction.atomic
def dispute_reopen(*, comparison: Comparison, note: str, by: User, seen: int) -> Ruling:
    """Put a comparison back where its votes say it belongs, whatever was ruled before."""
    given = _given(Ruling.Action.REOPENED, cause="", note=note, cause_needed=False)
    last = Ruling.objects.filter(comparison=comparison).order_by("-id").first()
    was = last.votes_before.get(WAS) if last and last.action == Ruling.Action.MADE_GOLD else None

    def act() -> None:
        labeling.comparison_reopen(comparison=comparison, by=by, was=was)

    return _ruled(comparison, by, seen, given, act)


@retried
@transaction.atomic
def dispute_send_again(
    *, comparison: Comparison, cause: str, note: str, by: User, seen: int, version: int
) -> Ruling:
    """Have one comparison judged again under guideline `version`, which must be the newest."""
    given = _given(Ruling.Action.SENT_AGAIN, cause=cause, note=note)
    guideline = guideline_of(project=comparison.project, version=version)

    def act() -> dict[str, Any]:
        sent = labeling.comparisons_send_again(
            project=comparison.project, comparisons=[comparison.pk], guideline=guideline, by=by
        )
        if not sent.votes:
            why = next(iter(sent.left_out))
            raise Conflict(
                f"This comparison {labeling.WHY_LEFT_OUT[why]}, so it was not sent again.",
                code=f"not_sent_{why}",
            )
        return dict(sent.votes[comparison.pk])

    return _ruled(comparison, by, seen, given | {"guideline": guideline}, act)


def dispute_rule(
    *,
    comparison: Comparison,
    action: str,
    note: str,
    by: User,
    seen: int,
    choice: str = "",
    cause: str = "",
    version: int | None = None,
) -> Ruling:
    """One of the acts above, by its name in `forms.ACTIONS`."""
    common: dict[str, Any] = {"comparison": comparison, "note": note, "by": by, "seen": seen}
    match action:
        case "adjudicate":
            return dispute_adjudicate(choice=choice, cause=cause, **common)
        case "make_gold":
            return dispute_make_gold(choice=choice, cause=cause, **common)
        case "send_again":
            return dispute_send_again(version=version or 0, cause=cause, **common)
        case "drop":
            return dispute_drop(cause=cause, **common)
        case _:
            return dispute_reopen(**common)


@transaction.atomic
def dispute_votes_show(*, comparison: Comparison, by: User) -> None:
    """Have the votes shown before ruling; it is recorded, and the ruling says so."""
    _, is_new = VotesShown.objects.get_or_create(comparison=comparison, user=by)
    if is_new:
        audit_record(
            action="dispute.votes_shown",
            actor=by,
            project=comparison.project,
            subject=comparison.external_id or str(comparison.pk),
        )


@dataclass(frozen=True, slots=True)
class Expected:
    """The numbers somebody confirmed before sending many comparisons again."""

    comparisons: int
    votes: int


@retried
@transaction.atomic
def disputes_send_again(
    *,
    project: Project,
    comparisons: Sequence[int],
    cause: str,
    note: str,
    by: User,
    version: int,
    expected: Expected,
) -> labeling.SentAgain:
    """Have many comparisons judged again, exactly as many as were confirmed.

    Where votes or rulings have changed the numbers since they were shown, nothing is done and the
    person confirms the new ones (`Conflict`, code `numbers_changed`).
    """
    given = _given(Ruling.Action.SENT_AGAIN, cause=cause, note=note)
    guideline = guideline_of(project=project, version=version)
    sent = labeling.comparisons_send_again(
        project=project, comparisons=comparisons, guideline=guideline, by=by
    )
    if (len(sent.votes), sent.n_votes) != (expected.comparisons, expected.votes):
        raise Conflict(
            f"Meanwhile it would be {len(sent.votes):,} comparisons with {sent.n_votes:,} votes, "
            f"not {expected.comparisons:,} with {expected.votes:,}. Nothing was sent; look at the "
            "new numbers.",
            code="numbers_changed",
        )
    Ruling.objects.bulk_create(
        Ruling(
            project=project,
            comparison_id=pk,
            action=Ruling.Action.SENT_AGAIN,
            cause=given["cause"],
            note=given["note"],
            guideline=guideline,
            votes_before=counts,
            by=by,
        )
        for pk, counts in sent.votes.items()
    )
    return sent


def _given(
    action: Ruling.Action, *, cause: str, note: str, choice: str = "", cause_needed: bool = True
) -> dict[str, Any]:
    """What was said, checked."""
    if cause and cause not in Ruling.Cause.values:
        raise DomainError("Choose one of the causes.", field="cause")
    if cause_needed and not cause:
        raise DomainError("Choose what caused the dispute.", field="cause")
    text = note.strip()
    if len(text) > LONGEST_NOTE:
        raise DomainError(f"At most {LONGEST_NOTE:,} characters.", field="note")
    if "\x00" in text:
        raise DomainError("No NUL characters.", field="note")
    wants_choice = action in (Ruling.Action.ADJUDICATED, Ruling.Action.MADE_GOLD)
    if wants_choice and choice not in Choice.values:
        raise DomainError("Choose A, B, tie or both bad.", field="choice")
    words = str(Ruling.Cause(cause).label) if cause else ""
    return {"action": action, "cause": cause, "note": text, "choice": choice, "words": words}


def _ruled(
    comparison: Comparison,
    by: User,
    seen: int,
    given: Mapping[str, Any],
    act: Callable[[], dict[str, Any] | None],
) -> Ruling:
    """Act and write the ruling, unless somebody has ruled since.

    The act locks the comparison, so the votes are read as they stay until the end. One that takes
    votes away answers with what they were.
    """
    _unchanged_since(comparison, seen, by)
    saw = not votes_hidden(comparison=comparison, user=by)
    found = act() or {}
    _unchanged_since(comparison, seen, by)  # now that nobody else can
    return Ruling.objects.create(
        project_id=comparison.project_id,
        comparison=comparison,
        action=given["action"],
        cause=given["cause"],
        choice=given["choice"],
        note=given["note"],
        guideline=given.get("guideline"),
        votes_before=_votes_of(comparison) | dict(found),
        saw_votes=saw,
        by=by,
    )


def _unchanged_since(comparison: Comparison, seen: int, by: User) -> None:
    newest = ruling_newest(comparison=comparison)
    if newest is None or newest.pk == seen:
        return
    who = "You have" if newest.by_id == by.pk else f"{newest.by or 'Somebody'} has"
    choice = f" as “{newest.get_choice_display()}”" if newest.choice else ""
    raise Conflict(
        f"{who} ruled on this dispute since you opened it: {newest.get_action_display()}{choice}. "
        "Your ruling was not taken; look at it as it is now.",
        code="ruled_meanwhile",
    )


def _votes_of(comparison: Comparison) -> dict[str, int]:
    counted = (
        Vote.objects.filter(comparison=comparison, is_current=True, slot__kind__in=_DECIDING)
        .values_list("choice")
        .annotate(n=Count("pk"))
    )
    return dict.fromkeys(Choice.values, 0) | dict(counted)
