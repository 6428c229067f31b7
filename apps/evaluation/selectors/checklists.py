"""Checklists before, during and after the training of a policy, filled from rows and never by hand.

Each item is done, not done, not known (nobody has measured it) or does not apply to the kind of
run, with the sentence that says why and the page that shows it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from apps.common.numbers import figure
from apps.evaluation.models import PromotionRequest
from apps.evaluation.selectors.evidence import Evidence, Verdict, evaluation, seeds
from apps.training.models import Alert, Checkpoint, Run
from apps.training.selectors import checkpoint_for_use, checkpoints
from apps.training.selectors.metrics import metric_latest
from apps.training.selectors.results import alerts_that_count, report_read, samples_chosen
from apps.training.services.kinds import OPTIMISED
from workers.rules.choices import BY_NAME, rules_of

TRAINED = frozenset({"sft", "dpo", "kto", "ppo", "grpo"})  # kinds of runs that have checklists


class State(StrEnum):
    DONE = "done"
    NOT_DONE = "not_done"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    label: str
    state: State
    says: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Checklist:
    name: str  # before, during, after
    title: str
    items: list[Item]

    @property
    def done(self) -> int:
        return sum(one.state == State.DONE for one in self.items)

    @property
    def asked(self) -> int:
        """How many of its items apply to the run."""
        return sum(one.state != State.NOT_APPLICABLE for one in self.items)


def has_checklists(run: Run) -> bool:
    return run.kind in TRAINED


def checklists(run: Run) -> list[Checklist]:
    """The three of a run that trains a policy; empty of other runs."""
    if not has_checklists(run):
        return []
    return [
        Checklist("before", "Before training", _before(run)),
        Checklist("during", "During training", _during(run)),
        Checklist("after", "After training", _after(run)),
    ]


def decisions_about(run: Run) -> QuerySet[PromotionRequest]:
    """Requests to promote any of its checkpoints, with their decisions, newest first."""
    rows = PromotionRequest.objects.filter(checkpoint__run=run)
    return rows.select_related("decision", "checkpoint__run", "project").order_by("-at")


def _tab(run: Run, tab: str) -> str:
    return f"{reverse('training:run', args=[run.project.slug, run.pk])}?tab={tab}"


# Before: what its preflight looked at.


@dataclass(frozen=True, slots=True)
class _Preflight:
    """levels: {check: ok, warn, block or unknown}; figures: {check: its numbers}."""

    run: Run
    levels: Mapping[str, str]
    figures: Mapping[str, Mapping[str, Any]]

    def item(self, name: str, label: str, *checks: str, says: str = "") -> Item:
        """Of checks that must all be in order. Those that were not made count for nothing."""
        url = _tab(self.run, "checks")
        found = {check: self.levels[check] for check in checks if check in self.levels}
        if not found:
            return Item(name, label, State.UNKNOWN, "The preflight did not look at this.", url)
        for level, state, words in (
            ("block", State.NOT_DONE, "blocked the run"),
            ("unknown", State.UNKNOWN, "could not be checked"),
            ("warn", State.NOT_DONE, "warned"),
        ):
            named = ", ".join(check for check, one in found.items() if one == level)
            if named:
                return Item(name, label, state, f"Preflight: {named} {words}. {says}".strip(), url)
        return Item(name, label, State.DONE, says or f"In order: {', '.join(found)}.", url)


def _preflight_of(run: Run) -> _Preflight:
    told = run.summary.get("preflight")
    levels = told.get("checks") if isinstance(told, dict) else None
    report = report_read(run, "preflight.json").data
    rows = [one for one in report.get("findings") or () if isinstance(one, Mapping)]
    figures = {
        str(one.get("check")): one["figures"]
        for one in rows
        if isinstance(one.get("figures"), Mapping)
    }
    if not isinstance(levels, dict):  # a run that was stopped has no summary
        levels = {str(one.get("check")): str(one.get("level")) for one in rows}
    return _Preflight(run, levels, figures)


def _before(run: Run) -> list[Item]:
    found = _preflight_of(run)
    return [
        found.item(
            "rows", "Rows, masks and lengths are read as meant", "data", "template", "lengths"
        ),
        *_reward_items(run, found),
        _protocol(run, found),
        found.item("memory", "Memory is enough", "memory"),
    ]


def _reward_items(run: Run, found: _Preflight) -> list[Item]:
    labels = {
        "random": "Reward of random answers is known",
        "expert": "A weak expert beats random answers",
        "histogram": "Reward histogram has a usable shape",
    }
    if run.kind not in OPTIMISED:
        says = f"{run.get_kind_display()} is not optimised by a reward."
        return [Item(name, label, State.NOT_APPLICABLE, says) for name, label in labels.items()]
    told = found.figures.get("reward", {})
    chance, expert, n = (told.get(name) for name in ("mean_random", "mean_expert", "n"))
    random = Item(
        "random",
        labels["random"],
        State.UNKNOWN if chance is None else State.DONE,
        "The preflight scored no random answers."
        if chance is None
        else f"{figure(chance)} on average of {n} answers of random tokens.",
        _tab(run, "checks"),
    )
    says = "" if expert is None else f"{figure(expert)} against {figure(chance)} on average."
    return [
        random,
        found.item("expert", labels["expert"], "reward", says=says),
        found.item("histogram", labels["histogram"], "reward_shape"),
    ]


def _protocol(run: Run, found: _Preflight) -> Item:
    """Its settings are stored with its newest attempt, and it is evaluated on other prompts."""
    label = "Evaluation settings are stored, its prompts are held out"
    attempt = run.attempts.order_by("-number").first()
    if attempt is None or not attempt.spec:
        return Item(
            "protocol", label, State.UNKNOWN, "No job of the run is stored.", _tab(run, "config")
        )
    item = found.item("protocol", label, "eval_overlap")
    if item.state != State.DONE:
        return item
    says = "Settings and seed are stored; no evaluation prompt is trained on."
    return Item("protocol", label, State.DONE, says, _tab(run, "config"))


# During: whether somebody watched, and what the rules said.


@dataclass(frozen=True, slots=True)
class _Signal:
    """`rules` watch it; where the run's kind has none of them, having `metrics` is enough."""

    name: str
    label: str
    rules: Collection[str]
    metrics: Sequence[str] = ()


SIGNALS = (
    _Signal(
        "kl",
        "KL stays near its target",
        (
            "reference_kl",
            "update_kl",
            "update_too_large",
            "divergence_unusual",
            "divergence_unpriced",
            "update_unusual",
        ),
    ),
    _Signal("clip_fraction", "Few tokens are clipped", ("clip_fraction", "clipping_unusual")),
    _Signal(
        "entropy",
        "Entropy does not collapse",
        ("entropy_floor", "uniform_high_reward", "diverse_without_progress"),
    ),
    _Signal(
        "value",
        "The value function learns",
        ("explained_variance", "value_blow_up", "critic_flat", "critic_unusual"),
    ),
    _Signal(
        "evaluation",
        "The evaluation rises with the reward",
        ("held_out_down", "evaluation_apart", "held_out_loss", "reward_drift"),
    ),
    _Signal("length", "Answers do not only become longer", ("length", "cut_answers", "repetition")),
    _Signal(
        "resources",
        "Memory and throughput are enough",
        ("reward_slow",),
        ("time/step_s", "throughput/response_tokens_per_s"),
    ),
)
OUT_OF_MEMORY = "out_of_memory"


def _during(run: Run) -> list[Item]:
    own = {rule.name: rule for rule in rules_of(run.kind, run.config)}
    fired = [one for one in alerts_that_count(run) if one.severity != "info"]
    needed = {name for rule in own.values() for name in rule.metrics}
    needed |= {name for one in SIGNALS for name in one.metrics}
    measured = metric_latest(run=run, names=needed).keys()
    look = partial(_signal_item, run, own, fired, measured)
    return [look(one) for one in SIGNALS]


def _signal_item(
    run: Run,
    own: Mapping[str, Any],
    fired: Sequence[Alert],
    measured: Collection[str],
    signal: _Signal,
) -> Item:
    rules = [own[name] for name in signal.rules if name in own]

    def item(state: State, says: str, tab: str) -> Item:
        return Item(signal.name, signal.label, state, says, _tab(run, tab))

    if signal.name == "resources" and run.failure_kind == OUT_OF_MEMORY:
        return item(State.NOT_DONE, "The run ended out of memory.", "overview")
    if not rules and not signal.metrics:
        return Item(
            signal.name,
            signal.label,
            State.NOT_APPLICABLE,
            f"{run.get_kind_display()} has nothing to watch here.",
        )
    mine = [one for one in fired if _rule_of(one) in signal.rules]
    waiting = [one for one in mine if one.acknowledged_at is None]
    if waiting:
        first = waiting[0]
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        says = f"{first.rule} at step {first.step:,}{more}: nobody has acknowledged it."
        return item(State.NOT_DONE, says, "alerts")
    if mine:
        some = (
            "One alert, acknowledged."
            if len(mine) == 1
            else f"{len(mine)} alerts, all acknowledged."
        )
        return item(State.DONE, some, "alerts")
    watching = [rule for rule in rules if set(rule.metrics) <= set(measured)]
    if watching:
        names = ", ".join(rule.name for rule in watching)
        return item(State.DONE, f"Watched by {names}; none fired.", "charts")
    if any(name in measured for name in signal.metrics):
        return item(State.DONE, "Measured, and no alert.", "charts")
    return item(State.UNKNOWN, "The run has not measured it.", "charts")


def _rule_of(alert: Alert) -> str:
    known = BY_NAME.get(alert.rule)
    return known.name if known is not None else alert.rule


# After: the deliverables.


def _after(run: Run) -> list[Item]:
    kept = [row for row in checkpoints(run) if row.files_removed_at is None]
    model = checkpoint_for_use(run)
    return [
        _kept(run, kept, "best", "Best checkpoint of the held-out evaluation is kept"),
        _kept(run, kept, "last", "Last checkpoint is kept", "last", "final"),
        _failed(run, kept),
        _samples(run),
        _of_evidence("seeds", "Several seeds", seeds(model) if model else None),
        _of_evidence(
            "report",
            "Report on held-out prompts, by the judge",
            evaluation(model) if model else None,
        ),
    ]


def _kept(run: Run, kept: Sequence[Checkpoint], name: str, label: str, *tags: str) -> Item:
    wanted = set(tags or (name,))
    row = next((one for one in kept if wanted & set(one.tags)), None)
    if row is not None:
        url = reverse("training:model", args=[run.project.slug, row.pk])
        return Item(name, label, State.DONE, f"Step {row.step:,}.", url)
    if run.is_live:
        return Item(name, label, State.UNKNOWN, "The run has not ended.", _tab(run, "overview"))
    return Item(name, label, State.NOT_DONE, "There is none.", _tab(run, "overview"))


def _failed(run: Run, kept: Sequence[Checkpoint]) -> Item:
    label = "Failed checkpoint is kept"
    if run.state != Run.State.FAILED:
        return Item("failed", label, State.NOT_APPLICABLE, "The run has not failed.")
    return _kept(run, kept, "failed", label)


def _samples(run: Run) -> Item:
    label = "Answers of high, low and random reward are kept for audit"
    counts = samples_chosen(run).counts
    some = {name: counts.get(name, 0) for name in ("high", "low", "random")}
    says = ", ".join(f"{n:,} {name}" for name, n in some.items())
    url = _tab(run, "samples")
    if all(some.values()):
        return Item("samples", label, State.DONE, f"{says}.", url)
    if run.kind not in OPTIMISED:
        return Item(
            "samples", label, State.NOT_APPLICABLE, f"{run.get_kind_display()} has no reward."
        )
    state = State.UNKNOWN if run.is_live else State.NOT_DONE
    return Item("samples", label, state, f"{says}.", url)


def _of_evidence(name: str, label: str, found: Evidence | None) -> Item:
    """Reported is done, whatever the report says: the gate judges what it says."""
    if found is None:
        return Item(name, label, State.UNKNOWN, "The run has left no model yet.")
    state = State.NOT_DONE if found.verdict == Verdict.MISSING else State.DONE
    return Item(name, label, state, found.says, found.url)
