"""Bringing comparisons in: all rows or none, each once, thousands a second."""

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.models import Project
from apps.accounts.services import audit_record
from apps.common.errors import DomainError
from apps.common.json_limits import storable
from apps.common.locks import lock_held
from apps.common.refusals import explain
from apps.common.registry import dataset_maker
from apps.common.transactions import WORTH_IT, plans_renew
from apps.labeling import dispatch
from apps.labeling.formats.layouts import in_own_words
from apps.labeling.models import (
    Comparison,
    ImportJob,
    LabelingSettings,
    Prompt,
    Response,
    Slot,
    Task,
)
from apps.labeling.selectors import settings_get
from apps.labeling.services.images import RowImages
from apps.labeling.services.import_checks import WARNINGS, Scans, rows_read
from apps.labeling.services.import_votes import votes_import
from apps.labeling.services.imports import (
    Progress,
    Stopped,
    batch_of,
    file_delete,
    file_local,
    file_parsed,
    folder_of,
    kept,
    read_as,
    store,
)
from apps.labeling.services.loading import ComparisonRow, Load
from apps.labeling.services.notices import work_tell
from apps.labeling.services.projects import labeling_set_up
from apps.labeling.services.results import ImportReport, RowProblem, RowsRefused, VotesReport
from apps.labeling.services.task_rows import tasks_import
from apps.labeling.services.undoing import import_take_back
from measures.bootstrap import LEAST_UNITS
from measures.phrases import Phrases
from measures.splits import assign_splits

MOST_BLIND_VOTES = 20  # of a blind pair, whatever a decision takes here


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
    blind: bool = False,
    tell: bool = True,
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
    blind: they become blind pairs, known by their id alone. tell: those who label, that there is
    work.

    Raises `RowsRefused`, which lists every bad row and field, and then nothing is imported; with
    on_error="skip" the good rows are, and the report lists the bad ones.
    """
    started = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        settings = _settings(project, lock=not dry_run)
        good, problems, warnings, n_rows = rows_read(
            rows,
            max_overlap=MOST_BLIND_VOTES if blind else settings.max_overlap,
            identical_answers=identical_answers,
            scans=replace(scans or Scans(), phrases=Phrases(settings.constraint_phrases)),
            numbers=numbers,
            progress=progress,
            images=RowImages(project, writes=not dry_run),
        )
        load = Load(cursor, project, batch, seed, settings, blind=blind)
        fresh = load.unknown_only(good, problems, warnings)
        if problems and on_error == "refuse" and not dry_run:
            raise RowsRefused(sorted(problems, key=lambda p: p.row), n_rows=n_rows)
        if not dry_run:
            load.write(fresh)
            if tell and any(row.stratum != Comparison.Stratum.PRACTICE for row in fresh):
                work_tell(project, len(fresh))
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


# A file's rows, converted and sorted by what becomes of them; and the words of a report.

MOST_ROWS = 300_000  # comparisons of one import: they are held in memory and go in together
MOST_PROBLEMS = 100_000
MOST_VOTES = 3_000_000
SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}
_SALT = "0"  # of the draw shown here; a dataset's recipe has its own
_TELL_EVERY = 500


@dataclass(slots=True)
class FileRows:
    """Rows for `comparisons_import` or `tasks_import`, and for `votes_import`, each with its place
    in the file."""

    comparisons: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    votes: list[dict[str, Any]] = field(default_factory=list)
    vote_numbers: list[int] = field(default_factory=list)
    problems: list[RowProblem] = field(default_factory=list)
    mapping: dict[str, str] = field(default_factory=dict)
    n_records: int = 0

    @property
    def of_tasks(self) -> bool:
        """Whether a row is all answers to a prompt; a file's rows are of one sort."""
        return bool(self.comparisons) and "responses" in self.comparisons[0]

    def in_own_words(self, problems: Iterable[RowProblem]) -> list[RowProblem]:
        """Problems with the file's own columns in place of our fields."""
        return [
            RowProblem(p.row, *in_own_words(p.field, p.message, self.mapping), p.kind)
            for p in problems
        ]


def file_rows(
    values: Iterator[dict[str, Any]],
    *,
    progress: Callable[[int], None] | None = None,
    recognised: Callable[[dict[str, Any]], None] | None = None,
) -> FileRows:
    """Take all that the reader of a file yields (`formats.layouts.rows`)."""
    head = next(values)
    if recognised:
        recognised(head)
    found = FileRows(mapping=head["mapping"])
    shared: dict[str, str] = {}
    pairs = _Pairs()
    for value in values:
        number = value["row"]
        if number != found.n_records:
            found.n_records = number
            shared.clear()
            if progress and number % _TELL_EVERY == 0:
                progress(number)
        if "fault" in value:
            field_name, message = value["fault"]
            problem = RowProblem(number, field_name, storable(message))
            found.problems += found.in_own_words([problem])
            _few_enough(found)
            continue
        if pairs.add(value):
            found.comparisons.append(_sharing(value["comparison"], shared))
            found.numbers.append(number)
        found.votes += value["votes"]
        found.vote_numbers += [number] * len(value["votes"])
        _few_enough(found)
    return found


class _Pairs:
    """Comparisons of a file whose rows are votes: rows with the same texts are one comparison.

    Which answer is A goes by the hash of the texts: rows and files agree on it, whatever their
    order.
    """

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # by the digest of all texts

    def add(self, value: dict[str, Any]) -> bool:
        """Whether the comparison is new; its vote names it."""
        row, votes = value["comparison"], value["votes"]
        if not votes or votes[0]["comparison"] is not None:
            return True
        prompt, a, b = (_digest(row.get(name)) for name in ("prompt", "response_a", "response_b"))
        texts = _digest([prompt, *sorted((a, b))])
        new = texts not in self._ids
        name = self._ids.setdefault(texts, str(row.get("id") or f"pair-{texts[:16]}"))
        if a > b:
            value["comparison"] = row = {_mirrored(key): entry for key, entry in row.items()}
        row["id"] = name
        for vote in votes:
            vote["comparison"] = name
            if a > b and vote["choice"] in ("a", "b"):
                vote["choice"] = "b" if vote["choice"] == "a" else "a"
        return new


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _mirrored(name: str) -> str:
    """`response_a` for `response_b`, and the other way round."""
    return name[:-1] + {"a": "b", "b": "a"}[name[-1]] if name[-2:] in ("_a", "_b") else name


def _sharing(row: dict[str, Any], shared: dict[str, str]) -> dict[str, Any]:
    """The pairs of one record repeat its texts; each is held once."""
    return {
        name: shared.setdefault(value, value) if isinstance(value, str) else value
        for name, value in row.items()
    }


def _few_enough(found: FileRows) -> None:
    if len(found.comparisons) > MOST_ROWS:
        raise DomainError(
            f"The file holds more than {MOST_ROWS:,} comparisons. Split it, or take fewer "
            "pairs of each prompt's answers.",
            code="too_many_rows",
            field="file",
        )
    if len(found.problems) > MOST_PROBLEMS:
        raise DomainError(
            f"More than {MOST_PROBLEMS:,} rows of the file cannot be read; the last is row "
            f"{found.n_records:,}: {found.problems[-1].message[:200]}.",
            code="too_many_problems",
            field="file",
        )
    if len(found.votes) > MOST_VOTES:
        raise DomainError(
            f"The file holds more than {MOST_VOTES:,} existing annotations. Split it.",
            code="too_many_votes",
            field="file",
        )


def file_import(*, project: Project, found: FileRows, **options: Any) -> ImportReport:
    """`comparisons_import` of a file's rows, or `tasks_import` where they are tasks of several
    answers; what is wrong with them in the file's own words."""
    if found.of_tasks:
        load: Callable[..., ImportReport] = tasks_import
        options = {k: v for k, v in options.items() if k not in ("seed", "identical_answers")}
    else:
        load = comparisons_import
    try:
        report = load(project=project, rows=found.comparisons, numbers=found.numbers, **options)
    except RowsRefused as refused:
        problems = found.in_own_words(refused.problems)
        raise RowsRefused(problems, n_rows=refused.n_rows) from None
    report.problems = found.in_own_words(report.problems)
    report.warnings = found.in_own_words(report.warnings)
    return report


def report_of(found: FileRows, report: ImportReport, *, max_overlap: int) -> dict[str, Any]:
    """What a check or an import found, in numbers, as a page and a program read it."""
    problems = found.problems + report.problems
    return {
        "n_records": found.n_records,
        "n_comparisons": len(found.comparisons),
        "kind": found.comparisons[0]["kind"] if found.of_tasks else Task.Kind.PAIR.value,
        "n_created": report.n_created,
        "n_unchanged": report.n_unchanged,
        "n_refused": len({p.row for p in problems}),
        "n_review": report.n_review,
        "n_prompts": report.n_prompts,
        "n_responses": report.n_responses,
        "n_slots": report.n_slots,
        "warnings": warning_counts(report.warnings),
        "splits": splits_of(report.groups),
        "n_recurring": report.n_recurring,
        "votes": votes_expected(found, max_overlap) if found.votes else {},
        "seconds": round(report.seconds, 2),
    }


def warning_counts(warnings: list[RowProblem]) -> dict[str, int]:
    """Rows with each kind of warning, in the order of WARNINGS."""
    counts = Counter(kind for _, kind in {(w.row, w.kind) for w in warnings})
    return {kind: counts[kind] for kind in WARNINGS if counts[kind]}


def splits_of(groups: Counter[str]) -> dict[str, Any]:
    """How the new rows would fall into splits: whole groups, by the hash of their key."""
    if not groups:
        return {}
    keys = list(groups)
    assigned = assign_splits(keys, SHARES, _SALT)
    rows: Counter[str] = Counter()
    for key, split in zip(keys, assigned.splits, strict=True):
        rows[split] += groups[key]
    return {
        "n_groups": len(keys),
        "largest": max(groups.values()),
        "parts": [
            {"split": s, "share": SHARES[s], "groups": assigned.n_groups[s], "rows": rows[s]}
            for s in SHARES
        ],
        "warnings": [
            f"split {s!r} has too few groups: {assigned.n_groups[s]} of the {LEAST_UNITS} that an "
            "interval needs"
            for s in assigned.few
        ],
    }


def votes_expected(found: FileRows, max_overlap: int) -> dict[str, Any]:
    """Past votes of the file: how many, by how many people, and how many comparisons take more of
    them than the project's maximum, which is raised for those alone."""
    by_pair = Counter(str(vote.get("comparison")) for vote in found.votes)
    return {
        "n_votes": len(found.votes),
        "n_people": len({str(vote.get("annotator")) for vote in found.votes}),
        "n_raised": sum(n > max_overlap for n in by_pair.values()),
        "most": max(by_pair.values()),
        "max_overlap": max_overlap,
    }


def votes_result(report: VotesReport, expected: dict[str, Any]) -> dict[str, Any]:
    return {name: expected[name] for name in ("n_raised", "most", "max_overlap")} | {
        "n_votes": report.n_rows,
        "n_created": report.n_created,
        "n_unchanged": report.n_unchanged,
        "n_refused": report.n_refused,
        "n_people": report.n_people,
    }


# A worker's part of an import: claim the job, check the file or bring it in, say how it ended.
#
# Comparisons go in by one transaction that also ends the attempt when there are no votes: a worker
# that is killed leaves none of them. Past votes follow in transactions of 2,000; an import that
# ends among them is `interrupted` and continues from there when it is started again, since rows
# that are there already change nothing. While it works, a connection of its own holds an advisory
# lock; when the process dies, the database lets go of it and `import_jobs_sweep` sees a running job
# that nobody runs.

log = logging.getLogger(__name__)
RESEND_AFTER = timedelta(seconds=20)  # a queued job that nobody has taken is offered again
KEEP_FILE = timedelta(days=7)  # of an import that was not finished; a finished one's goes at once
State, Stage = ImportJob.State, ImportJob.Stage


def import_job_run(*, job: str) -> str:
    """Do what the job is queued for; returns its state afterwards. Harmless to call twice."""
    found = ImportJob.objects.select_related("project", "created_by").get(pk=job)
    with lock_held("%s", [found.number]) as free:
        if not free or not _claim(found):
            return ImportJob.objects.values_list("state", flat=True).get(pk=job)
        progress = Progress(found.pk, found.attempt)
        try:
            _work(found, progress)
        except Stopped as stop:
            if stop.cancelled:
                _end(found, State.CANCELLED)
        except DomainError as error:
            _end(found, State.FAILED, error=storable(error.message))
        except Exception as error:
            log.exception("%s of %s", found.stage, job)
            known = explain(error)
            own = f"An error of Concord's own stopped it ({type(error).__name__}); it is logged."
            words = known.message if known else own
            _end(found, State.FAILED, error=words)
        finally:
            progress.forget()
    return ImportJob.objects.values_list("state", flat=True).get(pk=job)


def is_running(number: int) -> bool:
    """Whether some worker's connection holds the job's lock."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select pg_try_advisory_xact_lock(%s)", [number])
        return not cursor.fetchone()[0]


def _claim(job: ImportJob) -> bool:
    """Queued becomes running, with the next attempt's number; False where it is not queued."""
    taken = ImportJob.objects.filter(pk=job.pk, state=State.QUEUED, attempt=job.attempt).update(
        state=State.RUNNING,
        attempt=job.attempt + 1,
        started_at=timezone.now(),
        ended_at=None,
        error="",
    )
    job.attempt += 1
    job.refresh_from_db(fields=["stage", "settings", "cancel_wanted", "brought"])
    return bool(taken)


def _work(job: ImportJob, progress: Progress) -> None:
    if job.stage == Stage.UNDO:
        import_take_back(job, progress)
        return
    with file_local(job) as path, file_parsed(path, read_as(job)) as values:
        progress.tell("Reading the file")
        found = file_rows(values, progress=lambda n: progress.tell("Reading the file", n))
    if job.makes != ImportJob.Makes.COMPARISONS:
        _dataset(job, found, progress)
    elif job.stage == Stage.CHECK:
        _check(job, found, progress)
    else:
        _import(job, found, progress)


def _dataset(job: ImportJob, found: FileRows, progress: Progress) -> None:
    """Rows of a dataset: checked, or frozen in the transaction that ends the attempt, so that a
    worker that is killed leaves none."""
    checking = job.stage == Stage.CHECK

    def finish(result: dict[str, Any]) -> None:
        if not _end(job, State.DONE, result=result):
            raise Stopped(cancelled=False)

    make = dataset_maker()
    report, problems = make(
        job=job, found=found, tell=progress.tell, finish=None if checking else finish
    )
    _findings_write(job, found.problems + found.in_own_words(problems), [])
    if checking:
        _end(job, State.DONE, check_report=report)
    else:
        file_delete_upload(job)


def _check(job: ImportJob, found: FileRows, progress: Progress) -> None:
    report = _comparisons(job, found, progress, dry_run=True)
    most = settings_get(project=job.project).max_overlap
    _findings_write(job, found.problems + report.problems, report.warnings)
    _end(job, State.DONE, check_report=report_of(found, report, max_overlap=most))


def _import(job: ImportJob, found: FileRows, progress: Progress) -> None:
    refuse = job.settings.get("on_error", "refuse") == "refuse"
    if refuse and found.problems:  # the check has written them all down
        raise RowsRefused(found.problems, n_rows=found.n_records)
    with transaction.atomic():
        report = _comparisons(job, found, progress, dry_run=False)
        most = settings_get(project=job.project).max_overlap
        result = report_of(found, report, max_overlap=most)
        for name in _BROUGHT:
            result[name] += job.brought.get(name, 0)
        result["n_unchanged"] -= job.brought.get("n_created", 0)
        if found.votes:
            _brought(job, {name: result[name] for name in _BROUGHT})
        else:
            _finish(job, result)
    vote_problems: list[RowProblem] = []
    if found.votes:
        vote_problems = _votes(job, found, progress, result)
        with transaction.atomic():
            _finish(job, result)
    _findings_write(job, found.problems + report.problems + vote_problems, report.warnings)
    file_delete_upload(job)


def _comparisons(
    job: ImportJob, found: FileRows, progress: Progress, *, dry_run: bool
) -> ImportReport:
    total = len(found.comparisons)

    def tell(n: int) -> None:
        step = "Checking the rows" if n < total else "Writing the rows"
        progress.tell(step, n, total)

    progress.tell("Checking the rows", 0, total)
    return file_import(
        project=job.project,
        found=found,
        batch=batch_of(job),
        seed=int(job.settings.get("seed", 0)),
        on_error=job.settings.get("on_error", "refuse"),
        identical_answers=job.settings.get("identical_answers", "refuse"),
        dry_run=dry_run,
        progress=tell,
    )


def _votes(
    job: ImportJob, found: FileRows, progress: Progress, result: dict[str, Any]
) -> list[RowProblem]:
    """Past votes, those that cannot be imported left out and reported by their row in the file."""

    def tell(done: int, total: int) -> None:
        if not done and "n_votes" not in job.brought:
            _brought(job, {"n_votes": total})
        progress.tell("Writing existing annotations", done, total)

    report = votes_import(
        project=job.project,
        rows=found.votes,
        on_error="skip",
        make_room=True,
        progress=tell,
    )
    result["votes"] = votes_result(report, result["votes"])
    earlier = job.brought["n_votes"] - report.n_created
    result["votes"]["n_created"] += earlier
    result["votes"]["n_unchanged"] -= earlier
    return [
        RowProblem(found.vote_numbers[p.row - 1], f"vote {p.field}", p.message)
        for p in report.problems
    ]


_BROUGHT = ("n_created", "n_prompts", "n_responses", "n_slots")


def _brought(job: ImportJob, more: dict[str, int]) -> None:
    """Note what this attempt writes, for the report of the one that ends the import."""
    job.brought |= more
    ImportJob.objects.filter(pk=job.pk, attempt=job.attempt).update(brought=job.brought)


def _finish(job: ImportJob, result: dict[str, Any]) -> None:
    """Inside the import's own transaction: what is written and that it was, together or not."""
    if not _end(job, State.DONE, result=result):
        raise Stopped(cancelled=False)
    audit_record(
        action="comparisons.imported",
        actor=job.created_by,
        project=job.project,
        subject=job.pk,
        details={"file": job.file_name, "sha256": job.file_sha256}
        | {k: result[k] for k in ("n_created", "n_unchanged", "n_refused", "n_review")},
    )


def _end(job: ImportJob, state: str, **more: Any) -> bool:
    """The attempt's outcome; False when another attempt has taken its place. An undo that failed
    or was cancelled leaves a finished import."""
    more = {"state": state, "ended_at": timezone.now(), "updated_at": timezone.now()} | more
    if job.stage == Stage.UNDO and state in (State.FAILED, State.CANCELLED):
        more |= kept(job)
    running = ImportJob.objects.filter(pk=job.pk, attempt=job.attempt, state=State.RUNNING)
    return bool(running.update(**more))


def _findings_write(job: ImportJob, errors: list[RowProblem], warnings: list[RowProblem]) -> None:
    """Everything that was found, a JSON line each, errors first."""
    lines = [{"level": "error"} | p.as_dict() for p in sorted(errors, key=lambda p: p.row)]
    lines += [{"level": "warning", "kind": p.kind} | p.as_dict() for p in warnings]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    store().write_bytes(f"{folder_of(job)}/findings.jsonl", text.encode())


def file_delete_upload(job: ImportJob) -> None:
    """The upload goes once its rows are in; what was found in it stays for KEEP_FILE."""
    store().delete_tree(f"{folder_of(job)}/upload")
    ImportJob.objects.filter(pk=job.pk).update(file_deleted_at=timezone.now())


def import_jobs_sweep() -> int:
    """Every few seconds: name what was cut off, offer again what nobody took, delete old files.

    Returns how many jobs it touched.
    """
    now, touched = timezone.now(), 0
    for job in ImportJob.objects.filter(state=State.RUNNING):
        if not is_running(job.number):
            touched += _end(job, State.CANCELLED if job.cancel_wanted else State.INTERRUPTED)
    for job in ImportJob.objects.filter(state=State.QUEUED, queued_at__lt=now - RESEND_AFTER):
        ImportJob.objects.filter(pk=job.pk, state=State.QUEUED).update(queued_at=now)
        touched += dispatch.import_send(job.pk)
    old = ImportJob.objects.filter(updated_at__lt=now - KEEP_FILE, file_deleted_at__isnull=True)
    for job in old.exclude(state__in=(State.QUEUED, State.RUNNING)):
        file_delete(job)
        ImportJob.objects.filter(pk=job.pk).update(file_deleted_at=now)
        touched += 1
    return touched
