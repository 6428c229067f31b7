"""Outputs that people grade, to see whether a reward model ranks them alike (SPEC D11)."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.evaluation.models import OutputRanking, RankedOutput
from apps.evaluation.selectors.ranking import (
    graded_outputs,
    people_rank_finding,
    progress_of,
    rankings_of,
    seconds_a_grade,
    sendable,
)
from apps.evaluation.services.ranking import outputs_send
from apps.labeling.models import Prompt, Slot, Task, TaskItem
from apps.labeling.services import slot_lease_next
from apps.training.models import Checkpoint, Run
from measures.trust.findings import Verdict
from tests.evaluation.outputs import (
    assessment_make,
    checkpoint_make,
    crowd_of,
    grade_all,
    output,
    shuffles,
)


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Any, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def checkpoint(project: Project) -> Checkpoint:
    return checkpoint_make(project)


@pytest.fixture
def assessment(checkpoint: Checkpoint) -> Run:
    return assessment_make(checkpoint, [output(n, score=float(n)) for n in range(1, 21)])


def number_in(text: str) -> int:
    return int(re.findall(r"answer (\d+)", text)[-1])


def test_every_output_becomes_one_task_for_three_people(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    ranking, is_new = outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    assert is_new
    tasks = Task.objects.filter(project=checkpoint.project)
    assert tasks.count() == ranking.outputs.count() == 20
    assert set(tasks.values_list("kind", "low", "high", "overlap")) == {("grade", 1, 7, 3)}
    assert Slot.objects.filter(state="free").count() == 60
    policy = assessment.inputs.get(role="policy").checkpoint_id
    origins = TaskItem.objects.values_list("response__origin", "response__origin_ref")
    assert set(origins) == {("model", policy)}
    for row in ranking.outputs.select_related("task__prompt"):
        asked = row.task.prompt.messages[0]["content"]
        assert row.score == float(re.search(r"\d+", asked)[0])
    assert AuditEvent.objects.get(action="outputs.sent").details["outputs"] == 20


def test_without_a_policy_the_answers_are_those_of_the_sft_model(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    assessment.inputs.filter(role="policy").delete()
    outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    sft = assessment.inputs.get(role="sft").checkpoint_id
    assert set(TaskItem.objects.values_list("response__origin_ref", flat=True)) == {sft}


def test_a_second_click_sends_nothing_and_shows_what_the_first_one_sent(
    checkpoint: Checkpoint, assessment: Run, emil: User, ada: User
):
    first, _ = outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    again, is_new = outputs_send(checkpoint=checkpoint, assessment=assessment, user=ada, overlap=5)
    assert (again.pk, again.overlap, is_new) == (first.pk, 3, False)
    assert Task.objects.count() == 20
    assert AuditEvent.objects.filter(action="outputs.sent").count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_clicks_in_one_moment_send_once(project: Project, emil: User):
    checkpoint = checkpoint_make(project)
    run = assessment_make(checkpoint, [output(n, score=n) for n in range(1, 9)])

    def click(_: int) -> str:
        try:
            return outputs_send(checkpoint=checkpoint, assessment=run, user=emil)[0].pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(click, range(4)))) == 1
    assert (OutputRanking.objects.count(), Task.objects.count()) == (1, 8)


def test_the_order_of_the_queue_tells_nothing_of_the_scores(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    order = [int(re.search(r"\d+", text)[0]) for text in shuffles(checkpoint.project)]
    assert sorted(order) == list(range(1, 21))
    assert order not in (list(range(1, 21)), list(range(20, 0, -1)))


def test_ana_sees_neither_score_nor_model(
    checkpoint: Checkpoint, assessment: Run, emil: User, ana: User, signed_in: Callable
):
    outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    lease = slot_lease_next(project=checkpoint.project, annotator=ana)
    assert not {"score", "origin", "model", "ranking"} & set(lease.__dataclass_fields__)
    html = signed_in(ana).get(f"/p/{checkpoint.project.slug}/label/").content.decode()
    policy = assessment.inputs.get(role="policy").checkpoint_id
    assert "Question" in html
    for secret in (policy, checkpoint.pk, assessment.pk, "ranking-", "disagreement"):
        assert secret not in html


def test_of_more_than_a_hundred_a_hundred_are_drawn_and_not_the_best(
    checkpoint: Checkpoint, emil: User
):
    run = assessment_make(checkpoint, [output(n, score=-n) for n in range(1, 301)])
    ranking, _ = outputs_send(checkpoint=checkpoint, assessment=run, user=emil)
    scores = [row.score for row in ranking.outputs.all()]
    assert len(scores) == 100
    assert min(scores) < -200
    assert max(scores) > -100


def test_empty_answers_and_repeated_questions_are_not_asked(checkpoint: Checkpoint, emil: User):
    lines = [output(1, 1.0), output(1, 1.0), output(2, 2.0, response="  "), output(3, 3.0)]
    ranking, _ = outputs_send(
        checkpoint=checkpoint, assessment=assessment_make(checkpoint, lines), user=emil
    )
    assert ranking.outputs.count() == 2


@pytest.mark.parametrize(
    ("spoiled", "named"),
    [
        ("{not json", "it is not JSON"),
        ("[1, 2]", "it is not an object"),
        (output(2, 1.0) | {"score": None}, "score is missing"),
        (output(2, 1.0) | {"score": "high"}, "score is not a finite number"),
        ('{"prompt": "p", "response": "r", "score": NaN}', "score is not a finite number"),
        (output(2, 1.0) | {"prompt": []}, "empty list"),
        (output(2, 1.0) | {"response": ["a"]}, "response is not a text"),
        (output(2, 1.0) | {"response": "a\x00b"}, "NUL"),
        (output(2, 1.0) | {"other_score": True}, "other_score is not a finite number"),
    ],
)
def test_a_spoiled_line_is_named_and_nothing_is_sent(
    checkpoint: Checkpoint, emil: User, spoiled: Any, named: str
):
    run = assessment_make(checkpoint, [output(1, 1.0), spoiled, output(3, 3.0)])
    with pytest.raises(DomainError, match="Line 2") as refused:
        outputs_send(checkpoint=checkpoint, assessment=run, user=emil)
    assert named in refused.value.message
    assert (refused.value.row, refused.value.code) == (2, "bad_outputs")
    assert not OutputRanking.objects.exists()
    assert not Task.objects.exists()
    assert not Prompt.objects.exists()


def test_an_assessment_that_is_not_done_or_of_another_model_is_refused(
    project: Project, checkpoint: Checkpoint, emil: User
):
    running = assessment_make(checkpoint, [output(1, 1.0)], state="running")
    with pytest.raises(Conflict, match="finished"):
        outputs_send(checkpoint=checkpoint, assessment=running, user=emil)
    foreign = assessment_make(checkpoint_make(project), [output(1, 1.0)])
    with pytest.raises(DomainError, match="this model"):
        outputs_send(checkpoint=checkpoint, assessment=foreign, user=emil)
    assert sendable(checkpoint) is None


def test_an_assessment_without_a_policy_or_with_a_lost_file_says_so(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    row = assessment.artifacts.get()
    row.sha256 = "1" * 64
    row.save()
    with pytest.raises(Conflict, match="cannot be read"):
        outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    row.delete()
    with pytest.raises(Conflict, match="with a policy"):
        outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    assert sendable(checkpoint) is None


def test_before_anything_was_sent_the_line_is_unmeasured_and_says_what_to_do(
    checkpoint: Checkpoint,
):
    finding = people_rank_finding(checkpoint)
    assert finding.verdict == Verdict.UNMEASURED
    assert "send its answers" in finding.says


def test_while_grades_come_in_the_line_counts_and_gives_no_verdict(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    ranking, _ = outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil, overlap=2)
    crowd = crowd_of(checkpoint.project, 2)
    grade_all(checkpoint.project, crowd, lambda text: 4, at_most=24)
    finding = people_rank_finding(checkpoint)
    assert finding.verdict == Verdict.UNMEASURED
    progress = progress_of(ranking, graded_outputs(ranking))
    assert f"{progress.done} of 20 graded" in finding.says
    assert 4 <= progress.done <= 12
    assert (progress.grades, progress.wanted) == (24, 40)


def test_where_people_grade_as_the_model_scores_the_line_is_green(
    checkpoint: Checkpoint, emil: User
):
    run = assessment_make(checkpoint, [output(n, score=n / 10) for n in range(1, 71)])
    outputs_send(checkpoint=checkpoint, assessment=run, user=emil, overlap=2)
    crowd = crowd_of(checkpoint.project, 2)
    grade_all(checkpoint.project, crowd, lambda text: 1 + (number_in(text) - 1) // 10)
    finding = people_rank_finding(checkpoint)
    assert finding.line == "people_rank"
    assert finding.verdict == Verdict.GREEN
    assert finding.figure.value > 0.9


def test_where_people_grade_the_other_way_round_the_line_is_red(checkpoint: Checkpoint, emil: User):
    run = assessment_make(checkpoint, [output(n, score=n / 10) for n in range(1, 71)])
    outputs_send(checkpoint=checkpoint, assessment=run, user=emil, overlap=2)
    crowd = crowd_of(checkpoint.project, 2)
    grade_all(checkpoint.project, crowd, lambda text: 7 - (number_in(text) - 1) // 10)
    finding = people_rank_finding(checkpoint)
    assert finding.verdict == Verdict.RED
    assert finding.figure.value < -0.9


def test_outputs_that_left_the_queue_are_told_and_hold_nothing_up(
    checkpoint: Checkpoint, emil: User
):
    run = assessment_make(checkpoint, [output(n, score=n) for n in range(1, 41)])
    ranking, _ = outputs_send(checkpoint=checkpoint, assessment=run, user=emil, overlap=2)
    gone = Task.objects.order_by("pk")[:8]
    Task.objects.filter(pk__in=[task.pk for task in gone]).update(state="dropped")
    Slot.objects.filter(task__in=gone).update(state="withdrawn")
    grade_all(checkpoint.project, crowd_of(checkpoint.project, 2), number_grade)
    progress = progress_of(ranking, graded_outputs(ranking))
    assert (progress.done, progress.out, progress.wanted) == (32, 8, 64)
    finding = people_rank_finding(checkpoint)
    assert finding.verdict == Verdict.RED
    assert finding.figure.n == 32


def test_fewer_outputs_than_a_correlation_needs_say_what_to_do(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil, overlap=2)
    grade_all(checkpoint.project, crowd_of(checkpoint.project, 2), number_grade)
    finding = people_rank_finding(checkpoint)
    assert finding.verdict == Verdict.UNMEASURED
    assert "20 of 20 graded. 30" in finding.says


@pytest.mark.parametrize("overlap", [0, 1, 21])
def test_a_number_of_grades_that_tells_nothing_is_refused(
    checkpoint: Checkpoint, assessment: Run, emil: User, overlap: int
):
    with pytest.raises(DomainError) as refused:
        outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil, overlap=overlap)
    assert refused.value.field == "overlap"
    assert not OutputRanking.objects.exists()


def number_grade(text: str) -> int:
    return 1 + number_in(text) % 7


def test_the_newest_outputs_are_the_ones_that_count(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil)
    later = assessment_make(checkpoint, [output(n, score=n) for n in range(30, 33)])
    newest, is_new = outputs_send(checkpoint=checkpoint, assessment=later, user=emil)
    assert is_new
    assert rankings_of(checkpoint).first() == newest
    assert "0 of 3 graded" in people_rank_finding(checkpoint).says
    assert RankedOutput.objects.count() == 23


def test_the_promised_time_is_what_people_take_here_once_they_have_graded(
    checkpoint: Checkpoint, assessment: Run, emil: User
):
    assert seconds_a_grade(checkpoint) == 15
    outputs_send(checkpoint=checkpoint, assessment=assessment, user=emil, overlap=2)
    grade_all(checkpoint.project, crowd_of(checkpoint.project, 2), number_grade)
    assert seconds_a_grade(checkpoint) == 9
