"""Judges, certificates and labels against what happens to pairs, runs and models meanwhile."""

from pathlib import Path

import numpy as np
import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.common.errors import Conflict
from apps.evaluation.models import JudgeMeasurement, LabelCertificate
from apps.evaluation.selectors.judges import Scope, judged
from apps.evaluation.services.certificates import (
    audit_errors,
    certificate_make,
    labels_ask,
    labels_freeze,
)
from apps.evaluation.services.judge_worth import judge_measure, pairs_presort, ppi_of
from apps.labeling.models import Decision, Task
from apps.labeling.services.undoing import batch_take_back
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
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
    Decision.objects.get(comparison=first.task).save()  # decided anew: `updated_at` is the latest
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
    Task.objects.all()[0]  # the votes keep a batch as well
    Task.objects.filter(pk__in=Task.objects.order_by("-pk")[:1].values("pk")).update(batch="free")
    voted(project, 0, unvoted=1, start=700)
    Task.objects.filter(n_votes=0).update(batch="new")
    answered(judge_measure(version=version, scope=ALL, user=emil, share=1.0), right())
    with pytest.raises(Conflict, match="judge's verdicts"):
        batch_take_back(project=project, batch="new")
    assert Task.objects.filter(batch="new").count() == 1
    assert JudgeMeasurement.objects.count() == 2
