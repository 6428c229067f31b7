"""How the demo's round ends: simulated people, the gate, the card, the report."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import DomainError
from apps.evaluation.models import HeadToHead, PromotionRequest, StageChange
from apps.evaluation.selectors.cards import card_lines
from apps.evaluation.selectors.evidence import gate_of
from apps.evaluation.selectors.head_to_head import people_rates
from apps.evaluation.services.head_to_head import head_to_head_share
from apps.labeling.models import Annotator, Answer, Comparison, EvaluationSet, Skip, Vote
from apps.labeling.selectors.hours import hours_of
from apps.labeling.services import Lease, slot_lease_next
from apps.loop import apps, round_end
from apps.loop.models import Pipeline, Round
from apps.loop.round_end import SIMULATED, VOTES_EACH, round_end_figures, round_end_try
from apps.loop.selectors.pipelines import fresh_pairs
from apps.loop.services.rounds import rounds_sweep
from apps.monitoring.models import Incident
from apps.training.models import Checkpoint, Run, RunInput
from measures.head_to_head import Verdict
from tests.evaluation.promoted import (
    compared_by_people,
    critical_incident,
    policy_made,
    protocol_kept,
    run_made,
    saved,
    suite_made,
)
from tests.loop.conftest import generation_make, outputs_add, pair
from workers.contract import wire

pytestmark = pytest.mark.django_db
PROMPTS = 24
SignedIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture(autouse=True)
def people(rita: User, emil: User, ada: User) -> None:
    """Those of the demo."""


@pytest.fixture
def model(project: Project) -> Checkpoint:
    """Every line that staging asks for holds."""
    return policy_made(project, evaluated=False)


@pytest.fixture
def evaluation(model: Checkpoint) -> Run:
    return evaluated(model)


def evaluated(
    model: Checkpoint, *, win: float = 0.62, people_win: float = 0.6, prompts: int = PROMPTS
) -> Run:
    """The evaluation and the regression suite of a round, as their runs leave them."""
    rate = {"value": win, "low": win - 0.05, "high": win + 0.05, "n": 160}
    judge = {"win_rate": rate, "people_win_rate": {"value": people_win}}
    run = run_made(
        model.project,
        "evaluate",
        "Evaluate PPO against SFT",
        summary={"prompts": prompts, "judge": judge},
        launch_key="circle:demo:pairs:1:evaluate",
    )
    baseline = saved(run_made(model.project, "sft", "SFT"), 120)
    RunInput.objects.create(run=run, role="policy", checkpoint=model)
    RunInput.objects.create(run=run, role="sft", checkpoint=baseline)
    protocol_kept(run)
    outputs_add(run, [{}] * prompts)
    Run.objects.filter(pk=suite_made(model).pk).update(launch_key="circle:demo:pairs:1:suite")
    return run


def ended(evaluation: Run) -> dict[str, Any]:
    round_end_try(run_id=evaluation.pk)
    found = round_end_figures(evaluation)
    assert found is not None
    return json.loads(json.dumps(found))


def answers(found: dict[str, Any]) -> dict[str, tuple[bool, str, list[str]]]:
    return {
        one["stage"]: (one["open"], one["decision"], one["decided_by"]) for one in found["gate"]
    }


def closed_by(found: dict[str, Any], stage: str) -> set[str]:
    (answer,) = [one for one in found["gate"] if one["stage"] == stage]
    return {line["name"] for line in answer["closed_by"]}


def test_people_are_asked_then_the_gate_refuses_and_lets_through(
    project: Project, model: Checkpoint, evaluation: Run
) -> None:
    found = ended(evaluation)
    people = found["head_to_head"]
    votes = Answer.objects.filter(kind="blind")
    assert people["votes"] == people["simulated"] == votes.count() > 0.9 * PROMPTS * VOTES_EACH
    assert {vote.source for vote in votes} == {Answer.Source.SIMULATED}
    assert people["people"] == len(SIMULATED)
    assert people["low"] < people["value"] < people["high"]
    assert answers(found) == {
        "production": (False, "rejected", ["Ada"]),
        "staging": (True, "approved", ["Ada"]),
    }
    assert closed_by(found, "production") == {"head_to_head", "audit"}
    request = PromotionRequest.objects.get(stage="production")
    assert request.requested_name == "Emil"
    assert "People prefer it to its baseline (missing)" in request.decision.reason
    assert [(one.stage, one.checkpoint_id) for one in StageChange.objects.all()] == [
        ("staging", model.pk)
    ]
    assert found["suite"] | {"id": ""} == {
        "id": "",
        "checks": 140,
        "standing": "not_worse",
        "margin": 0.03,
        "worse": [],
        "lost": 1,
        "won": 2,
    }
    assert f"/models/{model.pk}/?card#model-card" in found["model"]["url"]


def test_simulated_people_disagree_skip_and_cannot_sign_in(
    project: Project, evaluation: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_end, "SKIPPED", 0.2)
    found = ended(evaluation)
    assert found["head_to_head"]["skips"] == Skip.objects.count() > 0
    people = User.objects.filter(display_name__in=SIMULATED)
    assert people.count() == len(SIMULATED)
    assert {(one.is_imported, one.is_active) for one in people} == {(True, False)}
    assert Annotator.objects.filter(user__in=people, votes_of_day__gt=0).count() == len(SIMULATED)
    by_pair: dict[int, set[str]] = {}
    by_person: dict[int, list[bool]] = {}
    for vote in Answer.objects.filter(kind="blind"):
        by_pair.setdefault(vote.task_id, set()).add(vote.choice)
        by_person.setdefault(vote.annotator_id, []).append(vote.choice == "a")
        assert vote.left_is  # drawn by the queue, as for everybody
    assert sum(len(choices) == 2 for choices in by_pair.values()) > PROMPTS / 3
    shares = [sum(given) / len(given) for given in by_person.values()]
    assert max(shares) - min(shares) > 0.4


def lower_judge(evaluation: Run, model: Checkpoint) -> None:
    rate = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 160}
    judge = evaluation.summary["judge"] | {"win_rate": rate}
    Run.objects.filter(pk=evaluation.pk).update(summary={"prompts": PROMPTS, "judge": judge})


def one_seed(evaluation: Run, model: Checkpoint) -> None:
    Run.objects.filter(pk=model.run_id).update(group="")


def not_approved(evaluation: Run, model: Checkpoint) -> None:
    Checkpoint.objects.filter(run__kind="reward").update(status="candidate")


@pytest.mark.parametrize(
    ("plant", "line"),
    [(lower_judge, "evaluation"), (one_seed, "seeds"), (not_approved, "reward_model")],
)
def test_a_line_that_does_not_hold_keeps_staging_closed(
    evaluation: Run, model: Checkpoint, plant: Callable[[Run, Checkpoint], None], line: str
) -> None:
    plant(evaluation, model)
    found = ended(evaluation)
    assert closed_by(found, "staging") == {line}
    assert answers(found)["staging"] == (False, "rejected", ["Ada"])
    assert answers(found)["candidate"] == (True, "approved", ["Ada"])


def test_a_gate_closed_to_candidates_is_overridden_by_two_others(
    evaluation: Run, model: Checkpoint
) -> None:
    critical_incident(model)
    found = ended(evaluation)
    assert closed_by(found, "candidate") == {"alerts"}
    assert answers(found)["candidate"] == (False, "approved by override", ["Ada", "Rita"])
    assert found["gate"][-1]["reason"] == round_end.OVERRIDDEN_BECAUSE
    assert [one.stage for one in StageChange.objects.all()] == ["candidate"]


@pytest.mark.parametrize("service", ["vote_cast", "promotion_reject", "promotion_override"])
def test_it_goes_on_where_it_was_stopped_and_opens_nothing_twice(
    evaluation: Run, model: Checkpoint, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    critical_incident(model)
    monkeypatch.setattr(round_end, "SKIPPED", 0.0)  # so that no pair is set aside
    original, calls = getattr(round_end, service), []

    def stopped(**given: Any) -> Any:
        calls.append(given)
        if len(calls) == (50 if service == "vote_cast" else 2):
            raise KeyboardInterrupt
        return original(**given)

    with monkeypatch.context() as patch:
        patch.setattr(round_end, service, stopped)
        with pytest.raises(KeyboardInterrupt):
            round_end_try(run_id=evaluation.pk)
    done = answered_so_far()
    found = ended(evaluation)
    assert done < answered_so_far()
    assert found["head_to_head"]["votes"] == PROMPTS * VOTES_EACH
    assert [one["stage"] for one in found["gate"]] == ["production", "staging", "candidate"]
    ended(evaluation)
    assert HeadToHead.objects.count() == EvaluationSet.objects.count() == 1
    assert PromotionRequest.objects.count() == 3
    assert StageChange.objects.count() == 1
    assert User.objects.filter(is_imported=True).count() == len(SIMULATED)
    assert AuditEvent.objects.filter(action="demo.stage").count() == 1


def answered_so_far() -> int:
    return Answer.objects.count() + StageChange.objects.count()


def test_it_waits_for_both_evaluations(evaluation: Run) -> None:
    Run.objects.filter(launch_key__endswith=":suite").update(state="running", ended_at=None)
    round_end_try(run_id=evaluation.pk)
    assert round_end_figures(evaluation) is None
    assert not HeadToHead.objects.exists()
    other = run_made(evaluation.project, "evaluate", "Somebody's own")
    round_end_try(run_id=other.pk)
    assert not HeadToHead.objects.exists()


def test_too_few_prompts_are_said_and_the_gate_is_asked_all_the_same(
    project: Project, model: Checkpoint, emil: User, signed_in: SignedIn
) -> None:
    found = ended(evaluated(model, prompts=4))
    assert found["head_to_head"] is None
    page = signed_in(emil).get(reverse("loop:demo_results", args=[project.slug])).content.decode()
    assert "Nobody was asked" in page
    assert found["model"]["url"] in page
    assert "head_to_head" in closed_by(found, "production")


def test_a_pair_that_somebody_holds_is_waited_for(
    project: Project, evaluation: Run, ana: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = round_end._simulated_people

    def after_ana(given: Project) -> Any:
        assert isinstance(slot_lease_next(project=given, annotator=ana), Lease)
        return original(given)

    monkeypatch.setattr(round_end, "_simulated_people", after_ana)
    with pytest.raises(DomainError, match="holds a pair"):
        round_end.round_end(runs={"evaluate": evaluation}, say=lambda text: None)
    assert HeadToHead.objects.get().ended_at is None
    assert not PromotionRequest.objects.exists()


# Simulated votes are no votes of people, wherever they are shown.


def test_what_simulated_people_like_less_alarms_and_costs_nobody(model: Checkpoint) -> None:
    found = ended(evaluated(model, people_win=0.05))
    assert found["head_to_head"]["verdict"] == Verdict.WORSE
    assert not Incident.objects.exists()
    assert people_rates(model.project) == {}
    assert hours_of(project=model.project) == []  # nobody is paid for them


def test_votes_of_people_count_though_simulated_ones_are_newer(
    evaluation: Run, model: Checkpoint
) -> None:
    compared_by_people(model)
    found = ended(evaluation)
    assert closed_by(found, "production") == {"audit"}


def test_simulated_votes_are_marked_on_every_page_and_in_every_file(
    project: Project, evaluation: Run, model: Checkpoint, emil: User, signed_in: SignedIn
) -> None:
    ended(evaluation)
    made = HeadToHead.objects.get()
    client = signed_in(emil)
    head_to_head_share(head_to_head=made, by=emil, days=1)
    made.refresh_from_db()
    pages = [
        reverse("evaluation:head_to_heads", args=[project.slug]),
        reverse("evaluation:head_to_head", args=[project.slug, made.pk]),
        reverse("evaluation:run_people", args=[project.slug, evaluation.pk]),
        reverse("evaluation:shared", args=[made.share_key]),
    ]
    for page in pages:
        assert "Simulated: " in client.get(page).content.decode(), page
    address = reverse("evaluation:head_to_head_csv", args=[project.slug, made.pk])
    rows = list(csv.DictReader(io.StringIO(client.get(address).content.decode())))
    assert {row["simulated"] for row in rows} == {"yes"}
    told = client.get(f"/api/v1/projects/{project.slug}/head-to-heads/{made.pk}").json()
    assert told["simulated"] == told["votes"]
    [line] = [one for one in gate_of(model, "production").lines if one.name == "head_to_head"]
    assert (line.verdict, line.facts["simulated"]) == ("missing", told["votes"])
    [on_card] = [one for one in card_lines(model) if one.name == line.label]
    assert "are simulated" in on_card.words


def test_the_page_shows_the_votes_and_both_answers_of_the_gate(
    project: Project, evaluation: Run, rita: User, signed_in: SignedIn
) -> None:
    client = signed_in(rita)
    address = reverse("loop:demo_results", args=[project.slug])
    assert "No round has ended" in client.get(address).content.decode()
    found = ended(evaluation)
    page = client.get(address).content.decode()
    assert found["head_to_head"]["url"] in page
    for answer in found["gate"]:
        assert answer["url"] in page
    assert "Production: the gate is closed" in page
    assert "Staging: the gate is open" in page
    assert found["model"]["url"] not in page  # of staff alone
    assert address in client.get(reverse("loop:overview", args=[project.slug])).content.decode()


def test_the_end_of_an_evaluation_is_told_to_the_import_workers(
    evaluation: Run, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "apps.labeling.dispatch.task_send", lambda task, job: sent.append((task, job))
    )
    own = run_made(evaluation.project, "evaluate", "Somebody's own")
    with django_capture_on_commit_callbacks(execute=True):
        for run in (evaluation, own):
            apps._run_saved(run)
    assert sent == [(wire.TASK_END_ROUND, evaluation.pk)]


def test_the_next_round_starts_by_itself_once_people_have_voted(
    project: Project, model: Checkpoint, evaluation: Run, ana: User
) -> None:
    written = [pair(f"Stance {n}: why?", f"Since {n}.", f"Despite {n}.") for n in range(40)]
    generation = generation_make(project, written, to_people=True, queue_priority=1.0)
    Run.objects.filter(pk=generation.pk).update(launch_key="circle:demo:pairs:1:generate")
    RunInput.objects.create(run=generation, role="policy", checkpoint=model)
    ended(evaluation)
    assert not Pipeline.objects.exists(), "its pairs are not written yet"
    generation.refresh_from_db()
    generation.state, generation.ended_at = Run.State.FINISHED, timezone.now()
    generation.save()
    round_end_try(run_id=generation.pk)
    made = Pipeline.objects.get(project=project)
    first = Round.objects.get(pipeline=made)
    assert (first.number, first.trigger, first.state) == (1, "past", "finished")
    assert first.steps.get(key="evaluate").run_id == evaluation.pk
    assert first.steps.get(key="generate").run_id == generation.pk
    votes = Vote.objects.filter(comparison__batch=f"run {generation.pk}")
    assert {vote.source for vote in votes} == {Vote.Source.SIMULATED}
    pairs = Comparison.objects.filter(batch=f"run {generation.pk}")
    left = pairs.filter(n_votes__lt=F("overlap")).count()
    assert left >= 20, "half of them wait for people"
    assert fresh_pairs(made) > 0
    n = votes.count()
    round_end_try(run_id=evaluation.pk)
    assert votes.count() == n
    assert Pipeline.objects.count() == 1, "nothing twice"
    rounds_sweep()
    assert fresh_pairs(made) >= round_end.FRESH_PAIRS, "the seed of their tastes accepts that many"
    assert Round.objects.get(pipeline=made, number=2).trigger == "pairs"
