"""Reading: lists and figures of snapshots, and the material that a new one is assembled from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from apps.accounts.models import Project, User
from apps.common.errors import Missing
from apps.labeling.models import Comparison, LabelingSettings, Prompt, Response, Slot, Vote
from apps.snapshots.gate import VoteFacts
from apps.snapshots.material import Ballot, Material, Pair
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import TRAIN, SnapshotRecipe
from apps.snapshots.recipe_json import recipe_from_json
from apps.snapshots.rows import Texts, argument_key
from apps.snapshots.store import artifact_store
from measures.splits import Overlap, overlap_containment

_BATCH = 5_000
# Hidden repeats would count a person twice; audit re-votes check a decision and do not make it.
_DECIDING_SLOTS = (Slot.Kind.REGULAR, Slot.Kind.GOLD)


def _parts(ids: Iterable[int]) -> Iterator[list[int]]:
    """Lists short enough for one IN clause."""
    left = iter(ids)
    while part := list(islice(left, _BATCH)):
        yield part


def snapshot_list(*, project: Project) -> QuerySet[Snapshot]:
    return Snapshot.objects.filter(project=project).select_related("created_by")


def snapshot_search(*, project: Project, kind: str = "", search: str = "") -> QuerySet[Snapshot]:
    rows = snapshot_list(project=project)
    if kind:
        rows = rows.filter(kind=kind)
    return rows.filter(Q(name__icontains=search) | Q(pk__startswith=search)) if search else rows


def snapshot_get(*, project: Project, snapshot_id: str) -> Snapshot:
    """`Missing` when the project has no such snapshot."""
    found = snapshot_list(project=project).filter(pk=snapshot_id).first()
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
    """The project's own decision rule, everything else with the defaults of `SnapshotRecipe`."""
    labeling = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    return SnapshotRecipe(
        least_votes=labeling.least_votes,
        least_agreeing=labeling.least_agreeing,
        least_share=labeling.least_share,
    )


def recipe_over_defaults(*, project: Project, data: Mapping[str, Any]) -> SnapshotRecipe:
    """What a program named, over the project's defaults; errors as in `recipe_from_json`."""
    return recipe_from_json(recipe_default(project=project).to_json() | dict(data))


def person_key(person: int, username: str, is_imported: bool) -> str:
    """What annotator hold-outs hash: an imported person's id at the source, another's row.

    The former is the same in every workspace that imports the same votes (a username also names
    the project); the latter outlives a change of name.
    """
    if not is_imported:
        return f"user:{person}"
    parts = username.split(".", 2)
    at_source = parts[2] if len(parts) == 3 and parts[0] == "imported" else username
    return f"import:{at_source}"


def material(*, project: Project, recipe: SnapshotRecipe) -> Material:
    """Every comparison and current vote of the project, in order of id."""
    keys = _argument_keys(project)
    rows = (
        Comparison.objects.filter(project=project)
        .order_by("pk")
        .values_list(
            *("pk", "prompt__group_key", "prompt__topic", "batch", "stratum", "state"),
            *("response_a_id", "response_b_id"),
        )
    )
    pairs = tuple(
        Pair(pk, group, topic, batch, stratum, state == "dropped", keys[a], keys[b])
        for pk, group, topic, batch, stratum, state, a, b in rows.iterator(_BATCH)
    )
    return Material(pairs, _ballots(project), barred_by(project=project, recipe=recipe))


def _ballots(project: Project) -> tuple[Ballot, ...]:
    people = _person_keys(Vote.objects.filter(project=project).values("annotator"))
    rows = (
        Vote.objects.filter(project=project, is_current=True, slot__kind__in=_DECIDING_SLOTS)
        .order_by("pk")
        .values_list("pk", "comparison_id", "annotator_id", "choice", "cast_at")
    )
    return tuple(
        Ballot(pk, pair, person, people[person], choice, at)
        for pk, pair, person, choice, at in rows.iterator(_BATCH)
    )


def _person_keys(people: Any) -> dict[int, str]:
    rows = User.objects.filter(pk__in=people).values_list("pk", "username", "is_imported")
    return {pk: person_key(pk, name, imported) for pk, name, imported in rows}


def _argument_keys(project: Project) -> dict[int, str]:
    """Response id → the key of its argument."""
    prompts = dict(Prompt.objects.filter(project=project).values_list("pk", "messages"))
    rows = Response.objects.filter(prompt__project=project).values_list(
        "pk", "prompt_id", "messages"
    )
    return {pk: argument_key(prompts[of], said) for pk, of, said in rows.iterator(_BATCH)}


def barred_by(*, project: Project, recipe: SnapshotRecipe) -> frozenset[int]:
    """People with a vote behind a training row of the snapshots that the recipe names."""
    named = recipe.filters.without_annotators_of
    for snapshot_id in named:
        snapshot_get(project=project, snapshot_id=snapshot_id)
    return voters(training_votes(named))


def training_votes(snapshots: Iterable[str]) -> set[int]:
    rows = SnapshotRow.objects.filter(snapshot__in=list(snapshots), split=TRAIN)
    return {vote for votes in rows.values_list("vote_ids", flat=True) for vote in votes}


def voters(votes: Iterable[int]) -> frozenset[int]:
    found: set[int] = set()
    for part in _parts(votes):
        found.update(Vote.objects.filter(pk__in=part).values_list("annotator_id", flat=True))
    return frozenset(found)


def vote_facts(votes: Iterable[int]) -> dict[int, VoteFacts]:
    """Read anew for the leak gate."""
    facts: dict[int, VoteFacts] = {}
    for part in _parts(votes):
        rows = Vote.objects.filter(pk__in=part).values_list(
            *("pk", "comparison_id", "annotator_id"),
            *("annotator__username", "annotator__is_imported"),
        )
        for pk, pair, person, name, imported in rows:
            facts[pk] = VoteFacts(pair, person, person_key(person, name, imported))
    return facts


def texts_of(pairs: Iterable[int]) -> dict[int, Texts]:
    found: dict[int, Texts] = {}
    for part in _parts(pairs):
        rows = Comparison.objects.filter(pk__in=part).values_list(
            "pk", "prompt__messages", "response_a__messages", "response_b__messages"
        )
        found.update({pk: Texts(prompt, a, b) for pk, prompt, a, b in rows})
    return found


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the texts come from, under which instructions and when they were judged."""

    licences: list[str]
    sources: list[str]
    guideline_versions: list[int]
    voted_from: str | None
    voted_until: str | None


def provenance(*, pairs: Sequence[int], votes: Sequence[int]) -> Provenance:
    licences: set[str] = set()
    sources: set[str] = set()
    for part in _parts(pairs):
        prompts = Prompt.objects.filter(comparisons__in=part).values_list("licence", "source")
        for licence, source in prompts.distinct():
            licences.add(licence)
            sources.add(source)
    versions: set[int] = set()
    moments = []
    for part in _parts(votes):
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
        guideline_versions=sorted(versions),
        voted_from=first.isoformat() if first else None,
        voted_until=last.isoformat() if last else None,
    )


def prompt_texts(snapshot: Snapshot, split: str = TRAIN) -> list[str]:
    """What is asked in each row of a file, turns joined by a line break."""
    rows = artifact_store().lines(f"{snapshot.uri}/{split}.jsonl")
    asked = (row["prompt"] if "prompt" in row else row["messages"][:-1] for row in rows)
    return ["\n".join(message["content"] for message in messages) for messages in asked]


def prompt_overlap(*, sft: Snapshot, rl: Snapshot) -> Overlap:
    """The share of the RL prompts that the SFT data already holds; over 0.3 warns."""
    return overlap_containment(prompt_texts(sft), prompt_texts(rl))


def overlap_with_demonstrations(snapshot: Snapshot) -> tuple[Snapshot, Overlap] | None:
    """For prompts: the newest demonstrations of the project, and how much they already hold."""
    if snapshot.kind != Snapshot.Kind.PROMPTS or snapshot.state != Snapshot.State.FROZEN:
        return None
    newest = (
        snapshot_list(project=snapshot.project)
        .filter(kind=Snapshot.Kind.DEMONSTRATIONS, state=Snapshot.State.FROZEN)
        .first()
    )
    return None if newest is None else (newest, prompt_overlap(sft=newest, rl=snapshot))


def uses_of(snapshot: Snapshot) -> list[Any]:
    """Runs that read it, each with its role: [RunInput], newest run first."""
    return list(snapshot.used_by.select_related("run").order_by("-run__created_at", "role"))


def comparison_counts(*, project: Project, by: str, most: int = 200) -> list[tuple[str, int]]:
    """(value, comparisons) of a column, largest first: what can be filtered or held out by."""
    rows = (
        Comparison.objects.filter(project=project)
        .values_list(by)
        .annotate(n=Count("pk"))
        .order_by("-n", by)
    )
    return [(value, n) for value, n in rows[:most] if value]
