"""One action on many comparisons, and the filters that people keep.

All or nothing, in one transaction that locks as a vote does: slots, then comparisons. What the
action cannot be done to is left out and counted. A key stands for one submit: the same key again
answers with what was done and does nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from apps.accounts.models import Membership, Project, User
from apps.accounts.permissions import ADMIN, JUDGES, STAFF
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.transactions import retried
from apps.labeling.models import NOBODY_LEFT, BulkAction, Comparison, SavedView, Slot
from apps.labeling.selectors.finding import Wanted, comparisons_matching
from apps.labeling.services import bulk_statements as sql
from apps.labeling.services.redeciding import decisions_redo
from apps.labeling.services.review import tasks_set_aside

MOST_IN_BULK = 20_000  # comparisons, a few seconds of one's waiting
_MOST_VOTES = 50
HIGHEST_PRIORITY = 1_000.0
_CONTROLS = (Comparison.Stratum.GOLD, Comparison.Stratum.PRACTICE)

# Who may do what.
BULK_ROLES: dict[str, frozenset[str]] = {
    "priority": STAFF,
    "votes": frozenset({ADMIN}),
    "review": JUDGES,
    "drop": frozenset({ADMIN}),
}


@dataclass(frozen=True, slots=True)
class BulkLook:
    """What an action would do: `ids` it changes, and how many it leaves out for which reason."""

    n_selected: int
    ids: list[int]
    left_out: dict[str, int]


def bulk_selected(*, project: Project, wanted: Wanted, only: Sequence[int]) -> list[int]:
    """Ids: `only` these of the project, else all that fit. Errors where they are too many."""
    if only:
        rows = Comparison.objects.filter(project=project, pk__in=only)
    else:
        rows = comparisons_matching(project=project, wanted=wanted)
    ids = list(rows.order_by().values_list("pk", flat=True)[: MOST_IN_BULK + 1])
    if len(ids) > MOST_IN_BULK:
        raise DomainError(
            f"At most {MOST_IN_BULK:,} at once: narrow the list.", field="comparisons"
        )
    if len(ids) < len(set(only)):
        raise Missing("There is no such comparison in this project.", field="comparisons")
    return sorted(ids)


def bulk_look(*, ids: Sequence[int], action: str, value: float | None = None) -> BulkLook:
    why_not = _why_not(action, value)
    rows = Comparison.objects.filter(pk__in=ids).order_by("pk")
    left_out: Counter[str] = Counter()
    changed = []
    for row in rows.values("pk", "state", "stratum", "review_reason", "priority", "overlap"):
        if why := why_not(row):
            left_out[why] += 1
        else:
            changed.append(row["pk"])
    return BulkLook(len(ids), changed, dict(left_out))


def _why_not(action: str, value: float | None) -> Callable[[Mapping[str, Any]], str]:
    def why(row: Mapping[str, Any]) -> str:
        state, reason = row["state"], row["review_reason"]
        if action == "priority":
            return "has this priority already" if row["priority"] == value else ""
        if action == "drop":
            return "is dropped already" if state == "dropped" else ""
        if action == "review":
            if state in ("dropped", "review"):
                return "is dropped" if state == "dropped" else "needs review already"
            return "is a gold or practice pair" if row["stratum"] in _CONTROLS else ""
        if row["stratum"] in _CONTROLS:
            return "is a gold or practice pair"
        if state not in ("open", "contested"):
            return {"decided": "is decided", "dropped": "is dropped"}.get(state, "needs review")
        if reason == NOBODY_LEFT:
            return "has had the vote of everybody who labels"
        if row["overlap"] + int(value or 1) > _MOST_VOTES:
            return f"would have more than {_MOST_VOTES} votes"
        return ""

    return why


@retried
@transaction.atomic
def comparisons_bulk(
    *,
    project: Project,
    action: str,
    ids: Sequence[int],
    by: User,
    key: str,
    value: float | None = None,
    reason: str = "",
    expected: int | None = None,
) -> BulkAction:
    """Do it. value: the priority, or how many more votes; reason: why they go to review or are
    dropped. Errors: `Refused` for other roles; `Conflict` (`changed`) where it would not change as
    many as were `expected`."""
    _check(project, action, by, key, value, reason)
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)  # one submit after another
    done = BulkAction.objects.filter(project=project, key=key).first()
    if done is not None:
        return done
    slots = Slot.objects.select_for_update(no_key=True).filter(task__in=ids)
    list(slots.order_by("pk").values_list("pk"))
    rows = Comparison.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=ids)
    list(rows.order_by("pk").values_list("pk"))
    look = bulk_look(ids=ids, action=action, value=value)
    if expected is not None and len(look.ids) != expected:
        raise Conflict(
            f"This would change {len(look.ids):,} comparisons by now, not {expected:,}. "
            "Look again, then confirm.",
            code="changed",
        )
    match action:
        case "priority":
            _priority_set(look.ids, float(value or 0))
        case "votes":
            _votes_add(project, look.ids, int(value or 0))
        case "review":
            words = f"sent by {by.display_name or by.username}: {reason.strip()}"
            tasks_set_aside(look.ids, Comparison.State.REVIEW, words)
        case _:
            words = f"dropped: {reason.strip() or 'by hand'}"
            tasks_set_aside(look.ids, Comparison.State.DROPPED, words)
    audit_record(
        action=f"comparisons.{action}",
        actor=by,
        project=project,
        subject=f"{len(look.ids)} comparisons",
        details={"value": value, "reason": reason.strip()[:300], "first": look.ids[:20]}
        | {"comparisons": len(look.ids), "left_out": look.left_out},
    )
    return BulkAction.objects.create(
        project=project,
        created_by=by,
        key=key,
        action=action,
        n_selected=len(ids),
        n_changed=len(look.ids),
        left_out=look.left_out,
    )


def _check(
    project: Project, action: str, by: User, key: str, value: float | None, reason: str
) -> None:
    if action not in BULK_ROLES:
        raise DomainError(f"The action is one of {', '.join(BULK_ROLES)}.", field="action")
    bulk_allowed(project=project, action=action, user=by)
    if not key or len(key) > 80 or "\x00" in key:
        raise DomainError("A key of 1 to 80 characters.", field="key")
    if action == "priority" and not (
        value is not None and isfinite(value) and abs(value) <= HIGHEST_PRIORITY
    ):
        raise DomainError(f"A number from 0 to {HIGHEST_PRIORITY:,.0f}.", field="value")
    if action == "votes" and not (value and value == int(value) and 1 <= value <= _MOST_VOTES):
        raise DomainError(f"A whole number from 1 to {_MOST_VOTES}.", field="value")
    if action == "review" and not reason.strip():
        raise DomainError("Say what a person should look at.", field="reason")
    if len(reason) > 250 or "\x00" in reason:
        raise DomainError("At most 250 characters.", field="reason")


def bulk_allowed(*, project: Project, action: str, user: User) -> None:
    role = Membership.objects.filter(project=project, user=user).values_list("role", flat=True)
    if role.first() not in BULK_ROLES[action]:
        wanted = ", ".join(sorted(str(role) for role in BULK_ROLES[action]))
        raise Refused(f"This needs one of the roles {wanted}.")


def _priority_set(ids: Sequence[int], value: float) -> None:
    with connection.cursor() as cursor:  # extra slots stay ahead by as much as they were
        cursor.execute(sql.PRIORITY_SET, {"ids": list(ids), "value": value})
    Comparison.objects.filter(pk__in=ids).update(priority=value, updated_at=timezone.now())


def _votes_add(project: Project, ids: Sequence[int], n: int) -> None:
    Comparison.objects.filter(pk__in=ids).update(
        overlap=F("overlap") + n, updated_at=timezone.now()
    )
    with connection.cursor() as cursor:
        cursor.execute(sql.PLACES_ADDED, {"ids": list(ids), "n": n})
    if ids:
        decisions_redo(project=project, only=list(ids))


# Filters under a name.

_MOST_VIEWS = 100


def view_save(
    *, project: Project, owner: User, name: str, query: str, is_shared: bool = False
) -> SavedView:
    """Under a name of one's own; the same name again replaces what it stood for."""
    name = " ".join(name.split())
    if not name or len(name) > 60 or "\x00" in name:
        raise DomainError("A name of 1 to 60 characters.", field="name")
    if len(query) > 2000:
        raise DomainError("This filter is too long to be kept.", field="query")
    mine = SavedView.objects.filter(project=project, owner=owner)
    if mine.count() >= _MOST_VIEWS and not mine.filter(name=name).exists():
        raise Conflict(f"You have {_MOST_VIEWS} views here; delete one first.", code="too_many")
    view, _ = SavedView.objects.update_or_create(
        project=project,
        owner=owner,
        name=name,
        defaults={"query": query, "is_shared": is_shared},
    )
    return view


def view_delete(*, project: Project, view: int, by: User) -> None:
    """One's own; an admin deletes shared ones too."""
    found = SavedView.objects.filter(project=project, pk=view).first()
    if found is None or (found.owner_id != by.pk and not found.is_shared):
        raise Missing("There is no such view.", field="view")
    if found.owner_id != by.pk:
        if not Membership.objects.filter(project=project, user=by, role=ADMIN).exists():
            raise Refused("Only its owner or an admin deletes a shared view.")
        audit_record(action="view.deleted", actor=by, project=project, subject=found.name)
    found.delete()
