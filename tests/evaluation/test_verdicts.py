"""Verdicts by people on answers: one inbox, given once each, and no votes."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connections, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError
from apps.evaluation.models import FlaggedAnswer, Verdict
from apps.evaluation.selectors.adversarial import judged_bad, round_pairs
from apps.evaluation.selectors.inbox import InboxFilters, inbox_count
from apps.evaluation.selectors.outputs import outputs_of
from apps.evaluation.selectors.verdicts import run_verdicts, tally_of, verdicts_of
from apps.evaluation.services.inbox import inbox_next
from apps.evaluation.services.ranking import round_open
from apps.evaluation.services.verdicts import (
    flagged_close,
    flagged_judge,
    sample_judge,
    verdict_undo,
)
from apps.labeling.models import Answer, Comparison, LabelingSettings, Slot
from apps.training.models import Run, RunInput, Sample
from tests.evaluation.audited import PROMPT, flag, sample_make
from tests.evaluation.outputs import assessment_make, checkpoint_make, output
from tests.labeling.pairs import leased, vote
from tests.web.world import event_add, run_make

APART = "the members of the reward model disagree about this answer: 2.10, over 1.00"
RULE = "rule length: the answer is short"
INBOX = "/p/arguments/inbox/"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def run(project: Project) -> Run:
    return run_make(project, kind="ppo", name="the policy")


def entry(run: Run, response: str = "So.", reason: str = RULE, **fields: Any) -> FlaggedAnswer:
    flag(run, response, reason=reason, **fields)
    return FlaggedAnswer.objects.get(run=run, response=response)


# What comes into the inbox.


def test_what_a_run_asks_people_about_is_one_entry_with_its_sample(run: Run) -> None:
    found = entry(run, reason=APART)
    assert (found.kind, found.state, found.step) == ("disagreement", "waiting", 3)
    assert found.sample == Sample.objects.get(run=run)
    assert found.sample.reward == 2.0
    assert entry(run, "Other.").kind == "rule"
    flag(run, "So.", reason=RULE, step=9)  # the same answer again, six steps later
    assert FlaggedAnswer.objects.count() == 2
    assert Sample.objects.count() == 3


def test_a_flagged_sample_that_no_event_explains_waits_too(run: Run) -> None:
    from tests.training.reports import report
    from workers.contract import Sample as SampleEvent

    report(run, SampleEvent(4, "flagged", [], "Odd."), SampleEvent(4, "random", [], "Usual."))
    found = FlaggedAnswer.objects.get()
    assert (found.kind, found.reason, found.response) == ("guard", "", "Odd.")


def test_the_count_is_in_the_overview_and_the_bell(
    project: Project, rita: User, run: Run, signed_in
):
    entry(run)
    page = signed_in(rita).get("/p/arguments/overview/").content.decode()
    assert "1 flagged answer waits for a verdict" in page
    assert inbox_count(project) == 1


# Verdicts.


def test_the_newest_verdict_of_a_person_counts_and_all_are_kept(
    run: Run, rita: User, emil: User
) -> None:
    sample = sample_make(run)
    for value in ("fine", "bad"):
        sample_judge(sample=sample, value=value, user=rita, note=f"it is {value}")
    sample_judge(sample=sample, value="unsafe", user=emil)
    counted = verdicts_of("sample", [sample.pk])[sample.pk]
    assert [(one.value, one.by_name, one.note) for one in counted] == [
        ("bad", "Rita", "it is bad"),
        ("unsafe", "Emil", ""),
    ]
    assert Verdict.objects.count() == 3
    assert tally_of(run.project).by_value["unsafe"] == 1  # by the worst
    assert tally_of(run.project).n == 1
    assert AuditEvent.objects.filter(action="verdict.given", subject=run.pk).count() == 3


def test_a_verdict_on_the_samples_tab_empties_the_inbox(run: Run, emil: User) -> None:
    found = entry(run)
    sample_judge(sample=found.sample, value="fine", user=emil)
    found.refresh_from_db()
    assert found.state == "judged"
    assert inbox_count(run.project) == 0


def test_undo_takes_the_last_one_back_and_the_answer_waits_again(run: Run, rita: User) -> None:
    first, second = entry(run, "One."), entry(run, "Two.")
    flagged_judge(flagged=first, value="fine", user=rita)
    flagged_judge(flagged=second, value="bad", user=rita)
    verdict_undo(project=run.project, user=rita)
    assert [one.sample_id for one in run_verdicts(run)] == [first.sample_id]
    assert FlaggedAnswer.objects.get(state="waiting") == second
    verdict_undo(project=run.project, user=rita)
    assert run_verdicts(run) == []
    with pytest.raises(Conflict) as refused:
        verdict_undo(project=run.project, user=rita)
    assert refused.value.code == "nothing_to_undo"
    assert Verdict.objects.count() == 4


def test_a_second_person_is_told_who_was_first_and_nothing_is_stored(
    run: Run, rita: User, ada: User
) -> None:
    found = entry(run)
    flagged_judge(flagged=found, value="bad", user=rita)
    with pytest.raises(Conflict, match="Rita has judged this answer: bad") as refused:
        flagged_judge(flagged=found, value="fine", user=ada)
    assert refused.value.code == "judged_meanwhile"
    assert Verdict.objects.count() == 1
    flagged_judge(flagged=found, value="fine", user=ada, again=True)
    assert Verdict.objects.count() == 2
    flagged_judge(flagged=found, value="unsafe", user=ada)  # one's own can be changed


def test_what_somebody_has_open_is_not_given_to_another(
    project: Project, run: Run, rita: User, ada: User
) -> None:
    first, second = entry(run, "One."), entry(run, "Two.")
    assert inbox_next(project=project, filters=InboxFilters(), user=rita) == second
    assert inbox_next(project=project, filters=InboxFilters(), user=ada) == first
    with pytest.raises(Conflict) as refused:
        flagged_judge(flagged=second, value="fine", user=ada)
    assert refused.value.code == "claimed"
    FlaggedAnswer.objects.filter(pk=second.pk).update(claimed_until=timezone.now())
    flagged_judge(flagged=second, value="fine", user=ada)


@pytest.mark.django_db(transaction=True)
def test_ten_people_at_once_get_ten_answers(project: Project, ada: User) -> None:
    from tests.people import person_make

    run = run_make(project, kind="ppo")
    for number in range(10):
        flag(run, f"Answer {number}.", reason=RULE)
    people = [person_make(f"Reviewer{n}", project, "reviewer") for n in range(10)]

    def take(person: User) -> int:
        try:
            found = inbox_next(project=project, filters=InboxFilters(), user=person)
            assert found is not None
            return found.pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        assert len(set(pool.map(take, people))) == 10


@pytest.mark.django_db(transaction=True)
def test_two_verdicts_in_one_moment_are_one(project: Project, rita: User, ada: User) -> None:
    run = run_make(project, kind="ppo")
    found = entry(run)

    def judge(person: User) -> str:
        try:
            flagged_judge(flagged=found, value="bad", user=person)
            return "stored"
        except Conflict as refused:
            return refused.code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(judge, [rita, ada])) == ["judged_meanwhile", "stored"]
    assert Verdict.objects.count() == 1


def test_an_unknown_verdict_or_a_long_note_names_its_field(run: Run, rita: User) -> None:
    found = entry(run)
    for given, field in (
        ({"value": "nice"}, "value"),
        ({"value": "bad", "note": "x" * 501}, "note"),
    ):
        with pytest.raises(DomainError) as refused:
            flagged_judge(flagged=found, user=rita, **given)
        assert refused.value.field == field


def test_a_verdict_is_of_one_answer_and_a_sheets_is_blind(run: Run, rita: User) -> None:
    found = entry(run)
    both = {"project": run.project, "value": "fine", "by": rita, "by_name": "Rita"}
    with pytest.raises(IntegrityError, match="verdict_is_of_one_answer"), transaction.atomic():
        Verdict.objects.create(sample=found.sample, flagged=found, **both)
    with pytest.raises(IntegrityError, match="verdict_is_of_one_answer"), transaction.atomic():
        Verdict.objects.create(**both)


def test_what_waits_of_a_run_is_closed_without_a_verdict(project: Project, run: Run, ada: User):
    entry(run, "One."), entry(run, "Two.")
    other = entry(run_make(project, kind="grpo"), "Three.")
    assert flagged_close(project=project, run_id=run.pk, user=ada) == 2
    assert FlaggedAnswer.objects.get(state="waiting") == other
    assert AuditEvent.objects.get(action="inbox.closed").details == {"answers": 2}


# Sending to labeling.


def test_an_answer_goes_to_the_queue_beside_the_baselines_and_comes_back(
    project: Project, run: Run, rita: User
) -> None:
    LabelingSettings.objects.update_or_create(project=project)
    sample = sample_make(run)
    sample_judge(sample=sample, value="labeling", user=rita)
    pair = Comparison.objects.get(project=project)
    texts = {one.messages[0]["content"] for one in (pair.response_a, pair.response_b)}
    assert texts == {sample.response, sample.baseline}
    assert pair.stratum == "priority"  # out of what agreement is computed on
    assert Slot.objects.filter(task=pair).count() == pair.overlap
    verdict_undo(project=project, user=rita)
    assert not Comparison.objects.exists()


def test_a_pair_that_somebody_voted_on_stays(
    project: Project, run: Run, rita: User, ana: User
) -> None:
    LabelingSettings.objects.update_or_create(project=project)
    sample_judge(sample=sample_make(run), value="labeling", user=rita)
    vote(project, ana)
    with pytest.raises(Conflict) as refused:
        verdict_undo(project=project, user=rita)
    assert refused.value.code == "import_voted"
    assert Verdict.objects.get().value == "labeling"


def test_two_people_send_an_answer_once_and_one_takes_back_only_their_verdict(
    project: Project, run: Run, rita: User, ada: User
) -> None:
    LabelingSettings.objects.update_or_create(project=project)
    sample = sample_make(run)
    for person in (rita, ada):
        sample_judge(sample=sample, value="labeling", user=person)
    assert Comparison.objects.count() == 1
    verdict_undo(project=project, user=rita)
    assert Comparison.objects.count() == 1


def test_the_baselines_answer_is_found_where_the_sample_has_none(
    project: Project, run: Run, rita: User
) -> None:
    """A trainer sends flagged answers alone; the same baseline answered the prompt elsewhere."""
    LabelingSettings.objects.update_or_create(project=project)
    baseline = checkpoint_make(project, kind="sft")
    evaluation = run_make(project, kind="evaluate", state="finished")
    for one in (run, evaluation):
        RunInput.objects.create(run=one, role="sft", checkpoint=baseline)
    sample_make(evaluation, 1, response="Of another run.", baseline="The baseline's words.")
    other = run_make(project, kind="evaluate", state="finished")  # of another baseline
    sample_make(other, 1, baseline="Somebody else's words.")
    alone = sample_make(run, 1, baseline="", response="A day is long.")
    sample_judge(sample=alone, value="labeling", user=rita)
    pair = Comparison.objects.get()
    texts = {one.messages[0]["content"] for one in (pair.response_a, pair.response_b)}
    assert texts == {"A day is long.", "The baseline's words."}


def test_without_a_baseline_there_is_no_pair(run: Run, rita: User) -> None:
    with pytest.raises(Conflict) as refused:
        sample_judge(sample=sample_make(run, baseline=""), value="labeling", user=rita)
    assert (refused.value.code, refused.value.field) == ("no_baseline", "value")
    assert not Verdict.objects.exists()


@pytest.mark.parametrize("kind", ["reward", "sft"])
def test_answers_of_the_data_are_no_baseline(project: Project, rita: User, kind: str) -> None:
    """A reward run shows a pair of the data, an SFT run the answer that it learned from."""
    shown = run_make(project, kind=kind, state="finished")
    with pytest.raises(Conflict) as refused:
        sample_judge(sample=sample_make(shown), value="labeling", user=rita)
    assert refused.value.code == "no_baseline"
    assert Comparison.objects.count() == 0


def test_a_verdict_is_no_vote(project: Project, run: Run, rita: User, ana: User) -> None:
    """Nothing that datasets and agreement are made of changes."""
    LabelingSettings.objects.update_or_create(project=project)
    sample_judge(sample=sample_make(run, 1), value="bad", user=rita)
    flagged_judge(flagged=entry(run), value="unsafe", user=rita)
    assert not Answer.objects.exists()
    assert not Comparison.objects.exists()
    sample_judge(sample=sample_make(run, 2), value="labeling", user=rita)
    assert not Answer.objects.exists()
    assert Comparison.objects.get().n_votes == 0
    assert leased(project, ana).slot


# Adversarial rounds.


def test_what_the_reward_pays_for_and_people_call_bad_is_asked_first(
    project: Project, run: Run, emil: User, rita: User
) -> None:
    LabelingSettings.objects.update_or_create(project=project)
    reward = checkpoint_make(project)
    RunInput.objects.create(run=run, role="reward", checkpoint=reward)
    loved = sample_make(run, 1, reward=9.0, response="You are wonderful.")
    cheap = sample_make(run, 2, reward=0.1, response="No idea.")
    fine = sample_make(run, 3, reward=8.0)
    sample_make(run, 4, reward=1.0)
    sample_judge(sample=loved, value="bad", user=rita)
    sample_judge(sample=cheap, value="bad", user=rita)
    sample_judge(sample=fine, value="fine", user=rita)
    assert [one.sample for one in judged_bad(reward)] == [loved.pk]

    source = assessment_make(reward, [output(7, 5.0)])
    made, _ = round_open(checkpoint=reward, source=source, user=emil, n_pairs=1)
    [pair] = round_pairs(made, outputs_of(source))
    assert pair.high[0]["content"] == "You are wonderful."
    assert (pair.high_score, pair.low_score) == (9.0, None)


# Pages and API.


def test_a_session_by_page_judges_and_brings_the_next(
    run: Run, rita: User, signed_in, project: Project
) -> None:
    first, second = entry(run, "One."), entry(run, "Two.", reason=APART)
    client: Client = signed_in(rita)
    page = client.get(INBOX).content.decode()
    assert f"Answer {second.pk}" in page
    assert APART in page
    htmx = {"HTTP_HX_REQUEST": "true"}
    part = client.post(f"{INBOX}{second.pk}/", {"value": "unsafe", "note": "a poison"}, **htmx)
    text = part.content.decode()
    assert "<html" not in text
    assert f"Answer {first.pk}" in text
    text = client.post(f"{INBOX}undo/", **htmx).content.decode()
    assert f"Answer {second.pk}" in text
    client.post(f"{INBOX}{second.pk}/", {"value": "unsafe"})  # without JavaScript
    last = client.post(f"{INBOX}{first.pk}/", {"value": "fine"}, **htmx).content.decode()
    assert "Nothing waits for a verdict" in last
    assert [one.value for one in run_verdicts(run)] == ["fine", "unsafe"]


def test_the_page_says_who_has_an_answer_open_and_who_was_faster(
    run: Run, rita: User, ada: User, signed_in
) -> None:
    found = entry(run)
    signed_in(rita).get(INBOX)
    page = signed_in(ada).get(f"{INBOX}?at={found.pk}").content.decode()
    assert "Rita has this answer open" in page
    signed_in(rita).post(f"{INBOX}{found.pk}/", {"value": "bad"})
    answer = (
        signed_in(ada)
        .post(f"{INBOX}{found.pk}/", {"value": "fine"}, HTTP_HX_REQUEST="true")
        .content.decode()
    )
    assert "Rita has judged this answer: bad. Nothing was stored." in answer
    assert Verdict.objects.count() == 1


def test_filters_narrow_by_run_and_reason(
    project: Project, run: Run, rita: User, signed_in
) -> None:
    entry(run, "One."), entry(run, "Two.", reason=APART)
    other = run_make(project, kind="grpo", name="another policy")
    entry(other, "Three.")
    client = signed_in(rita)

    def listed(query: str) -> list[str]:
        text = client.get(f"{INBOX}?{query}").content.decode()
        return re.findall(r'at=\d+">([^<]+)</a>', text.split("Waiting")[-1].split("Last")[0])

    assert listed("") == ["Three.", "Two.", "One."]
    assert listed(f"run={run.pk}") == ["Two.", "One."]
    assert listed("kind=disagreement") == ["Two."]
    assert listed(f"kind=rule&run={other.pk}") == ["Three."]


def test_the_samples_tab_shows_and_takes_verdicts(
    run: Run, rita: User, emil: User, signed_in
) -> None:
    sample = sample_make(run)
    sample_judge(sample=sample, value="unsafe", user=rita, note="names a poison")
    tab = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=samples").content.decode()
    assert f'id="sample-{sample.pk}"' in tab
    assert "names a poison" in tab
    where = f"/p/arguments/samples/{run.pk}/{sample.pk}/"
    part = signed_in(emil).post(where, {"value": "wrong_reward"}, HTTP_HX_REQUEST="true")
    assert part.content.decode().count('<span class="badge') == 2
    signed_in(emil).post(where, {"undo": "1"})
    assert [one.by_name for one in run_verdicts(run)] == ["Rita"]
    own = signed_in(rita).get(f"/p/arguments/samples/{run.pk}/").content.decode()
    assert "names a poison" in own  # reviewers have no run page


def test_the_samples_of_another_project_are_not_found(run: Run, olga: User, signed_in) -> None:
    sample = sample_make(run)
    client = signed_in(olga)
    assert client.post(f"/p/arguments/samples/{run.pk}/{sample.pk}/").status_code == 404
    # Nor under her own project's address.
    assert client.post(f"/p/elsewhere/samples/{run.pk}/{sample.pk}/").status_code == 404
    found = entry(run)
    body = {"value": "bad"}
    path = f"/api/v1/projects/elsewhere/inbox/{found.pk}/verdicts"
    assert client.post(path, body, content_type="application/json").status_code == 404
    assert not Verdict.objects.exists()


def test_the_api_judges_what_the_page_shows(run: Run, rita: User, signed_in) -> None:
    found = entry(run)
    client = signed_in(rita)
    base = "/api/v1/projects/arguments"
    taken = client.post(f"{base}/inbox/next").json()["answer"]
    assert (taken["id"], taken["reward"], taken["baseline"]) == (found.pk, 2.0, "It depends.")
    assert taken["open_by"] == "Rita"
    send = {"content_type": "application/json"}
    given = client.post(f"{base}/inbox/{found.pk}/verdicts", {"value": "bad"}, **send)
    assert (given.status_code, given.json()["sample"]) == (200, found.sample_id)
    bad = client.post(f"{base}/inbox/{found.pk}/verdicts", {"value": "nice"}, **send)
    assert (bad.status_code, bad.json()["field"]) == (400, "value")
    assert client.get(f"{base}/inbox").json() == {"items": [], "total": 0}
    judged = client.get(f"{base}/inbox?state=judged").json()
    assert judged["items"][0]["verdicts"][0]["by"] == "Rita"
    assert [one["value"] for one in client.get(f"{base}/runs/{run.pk}/verdicts").json()] == ["bad"]
    assert client.post(f"{base}/inbox/undo").json()["value"] == "withdrawn"


# Runs that were there before the inbox.


def test_what_earlier_runs_flagged_is_filled_in(project: Project, run: Run, rita: User) -> None:
    [path] = Path("apps/evaluation/migrations").glob("*_verdicts.py")
    migration = import_module(f"apps.evaluation.migrations.{path.stem}")
    old = run_make(project, kind="grpo", state="finished")
    Run.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=90))
    for one in (run, old):
        body = {"step": 3, "prompt": PROMPT, "response": "So.", "reason": APART}
        event_add(one, 1, "ReviewRequested", body)
        event_add(one, 2, "ReviewRequested", body | {"step": 9})  # the same answer again
        event_add(one, 3, "ReviewRequested", {"step": 4, "prompt": None, "response": "Broken."})
    sample = sample_make(run, prompt=PROMPT, response="So.", bucket="flagged")
    migration.flag(apps, None)
    found = {row.run_id: row for row in FlaggedAnswer.objects.all()}
    assert found.keys() == {run.pk, old.pk}
    assert (found[run.pk].state, found[old.pk].state) == ("waiting", "closed")
    assert (found[run.pk].sample, found[old.pk].sample) == (sample, None)
    assert (found[run.pk].kind, found[run.pk].step) == ("disagreement", 3)
    flag(run, "So.", reason=APART)  # it is known under the same key from now on
    assert FlaggedAnswer.objects.filter(run=run).count() == 1
    flagged_judge(flagged=found[old.pk], value="bad", user=rita)  # without a sample
    assert run_verdicts(old)[0].flagged == found[old.pk]
    verdict_undo(project=project, user=rita)
    assert run_verdicts(old) == []
