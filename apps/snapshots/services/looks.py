"""Writing down who read a split, and asking for a second person beyond its budget."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import Membership, User
from apps.accounts.permissions import STAFF
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing
from apps.snapshots.models import Snapshot, SplitAccess, SplitBudget, SplitSignOff
from apps.snapshots.recipe import PRIVATE_SPLITS
from apps.snapshots.selectors.looks import LEARNED, PREVIEW, budgets_of, held_out, looks_taken

NEEDED = "look_needs_second_person"
PRIVATE = "private"  # the purpose of a download of a private split
MOST_LOOKS = 1000
_LONGEST_REASON = 500


def split_access_record(
    *,
    snapshot: Snapshot,
    split: str,
    purpose: str,
    n_items: int,
    person: User | None = None,
    run: str = "",
    attempt: int | None = None,
    seq: int | None = None,
    protocol_sha256: str = "",
    at: datetime | None = None,
) -> SplitAccess:
    """A row for a file that was read, in the reader's transaction. The same event of a run gives
    the row it gave before."""
    about = {
        "project_id": snapshot.project_id,
        "snapshot": snapshot,
        "split": split,
        "purpose": purpose,
        "person": person,
        "person_name": person.username if person else "",
        "protocol_sha256": protocol_sha256,
        "n_items": n_items,
        "at": at or timezone.now(),
    }
    if not run:
        row, is_new = SplitAccess.objects.create(**about), purpose != PRIVATE
    else:
        row, is_new = SplitAccess.objects.get_or_create(
            run=run, attempt=attempt, seq=seq, defaults=about
        )
    if is_new and split in PRIVATE_SPLITS:  # a download is recorded where it begins
        audit_record(
            action="snapshot.split_read",
            actor=person,
            project=snapshot.project,
            subject=snapshot.pk,
            details={"split": split, "purpose": purpose, "run": run},
        )
    return row


def splits_read(
    *, snapshot: Snapshot, splits: Iterable[str], purpose: str, person: User | None
) -> None:
    """A person reads these splits now: checks the budgets of the held-out ones and writes the rows.
    Raises `Conflict` (`look_needs_second_person`); then nothing was written. Whoever reads without
    a person (a test, a command of the machine's owner) leaves no row."""
    wanted = [split for split in splits if split not in LEARNED]
    if person is None or not wanted:
        return
    with transaction.atomic():
        look_check(snapshot=snapshot, person=person, splits=wanted)
        for split in wanted:
            split_access_record(
                snapshot=snapshot,
                split=split,
                purpose=purpose,
                n_items=snapshot.counts.get("rows", {}).get(split, 0),
                person=person,
            )


def rows_previewed(*, snapshot: Snapshot, splits: Iterable[str], person: User) -> None:
    """A page showed `person` these rows, each by its split: a reading of each held-out one, and no
    look, since no result of a model is seen."""
    shown = Counter(split for split in splits if split and split not in LEARNED)
    with transaction.atomic():
        for split, n_items in sorted(shown.items()):
            split_access_record(
                snapshot=snapshot, split=split, purpose=PREVIEW, n_items=n_items, person=person
            )


def look_check(
    *,
    snapshot: Snapshot,
    person: User | None,
    splits: Collection[str],
    pending: int = 0,
    field: str | None = None,
) -> None:
    """Raises `Conflict` (`look_needs_second_person`) where the next look at one of these splits is
    beyond its budget and nobody else has signed it for this person. `pending`: looks that have been
    granted and not taken yet. Call it inside a transaction: it locks the dataset's budgets until
    the end, so that two looks at once are counted one after the other."""
    numbered = budgets_of(snapshot, splits)
    if all(budget is None for budget in numbered.values()):
        return
    Snapshot.objects.select_for_update(of=("self",)).get(pk=snapshot.pk)
    for split, budget in numbered.items():
        if budget is None:
            continue
        look = looks_taken(snapshot, split) + pending + 1
        signed = SplitSignOff.objects.filter(
            snapshot=snapshot, split=split, look=look, person=person
        )
        if look > budget and (person is None or not signed.exists()):
            raise Conflict(
                f"This would be look {look} at {split} of '{snapshot.name}', and {budget} "
                f"{'is' if budget == 1 else 'are'} free. Ask somebody else to sign it, with a "
                "reason, on the page of the dataset's looks.",
                code=NEEDED,
                field=field,
                details={"snapshot": snapshot.pk, "split": split, "look": look, "budget": budget},
            )


def look_sign(
    *, snapshot: Snapshot, split: str, look: int, person: User | None, by: User, reason: str
) -> SplitSignOff:
    """`by` lets `person` take the look number `look`. Raises `DomainError` where they are the same,
    there is no reason, or that look was taken already; somebody who is not there (None) is refused
    as somebody who may not look."""
    reason = reason.strip()
    _require_held_out(snapshot, split)
    if person == by:
        raise DomainError(
            "Somebody else must sign it, and not whoever looks.", code="same_person", field="person"
        )
    members = Membership.objects.filter(project=snapshot.project, role__in=STAFF)
    if person is None or not members.filter(user=person).exists():
        raise DomainError(
            "Only an engineer or an admin of this project looks at its splits.",
            code="not_staff",
            field="person",
        )
    if not reason or len(reason) > _LONGEST_REASON:
        raise DomainError(
            f"Give a reason of 1 to {_LONGEST_REASON} characters.",
            code="bad_reason",
            field="reason",
        )
    if look <= (taken := looks_taken(snapshot, split)):
        raise Conflict(
            f"Look {look} at {split} was taken already; the next one is {taken + 1}.",
            code="look_taken",
            field="look",
        )
    try:
        with transaction.atomic():
            row = SplitSignOff.objects.create(
                snapshot=snapshot,
                split=split,
                look=look,
                person=person,
                signed_by=by,
                reason=reason,
            )
            audit_record(
                action="snapshot.look_signed",
                actor=by,
                project=snapshot.project,
                subject=snapshot.pk,
                details={"split": split, "look": look, "for": person, "reason": reason},
            )
    except IntegrityError as error:
        raise Conflict(
            f"Look {look} at {split} is signed for them already.", code="signed_already"
        ) from error
    return row


def look_budget_set(*, snapshot: Snapshot, split: str, looks: int | None, by: User) -> SplitBudget:
    """How many looks at a split are free from now on; None for any number."""
    _require_held_out(snapshot, split)
    if looks is not None and not 0 <= looks <= MOST_LOOKS:
        raise DomainError(
            f"A budget is 0 to {MOST_LOOKS:,} looks, or empty for any number.",
            code="bad_budget",
            field="looks",
        )
    with transaction.atomic():
        row, _ = SplitBudget.objects.update_or_create(
            snapshot=snapshot, split=split, defaults={"looks": looks, "set_by": by}
        )
        audit_record(
            action="snapshot.looks_limited",
            actor=by,
            project=snapshot.project,
            subject=snapshot.pk,
            details={"split": split, "looks": looks},
        )
    return row


def _require_held_out(snapshot: Snapshot, split: str) -> None:
    if split not in held_out(snapshot):
        raise Missing(f"This dataset has no held-out split '{split[:40]}'.", field="split")
