"""What an admin does with a comparison that annotators passed on: put it back, or drop it."""

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.labeling.models import Comparison, Decision, Slot

_STATE_OF = {
    Decision.Outcome.ACCEPTED: Comparison.State.DECIDED,
    Decision.Outcome.ADJUDICATED: Comparison.State.DECIDED,
    Decision.Outcome.CONTESTED: Comparison.State.CONTESTED,
}


@transaction.atomic
def comparison_drop(*, comparison: Comparison, by: User, reason: str = "") -> None:
    """Take a comparison out of the queue; its votes stay, and it can be put back.

    Leases that are out may still be answered; the comparison stays dropped.
    """
    found = _locked(comparison)
    if found.state == Comparison.State.DROPPED:
        raise Conflict("This comparison is dropped already.", code="already_dropped")
    before = found.state
    Slot.objects.filter(comparison=found, state=Slot.State.FREE).update(state=Slot.State.WITHDRAWN)
    Comparison.objects.filter(pk=found.pk).update(state=Comparison.State.DROPPED)
    _record("comparison.dropped", found, by, {"from": before, "reason": reason.strip()[:300]})


@transaction.atomic
def comparison_reopen(*, comparison: Comparison, by: User) -> None:
    """Put a comparison that was dropped or sent to review back where its votes say it belongs.

    Those who skipped it do not get it again; a single further skip sends it to review again.
    """
    found = _locked(comparison)
    if found.state not in (Comparison.State.DROPPED, Comparison.State.REVIEW):
        raise Conflict("This comparison is in the queue or decided already.", code="not_put_aside")
    before = found.state
    decision = Decision.objects.filter(comparison=found).first()
    state = _STATE_OF.get(decision.outcome if decision else "", Comparison.State.OPEN)
    # Hidden repeats and audit re-votes are no places for votes that decide.
    places = Slot.objects.filter(comparison=found, kind__in=(Slot.Kind.REGULAR, Slot.Kind.GOLD))
    live = places.exclude(state=Slot.State.WITHDRAWN).count()
    if state == Comparison.State.OPEN:
        back = places.filter(state=Slot.State.WITHDRAWN)
        wanted = list(back.order_by("position").values_list("pk", flat=True))
        again = wanted[: max(0, found.overlap - live)]
        Slot.objects.filter(pk__in=again).update(state=Slot.State.FREE)
    Comparison.objects.filter(pk=found.pk).update(state=state, review_reason="")
    _record("comparison.reopened", found, by, {"from": before, "to": str(state)})


def _locked(comparison: Comparison) -> Comparison:
    return (
        Comparison.objects.select_for_update(no_key=True, of=("self",))
        .select_related("project")
        .get(pk=comparison.pk)
    )


def _record(action: str, comparison: Comparison, by: User, details: dict[str, str]) -> None:
    audit_record(
        action=action,
        actor=by,
        project=comparison.project,
        subject=comparison.external_id or str(comparison.pk),
        details=details,
    )
