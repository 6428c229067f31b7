"""Datasets of what people wrote or judged beside their choices: improved answers of votes, accepted
texts of writing work, and the steps of runs that they judged.

A row is the prompt and the answer, or a written prompt alone, with where it came from and its
author as a name of this dataset; or a run with its steps, as most people who judged it see them.
Rows are split by group with the hash and seed of preference datasets, so that a prompt that is
tested on is not learned from here either; prompts of the smoke split and of the private ones are
left out and counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from apps.accounts.models import Project
from apps.labeling.models import (
    Comparison,
    Slot,
    Vote,
    WritingBatch,
    whole_prompt,
    whole_response,
)
from apps.labeling.selectors import pool_of
from apps.labeling.selectors.steps import JudgedRun, judged_answers, judged_runs
from apps.labeling.selectors.writing import texts_accepted
from apps.labeling.texts import loose_key
from apps.snapshots.assembling.rows import Row, demonstration_row, prompt_row, stepwise_row
from apps.snapshots.models import IMPROVED, Snapshot, SnapshotRow, SnapshotText
from apps.snapshots.recipe import DEV, PUBLIC_TEST, TRAIN, SnapshotRecipe, in_order
from apps.snapshots.storage import NameOf, dataset_key, names_under
from measures.messages import Messages, said
from measures.splits import split_of

_BATCH = 5_000
_SPLITS = (TRAIN, DEV, PUBLIC_TEST)
HUMAN = "human"  # the source of a row that a person wrote


@dataclass(frozen=True, slots=True)
class Improved:
    """What a person wrote: with a current vote that came with an improved answer, or (`text`) as a
    version of a written text. The answer of a written prompt is empty."""

    vote: int  # or the version's id
    comparison: int  # 0 for texts
    person: int
    prompt: Messages
    answer: Messages
    group: str
    source: str
    licence: str
    external_id: str = ""
    own: Mapping[str, Any] | None = None  # the comparison's metadata, then its prompt's
    shared: Mapping[str, Any] | None = None
    text: "TextOrigin | None" = None
    run: JudgedRun | None = None  # the vote judged its steps; the answer is its turns

    @property
    def place(self) -> tuple[Any, ...]:
        """What is the same of two that make one row."""
        if self.run is not None:
            return self.comparison, self.run.side
        *before, last = self.answer or [{"content": ""}]
        return repr([*self.prompt, *before]), last["content"]


@dataclass(frozen=True, slots=True)
class TextOrigin:
    """Of a written text: its id and version, the author of the version that was edited into this
    one, whether somebody reviewed it, its batch, and the licence of its prompt."""

    text: int
    version: int
    edited: int | None
    reviewed: bool
    batch: str
    prompt_licence: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from, as a recipe names it: what it makes, how a card is called, and the
    words where there are none (about `field`)."""

    kind: str
    title: str
    none: str
    field: str
    read: Callable[[Project, Sequence[str]], Iterator[Improved]]


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """Rows by split, what is behind each row by (split, ordinal), what was left out, and the key of
    the names that stand for people."""

    files: Mapping[str, list[Row]]
    votes: Mapping[tuple[str, int], list[Improved]]
    dropped: Mapping[str, int]
    pseudonyms: str

    @property
    def people(self) -> frozenset[int]:
        every = [one for votes in self.votes.values() for one in votes]
        edited = {one.text.edited for one in every if one.text and one.text.edited}
        return frozenset({one.person for one in every} | edited)

    @property
    def counts(self) -> dict[str, Any]:
        groups = {name: len({row["group"] for row in rows}) for name, rows in self.files.items()}
        texts = [one.text for votes in self.votes.values() for one in votes if one.text]
        written = {
            "written": {
                "texts": len(texts),
                "reviewed": sum(text.reviewed for text in texts),
                "edited": sum(text.edited is not None for text in texts),
                "batches": dict(sorted(Counter(text.batch for text in texts).items())),
            }
        }
        return {
            "rows": {name: len(rows) for name, rows in self.files.items()},
            "groups": groups,
            "annotators": len(self.people),
            "dropped": dict(self.dropped),
            "warnings": [],
        } | (written if texts else {})

    def about(self, project: Project) -> dict[str, Any]:
        """What the card says besides: licences and sources; of texts, who wrote and what they
        agreed to."""
        rows = [row for file in self.files.values() for row in file]
        texts = [one.text for votes in self.votes.values() for one in votes if one.text]
        licences = {row["licence"] for row in rows} | {text.prompt_licence for text in texts}
        pool = {"pool": pool_of(project=project, voters=self.people)} if texts else {}
        return {
            "licences": sorted(licences - {""}),
            "sources": sorted({row["source"] for row in rows} - {""}),
        } | pool


def _improved(project: Project) -> QuerySet[Vote]:
    """Votes that stand, on comparisons that were not dropped."""
    return (
        Vote.objects.filter(project=project, is_current=True, improvement__isnull=False)
        .exclude(comparison__state=Comparison.State.DROPPED)
        .exclude(slot__kind=Slot.Kind.DISCARD)
    )


def improved_answers(project: Project, _batches: Sequence[str] = ()) -> Iterator[Improved]:
    """In order of the votes."""
    rows = (
        _improved(project)
        .order_by("pk")
        .values_list(
            *("pk", "comparison_id", "annotator_id"),
            *(whole_prompt("comparison__prompt"), whole_response("improvement")),
            *("comparison__prompt__group_key", "comparison__prompt__source"),
            "comparison__prompt__licence",
            *("comparison__external_id", "comparison__metadata", "comparison__prompt__metadata"),
        )
    )
    for row in rows.iterator(_BATCH):
        yield Improved(*row)


def improved_count(*, project: Project) -> int:
    return _improved(project).count()


def _texts(kind: str) -> Callable[[Project, Sequence[str]], Iterator[Improved]]:
    """Accepted texts of this kind, of all batches or of some, in their order."""

    def read(project: Project, batches: Sequence[str]) -> Iterator[Improved]:
        rows = texts_accepted(project=project, kind=kind, batches=batches)
        names = (
            *("pk", "author_id", "body", "number", "verdict", "edits__author_id", "text_id"),
            *("text__batch__name", "text__batch__licence"),
            "text__slot__task__prompt__group_key",
            *("text__slot__task__prompt__licence", "text__slot__task__prompt__metadata"),
        )
        for row in rows.values(*names, asked=whole_prompt("text__slot__task__prompt")).iterator(
            _BATCH
        ):
            yield _of_text(row, asks=kind == WritingBatch.Kind.PROMPTS)

    return read


def _of_text(row: Mapping[str, Any], *, asks: bool) -> Improved:
    body = row["body"]
    asked = "" if asks else row["text__slot__task__prompt__licence"]
    prompt = [{"role": "user", "content": body}] if asks else row["asked"]
    known = {} if asks else row["text__slot__task__prompt__metadata"] or {}
    return Improved(
        vote=row["pk"],
        comparison=0,
        person=row["author_id"],
        prompt=prompt,
        answer=[] if asks else [{"role": "assistant", "content": body}],
        group=loose_key(prompt) if asks else row["text__slot__task__prompt__group_key"],
        source=HUMAN,
        licence=row["text__batch__licence"] or asked,
        external_id=str(known.get("id") or ""),
        shared=known,
        text=TextOrigin(
            text=row["text_id"],
            version=row["number"],
            edited=row["edits__author_id"],
            reviewed=bool(row["verdict"] or row["edits__author_id"]),
            batch=row["text__batch__name"],
            prompt_licence=asked,
        ),
    )


def judged_steps(project: Project, _batches: Sequence[str] = ()) -> Iterator[Improved]:
    """Every vote on the steps of a run, in the order of the comparisons."""
    found = Comparison.objects.filter(project=project).exclude(state=Comparison.State.DROPPED)
    for run in judged_runs(project, found):
        prompt = run.comparison.prompt
        for vote, person in run.votes:
            yield Improved(
                vote=vote,
                comparison=run.comparison.pk,
                person=person,
                prompt=run.asked,
                answer=run.turns,
                group=prompt.group_key,
                source=run.response.model_name or prompt.source,
                licence=prompt.licence,
                external_id=f"{run.comparison.pk}-{run.side}",
                own={"answers": len(run.votes), "agreeing": run.n_agreeing},
                run=run,
            )


def judged_count(*, project: Project) -> int:
    """Votes that judged steps."""
    return judged_answers(project).exclude(answer__task__state=Comparison.State.DROPPED).count()


IMPROVEMENTS = "improved answers"
JUDGED = "judged steps"
SOURCES: Mapping[str, Source] = {
    IMPROVEMENTS: Source(
        Snapshot.Kind.DEMONSTRATIONS,
        "Demonstrations from improved answers",
        "No vote of the training split came with an improved answer.",
        "from_improvements",
        improved_answers,
    ),
    "written demonstrations": Source(
        Snapshot.Kind.DEMONSTRATIONS,
        "Written demonstrations",
        "No accepted answer of writing work is of the training split.",
        "from_writing",
        _texts(WritingBatch.Kind.DEMONSTRATIONS),
    ),
    "written prompts": Source(
        Snapshot.Kind.PROMPTS,
        "Written prompts",
        "No accepted prompt of writing work is of the training split.",
        "from_writing",
        _texts(WritingBatch.Kind.PROMPTS),
    ),
    JUDGED: Source(
        Snapshot.Kind.STEPWISE,
        "Judged steps of runs",
        "No run of the training split has a first wrong step that most people agree on.",
        "kind",
        judged_steps,
    ),
}
WRITTEN = {of.kind: name for name, of in SOURCES.items() if of.field == "from_writing"}


def is_trained_on(
    *, project: Project, recipe: SnapshotRecipe, source: str, batches: Sequence[str] = ()
) -> bool:
    """Whether any of what the source holds is of a group of the training split."""
    if source == IMPROVEMENTS:
        found = _improved(project).order_by()
        groups: Iterable[str] = found.values_list(
            "comparison__prompt__group_key", flat=True
        ).distinct()
    else:
        groups = (one.group for one in SOURCES[source].read(project, batches))
    return any(split_of(group, recipe.shares, recipe.seed) == TRAIN for group in groups)


def demonstrations_from(
    *,
    project: Project,
    recipe: SnapshotRecipe,
    source: str = IMPROVEMENTS,
    batches: Sequence[str] = (),
) -> Demonstrations:
    """What a freeze would write now, by the seed and the shares of `recipe`."""
    files: dict[str, list[Row]] = {}
    votes: dict[tuple[str, int], list[Improved]] = {}
    places: dict[tuple[Any, ...], tuple[str, int]] = {}
    dropped: Counter[str] = Counter()
    wrote = list(SOURCES[source].read(project, batches))
    made_of = recipe.to_json() | ({} if source == IMPROVEMENTS else {IMPROVED: source})
    key = dataset_key(project=project.pk, recipe=made_of, votes=[one.vote for one in wrote])
    name_of = names_under(key)
    for one in wrote:
        if one.run is None and one.answer and one.answer[-1]["role"] != "assistant":
            dropped["does not end with the assistant"] += 1
            continue
        split = split_of(one.group, recipe.shares, recipe.seed)
        if split not in _SPLITS:
            dropped[f"its prompt is kept for {split}"] += 1
            continue
        if one.place in places:
            if one.run is None:  # else another vote on the same run
                dropped["repeats an earlier row"] += 1
            votes[places[one.place]].append(one)
            continue
        rows = files.setdefault(split, [])
        place = places[one.place] = (split, len(rows))
        votes[place] = [one]
        rows.append(_row(one) | _origin(one, name_of))
    return Demonstrations(in_order(files), votes, dropped, key)


def _row(one: Improved) -> Row:
    about = {
        "group": one.group,
        "source": one.source,
        "licence": one.licence,
        "id": one.external_id,
        "metadata": one.shared if one.own is None else one.own,
    }
    if one.run is not None:
        texts, roles = [said(turn) for turn in one.answer], [turn["role"] for turn in one.answer]
        return stepwise_row(one.prompt, texts, roles, one.run.labels, about)
    if not one.answer:
        return prompt_row(one.prompt, about)
    *before, last = one.answer
    return demonstration_row([*one.prompt, *before], last["content"], about)


def _origin(one: Improved, name_of: NameOf) -> Row:
    """Where a row came from; of judged steps, which several people agree on, nothing. A text's
    author is who wrote the version; where that is a reviewer's edit, `edited_from` is who wrote the
    one before."""
    if one.run is not None:
        return {}
    if one.text is None:
        return {"vote": str(one.vote), "annotator": name_of(one.person)}
    edited = one.text.edited
    return {
        "text": str(one.text.text),
        "version": str(one.text.version),
        "annotator": name_of(one.person),
        "edited_from": name_of(edited) if edited else "",
        "reviewed": "yes" if one.text.reviewed else "no",
        "batch": one.text.batch,
    }


def text_lineage(snapshot: Snapshot, made: Demonstrations) -> list[SnapshotText]:
    """Every version behind a row, with the row's place."""
    return [
        SnapshotText(snapshot=snapshot, version_id=one.vote, split=split, ordinal=ordinal)
        for (split, ordinal), every in sorted(made.votes.items())
        for one in every
        if one.text
    ]


def demonstration_lineage(snapshot: Snapshot, made: Demonstrations) -> list[SnapshotRow]:
    """One row per (comparison, file), naming every vote that its lines came with."""
    rows: dict[tuple[int, str], SnapshotRow] = {}
    for (split, ordinal), votes in sorted(made.votes.items()):
        for one in votes:
            if one.text:
                continue
            row = rows.setdefault(
                (one.comparison, split),
                SnapshotRow(
                    snapshot=snapshot, comparison_id=one.comparison, split=split, ordinal=ordinal
                ),
            )
            if one.vote not in row.vote_ids:  # one answer judges both runs of a pair
                row.vote_ids = [*row.vote_ids, one.vote]
    return list(rows.values())
