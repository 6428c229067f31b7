"""What each event changes, once it is known to count. One `match`, an arm per event."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.common.registry import Flagged, alert_raised, answer_flagged
from apps.snapshots.services.looks import split_access_record
from apps.training.models import Alert as AlertRow
from apps.training.models import Artifact, Checkpoint, Run, RunAttempt, RunInput
from apps.training.models import Sample as SampleRow
from apps.training.selectors.results import FLAGGED
from apps.training.services.attempts import INTERRUPTED, run_end, run_fail_or_retry
from apps.training.services.scanning import sample_scan
from workers.contract.events import (
    Alert,
    ArtifactSaved,
    Cancelled,
    CheckpointSaved,
    Envelope,
    Evidence,
    Failed,
    Fault,
    Finished,
    Generated,
    Histogram,
    Log,
    Metrics,
    Opened,
    Progress,
    ReviewRequested,
    Sample,
    SplitRead,
)
from workers.contract.jobs import KEPT_CHECKPOINTS
from workers.contract.wire import ContractError, is_below_run
from workers.rules.rule import STAGES

_INTEGER_LIMIT = 2**63
_SEVERITIES = ("info", "warning", "critical")
_OLD_TAGS_STAY = "failed"
OUTSIDE = "uri_outside_run"
ROWLESS = (
    Opened,
    Progress,
    Metrics,
    Log,
    Histogram,
    Evidence,
)  # handlers that store nothing


class OutsideRun(ContractError):
    """A file of an event lies elsewhere than in its run's folder."""


def apply(run: Run, attempt: RunAttempt, envelope: Envelope, at: datetime) -> None:
    """Change `run` and `attempt` (saved by the caller) and store what hangs on them.

    Raises `ContractError` or what a conversion raises when a value does not fit its field; the
    caller undoes what was stored.
    """
    seen = {"run": run, "attempt": attempt.number, "seq": envelope.seq}
    match envelope.event:
        case Opened() as event:
            _opened(run, attempt, event, at)
        case Progress() as event:
            run.step = _whole(event.step, "step")
            if event.total_steps is not None:
                run.total_steps = _whole(event.total_steps, "total_steps")
            run.phase = str(event.phase)[:60]
            run.eta_s = _number(event.eta_s, "eta_s")
        case Metrics() as event:
            pass  # checked and stored by the batch, see applying.py
        case Sample() as event:
            kept = SampleRow.objects.create(
                **seen,
                step=_whole(event.step, "step"),
                bucket=str(event.bucket)[:10],
                prompt=event.prompt,
                response=_text(event.response, "response"),
                baseline=_text(event.baseline or "", "baseline"),
                reward=_number(event.reward, "reward"),
                parts=event.parts,
                kl=_number(event.kl, "kl"),
                tokens=None if event.tokens is None else _whole(event.tokens, "tokens"),
            )
            reason = sample_scan(run, kept)
            if reason or kept.bucket == FLAGGED:
                answer_flagged(
                    run, Flagged(kept.step, kept.prompt, kept.response, reason, sample=kept)
                )
        case Alert() as event:
            if event.severity not in _SEVERITIES:
                raise ContractError(f"Alert.severity: {event.severity!r} is unknown")
            raised = AlertRow.objects.create(
                **seen,
                step=_whole(event.step, "step"),
                rule=_text(event.rule, "rule", 60),
                severity=event.severity,
                message=_text(event.message, "message"),
                value=_number(event.value, "value"),
                threshold=_number(event.threshold, "threshold"),
                raised_at=at,
            )
            alert_raised(run, raised)
        case CheckpointSaved() as event:
            _checkpoint(run, attempt, event)
        case ArtifactSaved() as event:
            Artifact.objects.create(
                **seen,
                name=_text(event.name, "name", 120),
                uri=_uri(run, event.uri),
                sha256=_text(event.sha256, "sha256", 64),
                size_bytes=_whole(event.size_bytes, "size_bytes"),
                media_type=_text(event.media_type, "media_type", 80),
            )
        case Generated() as event:
            Artifact.objects.create(
                **seen,
                name=f"{_text(event.purpose, 'purpose', 20)}.jsonl",
                purpose=event.purpose,
                uri=_uri(run, event.uri),
                sha256=_text(event.sha256, "sha256", 64),
                count=_whole(event.count, "count"),
                media_type="application/jsonl",
            )
        case SplitRead() as event:
            _split_read(run, attempt, envelope, event, at)
        case Histogram() as event:
            _check_histogram(event)
        case Evidence() as event:
            _check_evidence(event)
        case ReviewRequested() as event:
            answer_flagged(run, _asked(event))
        case Log():
            pass  # the stored event is all there is to it
        case Finished() as event:
            run.step = _whole(event.step, "step")
            summary = _object(event.summary, "summary")
            if event.stopped_early:
                summary = summary | {"stopped_early": True}
            _close(attempt, "finished")
            run_end(run=run, state=Run.State.FINISHED, summary=summary)
        case Failed() as event:
            _failed(run, attempt, event)
        case Cancelled() as event:
            if event.step is not None:
                run.step = _whole(event.step, "step")
            _close(attempt, "cancelled")
            run_end(run=run, state=Run.State.CANCELLED)


def _split_read(
    run: Run, attempt: RunAttempt, envelope: Envelope, event: SplitRead, at: datetime
) -> None:
    """A row of who read which split; the same event again changes nothing."""
    role = _text(event.role, "role")
    link = RunInput.objects.filter(run=run, role=role, snapshot__isnull=False).first()
    if link is None or link.snapshot is None:
        raise ContractError(f"SplitRead.role: {role!r:.60} is no dataset of this run")
    split_access_record(
        snapshot=link.snapshot,
        split=_text(event.split, "split", 24),
        purpose=run.kind,
        n_items=_whole(event.items, "items"),
        person=run.created_by,
        run=run.pk,
        attempt=attempt.number,
        seq=envelope.seq,
        at=at,
    )


def _opened(run: Run, attempt: RunAttempt, event: Opened, at: datetime) -> None:
    attempt.environment = _object(event.environment, "environment")
    attempt.opened_at = at
    if event.total_steps is not None:
        run.total_steps = _whole(event.total_steps, "total_steps")
    run.started_at = run.started_at or at
    if run.state == Run.State.QUEUED:
        run.state = Run.State.RUNNING
    run.phase = "loading the libraries"  # which takes longer than all else before the first phase


def _asked(event: ReviewRequested) -> Flagged:
    return Flagged(
        _whole(event.step, "step"),
        event.prompt if isinstance(event.prompt, list) else [],
        _text(event.response, "response"),
        _text(event.reason, "reason"),
    )


def check_points(event: Metrics) -> None:
    """Points are read again for every chart, so they must be well formed."""
    for step in event.steps:
        _whole(step, "steps")
    for name, values in _object(event.values, "values").items():
        if not isinstance(values, list) or len(values) != len(event.steps):
            raise ContractError(f"Metrics.values[{name!r}]: not one value for each step")
        for value in values:
            if type(value) is not float:  # nearly all of them are
                _number(value, f"values[{name!r}]")


def _check_histogram(event: Histogram) -> None:
    _text(event.name, "name", 120)
    _whole(event.step, "step")
    if len(event.edges) != len(event.counts) + 1:
        raise ContractError("Histogram.edges: not one more than counts")
    for edge in event.edges:
        _number(edge, "edges")
    for count in event.counts:
        _whole(count, "counts")


def _check_evidence(event: Evidence) -> None:
    if event.link not in STAGES:
        raise ContractError(f"Evidence.link: {event.link!r} is no stage of the chain")
    _text(event.rule, "rule", 60)
    _whole(event.step, "step")


def _checkpoint(run: Run, attempt: RunAttempt, event: CheckpointSaved) -> None:
    tags = [_text(tag, "tags", 20) for tag in event.tags]
    metrics = _object(event.metrics, "metrics")
    saved, is_new = Checkpoint.objects.get_or_create(
        run=run,
        attempt=attempt.number,
        step=_whole(event.step, "step"),
        sha256=_text(event.sha256, "sha256", 64),
        defaults={
            "project_id": run.project_id,
            "uri": _uri(run, event.uri),
            "size_bytes": _whole(event.size_bytes, "size_bytes"),
            "tags": tags,
            "metrics": metrics,
        },
    )
    if not is_new:  # the same state saved once more, say on schedule and then as the final one
        saved.tags = sorted({*saved.tags, *tags})
        saved.metrics = saved.metrics | metrics
        saved.save(update_fields=["tags", "metrics", "updated_at"])
    # A tag belongs to its newest holder; `failed` describes the checkpoint itself.
    moved = set(tags) - {_OLD_TAGS_STAY}
    for older in Checkpoint.objects.filter(run=run).exclude(pk=saved.pk):
        if moved & set(older.tags):
            older.tags = [tag for tag in older.tags if tag not in moved]
            older.save(update_fields=["tags", "updated_at"])
    _prune(run, attempt)


def _prune(run: Run, attempt: RunAttempt) -> None:
    """Say of which checkpoints the trainer has deleted the files (`RunContext.save_checkpoint`)."""
    rows = Checkpoint.objects.filter(run=run, attempt=attempt.number)
    tagged = set(rows.exclude(tags=[]).values_list("step", flat=True))
    newest = sorted(set(rows.values_list("step", flat=True)))[-KEPT_CHECKPOINTS:]
    rows.filter(files_removed_at=None).exclude(step__in=[*tagged, *newest]).update(
        files_removed_at=timezone.now(), removed_by=Checkpoint.RemovedBy.TRAINER
    )


def _failed(run: Run, attempt: RunAttempt, event: Failed) -> None:
    kind = _text(event.kind, "kind", 60)
    if not kind:
        raise ContractError("Failed.kind: is empty")
    fault = event.fault if event.fault in set(Fault) else Fault.BUG
    if event.step is not None:
        run.step = _whole(event.step, "step")
    outcome = INTERRUPTED if kind == INTERRUPTED else "failed"
    _close(attempt, outcome)
    if run.failure_kind == "lost":  # given up on already: now it has a name
        run_end(run=run, state=Run.State.FAILED, kind=kind, fault=fault, message=event.message)
        return
    run_fail_or_retry(
        run=run,
        kind=kind,
        fault=fault,
        message=_text(event.message, "message"),
        retryable=bool(event.retryable),
        outcome=outcome,
    )


def _close(attempt: RunAttempt, outcome: str) -> None:
    attempt.outcome, attempt.ended_at = outcome, timezone.now()


# --- values as the columns take them ---


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < _INTEGER_LIMIT:
        raise ContractError(f"{name}: {value!r} is no count")
    return value


def _number(value: Any, name: str) -> float | None:
    """Also the words for NaN and infinities, which PostgreSQL's floats hold."""
    if value is None:
        return None
    if isinstance(value, bool) or not (
        isinstance(value, int | float) or value in ("nan", "inf", "-inf")
    ):
        raise ContractError(f"{name}: {value!r} is no number")
    return float(value)


def _text(value: Any, name: str, limit: int | None = None) -> str:
    if not isinstance(value, str):
        raise ContractError(f"{name}: {value!r} is no text")
    if limit is not None and len(value) > limit:
        raise ContractError(f"{name}: longer than {limit} characters")
    return value


def _uri(run: Run, value: Any) -> str:
    """A trainer's files lie in its run's folder; what lies elsewhere is another run's."""
    if not is_below_run(_text(value, "uri", 200), run.pk):
        raise OutsideRun(f"uri: {value!r} does not lie below runs/{run.pk}/")
    return value


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ContractError(f"{name}: {value!r} is no object")
    return dict(value)
