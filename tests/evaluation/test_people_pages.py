"""Pages and API of what people are asked about a reward model."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role, User
from apps.evaluation.models import AdversarialRound, OutputRanking
from apps.evaluation.services import adversarial as services
from apps.evaluation.services.adversarial import round_open
from apps.evaluation.services.ranking import outputs_send
from apps.labeling.models import Comparison, LabelingSettings, RatingTask
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run
from tests.evaluation.outputs import assessment_make, checkpoint_make, crowd_of, grade_all, output
from tests.evaluation.test_adversarial import PRAISE, praising, vote_all
from tests.evaluation.test_ranking import number_in
from tests.people import person_make


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    monkeypatch.setattr(services, "freeze_send", lambda _: True)


@pytest.fixture
def checkpoint(project: Project) -> Checkpoint:
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 3, "least_votes": 3, "least_agreeing": 2}
    )
    return checkpoint_make(project)


@pytest.fixture
def assessment(checkpoint: Checkpoint) -> Run:
    return assessment_make(checkpoint, [praising(n) for n in range(1, 36)])


@pytest.fixture
def browser(signed_in: Callable[[User], Client], emil: User) -> Client:
    return signed_in(emil)


def base(checkpoint: Checkpoint) -> str:
    return f"/p/{checkpoint.project.slug}/reward-models/{checkpoint.pk}"


def api_base(checkpoint: Checkpoint) -> str:
    return f"/api/v1/projects/{checkpoint.project.slug}/reward-models/{checkpoint.pk}"


def text_of(browser: Client, path: str) -> str:
    response = browser.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_without_an_assessment_both_pages_say_what_to_do(browser: Client, checkpoint: Checkpoint):
    for page in ("ranking", "adversarial"):
        html = text_of(browser, f"{base(checkpoint)}/{page}/")
        assert "Assess with a policy" in html
        assert f"{base(checkpoint)}/assess/" in html


def test_emil_is_told_in_numbers_what_sending_asks_for_and_sends_once(
    browser: Client, checkpoint: Checkpoint, assessment: Run
):
    page = f"{base(checkpoint)}/ranking/"
    assert "105 grades (35 outputs, 3 people each), about 26 minutes of work at 15 s" in text_of(
        browser, page
    )
    for _ in range(2):
        sent = browser.post(f"{page}send/", {"assessment": assessment.pk})
        assert (sent.status_code, sent.url) == (302, page)
    assert RatingTask.objects.count() == 35
    html = text_of(browser, page)
    assert "0 of 105 grades; 0 of 35 outputs graded" in html
    assert "sent to people, 0 of 35 graded" in html
    assert "Send 35 outputs" not in html


def test_the_page_draws_the_grades_and_gives_its_verdict_when_they_are_in(
    browser: Client, checkpoint: Checkpoint, emil: User
):
    lines = [output(n, score=n / 7) for n in range(1, 36)]
    run = assessment_make(checkpoint, lines)
    outputs_send(checkpoint=checkpoint, assessment=run, user=emil, overlap=2)
    grade_all(
        checkpoint.project,
        crowd_of(checkpoint.project, 2),
        lambda text: 1 + (number_in(text) - 1) // 5,
    )
    html = text_of(browser, f"{base(checkpoint)}/ranking/")
    assert "Rank correlation with people" in html
    assert html.count("<circle") >= 35
    found = browser.get(f"{base(checkpoint)}/ranking/outputs.csv")
    table = list(csv.DictReader(io.StringIO(b"".join(found.streaming_content).decode("utf-8-sig"))))
    assert len(table) == 35
    assert (table[0]["grades"], table[0]["n_grades"]) == ("7 7", "2")
    assert float(table[0]["score"]) == 5.0


def test_a_spoiled_file_is_said_on_both_pages_and_sending_it_changes_nothing(
    browser: Client, checkpoint: Checkpoint
):
    run = assessment_make(checkpoint, [praising(1), "{broken"])
    for page in ("ranking", "adversarial"):
        assert "Line 2 of outputs.jsonl" in text_of(browser, f"{base(checkpoint)}/{page}/")
    sent = browser.post(f"{base(checkpoint)}/ranking/send/", {"assessment": run.pk})
    assert sent.status_code == 400
    assert "Line 2" in sent.content.decode()
    opened = browser.post(f"{base(checkpoint)}/adversarial/open/", {"source": run.pk})
    assert opened.status_code == 400
    assert not OutputRanking.objects.exists()
    assert not AdversarialRound.objects.exists()


def test_emil_opens_a_round_sees_what_fooled_the_model_and_freezes_it(
    browser: Client, checkpoint: Checkpoint, assessment: Run
):
    page = f"{base(checkpoint)}/adversarial/"
    assert "105 votes (35 pairs, 3 people each)" in text_of(browser, page)
    opened = browser.post(f"{page}open/", {"source": assessment.pk})
    round_ = AdversarialRound.objects.get()
    assert opened.url == f"{page}{round_.pk}/"
    assert "Nothing is decided yet" in text_of(browser, opened.url)
    refused = browser.post(f"{opened.url}freeze/", follow=True)
    assert "no decided pair" in refused.content.decode()
    vote_all(checkpoint.project, crowd_of(checkpoint.project))
    html = text_of(browser, opened.url)
    assert "Fooled in 35 of 35 decided pairs" in html
    assert html.count(PRAISE) == 35
    assert "Freeze 35 hard pairs" in html
    frozen = browser.post(f"{opened.url}freeze/")
    made = Snapshot.objects.get()
    assert frozen.url == f"/p/{checkpoint.project.slug}/datasets/{made.pk}/"
    assert made.name in text_of(browser, opened.url)
    assert "Fooled in 35 of 35" in text_of(browser, page)
    rows = browser.get(f"{opened.url}pairs.csv")
    table = list(csv.DictReader(io.StringIO(b"".join(rows.streaming_content).decode("utf-8-sig"))))
    assert {row["people_preferred"] for row in table} == {"low"}


def test_scores_that_are_gone_leave_the_round_readable(
    browser: Client, checkpoint: Checkpoint, assessment: Run, emil: User
):
    round_, _ = round_open(checkpoint=checkpoint, source=assessment, user=emil)
    vote_all(checkpoint.project, crowd_of(checkpoint.project))
    assessment.artifacts.all().delete()
    html = text_of(browser, f"{base(checkpoint)}/adversarial/{round_.pk}/")
    assert "Scores are missing" in html
    assert "Fooled in 35 of 35" in html


def test_texts_of_a_model_are_shown_as_text(browser: Client, checkpoint: Checkpoint, emil: User):
    evil = "<script>alert(1)</script> says the policy in answer 1"
    run = assessment_make(checkpoint, [output(1, 5.0, response=evil)])
    outputs_send(checkpoint=checkpoint, assessment=run, user=emil)
    html = text_of(browser, f"{base(checkpoint)}/ranking/")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_what_belongs_to_another_model_or_project_leads_nowhere(
    browser: Client, project: Project, checkpoint: Checkpoint, assessment: Run, emil: User
):
    other = Project.objects.create(slug="other", name="Other")
    ben = person_make("Ben", other, Role.ENGINEER)
    foreign = checkpoint_make(other)
    run = assessment_make(foreign, [praising(1)])
    ranking, _ = outputs_send(checkpoint=foreign, assessment=run, user=ben)
    round_, _ = round_open(checkpoint=foreign, source=run, user=ben)
    mine = f"/p/{project.slug}/reward-models"
    policy = assessment.inputs.get(role="policy").checkpoint_id
    for path in (
        f"{mine}/{foreign.pk}/ranking/",
        f"{mine}/{policy}/ranking/",  # a model of another kind
        f"{mine}/{foreign.pk}/adversarial/",
        f"{mine}/{foreign.pk}/adversarial/{round_.pk}/",
        f"{mine}/{checkpoint.pk}/adversarial/{round_.pk}/",
        f"{mine}/{checkpoint.pk}/adversarial/{round_.pk}/pairs.csv",
        f"{mine}/{checkpoint.pk}/ranking/?of={ranking.pk}",
        f"{mine}/{checkpoint.pk}/ranking/outputs.csv?of={ranking.pk}",
        f"{api_base(checkpoint).replace(checkpoint.pk, foreign.pk)}/rankings",
    ):
        assert browser.get(path).status_code == 404, path
    before = (RatingTask.objects.count(), Comparison.objects.count())
    for path, sent in (
        (f"{base(checkpoint)}/ranking/send/", {"assessment": run.pk}),
        (f"{base(checkpoint)}/ranking/send/", {"assessment": "nul\x00"}),
        (f"{base(checkpoint)}/adversarial/open/", {"source": run.pk}),
        (f"{base(checkpoint)}/adversarial/{round_.pk}/freeze/", {}),
    ):
        assert browser.post(path, sent).status_code == 404, path
    assert (RatingTask.objects.count(), Comparison.objects.count()) == before


def test_a_program_sends_asks_and_freezes_as_the_pages_do(
    browser: Client, checkpoint: Checkpoint, assessment: Run
):
    url = api_base(checkpoint)

    def post(path: str, **data: Any) -> Any:
        return browser.post(f"{url}{path}", data, content_type="application/json")

    first = post("/rankings", assessment=assessment.pk, overlap=2)
    again = post("/rankings", assessment=assessment.pk)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert (first.json()["n_outputs"], first.json()["overlap"]) == (35, 2)
    assert first.json()["finding"]["verdict"] == "unmeasured"
    assert browser.get(f"{url}/rankings").json()[0]["n_grades"] == 0

    opened = post("/adversarial-rounds", source=assessment.pk, n_pairs=4)
    assert (opened.status_code, opened.json()["n_pairs"]) == (201, 4)
    assert post("/adversarial-rounds", source=assessment.pk).status_code == 200
    refused = post(f"/adversarial-rounds/{opened.json()['id']}/hard-pairs")
    assert (refused.status_code, refused.json()["code"]) == (409, "no_hard_pairs")
    vote_all(checkpoint.project, crowd_of(checkpoint.project))
    (found,) = browser.get(f"{url}/adversarial-rounds").json()
    assert (found["n_decided"], found["n_fooled"], found["fooled"]["value"]) == (4, 4, 1.0)
    frozen = post(f"/adversarial-rounds/{found['id']}/hard-pairs")
    assert (frozen.status_code, frozen.json()["n_pairs"]) == (202, 4)
    wrong = post("/rankings", assessment=assessment.pk, overlap=99)
    assert (wrong.status_code, wrong.json()["field"]) == (400, "overlap")
    assert post("/rankings", assessment="nobody").status_code == 404
