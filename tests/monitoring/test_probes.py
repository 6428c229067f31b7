"""Probes: launched on time and once, laid beside their baseline, reported when they differ."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.monitoring.models import Incident, ProbeResult, Watch
from apps.monitoring.services import probes, watches
from apps.monitoring.services.watches import watch_create
from apps.training.models import Run
from apps.training.services.attempts import run_end
from measures.drift import Level, paired_shift, speaks, unpaired_shift
from tests.monitoring.probed import (
    elsewhere_make,
    model_make,
    probe_fail,
    probe_finish,
    probe_launched,
    probed,
    prompts_make,
    scores_of,
    watch_make,
)
from workers.contract.protocol import Protocol

pytestmark = pytest.mark.usefixtures("artifacts", "wire")


def runs_of(project: Project) -> int:
    return Run.objects.filter(project=project, kind="probe").count()


# --- formulas ---


def test_the_paired_t_is_students():
    # By hand: differences 1..9 have mean 5 and deviation √7.5; t = 5 / (√7.5 / 3).
    now, then = np.arange(1.0, 10.0), np.zeros(9)
    found = paired_shift(now, then, deviation=10.0)
    assert found.statistic == pytest.approx(5 / (7.5**0.5 / 3))
    assert found.value == pytest.approx(5.0)
    assert found.effect == pytest.approx(0.5)


def test_nothing_changed_is_exactly_nothing():
    scores = scores_of(3)
    found = paired_shift(scores, scores)
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)
    assert found.level == Level.NONE


def test_every_prompt_moved_alike_is_sure_and_says_that_it_has_no_interval():
    scores = np.array(scores_of(3))
    found = paired_shift(scores + 1.0, scores)
    assert (found.value, found.level) == (pytest.approx(1.0), Level.SURE)
    assert found.low is None
    assert found.no_interval == "prompts_moved_alike"


def test_the_unpaired_z_divides_by_the_error_of_both_means():
    # (5 − 4) / (2 · √(1/100 + 1/100)) = 3.5355
    found = unpaired_shift(
        mean=5, deviation=2, n=100, baseline_mean=4, baseline_deviation=2, baseline_n=100
    )
    assert found.statistic == pytest.approx(3.5355, abs=1e-4)
    assert found.level == Level.LIKELY


def test_a_certain_change_too_small_to_matter_is_none():
    found = unpaired_shift(
        mean=4.1, deviation=2, n=10**6, baseline_mean=4, baseline_deviation=2, baseline_n=10**6
    )
    assert found.p == pytest.approx(0, abs=1e-9)
    assert found.level == Level.NONE


def test_few_prompts_say_that_they_are_few():
    found = paired_shift([1.0, 2.0], [0.0, 0.0])
    assert found.value is None
    assert found.undefined == "few_prompts n=2 least=8"


def test_likely_speaks_the_second_time_the_same_way():
    def shift(mean: float) -> Any:
        return unpaired_shift(
            mean=mean, deviation=1, n=50, baseline_mean=0, baseline_deviation=1, baseline_n=50
        )

    up, down = shift(0.7), shift(-0.7)
    assert up.level == Level.LIKELY
    assert not speaks(up, None)
    assert not speaks(up, down)
    assert speaks(up, up)


def test_a_model_that_draws_again_each_hour_seldom_alarms_in_two_hundred_probes():
    rng, fired = np.random.default_rng(11), 0
    for _ in range(40):
        base = rng.standard_normal((4, 50))
        before: list[Any] = [None] * 4
        spoke = False
        for _ in range(100):
            now = rng.standard_normal((4, 50))
            found = [paired_shift(now[k], base[k], figures=4) for k in range(4)]
            spoke |= any(speaks(found[k], before[k]) for k in range(4))
            before = found
        fired += spoke
    assert fired <= 2  # 5 %


# --- launching ---


def test_what_is_due_is_launched_once_on_the_short_queue(project: Project):
    watch = watch_make(project)
    assert probes.probes_launch() == 1
    assert probes.probes_launch() == 0
    run = Run.objects.get(project=project, kind="probe")
    assert (run.queue, run.seed, run.created_by) == ("short", 0, None)
    roles = dict(run.inputs.values_list("role", "checkpoint_id"))
    assert roles == {
        "policy": watch.checkpoint_id,
        "reward": watch.reward_id,
        "prompts": None,
    }


def test_no_second_probe_begins_beside_one(project: Project, emil: User):
    watch = watch_make(project)
    run = probe_launched(watch)
    Watch.objects.update(next_at=timezone.now())
    assert probes.probes_launch() == 0
    with pytest.raises(Conflict, match="is running"):
        probes.probe_now(project=project, watch_id=watch.pk, user=emil)
    probe_finish(run, scores_of())
    assert probes.probe_now(project=project, watch_id=watch.pk, user=emil).created_by == emil


def test_a_machine_that_slept_does_not_fire_a_burst(project: Project):
    watch = watch_make(project)
    now = timezone.now()
    slot = now - timedelta(hours=9, minutes=20)
    Watch.objects.update(next_at=slot)
    assert probes.probes_launch(now=now) == 1
    watch.refresh_from_db()
    assert watch.next_at == slot + timedelta(hours=10)
    probe_finish(watch.probe, scores_of())
    assert probes.probes_launch(now=now + timedelta(minutes=5)) == 0
    assert probes.probes_launch(now=now + timedelta(minutes=45)) == 1


def test_a_paused_watch_is_left_alone_and_may_be_asked_by_hand(project: Project, emil: User):
    watch = watch_make(project)
    watches.watch_disable(project=project, watch_id=watch.pk, user=emil)
    assert probes.probes_launch() == 0
    probes.probe_now(project=project, watch_id=watch.pk, user=emil)
    assert runs_of(project) == 1


@pytest.mark.django_db(transaction=True)
def test_two_schedulers_launch_one_probe(project: Project):
    watch_make(project)

    def launch(_: int) -> int:
        try:
            return probes.probes_launch()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(launch, range(4))) == 1
    assert runs_of(project) == 1


def test_a_watch_that_cannot_be_launched_is_broken_and_holds_up_nobody(project: Project):
    bad = watch_make(project, "bad", checkpoint=model_make(project))
    good = watch_make(project, "good")
    bad.checkpoint.status = "rejected"
    bad.checkpoint.save()
    for _ in range(3):
        Watch.objects.filter(pk=bad.pk).update(next_at=timezone.now())
        probes.probes_launch()
    bad.refresh_from_db()
    good.refresh_from_db()
    assert (bad.state, bad.probe) == ("broken", None)
    assert good.probe is not None
    incident = Incident.objects.get(key=f"watch:{bad.pk}")
    assert "rejected" in incident.message
    assert incident.alerts == 1


# --- results ---


def test_the_first_result_is_the_baseline(project: Project):
    watch = watch_make(project)
    result = probed(watch, scores_of())
    assert (watch.state, watch.baseline_run, watch.probe) == ("steady", result.run, None)
    assert watch.baseline["figures"]["score"]["mean"] == pytest.approx(np.mean(scores_of()))
    assert not result.fired


def test_a_run_that_ends_is_taken_after_its_commit(project: Project, commits: Callable[..., Any]):
    watch = watch_make(project)
    run = probe_launched(watch)
    with commits():
        probe_finish(run, scores_of(), take=False)
    assert ProbeResult.objects.filter(run=run).count() == 1
    assert probes.probe_take(run_id=run.pk) is None


def test_a_result_whose_message_was_lost_is_taken_by_the_next_beat(project: Project):
    watch = watch_make(project)
    probe_finish(probe_launched(watch), scores_of(), take=False)
    probes.probes_launch()
    watch.refresh_from_db()
    assert watch.state == "steady"


def test_the_same_model_two_hundred_times_is_steady(project: Project):
    """Through the whole of judging; launching is tested above."""
    watch = watch_make(project)
    scores = scores_of()
    probed(watch, scores, figures={"response_length": scores_of(8)})
    baseline = probes.brought_by(ProbeResult.objects.get().run)
    before: Any = None
    for _ in range(200):
        judged = probes.judge(watch, baseline, before, watch.baseline)
        assert judged.findings == []
        before = judged.figures
    result = probed(watch, scores, figures={"response_length": scores_of(8)})
    assert (result.fired, watch.state) == (False, "steady")
    assert result.figures["score"]["shift"]["value"] == 0
    assert result.details["changes"] == []
    assert not Incident.objects.exists()


def test_a_swapped_model_fires_at_the_next_probe(project: Project, emil: User):
    """⊕ The planted fault of SPEC F8: the watch now asks another checkpoint, nobody said so."""
    watch = watch_make(project)
    probed(watch, scores_of(1))
    watches.watch_retarget(
        project=project, watch_id=watch.pk, checkpoint=model_make(project), reason="?", user=emil
    )
    result = probed(watch, scores_of(2), weights="b" * 64)
    assert result.fired
    assert watch.state == "drifted"
    incident = Incident.objects.get(key=f"watch:{watch.pk}")
    assert (incident.severity, incident.rule) == ("critical", "probe_weights")
    assert "bbbbbbbbbbbb" in incident.message
    assert incident.checkpoint == watch.checkpoint


@pytest.mark.parametrize("sign", [1, -1])
def test_other_scores_fire_although_the_hash_is_the_same(project: Project, sign: int):
    watch = watch_make(project)
    before = np.array(scores_of())
    probed(watch, before.tolist())
    noise = np.random.default_rng(4).normal(0, 0.3, len(before))
    result = probed(watch, (before + sign * 0.8 + noise).tolist())
    assert [one["figure"] for one in result.findings] == ["score"]
    assert result.figures["score"]["shift"]["paired"] is True
    assert Incident.objects.get().link == "policy"


def test_a_figure_without_prompts_fires_by_its_means(project: Project):
    watch = watch_make(project)
    scores, lengths = scores_of(), np.array(scores_of(9)) + 20
    probed(watch, scores, figures={"response_length": lengths.tolist()})
    result = probed(watch, scores, figures={"response_length": (lengths + 2).tolist()})
    assert [one["figure"] for one in result.findings] == ["response_length"]
    assert "z = +" in result.findings[0]["message"]


def test_the_prompts_that_changed_most_are_kept_with_both_answers(project: Project):
    watch = watch_make(project)
    scores = scores_of()
    probed(watch, scores)
    now, told = list(scores), [f"answer {k}" for k in range(len(scores))]
    now[3], told[3] = scores[3] - 5, "another"
    now[7] = scores[7] + 1
    result = probed(watch, now, answers=told)
    assert [one["id"] for one in result.details["changes"]] == ["p3", "p7"]
    first = result.details["changes"][0]
    assert (first["before"], first["answer"], first["difference"]) == (
        "answer 3",
        "another",
        pytest.approx(-5),
    )


def test_other_prompts_than_at_the_baseline_are_no_comparison(project: Project):
    watch = watch_make(project)
    probed(watch, scores_of())
    rows = {f"old{k}": {"values": {"score": 1}, "answer": ""} for k in range(40)}
    Watch.objects.filter(pk=watch.pk).update(baseline=watch.baseline | {"rows": rows})
    watch.refresh_from_db()
    result = probed(watch, scores_of())
    assert [one["rule"] for one in result.findings] == ["probe_prompts"]


ASKED = Protocol(
    prompts={"sha256": "1" * 64, "count": 40},
    rendered={},
    chat_template={},
    system_prompt="",
    sampling={"temperature": 0.7},
    engine={"policy": {"kind": "transformers", "version": "5.1.0"}},
    baseline={},
    judge={},
    reward={},
    metric_code="2" * 64,
    statistics={},
)
UPGRADED = replace(ASKED, engine={"policy": {"kind": "transformers", "version": "5.2.0"}})


def test_a_probe_by_another_engine_is_refused_with_that_line(project: Project):
    watch = watch_make(project)
    scores = scores_of()
    probed(watch, scores, protocol=ASKED)
    moved = [score + 2 for score in scores]
    result = probed(watch, moved, protocol=UPGRADED, weights="b" * 64)
    assert [one["rule"] for one in result.findings] == ["probe_protocol", "probe_weights"]
    told = result.findings[0]["message"]
    assert "engine.policy.version was 5.1.0 and is 5.2.0" in told
    assert "baseline" not in result.figures["score"], "nothing is compared"
    result = probed(watch, moved, protocol=ASKED)
    assert [one["rule"] for one in result.findings] == ["probe_shift"], "measured alike it is"


def test_a_baseline_without_a_protocol_is_compared_with_none_that_has_one(project: Project):
    watch = watch_make(project)
    probed(watch, scores_of())
    result = probed(watch, scores_of(1), protocol=ASKED)
    assert [one["rule"] for one in result.findings] == ["probe_protocol"]
    assert "from before protocols were kept" in result.findings[0]["message"]


def test_damaged_weights_break_the_watch_and_the_next_good_probe_mends_it(project: Project):
    watch = watch_make(project)
    probed(watch, scores_of())
    result = probe_fail(probe_launched(watch))
    watch.refresh_from_db()
    assert result is not None
    assert result.fired
    assert watch.state == "broken"
    incident = Incident.objects.get()
    assert (incident.link, incident.severity) == ("data", "critical")
    assert "model.safetensors" in incident.message
    probed(watch, scores_of())
    assert watch.state == "steady"


def test_a_probe_without_its_file_is_broken(project: Project):
    watch = watch_make(project)
    result = probed(watch, scores_of(), file=False)
    assert watch.state == "broken"
    assert "probe.json" in result.findings[0]["message"]
    assert not watch.baseline


def test_a_probe_that_a_person_cancelled_says_nothing(project: Project):
    watch = watch_make(project)
    run = probe_launched(watch)
    run_end(run=run, state=Run.State.CANCELLED)
    assert probes.probe_take(run_id=run.pk) is None
    watch.refresh_from_db()
    assert (watch.probe, watch.state) == (None, "new")
    assert not Incident.objects.exists()


def test_the_same_trouble_hour_after_hour_is_one_alert(project: Project):
    watch = watch_make(project)
    probed(watch, scores_of(1))
    for _ in range(4):
        probed(watch, scores_of(2), weights="b" * 64)
    assert Incident.objects.get().alerts == 1
    Incident.objects.update(state="resolved", resolved_at=timezone.now())
    probed(watch, scores_of(2), weights="b" * 64)
    assert Incident.objects.count() == 2


def test_a_baseline_set_anew_ends_the_drift(project: Project, emil: User):
    watch = watch_make(project)
    probed(watch, scores_of(1))
    probed(watch, scores_of(2), weights="b" * 64)
    watches.watch_rebase(project=project, watch_id=watch.pk, reason="release 2", user=emil)
    watch.refresh_from_db()
    assert not probed(watch, scores_of(2), weights="b" * 64).fired


# Who is monitored, and what people decide about it.


def test_emil_puts_a_policy_under_watch_and_the_log_says_so(project: Project, emil: User):
    watch = watch_make(project, user=emil)
    assert (watch.kind, watch.every_minutes, watch.state) == ("policy", 60, "new")
    line = AuditEvent.objects.get(action="watch.created")
    assert (line.actor, line.subject, line.details["name"]) == (emil, watch.pk, "assistant")


def test_a_reward_model_scores_by_itself(project: Project):
    model, prompts = model_make(project, "reward"), prompts_make(project, "preferences")
    watch = watch_create(project=project, name="judge", checkpoint=model, prompts=prompts)
    assert watch.kind == "reward"
    with pytest.raises(DomainError) as refused:
        watch_create(project=project, name="other", checkpoint=model, prompts=prompts, reward=model)
    assert refused.value.field == "reward"


def test_what_does_not_fit_is_refused_with_its_field(project: Project):
    good = {
        "name": "assistant",
        "checkpoint": model_make(project),
        "reward": model_make(project, "reward"),
        "prompts": prompts_make(project),
    }
    _, foreign = elsewhere_make()
    unfrozen = prompts_make(project)
    unfrozen.state = "draft"
    wrong = {
        "name": [{"name": " "}, {"name": "n" * 121}],
        "every_minutes": [{"every_minutes": 4}, {"every_minutes": 10_081}],
        "reward": [
            {"reward": None},
            {"reward": model_make(project)},
            {"reward": foreign.reward},
            {"reward": model_make(project, "reward", status="retired")},
        ],
        "checkpoint": [
            {"checkpoint": model_make(project, "drill")},
            {"checkpoint": model_make(project, status="rejected")},
            {"checkpoint": foreign.checkpoint},
        ],
        "prompts": [{"prompts": foreign.prompts}, {"prompts": unfrozen}],
        "config": [{"config": {"temperature": float("nan")}}],
    }
    for field, cases in wrong.items():
        for case in cases:
            with pytest.raises(DomainError) as refused:
                watch_create(project=project, **(good | case))
            assert refused.value.field == field, case
    assert not Watch.objects.filter(project=project).exists()


def test_a_name_is_given_once(project: Project):
    watch_make(project)
    with pytest.raises(Conflict) as refused:
        watch_make(project)
    assert refused.value.field == "name"


def test_pausing_and_going_on_change_nothing_twice(project: Project, emil: User):
    watch = watch_make(project)
    for _ in range(2):
        watches.watch_disable(project=project, watch_id=watch.pk, user=emil)
    for _ in range(2):
        watches.watch_enable(project=project, watch_id=watch.pk, user=emil)
    told = AuditEvent.objects.filter(action__in=["watch.disabled", "watch.enabled"])
    assert told.count() == 2


def test_a_shorter_interval_is_not_waited_for_until_the_longer_one_is_over(
    project: Project, emil: User
):
    watch = watch_make(project, every_minutes=10_080)
    probed(watch, scores_of())
    changed = watches.watch_change(
        project=project, watch_id=watch.pk, name="helper", every_minutes=30, user=emil
    )
    assert changed.next_at < changed.updated_at
    assert changed.name == "helper"


def test_another_model_keeps_the_baseline_of_the_old_one(project: Project, emil: User):
    watch = watch_make(project)
    probed(watch, scores_of())
    other = model_make(project)
    moved = watches.watch_retarget(
        project=project, watch_id=watch.pk, checkpoint=other, reason="release 2", user=emil
    )
    assert moved.checkpoint == other
    assert moved.baseline["figures"]["score"]["n"] == 40
    with pytest.raises(Conflict, match="already being probed"):
        watches.watch_retarget(
            project=project, watch_id=watch.pk, checkpoint=other, reason="again", user=emil
        )
    with pytest.raises(DomainError) as refused:
        watches.watch_retarget(
            project=project,
            watch_id=watch.pk,
            checkpoint=model_make(project, "reward"),
            reason="a judge",
            user=emil,
        )
    assert refused.value.field == "checkpoint"


def test_a_baseline_is_set_again_with_a_reason_from_the_newest_probe(project: Project, emil: User):
    watch = watch_make(project)
    probed(watch, scores_of(1))
    newest = probed(watch, scores_of(2))
    with pytest.raises(DomainError) as refused:
        watches.watch_rebase(project=project, watch_id=watch.pk, reason=" ", user=emil)
    assert refused.value.field == "reason"
    rebased = watches.watch_rebase(project=project, watch_id=watch.pk, reason="meant", user=emil)
    assert (rebased.baseline_run, rebased.state) == (newest.run, "steady")
    assert rebased.baseline["rows"]["p0"]["values"]["score"] == pytest.approx(scores_of(2)[0])
    assert AuditEvent.objects.get(action="watch.rebased").details["reason"] == "meant"


def test_no_probe_of_an_older_model_becomes_the_baseline_of_a_newer(project: Project, emil: User):
    watch = watch_make(project)
    probed(watch, scores_of())
    watches.watch_retarget(
        project=project, watch_id=watch.pk, checkpoint=model_make(project), reason="r", user=emil
    )
    rebased = watches.watch_rebase(project=project, watch_id=watch.pk, reason="meant", user=emil)
    assert (rebased.baseline, rebased.state) == ({}, "new")
    result = probed(rebased, scores_of(5), weights="b" * 64)
    assert not result.fired
    rebased.refresh_from_db()
    assert rebased.baseline_run == result.run


def test_the_watch_of_another_project_is_unknown(project: Project, emil: User):
    _, foreign = elsewhere_make()
    with pytest.raises(Missing):
        watches.watch_disable(project=project, watch_id=foreign.pk, user=emil)
