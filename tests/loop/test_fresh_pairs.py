"""What a policy wrote comes back into the label queue."""

import pytest

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Response
from apps.labeling.services import slot_lease_next
from apps.loop import selectors, services, tasks
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Run
from tests.loop.conftest import generated_add, generation_make, pair
from workers.artifacts import ArtifactError

pytestmark = pytest.mark.django_db

PAIRS = [
    pair("Argue about 0.", "One is better.", "No, another."),
    pair("Argue about 1.", "It is late.", "It is early."),
]


def finish(run: Run) -> None:
    from django.utils import timezone

    run.state, run.ended_at = Run.State.FINISHED, timezone.now()
    run.save()


def test_the_pairs_are_queued_once_when_the_run_finishes(
    project: Project, prompts: Snapshot, django_capture_on_commit_callbacks
) -> None:
    run = generation_make(project, PAIRS, prompts=prompts)
    assert not Comparison.objects.exists()
    with django_capture_on_commit_callbacks(execute=True):
        finish(run)
    queued = Comparison.objects.filter(project=project, batch=f"run {run.pk}")
    assert queued.count() == 2
    assert {c.stratum for c in queued} == {"priority"}
    assert {c.prompt.group_key for c in queued} == {"topic-0", "topic-1"}
    assert {c.prompt.licence for c in queued} == {"MIT"}
    again = services.fresh_pairs_queue(run=run)
    assert (again.queued, again.known, again.refused) == (0, 2, 0)
    assert Comparison.objects.count() == 2
    event = AuditEvent.objects.get(action="pairs.queued")
    assert (event.subject, event.details) == (run.pk, {"pairs": 2, "refused": 0})


def test_the_answers_keep_their_checkpoint_and_annotators_do_not_see_it(
    project: Project, ana: User, prompts: Snapshot
) -> None:
    run = generation_make(project, PAIRS, prompts=prompts)
    finish(run)
    services.fresh_pairs_queue(run=run)
    assert set(Response.objects.values_list("origin", "origin_ref")) == {("model", "checkpoint1")}
    lease = slot_lease_next(project=project, annotator=ana)
    shown = repr(lease)
    assert "It is late." in shown or "One is better." in shown
    assert "checkpoint1" not in shown
    assert run.pk not in shown


def test_an_empty_answer_is_left_out_and_counted(project: Project) -> None:
    run = generation_make(project, [*PAIRS, pair("Argue about 2.", "Yes.", "  ")])
    finish(run)
    found = services.fresh_pairs_queue(run=run)
    assert (found.queued, found.refused) == (2, 1)


def test_a_run_that_has_not_finished_queues_nothing(project: Project) -> None:
    run = generation_make(project, PAIRS)
    assert services.fresh_pairs_queue(run=run) == services.FreshPairs()
    assert selectors.runs_awaiting_queueing() == set()


def test_pairs_of_a_superseded_attempt_stay_out(project: Project) -> None:
    run = generation_make(project, PAIRS[:1], attempt=1)
    run.attempt = 2
    generated_add(run, PAIRS[1:], attempt=2, seq=9)
    finish(run)
    services.fresh_pairs_queue(run=run)
    assert [c.prompt.messages[0]["content"] for c in Comparison.objects.all()] == ["Argue about 1."]


def test_what_was_cut_off_is_queued_by_the_schedule(project: Project) -> None:
    run = generation_make(project, PAIRS)
    finish(run)  # and the process dies before its commit hook
    assert selectors.runs_awaiting_queueing() == {run.pk}
    assert tasks.queue_fresh_pairs() == 1
    assert Comparison.objects.count() == 2
    assert tasks.queue_fresh_pairs() == 0


def test_a_changed_file_is_refused_said_once_and_not_tried_for_ever(project: Project) -> None:
    run = generation_make(project, PAIRS)
    Artifact.objects.update(sha256="1" * 64)
    finish(run)
    with pytest.raises(ArtifactError):
        services.fresh_pairs_queue(run=run)
    assert tasks.queue_fresh_pairs() == 1
    assert tasks.queue_fresh_pairs() == 0
    event = AuditEvent.objects.get(action="pairs.refused")
    assert "not the content" in event.details["error"]
    assert not Comparison.objects.exists()


def test_a_line_of_another_form_is_named(project: Project) -> None:
    run = generation_make(project, [PAIRS[0], {"prompt": "x"}])
    finish(run)
    with pytest.raises(DomainError, match="Line 2") as refused:
        services.fresh_pairs_queue(run=run)
    assert refused.value.row == 2
    assert not Comparison.objects.exists()
