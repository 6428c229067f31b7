"""An import taken back: whole or not at all, by one of the two that meet, after any kill."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test import Client

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.labeling import dispatch, services
from apps.labeling.models import (
    Comparison,
    Decision,
    ImportJob,
    LabelingSettings,
    Prompt,
    QualificationAnswer,
    QualificationAttempt,
    Response,
    Slot,
    Vote,
)
from apps.labeling.selectors import remaining_for
from apps.labeling.services import imports, undoing
from tests.labeling.pairs import (
    annotators_make,
    checked,
    imported,
    leased,
    rows_make,
    upload,
    vote,
)
from tests.labeling.writing import accepted, batch_make
from tests.people import person_make
from tests.training.stack import database_url

SignedIn = Callable[[User], Client]
State, Stage = ImportJob.State, ImportJob.Stage
ROOT = "/p/arguments/imports/"
pytestmark = pytest.mark.usefixtures("inline_parsing")


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Messages to the workers; nobody takes them here but the test itself."""
    messages: list[str] = []
    monkeypatch.setattr(dispatch, "import_send", lambda job: not messages.append(job))
    return messages


def with_votes(n: int, votes: int) -> list[dict[str, Any]]:
    """n tasks that so many people answered, as Label Studio exports them."""
    return [
        {
            "id": number,
            "data": {"question": f"Why, {number}?", "text1": "So.", "text2": "Because."},
            "annotations": [
                {
                    "completed_by": who,
                    "result": [{"type": "pairwise", "value": {"selected": "left"}}],
                }
                for who in range(1, votes + 1)
            ],
        }
        for number in range(1, n + 1)
    ]


def everything() -> dict[str, int]:
    return {
        model.__name__: model.objects.count()
        for model in (Comparison, Prompt, Response, Slot, Vote)
    }


def test_an_import_is_undone_without_a_trace_and_can_be_done_again(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    client = signed_in(emil)
    imported(checked(upload(project, emil, *rows_make(2))))
    before = everything()
    job = imported(checked(upload(project, emil, *with_votes(1, 10))))
    assert everything() != before
    client.post(f"{ROOT}{job.pk}/do/", {"action": "undo"})
    assert everything() == before
    job.refresh_from_db()
    assert job.state == State.UNDONE
    assert client.get(f"{ROOT}{job.pk}/").status_code == 200
    event = AuditEvent.objects.get(action="import.undone")
    assert (event.details["comparisons"], event.details["votes"]) == (1, 10)
    with pytest.raises(Conflict) as caught:
        services.import_job_undo(job=job, by=emil)
    assert caught.value.code == "import_not_done"
    imported(checked(upload(project, emil, *with_votes(1, 10))))
    assert Vote.objects.count() == 10


def test_texts_that_others_show_stay_when_an_import_is_undone(project: Project, emil: User) -> None:
    row = {"prompt": "Why?", "response_a": "So.", "response_b": "Because."}
    imported(checked(upload(project, emil, row)))
    before = everything()
    second = imported(checked(upload(project, emil, row | {"id": "n", "response_b": "Hm."})))
    services.import_job_undo(job=second, by=emil)
    assert everything() == before


def test_an_import_that_somebody_voted_on_is_not_undone(
    project: Project, emil: User, ana: User
) -> None:
    job = imported(checked(upload(project, emil, *rows_make(2))))
    lease = services.slot_lease_next(project=project, annotator=ana)
    services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a")
    before = everything()
    with pytest.raises(Conflict) as caught:
        services.import_job_undo(job=job, by=emil)
    assert caught.value.code == "import_voted"
    assert everything() == before


def test_an_import_that_is_in_use_elsewhere_is_not_undone(project: Project, emil: User) -> None:
    job = imported(checked(upload(project, emil, *rows_make(2))))
    attempt = QualificationAttempt.objects.create(
        project=project, user=emil, number=1, pass_share=0.5, n_pairs=1
    )
    QualificationAnswer.objects.create(
        attempt=attempt, comparison=Comparison.objects.first(), position=1, left_is="a"
    )
    before = everything()
    with pytest.raises(Conflict) as caught:
        services.import_job_undo(job=job, by=emil)
    assert caught.value.code == "import_used"
    assert everything() == before


def test_a_pair_in_hand_goes_with_its_import_and_the_next_one_comes(
    signed_in: SignedIn, project: Project, emil: User, ana: User
) -> None:
    job = imported(checked(upload(project, emil, *rows_make(1))))
    lease = services.slot_lease_next(project=project, annotator=ana)
    services.import_job_undo(job=job, by=emil)
    client = signed_in(ana)
    skipped = client.post("/p/arguments/label/skip/", {"slot": lease.slot})
    assert skipped.status_code in (200, 302)
    with pytest.raises(Conflict) as caught:
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a")
    assert caught.value.code == "lease_lost"
    with pytest.raises(Missing):
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key="x", choice="a")


def test_a_prompt_that_a_person_wrote_stays_when_an_import_of_it_is_undone(
    project: Project, emil: User, ana: User, rita: User
) -> None:
    asked = rows_make(1)[0]["prompt"]
    batch_make(project, kind="prompts", name="Asked", instruction="A question.", n_prompts=1)
    text = accepted(project, ana, rita, asked)
    job = imported(checked(upload(project, emil, *rows_make(1))))
    assert Comparison.objects.get().prompt == text.made_prompt
    services.import_job_undo(job=job, by=emil)
    assert not Comparison.objects.exists()
    assert Prompt.objects.filter(pk=text.made_prompt.pk).exists()


def test_everything_that_refers_to_what_an_import_brings_is_known() -> None:
    """Whoever adds a reference to a prompt or an answer tells the undoing of imports of it."""
    assert _referring_to(Prompt) == {"Response", "Task", "ToolResult", "WrittenText"}
    assert _referring_to(Response) == {"Task", "Answer", "Vote", "TaskItem", "ToolResult"}


def _referring_to(model: Any) -> set[str]:
    every = (field for other in apps.get_models() for field in other._meta.concrete_fields)
    return {f.model.__name__ for f in every if f.remote_field and f.related_model is model}


# A large one goes by a worker, whose state stands on its row.


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any import is a large one."""
    monkeypatch.setattr(undoing, "SMALL", 0)
    monkeypatch.setattr(undoing, "_PART", 1)


def test_a_large_import_is_undone_by_a_worker(
    signed_in: SignedIn, project: Project, emil: User, ana: User, sent: list[str], large: None
) -> None:
    job = imported(checked(upload(project, emil, *rows_make(3))))
    client, page = signed_in(emil), f"{ROOT}{job.pk}/"
    sent.clear()
    client.post(f"{page}do/", {"action": "undo"})
    job.refresh_from_db()
    assert (job.stage, job.state, sent) == (Stage.UNDO, State.QUEUED, [job.pk])
    assert 'hx-trigger="every 1s"' in client.get(page).content.decode()
    # nobody is handed a pair of it meanwhile
    nothing = services.slot_lease_next(project=project, annotator=ana)
    assert nothing.code == "yours_done"
    assert Comparison.objects.count() == 3
    assert services.import_job_run(job=job.pk) == "undone"
    assert everything() == dict.fromkeys(everything(), 0)
    assert AuditEvent.objects.get(action="import.undone").actor == emil
    job.refresh_from_db()
    assert (job.stage, job.first_comparison) == (Stage.IMPORT, None)


def test_an_undo_that_is_refused_or_cancelled_leaves_a_finished_import(
    project: Project,
    emil: User,
    ana: User,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
    signed_in: SignedIn,
) -> None:
    job = imported(checked(upload(project, emil, *rows_make(3))))
    vote(project, ana)
    before = everything()

    def undo() -> ImportJob:
        services.import_job_undo(job=job, by=emil)
        assert services.import_job_run(job=job.pk) == "done"
        job.refresh_from_db()
        assert (job.stage, job.first_comparison, everything()) == (Stage.IMPORT, None, before)
        return job

    assert undo().error
    assert job.error.split(",")[0] in signed_in(emil).get(f"{ROOT}{job.pk}/").content.decode()
    leased(project, ana)  # pairs are handed out again
    Vote.objects.all()._raw_delete("default")  # as if there had been none
    before = everything()
    monkeypatch.setattr("apps.labeling.services.imports._EVERY", 0.0)
    real = undoing.Progress.tell

    def tell(self: Any, step: str, done: int = 0, total: int = 0) -> None:
        if done == 2:
            services.import_job_cancel(job=ImportJob.objects.get(), by=emil)
        real(self, step, done, total)

    monkeypatch.setattr(undoing.Progress, "tell", tell)
    assert undo().error == ""
    services.import_job_undo(job=job, by=emil)
    services.import_job_cancel(job=ImportJob.objects.get(), by=emil)  # before anybody took it
    assert ImportJob.objects.get().state == State.DONE
    assert ImportJob.objects.get().first_comparison is None


# One of the two: the vote or the undo.

VOTERS = 8


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seed", range(4))
def test_of_votes_and_an_undo_that_meet_exactly_one_wins(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undoing, "SMALL", 0 if seed % 2 else 1_000)
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    job = imported(checked(upload(project, emil, *rows_make(20))))
    people = annotators_make(project, VOTERS)
    leases = [(person, leased(project, person)) for person in people]
    start = threading.Barrier(VOTERS + 1)

    def cast(person: User, lease: services.Lease) -> str:
        try:
            start.wait(timeout=10)
            services.vote_cast(
                slot=lease.slot, annotator=person, idempotency_key=lease.key, choice="a"
            )
        except Conflict as error:
            return error.code
        finally:
            connection.close()
        return "cast"

    def undo() -> str:
        try:
            start.wait(timeout=10)
            services.import_job_undo(job=job, by=emil)
            return services.import_job_run(job=job.pk)
        except Conflict as error:
            return error.code
        finally:
            connection.close()

    with ThreadPoolExecutor(VOTERS + 1) as pool:
        casting = [pool.submit(cast, *one) for one in leases]
        undone = pool.submit(undo).result(timeout=60) == "undone"
        answers = Counter(one.result(timeout=60) for one in casting)
    n_votes = answers.pop("cast", 0)
    assert set(answers) <= {"lease_lost"}
    assert undone == (n_votes == 0)
    assert Vote.objects.count() == n_votes
    assert Comparison.objects.count() == (0 if undone else 20)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["vote", "undo"])
def test_whoever_comes_second_waits_and_loses(first: str) -> None:
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    ana = person_make("Ana", project, Role.ANNOTATOR)
    job = imported(checked(upload(project, emil, *rows_make(2))))
    lease = leased(project, ana)

    def cast() -> None:
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a")

    def undo() -> None:
        services.import_job_undo(job=job, by=emil)

    def second() -> str:
        try:
            (undo if first == "vote" else cast)()
        except Conflict as error:
            return error.code
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            (cast if first == "vote" else undo)()
            waiting = pool.submit(second)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
        assert waiting.result(timeout=10) == {"vote": "import_voted", "undo": "lease_lost"}[first]
    assert Comparison.objects.count() == (2 if first == "vote" else 0)


# kill -9 of the worker, at a step of its work.

WORKER = """
import os, signal, django
django.setup()
from apps.labeling import services
from apps.labeling.services import imports, undoing
told = imports.Progress.tell
def tell(self, step, done=0, total=0):
    told(self, step, done, total)
    if step == {step!r} and done >= {done}:
        os.kill(os.getpid(), signal.SIGKILL)
imports.Progress.tell = tell
undoing.SMALL, undoing._PART = 0, 10
services.import_job_run(job={job!r})
"""


def killed(job: ImportJob, step: str, done: int) -> None:
    """A worker of its own begins the job and is killed."""
    program = WORKER.format(step=step, done=done, job=job.pk)
    worker = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"DATABASE_URL": database_url()},
        timeout=120,
        check=False,
    )
    assert worker.returncode == -signal.SIGKILL
    job.refresh_from_db()
    assert job.state == State.RUNNING
    wait_for(lambda: services.import_jobs_sweep() > 0)  # the database has seen the connection end
    job.refresh_from_db()
    assert job.state == State.INTERRUPTED


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.spread
@pytest.mark.django_db(transaction=True)
def test_an_undo_killed_in_the_middle_has_deleted_nothing_and_is_done_again_or_given_up(
    monkeypatch: pytest.MonkeyPatch, signed_in: SignedIn
) -> None:
    monkeypatch.setattr(undoing, "SMALL", 0)
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    ana = person_make("Ana", project, Role.ANNOTATOR)
    job = imported(checked(upload(project, emil, *with_votes(40, 2))))
    before = everything()
    services.import_job_undo(job=job, by=emil)
    killed(job, "Deleting the comparisons", 20)
    assert (job.stage, everything()) == (Stage.UNDO, before)
    assert services.slot_lease_next(project=project, annotator=ana).code == "yours_done"
    page = f"{ROOT}{job.pk}/"
    answer = signed_in(emil).post(f"{page}do/", {"action": "cancel"})
    assert answer.status_code == 302
    leased(project, ana)
    services.import_job_undo(job=job, by=emil)
    killed(job, "Deleting the comparisons", 30)
    assert b'value="undo"' in signed_in(emil).get(page).content
    services.import_job_undo(job=job, by=emil)
    assert services.import_job_run(job=job.pk) == "undone"
    assert everything() == dict.fromkeys(everything(), 0)


@pytest.mark.spread
@pytest.mark.django_db(transaction=True)
def test_past_votes_killed_in_the_middle_are_continued_and_none_is_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Project.objects.create(slug="arguments", name="Arguments")
    emil = person_make("Emil", project, Role.ENGINEER)
    job = checked(upload(project, emil, *with_votes(1_500, 3)))
    services.import_job_start(job=job)
    killed(job, "Writing existing annotations", 4_000)
    n_first = Vote.objects.count()
    assert 4_000 <= n_first < 4_500
    assert Comparison.objects.count() == 1_500
    result = imported(job).result
    assert (result["n_created"], result["n_unchanged"]) == (1_500, 0)
    votes = result["votes"]
    assert (votes["n_created"], votes["n_unchanged"], votes["n_refused"]) == (4_500, 0, 0)
    assert Vote.objects.count() == 4_500
    assert set(Comparison.objects.values_list("n_votes", "state", "overlap")) == {(3, "decided", 3)}
    assert dict(Counter(Slot.objects.values_list("state", flat=True))) == {"done": 4_500}
    assert Decision.objects.filter(n_a=3, outcome="accepted").count() == 1_500


# Who labels an import, said by hand.


def test_an_import_is_labeled_by_the_people_chosen(
    signed_in: SignedIn, project: Project, ada: User, emil: User, ana: User, ben: User
) -> None:
    job = imported(checked(upload(project, emil, *rows_make(3))))
    services.comparisons_import(project=project, rows=rows_make(1, start=50))
    mine = set(Comparison.objects.filter(batch=imports.batch_of(job)).values_list("pk", flat=True))
    client, page = signed_in(ada), f"{ROOT}{job.pk}/"
    client.post(f"{page}people/", {"people": [ben.pk]})
    assert "data-people open" in client.get(page).content.decode()
    assert vote(project, ana).vote.comparison_id not in mine
    assert services.slot_lease_next(project=project, annotator=ana).code == "yours_done"
    status = services.labeling_status(project=project, annotator=ana)
    assert status.nothing is not None
    assert remaining_for(project=project, annotator=ana, n_today=1) == 0
    assert remaining_for(project=project, annotator=ben, n_today=0) == 4
    assert {vote(project, ben).vote.comparison_id for _ in range(4)} > mine
    services.import_people_set(job=job, people=[], by=ada)
    assert vote(project, ana).vote.comparison_id in mine
    event = AuditEvent.objects.filter(action="import.people_set").latest("pk")
    assert event.details["people"] == "everybody"


def test_gold_of_an_import_goes_to_its_people_alone(
    project: Project,
    emil: User,
    ada: User,
    ana: User,
    ben: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    LabelingSettings.objects.create(project=project, gold_share=0.5)
    rows = [row | {"stratum": "gold", "gold": "a"} for row in rows_make(2)]
    job = imported(checked(upload(project, emil, *rows)))
    services.import_people_set(job=job, people=[ben.pk], by=ada)
    monkeypatch.setattr(services.Eligibility, "stream", lambda self, draw: "gold")
    assert services.slot_lease_next(project=project, annotator=ana).code == "all_done"
    leased(project, ben)


def test_a_pair_that_its_people_have_all_answered_waits_for_nobody(
    project: Project, emil: User, ada: User, ana: User, ben: User
) -> None:
    job = imported(checked(upload(project, emil, *rows_make(1))))
    services.import_people_set(job=job, people=[ben.pk], by=ada)
    vote(project, ben)
    services.comparisons_sweep()
    assert Comparison.objects.get().state == "contested"
    services.import_people_set(job=job, people=[], by=ada)
    services.comparisons_sweep()
    assert Comparison.objects.get().state == "open"
    assert vote(project, ana).vote.comparison.state


def test_only_people_who_label_and_only_finished_imports_are_matched(
    project: Project, emil: User, ada: User, olga: User, ana: User
) -> None:
    job = upload(project, emil, *rows_make(1))
    with pytest.raises(Conflict) as early:
        services.import_people_set(job=job, people=[ana.pk], by=ada)
    assert early.value.code == "import_not_done"
    imported(checked(job))
    for nobody in (olga, emil):
        with pytest.raises(DomainError) as caught:
            services.import_people_set(job=job, people=[nobody.pk], by=ada)
        assert caught.value.field == "people"


def test_ids_of_an_import_lie_together(project: Project, emil: User) -> None:
    """What is closed to a person is a range of ids: no other import's are between."""
    jobs = [imported(checked(upload(project, emil, *rows_make(5, start=s)))) for s in (1, 20, 40)]
    ids = [
        sorted(Comparison.objects.filter(batch=imports.batch_of(job)).values_list("pk", flat=True))
        for job in jobs
    ]
    together = [one for part in ids for one in part]
    assert sorted(together) == together
