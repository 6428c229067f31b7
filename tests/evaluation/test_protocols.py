"""Evaluations by different protocols are never on one axis, and the refusal shows the line."""

from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.registry import RunResult
from apps.evaluation.models import EvaluationProtocol, ProtocolUse
from apps.snapshots.screens.readiness import method_rows
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.protocols import (
    INSIDE,
    NOT_MEASURED,
    OUTSIDE,
    protocol_of,
    refusal_of,
    repeat_claim,
    repeat_figures,
)
from apps.training.selectors.results import run_results
from tests.evaluation.assessed import all_green, assessment_make, model_make, red
from tests.training.reports import report
from tests.web.world import metrics_add, run_make
from workers.contract import Finished, Opened
from workers.contract.protocol import Protocol, texts_sha256

TEMPLATE = "{{ bos }}\nuser: {{ text }}\nassistant:"
FIRST = Protocol(
    prompts=texts_sha256(["Why?"]),
    rendered={"policy": texts_sha256(["user: Why?"])},
    chat_template={"policy": TEMPLATE},
    system_prompt="",
    sampling={"temperature": 0.7, "seed": 3},
    engine={"policy": {"kind": "transformers", "version": "5.1.0"}},
    baseline={"sha256": "1" * 64},
    judge={"sha256": "2" * 64, "prompt": ""},
    reward={"source": {"type": "model"}, "sha256": "3" * 64},
    metric_code="4" * 64,
    statistics={"ties": 0.5, "margin": None, "alpha": 0.05},
)
WARMER = replace(FIRST, sampling={"temperature": 0.8, "seed": 3})
RESEEDED = replace(FIRST, sampling={"temperature": 0.7, "seed": 4})
# What was changed, and the line of the refusal: path, first value, second value.
PLANTED = {
    "temperature": (WARMER, ("sampling.temperature", "0.7", "0.8")),
    "template": (
        replace(FIRST, chat_template={"policy": TEMPLATE.replace("user:", "user;")}),
        ("chat_template.policy line 2", "user: {{ text }}", "user; {{ text }}"),
    ),
    "engine": (
        replace(FIRST, engine={"policy": {"kind": "transformers", "version": "5.2.0"}}),
        ("engine.policy.version", "5.1.0", "5.2.0"),
    ),
}
HERE = "/p/arguments"


def won(value: float) -> dict[str, Any]:
    return {"value": value, "low": value - 0.05, "high": value + 0.05, "n": 200}


def evaluated(
    project: Project,
    protocol: Protocol | None,
    value: float = 0.6,
    sigma: float | None = None,
    **more,
) -> Run:
    """A finished evaluation whose win rate by the judge is `value`."""
    summary: dict[str, Any] = {"judge": {"win_rate": won(value)}}
    if protocol is not None:
        summary["protocol"] = protocol.to_json()
    if sigma is not None:
        summary["repeats"] = {"count": 3, "figures": {"judge.win_rate": {"sigma": sigma}}}
    name = more.pop("name", f"evaluation at {value}")
    run = run_make(project, kind="evaluate", state="finished", summary=summary, name=name, **more)
    metrics_add(run, 1, [1], eval__win_rate=[value])
    return run


def compare(client: Client, *runs: Run) -> Any:
    return client.get(f"{HERE}/runs/compare/", {"run": [run.pk for run in runs]})


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_change_is_refused_with_that_very_line(
    project: Project, emil: User, signed_in, planted: str
) -> None:
    other, (path, mine, theirs) = PLANTED[planted]
    runs = evaluated(project, FIRST, 0.51), evaluated(project, other, 0.71)
    page = compare(signed_in(emil), *runs)
    (pair,) = page.context["refusal"].pairs
    (line,) = pair.lines
    assert (line.path, str(line.one), str(line.other)) == (path, mine, theirs)
    text = page.content.decode()
    for words in (path, mine.replace("'", "&#x27;"), theirs):
        assert words in text
    assert "0.510" not in text
    assert "0.710" not in text
    assert page.context["sources"] == [], "and no curve of them is drawn"
    assert {cell.text for row in page.context["metrics"] for cell in row.cells} <= {"—"}


def test_one_protocol_stands_on_one_axis(project: Project, emil: User, signed_in) -> None:
    runs = evaluated(project, FIRST, 0.51), evaluated(project, FIRST, 0.71)
    page = compare(signed_in(emil), *runs)
    assert page.context["refusal"] is None
    (row,) = [row for row in page.context["metrics"] if row.name == "Win rate, by the judge"]
    assert [cell.text for cell in row.cells] == ["0.510", "0.710"]
    assert len(page.context["sources"]) == 2


def test_the_same_system_twice_is_no_claim(project: Project, emil: User, signed_in) -> None:
    runs = [evaluated(project, FIRST, value, sigma=0.02) for value in (0.60, 0.63)]
    text = compare(signed_in(emil), *runs).content.decode()
    assert INSIDE in text
    assert OUTSIDE not in text


def test_what_may_be_claimed_depends_on_the_larger_spread(project: Project) -> None:
    def claim(one: tuple[float, float | None], other: tuple[float, float | None]) -> str:
        figures = [
            repeat_figures(evaluated(project, FIRST, value, sigma))["judge.win_rate"]
            for value, sigma in (one, other)
        ]
        return repeat_claim(*figures)

    assert claim((0.60, 0.01), (0.70, 0.01)).startswith(OUTSIDE)
    assert claim((0.60, 0.01), (0.62, 0.01)).startswith(INSIDE), "0.02 < 0.028"
    assert claim((0.60, 0.001), (0.70, 0.05)).startswith(INSIDE), "0.1 < 0.141"
    assert claim((0.60, None), (0.70, None)) == NOT_MEASURED
    assert claim((0.60, None), (0.60, None)) == INSIDE


def test_an_evaluation_without_a_protocol_is_compared_with_nothing(
    project: Project, emil: User, signed_in
) -> None:
    old, new = evaluated(project, None, 0.51), evaluated(project, FIRST, 0.71)
    page = compare(signed_in(emil), old, new)
    assert page.context["refusal"].without == [old]
    assert "before protocols were kept" in page.content.decode()
    assert compare(signed_in(emil), old).context["refusal"] is None, "alone it is shown"
    tab = signed_in(emil).get(f"{HERE}/runs/{old.pk}/protocol/").content.decode()
    assert "evaluated before protocols were kept" in tab


def test_a_forged_hash_is_no_protocol(project: Project) -> None:
    run = evaluated(project, FIRST)
    run.summary["protocol"]["content"]["sampling"]["temperature"] = 0.1
    assert protocol_of(run) is None
    assert refusal_of([run, evaluated(project, FIRST)]).without == [run]


def test_other_kinds_are_none_of_its_business(project: Project) -> None:
    ppo = run_make(project, kind="ppo", state="finished")
    live = run_make(project, kind="evaluate")
    assert refusal_of([ppo, live, evaluated(project, FIRST)]) is None


def test_evaluations_of_policies_and_of_reward_models_are_asked_about_apart(
    project: Project, emil: User, signed_in
) -> None:
    policy = evaluated(project, FIRST)
    one, other = (
        run_make(project, kind="assess", state="finished", summary={"protocol": p.to_json()})
        for p in (WARMER, RESEEDED)
    )
    assert refusal_of([policy, one]) is None, "they share no figure"
    (pair,) = refusal_of([policy, one, other]).pairs
    assert (pair.one, pair.other) == (one, other)
    assert "?tab=protocol" in signed_in(emil).get(f"{HERE}/runs/{one.pk}/").content.decode()


def test_curves_of_another_protocol_are_not_drawn_behind_a_run(
    project: Project, emil: User, signed_in
) -> None:
    run, same, other = (evaluated(project, one) for one in (FIRST, FIRST, WARMER))
    client = signed_in(emil)
    query = {"tab": "charts", "with": [same.pk, other.pk]}
    page = client.get(f"{HERE}/runs/{run.pk}/", query)
    assert page.context["references"].chosen == [same]
    assert "sampling.temperature is 0.7 and 0.8" in page.context["references"].problem
    band = client.get(f"{HERE}/runs/{run.pk}/band.json", {"with": [same.pk, other.pk]})
    assert band.json()["runs"] == 1


def test_a_group_may_differ_in_its_seed_and_in_nothing_else(
    project: Project, emil: User, signed_in
) -> None:
    client = signed_in(emil)
    for seed, protocol in ((3, FIRST), (4, RESEEDED)):
        evaluated(project, protocol, seed=seed, group="seeds")
    page = client.get(f"{HERE}/runs/groups/seeds/")
    assert page.context["refusal"] is None
    assert page.context["metrics"]
    evaluated(project, WARMER, seed=5, group="seeds")
    page = client.get(f"{HERE}/runs/groups/seeds/")
    assert page.context["metrics"] == []
    assert "sampling.temperature" in page.content.decode()
    assert client.get(f"{HERE}/runs/groups/seeds/seeds.csv").status_code == 409


def test_the_table_of_runs_sorts_by_figures_of_one_protocol(
    project: Project, emil: User, signed_in
) -> None:
    low, high = (evaluated(project, FIRST, value) for value in (0.3, 0.6))
    other = evaluated(project, WARMER, 0.9)
    newest = evaluated(project, FIRST, 0.5)
    query = {"columns": "metric:eval/win_rate", "sort": "-metric:eval/win_rate"}
    page = signed_in(emil).get(f"{HERE}/runs/", query)
    shown = [(row["run"].pk, row["cells"]) for row in page.context["rows"]]
    assert [pk for pk, _ in shown] == [high.pk, newest.pk, low.pk, other.pk]
    assert dict(shown)[other.pk] == ["another protocol"]
    assert "measured by another protocol" in page.content.decode()


def test_methods_are_compared_under_one_protocol(project: Project) -> None:
    def policy(kind: str, protocol: Protocol | None, value: float) -> None:
        run = run_make(project, kind=kind, state="finished", name=kind)
        saved = Checkpoint.objects.create(
            project=project, run=run, attempt=1, step=5, uri="x", sha256="0" * 64
        )
        judged = evaluated(project, protocol, value)
        RunInput.objects.create(run=judged, role="policy", checkpoint=saved)

    policy("dpo", WARMER, 0.8)
    policy("grpo", None, 0.7)
    rows = {row.method: row.win_rate for row in method_rows(run_results(project))}
    assert rows["GRPO"].startswith("not comparable: evaluated before")
    assert rows["DPO"].startswith("80.0 %")
    policy("ppo", FIRST, 0.6)
    rows = {row.method: row.win_rate for row in method_rows(run_results(project))}
    assert rows["PPO"].startswith("60.0 %")
    assert rows["DPO"] == "not comparable: sampling.temperature is 0.8, not 0.7"


def test_one_method_alone_shows_what_was_measured(project: Project) -> None:
    alone = RunResult(
        run="x",
        method="ppo",
        method_words="PPO",
        name="x",
        url="/x/",
        ended_at=run_make(project, state="finished").ended_at,
        seconds=None,
        splits={},
        win_rate=won(0.6),
    )
    assert method_rows([alone])[0].win_rate.startswith("60.0 %")


@pytest.fixture
def ended(project: Project) -> list[Run]:
    """Three evaluations that ended as runs do: two by one protocol, one by another."""
    runs = []
    for protocol in (FIRST, FIRST, WARMER):
        run = run_make(project, kind="evaluate", state="running", started_at=None)
        summary = {"judge": {"win_rate": won(0.6)}, "protocol": protocol.to_json()}
        report(run, Opened(), Finished(step=1, summary=summary))
        runs.append(run)
    return runs


def test_a_protocol_is_kept_when_the_run_ends(ended: list[Run], project: Project) -> None:
    rows = EvaluationProtocol.objects.filter(project=project)
    assert {row.sha256: row.content for row in rows} == {
        FIRST.sha256: FIRST.content,
        WARMER.sha256: WARMER.content,
    }
    uses = dict(ProtocolUse.objects.values_list("run_id", "protocol__sha256"))
    assert uses == {
        ended[0].pk: FIRST.sha256,
        ended[1].pk: FIRST.sha256,
        ended[2].pk: WARMER.sha256,
    }


def test_a_protocol_has_one_row_in_a_project(ended: list[Run], project: Project) -> None:
    with pytest.raises(IntegrityError, match="once_per_project"), transaction.atomic():
        EvaluationProtocol.objects.create(project=project, sha256=FIRST.sha256, content={})
    with pytest.raises(IntegrityError, match="has_hash"), transaction.atomic():
        EvaluationProtocol.objects.create(project=project, sha256="none", content={})


def test_the_pages_show_one_and_what_differs_between_two(
    ended: list[Run], emil: User, signed_in
) -> None:
    client = signed_in(emil)
    listed = client.get(f"{HERE}/protocols/").content.decode()
    assert FIRST.sha256[:12] in listed
    page = client.get(f"{HERE}/protocols/{FIRST.sha256}/")
    assert set(page.context["runs"]) == set(ended[:2])
    assert "&quot;temperature&quot;: 0.7" in page.content.decode()
    sent = client.get(f"{HERE}/protocols/{FIRST.sha256[:12]}/", {"against": WARMER.sha256})
    diff = client.get(sent.url)
    (line,) = diff.context["differences"]
    assert line.path == "sampling.temperature"
    tab = client.get(f"{HERE}/runs/{ended[0].pk}/protocol/", headers={"HX-Request": "true"})
    assert f"/protocols/{FIRST.sha256}/" in tab.content.decode()
    assert "<html" not in tab.content.decode()
    assert "Protocol</a>" in client.get(f"{HERE}/runs/{ended[0].pk}/").content.decode()


def test_an_outsider_sees_no_protocol(ended: list[Run], olga: User, signed_in) -> None:
    assert signed_in(olga).get(f"{HERE}/protocols/{FIRST.sha256}/").status_code == 404


def test_the_api_has_both(ended: list[Run], emil: User, signed_in) -> None:
    client, base = signed_in(emil), "/api/v1/projects/arguments/evaluation-protocols"
    page = client.get(base).json()
    assert page["count"] == 2
    assert {row["sha256"]: row["n_runs"] for row in page["items"]} == {
        FIRST.sha256: 2,
        WARMER.sha256: 1,
    }
    one = client.get(f"{base}/{FIRST.sha256}").json()
    assert one["content"] == FIRST.content
    assert set(one["runs"]) == {ended[0].pk, ended[1].pk}
    diff = client.get(f"{base}/{FIRST.sha256}/differences/{WARMER.sha256}").json()
    line = {"path": "sampling.temperature", "one": 0.7, "other": 0.8}
    assert (diff["same"], diff["differences"]) == (False, [line])
    same = client.get(f"{base}/{FIRST.sha256}/differences/{FIRST.sha256}").json()
    assert (same["same"], same["differences"]) == (True, [])
    assert client.get(f"{base}/{'0' * 64}").status_code == 404


def test_the_best_of_several_candidates_says_how_much_of_it_is_luck(
    project: Project, emil: User, signed_in
) -> None:
    runs = []
    for i, value in enumerate((0.52, 0.61, 0.55, 0.50, 0.58)):
        policy = run_make(project, kind="ppo", state="finished", name=f"policy {i}")
        saved = Checkpoint.objects.create(
            project=project, run=policy, attempt=1, step=5, uri=f"x{i}", sha256=str(i) * 64
        )
        run = evaluated(project, FIRST, value)
        RunInput.objects.create(run=run, role="policy", checkpoint=saved)
        runs.append(run)
    client = signed_in(emil)
    best = client.get(f"{HERE}/runs/{runs[1].pk}/")
    assert best.context["best_of"].n == 5
    assert best.context["best_of"].inflation == pytest.approx(1.163, abs=1e-3)
    error = 0.1 / (2 * 1.96)
    assert best.context["best_of"].amount == pytest.approx(1.163 * error, abs=1e-4)
    text = best.content.decode()
    assert "Best of 5 candidates" in text
    assert "1.16 standard errors" in text
    assert client.get(f"{HERE}/runs/{runs[0].pk}/").context["best_of"] is None
    assert client.get(f"/api/v1/projects/arguments/runs/{runs[1].pk}").json()["best_of"]["n"] == 5


def test_beside_what_a_judge_says_stands_whether_people_agree_with_it(
    project: Project, emil: User, signed_in, settings, tmp_path
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path)
    judge = model_make(project)
    run = evaluated(project, FIRST)
    RunInput.objects.create(run=run, role="judge", checkpoint=judge)
    client, page = signed_in(emil), f"{HERE}/runs/{run.pk}/"
    api = f"/api/v1/projects/{project.slug}/runs/{run.pk}"
    text = client.get(page).content.decode()
    assert "Nobody has measured whether people agree with this judge" in text
    assert client.get(api).json()["judge"]["assessed"] is False
    assessment_make(judge, all_green(red("length_taste")))
    text = client.get(page).content.decode()
    assert "Nobody has measured" not in text
    told = client.get(api).json()["judge"]
    assert (told["model"], told["assessed"]) == (judge.pk, True)
    verdicts = {line["line"]: line["verdict"] for line in told["lines"]}
    assert (verdicts["accuracy"], verdicts["length_taste"]) == ("green", "red")
    for line in told["lines"]:
        assert line["title"] in text
    alone = evaluated(project, FIRST)
    assert client.get(f"/api/v1/projects/{project.slug}/runs/{alone.pk}").json()["judge"] is None
