"""What a policy wrote comes back into the label queue."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import token_create
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Response
from apps.labeling.services import slot_lease_next
from apps.loop import selectors, services, tasks
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Run
from apps.training.services import run_launch
from tests.labeling.pairs import vote
from tests.loop.conftest import generated_add, generation_make, pair
from workers.artifacts import ArtifactError
from workers.config import recipe_presets

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
    run = generation_make(project, PAIRS, prompts=prompts, to_people=True)
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


def test_a_run_that_has_not_finished_queues_nothing(project: Project, emil: User) -> None:
    run = generation_make(project, PAIRS)
    assert services.fresh_pairs_queue(run=run) == services.FreshPairs()
    assert selectors.runs_awaiting_queueing() == set()
    with pytest.raises(DomainError, match="not finished"):
        services.fresh_pairs_queue(run=run, by=emil)


def test_pairs_of_a_superseded_attempt_stay_out(project: Project) -> None:
    run = generation_make(project, PAIRS[:1], attempt=1)
    run.attempt = 2
    generated_add(run, PAIRS[1:], attempt=2, seq=9)
    finish(run)
    services.fresh_pairs_queue(run=run)
    assert [c.prompt.messages[0]["content"] for c in Comparison.objects.all()] == ["Argue about 1."]


def test_what_was_cut_off_is_queued_by_the_schedule(project: Project) -> None:
    run = generation_make(project, PAIRS, to_people=True)
    finish(run)  # and the process dies before its commit hook
    assert selectors.runs_awaiting_queueing() == {run.pk}
    assert tasks.queue_fresh_pairs() == 1
    assert Comparison.objects.count() == 2
    assert tasks.queue_fresh_pairs() == 0


def test_a_changed_file_is_refused_said_once_and_not_tried_for_ever(project: Project) -> None:
    run = generation_make(project, PAIRS, to_people=True)
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


def test_without_being_asked_for_no_pair_goes_to_people(
    project: Project, prompts: Snapshot, django_capture_on_commit_callbacks
) -> None:
    run = generation_make(project, PAIRS, prompts=prompts)
    with django_capture_on_commit_callbacks(execute=True):
        finish(run)
    assert tasks.queue_fresh_pairs() == 0
    assert not Comparison.objects.exists()


def test_no_preset_sends_pairs_to_people() -> None:
    for name, preset in recipe_presets("generate").items():
        assert not preset.get("to_people"), name


def test_pairs_are_sent_from_the_runs_page_and_taken_back_until_somebody_votes(
    project: Project, prompts: Snapshot, emil: User, ana: User, client: Client
) -> None:
    run = generation_make(project, PAIRS, prompts=prompts, votes_each=2)
    finish(run)
    client.force_login(emil)
    page = reverse("loop:pairs", args=[project.slug, run.pk])
    shown = client.get(page).content.decode()
    assert "It is late." in shown
    assert "up to 4 votes" in shown
    refused = client.post(page, {"action": "send", "votes": 99, "priority": 0})
    assert refused.status_code == 422
    assert not Comparison.objects.exists()
    client.post(page, {"action": "send", "votes": 3, "priority": 2})
    assert set(Comparison.objects.values_list("overlap", "priority", "batch")) == {
        (3, 2.0, f"run {run.pk}")
    }
    assert "0 of 6 votes cast" in client.get(page).content.decode()
    slot_lease_next(project=project, annotator=ana)  # in somebody's hands, not yet answered
    client.post(page, {"action": "take_back"})
    assert not Comparison.objects.exists()
    assert not Response.objects.exists()
    client.post(page, {"action": "send", "votes": 3, "priority": 0})
    vote(project, ana)
    kept = client.post(page, {"action": "take_back"})
    assert kept.status_code == 422
    assert "1 votes were added since" in kept.content.decode()
    assert Comparison.objects.count() == 2
    assert [*AuditEvent.objects.filter(subject=run.pk).values_list("action", flat=True)] == [
        "pairs.queued",
        "pairs.taken_back",
        "pairs.queued",
    ]


def test_more_votes_than_the_project_allows_are_refused_at_launch(
    project: Project, prompts: Snapshot
) -> None:
    with pytest.raises(DomainError, match="at most 5") as refused:
        run_launch(
            project=project,
            kind="generate",
            name="Too many",
            config={"to_people": True, "votes_each": 6},
            inputs={"prompts": prompts},
        )
    assert refused.value.field == "config.votes_each"
    assert not Run.objects.exists()


def test_pairs_by_the_api(
    project: Project, prompts: Snapshot, emil: User, ana: User, client: Client
) -> None:
    run = generation_make(project, PAIRS, prompts=prompts)
    finish(run)
    path = f"/api/v1/projects/{project.slug}/runs/{run.pk}/pairs"

    def by(user: User) -> dict[str, str]:
        scopes = ["read", "train"] if user == emil else ["read"]
        return {
            "authorization": f"Bearer {token_create(user=user, name='t', scopes=scopes, days=1)[1]}"
        }

    found = client.get(path, headers=by(emil)).json()
    assert found.get("written") == 2, found
    assert client.get(path, headers=by(ana)).status_code == 403
    sent = client.post(path, {"votes": 2}, "application/json", headers=by(emil)).json()
    assert (sent["queued"], sent["asked"], sent["voted"]) == (2, 4, 0)
    assert client.delete(path, headers=by(emil)).json()["queued"] == 0
