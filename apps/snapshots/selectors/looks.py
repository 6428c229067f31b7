"""How often the splits of a dataset were looked at, and how often they may be.

A look is one run's, however many attempts it took, or one reading by a person. Checks and probes
ask a model that was chosen before, the same things again and again, and a list of rows shows no
result of a model: both are recorded and are no looks.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import Project, User
from apps.accounts.permissions import STAFF
from apps.snapshots.models import (
    READ_ONLY_KINDS,
    Snapshot,
    SplitAccess,
    SplitBudget,
    SplitSignOff,
)
from apps.snapshots.recipe import DEFAULT_LOOKS, SMOKE, TRAIN, in_order
from measures.looks import look_alpha

PREVIEW = "rows"  # what a person does who sees on a page which comparisons are in a split
NO_LOOKS = (*READ_ONLY_KINDS, PREVIEW)  # purposes that are recorded and not counted
LEARNED = frozenset({TRAIN, SMOKE})  # nothing is held out there, so looking costs nothing


@dataclass(frozen=True, slots=True)
class SplitLooks:
    """Looks at a held-out split: `used` of `budget` (None: any number); `alpha` is what the next
    one may be tested at. `signed`: the next look's sign-offs, beyond the budget."""

    split: str
    rows: int
    used: int
    budget: int | None
    signed: tuple[SplitSignOff, ...] = ()

    @property
    def next_look(self) -> int:
        return self.used + 1

    @property
    def alpha(self) -> float:
        return look_alpha(self.next_look)

    @property
    def needs_second_person(self) -> bool:
        """Whether the next look does."""
        return self.budget is not None and self.used >= self.budget


@dataclass(frozen=True, slots=True)
class RunLook:
    """A run's own look at a split: number `look` of `budget`, to be tested at `alpha`."""

    snapshot: Snapshot
    split: str
    look: int
    budget: int | None
    items: int
    at: datetime

    @property
    def alpha(self) -> float:
        return look_alpha(self.look)


def held_out(snapshot: Snapshot) -> list[str]:
    """Its splits that are looked at and not learned from, the private ones included."""
    rows = in_order(snapshot.counts.get("rows", {}))
    return [name for name, count in rows.items() if name not in LEARNED and count]


def looks_taken(snapshot: Snapshot, split: str, *, until: int | None = None) -> int:
    """How many looks at a split there were; `until`: those that began with this row or before."""
    rows = SplitAccess.objects.filter(snapshot=snapshot, split=split)
    rows = rows.exclude(purpose__in=NO_LOOKS)
    if until is not None:
        rows = rows.filter(pk__lte=until)
    by_people = rows.filter(run="").count()
    return by_people + rows.exclude(run="").order_by().values("run").distinct().count()


def budgets_of(snapshot: Snapshot, splits: Collection[str]) -> dict[str, int | None]:
    """Of each of these splits; None for any number."""
    if not splits:
        return {}
    rows = SplitBudget.objects.filter(snapshot=snapshot, split__in=splits)
    known = dict(rows.values_list("split", "looks"))
    return {split: known.get(split, DEFAULT_LOOKS.get(split)) for split in splits}


def looks_of(snapshot: Snapshot) -> list[SplitLooks]:
    """Of each held-out split."""
    found = []
    splits = held_out(snapshot)
    budgets = budgets_of(snapshot, splits)
    for split in splits:
        used = looks_taken(snapshot, split)
        signed = SplitSignOff.objects.filter(snapshot=snapshot, split=split, look=used + 1)
        found.append(
            SplitLooks(
                split,
                snapshot.counts["rows"][split],
                used,
                budgets[split],
                tuple(signed.select_related("person", "signed_by")),
            )
        )
    return found


def accesses_of(snapshot: Snapshot, *, most: int) -> list[SplitAccess]:
    """The newest readings of its held-out splits."""
    rows = SplitAccess.objects.filter(snapshot=snapshot).exclude(split__in=LEARNED)
    return list(rows.order_by("-pk")[:most])


def looks_of_run(run_id: str) -> list[RunLook]:
    """Which held-out splits a run read, and which look at each that was."""
    rows = SplitAccess.objects.filter(run=run_id).exclude(split__in=LEARNED)
    rows = rows.exclude(purpose__in=NO_LOOKS).order_by("pk")
    firsts: dict[tuple[str, str], SplitAccess] = {}
    for row in rows:
        firsts.setdefault((row.snapshot_id, row.split), row)
    known = Snapshot.objects.in_bulk({key for key, _ in firsts})
    found = []
    for (key, split), row in firsts.items():
        if key in known:
            look = looks_taken(known[key], split, until=row.pk)
            budget = budgets_of(known[key], [split])[split]
            found.append(RunLook(known[key], split, look, budget, row.n_items, row.at))
    return found


def staff_of(project: Project, *, without: User) -> list[User]:
    """Whom somebody can sign for: engineers and admins, but themselves."""
    members = project.memberships.filter(role__in=STAFF).exclude(user=without)
    return [one.user for one in members.select_related("user").order_by("user__username")]
