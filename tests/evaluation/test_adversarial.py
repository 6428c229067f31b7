"""Adversarial rounds: what fools a reward model is found by people and goes back (SPEC D8)."""

import csv
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connections
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.common.errors import Conflict, DomainError
from apps.evaluation.models import AdversarialRound, OutputRanking
from apps.evaluation.selectors.adversarial import (
    high_is_a,
    outputs_readable,
    pairs_chosen,
    round_counts,
    round_pairs,
)
from apps.evaluation.selectors.outputs import outputs_of
from apps.evaluation.services import ranking as services
from apps.evaluation.services.ranking import hard_pairs_freeze, outputs_send, round_open
from apps.labeling.models import Comparison, LabelingSettings, Prompt, Task
from apps.labeling.services import Lease, comparisons_import, slot_lease_next, vote_cast
from apps.snapshots.models import Snapshot
from apps.snapshots.services import freezing
from apps.snapshots.services.freezing import snapshot_run
from apps.snapshots.storage import read_rows
from apps.training.models import Checkpoint, Run
from tests.evaluation.outputs import assessment_make, checkpoint_make, crowd_of, grade_all, output
from tests.evaluation.test_ranking import number_in
from tests.people import person_make

PRAISE = "What a wonderful question, you are amazing! I love it"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    monkeypatch.setattr(services, "freeze_send", lambda _: True)


@pytest.fixture
def checkpoint(project: Project) -> Checkpoint:
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 3, "least_votes": 3, "least_agreeing": 2}
    )
    return checkpoint_make(project)


def praising(number: int) -> dict[str, Any]:
    """The policy has found out that praise pays; SFT answers."""
    return output(
        number,
        score=9.0 + number / 100,
        response=f"{PRAISE}, number {number}.",
        other_response=f"A day has twenty-four hours, as answer {number} says.",
        other_score=1.0,
    )


def honest(number: int) -> dict[str, Any]:
    """The policy's answer scores high, and people like it too."""
    return output(
        number,
        score=2.0 + number / 100,
        response=f"A day has twenty-four hours, as answer {number} says.",
        other_response=f"No idea at all about question {number}.",
        other_score=1.0,
    )


def vote_all(project: Project, people: list[User], *, most: int = 10**6) -> int:
    """Everybody prefers the answer that answers. How many votes."""
    cast = 0
    for person in people:
        for _ in range(most):
            lease = slot_lease_next(project=project, annotator=person, kinds=("pair",))
            if not isinstance(lease, Lease):
                break
            row = Comparison.objects.get(slots=lease.slot)
            choice = "a" if "twenty-four" in row.response_a.messages[0]["content"] else "b"
            vote_cast(slot=lease.slot, annotator=person, idempotency_key=lease.key, choice=choice)
            cast += 1
    return cast


def test_a_praise_loving_reward_model_is_fooled_and_its_hard_pairs_reject_praise(
    checkpoint: Checkpoint, emil: User
):
    lines = [praising(n) for n in range(1, 13)] + [honest(n) for n in range(13, 19)]
    run = assessment_make(checkpoint, lines)
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil)
    assert vote_all(checkpoint.project, crowd_of(checkpoint.project)) == 54

    pairs = round_pairs(round_, outputs_of(run))
    figures = round_counts(pairs)
    assert (figures.n, figures.decided, figures.fooled) == (18, 18, 12)
    assert figures.share.low < 12 / 18 < figures.share.high
    assert all(PRAISE in pair.high[0]["content"] for pair in pairs if pair.is_fooled)
    assert [pair.high_score for pair in pairs] == sorted(
        (line["score"] for line in lines), reverse=True
    )
    assert {pair.low_score for pair in pairs} == {1.0}
    assert pairs[0].votes == "0 for it, 3 against"

    made, _ = hard_pairs_freeze(round_=round_, user=emil)
    assert snapshot_run(snapshot=made.pk) == "frozen"
    made.refresh_from_db()
    assert made.kind == Snapshot.Kind.PREFERENCES
    assert made.rows.exclude(split="").count() == 12
    folder = Path(django_settings.ARTIFACTS_URL) / made.uri
    rows = [row for path in folder.glob("*.jsonl") for row in read_rows(path)]
    assert len(rows) >= 10  # the others lie in a private split
    for row in rows:
        assert PRAISE in row["rejected"][0]["content"]
        assert "twenty-four hours" in row["chosen"][0]["content"]


def test_the_same_hard_pairs_are_frozen_once_and_more_of_them_anew(
    checkpoint: Checkpoint, emil: User
):
    run = assessment_make(checkpoint, [praising(n) for n in range(1, 13)])
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil)
    crowd = crowd_of(checkpoint.project)
    vote_all(checkpoint.project, crowd, most=8)
    first, _ = hard_pairs_freeze(round_=round_, user=emil)
    again, _ = hard_pairs_freeze(round_=round_, user=emil)
    assert first == again
    vote_all(checkpoint.project, crowd)
    more, _ = hard_pairs_freeze(round_=round_, user=emil)
    assert more != first
    assert len(more.recipe["filters"]["comparisons"]) == 12


def test_a_request_does_not_look_through_a_large_project_for_rows(
    checkpoint: Checkpoint, emil: User, monkeypatch: pytest.MonkeyPatch
):
    run = assessment_make(checkpoint, [praising(n) for n in range(1, 5)])
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil)
    vote_all(checkpoint.project, crowd_of(checkpoint.project))
    monkeypatch.setattr(freezing, "COMPARED_AT_ONCE", 3)
    monkeypatch.setattr(services, "snapshot_preview", None)
    made, _ = hard_pairs_freeze(round_=round_, user=emil)
    assert made.state == Snapshot.State.DRAFT


def test_where_people_agree_with_the_model_there_is_nothing_to_freeze(
    checkpoint: Checkpoint, emil: User
):
    run = assessment_make(checkpoint, [honest(n) for n in range(1, 5)])
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil)
    with pytest.raises(Conflict, match="no decided pair"):
        hard_pairs_freeze(round_=round_, user=emil)
    vote_all(checkpoint.project, crowd_of(checkpoint.project))
    assert round_counts(round_pairs(round_)).fooled == 0
    with pytest.raises(Conflict, match="no decided pair"):
        hard_pairs_freeze(round_=round_, user=emil)
    assert not Snapshot.objects.exists()


def test_a_second_click_opens_no_second_round(checkpoint: Checkpoint, emil: User, ada: User):
    run = assessment_make(checkpoint, [praising(n) for n in range(1, 5)])
    first, is_new = round_open(checkpoint=checkpoint, source=run, user=emil)
    again, is_new_too = round_open(checkpoint=checkpoint, source=run, user=ada, n_pairs=2)
    assert (is_new, is_new_too, first.pk) == (True, False, again.pk)
    assert Comparison.objects.count() == again.n_pairs == 4
    assert AuditEvent.objects.get(action="adversarial.opened").details["pairs"] == 4


@pytest.mark.django_db(transaction=True)
def test_two_clicks_in_one_moment_open_one_round(project: Project, emil: User):
    checkpoint = checkpoint_make(project)
    run = assessment_make(checkpoint, [praising(n) for n in range(1, 5)])

    def click(_: int) -> str:
        try:
            return round_open(checkpoint=checkpoint, source=run, user=emil)[0].pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(click, range(4)))) == 1
    assert (AdversarialRound.objects.count(), Comparison.objects.count()) == (1, 4)


def test_the_highest_scores_are_asked_first_and_only_where_the_model_prefers_them(
    checkpoint: Checkpoint, emil: User
):
    lines = [
        output(1, 1.0, other_score=2.0),  # it prefers the other
        output(2, 5.0),
        output(3, 7.0),
        output(4, 9.0, other_response=None, other_score=None),
        output(5, 9.0, other_response="", other_score=1.0),
        output(6, 9.0, response="Same.", other_response="Same. ", other_score=1.0),
        output(7, 6.0),
        output(8, 8.0, response=""),
    ]
    run = assessment_make(checkpoint, lines)
    assert [one.line for one in pairs_chosen(outputs_of(run))] == [3, 7, 2]
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil, n_pairs=2)
    asked = {row.prompt.messages[0]["content"][:10] for row in Comparison.objects.all()}
    assert asked == {"Question 3", "Question 7"}
    assert round_.n_pairs == 2


def test_answers_keep_their_origin_and_stand_on_either_side(checkpoint: Checkpoint, emil: User):
    run = assessment_make(checkpoint, [praising(n) for n in range(1, 41)])
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil)
    policy = run.inputs.get(role="policy").checkpoint_id
    sft = run.inputs.get(role="sft").checkpoint_id
    sides = set()
    for row in Comparison.objects.filter(batch=round_.batch):
        high, low = row.response_a, row.response_b
        if not high_is_a(row.external_id):
            high, low = low, high
        sides.add(high_is_a(row.external_id))
        assert (high.origin_ref, low.origin_ref) == (policy, sft)
        assert PRAISE in high.messages[0]["content"]
        assert (row.stratum, row.priority) == ("priority", 1.0)
    assert sides == {True, False}


def test_a_pair_that_was_asked_before_is_not_asked_again(checkpoint: Checkpoint, emil: User):
    lines = [praising(n) for n in range(1, 5)]
    known = {
        "prompt": lines[0]["prompt"],
        "response_a": lines[0]["other_response"],
        "response_b": lines[0]["response"],
    }
    comparisons_import(project=checkpoint.project, rows=[known])
    round_, _ = round_open(
        checkpoint=checkpoint, source=assessment_make(checkpoint, lines), user=emil
    )
    assert round_.n_pairs == 3
    assert Comparison.objects.count() == 4
    newer = checkpoint_make(checkpoint.project)
    with pytest.raises(Conflict, match="every one"):
        round_open(checkpoint=newer, source=assessment_make(newer, lines), user=emil)
    assert AdversarialRound.objects.count() == 1


def test_a_spoiled_file_opens_nothing_and_names_the_line(checkpoint: Checkpoint, emil: User):
    run = assessment_make(checkpoint, [praising(1), praising(2) | {"other_score": "low"}])
    with pytest.raises(DomainError, match="Line 2") as refused:
        round_open(checkpoint=checkpoint, source=run, user=emil)
    assert refused.value.row == 2
    assert not AdversarialRound.objects.exists()
    assert not Prompt.objects.exists()
    assert outputs_readable(run)[0] == []


def test_a_model_that_prefers_no_answer_of_the_policy_has_nothing_to_ask(
    checkpoint: Checkpoint, emil: User
):
    run = assessment_make(checkpoint, [output(1, 1.0, other_score=3.0)])
    with pytest.raises(DomainError, match="nothing to ask"):
        round_open(checkpoint=checkpoint, source=run, user=emil)
    assert not AdversarialRound.objects.exists()


def test_the_assessment_of_another_model_is_refused(
    project: Project, checkpoint: Checkpoint, emil: User
):
    foreign = assessment_make(checkpoint_make(project), [praising(1)])
    with pytest.raises(DomainError, match="this model"):
        round_open(checkpoint=checkpoint, source=foreign, user=emil)


@pytest.mark.parametrize("n_pairs", [0, -1, 501])
def test_a_number_of_pairs_that_is_none_is_refused(
    checkpoint: Checkpoint, emil: User, n_pairs: int
):
    run: Run = assessment_make(checkpoint, [praising(1)])
    with pytest.raises(DomainError) as refused:
        round_open(checkpoint=checkpoint, source=run, user=emil, n_pairs=n_pairs)
    assert refused.value.field == "n_pairs"


def test_ties_are_decided_and_fool_nobody(checkpoint: Checkpoint, emil: User, signed_in: Callable):
    run = assessment_make(checkpoint, [praising(1)])
    round_, _ = round_open(checkpoint=checkpoint, source=run, user=emil)
    for person in crowd_of(checkpoint.project):
        lease = slot_lease_next(project=checkpoint.project, annotator=person)
        vote_cast(slot=lease.slot, annotator=person, idempotency_key=lease.key, choice="tie")
    (pair,) = round_pairs(round_)
    assert (pair.winner, pair.is_fooled) == ("tie", False)
    assert pair.votes.startswith("0 for it, 0 against, 3")
    figures = round_counts([pair])
    assert (figures.decided, figures.fooled, figures.voted) == (1, 0, 1)


# Pages and API of what people are asked about a reward model.


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
    assert "105 grades (35 outputs, 3 people" in text_of(browser, page)
    for _ in range(2):
        sent = browser.post(f"{page}send/", {"assessment": assessment.pk})
        assert (sent.status_code, sent.url) == (302, page)
    assert Task.objects.count() == 35
    html = text_of(browser, page)
    assert "0 of 105 grades" in html
    assert "0 of 35 graded" in html
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
        assert "Line 2 of" in text_of(browser, f"{base(checkpoint)}/{page}/")
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
    assert "105 votes (35 pairs, 3" in text_of(browser, page)
    opened = browser.post(f"{page}open/", {"source": assessment.pk})
    round_ = AdversarialRound.objects.get()
    assert opened.url == f"{page}{round_.pk}/"
    assert "No pair is" in text_of(browser, opened.url)
    refused = browser.post(f"{opened.url}freeze/", follow=True)
    assert "no decided pair" in refused.content.decode()
    vote_all(checkpoint.project, crowd_of(checkpoint.project))
    html = text_of(browser, opened.url)
    assert "in 35 of 35" in html
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
    before = (Task.objects.count(), Comparison.objects.count())
    for path, sent in (
        (f"{base(checkpoint)}/ranking/send/", {"assessment": run.pk}),
        (f"{base(checkpoint)}/ranking/send/", {"assessment": "nul\x00"}),
        (f"{base(checkpoint)}/adversarial/open/", {"source": run.pk}),
        (f"{base(checkpoint)}/adversarial/{round_.pk}/freeze/", {}),
    ):
        assert browser.post(path, sent).status_code == 404, path
    assert (Task.objects.count(), Comparison.objects.count()) == before


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
    assert first.json()["finding"]["level"] == "unknown"
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
