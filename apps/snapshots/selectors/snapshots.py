"""Reading: lists and figures of snapshots, defaults for new ones, texts and their provenance."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import Count, Max, Min, Q, QuerySet
from numpy.typing import NDArray

from apps.accounts.models import Project, User
from apps.accounts.selectors import administered_with
from apps.common.errors import Missing
from apps.common.kept import kept_while_worth
from apps.labeling.models import (
    Annotator,
    Comparison,
    LabelingSettings,
    Prompt,
    Vote,
    whole_prompt,
    whole_response,
)
from apps.snapshots.assembling.assembly import anonymous
from apps.snapshots.assembling.material import person_key
from apps.snapshots.assembling.rows import Texts, source_of
from apps.snapshots.models import READ_ONLY_KINDS, Snapshot, SnapshotRow
from apps.snapshots.recipe import (
    HELD_OUT_SHARE,
    PRIVATE_SPLITS,
    TRAIN,
    RecipeFilters,
    SnapshotRecipe,
    recipe_from_json,
)
from apps.snapshots.selectors.comparing import changed_votes
from measures.splits import fold_of
from measures.voting import CHOICES, decide_many

_BATCH = 5_000


def parts(ids: Iterable[int]) -> Iterator[list[int]]:
    """Lists short enough for one IN clause."""
    left = iter(ids)
    while part := list(islice(left, _BATCH)):
        yield part


def snapshot_list(*, project: Project) -> QuerySet[Snapshot]:
    return Snapshot.objects.filter(project=project).select_related("created_by")


def snapshot_search(*, project: Project, kind: str = "", search: str = "") -> QuerySet[Snapshot]:
    """What no dataset could be called finds nothing; the database takes no NUL."""
    rows = snapshot_list(project=project)
    if "\x00" in kind + search:
        return rows.none()
    # Pairs that a judge was asked about are a judge's, not what anybody trains on.
    rows = rows.filter(kind=kind) if kind else rows.exclude(kind=Snapshot.Kind.PAIRS)
    return rows.filter(Q(name__icontains=search) | Q(pk__startswith=search)) if search else rows


def mixable(*, project: Project, user: User) -> dict[str, list[Snapshot]]:
    """Frozen datasets by kind, of kinds that a mixture could be made of: two of the project's, or
    one of another project where the user administers both. The project's come first."""
    rows = taken_over(project=project, user=user).filter(state=Snapshot.State.FROZEN)
    found: dict[str, list[Snapshot]] = {}
    for one in rows.order_by("-created_at"):
        found.setdefault(one.kind, []).append(one)
    for kind, of in list(found.items()):
        of.sort(key=lambda one: one.project_id != project.pk)
        if len(of) < 2 and of[0].project_id == project.pk:
            del found[kind]
    return found


def taken_over(*, project: Project, user: User) -> QuerySet[Snapshot]:
    """The project's datasets, and those of every other project where the user administers both."""
    others = administered_with(project=project, user=user)
    rows = Snapshot.objects.filter(Q(project=project) | Q(project__in=others))
    return rows.select_related("project")


def snapshot_get(*, project: Project, snapshot_id: str) -> Snapshot:
    """`Missing` when the project has no such snapshot."""
    known = "\x00" not in snapshot_id  # which the database takes in no text
    found = snapshot_list(project=project).filter(pk=snapshot_id).first() if known else None
    if found is None:
        raise Missing("There is no such dataset in this project.", field="snapshot")
    return found


def vote_get(*, project: Project, vote_id: int) -> Vote:
    """`Missing` when the project has no such vote."""
    found = Vote.objects.filter(project=project, pk=vote_id).first()
    if found is None:
        raise Missing("There is no such vote in this project.", field="vote")
    return found


def recipe_default(*, project: Project) -> SnapshotRecipe:
    """The project's own way to decide, without the people an admin has left out, and with people
    held out only where that costs little (`can_hold_out`); everything else with the defaults of
    `SnapshotRecipe`. Every form and program that names nothing else freezes by this."""
    labeling = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    usual = SnapshotRecipe(
        decide_by=str(labeling.decide_by),
        least_votes=labeling.least_votes,
        least_agreeing=labeling.least_agreeing,
        least_share=labeling.least_share,
        least_posterior=labeling.least_posterior,
        filters=RecipeFilters(left_out=people_left_out(project=project)),
    )
    held_out = HELD_OUT_SHARE if can_hold_out(project=project, recipe=usual) else 0.0
    return replace(usual, heldout_annotators=held_out)


MANY_ANNOTATORS = 20  # from which on some can be held out by default …
LITTLE_LOSS = 0.1  # … if that takes under this share of the decided pairs away

# Votes that decide; the few others have an index of their own.
_DECIDING = """
  v.project_id = %(project)s and v.is_current and v.annotator_id <> all(%(left_out)s)
  and not exists (select from labeling_slot s where s.id = v.slot_id
                  and s.project_id = %(project)s
                  and s.kind in ('repeat', 'audit', 'former', 'discard'))"""
_BY_PERSON = f"""
select u.id, u.username, u.is_imported, w.n
from (select v.annotator_id, count(*) as n from labeling_vote v where {_DECIDING}
      group by v.annotator_id) w
join accounts_user u on u.id = w.annotator_id
"""  # noqa: S608
# How many comparisons have so many votes of each choice, with and without the people held out.
_BY_CHOICES = f"""
select {", ".join(f"c{k}, k{k}" for k in range(len(CHOICES)))}, count(*)
from (
  select {
    ", ".join(
        f"count(*) filter (where v.choice = '{choice}') as c{k}, count(*) filter "
        f"(where v.choice = '{choice}' and v.annotator_id <> all(%(held)s)) as k{k}"
        for k, choice in enumerate(CHOICES)
    )
}
  from labeling_vote v where {_DECIDING} group by v.comparison_id
) pairs
group by {", ".join(f"c{k}, k{k}" for k in range(len(CHOICES)))}
"""  # noqa: S608


def can_hold_out(*, project: Project, recipe: SnapshotRecipe) -> bool:
    """Whether a project can spare the votes of HELD_OUT_SHARE of its annotators. Where finding out
    takes long, with ten million votes some seconds, it is kept for a hundred times as long.

    Pairs are counted as the rule counts; where a model decides, as those with votes enough for it.
    """
    asked = json.dumps(recipe.to_json(), sort_keys=True).encode()
    key = f"snapshots:hold-out:{project.pk}:{hashlib.sha256(asked).hexdigest()}"
    return bool(kept_while_worth(key, lambda: _can_hold_out(project, recipe)))


def _can_hold_out(project: Project, recipe: SnapshotRecipe) -> bool:
    values: dict[str, Any] = {"project": project.pk, "left_out": list(recipe.filters.left_out)}
    with connection.cursor() as cursor:
        cursor.execute(_BY_PERSON, values)
        votes = {person_key(*who): (who[0], n) for *who, n in cursor.fetchall()}
        if len(votes) < MANY_ANNOTATORS or anonymous({key: n for key, (_, n) in votes.items()}):
            return False
        values["held"] = [
            pk for key, (pk, _) in votes.items() if fold_of(key, HELD_OUT_SHARE, recipe.seed)
        ]
        cursor.execute(_BY_CHOICES, values)
        found = np.array(cursor.fetchall(), dtype=np.int64).reshape(-1, 2 * len(CHOICES) + 1)
    pairs = found[:, -1]
    decided = _decided(found[:, 0:-1:2], recipe)
    kept = _decided(found[:, 1:-1:2], recipe)
    return bool(pairs[decided & ~kept].sum() < LITTLE_LOSS * pairs[decided].sum())


def _decided(counts: NDArray[np.int64], recipe: SnapshotRecipe) -> NDArray[np.bool_]:
    n = counts.sum(axis=1)
    if recipe.by_model:
        return n >= recipe.least_votes
    return decide_many(counts, recipe.rule, votes_possible=n).winner >= 0


def published_count(*, project: Project) -> int:
    """Comparisons that were imported with a label."""
    return (
        Comparison.objects.filter(project=project)
        .exclude(gold="")
        .exclude(state=Comparison.State.DROPPED)
        .count()
    )


def has_more_than(*, project: Project, votes: int, comparisons: int) -> bool:
    """Whether the project has more of either; no more of them are counted than that takes."""
    cast = Vote.objects.filter(project=project, is_current=True).values("pk")
    pairs = Comparison.objects.filter(project=project).order_by().values("pk")
    return any(
        rows[: most + 1].count() > most for rows, most in ((cast, votes), (pairs, comparisons))
    )


def people_left_out(*, project: Project) -> tuple[int, ...]:
    """Ids of the people whose votes shall enter no new dataset."""
    rows = Annotator.objects.filter(project=project, left_out_at__isnull=False)
    return tuple(rows.order_by("user").values_list("user", flat=True))


def recipe_over_defaults(*, project: Project, data: Mapping[str, Any]) -> SnapshotRecipe:
    """What a program named, over the project's defaults; errors as in `recipe_from_json`."""
    defaults = recipe_default(project=project).to_json()
    merged = defaults | dict(data)
    if isinstance(data.get("filters"), Mapping):
        merged["filters"] = defaults["filters"] | dict(data["filters"])
    return recipe_from_json(merged)


def barred_by(*, project: Project, recipe: SnapshotRecipe) -> frozenset[int]:
    """People with a vote behind a training row of the snapshots that the recipe names."""
    named = recipe.filters.without_annotators_of
    for snapshot_id in named:
        snapshot_get(project=project, snapshot_id=snapshot_id)
    return voters(training_votes(named))


def training_votes(snapshots: Iterable[str]) -> set[int]:
    rows = SnapshotRow.objects.filter(snapshot__in=list(snapshots), split=TRAIN)
    return {vote for votes in rows.values_list("vote_ids", flat=True) for vote in votes}


def shared_training_rows(first: Iterable[str], second: Iterable[str]) -> int:
    """Comparisons in the training rows of both groups of snapshots that a vote in both decided, or
    that either has without votes (a ruling, a published label)."""
    with connection.cursor() as cursor:
        cursor.execute(_SHARED_ROWS, {"first": [*first], "second": [*second], "train": TRAIN})
        return int(cursor.fetchone()[0])


_SHARED_ROWS = """
select count(distinct a.comparison_id)
from snapshots_snapshotrow a
join snapshots_snapshotrow b on b.comparison_id = a.comparison_id
where a.snapshot_id = any(%(first)s) and a.split = %(train)s
  and b.snapshot_id = any(%(second)s) and b.split = %(train)s
  and (a.vote_ids = '[]' or b.vote_ids = '[]'
       or exists (select from jsonb_array_elements(a.vote_ids) vote where b.vote_ids @> vote))
"""


def voters(votes: Iterable[int]) -> frozenset[int]:
    found: set[int] = set()
    for part in parts(votes):
        found.update(Vote.objects.filter(pk__in=part).values_list("annotator_id", flat=True))
    return frozenset(found)


_SOURCE = ("origin", "origin_ref", "metadata")


def texts_of(pairs: Iterable[int]) -> dict[int, Texts]:
    found: dict[int, Texts] = {}
    for part in parts(pairs):
        rows = Comparison.objects.filter(pk__in=part).values_list(
            *("pk", whole_prompt("prompt")),
            *(whole_response(f"response_{side}") for side in "ab"),
            *("external_id", "metadata", "prompt__metadata", "prompt__tools"),
            *(f"response_{side}__{name}" for side in "ab" for name in _SOURCE),
        )
        for pk, prompt, a, b, name, own, shared, tools, *of in rows:
            about = shared if own is None else own
            from_a, from_b = source_of(*of[:3]), source_of(*of[3:])
            found[pk] = Texts(prompt, a, b, from_a, from_b, name, about, tools)
    return found


def votes_cast_at(votes: Iterable[int]) -> dict[int, datetime]:
    found: dict[int, datetime] = {}
    for part in parts(votes):
        found.update(Vote.objects.filter(pk__in=part).values_list("pk", "cast_at"))
    return found


def votes_cast_by(votes: Iterable[int]) -> dict[int, tuple[int, str]]:
    """(person, choice) of each."""
    found: dict[int, tuple[int, str]] = {}
    for part in parts(votes):
        rows = Vote.objects.filter(pk__in=part).values_list("pk", "annotator_id", "choice")
        found.update({pk: (person, choice) for pk, person, choice in rows})
    return found


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the texts come from, under which instructions and when they were judged."""

    licences: list[str]
    sources: list[str]
    languages: list[str]
    guideline_versions: list[int]
    voted_from: str | None
    voted_until: str | None


def provenance(*, pairs: Sequence[int], votes: Sequence[int]) -> Provenance:
    licences: set[str] = set()
    sources: set[str] = set()
    languages: set[str] = set()
    for part in parts(pairs):
        prompts = Prompt.objects.filter(tasks__in=part)
        for licence, source, language in prompts.values_list(
            "licence", "source", "language"
        ).distinct():
            licences.add(licence)
            sources.add(source)
            languages.add(language)
    versions: set[int] = set()
    moments = []
    for part in parts(votes):
        rows = Vote.objects.filter(pk__in=part)
        versions.update(
            rows.exclude(guideline=None).values_list("guideline__version", flat=True).distinct()
        )
        moments.append(rows.aggregate(first=Min("cast_at"), last=Max("cast_at")))
    first = min((m["first"] for m in moments if m["first"]), default=None)
    last = max((m["last"] for m in moments if m["last"]), default=None)
    return Provenance(
        licences=sorted(licences - {""}),
        sources=sorted(sources - {""}),
        languages=sorted(languages - {""}),
        guideline_versions=sorted(versions),
        voted_from=first.isoformat() if first else None,
        voted_until=last.isoformat() if last else None,
    )


def uses_of(snapshot: Snapshot) -> list[Any]:
    """Runs that read it, each with its role: [RunInput], newest run first; without checks and
    probes, which make nothing of it."""
    rows = snapshot.used_by.exclude(run__kind__in=READ_ONLY_KINDS)
    return list(rows.select_related("run").order_by("-run__created_at", "role"))


def comparison_counts(*, project: Project, by: str, most: int = 200) -> list[tuple[str, int]]:
    """(value, comparisons) of a column, largest first: what can be filtered or held out by."""
    rows = (
        Comparison.objects.filter(project=project)
        .values_list(by)
        .annotate(n=Count("pk"))
        .order_by("-n", by)
    )
    return [(value, n) for value, n in rows[:most] if value]


# The rows of one dataset, kept and left out, to look through.


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWanted:
    """Empty filters nothing. `split`: a file's name, or "dropped"; `changed`: only rows with votes
    that were changed since."""

    split: str = ""
    reason: str = ""
    winner: str = ""
    search: str = ""
    changed: bool = False


DROPPED = "dropped"


def rows_of(snapshot: Snapshot, wanted: RowsWanted) -> QuerySet[SnapshotRow]:
    """Rows with comparison and prompt, in order of the comparison's number; none for a text with a
    NUL, which the database cannot hold. Private files are not looked through: an admin downloads
    them, which is written down."""
    rows = SnapshotRow.objects.filter(snapshot=snapshot).select_related("comparison__prompt")
    rows = rows.exclude(split__in=PRIVATE_SPLITS)
    if "\x00" in wanted.split + wanted.reason + wanted.winner + wanted.search:
        return rows.none()
    if wanted.split == DROPPED:
        rows = rows.filter(split="")
    elif wanted.split:
        rows = rows.filter(split=wanted.split)
    if wanted.reason:
        rows = rows.filter(dropped_because=wanted.reason)
    if wanted.winner:
        rows = rows.filter(winner=wanted.winner)
    if wanted.search:
        number = wanted.search.lstrip("#")
        said = Q(comparison__external_id__icontains=wanted.search) | Q(
            comparison__prompt__brief__icontains=wanted.search
        )
        rows = rows.filter(said | Q(comparison=number) if _is_id(number) else said)
    if wanted.changed:
        touched = {one.comparison for one in changed_votes([snapshot])}
        rows = rows.filter(comparison__in=touched).exclude(split="")
    return rows.order_by("comparison_id", "split")


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def drop_reasons(snapshot: Snapshot) -> list[tuple[str, int]]:
    """(reason, rows), most frequent first."""
    rows = SnapshotRow.objects.filter(snapshot=snapshot, split="")
    counted = rows.values_list("dropped_because").annotate(n=Count("pk"))
    return [(reason, n) for reason, n in counted.order_by("-n", "dropped_because")]


def has_rows(snapshot: Snapshot) -> bool:
    """Imported demonstrations and prompts have files, but no comparisons behind them."""
    return SnapshotRow.objects.filter(snapshot=snapshot).exists()


def votes_behind(snapshot: Snapshot) -> int:
    """Distinct votes behind the rows of its files."""
    rows = SnapshotRow.objects.filter(snapshot=snapshot).exclude(split="")
    return len({vote for ids in rows.values_list("vote_ids", flat=True) for vote in ids})


def changed_by_comparison(snapshot: Snapshot, comparisons: Iterable[int]) -> dict[int, int]:
    """{comparison: votes behind its rows that were changed since}, of those that have any."""
    wanted = set(comparisons)
    found: dict[int, set[int]] = {}
    for one in changed_votes([snapshot]):
        if one.comparison in wanted:
            found.setdefault(one.comparison, set()).add(one.vote)
    return {pair: len(votes) for pair, votes in found.items()}
