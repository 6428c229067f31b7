"""One dataset out of several: training rows by weight, and everything that any of them holds out.

Whatever one part holds out is trained on nowhere: training rows of the others whose prompt is the
same, or nearly, are left out and counted. The fates of comparisons are taken over from parts of the
same project, so that votes can be traced through a mixture. Rows of another project come without
them, like rows labelled elsewhere: whoever administers both projects may take them over.

Where a model labelled rows of one part, every row says who labelled it, and what the mixture is
measured on is people's: rows of a model's are left out of a split that has any of theirs.
"""

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from apps.accounts.models import Project, User
from apps.common.errors import Unprocessable
from apps.snapshots import dispatch, progress
from apps.snapshots.assembling.ai_feedback import LABELLED_BY, is_peoples, labelled_counts
from apps.snapshots.assembling.imported import REPEATS, SEED, group_of, name_recurring
from apps.snapshots.assembling.rows import Row, prompt_text
from apps.snapshots.formats.folder import write_folder
from apps.snapshots.models import AI_FEEDBACK, IMPORTED, MIXTURE, Snapshot, SnapshotRow
from apps.snapshots.recipe import HELDOUT_ANNOTATORS, PRIVATE_SPLITS, TRAIN, in_order
from apps.snapshots.selectors.prompts import (
    asked_in,
    held_out_by,
    held_out_texts,
    texts_held_out,
)
from apps.snapshots.selectors.snapshots import taken_over
from apps.snapshots.services.drafts import draft_make, seal
from apps.snapshots.services.importing import ELSEWHERE
from apps.snapshots.services.writing import card_of
from apps.snapshots.storage import KEY, artifact_store, dataset_key, scratch
from measures.splits import unit_hash
from workers.contract.jobs import PEOPLE

MOST_PARTS = 10
MOST_REPEATS = 20  # of one row
_TEXTS = ("messages", "prompt", "completion", "chosen", "rejected")
# What a row without such a column says.
_ABSENT: Mapping[str, Any] = {
    "label_probability": 1.0,
    "strength": None,
    "inclusion_probability": None,
    "sources": ["", ""],
    "decided_at": None,
    "answer": None,
    "votes": 0,
    LABELLED_BY: PEOPLE,
}


@dataclass(frozen=True, slots=True)
class Part:
    """A frozen dataset, and what its training rows weigh beside those of the other parts."""

    snapshot: Snapshot
    weight: float = 1.0


@dataclass(slots=True)
class _Line:
    """A row of the mixture, and what it is in its part: the fate of its comparison, if any."""

    row: Row
    fate: SnapshotRow | None


def parts_from(
    *, project: Project, user: User, given: Sequence[tuple[str, float]]
) -> tuple[Part, ...]:
    """Parts by (id of a dataset, weight). `Unprocessable` on `parts` for a dataset that is neither
    the project's nor of another one that the user administers as they administer this one."""
    known = taken_over(project=project, user=user)
    found = {
        one.pk: one for one in known.filter(pk__in=[pk for pk, _ in given if "\x00" not in pk])
    }
    if missing := [pk for pk, _ in given if pk not in found]:
        raise _refused(
            f"There is no dataset '{missing[0][:40]}' in this project, nor in another one that you "
            "administer as you administer this one.",
            code="no_such_part",
        )
    return tuple(Part(found[pk], weight) for pk, weight in given)


def mixture_start(
    *, project: Project, name: str, parts: Sequence[Part], user: User, repeat: bool = False
) -> tuple[Snapshot, bool]:
    """A draft that a worker makes, and whether the broker has taken the message.

    weights: shares of the training rows, in any unit. repeat: rows of a part that is too small for
    its share recur, so that all rows of every part are used; otherwise the part that is used up
    first ends it, and the others give fewer rows. `Unprocessable` names what is wrong.
    """
    parts_check(parts, project=project, repeat=repeat)
    snapshot = draft_make(
        project=project,
        name=name,
        kind=parts[0].snapshot.kind,
        recipe=_recipe(parts, project, repeat),
        user=user,
        queued=True,
    )
    return snapshot, dispatch.freeze_send(snapshot.pk)


def mixture_start_again(*, snapshot: Snapshot, user: User) -> tuple[Snapshot, bool]:
    recipe = snapshot.recipe[MIXTURE]
    given = [(one["snapshot"], one["weight"]) for one in recipe["parts"]]
    return mixture_start(
        project=snapshot.project,
        name=snapshot.name,
        parts=parts_from(project=snapshot.project, user=user, given=given),
        user=user,
        repeat=recipe["repeat"],
    )


def parts_check(parts: Sequence[Part], *, project: Project, repeat: bool) -> None:
    """Raises `Unprocessable` on `parts`."""
    least = 1 if parts and parts[0].snapshot.project_id != project.pk else 2
    if not least <= len(parts) <= MOST_PARTS:
        raise _refused(f"Choose 2 to {MOST_PARTS} datasets.", code="wrong_number")
    kinds = {one.snapshot.kind for one in parts}
    if len(kinds) > 1:
        raise _refused("All datasets of a mixture are of one kind.", code="mixed_kinds")
    if len({one.snapshot.pk for one in parts}) < len(parts):
        raise _refused("A dataset stands twice among the parts.", code="repeated_part")
    for one in parts:
        if one.snapshot.state != Snapshot.State.FROZEN:
            raise _refused(f"'{one.snapshot.name}' is not frozen.", code="not_frozen")
        if not (math.isfinite(one.weight) and 0 < one.weight <= 1e6):
            raise _refused(
                f"The weight of '{one.snapshot.name}' must be over 0 and at most a million.",
                code="bad_weight",
            )
    sizes = [one.snapshot.counts.get("rows", {}).get(TRAIN, 0) for one in parts]
    for one, n, wanted in zip(parts, sizes, shares_of(parts, sizes, repeat=repeat), strict=True):
        if not wanted:
            raise _refused(
                f"'{one.snapshot.name}' would give no training row at this weight.",
                code="empty_part",
            )
        if wanted > MOST_REPEATS * n:
            raise _refused(
                f"Each row of '{one.snapshot.name}' would recur {wanted / n:,.0f} times; at most "
                f"{MOST_REPEATS}. Give it less weight.",
                code="too_many_repeats",
            )


def shares_of(parts: Sequence[Part], sizes: Sequence[int], *, repeat: bool) -> list[int]:
    """Training rows to be taken of each part, of `sizes` that there are."""
    if not all(sizes):
        return [0] * len(parts)
    fits = [n / one.weight for one, n in zip(parts, sizes, strict=True)]
    unit = max(fits) if repeat else min(fits)
    return [
        n if math.isclose(unit * one.weight, n) else math.floor(unit * one.weight)
        for one, n in zip(parts, sizes, strict=True)
    ]


def mixture_freeze(snapshot: Snapshot, tell: progress.Tell) -> None:
    """Read the parts, mix, write and seal the draft. `Unprocessable` where a part is gone or
    nothing is left to train on."""
    recipe = snapshot.recipe[MIXTURE]
    tell(progress.READ)
    found = Snapshot.objects.in_bulk([one["snapshot"] for one in recipe["parts"]])
    if missing := [one["name"] for one in recipe["parts"] if one["snapshot"] not in found]:
        raise _refused(f"'{missing[0]}' is there no longer.", code="no_such_part")
    parts = [Part(found[one["snapshot"]], one["weight"]) for one in recipe["parts"]]
    read = [dict(_read(one.snapshot, of=snapshot.project_id)) for one in parts]
    tell(progress.MIX)
    dropped: Counter[str] = Counter()
    _measure_on_people(parts, read, dropped)
    _leave_out_held_out(parts, read, snapshot.project, dropped)
    files = _mixed(parts, read, repeat=recipe["repeat"], dropped=dropped)
    if not files.get(TRAIN):
        raise _refused("No training row is left.", code="empty_snapshot")
    every = _alike([line.row for lines in files.values() for line in lines])
    left = iter(every)
    rows = {name: list(islice(left, len(lines))) for name, lines in files.items()}
    tell(progress.WRITE)
    elsewhere = {"labelled": ELSEWHERE} if _is_elsewhere(parts, snapshot.project) else {}
    counts = {
        "rows": {name: len(of) for name, of in rows.items()},
        "groups": {name: len(set(map(group_of, of))) for name, of in rows.items()},
        "split_by": MIXTURE,
        "parts": [
            {
                "snapshot": one.snapshot.pk,
                "name": one.snapshot.name,
                "rows": sum(line.row["part"] == one.snapshot.pk for line in files[TRAIN]),
            }
            for one in parts
        ],
        "dropped": dict(dropped),
        "warnings": _warnings(parts, rows),
    }
    card = {
        "kind": snapshot.kind,
        "title": snapshot.get_kind_display().capitalize(),
        **labelled_counts(rows[TRAIN]),
        "licences": sorted({row.get("licence") or "" for row in every} - {""}),
        "sources": sorted({row.get("source") or "" for row in every} - {""}),
        **elsewhere,
    }
    with scratch() as folder:
        write_folder(folder, rows, card_of(card, snapshot.recipe, counts))
        tell(progress.STORE)
        fates = list(_fates(snapshot, files))
        votes = sorted({vote for fate in fates for vote in fate.vote_ids})
        key = dataset_key(project=snapshot.project_id, recipe=snapshot.recipe, votes=votes)
        seal(snapshot, folder, counts=counts | card | {KEY: key}, rows=fates)


def _is_elsewhere(parts: Sequence[Part], project: Project) -> bool:
    """Whether some labels were given elsewhere: by people, as far as anybody knows."""
    return any(
        one.snapshot.project_id != project.pk
        or (one.snapshot.is_imported and AI_FEEDBACK not in one.snapshot.recipe)
        for one in parts
    )


def _recipe(parts: Sequence[Part], project: Project, repeat: bool) -> dict[str, Any]:
    said = [
        {
            "snapshot": one.snapshot.pk,
            "name": one.snapshot.name,
            "sha256": one.snapshot.sha256,
            "weight": one.weight,
            "project": one.snapshot.project.slug,
        }
        for one in parts
    ]
    foreign = any(one.snapshot.project_id != project.pk for one in parts)
    made: dict[str, Any] = {MIXTURE: {"parts": said, "repeat": repeat}, "seed": SEED}
    if foreign or any(one.snapshot.is_imported for one in parts):
        made[IMPORTED] = True  # of some rows nobody voted here
    return made


def _read(snapshot: Snapshot, *, of: str) -> Iterator[tuple[str, list[_Line]]]:
    """(split, its lines) of a part, for a mixture in the project `of`; private splits and the rows
    of held-out annotators are not taken over."""
    fates: dict[str, list[SnapshotRow]] = {}
    if snapshot.project_id == of:
        kept = SnapshotRow.objects.filter(snapshot=snapshot, ordinal__isnull=False)
        for fate in kept.order_by("split", "ordinal"):
            fates.setdefault(fate.split, []).append(fate)
    for split in snapshot.counts["rows"]:
        if split in PRIVATE_SPLITS or split == HELDOUT_ANNOTATORS:
            continue
        known = fates.get(split, [])
        first = [fate.ordinal or 0 for fate in known]
        lines = []
        for number, row in enumerate(artifact_store().lines(f"{snapshot.uri}/{split}.jsonl")):
            place = bisect_right(first, number) - 1
            lines.append(_Line({**row, "part": snapshot.pk}, known[place] if known else None))
        yield split, lines


def _measure_on_people(
    parts: Sequence[Part], read: Sequence[dict[str, list[_Line]]], dropped: Counter[str]
) -> None:
    """Rows that a model labelled are left out of every split but the training one that has rows
    people labelled."""
    for split in {name for files in read for name in files} - {TRAIN}:
        lines = [line for files in read for line in files.get(split, ())]
        if not any(is_peoples(line.row) for line in lines):
            continue
        for one, files in zip(parts, read, strict=True):
            kept = [line for line in files.get(split, ()) if is_peoples(line.row)]
            if n := len(files.get(split, ())) - len(kept):
                files[split] = kept
                dropped[f"of {one.snapshot.name}: labelled by AI, and measured on people's"] += n


def _leave_out_held_out(
    parts: Sequence[Part],
    read: Sequence[dict[str, list[_Line]]],
    project: Project,
    dropped: Counter[str],
) -> None:
    """Training rows whose prompts another part holds out, or nearly; those of another project's
    part also where any dataset of this project does, as with a file that is imported."""
    held_out = {
        one.snapshot: texts_held_out(one.snapshot)
        for one, files in zip(parts, read, strict=True)
        if _holds_out(one.snapshot, files)
    }
    foreign = any(one.snapshot.project_id != project.pk for one in parts)
    here = held_out_texts(project=project) if foreign else {}
    for one, files in zip(parts, read, strict=True):
        is_foreign = one.snapshot.project_id != project.pk
        others = {k: v for k, v in held_out.items() if k != one.snapshot}
        others |= here if is_foreign else {}
        lines = files.get(TRAIN, [])
        asked = [prompt_text(prompt) for prompt in asked_in(line.row for line in lines)]
        held = held_out_by(asked, others)
        files[TRAIN] = [line for line, text in zip(lines, asked, strict=True) if text not in held]
        if n := len(lines) - len(files[TRAIN]):
            dropped[f"of {one.snapshot.name}: its prompt is held out"] += n


def _holds_out(snapshot: Snapshot, files: Mapping[str, Sequence[_Line]]) -> bool:
    """Whether anything that the part holds out is measured on: a model's rows may be left out."""
    if AI_FEEDBACK not in snapshot.recipe:
        return True
    return any(lines for split, lines in files.items() if split != TRAIN)


def _mixed(
    parts: Sequence[Part],
    read: Sequence[dict[str, list[_Line]]],
    *,
    repeat: bool,
    dropped: Counter[str],
) -> dict[str, list[_Line]]:
    """The files of the mixture, the parts' rows one after another in their own order; which of a
    part's training rows are taken follows from their hash."""
    seen: set[str] = set()
    files: dict[str, list[_Line]] = {}
    for split in in_order({name: None for of in read for name in of}):
        for of in read:
            once = []
            for line in of.get(split, []):
                key = json.dumps([line.row.get(name) for name in (*_TEXTS, "label")])
                if key in seen:
                    dropped[REPEATS] += 1
                    continue
                seen.add(key)
                once.append(line)
            of[split] = once
            if split != TRAIN:
                files.setdefault(split, []).extend(once)
    pools = [of.get(TRAIN, []) for of in read]
    wanted = shares_of(parts, [len(pool) for pool in pools], repeat=repeat)
    files[TRAIN] = []
    for part, pool, n in zip(parts, pools, wanted, strict=True):
        order = sorted(
            range(len(pool)), key=lambda k: unit_hash(f"{part.snapshot.sha256}:{k}", SEED)
        )
        whole, rest = divmod(n, len(pool)) if pool else (0, 0)
        files[TRAIN] += [line for _ in range(whole) for line in pool]
        files[TRAIN] += [pool[k] for k in sorted(order[:rest])]
        if left := len(pool) - rest if not whole else 0:
            dropped[f"of {part.snapshot.name}: not drawn"] += left
    return {name: lines for name, lines in in_order(files).items() if lines}


def _alike(rows: list[Row]) -> list[Row]:
    """The same rows, all with the same columns in the same order. Names of people are left out,
    since they hold within the part only."""
    columns = dict.fromkeys(name for row in rows for name in row)
    recur = "cluster_ids" in columns
    for name in ("cluster_ids", "annotators", "annotator_votes"):
        columns.pop(name, None)
    made = []
    for row in rows:
        full = {name: row.get(name, _ABSENT.get(name, "")) for name in columns}
        if "annotator" in full:
            full["annotator"] = ""
        if recur:
            full["cluster"] = row.get("cluster") or row["group"]
        made.append(full)
    if recur:
        name_recurring(made)
    return made


def _fates(snapshot: Snapshot, files: Mapping[str, Sequence[_Line]]) -> Iterator[SnapshotRow]:
    """One for each comparison and file, at its first line."""
    for split, lines in files.items():
        made: dict[int, SnapshotRow] = {}
        for ordinal, line in enumerate(lines):
            fate = line.fate
            if fate is None:
                continue
            if known := made.get(fate.comparison_id):
                known.vote_ids = sorted({*known.vote_ids, *fate.vote_ids})
                continue
            made[fate.comparison_id] = SnapshotRow(
                snapshot=snapshot,
                comparison_id=fate.comparison_id,
                split=split,
                ordinal=ordinal,
                winner=fate.winner,
                share=fate.share,
                confidence=fate.confidence,
                posterior=fate.posterior,
                weight=fate.weight,
                decided_by=fate.decided_by,
                reason=fate.reason,
                vote_ids=list(fate.vote_ids),
            )
        yield from made.values()


def _warnings(parts: Sequence[Part], rows: Mapping[str, Sequence[Row]]) -> list[str]:
    held = {name: of for name, of in rows.items() if name != TRAIN}
    unseen = [name for name, of in held.items() if not any(map(is_peoples, of))]
    told = (
        [
            f"No person labelled a row of {', '.join(unseen)}: accuracy there is agreement with a "
            "model."
        ]
        if unseen
        else []
    )
    left = sorted(
        {
            one.snapshot.name
            for one in parts
            if {HELDOUT_ANNOTATORS, *PRIVATE_SPLITS} & set(one.snapshot.counts["rows"])
        }
    )
    if not left:
        return told
    return [
        *told,
        f"Private rows, and rows of held-out annotators, of {', '.join(left)} are not in the "
        "mixture: measure them with the dataset itself.",
    ]


def _refused(message: str, *, code: str) -> Unprocessable:
    return Unprocessable(message, code=code, field="parts")
