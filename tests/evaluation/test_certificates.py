"""Labels by a judge under a certified error: made, given, frozen, watched, stopped."""

from pathlib import Path

import pytest
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.accounts.services import project_archive, project_delete
from apps.common.errors import Conflict, DomainError
from apps.evaluation.models import CertificateUse, JudgeVersion, LabelCertificate
from apps.evaluation.selectors.judges import Scope, certificates_behind
from apps.evaluation.services.certificates import (
    audit_of,
    certificate_make,
    certificate_stop,
    labels_ask,
    labels_freeze,
)
from apps.evaluation.services.judge_sweep import judges_sweep
from apps.evaluation.services.judge_worth import judge_measure
from apps.labeling.models import Comparison, Task, Vote
from apps.labeling.services import votes_import
from apps.monitoring.models import Incident
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Run, RunInput
from tests.evaluation.judged import answered, judge_of, right, voted
from tests.evaluation.outputs import checkpoint_make

ALL = Scope()
TERMS = {"error": 0.1, "failure": 0.1, "against": "decision", "audited": 0.3}


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


def world(project: Project, user: User, *, n: int = 260, unvoted: int = 60) -> JudgeVersion:
    """Three votes of people who hardly err, so that pairs are decided, and a judge that is right
    and has judged them all."""
    voted(project, n, votes=3, noise=0.05, unvoted=unvoted)
    version = judge_of(project, user)
    answered(judge_measure(version=version, scope=ALL, user=user, share=1.0), right(6.0))
    return version


def certified(version: JudgeVersion, user: User, **terms) -> LabelCertificate:
    return certificate_make(version=version, scope=ALL, user=user, **{**TERMS, **terms})


def test_a_good_judge_is_certified_and_labels_pairs_without_a_vote(
    project: Project, emil: User
) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    assert found.is_valid
    assert found.figures["bound"] <= 0.1
    assert found.figures["n_labelled"] >= found.figures["least"]
    assert labels_ask(certificate=found, scope=ALL, user=emil) is None
    labels = found.labels.select_related("task")
    assert 30 < labels.count() <= 60
    assert not Vote.objects.filter(comparison__in=labels.values("task")).exists()
    audited = labels.filter(is_audited=True)
    assert 5 < audited.count() < 30
    for label in audited:
        assert label.task.slice == Task.Slice.SELECTED  # they measure nothing else
        assert label.task.priority > 0


def test_a_judge_that_errs_is_certified_nothing_and_may_not_label(
    project: Project, emil: User
) -> None:
    voted(project, 200, votes=3, noise=0.05, unvoted=20)
    version = judge_of(project, emil)
    answered(judge_measure(version=version, scope=ALL, user=emil), right(-6.0))
    found = certified(version, emil)
    assert (found.threshold, found.is_valid) == (None, False)
    with pytest.raises(Conflict) as refused:
        labels_ask(certificate=found, scope=ALL, user=emil)
    assert refused.value.code == "not_certified"


def test_every_try_is_a_look_and_has_less_left(project: Project, emil: User) -> None:
    version = world(project, emil, unvoted=0)
    levels = [certified(version, emil) for _ in range(2)]
    assert [one.look for one in levels] == [1, 2]
    assert levels[1].figures["level"] < levels[0].figures["level"]
    with pytest.raises(DomainError) as refused:
        certified(version, emil, error=0.0)
    assert refused.value.field == "error"


def test_labels_freeze_as_ai_feedback_below_a_persons_weight(project: Project, emil: User) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    made = labels_freeze(certificate=found, name="by Judy", user=emil)
    rows = [
        row
        for split in made.counts["rows"]
        for row in artifact_store().lines(f"{made.uri}/{split}.jsonl")
    ]
    audited = {str(one.task_id) for one in found.labels.filter(is_audited=True)}
    assert {row["labelled_by"] for row in rows} == {"ai:Judy v1"}
    assert all(0 < row["weight"] <= 1 for row in rows)
    assert all(0.5 < row["label_probability"] <= 1 for row in rows)
    assert not audited & {row["comparison"] for row in rows}
    assert made.recipe["ai_feedback"]["certificate"] == found.pk
    assert CertificateUse.objects.get(snapshot=made).certificate == found


def test_a_certificate_follows_its_labels_into_mixtures_and_models(
    project: Project, emil: User
) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    first = labels_freeze(certificate=found, name="one", user=emil)
    mixed = Snapshot.objects.create(
        project=project,
        name="mixed",
        kind="preferences",
        recipe={"mixture": {"parts": [{"snapshot": first.pk}]}},
    )
    reward = checkpoint_make(project, data=mixed)
    policy = checkpoint_make(project, kind="ppo")
    RunInput.objects.create(run=policy.run, role="reward", checkpoint=reward)
    assert [use.snapshot_id for use in certificates_behind(policy)] == [first.pk]
    assert certificates_behind(checkpoint_make(project)) == []


def test_votes_that_contradict_the_labels_stop_the_certificate(
    project: Project, emil: User
) -> None:
    version = world(project, emil, n=260, unvoted=150)
    found = certified(version, emil, audited=0.6)
    labels_ask(certificate=found, scope=ALL, user=emil)
    audited = list(found.labels.filter(is_audited=True).select_related("task"))
    assert len(audited) > 40
    votes_cast(project, [(one.task, one.label) for one in audited[:10]])
    judges_sweep()
    found.refresh_from_db()
    assert found.is_valid
    assert (audit_of(found).n, audit_of(found).wrong) == (10, 0)
    # People's taste has drifted: from here on they prefer the other answer.
    votes_cast(project, [(one.task, "ba"["ab".index(one.label)]) for one in audited[10:]])
    judges_sweep()
    found.refresh_from_db()
    assert not found.is_valid
    assert Incident.objects.get(rule="labels_contradicted").severity == "critical"
    with pytest.raises(Conflict) as refused:
        labels_freeze(certificate=found, name="late", user=emil)
    assert refused.value.code == "certificate_stopped"


def test_a_changed_judge_stops_its_certificates(project: Project, emil: User) -> None:
    version = world(project, emil)
    JudgeVersion.objects.update(fingerprint="fp-1")
    found = certified(version, emil)
    voted(project, 5, start=1000)
    version.refresh_from_db()
    answered(judge_measure(version=version, scope=ALL, user=emil), right(6.0), fingerprint="fp-2")
    found.refresh_from_db()
    assert "fp-2" in found.stopped_because


def votes_cast(project: Project, said: list[tuple[Comparison, str]]) -> None:
    votes_import(
        project=project,
        rows=[
            {"comparison": task.external_id, "annotator": f"x{who}", "choice": choice}
            for task, choice in said
            for who in range(3)
        ],
    )


def test_a_stopped_certificate_is_said_on_the_dataset_and_the_model(
    project: Project, emil: User, signed_in
) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    made = labels_freeze(certificate=found, name="by Judy", user=emil)
    reward = checkpoint_make(project, data=made)
    certificate_stop(certificate=found, because="People disagree.", by=emil)
    client = signed_in(emil)
    for name, key in (
        ("snapshots:detail", made.pk),
        ("training:model", reward.pk),
        ("evaluation:reward_model", reward.pk),
    ):
        page = client.get(reverse(name, args=[project.slug, key])).content.decode()
        assert "People disagree." in page, name
    (run,) = version.runs.filter(purpose="measure").values_list("run", flat=True)
    assert made.recipe["ai_feedback"]["runs"] == [run]


def test_a_project_is_deleted_with_its_judges(project: Project, emil: User, ada: User) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    labels_freeze(certificate=found, name="by Judy", user=emil)
    Run.objects.exclude(state="finished").update(state="cancelled", ended_at=timezone.now())
    project_archive(project=project, by=ada)
    project_delete(project=project, typed=project.name, by=ada)
    assert not JudgeVersion.objects.exists()
