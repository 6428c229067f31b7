"""Bringing comparisons in: all rows or none, each once, thousands a second."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from django.db import connection, transaction

from apps.accounts.models import Project
from apps.common.planning import WORTH_IT, plans_renew
from apps.labeling.models import Comparison, LabelingSettings, Prompt, Response, Slot
from apps.labeling.selectors import settings_get
from apps.labeling.services.loading import Load
from apps.labeling.services.oddities import Scans
from apps.labeling.services.projects import labeling_set_up
from apps.labeling.services.reading import rows_read
from apps.labeling.services.results import ImportReport, RowsRefused
from apps.labeling.services.rows import ComparisonRow
from measures.phrases import Phrases


def comparisons_import(
    *,
    project: Project,
    rows: Iterable[Mapping[str, Any]],
    batch: str = "",
    seed: int = 0,
    on_error: Literal["refuse", "skip"] = "refuse",
    identical_answers: Literal["refuse", "warn"] = "refuse",
    scans: Scans | None = None,
    dry_run: bool = False,
    numbers: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Import comparisons with their prompts, responses and slots, in one transaction.

    Row fields: prompt, response_a, response_b (a text or a list of messages; required); id (unique
    in the project); group or topic (what splits go by), language, source, licence; gold (a, b, tie,
    both_bad); origin (import, human, model, edit) or origin_a / origin_b with origin_ref_a /
    origin_ref_b (checkpoint, person or file), or model_a / model_b; metadata_a, metadata_b;
    stratum, priority, overlap, metadata. An unknown field is an error.

    Importing a row again changes nothing: by its id, else by its prompt and unordered answers. A
    known id with other texts is an error. Two ids for the same pair are both kept, with a warning.

    seed: the shuffle of the queue is a function of it and the row, so an import is reproducible.
    identical_answers="warn" keeps a pair whose two answers read the same, if their origins differ.
    scans: what texts are looked through for; the project's constraint phrases always are, and a
    pair with one goes to review. dry_run: say what would happen and write nothing.
    numbers: what rows are called in problems. progress: told how many rows have been read.

    Raises `RowsRefused`, which lists every bad row and field, and then nothing is imported; with
    on_error="skip" the good rows are, and the report lists the bad ones.
    """
    started = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        settings = _settings(project, lock=not dry_run)
        good, problems, warnings, n_rows = rows_read(
            rows,
            max_overlap=settings.max_overlap,
            identical_answers=identical_answers,
            scans=replace(scans or Scans(), phrases=Phrases(settings.constraint_phrases)),
            numbers=numbers,
            progress=progress,
        )
        load = Load(cursor, project, batch, seed, settings)
        fresh = load.unknown_only(good, problems, warnings)
        if problems and on_error == "refuse" and not dry_run:
            raise RowsRefused(sorted(problems, key=lambda p: p.row), n_rows=n_rows)
        if not dry_run:
            load.write(fresh)
    if len(fresh) >= WORTH_IT and not dry_run:
        plans_renew(Comparison, Slot, by_key=(Prompt, Response))
    n_refused = n_rows - len(good) + load.n_refused
    return ImportReport(
        n_rows=n_rows,
        n_created=len(fresh),
        n_unchanged=n_rows - len(fresh) - n_refused,
        n_refused=n_refused,
        n_prompts=load.n_prompts,
        n_responses=load.n_responses,
        n_slots=load.n_slots,
        n_review=sum(bool(row.review_reason) for row in fresh),
        n_recurring=_recurring(fresh),
        groups=Counter(row.group for row in fresh),
        seconds=time.perf_counter() - started,
        problems=sorted(problems, key=lambda p: p.row),
        warnings=sorted(warnings, key=lambda p: p.row),
    )


def _recurring(rows: list[ComparisonRow]) -> int:
    """Answers that stand in more than one group, which splits by group would not keep apart."""
    group_of: dict[str, str] = {}
    several: set[str] = set()
    for row in rows:
        for text_hash in (row.a.text_hash, row.b.text_hash):
            if group_of.setdefault(text_hash, row.group) != row.group:
                several.add(text_hash)
    return len(several)


def _settings(project: Project, *, lock: bool) -> LabelingSettings:
    """The project's settings; their row serialises imports into one project."""
    if not lock:
        return settings_get(project=project)
    labeling_set_up(project=project)
    return LabelingSettings.objects.select_for_update(no_key=True).get(project=project)
