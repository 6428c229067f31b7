"""What starts rounds by themselves, what ends them, and people's steps."""

import html
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Notice, Project, User
from apps.accounts.services import audit_record, token_create
from apps.common.errors import DomainError
from apps.evaluation.models import AuditSheet, EvaluationProtocol, ProtocolUse
from apps.labeling.models import Comparison, Decision
from apps.labeling.services import batch_queue
from apps.loop.models import Pipeline, PipelineVersion, Round, RoundStep
from apps.loop.recipe import RULE_NAMES, Rules
from apps.loop.selectors import REFUSED, batch_of
from apps.loop.selectors import figures as figures_of
from apps.loop.selectors.pipelines import round_steps, steps_of, version_now, wait_of
from apps.loop.selectors.rules import first_due, last_due, next_due, spent_of
from apps.loop.services import rounds
from apps.loop.services.pipelines import StepChange, pipeline_make
from apps.loop.services.rounds import round_act, round_start, rounds_sweep
from apps.loop.services.templates import TEMPLATES, pipeline_from_template
from apps.monitoring.models import Delivery, Watch
from apps.monitoring.services.channels import channel_create
from apps.monitoring.services.sending import email_text
from apps.snapshots.models import Snapshot
from apps.snapshots.services.freezing import snapshot_freeze
from apps.training.models import Checkpoint, Run, RunInput
from tests.evaluation.promoted import run_made, saved
from tests.loop.conftest import generated_add, outputs_add, pair
from tests.loop.test_rounds import (
    RECIPE,
    SignedIn,
    accept,
    approved,
    artifacts,
    at_promotion,
    change,
    commits,
    ended,
    evaluation,
    frozen,
    pipeline,
    read,
    states,
    step_of,
    swept,
    wire,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("wire", "artifacts")]
__all__ = ["artifacts", "commits", "evaluation", "pipeline", "wire"]
RATE = {"value": 0.6, "low": 0.55, "high": 0.65, "n": 160}


@pytest.fixture
def generating(project: Project, evaluation: Run, emil: User) -> Pipeline:
    """Of runs after which the policy generated pairs for people."""
    run = run_made(project, "generate", "fresh pairs")
    policy = Checkpoint.objects.get(run__kind="ppo")
    read(run, prompts=Snapshot.objects.get(kind="prompts"), policy=policy)
    return pipeline_make(project=project, run=evaluation, name="Whole", user=emil)


def generated(row: Round, n: int) -> Round:
    """Its generation ended, and `n` pairs came into the label queue, three votes each."""
    run = step_of(row, "generate").run
    assert run is not None, step_of(row, "generate").problem
    rows = [
        {
            "id": f"{run.pk}-{i}",
            "prompt": f"Argue about {i}.",
            "response_a": f"One {i}",
            "response_b": f"Another {i}",
        }
        for i in range(n)
    ]
    batch_queue(project=row.project, rows=rows, batch=batch_of(run), votes=3, priority=0.0)
    return ended(row, "generate")


def voted(row: Round, n: int) -> None:
    """`n` more of its pairs have all their votes and are accepted."""
    run = step_of(row, "generate").run
    pairs = Comparison.objects.filter(batch=batch_of(run), state="open")[:n]
    for one in pairs:
        Comparison.objects.filter(pk=one.pk).update(n_votes=one.overlap, state="decided")
        Decision.objects.create(comparison=one, project=row.project, outcome="accepted", winner="a")


# Generating and labeling.


def test_a_round_generates_waits_for_votes_and_freezes(generating: Pipeline, emil: User) -> None:
    keys = [step.key for step in steps_of(version_now(generating))]
    assert keys[:5] == ["generate", "select", "label", "decide", "freeze"]
    row = swept(round_start(pipeline=generating, user=emil))
    assert states(row) | {"generate": "running", "label": "pending"} == states(row)
    assert "select" not in states(row), "choosing is off"
    policy = RunInput.objects.get(run=step_of(row, "generate").run, role="policy")
    assert policy.checkpoint.run.kind == "ppo", "that of the runs which the pipeline is made of"
    assert step_of(row, "generate").run.config["to_people"] is True
    generated(row, 10)
    assert (row.state, states(row)["label"]) == ("waiting", "waiting")
    assert wait_of(row, round_steps(row)).who == "annotators"
    assert Notice.objects.filter(kind="round.waiting").count() == 1
    voted(row, 8)
    assert "8 of 10" in wait_of(swept(row), round_steps(row)).words
    voted(row, 1)
    assert states(swept(row)) | {"label": "done", "freeze": "running"} == states(row)
    assert step_of(row, "label").inputs == {"pairs": 10, "voted": 9}
    assert spent_of(row, round_steps(row)).votes == 27


def test_a_pair_whose_votes_disagree_so_far_is_not_done(generating: Pipeline, emil: User) -> None:
    row = swept(round_start(pipeline=generating, user=emil))
    generated(row, 1)
    one = Comparison.objects.get(batch=batch_of(step_of(row, "generate").run))
    Comparison.objects.filter(pk=one.pk).update(n_votes=2)
    Decision.objects.create(comparison=one, project=row.project, outcome="contested")
    assert states(swept(row))["label"] == "waiting"
    Comparison.objects.filter(pk=one.pk).update(n_votes=3, state="contested")
    assert states(swept(row))["label"] == "done"


def test_a_plan_chooses_which_pairs_of_the_round_people_label(
    generating: Pipeline, emil: User, signed_in: SignedIn
) -> None:
    with pytest.raises(DomainError) as refused:
        change(generating, emil, steps={"select": StepChange(enabled=True)})
    assert (refused.value.field, refused.value.message[:6]) == ("steps.select", "pairs:")
    address = reverse("loop:pipeline_edit", args=["arguments", generating.pk])
    client = signed_in(emil)
    page = client.get(address)
    assert "not replayed yet" in page.content.decode()
    form = page.context["form"]
    given = {name: form[name].value() or "" for name in form.fields}
    given = {name: "on" if value is True else value for name, value in given.items()}
    asked = {name: form.choosing[name].value() for name in form.choosing.fields}
    given |= {f"select-{name}": value for name, value in asked.items() if value is not None}
    given |= {"select-choose": "on", "select-pairs": ""}
    assert client.post(address, given).status_code == 422
    answer = client.post(address, given | {"select-pairs": "6", "select-measuring": "50"})
    assert answer.status_code == 302, answer.context["form"].errors
    row = swept(round_start(pipeline=generating, user=emil))
    run = step_of(row, "generate").run
    assert run.config["to_people"] is False
    generated_add(
        run,
        [pair(f"Argue about {n}.", f"One {n}.", f"Another {n}.") for n in range(10)],
        attempt=run.attempt,
    )
    ended(row, "generate")
    assert step_of(row, "select").inputs == {
        "measuring": 3,
        "training": 3,
        "selected": 0,
        "left": 4,
    }, step_of(row, "select").problem
    assert states(row)["label"] == "waiting"
    pairs = Comparison.objects.filter(batch=batch_of(run))
    assert sorted(pairs.values_list("overlap", flat=True)) == [1, 1, 1, 3, 3, 3]
    for one in pairs:
        Comparison.objects.filter(pk=one.pk).update(n_votes=one.overlap)
    assert states(swept(row))["label"] == "done", "one vote is all that a training pair asks"
    recipe = step_of(row, "freeze").snapshot.recipe
    assert (recipe["decide_by"], recipe["ties"]) == ("single_votes", "soft")


def test_labeling_goes_on_without_the_rest_when_its_time_is_over(
    generating: Pipeline, emil: User
) -> None:
    change(generating, emil, steps={"label": StepChange(hours=24)})
    row = swept(round_start(pipeline=generating, user=emil))
    generated(row, 4)
    voted(row, 1)
    assert states(swept(row))["label"] == "waiting"
    RoundStep.objects.filter(round=row, key="label").update(
        started_at=timezone.now() - timedelta(hours=25)
    )
    assert states(swept(row))["label"] == "done"


def test_pairs_that_cannot_be_queued_make_the_round_wait_with_the_reason(
    generating: Pipeline, emil: User
) -> None:
    row = swept(round_start(pipeline=generating, user=emil))
    run = step_of(row, "generate").run
    ended(row, "generate")
    assert states(row)["label"] == "waiting", "they are on their way"
    audit_record(action=REFUSED, actor=None, project=row.project, subject=run.pk)
    assert states(swept(row))["label"] == "failed"
    assert "Generate them again" in wait_of(row, round_steps(row)).words
    round_act(round=row, action="redo", user=emil, step="generate")
    assert states(row)["generate"] == "running"


def test_where_nothing_is_generated_labeling_waits_for_fresh_pairs(
    project: Project, generating: Pipeline, emil: User
) -> None:
    off, waits = StepChange(enabled=False), StepChange(pairs=10)
    change(generating, emil, steps={"generate": off, "label": waits})
    row = swept(round_start(pipeline=generating, user=emil))
    accept(project, 9)
    assert "9 of 10" in wait_of(swept(row), round_steps(row)).words
    accept(project, 1)
    assert states(swept(row))["label"] == "done"


def test_disputes_wait_for_a_reviewer(generating: Pipeline, emil: User) -> None:
    change(generating, emil, steps={"decide": StepChange(enabled=True)})
    row = swept(round_start(pipeline=generating, user=emil))
    generated(row, 2)
    voted(row, 2)
    disputed = Comparison.objects.filter(batch=batch_of(step_of(row, "generate").run))
    disputed.update(state="review")
    assert states(swept(row)) | {"label": "done", "decide": "waiting"} == states(row)
    assert wait_of(row, round_steps(row)).who == "a reviewer"
    disputed.update(state="decided")
    assert states(swept(row))["decide"] == "done"


def test_a_freeze_of_certain_batches_takes_what_the_rounds_generated(
    generating: Pipeline, emil: User
) -> None:
    Comparison.objects.update(batch="first")
    steps = version_now(generating).steps
    freeze = next(one for one in steps if one["key"] == "freeze")
    freeze["recipe"]["filters"]["batches"] = ["first"]
    PipelineVersion.objects.create(pipeline=generating, number=2, steps=steps)
    row = swept(round_start(pipeline=generating, user=emil))
    generated(row, 2)
    voted(row, 2)
    swept(row)
    step = step_of(row, "freeze")
    assert step.snapshot is not None, step.problem
    batches = step.snapshot.recipe["filters"]["batches"]
    assert batches == ["first", batch_of(step_of(row, "generate").run)]


def test_a_freeze_takes_the_recipe_of_another_dataset(
    project: Project, pipeline: Pipeline, emil: User
) -> None:
    recipe = replace(RECIPE, seed="another", heldout_annotators=0.3)
    other = snapshot_freeze(project=project, name="Held out", recipe=recipe, user=emil)
    change(pipeline, emil, steps={"freeze": StepChange(copied_from=other.pk)})
    row = swept(round_start(pipeline=pipeline, user=emil))
    assert step_of(row, "freeze").snapshot.recipe["seed"] == "another"
    asked = Snapshot.objects.get(kind="prompts").pk
    with pytest.raises(DomainError) as refused:
        change(pipeline, emil, steps={"freeze": StepChange(copied_from=asked)})
    assert refused.value.field == "steps.freeze"


def test_an_audit_of_the_policy_is_a_step(pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, steps={"audit": StepChange(enabled=True)})
    row = at_promotion(pipeline, emil)
    wait = wait_of(row, round_steps(row))
    assert (wait.step, wait.url) == ("audit", reverse("evaluation:sheet_new", args=["arguments"]))
    sheet = AuditSheet.objects.create(
        project=row.project,
        checkpoint=step_of(row, "policy").checkpoint,
        run=step_of(row, "evaluate").run,
        seed=1,
        n_random=1,
        n_extreme=0,
        n_baseline=0,
    )
    assert sheet.pk in wait_of(swept(row), round_steps(row)).url
    AuditSheet.objects.filter(pk=sheet.pk).update(state="finished", ended_at=timezone.now())
    assert states(swept(row)) | {"audit": "done", "promote": "waiting"} == states(row)


# Triggers.


def test_an_old_reward_model_starts_one_round_until_there_is_a_new_one(
    pipeline: Pipeline, emil: User
) -> None:
    change(pipeline, emil, trigger_age_days=30)
    assert rounds_sweep() == 0
    Run.objects.filter(kind="reward").update(ended_at=timezone.now() - timedelta(days=31))
    rounds_sweep()
    row = Round.objects.get(pipeline=pipeline)
    assert row.trigger == "age"
    round_act(round=row, action="stop", user=emil, reason="No machine")
    for _ in range(2):
        rounds_sweep()
    assert Round.objects.count() == 1, "it is as old as before"
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    swept(ended(row, "reward"))
    pipeline.refresh_from_db()
    assert pipeline.disarmed == [], "a new one was trained"


def test_a_drifted_model_starts_one_round(project: Project, pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, trigger_drift=True)
    watch = Watch.objects.create(
        project=project,
        kind="policy",
        name="In service",
        checkpoint=Checkpoint.objects.get(run__kind="ppo"),
        prompts=Snapshot.objects.get(kind="prompts"),
        next_at=timezone.now(),
        state="steady",
    )
    assert rounds_sweep() == 0
    Watch.objects.filter(pk=watch.pk).update(state="drifted")
    rounds_sweep()
    row = Round.objects.get(pipeline=pipeline)
    assert row.trigger == "drift"
    round_act(round=row, action="stop", user=emil, reason="Looked at")
    rounds_sweep()
    assert Round.objects.count() == 1


def test_a_schedule_starts_a_round_at_each_of_its_times(pipeline: Pipeline, emil: User) -> None:
    version = change(pipeline, emil, trigger_every_days=7, trigger_at_hour=6)
    rounds_sweep()
    assert not Round.objects.exists(), "its first time is to come"
    moved = PipelineVersion.objects.create(
        pipeline=pipeline, number=version.number + 1, steps=version.steps, trigger_every_days=7
    )
    # The database lets no version change, so the clock is moved by the versions' own column.
    later = timezone.now() + timedelta(days=2)
    rules = Rules(trigger_every_days=7, trigger_at_hour=6)
    first = first_due(moved, rules)
    assert (first.hour, first.minute, first.tzinfo) == (6, 0, UTC)
    assert timedelta(0) < first - moved.created_at <= timedelta(days=1)
    assert last_due(moved, rules, first - timedelta(seconds=1)) is None
    assert last_due(moved, rules, later) == first
    assert next_due(moved, rules, later) == first + timedelta(days=7)
    assert last_due(moved, rules, first + timedelta(days=15)) == first + timedelta(days=14)


def test_a_time_of_the_schedule_that_saw_a_round_starts_no_second(
    pipeline: Pipeline, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(pipeline, emil, trigger_every_days=1)
    at = timezone.now() + timedelta(days=1, hours=1)
    monkeypatch.setattr(timezone, "now", lambda: at)
    rounds_sweep()
    row = Round.objects.get(pipeline=pipeline)
    assert row.trigger == "schedule"
    round_act(round=row, action="stop", user=emil, reason="Not today")
    rounds_sweep()
    assert Round.objects.count() == 1
    at += timedelta(days=1)
    rounds_sweep()
    assert Round.objects.count() == 2


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (Rules(trigger_every_days=0), "trigger_every_days"),
        (Rules(trigger_at_hour=24), "trigger_at_hour"),
        (Rules(budget_votes=0), "budget_votes"),
        (Rules(budget_money=10.0), "budget_money"),
        (Rules(price_vote=-1.0), "price_vote"),
        (Rules(currency="far too long"), "currency"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_its_name(
    project: Project, evaluation: Run, emil: User, rules: Rules, field: str
) -> None:
    with pytest.raises(DomainError) as refused:
        pipeline_make(project=project, run=evaluation, name="Weekly", user=emil, rules=rules)
    assert refused.value.field == field
    assert not Pipeline.objects.exists()


# Budgets.


def test_a_budget_of_votes_ends_the_round_and_leaves_the_queue(
    generating: Pipeline, emil: User
) -> None:
    change(generating, emil, budget_votes=6)
    row = swept(round_start(pipeline=generating, user=emil))
    generated(row, 10)
    voted(row, 1)
    assert swept(row).state == "waiting"
    voted(row, 1)
    assert (swept(row).state, row.reason) == ("stopped", "Its budget of votes is used up.")
    batch = batch_of(step_of(row, "generate").run)
    assert Comparison.objects.filter(batch=batch).count() == 10, "nothing is lost"


def test_money_is_counted_by_prices_and_gpu_hours_by_processes(
    pipeline: Pipeline, emil: User
) -> None:
    change(pipeline, emil, budget_money=20.0, price_gpu_hour=4.0, currency="EUR")
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    run = step_of(row, "reward").run
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(state="running", queue="gpu", processes=2)
    run.attempts.update(opened_at=now - timedelta(hours=2))
    spent = spent_of(row, round_steps(row))
    assert (round(spent.gpu_hours, 2), round(spent.money, 1)) == (4.0, 16.0)
    assert swept(row).state == "running"
    run.attempts.update(opened_at=now - timedelta(hours=1.3), environment={"world_size": 4})
    assert (swept(row).state, row.reason) == ("stopped", "Its budget of money is used up.")
    run.refresh_from_db()
    assert run.command == "stop", "it saves and ends"


def test_an_attempt_that_was_done_again_counts_too(pipeline: Pipeline, emil: User) -> None:
    change(pipeline, emil, budget_gpu_hours=3.0)
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    now = timezone.now()
    first = step_of(row, "reward").run
    Run.objects.filter(pk=first.pk).update(queue="gpu")
    first.attempts.update(opened_at=now - timedelta(hours=2))
    ended(row, "reward")
    round_act(round=row, action="redo", user=emil, step="reward")
    assert spent_of(row, round_steps(row)).gpu_hours == pytest.approx(2.0, abs=0.01)
    again = step_of(row, "reward").run
    Run.objects.filter(pk=again.pk).update(queue="gpu")
    again.attempts.update(opened_at=now - timedelta(hours=1.1))
    assert swept(row).reason == "Its budget of GPU hours is used up."


# What goes wrong, and who is told.


def test_an_error_that_nobody_foresaw_is_shown_and_told(
    pipeline: Pipeline, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = round_start(pipeline=pipeline, user=emil)

    def broken(*_: Any) -> None:
        raise ImproperlyConfigured("a path")

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "step_move", broken)
        swept(row)
    assert (row.state, states(row)["freeze"]) == ("waiting", "failed")
    assert "ImproperlyConfigured" in step_of(row, "freeze").problem
    assert Notice.objects.filter(kind="round.waiting").count() == 1
    round_act(round=row, action="redo", user=emil, step="freeze")
    assert states(row)["freeze"] == "running"


def test_channels_hear_that_a_round_waits_and_that_it_ended(
    project: Project, pipeline: Pipeline, emil: User, ada: User, settings: Any
) -> None:
    settings.WEBHOOK_HOSTS = ["hooks.example"]
    for address, tells in (
        ("rounds", ["rounds"]),
        ("more", ["incidents", "rounds"]),
        ("incidents", ["incidents"]),
    ):
        channel_create(
            project=project,
            user=ada,
            kind="webhook",
            address=f"http://hooks.example/{address}",
            tells=tells,
        )
    row = swept(round_start(pipeline=pipeline, user=emil))
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    swept(row)
    round_act(round=row, action="stop", user=ada, reason="Enough")
    told = Delivery.objects.order_by("pk").values_list("channel__address", "event")
    assert sorted(told) == [
        (f"http://hooks.example/{address}", event)
        for address in ("more", "rounds")
        for event in ("round.stopped", "round.waiting")
    ]
    waiting = Delivery.objects.filter(event="round.waiting").first().body
    assert waiting["waits_for"]["step"] == "approve"
    assert waiting["round"]["url"].endswith(f"/pipelines/{pipeline.pk}/rounds/1/")
    json.dumps(waiting)
    subject, text = email_text(waiting)
    assert subject.endswith("Weekly, round 1: waiting")
    assert "an engineer or admin" in text


# Templates, past rounds, pages.


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_a_template_makes_a_pipeline_whose_runs_can_be_launched(
    project: Project, evaluation: Run, emil: User, template: str
) -> None:
    base = Checkpoint.objects.get(run__name="base")
    made = pipeline_from_template(
        project=project,
        template=template,
        size="demo",
        policy=base,
        prompts=Snapshot.objects.get(kind="prompts"),
        generates=True,
        name="Of a template",
        user=emil,
    )
    row = swept(round_start(pipeline=made, user=emil))
    generated(row, 2)
    voted(row, 2)
    swept(row)
    frozen(row)
    ended(row, "reward")
    ended(row, "assess")
    approved(row)
    if template == "reward":
        assert swept(row).state == "finished"
        return
    ended(row, "policy")
    ended(row, "evaluate")
    assert states(row)["promote"] == "waiting"
    assert step_of(row, "policy").run.kind == template
    second = RunInput.objects.get(run=step_of(row, "evaluate").run, role="sft")
    assert second.checkpoint == base
    round_act(round=row, action="stop", user=emil, reason="Enough")
    again = swept(round_start(pipeline=made, user=emil))
    policy = RunInput.objects.get(run=step_of(again, "generate").run, role="policy")
    assert policy.checkpoint == step_of(row, "policy").checkpoint, "of the round before"


def test_the_runs_that_a_pipeline_is_made_of_are_its_first_round(
    project: Project, evaluation: Run, emil: User
) -> None:
    Run.objects.filter(pk=evaluation.pk).update(
        summary={"judge": {"win_rate": RATE}, "policy": {"kl": 2.5, "response_length": 40.0}}
    )
    made = pipeline_make(project=project, run=evaluation, name="Weekly", user=emil, as_round=True)
    row = Round.objects.get(pipeline=made)
    assert (row.number, row.state, row.trigger) == (1, "finished", "past")
    assert step_of(row, "evaluate").run == evaluation
    assert step_of(row, "freeze").snapshot is not None
    found = figures_of.figures_by_round([row])[1]
    assert (found.win_rate.value, found.kl, found.length) == (0.6, 2.5, 40.0)
    assert round_start(pipeline=made, user=emil).number == 2


def test_the_change_of_a_win_rate_is_paired_by_prompts(
    project: Project, pipeline: Pipeline, emil: User
) -> None:
    kept, _ = EvaluationProtocol.objects.get_or_create(
        project=project, sha256="a" * 64, defaults={"content": {"engine": "a"}}
    )
    for wins in (20, 30):
        row = at_promotion(pipeline, emil)
        run = step_of(row, "evaluate").run
        ProtocolUse.objects.create(run=run, protocol=kept)
        judged = [1.0 if n < wins else -1.0 for n in range(40)]
        outputs_add(run, [{"judge_score": one, "other_judge_score": 0.0} for one in judged])
        round_act(round=row, action="stop", user=emil, reason="Enough")
    found = figures_of.figures_by_round(list(Round.objects.filter(pipeline=pipeline)))
    change = found[2].change
    assert (change.value, change.n) == (pytest.approx(10 / 40), 40)
    assert 0.1 < change.low < change.value < change.high < 0.45
    assert found[1].change is None


def test_a_page_of_a_round_is_asked_again_only_when_something_changed(
    pipeline: Pipeline, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    row = swept(round_start(pipeline=pipeline, user=emil))
    address = reverse("loop:round", args=["arguments", pipeline.pk, 1])
    seen = client.get(address).context["seen"]
    polled = {"headers": {"HX-Request": "true"}}
    assert client.get(f"{address}?seen={seen}", **polled).status_code == 204
    frozen(row)
    answer = client.get(f"{address}?seen={seen}", **polled)
    assert answer.status_code == 200
    assert b"<html" not in answer.content
    assert "Train the reward model" in answer.content.decode()


def test_a_pipeline_of_a_template_is_made_on_its_page(
    project: Project, evaluation: Run, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    address = reverse("loop:pipeline_template", args=["arguments"])
    given = {
        "name": "By a form",
        "template": "dpo",
        "size": "demo",
        "policy": Checkpoint.objects.get(run__name="base").pk,
        "prompts": Snapshot.objects.get(kind="prompts").pk,
        "trigger_pairs": "500",
        "budget_money": "10",
    }
    refused = client.post(address, given)
    assert refused.status_code == 422
    assert "Name the price" in refused.content.decode()
    client.post(address, given | {"price_vote": "0.02"})
    made = Pipeline.objects.get()
    page = client.get(reverse("loop:pipeline", args=["arguments", made.pk])).content.decode()
    assert "at 500 fresh pairs" in page
    assert "<svg" in page


def test_the_line_of_freshness_leads_to_a_pipeline_in_two_clicks_more(
    project: Project, evaluation: Run, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    model = Checkpoint.objects.get(run__kind="reward")
    page = client.get(reverse("evaluation:reward_model", args=["arguments", model.pk]))
    assert "Retrain when 500 fresh pairs are in" in page.content.decode()
    new = reverse("loop:pipeline_new", args=["arguments"])
    given = page.content.decode().split(f'href="{new}')[1].partition('"')[0]
    address = new + html.unescape(given)
    form = client.get(address).context["form"]
    given = {name: form[name].value() for name in ("run", "name", "trigger_pairs")}
    assert given == {"run": model.run_id, "name": "Retrain rewards", "trigger_pairs": "500"}
    client.post(reverse("loop:pipeline_new", args=["arguments"]), given)
    assert version_now(Pipeline.objects.get()).trigger_pairs == 500


def test_a_template_says_what_the_project_lacks(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    address = reverse("loop:pipeline_template", args=["arguments"])
    assert "No language model yet" in client.get(address).content.decode()
    saved(run_made(project, "register_policy", "base"), 0)
    assert "No dataset with prompts yet" in client.get(address).content.decode()


def test_the_api_makes_one_of_a_template_with_rules(
    project: Project, evaluation: Run, emil: User, client: Client
) -> None:
    _, token = token_create(user=emil, name="api", scopes=["read", "train"], days=1)
    given = {"content_type": "application/json", "headers": {"Authorization": f"Bearer {token}"}}
    root = "/api/v1/projects/arguments/pipelines"
    asked = {
        "template": "ppo",
        "size": "demo",
        "policy": Checkpoint.objects.get(run__name="base").pk,
        "prompts": Snapshot.objects.get(kind="prompts").pk,
        "name": "By API",
        "trigger_every_days": 7,
    }
    answer = client.post(f"{root}/from-template", asked | {"size": "huge"}, **given)
    assert (answer.status_code, answer.json()["field"]) == (400, "size")
    made = client.post(f"{root}/from-template", asked, **given).json()
    assert set(RULE_NAMES) <= set(made)
    due = datetime.fromisoformat(made["next_due"])
    assert due.hour == 6
    changed = client.patch(
        f"{root}/{made['id']}",
        {"seen_version": 1, "trigger_every_days": None, "budget_votes": 50},
        **given,
    ).json()
    assert (changed["trigger_every_days"], changed["budget_votes"]) == (None, 50)
    assert changed["next_due"] is None
