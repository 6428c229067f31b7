"""Judges, certificates and labels against what happens to pairs, runs and models meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.evaluation.models import CertificateUse, JudgeMeasurement, LabelCertificate
from apps.evaluation.selectors.judges import Part, Scope, judged
from apps.evaluation.services import certificates
from apps.evaluation.services import judges as services
from apps.evaluation.services.certificates import (
    audit_errors,
    certifiable,
    certificate_make,
    certificate_stop,
    labels_ask,
    labels_freeze,
)
from apps.evaluation.services.judge_worth import (
    judge_measure,
    judge_tune,
    pairs_presort,
    ppi_of,
)
from apps.labeling.models import Decision, Task
from apps.labeling.services.undoing import batch_take_back
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Artifact, Run
from apps.training.services.housekeeping import run_delete
from tests.evaluation.judged import answered, judge_of, right, voted
from tests.evaluation.test_certificates import certified, votes_cast, world

ALL = Scope()


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


def test_looks_at_a_batch_count_for_all_pairs_and_not_for_another_batch(
    project: Project, emil: User
) -> None:
    version = world(project, emil, n=40, unvoted=0)
    Task.objects.filter(pk__in=Task.objects.order_by("pk")[:20].values("pk")).update(batch="one")
    Task.objects.filter(batch="").update(batch="two")
    terms = {"version": version, "user": emil, "error": 0.3, "failure": 0.1}
    terms |= {"against": "decision", "audited": 0.1}
    looks = [
        certificate_make(scope=scope, **terms).look
        for scope in (ALL, Scope("batch", "one"), Scope("batch", "two"), ALL)
    ]
    assert looks == [1, 2, 2, 4]


def test_what_was_certified_on_a_batch_labels_no_other_pairs(project: Project, emil: User) -> None:
    version = world(project, emil)
    Task.objects.update(batch="one")
    scope = Scope("batch", "one")
    found = certificate_make(
        version=version,
        scope=scope,
        user=emil,
        error=0.1,
        failure=0.1,
        against="decision",
        audited=0.3,
    )
    with pytest.raises(Conflict) as refused:
        labels_ask(certificate=found, scope=ALL, user=emil)
    assert refused.value.code == "other_scope"
    assert labels_ask(certificate=found, scope=scope, user=emil) is None


def test_pairs_voted_on_or_dropped_since_are_frozen_by_no_judge(
    project: Project, emil: User
) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    plain = [one.task for one in found.labels.filter(is_audited=False).select_related("task")]
    votes_cast(project, [(plain[0], "a")])
    Task.objects.filter(pk=plain[1].pk).update(state=Task.State.DROPPED)
    made = labels_freeze(certificate=found, name="by Judy", user=emil)
    kept = {
        row["comparison"]
        for name in made.counts["rows"]
        for row in artifact_store().lines(f"{made.uri}/{name}.jsonl")
    }
    assert len(kept) == len(plain) - 2
    assert kept.isdisjoint({str(plain[0].pk), str(plain[1].pk)})


def test_audited_labels_go_first_in_a_queue_that_a_judge_has_sorted(
    project: Project, emil: User
) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    pairs_presort(version=version, scope=ALL, measuring=0.2, user=emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    tasks = Task.objects.filter(n_votes=0)
    audited = set(found.labels.filter(is_audited=True).values_list("task", flat=True))
    moved = tasks.filter(pk__in=audited, slice="selected")
    assert moved.count() > 3
    rest = tasks.exclude(pk__in=audited).order_by("-priority")[0].priority
    assert all(one.priority > rest for one in moved)


@pytest.mark.parametrize("against", ["decision", "vote"])
def test_no_later_decision_or_vote_moves_a_pair_in_the_audit(
    project: Project, emil: User, against: str
) -> None:
    version = world(project, emil, unvoted=80)
    found = certified(version, emil, audited=0.9, against=against, error=0.3)
    labels_ask(certificate=found, scope=ALL, user=emil)
    (first, *others) = found.labels.filter(is_audited=True).select_related("task")[:6]
    votes_cast(project, [(first.task, "ba"["ab".index(first.label)])])
    votes_cast(project, [(one.task, one.label) for one in others])
    before = audit_errors(found)
    assert before == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    Decision.objects.get(comparison=first.task).save()  # decided again: `updated_at` is the latest
    assert audit_errors(found) == before


def test_audited_pairs_stay_among_those_that_the_votes_are_a_sample_of(
    project: Project, emil: User
) -> None:
    """Labelled are the pairs of which the judge is sure: left out of the rest, they would shift
    what it says of the rest, and the estimate with it."""
    version = world(project, emil, n=100, unvoted=100)
    before = ppi_of(judged(version=version, scope=ALL), scope=ALL)
    found = LabelCertificate.objects.create(
        version=version,
        project=project,
        scope=ALL.to_json(),
        against="decision",
        error=0.1,
        failure=0.1,
        audited=1.0,
        look=1,
        threshold=0.8,
    )
    labels_ask(certificate=found, scope=ALL, user=emil)
    assert Task.objects.filter(slice="selected").count() > 30
    after = ppi_of(judged(version=version, scope=ALL), scope=ALL)
    assert after.n_unlabelled == before.n_unlabelled
    assert after.ppi == before.ppi
    one = found.labels.select_related("task")[0]
    votes_cast(project, [(one.task, "a")])
    assert ppi_of(judged(version=version, scope=ALL), scope=ALL).n_votes == before.n_votes
    assert np.isfinite(before.lam or 0)


def test_what_a_judge_stands_on_is_not_deleted_and_the_words_say_why(
    project: Project, emil: User, ada: User
) -> None:
    voted(project, 30)
    Task.objects.update(batch="mine")
    version = judge_of(project, emil)
    asked = judge_measure(version=version, scope=ALL, user=emil, share=1.0)
    answered(asked, right())
    for run in (version.model.run, asked.run):
        Run.objects.filter(pk=run.pk).update(state="finished")
        with pytest.raises(Conflict, match="the judge Judy"):
            run_delete(run=run, typed=run.name, user=ada)
        assert Run.objects.filter(pk=run.pk).exists()
    voted(project, 0, unvoted=1, start=700)
    Task.objects.filter(n_votes=0).update(batch="new")
    answered(judge_measure(version=version, scope=ALL, user=emil, share=1.0), right())
    with pytest.raises(Conflict, match="judge's verdicts"):
        batch_take_back(project=project, batch="new")
    assert Task.objects.filter(batch="new").count() == 1
    assert JudgeMeasurement.objects.count() == 2


def test_pairs_on_which_people_disagree_are_not_left_out_of_what_is_certified(
    project: Project, emil: User
) -> None:
    """They are those on which a judge errs: without them every judge is certified."""
    version = world(project, emil, n=40, unvoted=0)
    before = certifiable(judged(version=version, scope=ALL), against="decision")
    task = int(judged(version=version, scope=ALL).task[before.place[0]])
    Decision.objects.filter(comparison=task).update(outcome="needs_votes", winner="")
    after = certifiable(judged(version=version, scope=ALL), against="decision")
    assert after.place.tolist() == before.place.tolist()
    assert (before.wrong[0], after.wrong[0]) == (False, True)
    Task.objects.filter(pk=task).update(n_votes=1)  # too few votes: chance who came first
    assert len(certifiable(judged(version=version, scope=ALL), against="decision").place) == (
        len(before.place) - 1
    )


def test_of_few_prompts_other_prompts_are_labelled_by_nobody(project: Project, emil: User) -> None:
    voted(project, 260, votes=3, noise=0.05, unvoted=60, prompts=10)
    version = judge_of(project, emil)
    answered(judge_measure(version=version, scope=ALL, user=emil, share=1.0), right(6.0))
    found = certified(version, emil)
    assert found.is_valid
    voted(project, 0, unvoted=40, start=5000)  # forty other prompts
    asked = labels_ask(certificate=found, scope=ALL, user=emil)
    answered(asked, right(6.0))
    labelled = set(found.labels.values_list("task__prompt", flat=True))
    assert labelled
    assert labelled <= set(found.figures["prompts"])
    assert len(found.figures["prompts"]) == 10


def test_pairs_shown_while_few_prompts_were_asked_about_certify_nothing_later(
    project: Project, emil: User
) -> None:
    voted(project, 60, votes=3, noise=0.05, prompts=30)
    version = judge_of(project, emil)
    answered(judge_measure(version=version, scope=ALL, user=emil, share=1.0), right(6.0))
    few = judged(version=version, scope=ALL)
    shown = set(few.task[few.part(Part.TUNE, Part.CHOOSE)].tolist())
    voted(project, 60, votes=3, noise=0.05, start=1000)
    answered(judge_measure(version=version, scope=ALL, user=emil, share=1.0), right(6.0))
    many = judged(version=version, scope=ALL)
    kept = set(many.task[many.part(Part.CERTIFY)].tolist())
    assert kept
    assert kept.isdisjoint(shown)


def test_a_dataset_of_labels_that_stopped_while_it_was_written_is_none(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = world(project, emil)
    found = certified(version, emil)
    labels_ask(certificate=found, scope=ALL, user=emil)
    real = certificates.person_right

    def slow(certificate: LabelCertificate) -> float:
        certificate_stop(certificate=certificate, because="People disagree.", by=emil)
        return real(certificate)

    monkeypatch.setattr(certificates, "person_right", slow)
    with pytest.raises(Conflict) as refused:
        labels_freeze(certificate=found, name="late", user=emil)
    assert refused.value.code == "certificate_stopped"
    assert not Snapshot.objects.filter(name="late", state="frozen").exists()
    assert not CertificateUse.objects.exists()


def test_a_trial_that_cannot_be_launched_whole_launches_nothing(
    project: Project, emil: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = world(project, emil, n=120, unvoted=0)
    real, calls = services.run_launch, []

    def limited(**about: Any) -> Run:
        calls.append(1)
        if len(calls) == 2:
            raise Conflict("Too many runs wait.", code="too_many")
        return real(**about)

    monkeypatch.setattr(services, "run_launch", limited)
    prompts = [{"prompt": version.config["prompt"] + word} for word in (" One.", " Two.")]
    runs = Run.objects.count()
    with pytest.raises(Conflict, match="Too many"):
        judge_tune(version=version, prompts=prompts, scope=ALL, share=1.0, user=emil)
    assert (Run.objects.count(), version.judge.versions.count()) == (runs, 1)


def test_who_may_vote_downloads_no_verdicts(
    project: Project, emil: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    voted(project, 5)
    asked = judge_measure(version=judge_of(project, emil), scope=ALL, user=emil, share=1.0)
    answered(asked, right())
    file = Artifact.objects.get(name="verdicts.jsonl")
    path = reverse("training:run_artifact", args=[project.slug, file.run_id, file.pk])
    downloaded = signed_in(emil).get(path)  # an engineer votes on nothing
    assert len(downloaded.getvalue().splitlines()) == 5
    answer = signed_in(ada).get(path)
    assert answer.status_code == 403
    assert b"asked to vote on" in answer.content
