"""Judges: versions, verdicts that can be no votes, what one is worth beside people."""

import json
import random
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import IntegrityError, connection, transaction
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Membership, Project, User
from apps.common.errors import Conflict, DomainError
from apps.evaluation.models import HeadToHead, JudgeRun, JudgeVerdict, JudgeVersion
from apps.evaluation.selectors.judges import (
    Part,
    Scope,
    is_calibrated,
    is_shaped,
    measurement_of,
    part_of,
    trials_of,
)
from apps.evaluation.services.head_to_head import Asked, head_to_head_open
from apps.evaluation.services.judge_beside import beside_people, by_category
from apps.evaluation.services.judge_sweep import judges_sweep
from apps.evaluation.services.judge_worth import judge_measure, judge_tune, pairs_presort
from apps.evaluation.services.judges import judge_make, version_make
from apps.labeling.models import Comparison, Vote
from apps.labeling.services import Lease, slot_lease_next, vote_cast
from apps.monitoring.models import Incident
from apps.snapshots.models import SnapshotRow
from apps.snapshots.selectors.snapshots import snapshot_search
from apps.snapshots.storage import artifact_store
from apps.training.models import RunInput
from tests.evaluation.judged import (
    answered,
    first_is_better,
    judge_of,
    longer_is_better,
    model_of,
    names,
    right,
    voted,
    words,
)
from tests.evaluation.outputs import checkpoint_make, snapshot_make
from tests.labeling.pairs import annotators_make
from tests.web.world import run_make

ALL = Scope()


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


def measured(version: JudgeVersion, user: User, answer, **about):
    asked = judge_measure(version=version, scope=ALL, user=user, **about)
    if isinstance(asked, JudgeRun):
        answered(asked, answer)
    found = measurement_of(version)
    assert found is not None
    return found


def test_the_same_settings_are_the_same_version_and_others_a_new_one(
    project: Project, emil: User
) -> None:
    version = judge_of(project, emil)
    judge, model = version.judge, version.model
    same = version_make(judge=judge, model=model, config={}, user=emil)
    other = version_make(judge=judge, model=model, config={"rubric": "Be brief."}, user=emil)
    assert same == version
    assert (other.number, other.config["rubric"]) == (2, "Be brief.")
    assert not is_calibrated(other)


def test_a_bad_prompt_is_refused_at_its_field(project: Project, emil: User) -> None:
    with pytest.raises(DomainError) as refused:
        judge_of(project, emil, prompt="Which is better?")
    assert refused.value.field == "prompt"


def test_the_database_refuses_a_judge_as_annotator_member_or_person(
    project: Project, emil: User
) -> None:
    voted(project, 1)
    judge = judge_of(project, emil).judge_id
    vote = Vote.objects.first()
    assert vote is not None
    statements = (
        "insert into labeling_answer (project_id, task_id, kind, slot_id, annotator_id, choice,"
        " values, shown, left_is, criteria, reasons, rationale, flags, idempotency_key, source,"
        " revision, is_current, cast_at, chosen_id) select project_id, task_id, kind, slot_id, %s,"
        " choice, values, shown, left_is, criteria, reasons, rationale, flags, 'x', source,"
        " revision, false, cast_at, chosen_id from labeling_answer limit 1",
        "insert into accounts_membership (project_id, user_id, role, paused_reason, created_at,"
        " updated_at) select project_id, %s, role, '', now(), now() from accounts_membership"
        " limit 1",
        "update accounts_user set id = %s where id = (select min(id) from accounts_user)",
    )
    for statement in statements:
        with (
            pytest.raises(IntegrityError, match="a judge is no"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement, [judge])
    person = User.objects.order_by("pk").first()
    assert person is not None
    with (
        pytest.raises(IntegrityError, match="a person has this id"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("update evaluation_judge set id = %s", [person.pk])
    assert not Membership.objects.filter(user=judge).exists()


def test_a_judge_sees_neither_votes_nor_sources(project: Project, emil: User) -> None:
    voted(project, 4, models=("ours", "theirs"))
    asked = judge_measure(version=judge_of(project, emil), scope=ALL, user=emil)
    assert isinstance(asked, JudgeRun)
    (row, *_) = artifact_store().lines(f"{asked.pairs.uri}/pairs.jsonl")
    assert set(row) == {"pair", "prompt", "response_a", "response_b"}
    assert "theirs" not in str(row)
    assert not snapshot_search(project=project).exists()  # nothing that anybody trains on


def test_verdicts_are_taken_once_and_only_new_pairs_are_asked_about(
    project: Project, emil: User
) -> None:
    voted(project, 5)
    version = judge_of(project, emil)
    asked = judge_measure(version=version, scope=ALL, user=emil)
    answered(asked, right())
    judges_sweep()
    assert JudgeVerdict.objects.count() == 5
    assert Vote.objects.count() == 10
    voted(project, 3, start=5)
    again = judge_measure(version=version, scope=ALL, user=emil)
    assert isinstance(again, JudgeRun)
    assert again.pairs.counts["rows"] == {"pairs": 3}


def test_under_twenty_shared_pairs_nothing_is_said(project: Project, emil: User) -> None:
    voted(project, 19)
    version = judge_of(project, emil)
    found = measured(version, emil, right(), share=1.0)
    assert "20" in found.refused
    assert not is_calibrated(version)


def test_a_fair_judge_saves_votes_under_the_ceiling_and_has_no_fault(
    project: Project, emil: User
) -> None:
    voted(project, 300, votes=2, seed=1)
    version = judge_of(project, emil)
    found = measured(version, emil, right())
    figures = found.figures
    assert is_calibrated(version)
    assert 0.3 < found.n_pairs / 300 < 0.7
    assert names(figures["biases"]) == set()
    assert figures["agreement"]["value"] > 0.6
    ppi = figures["ppi"]
    assert 0 < ppi["saved"] <= ppi["alpha"]["value"] + 0.1
    width = {name: ppi[name]["high"] - ppi[name]["low"] for name in ("people", "ppi")}
    assert width["ppi"] < 1.05 * width["people"]
    assert figures["more"]["one"] > 0
    assert figures["all_votes"]["n"] == 600


@pytest.mark.parametrize(
    ("answer", "fault"), [(longer_is_better, "length"), (first_is_better, "position")]
)
def test_a_judges_taste_is_named_with_its_size(project: Project, emil: User, answer, fault) -> None:
    voted(project, 200, seed=2)
    found = measured(judge_of(project, emil), emil, answer, share=1.0)
    assert fault in names(found.figures["biases"])
    (one,) = [row for row in found.figures["biases"] if row["name"] == fault]
    assert one["size"] > 0.3


def test_the_judge_alone_misses_what_people_say_and_people_with_it_do_not(
    project: Project, emil: User
) -> None:
    voted(project, 200, seed=3)
    found = measured(judge_of(project, emil), emil, longer_is_better)
    ppi, every = found.figures["ppi"], found.figures["all_votes"]
    assert ppi["judge"]["low"] > 0.8 > every["high"]
    # How often the interval covers is tests/measures/test_ppi.py; this one sample is near.
    assert ppi["ppi"]["low"] - 0.05 < every["value"] < ppi["ppi"]["high"] + 0.05


def test_a_judge_that_prefers_its_own_family_is_named(project: Project, emil: User) -> None:
    voted(project, 200, seed=4, models=("gpt-7", "llama-9"))
    model = model_of(project)
    model.run.config = {"model": "openai/gpt-8-mini", "url": "http://x"}
    model.run.save()
    version = judge_of(project, emil, name="Gip")
    version.model = model
    version.save()

    def own(pair, a_first):
        return 0.9 if a_first else 0.1

    found = measured(version, emil, own, share=1.0)
    assert "family" in names(found.figures["biases"])


def test_a_reward_model_reads_answers_alone(project: Project, emil: User) -> None:
    voted(project, 60)
    version = judge_of(project, emil, kind="reward")
    found = measured(version, emil, right(), share=1.0)
    assert found.figures["flips"]["value"] is None
    assert found.figures["position"]["value"] is None


def test_another_fingerprint_is_another_version_without_figures(
    project: Project, emil: User
) -> None:
    voted(project, 60)
    version = judge_of(project, emil)
    answered(judge_measure(version=version, scope=ALL, user=emil), right(), fingerprint="fp-1")
    version.refresh_from_db()
    assert (version.fingerprint, is_calibrated(version)) == ("fp-1", True)
    voted(project, 20, start=60)
    answered(judge_measure(version=version, scope=ALL, user=emil), right(), fingerprint="fp-2")
    version.refresh_from_db()
    new = version.judge.versions.get(number=2)
    assert not is_calibrated(version)
    assert (new.fingerprint, new.verdicts.count()) == ("fp-2", 20)
    assert "fp-2" in version.changed_because
    assert Incident.objects.get(rule="judge_changed").severity == "critical"
    with pytest.raises(Conflict) as refused:
        judge_measure(version=version, scope=ALL, user=emil)
    assert refused.value.code == "judge_changed"


def test_a_judge_swapped_behind_its_address_is_uncalibrated_within_the_hour(
    project: Project, emil: User
) -> None:
    """Without a fingerprint: the same pairs are asked every hour, and the answers differ."""
    voted(project, 60)
    version = judge_of(project, emil)
    answered(judge_measure(version=version, scope=ALL, user=emil), right(9.0))
    (probe,) = version.runs.filter(purpose="probe")
    answered(probe, right(9.0))
    assert version.runs.filter(purpose="probe").count() == 1
    JudgeVersion.objects.update(probe_at=timezone.now() - timedelta(seconds=1))
    judges_sweep()
    steady = version.runs.filter(purpose="probe").latest("created_at")
    answered(steady, right(9.0))
    version.refresh_from_db()
    assert is_calibrated(version)
    assert version.probe_at is not None
    assert version.probe_at <= timezone.now() + timedelta(hours=1)
    JudgeVersion.objects.update(probe_at=timezone.now() - timedelta(seconds=1))
    judges_sweep()
    swapped = version.runs.filter(purpose="probe").latest("created_at")
    answered(swapped, right(-9.0))
    version.refresh_from_db()
    assert not is_calibrated(version)
    assert Incident.objects.filter(rule="judge_changed").exists()


def test_a_run_that_fails_is_said_and_asked_again(project: Project, emil: User) -> None:
    voted(project, 30)
    version = judge_of(project, emil)
    asked = judge_measure(version=version, scope=ALL, user=emil)
    assert isinstance(asked, JudgeRun)
    asked.run.state, asked.run.failure_kind = "failed", "bad_data"
    asked.run.ended_at = timezone.now()
    asked.run.save()
    judges_sweep()
    asked.refresh_from_db()
    assert "failed" in asked.problem
    assert isinstance(judge_measure(version=version, scope=ALL, user=emil), JudgeRun)


def test_a_prompt_written_after_figures_counts_by_the_part_kept_apart(
    project: Project, emil: User
) -> None:
    voted(project, 200)
    version = judge_of(project, emil)
    assert measured(version, emil, right(), share=1.0).part == Part.ALL
    later = version_make(
        judge=version.judge, model=version.model, config={"rubric": "Short."}, user=emil
    )
    found = measured(later, emil, right(), share=1.0)
    assert (found.part, found.look) == (Part.CERTIFY, 1)
    assert 50 < found.n_pairs < 110
    assert measured(later, emil, right(), share=1.0).look == 2


def test_prompts_are_chosen_on_one_part_and_measured_once_on_another(
    project: Project, emil: User
) -> None:
    voted(project, 240, seed=5)
    version = judge_of(project, emil)
    base = version.config["prompt"]
    prompts = [{"prompt": base + "\nBad."}, {"prompt": base + "\nGood."}]
    judge_tune(version=version, prompts=prompts, scope=ALL, share=1.0, user=emil)
    runs = list(JudgeRun.objects.filter(purpose="tune").order_by("pk"))
    parts = {
        part_of(task.prompt.text_hash)
        for task in Comparison.objects.filter(
            pk__in=[
                int(row["pair"])
                for row in artifact_store().lines(f"{runs[0].pairs.uri}/pairs.jsonl")
            ]
        )
    }
    assert parts == {Part.TUNE, Part.CHOOSE}
    for asked in runs:
        good = asked.version.config["prompt"].endswith("Good.")
        answered(asked, right() if good else right(-1.0))
    (certifying,) = JudgeRun.objects.filter(purpose="certify")
    assert certifying.version.config["prompt"].endswith("Good.")
    answered(certifying, right())
    found = measurement_of(certifying.version)
    assert found is not None
    assert (found.part, found.look) == (Part.CERTIFY, 1)
    (trial,) = trials_of(version.judge)
    assert [bool(row[Part.CERTIFY]) for row in trial["rows"]] == [False, True]
    judges_sweep()
    assert JudgeRun.objects.filter(purpose="certify").count() == 1


def test_unsure_pairs_go_first_and_a_random_share_measures(project: Project, emil: User) -> None:
    voted(project, 40, unvoted=60)
    version = judge_of(project, emil)
    answered(judge_measure(version=version, scope=ALL, user=emil), right())
    moved, kept = pairs_presort(version=version, scope=ALL, measuring=0.2, user=emil)
    assert moved + kept == 60
    first = Comparison.objects.filter(slice="selected").order_by("-priority").first()
    assert first is not None
    unsure = {v.task_id: abs(v.preference - 0.5) for v in version.verdicts.all()}
    assert unsure[first.pk] == min(
        unsure[pk]
        for pk in Comparison.objects.filter(slice="selected").values_list("pk", flat=True)
    )
    assert Comparison.objects.filter(slice="measuring", inclusion_probability=0.2).count() == kept
    slot = first.slots.filter(state="free").first()
    assert slot is not None
    assert slot.priority >= first.priority > 0


# Beside people: head-to-heads and suites.


def head_to_head(project: Project, user: User, n: int = 120):
    rows = [
        {
            "prompt": f"Question {k}: why?",
            "response_a": words(k, "a", is_long=k % 2 == 0, quality=1.0),
            "response_b": words(k, "b", is_long=k % 2 == 1, quality=0.0),
        }
        for k in range(n)
    ]
    return head_to_head_open(
        project=project,
        user=user,
        asked=Asked(name="New or old", first_name="New", second_name="Old", people=6),
        rows=rows,
    )


def vote_some(project: Project, people: list[User], each: int, draw: random.Random) -> None:
    for person in people:
        for _ in range(each):
            lease = slot_lease_next(project=project, annotator=person)
            assert isinstance(lease, Lease)
            choice = "a" if draw.random() < 0.75 else "b"
            vote_cast(slot=lease.slot, annotator=person, idempotency_key=lease.key, choice=choice)


def test_a_judge_stands_beside_the_votes_of_a_head_to_head(
    project: Project, emil: User, signed_in
) -> None:
    found = head_to_head(project, emil)
    vote_some(project, annotators_make(project, 6), 7, random.Random(1))
    version = judge_of(project, emil)
    address = reverse("evaluation:head_to_head", args=[project.slug, found.pk])
    client = signed_in(emil)
    assert "Ask the judge" in client.get(address).content.decode()
    client.post(f"{address}judge/", {"version": version.pk})
    (asked,) = JudgeRun.objects.all()
    answered(asked, right())
    (beside,) = beside_people(found)
    assert (beside.n_verdicts, beside.estimate.n_votes) == (120, 42)
    assert beside.estimate.n_unlabelled == 78
    held, once = beside.held, beside.estimate.ppi
    assert held is not None
    assert held.high - held.low > 1.4 * (once.high - once.low)  # it may be looked at any day
    assert "People and judge" in client.get(address).content.decode()


def test_a_suite_says_by_category_what_people_prefer_with_a_judge(
    project: Project, emil: User, signed_in
) -> None:
    found = head_to_head(project, emil)
    run = run_make(project, kind="evaluate", state="finished", name="suite")
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Question {k}: why?"}],
            "check": {"category": "even" if k % 2 == 0 else "odd"},
        }
        for k in range(120)
    ]
    artifact_store().write_bytes(
        "snapshots/suite/train.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()
    )
    prompts = snapshot_make(
        project, kind="prompts", uri="snapshots/suite", counts={"rows": {"train": 120}}
    )
    RunInput.objects.create(run=run, role="prompts", snapshot=prompts)
    HeadToHead.objects.update(source=run)
    vote_some(project, annotators_make(project, 6), 10, random.Random(2))
    version = judge_of(project, emil)
    asked = judge_measure(
        version=version, scope=Scope("head_to_head", found.pk), share=1.0, user=emil
    )
    answered(asked, right())
    (one,) = by_category(run)
    assert [(row["name"], row["n"]) for row in one["rows"]] == [
        ("All", 120),
        ("even", 60),
        ("odd", 60),
    ]
    assert sum(row["votes"] for row in one["rows"][1:]) == one["rows"][0]["votes"] == 60
    page = signed_in(emil).get(reverse("evaluation:run_checks", args=[project.slug, run.pk]))
    assert "Preferred by people" in page.content.decode()


def test_pairs_that_a_judge_learned_from_do_not_measure_it(project: Project, emil: User) -> None:
    voted(project, 60)
    data = snapshot_make(project, state="draft")
    learned = list(Comparison.objects.order_by("pk")[:30])
    SnapshotRow.objects.bulk_create(
        SnapshotRow(snapshot=data, comparison=pair, split="train", ordinal=place)
        for place, pair in enumerate(learned)
    )
    type(data).objects.filter(pk=data.pk).update(state="frozen")
    model = checkpoint_make(project, data=data)
    version = judge_make(project=project, name="Learner", model=model, config={}, user=emil)
    found = measured(version, emil, right(), share=1.0)
    assert found.n_pairs == 30
    assert found.figures["n_judged"] == 60


def test_a_few_prompts_asked_again_and_again_are_measured_by_pairs(
    project: Project, emil: User
) -> None:
    voted(project, 80, prompts=4)
    found = measured(judge_of(project, emil), emil, right())
    assert found.figures["by_pair"]
    assert 20 < found.n_pairs < 60
    assert found.figures["ppi"]["ppi"]["value"] is not None


def test_another_judges_figures_may_have_shaped_a_prompt_and_no_reward_model(
    project: Project, emil: User
) -> None:
    voted(project, 120)
    measured(judge_of(project, emil), emil, right(), share=1.0)
    second = judge_of(project, emil, name="Second", rubric="Be brief.")
    reward = judge_of(project, emil, name="Third", kind="reward")
    assert (is_shaped(second), is_shaped(reward)) == (True, False)
