"""Taking a comparison out of the queue and putting it back: dropped, or waiting for a person.

Whatever moves a comparison's state moves its decision with it: a dropped comparison is not
"accepted", and one that waits for a person is not "contested".
"""

from collections.abc import Mapping

from django.db import connection, transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.labeling.models import Comparison, Decision, Slot
from apps.labeling.services.deciding import decision_store
from apps.labeling.services.recording import counts_read
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
    slots_withdraw(found.pk)
    Comparison.objects.filter(pk=found.pk).update(state=Comparison.State.DROPPED)
    decision_set(found, Decision.Outcome.DROPPED, reason=f"dropped: {reason.strip() or 'by hand'}")
    _record("comparison.dropped", found, by, {"from": before, "reason": reason.strip()[:300]})


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
    Slot.objects.filter(comparison_id=comparison, state=Slot.State.FREE, kind__in=DECIDING).update(
        state=Slot.State.WITHDRAWN
    )


def comparison_lock(comparison: Comparison) -> Comparison:
    return (
        Comparison.objects.select_for_update(no_key=True, of=("self",))
        .select_related("project")
        .get(pk=comparison.pk)
    )


def _places_back(comparison: Comparison) -> None:
    """Free as many withdrawn slots as the comparison still wants votes."""
    overlap = Comparison.objects.values_list("overlap", flat=True).get(pk=comparison.pk)
    # Hidden repeats and audit re-votes are no places for votes that decide.
    places = Slot.objects.filter(comparison=comparison, kind__in=DECIDING)
    live = places.exclude(state=Slot.State.WITHDRAWN).count()
    back = places.filter(state=Slot.State.WITHDRAWN).order_by("position")
    wanted = list(back.values_list("pk", flat=True))[: max(0, overlap - live)]
    Slot.objects.filter(pk__in=wanted).update(state=Slot.State.FREE)


def _record(action: str, comparison: Comparison, by: User, details: dict[str, str]) -> None:
    audit_record(
        action=action,
        actor=by,
        project=comparison.project,
        subject=comparison.external_id or str(comparison.pk),
        details=details,
    )
