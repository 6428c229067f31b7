"""One problem is one alert; state continues exactly; what is no number is a finding."""

import itertools
import json
import math
from pathlib import Path

import pytest

from tests.workers.rules.streams import healthy_ppo, level_after, planted, series_of, watch
from workers.context import RunContext
from workers.contract.events import Alert, Event, Evidence, Fault
from workers.rules.choices import failure_kind, guard_errors, guardrails_of
from workers.rules.diagnosis import Baseline
from workers.rules.engine import Engine, FiniteGuard, first_stop, report, stop_error
from workers.rules.rule import STAGES
from workers.rules.table import RULES
from workers.rules.tests import TESTS
from workers.rules.words import PAGE, page

NAN = math.nan


def engine_of(kind: str, guards: dict | None = None) -> Engine:
    return Engine(kind, {"guards": guards or {}})


def checks(guards: Engine, name: str, values: list[float | None], first_step: int = 1):
    """[(step, action)] of what a figure's course raises."""
    found = watch(guards, ((first_step + i, {name: v}) for i, v in enumerate(values)))
    return [(violation.step, violation.action) for violation in found]


# --- how often ---


def test_a_trouble_that_stays_is_told_once() -> None:
    guards = engine_of("ppo")
    assert checks(guards, "objective/kl", [12.0] * 300) == [(2, "warn")]


def test_one_look_over_the_bound_is_no_trouble_where_patience_is_asked() -> None:
    assert checks(engine_of("ppo"), "policy/clipfrac_avg", [0.1, 0.9, 0.1, 0.1, 0.1] * 20) == []
    # three of five checks, in whatever order
    assert checks(engine_of("ppo"), "policy/clipfrac_avg", [0.9, 0.1, 0.9, 0.1, 0.9]) == [
        (5, "warn")
    ]


def test_it_is_told_again_only_after_ten_calm_looks_well_inside() -> None:
    just_inside, well_inside = 9.0, 7.9  # a fifth of ten nats is the margin
    hovering = [12.0] * 3 + ([just_inside] * 5 + [12.0] * 5) * 10
    assert checks(engine_of("ppo"), "objective/kl", hovering) == [(2, "warn")]
    returning = [12.0] * 3 + [well_inside] * 20 + [12.0] * 3
    assert checks(engine_of("ppo"), "objective/kl", returning) == [(2, "warn"), (25, "warn")]


def test_two_alerts_of_a_rule_are_twenty_looks_apart() -> None:
    flickering = ([50.0] * 3 + [0.1] * 11) * 20
    steps = [s for s, _ in checks(engine_of("ppo"), "update/skipped_minibatches", flickering)]
    assert len(steps) > 3
    assert min(b - a for a, b in itertools.pairwise(steps)) >= 20


def test_an_adjustment_is_made_again_while_the_trouble_stays_three_times_at_most() -> None:
    guards = engine_of("ppo", {"reference_kl": "adjust"})
    found = checks(guards, "objective/kl", [12.0] * 100)
    assert found == [(2, "adjust"), (12, "adjust"), (22, "adjust")]


def test_none_is_no_look_at_all() -> None:
    guards = engine_of("ppo")
    assert checks(guards, "objective/kl", [12.0, None, None, None, 12.0]) == [(5, "warn")]


def test_a_rule_that_is_off_says_nothing_and_another_threshold_is_kept_to() -> None:
    figures = {"objective/kl": 9.0, "policy/clipfrac_avg": 0.9}
    guards = engine_of(
        "ppo",
        {"clip_fraction": "off", "reference_kl": {"threshold": 8, "action": "stop", "patience": 1}},
    )
    (violation,) = guards.check(1, figures)
    assert (violation.rule.name, violation.action, violation.limit) == (
        "reference_kl",
        "stop",
        8,
    )
    assert violation.severity == "critical"


def test_of_several_stops_the_outermost_in_the_diagnosis_counts() -> None:
    choice = {"action": "stop", "patience": 1}
    guards = engine_of(
        "ppo", {"reference_kl": choice, "repetition": choice, "ratio": {"patience": 1}}
    )
    found = guards.check(
        1, {"objective/kl": 50.0, "response/repetition": 0.9, "update/skipped_minibatches": 3.0}
    )
    assert [b.rule.name for b in found] == ["repetition", "reference_kl", "ratio"]
    assert first_stop(found).rule.name == "repetition"


# --- state ---


def test_a_watcher_that_is_resumed_says_what_one_without_a_break_says() -> None:
    def course():
        return planted(healthy_ppo(7), level_after(90), since=40)

    whole = engine_of("ppo", {"reference_kl": "adjust"})
    expected = [(b, whole.state()) for b in watch(whole, course())]
    assert len(expected) > 3
    for cut in (1, 45, 93, 120):
        guards, found = engine_of("ppo", {"reference_kl": "adjust"}), []
        for step, figures in course():
            found += guards.check(step, figures)
            if step == cut:
                saved = json.loads(json.dumps(guards.state(), allow_nan=False))
                guards = engine_of("ppo", {"reference_kl": "adjust"})
                guards.restore(saved)
        assert found == [b for b, _ in expected]
        assert guards.state() == whole.state()


def test_the_state_that_was_handed_out_does_not_move_with_the_run() -> None:
    guards = engine_of("ppo")
    guards.check(1, {"objective/kl": 12.0})
    before = guards.state()
    guards.check(2, {"objective/kl": 12.0})
    assert before != guards.state()


# --- no numbers ---


def test_a_watched_figure_that_is_no_number_is_told_then_stops_the_run() -> None:
    guards = engine_of("ppo")
    assert checks(guards, "objective/kl", [1.0, NAN, math.inf]) == [(2, "skip"), (3, "stop")]
    assert json.dumps(guards.state(), allow_nan=False)


def test_a_metric_that_no_guardrail_watches_is_explained_and_stops_nothing() -> None:
    assert checks(engine_of("ppo"), "val/ratio", [NAN] * 5) == [(1, "")]
    assert checks(engine_of("sft"), "rewards/margins", [NAN] * 5) == [(1, "")]


def test_a_step_that_was_skipped_is_not_told_twice() -> None:
    guards = engine_of("sft")
    guards.check(10, {"loss": 1.0, "grad_norm": 1.0})
    assert guards.finite.skip_or_stop(17, "the loss").action == "skip"
    assert guards.check(20, {"loss": 1.0, "grad_norm": NAN}) == []
    assert [b.action for b in guards.check(30, {"loss": NAN})] == ["skip"]


def test_an_evaluation_without_numbers_stops_the_second_time() -> None:
    guards = engine_of("sft")
    assert checks(guards, "eval/loss", [1.0, NAN, 1.0, NAN], first_step=100) == [
        (101, "skip"),
        (103, "skip"),
    ]
    guards = engine_of("sft")
    found = [b.action for s in (50, 150) for b in guards.check(s, {"eval/loss": NAN})]
    assert found == ["skip", "stop"]


@pytest.mark.parametrize(
    ("steps", "actions"),
    [
        ([5, 6], ["skip", "stop"]),
        ([5, 7], ["skip", "skip"]),
        ([5, 5], ["skip", "stop"]),  # the next minibatch of the same step
        ([5, 7, 9], ["skip", "skip", "stop"]),
        ([5, 30, 90, 145], ["skip"] * 4),
    ],
)
def test_steps_without_numbers_stop_when_in_a_row_or_often(
    steps: list[int], actions: list[str]
) -> None:
    guard = FiniteGuard()
    assert [guard.skip_or_stop(step, "the loss").action for step in steps] == actions


# --- what is told ---


class Writer:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)


def test_a_violation_is_an_alert_with_evidence_and_a_failure_with_a_kind() -> None:
    writer = Writer()
    context = RunContext(None, None, Path(), writer)
    guards = engine_of("ppo", {"reference_kl": {"action": "stop", "patience": 1}})
    violations = guards.check(3, {"objective/kl": 12.5})
    report(context.emit, violations)
    alert, evidence = writer.events
    assert isinstance(alert, Alert)
    assert (alert.rule, alert.severity, alert.step) == ("reference_kl", "critical", 3)
    assert (alert.value, alert.threshold) == (12.5, 10.0)
    assert "12.5 nats" in alert.message
    assert "tagged failed" in alert.message
    assert isinstance(evidence, Evidence)
    assert (evidence.link, evidence.expected, evidence.unit) == (
        "policy",
        "at most 10",
        "nats per sequence",
    )
    error = stop_error(violations[0])
    assert (error.kind, error.fault) == ("guard_reference_kl", Fault.GUARD)


def test_what_is_no_number_is_reported_without_one() -> None:
    """NaN is no JSON."""
    writer = Writer()
    guards = engine_of("ppo")
    report(
        RunContext(None, None, Path(), writer).emit,
        guards.check(1, {"objective/kl": NAN}),
    )
    assert [event.value for event in writer.events] == [None, None]


# --- configuration ---


def test_every_wrong_choice_is_named_at_once() -> None:
    errors = guard_errors(
        "ppo",
        {
            "reference_kI": "off",
            "non_finite": "off",
            "stale": "warn",
            "clip_fraction": {"threshold": "high", "patience": 0, "window": 3},
            "entropy_floor": True,
            "held_out_down": "adjust",
        },
    )
    assert len(errors) == 8
    assert "'reference_kl'" in errors[0]
    assert all(error.startswith("guards.") for error in errors)


def test_good_choices_are_no_errors() -> None:
    choices = {
        "reference_kl": {"threshold": 8, "action": "stop"},
        "entropy_floor": "off",
        "clip_fraction": {"action": "adjust", "patience": 2},
        "explained_variance": {"threshold": -0.5},
    }
    assert guard_errors("ppo", choices) == []
    chosen = {rule.name: rule for rule in guardrails_of("ppo", choices)}
    assert chosen["clip_fraction"].patience == (2, 5)
    assert chosen["reference_kl"].action == "stop"


def test_a_kind_offers_only_the_adjustments_it_can_make() -> None:
    assert "adjust" not in {r.name: r for r in guardrails_of("dpo")}["reference_kl"].actions
    assert guard_errors("dpo", {"reference_kl": "adjust"}) != []
    gradient = {r.name: r for r in guardrails_of("sft")}["gradient"]
    assert [change.setting for change in gradient.adjustment] == ["learning_rate"]


def test_an_adjustment_stays_within_its_bounds() -> None:
    (epochs, rate) = {r.name: r for r in guardrails_of("ppo")}["clip_fraction"].adjustment
    assert [epochs.apply(n) for n in (4, 2, 1)] == [3, 1, 1]
    assert isinstance(epochs.apply(4), int)
    assert rate.apply(1e-5) == pytest.approx(5e-6)
    (costlier,) = {r.name: r for r in guardrails_of("ppo")}["reference_kl"].adjustment
    assert [costlier.apply(v) for v in (0.1, 0.9, 3.0)] == [pytest.approx(0.15), 1.0, 3.0]


def test_the_table_is_whole() -> None:
    seen = set()
    for rule in RULES:
        for name, kind in itertools.product(rule.names, rule.kinds):
            assert (name, kind) not in seen
            seen.add((name, kind))
        assert rule.actions or rule.diagnoses, rule.name
        assert not rule.actions or rule.action in rule.actions
        assert ("adjust" in rule.actions) == bool(rule.adjustment), rule.name
        assert rule.test in {*TESTS, "finite", "diagnosed"}
        assert rule.stage in STAGES
        assert 1 <= rule.patience[0] <= rule.patience[1]
        assert rule.source or not rule.actions, rule.name
        assert rule.severity in ("info", "warning", "critical")


def test_there_is_one_cooldown() -> None:
    root = Path(__file__).parents[3] / "workers"
    named = [p for p in root.rglob("*.py") if "COOLDOWN =" in p.read_text()]
    assert [path.name for path in named] == ["engine.py"]


def test_what_one_rule_has_said_another_of_the_same_metric_does_not_say_again() -> None:
    """Healthy runs clip little; a clip fraction past its limit is first unlike theirs."""
    healthy = [series_of(healthy_ppo(seed, 60)) for seed in range(6)]
    engine, writer = Engine("ppo", baseline=Baseline.of(healthy)), Writer()
    context = RunContext(None, None, Path(), writer)
    rising = {"policy/clipfrac_avg": 0.35}
    stream = planted(healthy_ppo(9, 60), lambda s, b: rising if s < 45 else level, since=30)
    level = {"policy/clipfrac_avg": 0.7}
    for step, figures in stream:
        report(context.emit, engine.check(step, figures))
    said = [(type(e).__name__, e.rule) for e in writer.events]
    assert said == [
        ("Alert", "clipping_unusual"),
        ("Evidence", "clipping_unusual"),
        ("Alert", "clip_fraction"),
    ]


def test_a_merged_rule_that_is_off_alerts_nobody_and_still_explains() -> None:
    engine, writer = engine_of("ppo", {"clip_fraction": "off"}), Writer()
    context = RunContext(None, None, Path(), writer)
    for step in range(1, 9):
        report(context.emit, engine.check(step, {"policy/clipfrac_avg": 0.9}))
    assert [type(event).__name__ for event in writer.events] == ["Evidence"]


def test_the_memory_of_an_older_version_is_left_alone_and_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_of("ppo")
    engine.restore({"memory": {"length": {"looks": 3}}, "finite": {"steps": [1]}, "last_step": 9})
    assert engine.state() == engine_of("ppo").state()
    assert "start fresh" in caplog.text


# docs/guardrails.md and docs/jobs.md against the rules.


JOBS = Path(__file__).parents[3] / "docs" / "jobs.md"


def test_the_page_prints_the_rules_as_they_are():
    text = PAGE.read_text()
    assert page(text) == text, "run: python -m workers.rules.words"


def test_every_rule_that_can_stop_a_run_has_its_failure_explained():
    text = JOBS.read_text()
    kinds = {failure_kind(rule.name) for rule in RULES if "stop" in rule.actions}
    assert {kind for kind in kinds if f"`{kind}`" not in text} == set()
