"""What starts rounds by themselves, and what they have used of their budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Sum
from django.utils import timezone

from apps.labeling.models import Comparison, Vote
from apps.loop.models import Pipeline, PipelineVersion, Round, RoundStep
from apps.loop.recipe import CHECKPOINT, FREEZE, RULE_NAMES, RUN, STEP, Rules
from apps.loop.selectors import batch_of
from apps.loop.selectors.labeling import generations_of
from apps.loop.selectors.pipelines import fresh_pairs, source_given, steps_of
from apps.monitoring.models import Watch
from apps.training.models import Checkpoint, Run
from apps.training.selectors.quotas import gpu_hours

_Trigger = Round.Trigger


def rules_of(version: PipelineVersion) -> Rules:
    return Rules(**{name: getattr(version, name) for name in RULE_NAMES})


# Triggers.


def triggers_that_hold(pipeline: Pipeline, version: PipelineVersion) -> list[str]:
    """Names of `Round.Trigger`, in order."""
    return [
        str(name)
        for name, holds in _TRIGGERS.items()
        if holds(pipeline, version, rules_of(version))
    ]


def _by_pairs(pipeline: Pipeline, version: PipelineVersion, rules: Rules) -> bool:
    return rules.trigger_pairs is not None and fresh_pairs(pipeline) >= rules.trigger_pairs


def _by_age(pipeline: Pipeline, version: PipelineVersion, rules: Rules) -> bool:
    if rules.trigger_age_days is None:
        return False
    trained = reward_model_trained_at(pipeline, version)
    return trained is not None and timezone.now() - trained >= timedelta(
        days=rules.trigger_age_days
    )


def _by_drift(pipeline: Pipeline, version: PipelineVersion, rules: Rules) -> bool:
    drifted = Watch.objects.filter(
        project=pipeline.project_id, enabled=True, state=Watch.State.DRIFTED
    )
    return rules.trigger_drift and drifted.exists()


def _by_schedule(pipeline: Pipeline, version: PipelineVersion, rules: Rules) -> bool:
    """The last time that was due has seen no round since."""
    due = last_due(version, rules, timezone.now())
    return due is not None and not pipeline.rounds.filter(created_at__gte=due).exists()


_TRIGGERS: Mapping[str, Callable[[Pipeline, PipelineVersion, Rules], bool]] = {
    _Trigger.PAIRS: _by_pairs,
    _Trigger.AGE: _by_age,
    _Trigger.DRIFT: _by_drift,
    _Trigger.SCHEDULE: _by_schedule,
}


def reward_model_trained_at(pipeline: Pipeline, version: PipelineVersion) -> datetime | None:
    """When the newest reward model of the pipeline's rounds, else the one that it was copied from,
    was trained; None where there is none."""
    newest = RoundStep.objects.filter(
        round__pipeline=pipeline, key="reward", state=RoundStep.State.DONE, run__isnull=False
    )
    run = next((step.run for step in newest.order_by("-ended_at").select_related("run")[:1]), None)
    if run is None:
        run = _run_copied(pipeline, version)
    return (run.ended_at or run.created_at) if run is not None else None


def _run_copied(pipeline: Pipeline, version: PipelineVersion) -> Run | None:
    steps = steps_of(version)
    for source in (one for step in steps for one in step.inputs.values()):
        if (source.origin, source.step, source.type) == (STEP, "reward", CHECKPOINT):
            model = source_given(pipeline.project_id, source)
            if isinstance(model, Checkpoint):
                return model.run
    copied = next((step.copied_from for step in steps if step.key == "reward"), "")
    return Run.objects.filter(pk=copied, project=pipeline.project_id).first()


def last_due(version: PipelineVersion, rules: Rules, now: datetime) -> datetime | None:
    """The newest time of the schedule that is past."""
    first = first_due(version, rules)
    if first is None or now < first or rules.trigger_every_days is None:
        return None
    every = timedelta(days=rules.trigger_every_days)
    return first + every * ((now - first) // every)


def next_due(version: PipelineVersion, rules: Rules, now: datetime) -> datetime | None:
    """The first time of the schedule that is to come; None without a schedule."""
    last = last_due(version, rules, now)
    if last is None or rules.trigger_every_days is None:
        return first_due(version, rules)
    return last + timedelta(days=rules.trigger_every_days)


def first_due(version: PipelineVersion, rules: Rules) -> datetime | None:
    """The first time after the version was saved that the clock, in UTC, shows the hour."""
    if rules.trigger_every_days is None:
        return None
    saved = version.created_at.astimezone(UTC)
    day = saved.replace(hour=rules.trigger_at_hour, minute=0, second=0, microsecond=0)
    return day if day > saved else day + timedelta(days=1)


# Budgets.


@dataclass(frozen=True, slots=True)
class Spent:
    """Of a round, attempts that were done again included. seconds: wall time of freezes and runs,
    waiting for a machine included. gpu_hours: of processes on GPU queues while they ran. money:
    None where the version names no price."""

    seconds: float
    votes: int
    gpu_hours: float
    money: float | None


def spent_of(row: Round, steps: Sequence[RoundStep]) -> Spent:
    votes, gpu_hours, rules = votes_of(row), gpu_hours_of(row), rules_of(row.version)
    prices = (rules.price_vote, rules.price_gpu_hour)
    money = votes * (prices[0] or 0.0) + gpu_hours * (prices[1] or 0.0)
    return Spent(
        spent_seconds(row, steps), votes, gpu_hours, None if prices == (None, None) else money
    )


def spent_seconds(row: Round, steps: Sequence[RoundStep]) -> float:
    """Wall time of a round's freezes and runs, of those that were done again too; what people took
    to decide is not in it."""
    return row.spent_s + steps_seconds(steps, row.ended_at or timezone.now())


def steps_seconds(steps: Sequence[RoundStep], now: datetime) -> float:
    """Wall time of those that are freezes and runs, waiting for a machine included."""
    return sum(
        ((step.ended_at or now) - step.started_at).total_seconds()
        for step in steps
        if step.kind in (FREEZE, RUN) and step.started_at is not None
    )


def budget_used(row: Round, steps: Sequence[RoundStep]) -> str:
    """Why the round must end; empty where all is within its budget."""
    rules = rules_of(row.version)
    limits = (
        rules.budget_minutes,
        rules.budget_votes,
        rules.budget_gpu_hours,
        rules.budget_money,
    )
    if limits == (None,) * len(limits):
        return ""
    spent = spent_of(row, steps)
    used_up = (
        (spent.seconds / 60, "wall time"),
        (spent.votes, "votes"),
        (spent.gpu_hours, "GPU hours"),
        (spent.money, "money"),
    )
    for limit, (used, words) in zip(limits, used_up, strict=True):
        if limit is not None and used is not None and used >= limit:
            return f"Its budget of {words} is used up."
    return ""


def votes_of(row: Round) -> int:
    """On the round's generated pairs; of a round that generates none, what people of the project
    cast in ordinary comparisons while it lasts."""
    batches = [batch_of(run) for run in generations_of([row])]
    if batches:
        rows = Comparison.objects.filter(project=row.project_id, batch__in=batches)
        return rows.aggregate(n=Sum("n_votes"))["n"] or 0
    if row.trigger == _Trigger.PAST:
        return 0
    cast = Vote.objects.filter(
        project=row.project_id, is_current=True, cast_at__gte=row.created_at
    ).exclude(source__in=(Vote.Source.IMPORT, Vote.Source.SIMULATED))
    if row.ended_at is not None:
        cast = cast.filter(cast_at__lte=row.ended_at)
    return cast.count()


def gpu_hours_of(row: Round) -> float:
    runs = Run.objects.filter(project=row.project_id, launch_key__startswith=f"round:{row.pk}:")
    return gpu_hours(runs)
