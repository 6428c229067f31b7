"""Judges made, asked about pairs, and asked the same again every hour where they are served.

A run answers, and the scheduler takes its verdicts over (`judges_sweep`): in one transaction with
the row that says so, so a process that is killed loses nothing and no verdict is taken twice.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest, one_line
from apps.evaluation.models import (
    Judge,
    JudgeRun,
    JudgeVerdict,
    JudgeVersion,
    LabelCertificate,
)
from apps.evaluation.selectors.judges import (
    Scope,
    due_runs,
    pair_rows,
    pairs_are_units,
    scope_check,
    tasks_in,
    without_verdict,
)
from apps.labeling.models import Task
from apps.monitoring.services.incidents import incident_open
from apps.snapshots.services.pairs import FILE as PAIRS
from apps.snapshots.services.pairs import pairs_freeze
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Checkpoint, Run
from apps.training.services import run_launch
from apps.training.services.kinds import ANSWERING, REWARDS
from apps.training.services.launching import LONGEST_NAME
from measures.judging import preference
from measures.splits import unit_hash
from workers.artifacts import ArtifactError, StoreUnreachable
from workers.config import SettingsError, settings_for
from workers.contract.wire import QUEUE_CPU

log = logging.getLogger(__name__)
Purpose = JudgeRun.Purpose
MOST_PAIRS = 5_000  # asked about in one run
MOST_ATTACKED = 200
SEED = 0
FILE = "verdicts.jsonl"
_LARGEST = 64_000_000  # bytes
_MOST_SAID = 300
PROBED_PAIRS = 8
PROBE_EVERY = timedelta(hours=1)
MOST_MOVED = 0.25  # of the probe's verdicts: a server's rounding moves a few
TRIED_FOR = timedelta(hours=6)  # an error that is nobody's word
RULE = "judge_changed"
# What a run decides for itself, not the version.
_OF_A_RUN = frozenset({"max_pairs", "attacked"})


# --- judges and their versions ---


@transaction.atomic
def judge_make(
    *, project: Project, name: str, model: Checkpoint, config: Mapping[str, Any], user: User
) -> JudgeVersion:
    """A judge and its first version. `DomainError` names the field."""
    name = one_line(name)
    most = longest(Judge, "name")
    if not 0 < len(name) <= most:
        raise DomainError(f"From 1 to {most} characters.", field="name")
    if Judge.objects.filter(project=project, name=name).exists():
        raise Conflict("A judge of this project has that name.", code="name_taken", field="name")
    with connection.cursor() as cursor:  # people's ids: nobody ever has a judge's
        cursor.execute("select nextval(pg_get_serial_sequence('accounts_user', 'id'))")
        (number,) = cursor.fetchone()
    judge = Judge.objects.create(id=number, project=project, name=name, created_by=user)
    made = version_make(judge=judge, model=model, config=config, user=user)
    audit_record(
        action="judge.made",
        actor=user,
        project=project,
        subject=str(judge.pk),
        details={"name": name, "model": model.pk},
    )
    return made


@transaction.atomic
def version_make(
    *,
    judge: Judge,
    model: Checkpoint,
    config: Mapping[str, Any],
    user: User | None,
    note: str = "",
    fingerprint: str = "",
) -> JudgeVersion:
    """The version of this model and configuration: the one there is where nothing differs, else a
    new one without figures. `DomainError` names the field of the configuration."""
    Judge.objects.select_for_update(no_key=True).get(pk=judge.pk)
    config = _config_checked(judge, model, config)
    digest = version_sha256(model, config, fingerprint)
    known = judge.versions.filter(sha256=digest, changed_at__isnull=True).first()
    if known is not None:
        return known
    number = 1 + (judge.versions.order_by("-number").values_list("number", flat=True).first() or 0)
    if judge.versions.filter(sha256=digest).exists():  # its server is what it was before again
        digest = hashlib.sha256(f"{digest} {number}".encode()).hexdigest()
    made = JudgeVersion.objects.create(
        judge=judge,
        number=number,
        model=model,
        config=config,
        sha256=digest,
        fingerprint=fingerprint,
        note=one_line(note)[: longest(JudgeVersion, "note")],
        created_by=user,
    )
    audit_record(
        action="judge.version_made",
        actor=user,
        project=judge.project,
        subject=str(judge.pk),
        details={"name": judge.name, "version": number, "sha256": digest},
    )
    return made


def version_sha256(model: Checkpoint, config: Mapping[str, Any], fingerprint: str) -> str:
    """Of everything that decides what it says."""
    whole = {"model": model.sha256, "config": dict(config), "fingerprint": fingerprint}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _config_checked(judge: Judge, model: Checkpoint, config: Mapping[str, Any]) -> dict[str, Any]:
    if model.project_id != judge.project_id or model.run.kind not in ANSWERING | REWARDS:
        raise DomainError(
            "Choose a reward model, a policy or a served model of this project.",
            code="wrong_model",
            field="model",
        )
    if model.files_removed_at is not None:
        raise Conflict("Its files were removed.", code="files_removed", field="model")
    given = {name: value for name, value in config.items() if name not in _OF_A_RUN}
    try:
        settings = settings_for("judge", given, new=True)
    except SettingsError as error:
        field, _, words = error.errors[0].partition(": ")
        raise DomainError(words or field, code="bad_config", field=field) from None
    # Whole, so that a later default changes no version.
    return {name: value for name, value in asdict(settings).items() if name not in _OF_A_RUN}


@transaction.atomic
def judge_archive(*, judge: Judge, user: User) -> None:
    """It is asked nothing any more; its verdicts and figures stay."""
    if judge.archived_at is not None:
        return
    judge.archived_at = timezone.now()
    judge.save(update_fields=["archived_at", "updated_at"])
    JudgeVersion.objects.filter(judge=judge).update(probe_at=None)
    audit_record(action="judge.archived", actor=user, project=judge.project, subject=str(judge.pk))


# --- asking ---


def pairs_ask(
    *,
    version: JudgeVersion,
    scope: Scope,
    purpose: str,
    wanted: Mapping[str, Any],
    user: User | None,
    attacked: int = 0,
    queue: str = QUEUE_CPU,
    only: list[int] | None = None,
    most: int = MOST_PAIRS,
) -> JudgeRun | None:
    """Launch a run over the pairs of a scope that the version has not judged yet; None where it
    has judged them all, and nothing is to be attacked. At most so many, whole prompts (or pairs,
    where there are few prompts) drawn by their hash.

    wanted: what is done with the verdicts, for `judges_sweep`. only: ids of tasks. Raises
    `DomainError` naming the field; then nothing was launched.
    """
    judge = version.judge
    project = judge.project
    if judge.archived_at is not None:
        raise Conflict("This judge was archived.", code="judge_archived")
    if version.changed_at is not None:
        raise Conflict(
            f"This version is no longer served: {version.changed_because} Ask the newest version.",
            code="judge_changed",
        )
    if not 0 <= attacked <= MOST_ATTACKED:
        raise DomainError(f"From 0 to {MOST_ATTACKED}.", field="attacked")
    scope_check(project=project, scope=scope)
    every = tasks_in(project=project, scope=scope)
    if only is not None:
        every = every.filter(pk__in=only)
    if not 1 <= most <= MOST_PAIRS:
        raise DomainError(f"From 1 to {MOST_PAIRS:,}.", field="most")
    by_pair = pairs_are_units(project=project, scope=scope)
    rows = _drawn(pair_rows(without_verdict(every, version)), most, by_pair)
    if not rows and attacked:
        rows = _drawn(pair_rows(every), attacked, by_pair)
    if not rows:
        if every.exists():
            return None
        raise DomainError("These have no pairs.", code="no_pairs", field="scope")
    pairs = pairs_freeze(
        project=project, name=f"{judge.name}: {len(rows)} pairs"[:120], rows=rows, user=user
    )
    with transaction.atomic():
        run = run_launch(
            project=project,
            kind=Run.Kind.JUDGE,
            name=f"{judge.name} v{version.number}, {len(rows)} pairs"[:LONGEST_NAME],
            config={**version.config, "attacked": attacked},
            inputs={"pairs": pairs, "judge": version.model},
            seed=SEED,
            queue=queue,
            user=user,
        )
        return JudgeRun.objects.create(
            run=run,
            version=version,
            pairs=pairs,
            purpose=purpose,
            scope=scope.to_json(),
            wanted=dict(wanted),
            by=user,
        )


def _drawn(rows: list[dict[str, Any]], most: int, by_pair: bool) -> list[dict[str, Any]]:
    """At most so many, by the hash of their prompts or ids, in the order of their ids."""
    if len(rows) <= most:
        return rows

    def place(row: dict[str, Any]) -> tuple[float, str]:
        unit = row["pair"] if by_pair else json.dumps(row["prompt"], sort_keys=True)
        return unit_hash(unit, "asked"), row["pair"]

    return sorted(sorted(rows, key=place)[:most], key=lambda row: int(row["pair"]))


# --- taking verdicts over ---


@transaction.atomic
def verdicts_take(*, run_id: str) -> JudgeRun | None:
    """Take a run's verdicts over; None where that was done before or the run still lives. What
    cannot be taken is said on the row."""
    found = (
        due_runs()
        .select_for_update(of=("self",), skip_locked=True)
        .select_related("run", "version__judge__project", "version__model__run", "pairs")
        .filter(run=run_id)
        .first()
    )
    if found is None:
        return None
    found.problem, found.acted = (
        "",
        found.purpose == Purpose.PROBE,
    )  # it may have failed and been resumed
    try:
        if found.run.state != Run.State.FINISHED:
            raise Conflict(f"The run is {found.run.get_state_display()}.", code="not_finished")
        rows = _verdict_rows(found)
        version = _answered_by(found)
        if found.purpose == Purpose.PROBE:
            _probe_judge(found, version, rows)
        else:
            _verdicts_keep(found, version, rows)
    except DomainError as error:
        found.problem = error.message[: longest(JudgeRun, "problem")]
    else:
        found.version, found.taken_at = version, timezone.now()
    found.save()
    return found


def _verdict_rows(found: JudgeRun) -> list[dict[str, Any]]:
    """Of pairs as they are, without those of attacks. `Conflict` where the file is missing or is
    not as expected."""
    kept = Artifact.objects.filter(run=found.run, name=FILE)
    row = kept.order_by("-attempt", "-seq").first()
    if row is None:
        raise Conflict("The run left no verdicts.", code="no_verdicts")
    if row.size_bytes > _LARGEST:
        raise Conflict(f"{FILE} is larger than {_LARGEST // 10**6} MB.", code="no_verdicts")
    store = artifact_store()
    try:
        text = store.read_bytes(row.uri, sha256=row.sha256).decode("utf-8")
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        plain = [one for one in rows if not one.get("attack")]
        asked = {one["pair"] for one in store.lines(f"{found.pairs.uri}/{PAIRS}.jsonl")}
        for number, one in enumerate(plain, start=1):
            _row_check(number, one, asked)
    except (StoreUnreachable, OSError):
        raise  # nothing is said about the file: the next sweep tries again
    except (ArtifactError, ValueError, AttributeError, RecursionError) as error:
        raise Conflict(f"The verdicts cannot be read: {error}.", code="no_verdicts") from None
    return plain


def _row_check(number: int, row: Mapping[str, Any], asked: Collection[str]) -> None:
    if not isinstance(pair := row.get("pair"), str) or pair not in asked:
        raise ValueError(f"line {number} names no pair that was asked about")
    for name in ("first", "second"):
        value = row.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1
        ):
            raise ValueError(f"line {number}: {name} is no probability")


def _answered_by(found: JudgeRun) -> JudgeVersion:
    """The version whose verdicts these are: of a server that says nothing of what it said before, a
    new one. One of several machines names another fingerprint now and then; what was seen once
    beside a known one is known from then on."""
    version = found.version
    if not version.is_served:
        return version
    now = _fingerprints(found.run.summary)
    known = set(version.fingerprint.split(",")) - {""}
    if not now or now <= known:
        return version
    joined = ",".join(sorted(now | known))
    if (now & known or not known) and len(joined) <= longest(JudgeVersion, "fingerprint"):
        version.fingerprint = joined
        version.save(update_fields=["fingerprint", "updated_at"])
    if now & known or not known:
        return version
    return version_changed(
        version=version,
        because=f"Its server says {', '.join(sorted(now))}, and said {version.fingerprint}.",
        said=",".join(sorted(now))[: longest(JudgeVersion, "fingerprint")],
    )


def _fingerprints(summary: Mapping[str, Any]) -> set[str]:
    """What a server says that it runs; without fingerprints the name that it gives its model."""
    told = str(summary.get("fingerprint") or "") or f"model:{summary.get('says') or ''}"
    return {one for one in told.replace("\x00", "").split(",") if one and one != "model:"}


def version_changed(*, version: JudgeVersion, because: str, said: str) -> JudgeVersion:
    """Its server answers otherwise: no figure of this version holds, its certificates stop, and
    what answers now is a new version without figures."""
    # Whoever certifies holds this too: no certificate is made meanwhile.
    Judge.objects.select_for_update(no_key=True).get(pk=version.judge_id)
    now = timezone.now()
    version.changed_at, version.probe_at = now, None
    version.changed_because = because[: longest(JudgeVersion, "changed_because")]
    version.save(update_fields=["changed_at", "changed_because", "probe_at", "updated_at"])
    LabelCertificate.objects.filter(version=version, stopped_at__isnull=True).update(
        stopped_at=now, stopped_because=version.changed_because, updated_at=now
    )
    judge = version.judge
    made = version_make(
        judge=judge,
        model=version.model,
        config=version.config,
        user=None,
        note=f"what answers since v{version.number}",
        fingerprint=said,
    )
    made.probe_at = now
    made.save(update_fields=["probe_at", "updated_at"])
    incident_open(
        project=judge.project,
        key=f"judge:{judge.pk}",
        link="evaluation",
        rule=RULE,
        title=f"The judge {judge.name} has changed behind its address",
        message=f"{version.changed_because} Nothing that was measured of it holds any longer, and "
        f"its certificates have stopped. Measure version {made.number} before its verdicts are "
        "used.",
        severity="critical",
        checkpoint=version.model,
    )
    return made


def _verdicts_keep(found: JudgeRun, version: JudgeVersion, rows: list[dict[str, Any]]) -> None:
    asked = {int(row["pair"]) for row in rows}
    project = version.judge.project_id
    known = set(
        Task.objects.filter(project=project, pk__in=asked).values_list("pk", flat=True)
    )  # some may be gone since
    JudgeVerdict.objects.bulk_create(
        [
            JudgeVerdict(
                version=version,
                task_id=int(row["pair"]),
                run=found.run,
                first=row.get("first"),
                second=row.get("second"),
                preference=preference_of(row.get("first"), row.get("second")),
                said=_said(row.get("said")),
            )
            for row in rows
            if int(row["pair"]) in known
        ],
        batch_size=2_000,
        ignore_conflicts=True,
    )
    if version.is_served and version.probe_at is None:
        version.probe_at = timezone.now()  # what it says now is what later probes are laid beside
        version.save(update_fields=["probe_at", "updated_at"])


def preference_of(first: float | None, second: float | None) -> float:
    nan = float("nan")
    asked = [[nan if one is None else float(one)] for one in (first, second)]
    return float(preference(*asked)[0])


def _said(given: Any) -> list[str]:
    texts = given if isinstance(given, list) else []
    return [str(one).replace("\x00", "")[:_MOST_SAID] for one in texts[:2]]


# --- asking a server the same again ---


def probes_launch(*, limit: int = 20) -> int:
    """Ask versions that are served and used the same pairs again; how many were asked."""
    due = JudgeVersion.objects.filter(
        probe_at__lte=timezone.now(),
        changed_at__isnull=True,
        judge__archived_at__isnull=True,
        judge__project__archived_at__isnull=True,
    )
    asked = 0
    for pk in list(due.order_by("probe_at").values_list("pk", flat=True)[:limit]):
        try:
            asked += _probe(pk)
        except Exception:
            log.exception("judge version %s: no probe", pk)
            later = timezone.now() + PROBE_EVERY / 12
            JudgeVersion.objects.filter(pk=pk).update(probe_at=later)
    return asked


def _probe(version_id: int) -> bool:
    with transaction.atomic():
        version = (
            JudgeVersion.objects.select_for_update(of=("self",), skip_locked=True)
            .select_related("judge__project", "model__run")
            .filter(pk=version_id, probe_at__lte=timezone.now(), changed_at__isnull=True)
            .first()
        )
        if version is None:
            return False
        version.probe_at = timezone.now() + PROBE_EVERY
        version.save(update_fields=["probe_at", "updated_at"])
        under_way = version.runs.filter(
            purpose=Purpose.PROBE, taken_at__isnull=True, problem=""
        ).exists()
        tasks = Task.objects.filter(
            pk__in=list(
                version.verdicts.order_by("task_id").values_list("task_id", flat=True)[
                    :PROBED_PAIRS
                ]
            )
        )
        rows = pair_rows(tasks)
        if under_way or not rows:
            return False
        judge = version.judge
        pairs = pairs_freeze(
            project=judge.project, name=f"{judge.name}: probe"[:120], rows=rows, user=None
        )
        try:
            with transaction.atomic():
                run = run_launch(
                    project=judge.project,
                    kind=Run.Kind.JUDGE,
                    name=f"probe of {judge.name} v{version.number}"[:LONGEST_NAME],
                    config={**version.config, "attacked": 0, "temperature": 0.0},
                    inputs={"pairs": pairs, "judge": version.model},
                    seed=SEED,
                )
        except DomainError as error:
            log.warning("judge version %s: no probe: %s", version.pk, error.message)
            return False
        JudgeRun.objects.create(
            run=run, version=version, pairs=pairs, purpose=Purpose.PROBE, acted=True
        )  # nothing is wanted of it but its verdicts
    return True


def _probe_judge(found: JudgeRun, version: JudgeVersion, rows: list[dict[str, Any]]) -> None:
    """The first probe is what later ones are laid beside."""
    answers = {str(row["pair"]): [row.get("first"), row.get("second")] for row in rows}
    if version.pk != found.version_id:  # its fingerprint told already
        version.probe_answers = answers
        version.save(update_fields=["probe_answers", "updated_at"])
        return
    before = version.probe_answers
    if not before:
        version.probe_answers = answers
        version.save(update_fields=["probe_answers", "updated_at"])
        return
    moved, n = _moved(before, answers)
    if n and moved / n > MOST_MOVED:
        version_changed(
            version=version,
            because=f"{moved} of {n} verdicts on the same pairs at temperature 0 are others than "
            "an hour ago.",
            said=version.fingerprint,
        )


def _moved(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[int, int]:
    """(verdicts that fall on the other side, verdicts compared)."""
    moved = n = 0
    for pair in before.keys() & now.keys():
        for one, two in zip(before[pair], now[pair], strict=True):
            n += 1
            moved += _side(one) != _side(two)
    return moved, n


def _side(value: float | None) -> str:
    if value is None:
        return "unreadable"
    return "first" if value > 0.5 else "second" if value < 0.5 else "neither"


def runs_take() -> list[JudgeRun]:
    """Those that have ended, each in a transaction of its own."""
    taken = []
    for run_id in list(due_runs().order_by("run__ended_at").values_list("run_id", flat=True)[:50]):
        try:
            found = verdicts_take(run_id=run_id)
        except Exception as error:
            log.exception("the verdicts of run %s", run_id)  # the next sweep tries again
            give_up(run_id, since="run__ended_at", error=error)
            continue
        if found is not None and found.taken_at is not None:
            taken.append(found)
    return taken


def give_up(run_id: str, *, since: str, error: Exception) -> None:
    """What has failed for hours is said on the row, so that it is not tried for ever."""
    late = JudgeRun.objects.filter(pk=run_id, **{f"{since}__lt": timezone.now() - TRIED_FOR})
    problem = f"An error of Concord's own ({type(error).__name__}); it is logged."
    late.update(problem=problem, acted=True, updated_at=timezone.now())
