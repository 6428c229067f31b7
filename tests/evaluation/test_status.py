"""Who decided what about a reward model, on which page, and what that lets PPO do."""

import threading
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import token_create
from apps.common.errors import Conflict, DomainError
from apps.evaluation.lines import LINES
from apps.evaluation.models import ModelReview
from apps.evaluation.selectors import models
from apps.evaluation.selectors.models import judgement_of, state_sha256
from apps.evaluation.services.reviewing import model_review
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint, Run
from measures.trust.findings import Finding, Verdict
from tests.evaluation.assessed import (
    all_green,
    assessment_make,
    dataset_make,
    model_make,
    red,
    with_evidence,
)

REASON = "the red line is about a source that we do not use"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def model(project: Project, emil: User) -> Checkpoint:
    return model_make(project, by=emil)


def decide(
    model: Checkpoint, user: User, status: str = "approved", reason: str = REASON, **seen: str
) -> ModelReview:
    """As somebody who has the page before them."""
    saw = {"seen_status": model.status, "seen_sha256": judgement_of(model).sha256} | seen
    done = model_review(
        project=model.project,
        checkpoint_id=model.pk,
        status=status,
        user=user,
        reason=reason,
        **saw,
    )
    model.refresh_from_db()
    return done


def test_an_approval_keeps_the_page_the_person_and_the_reason(model, ada):
    run = assessment_make(model, with_evidence())
    review = decide(model, ada)
    assert (model.status, review.by_name, review.reason) == ("approved", "Ada", REASON)
    assert review.assessment == run
    review.refresh_from_db()
    assert [one["line"] for one in review.state["findings"]] == list(LINES)
    assert state_sha256(review.state) == review.state_sha256
    said = AuditEvent.objects.get(action="model.approved")
    assert said.actor == ada
    assert "slices" in said.details["red"]


@pytest.mark.parametrize("reason", ["", "   ", "too short"])
def test_lines_that_are_not_green_ask_for_a_reason_to_approve(model, ada, reason):
    assessment_make(model)  # freshness and people's ranking are not measured
    with pytest.raises(DomainError) as refused:
        decide(model, ada, reason=reason)
    assert (refused.value.code, refused.value.field) == ("reason_missing", "reason")
    assert not ModelReview.objects.exists()
    assert not AuditEvent.objects.filter(action="model.approved").exists()


@pytest.mark.parametrize("status", ["rejected", "retired"])
def test_rejecting_and_retiring_need_a_reason(model, ada, status):
    with pytest.raises(DomainError) as refused:
        decide(model, ada, status, reason=" ")
    assert refused.value.field == "reason"
    assert decide(model, ada, status, reason="no").status == status


def test_nobody_makes_a_model_a_candidate_or_something_unknown(model, ada):
    for status in ("candidate", "blessed"):
        with pytest.raises(DomainError):
            decide(model, ada, status)


def test_a_page_that_changed_since_it_was_seen_is_not_decided_on(model, ada):
    assessment_make(model)
    seen = judgement_of(model).sha256
    assessment_make(model, all_green(red("accuracy")), name="newer")
    with pytest.raises(Conflict) as refused:
        decide(model, ada, seen_sha256=seen)
    assert refused.value.code == "page_changed"
    model.refresh_from_db()
    assert model.status == "candidate"


def test_votes_that_come_in_meanwhile_hinder_nobody_but_a_verdict_that_turns_does(
    model, ada, monkeypatch
):
    assessment_make(model)

    def told(says: str, verdict: str = "green") -> None:
        found = Finding(line="freshness", verdict=Verdict(verdict), says=says)
        monkeypatch.setattr(models, "web_findings", lambda *_, **__: {"freshness": found})

    told("5 votes came since")
    seen = judgement_of(model).sha256
    told("500 votes came since", "red")
    with pytest.raises(Conflict):
        decide(model, ada, seen_sha256=seen)
    told("6 votes came since")
    review = decide(model, ada, seen_sha256=seen)
    kept = next(one for one in review.state["findings"] if one["line"] == "freshness")
    assert kept["says"] == "6 votes came since"


def test_the_second_of_two_people_is_told_who_was_faster(model, ada, emil):
    seen = {"seen_status": "candidate", "seen_sha256": judgement_of(model).sha256}
    decide(model, emil, "rejected", **seen)
    with pytest.raises(Conflict) as refused:
        decide(model, ada, **seen)
    assert refused.value.code == "status_changed"
    assert "now rejected" in refused.value.message


@pytest.mark.django_db(transaction=True)
def test_two_people_who_decide_at_the_same_moment_make_one_decision(project, emil, ada):
    model = model_make(project)
    seen = {"seen_status": "candidate", "seen_sha256": judgement_of(model).sha256}
    start, outcomes = threading.Barrier(2), []

    def press(user: User, status: str) -> None:
        start.wait()
        try:
            model_review(
                project=project,
                checkpoint_id=model.pk,
                status=status,
                user=user,
                reason=REASON,
                **seen,
            )
            outcomes.append(status)
        except Conflict as error:
            outcomes.append(error.code)
        finally:
            connection.close()

    both = [
        threading.Thread(target=press, args=args)
        for args in ((emil, "rejected"), (ada, "approved"))
    ]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert outcomes.count("status_changed") == 1
    assert ModelReview.objects.get().status in outcomes
    model.refresh_from_db()
    assert model.status == ModelReview.objects.get().status


def test_the_same_decision_on_the_same_page_is_made_once(model, ada):
    decide(model, ada)
    with pytest.raises(Conflict) as refused:
        decide(model, ada)
    assert refused.value.code == "nothing_to_decide"


def test_text_that_no_database_holds_does_not_stop_a_decision(model, ada):
    odd = red("accuracy")
    assessment_make(
        model, all_green(type(odd)(line="accuracy", verdict="red", says="a\x00b\ud800"))
    )
    assert decide(model, ada).state_sha256


# --- the pages ---


def sent(client: Client, address: str, **more: str) -> dict[str, str]:
    """What a browser sends from the form at this address."""
    page = client.get(address)
    assert page.status_code == 200
    form = page.context["form"]
    return {name: form.initial.get(name, "") for name in form.fields} | more


def test_the_form_lists_what_is_not_green_and_the_page_shows_the_decision(
    project, model, ada, signed_in
):
    assessment_make(model, all_green(red("slices")))
    client, one = signed_in(ada), f"/p/arguments/reward-models/{model.pk}/"
    text = client.get(f"{one}approve/").content.decode()
    assert LINES["slices"].title in text
    assert LINES["people_rank"].title in text
    refused = client.post(f"{one}approve/", sent(client, f"{one}approve/", reason="short"))
    assert refused.status_code == 422
    assert "at least 10 characters" in refused.content.decode()
    assert "short</textarea>" in refused.content.decode()
    done = client.post(f"{one}approve/", sent(client, f"{one}approve/", reason=REASON))
    assert done.url == one
    page = client.get(one).content.decode()
    assert "Approved by Ada" in page
    assert "1 check failed, 2" in page
    assert REASON in page
    review = ModelReview.objects.get()
    kept = client.get(f"{one}reviews/{review.pk}/").content.decode()
    assert review.state_sha256[:16] in kept
    assert "never changes" in kept


def test_a_form_that_is_out_of_date_is_refused_and_keeps_what_was_typed(
    model, ada, emil, signed_in
):
    client, address = signed_in(ada), f"/p/arguments/reward-models/{model.pk}/approve/"
    data = sent(client, address, reason=REASON)
    decide(model, emil, "rejected", reason="no")
    answer = client.post(address, data)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "Emil has decided" in text
    assert REASON in text
    assert ModelReview.objects.count() == 1
    # They have read that; what they send now is about the page as it is.
    again = {name: answer.context["form"].data[name] for name in data}
    assert client.post(address, again).status_code == 302


def test_a_kept_page_does_not_follow_what_is_found_later(model, ada, signed_in):
    assessment_make(model)
    review = decide(model, ada)
    assessment_make(model, all_green(red("slices"), red("accuracy")), name="newer")
    client, one = signed_in(ada), f"/p/arguments/reward-models/{model.pk}/"
    assert "2 checks failed" in client.get(one).content.decode()
    kept = client.get(f"{one}reviews/{review.pk}/").content.decode()
    assert "accuracy holds on 612 pairs" in kept
    assert "accuracy does not hold" not in kept


def test_it_is_said_when_somebody_approves_a_model_they_trained(model, emil, signed_in):
    client, one = signed_in(emil), f"/p/arguments/reward-models/{model.pk}/"
    assert "You launched" in client.get(f"{one}approve/").content.decode()
    decide(model, emil)
    assert "who also launched" in client.get(one).content.decode()


def test_the_list_says_who_decided(model, ada, signed_in):
    decide(model, ada)
    text = signed_in(ada).get("/p/arguments/reward-models/?status=approved").content.decode()
    assert "Ada, " in text
    assert model.pk in text


def test_a_review_of_another_model_leads_nowhere(project, model, ada, signed_in):
    other = model_make(project, name="another")
    review = decide(other, ada)
    address = f"/p/arguments/reward-models/{model.pk}/reviews/{review.pk}/"
    assert signed_in(ada).get(address).status_code == 404


# --- what it lets PPO do ---


def ppo_form(client: Client, model: Checkpoint, prompts: Snapshot, **more: str) -> dict[str, str]:
    page = client.get("/p/arguments/runs/new/ppo/?preset=lora")
    fields = {
        bound.html_name: str(bound.value())
        for bound in page.context["form"]
        if bound.value() is not None and bound.value() is not False
    }
    policy = Checkpoint.objects.get(run__kind="sft")
    return fields | {
        "input_prompts": f"snapshot:{prompts.pk}",
        "input_sft": f"checkpoint:{policy.pk}",
        "input_reward": f"checkpoint:{model.pk}",
        **more,
    }


@pytest.fixture
def policy(project: Project) -> Checkpoint:
    made = model_make(project, name="answers")
    Run.objects.filter(pk=made.run_id).update(kind="sft")
    return made


def test_ppo_takes_an_approved_model_and_otherwise_asks_for_a_reason(
    project, model, policy, emil, ada, signed_in
):
    client, address = signed_in(emil), "/p/arguments/runs/new/ppo/"
    form = ppo_form(client, model, dataset_make(project))
    refused = client.post(address, form)
    assert refused.status_code == 422
    assert "not approved" in " ".join(refused.context["form"].errors["override_reason"])
    assert not Run.objects.filter(kind="ppo").exists()

    with_reason = form | {"override_reason": "a drill of the loop, thrown away afterwards"}
    assert client.post(address, with_reason).status_code == 302
    run = Run.objects.get(kind="ppo")
    shown = client.get(f"/p/arguments/runs/{run.pk}/").content.decode()
    assert with_reason["override_reason"] in shown

    decide(model, ada)
    form = ppo_form(client, model, dataset_make(project, "more"))
    assert client.post(address, form).status_code == 302
    newest = Run.objects.filter(kind="ppo").order_by("-created_at").first()
    assert newest.override_reason == ""

    decide(model, ada, "retired")
    form = ppo_form(client, model, dataset_make(project, "last"), override_reason=REASON)
    retired = client.post(address, form)
    assert "retired" in " ".join(retired.context["form"].errors["input_reward"])


# --- starting an assessment ---


def assess_form(client: Client, model: Checkpoint) -> tuple[str, dict[str, str]]:
    address = f"/p/arguments/reward-models/{model.pk}/assess/"
    page = client.get(address)
    assert page.status_code == 200
    return address, {
        bound.html_name: "on" if bound.value() is True else str(bound.value())
        for bound in page.context["form"]
        if bound.value() is not None and bound.value() is not False
    }


def test_an_untouched_form_assesses_the_model_on_what_it_learned_from_once(model, emil, signed_in):
    client = signed_in(emil)
    address, form = assess_form(client, model)
    first, second = client.post(address, form), client.post(address, form)
    assert first.url == second.url == f"/p/arguments/reward-models/{model.pk}/"
    run = Run.objects.get(kind="assess")
    given = {row.role: row.checkpoint or row.snapshot for row in run.inputs.all()}
    assert given["reward"] == model
    assert given["data"] == model.run.inputs.get(role="data").snapshot
    assert run.created_by == emil
    assert 'id="assessing"' in client.get(first.url).content.decode()


def test_what_is_wrong_is_said_beside_its_field_and_nothing_starts(model, emil, signed_in):
    client = signed_in(emil)
    address, form = assess_form(client, model)
    answer = client.post(address, form | {"c_planned_kl": "-1", "name": ""})
    assert answer.status_code == 422
    assert set(answer.context["form"].errors) == {"c_planned_kl", "name"}
    assert not Run.objects.filter(kind="assess").exists()


def test_the_next_assessment_begins_with_the_last_ones_inputs(project, model, emil, signed_in):
    other = dataset_make(project, "other pairs")
    assessment_make(model, data=other)
    _, form = assess_form(signed_in(emil), model)
    assert form["input_data"] == f"snapshot:{other.pk}"
    assert form["name"] == "rewards, step 400: assessment 2"


def test_a_rejected_model_is_not_assessed(model, emil, ada, signed_in):
    client = signed_in(emil)
    address, form = assess_form(client, model)
    decide(model, ada, "rejected", reason="no")
    answer = client.post(address, form)
    assert answer.status_code == 422
    assert "was rejected" in answer.content.decode()
    page = client.get(f"/p/arguments/reward-models/{model.pk}/").content.decode()
    assert "assess/" not in page
    assert "before it was" in page


def test_a_dataset_of_another_project_is_no_choice(model, emil, olga, signed_in):
    theirs = dataset_make(Project.objects.get(slug="elsewhere"))
    client = signed_in(emil)
    address, form = assess_form(client, model)
    answer = client.post(address, form | {"input_data": f"snapshot:{theirs.pk}"})
    assert answer.status_code == 422
    assert not Run.objects.filter(kind="assess").exists()


# What programs read of reward models, and what they may decide.


ROOT = "/api/v1/projects/arguments/reward-models"


@pytest.fixture
def scored(project: Project, emil: User) -> Checkpoint:
    made = model_make(project, by=emil)
    assessment_make(made, with_evidence())
    return made


@pytest.fixture
def client(ada: User, signed_in) -> Client:
    return signed_in(ada)


def test_the_list_and_one_model_say_the_same_as_the_page(client, scored):
    listed = client.get(ROOT).json()
    one = client.get(f"{ROOT}/{scored.pk}").json()
    assert listed["count"] == 1
    assert {n: one[n] for n in listed["items"][0]} == listed["items"][0]
    assert (one["bad"], one["ok"] + one["bad"] + one["unknown"]) == (3, len(LINES))
    assert one["accuracy"]["value"] == 0.731
    assert [row["line"] for row in one["findings"]] == list(LINES)
    missing = next(row for row in one["findings"] if row["line"] == "disagreement")
    assert missing["level"] == "unknown"


def test_levels_answer_under_their_former_names_too(client, scored):
    one = client.get(f"{ROOT}/{scored.pk}").json()
    (listed,) = client.get(ROOT).json()["items"]
    former = {"ok": "green", "bad": "red", "unknown": "unmeasured"}
    for level, name in former.items():
        assert one[level] == listed[level] == one[name] == listed[name]
    assert {(row["level"], row["verdict"]) for row in one["findings"]} == set(former.items())


def test_a_decision_needs_what_was_seen_and_leaves_a_review(client, scored):
    one = client.get(f"{ROOT}/{scored.pk}").json()
    body = {
        "status": "approved",
        "reason": "for the rehearsal only, on debates",
        "seen_status": "candidate",
        "page_sha256": "0" * 64,
    }

    def decide(**more: str):
        return client.post(
            f"{ROOT}/{scored.pk}/status", body | more, content_type="application/json"
        )

    stale = decide()
    assert (stale.status_code, stale.json()["code"]) == (409, "page_changed")
    bare = decide(page_sha256=one["page_sha256"], reason="")
    assert (bare.status_code, bare.json()["field"]) == (400, "reason")
    assert decide(page_sha256=one["page_sha256"], status="candidate").status_code == 400
    done = decide(page_sha256=one["page_sha256"])
    assert (done.status_code, done.json()["by"]) == (201, "Ada")
    assert client.get(f"{ROOT}/{scored.pk}").json()["status"] == "approved"
    assert ModelReview.objects.get().state_sha256 == done.json()["state_sha256"]


def test_an_assessment_starts_on_what_the_model_learned_from_and_once_per_key(client, scored):
    body = {"idempotency_key": "monday"}
    first, second = (
        client.post(f"{ROOT}/{scored.pk}/assess", body, content_type="application/json")
        for _ in range(2)
    )
    assert first.status_code == 201
    assert first.json()["id"] == second.json()["id"]
    run = Run.objects.get(pk=first.json()["id"])
    assert run.kind == "assess"
    data = run.inputs.get(role="data").snapshot
    assert data == scored.run.inputs.get(role="data").snapshot


def test_a_wrong_input_names_its_field(client, scored):
    body = {"inputs": {"policy": f"checkpoint:{scored.pk}"}}
    answer = client.post(f"{ROOT}/{scored.pk}/assess", body, content_type="application/json")
    assert (answer.status_code, answer.json()["field"]) == (400, "inputs.policy")


def test_models_of_other_projects_are_unknown(client, olga):
    theirs = model_make(Project.objects.get(slug="elsewhere"))
    assert client.get(f"{ROOT}/{theirs.pk}").status_code == 404
    assert client.get(ROOT).json()["count"] == 0


def test_a_token_that_trains_lets_no_reward_model_through(ada, scored):
    client = Client()
    body = {"status": "approved", "reason": "for the rehearsal only", "seen_status": "candidate"}
    for scope, status in (("train", 403), ("approve", 201)):
        _, token = token_create(user=ada, name=scope, scopes=["read", scope], days=1)
        bearer = {"Authorization": f"Bearer {token}"}
        seen = client.get(f"{ROOT}/{scored.pk}", headers=bearer).json()["page_sha256"]
        answer = client.post(
            f"{ROOT}/{scored.pk}/status",
            body | {"page_sha256": seen},
            content_type="application/json",
            headers=bearer,
        )
        assert answer.status_code == status
    assert ModelReview.objects.get().by == ada
