"""Which prompts of an evaluation its policy was trained on: exact and near-duplicates.

What an evaluation may ask, the held-out prompts of its dataset, is compared with the training rows
of every dataset of the policy's lineage: those of its run, of the models it began as, and of the
reward models it was optimised against. Texts are compared as `measures.duplicates` says. Not seen:
a prompt inside an answer or an earlier turn, a paraphrase, a translation, and what a model learned
before it came here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from apps.snapshots.assembling.rows import prompt_text
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import PRIVATE_SPLITS, TRAIN
from apps.snapshots.selectors.prompts import asked_in, held_out_splits
from apps.snapshots.storage import artifact_store
from apps.training.models import Run, RunInput
from apps.training.services.held_out import POLICY_LINEAGE, runs_behind, training_inputs
from measures.duplicates import near_matches
from measures.messages import Messages, said
from workers.artifacts import ArtifactMissing

SHOWN = 5  # pairs of a prompt and what it was found as
_LONGEST = 400  # characters of a shown text
_AT_ONCE = 20_000  # training prompts compared at a time
_ELSEWHERE = ("imported", "served")  # kinds of runs that trained nothing here


@dataclass(frozen=True, slots=True)
class Compared:
    """A training dataset: its rows, and how many of the evaluation's prompts stand in it, exactly
    or nearly. None for one whose file is gone."""

    id: str
    name: str
    sha256: str
    rows: int | None
    exact: int
    near: int


@dataclass(frozen=True, slots=True)
class Match:
    """A prompt, what it was found as, where, and how alike they are (Jaccard, 0 to 1)."""

    prompt: str
    trained: str
    dataset: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """prompts: distinct ones that the dataset holds out; exact, near: how many of them stand in
    any training dataset, each counted once; unknown: models of the lineage of which nobody here
    knows what they learned from."""

    prompts: int
    exact: int = 0
    near: int = 0
    datasets: Sequence[Compared] = ()
    unknown: Sequence[str] = ()
    matches: Sequence[Match] = field(default_factory=tuple)

    @property
    def found(self) -> int:
        return self.exact + self.near

    @property
    def rows(self) -> int:
        return sum(one.rows or 0 for one in self.datasets)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def overlap_from(data: Mapping[str, Any]) -> Overlap:
    """As `Overlap.to_json` wrote it."""
    return Overlap(
        **{name: data[name] for name in ("prompts", "exact", "near", "unknown")},
        datasets=[Compared(**one) for one in data["datasets"]],
        matches=[Match(**one) for one in data["matches"]],
    )


def overlap_find(run: Run) -> Overlap | None:
    """Of an evaluation, read from the files of its datasets: seconds for 100,000 training rows.
    None where the run has no dataset of prompts or no policy; no prompts where their files are
    gone."""
    given = {
        row.role: row
        for row in RunInput.objects.filter(run=run, role__in=("prompts", "policy")).select_related(
            "snapshot", "checkpoint", "upstream"
        )
    }
    prompts, policy = given.get("prompts"), given.get("policy")
    if prompts is None or prompts.snapshot is None or policy is None:
        return None
    trained = policy.checkpoint.run_id if policy.checkpoint else policy.upstream_id
    if trained is None:
        return None
    try:
        asked = _asked(prompts.snapshot)
    except ArtifactMissing:
        return Overlap(prompts=0)
    behind = runs_behind(trained, through=POLICY_LINEAGE)
    datasets = {row.snapshot_id: row.snapshot for row in training_inputs(behind)}
    return compared(asked, [one for _, one in sorted(datasets.items()) if one], _unknown(behind))


def compared(
    asked: Mapping[str, str], datasets: Iterable[Snapshot], unknown: Sequence[str] = ()
) -> Overlap:
    """asked: {text as prompts are compared: as it is shown}."""
    exact: set[str] = set()
    near: set[str] = set()
    matches: list[Match] = []
    told: list[Compared] = []
    for one in datasets:
        try:
            found = _in_dataset(list(asked), one)
        except ArtifactMissing:
            told.append(Compared(one.pk, one.name, one.sha256, None, 0, 0))
            continue
        same = {text for text, (_, likeness, _) in found.pairs.items() if likeness is None}
        exact |= same
        near |= found.pairs.keys() - same
        told.append(
            Compared(
                *(one.pk, one.name, one.sha256),
                rows=found.rows,
                exact=len(same),
                near=len(found.pairs) - len(same),
            )
        )
        matches += [
            Match(asked[text], shown, one.name, 1.0 if likeness is None else round(likeness, 3))
            for text, (_, likeness, shown) in found.pairs.items()
        ]
    near -= exact
    once = {one.prompt: one for one in sorted(matches, key=lambda one: one.similarity)}
    shown = sorted(once.values(), key=lambda one: (-one.similarity, one.prompt))[:SHOWN]
    return Overlap(len(asked), len(exact), len(near), told, unknown, shown)


@dataclass(slots=True)
class _Found:
    """pairs: {text: (the text it was found as, how alike, None where equal, and as shown)}."""

    rows: int = 0
    pairs: dict[str, tuple[str, float | None, str]] = field(default_factory=dict)


def _in_dataset(asked: Sequence[str], dataset: Snapshot) -> _Found:
    found, wanted = _Found(), set(asked)
    rows = asked_in(artifact_store().lines(f"{dataset.uri}/{TRAIN}.jsonl"))
    while part := list(islice(rows, _AT_ONCE)):
        found.rows += len(part)
        texts: dict[str, str] = {}
        for prompt in part:
            texts.setdefault(prompt_text(prompt), _shown(prompt))
        for text in texts.keys() & wanted:
            found.pairs[text] = (text, None, texts[text])
        left = [text for text in asked if text not in found.pairs]
        _add_near(found, left, texts)
    return found


def _add_near(found: _Found, asked: Sequence[str], texts: Mapping[str, str]) -> None:
    among = list(texts)
    near = near_matches(asked, among)
    for text, row, likeness in zip(asked, near.row, near.similarity, strict=True):
        if row >= 0:
            found.pairs[text] = (among[row], float(likeness), texts[among[row]])


def _asked(snapshot: Snapshot) -> dict[str, str]:
    """What the dataset holds out and a run may read: {text as compared: as shown}."""
    texts: dict[str, str] = {}
    for split in held_out_splits(snapshot):
        if split not in PRIVATE_SPLITS:
            for prompt in _lines(snapshot, split):
                texts.setdefault(prompt_text(prompt), _shown(prompt))
    return texts


def _lines(snapshot: Snapshot, split: str) -> Iterator[Messages]:
    return asked_in(artifact_store().lines(f"{snapshot.uri}/{split}.jsonl"))


def _shown(prompt: Messages) -> str:
    text = said(prompt[-1])
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _unknown(runs: Iterable[str]) -> list[str]:
    """Models that were not trained here, or from one that only has a name."""
    rows = Run.objects.filter(pk__in=list(runs)).order_by("created_at")
    copies = set(
        RunInput.objects.filter(run__in=rows, role="base").values_list("run_id", flat=True)
    )
    return [
        one.name
        for one in rows
        if one.kind in _ELSEWHERE
        or (one.kind.startswith("register_") and one.pk not in copies)
        or one.config.get("base_model")
    ]


def overlap_words(found: Overlap | None) -> str:
    """One sentence or two, as the page and the gate say it."""
    if found is None:
        return "Its prompts have not been compared with the training data yet."
    if not found.prompts:
        return "Its prompts could not be compared with the training data: their files are gone."
    gone = [one.name for one in found.datasets if one.rows is None]
    read = len(found.datasets) - len(gone)
    among = f"{found.rows:,} training rows of {read} dataset{'' if read == 1 else 's'}"
    if not read:
        said = "Its prompts were compared with no training data: none of it is known here."
    elif not found.found:
        said = f"None of its {found.prompts:,} prompts is among the {among}."
    else:
        where = ", ".join(one.name for one in found.datasets if one.exact or one.near)
        said = (
            f"{found.found:,} of its {found.prompts:,} prompts "
            f"{'is' if found.found == 1 else 'are'} among the {among}: "
            f"{found.exact:,} exactly, {found.near:,} nearly, in {where}."
        )
    if gone:
        said += f" Not compared, since the files are gone: {', '.join(gone)}."
    if found.unknown:
        said += f" What {', '.join(found.unknown)} learned before is not known."
    return said


def overlap_of(run: Run) -> Overlap | None:
    """As it was found after the evaluation; None before that."""
    row = getattr(run, "prompt_overlap", None)
    return overlap_from(row.found) if row is not None else None
