"""The files of a preference snapshot: written, then proved of what was written that nothing leaks.

The private splits lie in a tree of their own. The public tree's card names that tree's hash, so the
one hash of a snapshot stands for both; but no run, zip or download of it holds a private row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from apps.accounts.models import Project
from apps.snapshots import progress, selectors
from apps.snapshots.assembling.gate import Proof, prove, require_clean
from apps.snapshots.assembling.material import BY_RULING, Assembly, Line
from apps.snapshots.assembling.rows import Row, Texts, preference_rows, unpaired_rows
from apps.snapshots.folder import FORMAT, write_folder
from apps.snapshots.gathering import ruling_facts, vote_facts
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.pseudonyms import NameOf, dataset_key, names_under
from apps.snapshots.recipe import KTO, PRIVATE_SPLITS, SOFT, SnapshotRecipe
from apps.snapshots.store import artifact_store, private_folder_of, scratch

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Written:
    """The gate's proof, the hash of the private tree ("" where there is none), and the key of the
    names that stand for people."""

    proof: Proof
    private_sha256: str
    pseudonyms: str


def preferences_write(
    folder: Path,
    snapshot: Snapshot,
    assembly: Assembly,
    recipe: SnapshotRecipe,
    *,
    barred: frozenset[int],
    tell: progress.Tell,
) -> Written:
    """Write the public tree into `folder` and the private one into the store; prove both clean."""
    tell(progress.WRITE)
    kept = sorted({line.pair for lines in assembly.lines.values() for line in lines})
    deciding = sorted({v for lines in assembly.lines.values() for x in lines for v in x.votes})
    key = dataset_key(project=snapshot.project_id, recipe=recipe.to_json(), votes=deciding)
    name_of = names_under(key)
    texts, cast_at = selectors.texts_of(kept), selectors.votes_cast_at(deciding)
    files = {
        name: rows_written(lines, assembly, texts, recipe, cast_at, name_of)
        for name, lines in assembly.lines.items()
    }
    unpaired = recipe.ties == KTO
    about = {
        "kind": str(snapshot.kind),
        "title": "Single answers, desirable or not" if unpaired else "Preference pairs",
        **asdict(selectors.provenance(pairs=kept, votes=deciding)),
    }
    counts = {**assembly.counts, "warnings": list(assembly.warnings)}
    private = {name: rows for name, rows in files.items() if name in PRIVATE_SPLITS}
    with scratch() as apart:
        sha256 = _private_write(apart, snapshot, private, about, recipe, counts)
        card = about | {"private": {"sha256": sha256, "splits": sorted(private)}}
        public = {name: rows for name, rows in files.items() if name not in private}
        write_folder(folder, public, card_of(card, recipe.to_json(), counts))
        tell(progress.PROVE)
        where = {name: (apart if name in private else folder) / f"{name}.jsonl" for name in files}
        proof = _proved(where, assembly, recipe, deciding, snapshot.project, barred)
    return Written(proof, sha256, key)


def rows_written(
    lines: Sequence[Line],
    assembly: Assembly,
    texts: Mapping[int, Texts],
    recipe: SnapshotRecipe,
    votes_at: Mapping[int, datetime],
    name_of: NameOf,
) -> list[Row]:
    """The rows of one file in the form that the tie policy asks for; all files have one another's
    columns."""
    recur = bool(assembly.counts["texts_recur"])
    if recipe.ties == KTO:
        single = unpaired_rows(lines, assembly.pairs, texts, texts_recur=recur, name_of=name_of)
        return list(single)
    graded = any(line.strength is not None for of in assembly.lines.values() for line in of)
    return list(
        preference_rows(
            lines,
            assembly.pairs,
            texts,
            texts_recur=recur,
            soft=recipe.ties == SOFT,
            graded=graded,
            sourced=any(text.from_a or text.from_b for text in texts.values()),
            votes_at=votes_at,
            name_of=name_of,
        )
    )


def card_of(
    about: dict[str, Any], recipe: dict[str, Any], counts: dict[str, Any]
) -> dict[str, Any]:
    numbers = {name: value for name, value in counts.items() if name != "warnings"}
    return {
        "format": FORMAT,
        "recipe": recipe,
        "counts": numbers,
        "warnings": counts["warnings"],
        **about,
    }


def rows_of(snapshot: Snapshot, assembly: Assembly, recipe: SnapshotRecipe) -> list[SnapshotRow]:
    """One row per (comparison, file) and one per drop. A file's ordinals count its first lines."""
    per_line = 2 if recipe.ties == KTO else 1
    rows: dict[tuple[int, str], SnapshotRow] = {}
    for split, lines in assembly.lines.items():
        for ordinal, line in enumerate(lines):
            known = rows.get((line.pair, split))
            if known is None:
                rows[line.pair, split] = SnapshotRow(
                    snapshot=snapshot,
                    comparison_id=line.pair,
                    split=split,
                    ordinal=ordinal * per_line,
                    winner=line.winner,
                    share=line.share,
                    confidence=line.confidence,
                    posterior=line.posterior,
                    weight=line.weight,
                    decided_by=line.by,
                    reason=line.reason[:_LONGEST_REASON],
                    vote_ids=list(line.votes),
                )
                continue
            # Several held-out votes on one comparison: the row names them all, and a winner and
            # a share only while they agree.
            known.vote_ids += line.votes
            if known.winner != line.winner:
                known.winner, known.share, known.confidence = "", None, None
    dropped = [
        SnapshotRow(
            snapshot=snapshot,
            comparison_id=drop.pair,
            vote_ids=list(drop.votes),
            dropped_because=drop.reason,
            reason=drop.detail[:_LONGEST_REASON],
        )
        for drop in assembly.drops
    ]
    return [*rows.values(), *dropped]


def _private_write(
    folder: Path,
    snapshot: Snapshot,
    files: Mapping[str, Sequence[Row]],
    about: dict[str, Any],
    recipe: SnapshotRecipe,
    counts: dict[str, Any],
) -> str:
    if not files:
        return ""
    title = {"title": f"{about['title']}: private splits"}
    rows = {"rows": {name: len(of) for name, of in files.items()}, "warnings": counts["warnings"]}
    write_folder(folder, files, card_of(about | title, recipe.to_json(), rows))
    sha256, _ = artifact_store().put_tree(folder, private_folder_of(snapshot.pk))
    return sha256


def _proved(
    where: Mapping[str, Path],
    assembly: Assembly,
    recipe: SnapshotRecipe,
    votes: Sequence[int],
    project: Project,
    barred: frozenset[int],
) -> Proof:
    ruled = sorted(
        {x.pair for lines in assembly.lines.values() for x in lines if x.by == BY_RULING}
    )
    proof = prove(
        where,
        assembly.lines,
        vote_facts(votes),
        recipe,
        split_by=str(assembly.counts["split_by"]),
        rulings=ruling_facts(project, ruled),
        barred=barred,
    )
    require_clean(proof)
    return proof
