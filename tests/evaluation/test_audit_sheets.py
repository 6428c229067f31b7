"""Blind audit sheets: drawn once, judged blind, and a bound that is exact."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.agreement.services.reports import report_refresh
from apps.common.errors import Conflict, DomainError, Refused
from apps.common.numbers import share_up
from apps.common.registry import run_uses
from apps.evaluation.models import AuditSheet, SheetItem, Verdict
from apps.evaluation.screens.verdicts import headline
from apps.evaluation.selectors.sheet_sources import sheet_source
from apps.evaluation.selectors.sheets import audit_of, progress_of, result_of
from apps.evaluation.services.sheets import (
    draw,
    item_judge,
    item_next,
    item_undo,
    sheet_finish,
    sheet_make,
    sheet_withdraw,
)
from apps.labeling.models import Answer, Comparison
from apps.snapshots.selectors.snapshots import recipe_default
from apps.snapshots.services.freezing import snapshot_preview
from apps.training.models import Checkpoint, Run
from measures.answer_audit import judged
from tests.evaluation.audited import evaluation_make, file_add, ids, judge_all, sample_make
from tests.evaluation.outputs import checkpoint_make, output
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.web.world import run_make

SHEETS = "/p/arguments/audit-sheets/"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def evaluation(project: Project, emil: User) -> Run:
    return evaluation_make(project, by=emil)


@pytest.fixture
def sheet(project: Project, evaluation: Run, emil: User) -> AuditSheet:
    return sheet_make(project=project, run=evaluation, user=emil, seed=3)


# What is drawn.


def test_a_sheet_mixes_random_high_and_low_answers_with_the_baselines(sheet: AuditSheet) -> None:
    assert len(ids(sheet, "policy", "random")) == 60
    assert len(ids(sheet, "policy", "high")) == len(ids(sheet, "policy", "low")) == 10
    assert len(ids(sheet, "baseline", "random")) == 20
    items = list(sheet.items.all())
    assert [item.place for item in items] == list(range(1, 101))
    random = {item.reward for item in items if (item.source, item.stratum) == ("policy", "random")}
    left = sorted(set(map(float, range(100))) - random)
    high = {item.reward for item in items if item.stratum == "high"}
    low = {item.reward for item in items if item.stratum == "low"}
    assert high == set(left[-10:])
    assert low == set(left[:10])
    assert sheet.high_reward == pytest.approx(0.9 * 99)
    # A random answer of the baseline carries the baseline's reward.
    assert {item.reward for item in items if item.source == "baseline"} <= {
        float(number - 1) for number in range(100)
    }


def test_the_seed_draws_answers_and_order_and_another_one_others(evaluation: Run) -> None:
    source = sheet_source(evaluation)
    sizes = {"n_random": 30, "n_extreme": 5, "n_baseline": 10}

    def texts(seed: int) -> list[str]:
        return [one.response for one in draw(source, seed=seed, **sizes)]

    assert texts(1) == texts(1)
    assert set(texts(1)) != set(texts(2))


def test_the_order_tells_nothing_of_the_source(evaluation: Run) -> None:
    """Over many seeds the baseline's answers stand in the middle of the sheet on average."""
    source = sheet_source(evaluation)
    places = [
        place
        for seed in range(200)
        for place, one in enumerate(
            draw(source, seed=seed, n_random=20, n_extreme=5, n_baseline=10), start=1
        )
        if one.source == "baseline"
    ]
    # 40 places: mean 20.5, standard error 11.5 / √2000 = 0.26
    assert sum(places) / len(places) == pytest.approx(20.5, abs=1.2)


def test_several_draws_of_a_prompt_are_one_answer(project: Project, emil: User) -> None:
    same = [output(n % 5, float(n), response=f"Draw {n}.") for n in range(20)]
    source = sheet_source(evaluation_make(project, lines=same))
    assert [one.response for one in source.answers] == [f"Draw {n}." for n in range(5)]


def test_few_answers_make_a_small_sheet_and_none_is_on_it_twice(project: Project, emil: User):
    run = evaluation_make(project, 12)
    made = sheet_make(project=project, run=run, user=emil, n_random=8, n_baseline=30)
    policy = [item.response for item in made.items.filter(source="policy")]
    assert len(policy) == len(set(policy)) == 12
    assert made.items.filter(source="baseline").count() == 12


def test_a_ppo_runs_own_file_keeps_its_buckets(project: Project, emil: User) -> None:
    run = checkpoint_make(project, kind="ppo").run
    rows = [
        {"bucket": bucket, "prompt": output(n, 0.0)["prompt"], "response": f"{bucket} {n}"}
        | {"reward": float(n), "baseline": f"Other {n}.", "baseline_reward": 0.0}
        for n, bucket in enumerate(["high"] * 3 + ["low"] * 3 + ["random"] * 3)
    ]
    file_add(run, "audit.jsonl", rows)
    made = sheet_make(project=project, run=run, user=emil, n_baseline=2)
    assert not made.is_whole  # the random ones lie between the extremes, and the page says so
    found = made.items.filter(source="policy").values_list("stratum", "response")
    assert all(response.startswith(stratum) for stratum, response in found)
    assert len(found) == 9


def test_a_dpo_run_gives_its_last_samples(project: Project, emil: User) -> None:
    run = checkpoint_make(project, kind="dpo").run
    for number in range(4):
        sample_make(run, number, step=5, reward=None)
    sample_make(run, 9, step=2)
    made = sheet_make(project=project, run=run, user=emil)
    assert made.items.filter(source="policy").count() == 4
    assert made.high_reward is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"kind": "reward", "state": "finished"}, "not_auditable"),
        ({"kind": "evaluate", "state": "running"}, "not_finished"),
        ({"kind": "evaluate", "state": "finished"}, "no_policy"),
    ],
)
def test_a_run_without_answers_of_a_policy_says_why(
    project: Project, emil: User, fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(DomainError) as refused:
        sheet_make(project=project, run=run_make(project, **fields), user=emil)
    assert (refused.value.code, refused.value.field) == (code, "run")


@pytest.mark.parametrize(
    "line", ["[1]", '{"prompt": []}', '{"prompt": "Why?", "response": 3}', "{"]
)
def test_a_damaged_file_names_its_line(project: Project, emil: User, line: str) -> None:
    run = evaluation_make(project, lines=[output(1, 1.0), line])
    with pytest.raises(DomainError, match=r"Line 2 of outputs\.jsonl") as refused:
        sheet_make(project=project, run=run, user=emil)
    assert refused.value.code == "bad_outputs"
    assert not AuditSheet.objects.exists()


@pytest.mark.parametrize("sizes", [{"n_random": 0}, {"n_random": 501}, {"people": 11}])
def test_sizes_have_limits(project: Project, evaluation: Run, emil: User, sizes: dict[str, int]):
    with pytest.raises(DomainError) as refused:
        sheet_make(project=project, run=evaluation, user=emil, **sizes)
    assert refused.value.field == next(iter(sizes))


def test_a_policy_has_one_open_sheet(sheet: AuditSheet, project: Project, emil: User) -> None:
    with pytest.raises(Conflict) as refused:
        sheet_make(project=project, run=sheet.run, user=emil)
    assert refused.value.code == "sheet_open"
    sheet_withdraw(sheet=sheet, user=emil, reason="the wrong evaluation")
    again = sheet_make(project=project, run=sheet.run, user=emil)
    assert {one.state for one in AuditSheet.objects.all()} == {"withdrawn", "open"}
    with pytest.raises(IntegrityError, match="audit_sheet_open_once"), transaction.atomic():
        AuditSheet.objects.filter(pk=sheet.pk).update(state="open", ended_at=None)
    assert again.pk != sheet.pk


# Judging.


def finished(sheet: AuditSheet, judge: User, bad: list[str] | None = None) -> AuditSheet:
    judge_all(sheet, judge, bad or [])
    return sheet_finish(sheet=sheet, user=judge)


def test_60_clean_answers_are_under_five_percent(sheet: AuditSheet, rita: User) -> None:
    result = result_of(finished(sheet, rita))
    assert (result.random.n, result.random.n_bad) == (60, 0)
    assert result.random.bad.high == pytest.approx(1 - 0.05 ** (1 / 60))
    assert headline(result.random, "policy").startswith(
        "No bad one in 60 random answers of the policy: under 5 %"
    )
    # 20 of the baseline say less.
    assert "in 20 random answers of the baseline: under 14 %" in headline(
        result.baseline, "baseline"
    )


def test_59_clean_and_one_bad_are_under_eight_percent(sheet: AuditSheet, rita: User) -> None:
    [bad, *_] = ids(sheet, "policy", "random")
    result = result_of(finished(sheet, rita, [bad]))
    assert (result.random.n, result.random.n_bad) == (60, 1)
    # (1 − p)^60 + 60 p (1 − p)^59 = 0.05 at p = 0.0766
    p = result.random.bad.high
    assert (1 - p) ** 60 + 60 * p * (1 - p) ** 59 == pytest.approx(0.05, abs=1e-9)
    assert "1 bad one in 60" in headline(result.random, "policy")
    assert "under 8 %" in headline(result.random, "policy")


def test_bad_answers_of_the_baseline_or_the_extremes_do_not_touch_the_bound(
    sheet: AuditSheet, rita: User
) -> None:
    bad = ids(sheet, "baseline", "random") + ids(sheet, "policy", "high")
    result = result_of(finished(sheet, rita, bad))
    assert result.random.n_bad == 0
    assert result.baseline.n_bad == 20
    assert (result.high.n_bad, result.low.n_bad) == (10, 0)


def test_what_the_reward_loves_and_people_do_not_is_listed(sheet: AuditSheet, rita: User) -> None:
    over = SheetItem.objects.filter(sheet=sheet, source="policy", reward__gt=sheet.high_reward)
    worst = over.order_by("-reward").first()
    cheap = ids(sheet, "policy", "low")[0]
    result = result_of(finished(sheet, rita, [worst.pk, cheap]))
    assert result.n_high == over.count()
    assert [(one.item.pk, one.worst) for one in result.loved] == [(worst.pk, "bad")]


def test_an_answer_that_several_judged_counts_once_by_the_worst(
    project: Project, evaluation: Run, emil: User, rita: User, ada: User
) -> None:
    made = sheet_make(
        project=project, run=evaluation, user=emil, n_extreme=0, n_baseline=0, people=2
    )
    one, other = ids(made, "policy", "random")[:2]
    assert judge_all(made, rita, [one]) == 60
    with pytest.raises(Conflict) as early:
        sheet_finish(sheet=made, user=rita)
    assert early.value.code == "not_judged"
    assert judge_all(made, ada, [one, other]) == 60
    result = result_of(sheet_finish(sheet=made, user=ada))
    assert (result.random.n, result.random.n_bad, result.people) == (60, 2, 2)
    assert (result.n_twice, result.split) == (60, 1)
    assert result.random.bad.high == judged([["bad"]] * 2 + [["fine"]] * 58).bad.high


def test_nothing_is_shown_before_every_answer_is_judged(
    sheet: AuditSheet, rita: User, emil: User, signed_in
) -> None:
    item_judge(item=item_next(sheet=sheet, user=rita), value="unsafe", user=rita)
    assert result_of(sheet) is None
    assert audit_of(sheet.checkpoint) is None
    page = signed_in(emil).get(f"{SHEETS}{sheet.pk}/").content.decode()
    assert "unsafe" not in page.split("<main")[1].split("</main>")[0].lower()
    answer = signed_in(emil).get(f"/api/v1/projects/arguments/audit-sheets/{sheet.pk}").json()
    assert (answer["result"], answer["judged_by"]) == (None, {"Rita": 1})


def test_whoever_trained_the_policy_does_not_judge_it(
    project: Project, ada: User, rita: User, signed_in
) -> None:
    run = evaluation_make(project, 5, by=ada)
    made = sheet_make(project=project, run=run, user=ada, n_random=3)
    with pytest.raises(Refused) as refused:
        item_next(sheet=made, user=ada)
    assert refused.value.code == "not_a_judge"
    page = signed_in(ada).get(f"{SHEETS}{made.pk}/").content.decode()
    assert "You started the run that trained this policy" in page
    assert signed_in(ada).get(f"{SHEETS}{made.pk}/judge/").status_code == 403
    assert item_next(sheet=made, user=rita) is not None


def test_a_verdict_is_taken_back_until_the_sheet_is_finished(sheet: AuditSheet, rita: User) -> None:
    first = item_next(sheet=sheet, user=rita)
    item_judge(item=first, value="bad", user=rita)
    assert item_undo(sheet=sheet, user=rita) == first
    assert item_next(sheet=sheet, user=rita) == first
    finished(sheet, rita)
    with pytest.raises(Conflict) as ended:
        item_undo(sheet=sheet, user=rita)
    assert ended.value.code == "sheet_ended"
    with pytest.raises(Conflict):
        item_judge(item=first, value="bad", user=rita)


def test_two_judges_are_not_given_the_same_answer(sheet: AuditSheet, rita: User, ada: User) -> None:
    first, second = item_next(sheet=sheet, user=rita), item_next(sheet=sheet, user=ada)
    assert first != second
    with pytest.raises(Conflict) as refused:
        item_judge(item=first, value="fine", user=ada)
    assert refused.value.code == "claimed"
    item_judge(item=first, value="fine", user=rita)
    with pytest.raises(Conflict) as late:
        item_judge(item=first, value="fine", user=ada)
    assert late.value.code == "judged_meanwhile"
    assert progress_of(sheet).people == (("Rita", 1),)


def test_a_reward_cannot_be_judged_on_a_blind_sheet(sheet: AuditSheet, rita: User) -> None:
    item = item_next(sheet=sheet, user=rita)
    for value in ("wrong_reward", "labeling", "withdrawn", ""):
        with pytest.raises(DomainError) as refused:
            item_judge(item=item, value=value, user=rita)
        assert refused.value.field == "value"
    with pytest.raises(IntegrityError, match="verdict_of_sheet_is_blind"), transaction.atomic():
        Verdict.objects.create(
            project=sheet.project, item=item, value="wrong_reward", by=rita, by_name="Rita"
        )


def test_the_newest_finished_sheet_of_a_policy_is_what_a_gate_reads(
    sheet: AuditSheet, project: Project, rita: User, emil: User
) -> None:
    policy: Checkpoint = sheet.checkpoint
    finished(sheet, rita, ids(sheet, "policy", "random")[:3])
    assert audit_of(policy).random.n_bad == 3
    later = sheet_make(project=project, run=sheet.run, user=emil, n_random=20)
    assert audit_of(policy).sheet == sheet  # one that is open says nothing
    finished(later, rita)
    assert audit_of(policy).sheet == later
    assert audit_of(checkpoint_make(project, kind="ppo")) is None
    actions = AuditEvent.objects.filter(subject=later.pk).values_list("action", flat=True)
    assert set(actions) == {"sheet.made", "sheet.finished"}


def test_a_long_and_repetitive_answer_that_the_reward_loves_stands_out(
    project: Project, emil: User, rita: User, signed_in
) -> None:
    lines = [output(number, float(number)) for number in range(19)]
    lines.append(output(19, 99.0, response="You are wonderful, truly. " * 20))
    run = evaluation_make(project, lines=lines)
    made = sheet_make(project=project, run=run, user=emil, n_random=5, n_extreme=3)
    [loved] = made.items.filter(response__startswith="You are").values_list("pk", flat=True)
    finished(made, rita, [loved])
    page = signed_in(emil).get(f"{SHEETS}{made.pk}/").content.decode()
    shown = page.split("What the reward loves and people do not")[1]
    # 80 words beside a median of 7, of which nearly all stood in it before
    assert '<span class="is-bad">of the baseline’s length <strong>11.4 ×</strong>' in shown
    assert re.search(r'<span class="is-bad">repeated <strong>9\d %', shown)


# Blindness.


def test_the_source_of_an_answer_is_nowhere_on_the_judges_page(
    sheet: AuditSheet, rita: User, signed_in
) -> None:
    client: Client = signed_in(rita)
    runs = list(Run.objects.filter(project=sheet.project))
    models = list(Checkpoint.objects.filter(project=sheet.project))
    shapes, seen = set(), set()
    for _ in range(sheet.items.count()):
        page = client.get(f"{SHEETS}{sheet.pk}/judge/").content.decode()
        text = page.split("<main")[1].split("</main>")[0]
        item = SheetItem.objects.get(pk=re.search(r"judge/(\w+)/", text)[1])
        seen.add(item.pk)
        shown = text
        for own in (item.pk, item.response, item.prompt[0]["content"]):
            assert own in shown
            shown = shown.replace(own, "…")
        shown = re.sub(r'value="\w{64}"', "", shown)  # the form's token
        shown = re.sub(r"You have judged \d+ of", "", shown)
        for secret in (
            *(run.pk for run in runs),
            *(run.name for run in runs),
            *(model.pk for model in models),
            *("baseline", "policy", "reward", "random", "stratum", "highest", "lowest", "SFT"),
            str(sheet.seed + 10**9),
        ):
            assert secret not in shown.replace("Which model", ""), secret
        shapes.add(
            re.sub(
                r"\s+",
                " ",
                re.sub(r'<form method="post" action="[^"]*undo.*?</form>', "", shown, flags=re.S),
            )
        )
        item_judge(item=item, value="fine", user=rita)
    assert len(seen) == 100
    assert len(shapes) == 1  # but for prompt and answer every page is the same
    answer = client.post(f"/api/v1/projects/arguments/audit-sheets/{sheet.pk}/undo").json()
    assert set(answer["item"]) == {"id", "prompt", "response"}


def test_ids_and_times_do_not_sort_by_source(sheet: AuditSheet) -> None:
    """Ids are drawn: in their order the sources alternate as in any other."""
    by_id = [item.source for item in sorted(sheet.items.all(), key=lambda item: item.pk)]
    runs = 1 + sum(one != other for one, other in pairwise(by_id))
    # 20 of 100: 33 runs expected, standard deviation 3.2; sorted by source there would be 2
    assert runs > 15
    assert len({len(item.pk) for item in sheet.items.all()}) == 1


# What verdicts of a sheet never touch.


def test_a_sheet_enters_no_dataset(project: Project, sheet: AuditSheet, rita: User) -> None:
    pairs_make(project, 3, overlap=1, least_votes=1, least_agreeing=1)
    [ana] = annotators_make(project, 1)
    for _ in range(3):
        vote(project, ana)
    recipe = recipe_default(project=project)
    before = snapshot_preview(project=project, recipe=recipe)
    finished(sheet, rita, ids(sheet, "policy", "random")[:5])
    after = snapshot_preview(project=project, recipe=recipe)
    assert after == before
    assert (Comparison.objects.count(), Answer.objects.count()) == (3, 3)


def test_a_sheet_enters_no_statistic_of_agreement(
    project: Project, sheet: AuditSheet, rita: User
) -> None:
    pairs_make(project, 4, overlap=2, least_votes=2, least_agreeing=2)
    people = annotators_make(project, 2)
    for person in people:
        for _ in range(4):
            vote(project, person)

    before = report_refresh(project=project).figures
    finished(sheet, rita, ids(sheet, "policy", "random")[:20])
    after = report_refresh(project=project).figures
    for figures in (before, after):
        figures.pop("seconds", None)
    assert after == before


# Pages.


def test_a_sheet_by_page_from_drawing_to_the_result(
    project: Project, evaluation: Run, emil: User, rita: User, signed_in
) -> None:
    client: Client = signed_in(emil)
    form = client.get(f"{SHEETS}new/").content.decode()
    assert "evaluation of the policy" in form
    sizes = {"n_random": 3, "n_extreme": 1, "n_baseline": 1, "people": 1}
    made = client.post(f"{SHEETS}new/", {"run": evaluation.pk, **sizes})
    assert made.status_code == 302
    again = client.post(f"{SHEETS}new/", {"run": evaluation.pk, **sizes})
    assert again.status_code == 422
    assert "A sheet of this policy is open" in again.content.decode()
    sheet = AuditSheet.objects.get()
    judge: Client = signed_in(rita)
    where = f"{SHEETS}{sheet.pk}/"
    text = judge.get(f"{where}judge/").content.decode()
    for _ in range(6):
        item = re.search(r"judge/(\w{10})/", text)[1]
        answer = judge.post(f"{where}judge/{item}/", {"value": "fine"}, HTTP_HX_REQUEST="true")
        text = answer.content.decode()
    assert "Every answer is judged" in text
    assert judge.post(f"{where}end/", {"action": "finish"}).status_code == 302
    page = client.get(where).content.decode()
    assert "No bad one in 3 random answers of the policy: under 64 %" in page
    assert "No bad one in 3" in client.get(SHEETS).content.decode()


def test_an_annotator_and_an_outsider_are_refused(
    sheet: AuditSheet, ana: User, olga: User, emil: User, signed_in
) -> None:
    item = sheet.items.first().pk
    for path in (SHEETS, f"{SHEETS}{sheet.pk}/", f"{SHEETS}{sheet.pk}/judge/"):
        assert signed_in(ana).get(path).status_code == 403, path
        assert signed_in(olga).get(path).status_code == 404, path
    api = f"/api/v1/projects/arguments/audit-sheets/{sheet.pk}/items/{item}/verdicts"
    for person, status in ((ana, 403), (emil, 403), (olga, 404)):
        sent = signed_in(person).post(api, {"value": "fine"}, content_type="application/json")
        assert sent.status_code == status
    # Another project's sheet is not found under one's own address.
    assert signed_in(olga).get(f"/p/elsewhere/audit-sheets/{sheet.pk}/").status_code == 404
    assert not Verdict.objects.exists()


def test_a_run_with_an_audit_sheet_is_not_deleted(sheet: AuditSheet) -> None:
    for run in (sheet.run, sheet.checkpoint.run):
        assert run_uses(run) == ["audit sheets are drawn from it (1)"]


def test_a_bound_is_never_rounded_down() -> None:
    shown = {0.0487: "5 %", 0.05: "5 %", 0.0501: "6 %", 0.00994: "1.0 %", 0.0034: "0.4 %"}
    assert {share: share_up(share) for share in shown} == shown
    assert share_up(1.0) == "100 %"
    assert share_up(None) == "—"
