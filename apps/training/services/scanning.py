"""The project's blocked phrases in the answers of runs: what holds one goes to people.

PPO and GRPO look through all answers of a step themselves (`JobSpec.phrases`), so that people see
one within a minute. Samples are looked through as they arrive. The files of answers that a run left
are read after its end, by a task that may come twice and that the sweep sends again; never within
an event.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.db import transaction
from django.utils import timezone

from apps.common.registry import Flagged, answer_flagged
from apps.labeling.dispatch import task_send
from apps.labeling.selectors import settings_get
from apps.snapshots.storage import artifact_open
from apps.training.models import Artifact, Run, Sample
from apps.training.services.queueing import log
from measures.phrases import Phrases
from workers.artifacts import ArtifactError, StoreUnreachable
from workers.contract import wire
from workers.contract.events import blocked_reason

# Files with a run's answers, by name: what a generation, an evaluation, an assessment, PPO and
# GRPO leave. The rows of revisions.jsonl stand in candidates.jsonl too.
FILES = (
    *("candidates.jsonl", "revisions.jsonl", "blocked.jsonl"),
    *("outputs.jsonl", "audit.jsonl", "rollouts.jsonl"),
)
TO_PEOPLE = frozenset({"candidates.jsonl", "revisions.jsonl"})
MOST_FLAGGED = 1_000  # of one run: a phrase that is everywhere must not bury the rest
MOST_SENT = 20  # runs that one sweep sends
SENT_AGAIN_S = 120
LATE = timedelta(seconds=30)
_LONGEST_LINE = 4_000_000  # bytes; a longer line is no answer


def phrases_of(run: Run) -> Phrases:
    return Phrases(settings_get(project=run.project).constraint_phrases)


def sample_scan(run: Run, sample: Sample) -> str:
    """Why people must see the sample's answer; "" where it holds no phrase. Its baseline, which is
    another model's answer, is flagged here."""
    phrases = phrases_of(run)
    if found := phrases.first_in(sample.baseline):
        answer_flagged(
            run, Flagged(sample.step, sample.prompt, sample.baseline, blocked_reason(found.phrase))
        )
    found = phrases.first_in(sample.response)
    return blocked_reason(found.phrase) if found else ""


def scan_send(*, run_id: str) -> None:
    """After a run's end. What is not sent, the sweep sends."""
    if cache.add(f"scan:{run_id}", 1, SENT_AGAIN_S):
        task_send(wire.TASK_SCAN_ANSWERS, run_id)


def scans_sweep() -> int:
    """Send ended runs that nobody has looked through; how many."""
    late = Run.objects.filter(
        scanned_at=None, ended_at__isnull=False, ended_at__lt=timezone.now() - LATE
    )
    found = list(late.order_by("ended_at").values_list("pk", flat=True)[:MOST_SENT])
    for run_id in found:
        scan_send(run_id=run_id)
    return len(found)


def run_scan(*, run_id: str) -> int:
    """Look through the files of an ended run, and put what holds a blocked phrase into the inbox;
    how many answers do. The same answer is one entry, however often this is done.

    A file that is gone or damaged is passed over; `StoreUnreachable` leaves the run to the sweep.
    """
    run = Run.objects.select_related("project").filter(pk=run_id).first()
    if run is None or run.is_live or run.scanned_at is not None:
        return 0
    phrases, n = phrases_of(run), 0
    if phrases:
        for step, prompt, response, found in _holding(run, phrases):
            if n == MOST_FLAGGED:
                log.warning("run %s: more than %s answers hold a blocked phrase", run.pk, n)
                break
            with transaction.atomic():
                answer_flagged(run, Flagged(step, prompt, response, blocked_reason(found)))
            n += 1
    # Resumed in the meantime it has other answers, and is looked through after its next end.
    Run.objects.filter(pk=run.pk, attempt=run.attempt, state=run.state).update(
        scanned_at=timezone.now()
    )
    return n


def _holding(run: Run, phrases: Phrases) -> Iterator[tuple[int, Any, str, str]]:
    """(step, prompt, answer, phrase), each answer to a prompt once for each file."""
    to_people = run.kind == Run.Kind.GENERATE and bool(run.config.get("to_people"))
    for name in FILES:
        if to_people and name in TO_PEOPLE:
            continue  # where a pair with a phrase is held for review
        file = Artifact.objects.filter(run=run, name=name).order_by("-attempt", "-seq").first()
        if file is None:
            continue
        for row in _rows(run, file):
            step = row.get("step")
            at = step if type(step) is int and step >= 0 else run.step
            for answer in answers_of(row):
                if found := phrases.first_in(answer):
                    yield at, row.get("prompt") or [], answer, found.phrase


def answers_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Texts that a model wrote, of a row of any of the files."""
    for name in ("response", "other_response", "baseline", "response_a", "response_b"):
        said = row.get(name)
        text = said.get("text") if isinstance(said, Mapping) else said
        if isinstance(text, str) and text:
            yield text
    for name in ("chosen", "rejected"):
        turns = row.get(name)
        if isinstance(turns, list) and turns and isinstance(turns[-1], Mapping):
            yield str(turns[-1].get("content") or "")


def _rows(run: Run, file: Artifact) -> Iterator[Mapping[str, Any]]:
    try:
        with closing(artifact_open(file.uri, sha256=file.sha256)) as lines:
            while line := lines.readline(_LONGEST_LINE):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, Mapping):
                    yield row
    except StoreUnreachable:
        raise
    except ArtifactError as error:
        log.warning("run %s: %s was not looked through: %s", run.pk, file.name, error)
