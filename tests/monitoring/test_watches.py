"""Who is put under watch, and what people decide about it."""

import pytest

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.monitoring.models import Watch
from apps.monitoring.services import watches
from apps.monitoring.services.watches import watch_create
from tests.monitoring.probed import (
    elsewhere_make,
    model_make,
    probed,
    prompts_make,
    scores_of,
    watch_make,
)

pytestmark = pytest.mark.usefixtures("artifacts", "wire")


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
    with pytest.raises(Conflict, match="asks already"):
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


def test_a_baseline_is_set_anew_with_a_reason_from_the_newest_probe(project: Project, emil: User):
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
