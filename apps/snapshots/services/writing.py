"""The files of a preference snapshot: written, then proved of what was written that nothing leaks.

The private splits lie in a tree of their own. The public tree's card names that tree's hash, so the
one hash of a snapshot stands for both; but no run, zip or download of it holds a private row.
"""

import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.common.row_files import both_write, first_and_all, parquet_write, scratch_file
from apps.labeling.models import Comparison
from apps.labeling.selectors import image_looks, pool_of
from apps.snapshots import progress
from apps.snapshots.assembling.gate import Proof, prove, require_clean
from apps.snapshots.assembling.material import BY_RULING, Assembly, SplitLine
from apps.snapshots.assembling.rows import Row, Texts, preference_rows, unpaired_rows
from apps.snapshots.display import card_facts, labels_words
from apps.snapshots.formats import Shape
from apps.snapshots.formats.card import Folder, card_text
from apps.snapshots.formats.folder import FORMAT, write_folder
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import KTO, PRIVATE_SPLITS, SOFT, SnapshotRecipe
from apps.snapshots.selectors import snapshots
from apps.snapshots.services.gathering import ruling_facts, vote_facts
from apps.snapshots.storage import (
    NameOf,
    artifact_store,
    dataset_key,
    names_under,
    private_folder_of,
    scratch,
)
from workers.artifacts import MANIFEST

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
    texts, cast_at = snapshots.texts_of(kept), snapshots.votes_cast_at(deciding)
    cast_by = snapshots.votes_cast_by(deciding) if recipe.name_annotators else None
    files = {
        name: rows_written(lines, assembly, texts, recipe, cast_at, cast_by, name_of)
        for name, lines in assembly.lines.items()
    }
    unpaired = recipe.ties == KTO
    about = {
        "kind": str(snapshot.kind),
        "title": "Single answers, desirable or not" if unpaired else "Preference pairs",
        **asdict(snapshots.provenance(pairs=kept, votes=deciding)),
        "pool": pool_of(project=snapshot.project, voters=snapshots.voters(deciding)),
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
    lines: Sequence[SplitLine],
    assembly: Assembly,
    texts: Mapping[int, Texts],
    recipe: SnapshotRecipe,
    votes_at: Mapping[int, datetime],
    cast_by: Mapping[int, tuple[int, str]] | None,
    name_of: NameOf,
) -> list[Row]:
    """The rows of one file in the form that the tie policy asks for; all files have one another's
    columns."""
    recur = bool(assembly.counts["texts_recur"])
    drawn = "slices" in assembly.counts
    if recipe.ties == KTO:
        single = unpaired_rows(
            lines, assembly.pairs, texts, texts_recur=recur, drawn=drawn, name_of=name_of
        )
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
            drawn=drawn,
            votes_at=votes_at,
            cast_by=cast_by,
            name_of=name_of,
        )
    )


def card_of(
    about: dict[str, Any], recipe: dict[str, Any], counts: dict[str, Any]
) -> dict[str, Any]:
    numbers = {name: value for name, value in counts.items() if name != "warnings"}
    said = {
        "format": FORMAT,
        "recipe": recipe,
        "counts": numbers,
        "warnings": counts["warnings"],
        **about,
    }
    words = labels_words(said)
    return said | ({"labels": words} if words else {})


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
        looks=image_looks(project=project),
    )
    require_clean(proof)
    return proof


# A dataset as one zip: a folder that `datasets.load_dataset` reads as it is.

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of zip: equal content, equal bytes


def frozen_zipped(snapshot: Snapshot, files: Sequence[dict[str, Any]], stem: str) -> IO[bytes]:
    """The frozen tree, byte for byte, with its manifest; `ArtifactError` when it is not that."""
    store = artifact_store()
    hashes = {entry["name"]: entry["sha256"] for entry in files} | {MANIFEST: snapshot.sha256}
    with ExitStack() as closing:
        file = closing.enter_context(scratch_file())
        with zipfile.ZipFile(file, "w") as archive:
            for name, sha256 in hashes.items():
                content = store.read_bytes(f"{snapshot.uri}/{name}", sha256=sha256)
                archive.writestr(_entry(f"{stem}/{name}"), content)
        file.seek(0)
        closing.pop_all()  # whoever sends it closes it
    return file


def folder_zipped(
    snapshot: Snapshot,
    shape: Shape,
    stem: str,
    *,
    splits: Sequence[str],
    read: Callable[[Snapshot, str, Shape], Iterable[Row]],
    schema: Callable[[Snapshot, str, Shape], pa.Schema],
    removed: Mapping[str, int] | None = None,
) -> IO[bytes]:
    """Another form of it: JSON Lines and Parquet of every split that has rows, with a card.
    removed: what looked like personal data by split, counted while `read` is read."""
    with ExitStack() as closing:
        file = closing.enter_context(scratch_file())
        rows: dict[str, int] = {}
        columns = pa.schema([])
        with zipfile.ZipFile(file, "w") as archive:
            for split in splits:
                found = first_and_all(read(snapshot, split, shape))
                if found is None:
                    continue
                fields = schema(snapshot, split, shape)
                columns = columns if len(columns) else fields
                rows[split] = _split_write(
                    archive, stem, split, found, fields, lines_too=not shape.binary
                )
            if not rows:
                raise Missing(
                    f"No split has a row in this form ({shape.title}).", code="empty_export"
                )
            card = frozen_card(snapshot)
            if removed is not None:
                card = card | {"personal_data_removed": dict(removed)}
            folder = folder_of(snapshot, shape, card, rows, columns)
            archive.writestr(_entry(f"{stem}/README.md"), card_text(folder))
            about = card | {"form": shape.key, "form_rows": rows, "made_from": _origin(snapshot)}
            archive.writestr(
                _entry(f"{stem}/card.json"),
                json.dumps(about, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
            )
        file.seek(0)
        closing.pop_all()
    return file


def _split_write(
    archive: zipfile.ZipFile,
    stem: str,
    split: str,
    rows: Iterable[Row],
    schema: pa.Schema,
    *,
    lines_too: bool,
) -> int:
    with scratch_file() as table:
        if not lines_too:
            n = parquet_write(rows, schema, table)
        else:
            with archive.open(_entry(f"{stem}/{split}.jsonl"), "w") as lines:
                n = both_write(rows, schema, lines=lines, table=table)
        table.seek(0)
        with archive.open(_entry(f"{stem}/parquet/{split}.parquet"), "w") as target:
            shutil.copyfileobj(table, target)
    return n


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIRST_DAY)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def frozen_card(snapshot: Snapshot) -> dict[str, Any]:
    """card.json as frozen."""
    return json.loads(artifact_store().read_bytes(f"{snapshot.uri}/card.json"))


def folder_of(
    snapshot: Snapshot,
    shape: Shape,
    card: dict[str, Any],
    rows: dict[str, int],
    schema: pa.Schema,
) -> Folder:
    """What the card of this form says."""
    origin = _origin(snapshot)
    return Folder(
        title=f"{snapshot.name}: {shape.title}",
        kind=snapshot.kind,
        form=f"{shape.purpose} Computed from the frozen dataset {origin['snapshot']}, whose "
        f"manifest has the SHA-256 {origin['sha256']}; `card.json` holds its recipe, what was left "
        "out and why.",
        splits=rows,
        columns=schema.names,
        schema=schema,
        licences=card.get("licences", []),
        languages=card.get("languages") or languages_of(snapshot),
        warnings=card.get("warnings", []),
        facts=card_facts(card),
        labelled_by=card.get("labelled_by", {}),
    )


def languages_of(snapshot: Snapshot) -> list[str]:
    """Of the prompts behind its rows, for datasets whose card does not say; none where imports did
    not."""
    pairs = snapshot.rows.exclude(split="").values("comparison")
    found = Comparison.objects.filter(pk__in=pairs).values_list("prompt__language", flat=True)
    return sorted(set(found.distinct()) - {""})


def _origin(snapshot: Snapshot) -> dict[str, str]:
    return {"snapshot": snapshot.pk, "sha256": snapshot.sha256}
