"""What the rows of frozen datasets ask: which prompts are trained on, which are held out, and which
stand in two datasets. Prompts are the same as `assembling.rows.prompt_text` says."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.snapshots.assembling.rows import Row, prompt_text
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, PRIVATE_SPLITS, TRAIN, public
from apps.snapshots.selectors.snapshots import snapshot_list
from apps.snapshots.storage import artifact_store, private_folder_of
from measures.duplicates import near_matches
from measures.messages import Messages, said
from measures.splits import Overlap, overlap_containment
from workers.artifacts import ArtifactMissing

Keys = NDArray[np.uint64]  # sorted, one for each distinct prompt

# Its rows are votes of held-out people on prompts that may be trained on.
_BY_PEOPLE = frozenset({HELDOUT_ANNOTATORS})


def asked_in(rows: Iterable[Row]) -> Iterator[Messages]:
    for row in rows:
        yield row["prompt"] if "prompt" in row else row["messages"][:-1]


def prompt_keys(prompts: Iterable[Messages]) -> Keys:
    """The first 64 bits of each prompt's hash: two of a million differ but for one in 10⁷."""
    texts = (prompt_text(prompt).encode("utf-8", "surrogatepass") for prompt in prompts)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.unique(np.frombuffer(digests, dtype=np.uint64))


def held_out_splits(snapshot: Snapshot) -> list[str]:
    """Its files with rows that no run trains on, whose prompts none does either; private ones
    among them. Pairs that a judge was asked about hold nothing out."""
    if snapshot.kind == Snapshot.Kind.PAIRS:
        return []
    rows = snapshot.counts.get("rows", {})
    return [name for name, n in rows.items() if n and name != TRAIN and name not in _BY_PEOPLE]


def training_prompts(snapshot: Snapshot) -> Keys:
    return _keys_in(f"{snapshot.uri}/{TRAIN}.jsonl")


def held_out_prompts(snapshot: Snapshot) -> Keys:
    """Without those that it also trains on, as where rows were split by argument."""
    found = [_keys_in(_file(snapshot, split)) for split in held_out_splits(snapshot)]
    return np.setdiff1d(
        np.concatenate([np.zeros(0, np.uint64), *found]), training_prompts(snapshot)
    )


def _file(snapshot: Snapshot, split: str) -> str:
    folder = private_folder_of(snapshot.pk) if split in PRIVATE_SPLITS else snapshot.uri
    return f"{folder}/{split}.jsonl"


def _keys_in(file: str) -> Keys:
    """A file that is gone holds no prompt: the worker that fetches it says so."""
    try:
        return _keys_read(file)
    except ArtifactMissing:
        return np.zeros(0, np.uint64)


@lru_cache(maxsize=64)  # frozen files never change
def _keys_read(file: str) -> Keys:
    return prompt_keys(asked_in(artifact_store().lines(file)))


def held_out_texts(*, project: Project) -> dict[Snapshot, list[str]]:
    """What the project's frozen datasets hold out, in the form in which prompts are compared."""
    found: dict[Snapshot, list[str]] = {}
    for snapshot in snapshot_list(project=project).filter(state=Snapshot.State.FROZEN):
        if texts := texts_held_out(snapshot):
            found[snapshot] = texts
    return found


def texts_held_out(snapshot: Snapshot) -> list[str]:
    """The same of one dataset, each text once, its private splits included."""
    found: dict[str, None] = {}
    for split in held_out_splits(snapshot):
        with suppress(ArtifactMissing):
            rows = artifact_store().lines(_file(snapshot, split))
            found.update(dict.fromkeys(prompt_text(prompt) for prompt in asked_in(rows)))
    return list(found)


def held_out_by(
    asked: Iterable[str], others: Mapping[Snapshot, Sequence[str]]
) -> dict[str, Snapshot]:
    """{text of `asked`: a dataset that holds it out, or nearly the same}; both as `prompt_text`."""
    known = [(text, snapshot) for snapshot, texts in others.items() for text in texts]
    distinct = list(dict.fromkeys(asked))
    if not known or not distinct:
        return {}
    matches = near_matches(distinct, [text for text, _ in known]).row
    return {t: known[row][1] for t, row in zip(distinct, matches, strict=True) if row >= 0}


def public_rows(snapshot: Snapshot) -> Iterator[Row]:
    """Of all its files that people may read, training first."""
    for split in public(snapshot.counts["rows"]):
        yield from artifact_store().lines(f"{snapshot.uri}/{split}.jsonl")


def texts_asked(rows: Iterable[Row]) -> list[str]:
    """What is asked in each row, turns joined by a line break."""
    return ["\n".join(said(message) for message in prompt) for prompt in asked_in(rows)]


def prompt_overlap(*, sft: Snapshot, rl: Snapshot) -> Overlap:
    """The share of the RL prompts that the SFT data already holds; over 0.3 warns."""
    return overlap_containment(texts_asked(public_rows(sft)), texts_asked(public_rows(rl)))


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
