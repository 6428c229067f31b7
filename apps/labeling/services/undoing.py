"""Taking an import, or what else came as one batch, back: all it brought, or nothing.

A small one goes within the request, a large one by a worker (`importing.import_job_run`). From the
request on nobody is handed a pair of it (`models.CLOSED_IDS`). Then one transaction locks its
places and comparisons, looks for votes and deletes: a vote that was there first keeps the import,
one that comes later waits for the lock and finds no pair. A worker that is killed leaves everything
as it was and the job `interrupted`, to be undone again or kept.
"""

from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict
from apps.common.transactions import columns_named
from apps.labeling import dispatch
from apps.labeling.models import ImportJob, LabelingSettings, PairSelection, Task
from apps.labeling.services.imports import Progress, Stopped, batch_of, close, move

# ruff: noqa: S608

SMALL = 1_000  # comparisons that go within the request: about a third of a second
_PART = 2_000  # comparisons between two notifications
State, Stage = ImportJob.State, ImportJob.Stage


def import_job_undo(*, job: ImportJob, by: User) -> bool:
    """Take back what an import brought, its past votes included. Also continues an undo that was
    interrupted. False: Redis is away and a large one starts later.

    Errors: `Conflict` with code `import_not_done`, `import_voted` once somebody has voted on one of
    its comparisons, or `import_used` once something else refers to one: a frozen dataset, a ruling,
    a qualification, a judge's verdict; a large import says so on its row. A pair in somebody's
    hands goes with it; their answer counts nowhere.
    """
    if job.makes != ImportJob.Makes.COMPARISONS:
        raise Conflict("A dataset is immutable, so its import stays.", code="import_not_undone")
    with transaction.atomic():
        found = ImportJob.objects.select_for_update().get(pk=job.pk)
        done = (found.stage, found.state) == (Stage.IMPORT, State.DONE)
        if not done and (found.stage, found.state) != (Stage.UNDO, State.INTERRUPTED):
            raise Conflict("Only a finished import can be undone.", code="import_not_done")
        rows = Task.objects.filter(project=found.project_id, batch=batch_of(found))
        mine = ImportJob.objects.filter(project=found.project_id)
        busy = mine.filter(stage=Stage.IMPORT, state=State.RUNNING)  # it would wait for its end
        if rows[SMALL:].exists() or busy.exists():
            close(found, not_for_all=True)
            move(
                found,
                of=(State.DONE, State.INTERRUPTED),
                stage=Stage.UNDO,
                state=State.QUEUED,
                undo_by=by,
                queued_at=timezone.now(),
                cancel_wanted=False,
                error="",
            )
        else:
            found.undo_by = by
            _take_back(found, None)
            _undone(found)
    job.refresh_from_db()
    return job.state != State.QUEUED or dispatch.import_send(job.pk)


def import_take_back(job: ImportJob, progress: Progress) -> None:
    """A worker's part, in one transaction. Raises what `import_job_undo` does, and Stopped."""
    progress.tell("Waiting for votes in hand")
    with transaction.atomic():
        job.refresh_from_db()
        _take_back(job, progress)
        progress.tell("Ending")  # the last moment to cancel
        if not _undone(job):
            raise Stopped(cancelled=False)


def _undone(job: ImportJob) -> bool:
    """Says so on its row, unless another attempt has taken this one's place."""
    of_this = ImportJob.objects.filter(pk=job.pk, state=job.state, attempt=job.attempt)
    return bool(
        of_this.update(
            stage=Stage.IMPORT,
            state=State.UNDONE,
            undo_by=job.undo_by,
            ended_at=timezone.now(),
            updated_at=timezone.now(),
            first_comparison=None,
            last_comparison=None,
            error="",
        )
    )


def batch_take_back(*, project: Project, batch: str) -> int:
    """Delete the comparisons of a batch that no file import brought; how many there were. Errors:
    `Conflict` as of `import_job_undo`, and then all of them stay."""
    with transaction.atomic():
        gone = _batch_delete(project.pk, batch, 0, None)["comparisons"]
        PairSelection.objects.filter(project=project, batch=batch).delete()
        return gone


def _take_back(job: ImportJob, progress: Progress | None) -> None:
    votes = job.result.get("votes", {})
    own = votes.get("n_created", 0) + votes.get("n_unchanged", 0)
    gone = _batch_delete(job.project_id, batch_of(job), own, progress)
    audit_record(
        action="import.undone",
        actor=job.undo_by,
        project=job.project,
        subject=job.pk,
        details={"file": job.file_name} | gone,
    )


def _batch_delete(
    project: str, batch: str, own_votes: int, progress: Progress | None
) -> dict[str, int]:
    """{what: rows deleted}. `own_votes`: imported votes that came with the batch."""
    values: dict[str, Any] = {"project": project, "batch": batch}
    # As for an import: its row keeps another import from using a prompt that goes.
    list(LabelingSettings.objects.select_for_update(no_key=True).filter(project=project))
    with connection.cursor() as cursor:
        # Waits for votes that are being cast; who comes later finds no slot.
        cursor.execute(_LOCK, values)
        rows = columns_named(cursor)
        _votes_check(cursor, own_votes, list(rows["id"]))
        try:
            with transaction.atomic():
                gone = _delete(cursor, values, rows, progress)
                cursor.execute("set constraints all immediate")
        except IntegrityError:
            raise Conflict(
                "Its comparisons are in use: in a frozen dataset, a ruling, a qualification or a "
                "judge's verdicts. It can no longer be undone; comparisons can be dropped one by "
                "one.",
                code="import_used",
            ) from None
    return gone


def _votes_check(cursor: CursorWrapper, own: int, ids: list[int]) -> None:
    cursor.execute(_VOTES, {"ids": ids})
    by_people, imported = cursor.fetchone()
    if by_people or imported > own:
        raise Conflict(
            f"{by_people or imported - own:,} votes were added since, so it can no longer be "
            "undone. Comparisons can be dropped one by one.",
            code="import_voted",
        )


def _delete(
    cursor: CursorWrapper,
    values: dict[str, Any],
    rows: dict[str, tuple[Any, ...]],
    progress: Progress | None,
) -> dict[str, int]:
    """{what: rows deleted}, in parts, for the progress shown."""
    total = len(rows["id"])
    gone = dict.fromkeys(_UNDO, 0)
    for start in range(0, total, _PART):
        if progress is not None:
            progress.tell("Deleting the comparisons", start, total)
        end = start + _PART
        part = values | {
            "ids": list(rows["id"][start:end]),
            "prompts": list(rows["prompt_id"][start:end]),
            "responses": [r for answers in rows["responses"][start:end] for r in answers],
        }
        for name, statement in _UNDO.items():
            cursor.execute(statement, part)
            gone[name] += cursor.rowcount
    cursor.execute(_FACET, values)
    return gone


# What refers to the comparisons of an import from elsewhere is found by the foreign keys.

_LOCK = """
with slots as materialized (
  select s.task_id from labeling_slot s join labeling_task c on c.id = s.task_id
  where c.project_id = %(project)s and c.batch = %(batch)s
  order by s.id for update of s
), waited as materialized (select count(*) as n from slots)
select c.id, c.prompt_id, array_remove(array[c.response_a_id, c.response_b_id], null)
       || array(select i.response_id from labeling_taskitem i where i.task_id = c.id) as responses
from labeling_task c, waited
where c.project_id = %(project)s and c.batch = %(batch)s and waited.n >= 0
order by c.id for update of c
"""
_OF_IMPORT = "(select unnest(%(ids)s::bigint[]))"
_VOTES = f"""
select count(*) filter (where source <> 'import'), count(*) filter (where source = 'import')
from labeling_answer where task_id in {_OF_IMPORT}
"""
_FACET = """
delete from labeling_facet
where project_id = %(project)s and kind = 'batch' and value = %(batch)s
"""
# Prompts and answers go where nothing else shows them.
_UNDO = {
    "votes": f"delete from labeling_answer where task_id in {_OF_IMPORT}",
    "slots": f"delete from labeling_slot where task_id in {_OF_IMPORT}",
    "skips": f"delete from labeling_skip where task_id in {_OF_IMPORT}",
    "decisions": f"delete from labeling_decision where comparison_id in {_OF_IMPORT}",
    "answers": f"delete from labeling_taskitem where task_id in {_OF_IMPORT}",
    "comparisons": f"delete from labeling_task where id in {_OF_IMPORT}",
    "responses": """
with gone as (
  delete from labeling_response r
  where r.id in (select unnest(%(responses)s::bigint[]))
    and not exists (select from labeling_comparison c where c.prompt_id = r.prompt_id
                    and r.id in (c.response_a_id, c.response_b_id))
    and not exists (select from labeling_taskitem i where i.response_id = r.id)
    and not exists (select from labeling_vote v join labeling_comparison c on c.id = v.comparison_id
                    where c.prompt_id = r.prompt_id and v.improvement_id = r.id)
  returning id
), results as (delete from labeling_toolresult t using gone where t.response_id = gone.id)
select from gone""",
    "prompts": """
with gone as (
  delete from labeling_prompt p
  where p.id in (select unnest(%(prompts)s::bigint[]))
    and not exists (select from labeling_task t where t.prompt_id = p.id)
    and not exists (select from labeling_writtentext w where w.made_prompt_id = p.id)
    and not exists (select from labeling_response r where r.prompt_id = p.id)
  returning id
), results as (delete from labeling_toolresult t using gone where t.prompt_id = gone.id)
select from gone""",
}
