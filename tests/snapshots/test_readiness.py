"""The page of advice, from the numbers that a project really has."""

import datetime as dt
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.agreement.services.reports import report_refresh
from apps.common.errors import DomainError
from apps.common.registry import run_results, vote_uses
from apps.labeling import services as labeling
from apps.labeling.models import Comparison, Prompt, Vote
from apps.snapshots import dispatch
from apps.snapshots.advice import Facts, Method, Rules, Task, advise
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors.lineage import vote_lineage
from apps.snapshots.services import freezing
from apps.snapshots.services.improvements import Demonstrations
from apps.snapshots.services.readiness import StatedForm, gather
from apps.snapshots.storage import names_in, read_rows
from apps.training.models import Checkpoint, Run, RunInput
from measures.splits import split_of
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.snapshots.conftest import revote

pytestmark = pytest.mark.django_db

PAGE = "/p/arguments/ready/"
WON = {"value": 0.8, "low": 0.75, "high": 0.85, "n": 300, "undefined": None, "no_interval": None}
GAIN = {"value": 0.2, "low": 0.1, "high": 0.3, "n": 300, "undefined": None, "no_interval": None}


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: True)


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison]) -> Snapshot:
    recipe = SnapshotRecipe(
        heldout_annotators=0.0, splits={"train": 0.8, "dev": 0.2}, seed="seed-2"
    )
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=None)


@pytest.fixture
def ritas(rita: User, signed_in) -> Client:
    return signed_in(rita)


def read(client: Client, **stated: object) -> str:
    answer = client.get(PAGE, stated)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def finished(project: Project, kind: str, minutes: int, **summary: object) -> Run:
    now = timezone.now()
    return Run.objects.create(
        project=project,
        name=f"a {kind} run",
        kind=kind,
        state="finished",
        started_at=now - dt.timedelta(minutes=minutes),
        ended_at=now,
        summary=summary,
    )


def test_an_empty_project_is_asked_for_everything(project: Project, ritas: Client) -> None:
    page = read(ritas)
    assert "Collect votes first" in page  # no comparison is decided: that much is known
    assert "0 pairs kept" in page
    assert "people agree" in page
    assert "No policy" in page


def test_facts_are_read_from_votes_datasets_and_runs(project: Project, frozen: Snapshot) -> None:
    report_refresh(project=project)
    finished(project, "reward", 5, splits={"train": {"accuracy": WON}, "dev": {"accuracy": WON, "difference": GAIN}})  # fmt: skip  # noqa: E501
    found = gather(project)
    facts = found.facts
    assert facts["agreement"].value == 1.0
    assert facts["agreement"].n == 72
    assert facts["pairs"] == frozen.counts["rows"]["train"]
    assert facts["prompts"] == frozen.counts["groups"]["train"]
    assert facts["annotators"] == frozen.counts["annotators"]["training"]
    assert facts["length_only"].value == 1.0  # the longer argument always wins in this crowd
    assert facts["length_only"].n == facts["pairs"]
    assert (facts["tie_share"].value, facts["tie_share"].n) == (0.0, 360)
    assert (facts["reward_accuracy"].low, facts["reward_gain"].low) == (0.75, 0.1)
    assert found.sources["reward_accuracy"].words.endswith("on dev")
    assert facts["demonstrations"] == 0
    assert "text_baseline" not in facts  # its report has no learning curve: too few pairs
    assert not found.sources["agreement"].stale


def test_the_words_alone_are_read_from_the_datasets_report(
    project: Project, frozen: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = {"label": "800", "x": 800, "value": 0.79, "low": 0.73, "high": 0.85, "n": 672, "why": ""}
    rows = [last | {"x": 100, "value": 0.6}, last]
    checks = [
        {"key": "size", "evidence": []},
        {"key": "growth", "evidence": [{"kind": "curve", "rows": rows}]},
    ]
    monkeypatch.setattr(
        "apps.snapshots.services.readiness.report_read", lambda *, snapshot: {"checks": checks}
    )
    found = gather(project).facts["text_baseline"]
    assert (found.value, found.low, found.high, found.n) == (0.79, 0.73, 0.85, 672)


def test_newer_votes_than_the_report_are_said(
    project: Project, crowd: list[Comparison], ritas: Client
) -> None:
    report_refresh(project=project)
    assert "Votes newer than" not in read(ritas)
    revote(crowd[0], ["a"] * 5)
    assert "Votes newer than" in read(ritas)


def test_random_votes_are_told_to_be_cleaned_first(
    project: Project, crowd: list[Comparison], ritas: Client
) -> None:
    coin = random.Random(7)
    for pair in crowd:
        revote(pair, [coin.choice("ab") for _ in range(5)])
    report_refresh(project=project)
    page = read(ritas, task="open")
    assert "Clean the data" in page
    assert "under 60 %" in page or "no better than" in page


def test_what_is_stated_lives_in_the_address(
    project: Project, frozen: Snapshot, ritas: Client
) -> None:
    report_refresh(project=project)
    page = read(ritas, task="open", rules="none", baseline="60", latency="50", exploration="no")
    assert "Start with DPO" in page
    assert "stated it: 50 ms" in page
    assert "Provisional" not in page
    assert 'value="50"' in page
    page = read(ritas, baseline="97.5")
    assert "Do not train" in page
    assert "97.5 %" in page
    assert "Use SFT" in read(ritas, task="factual")


@pytest.mark.parametrize(
    ("sent", "field"),
    [({"baseline": "140"}, "baseline"), ({"latency": "-1"}, "latency"), ({"task": "x"}, "task")],
)
def test_a_statement_that_is_none_is_marked_and_counts_as_unknown(
    sent: dict, field: str, project: Project, frozen: Snapshot, ritas: Client
) -> None:
    form = StatedForm(sent)
    assert form.stated() == {}
    assert field in form.errors
    assert "Provisional" in read(ritas, **sent)


def test_statements_become_facts() -> None:
    sent = {"task": "open", "rules": "some", "baseline": "60", "latency": "250"}
    assert StatedForm(sent | {"exploration": "yes"}).stated() == {
        "task": Task.OPEN,
        "rules": Rules.SOME,
        "baseline": 0.6,
        "latency_ms": 250.0,
        "exploration": True,
    }
    assert StatedForm({}).stated() == {}


def test_a_reward_model_that_passed_opens_the_way_to_ppo(
    project: Project, frozen: Snapshot
) -> None:
    report_refresh(project=project)
    finished(project, "reward", 5, splits={"dev": {"accuracy": WON, "difference": GAIN}})
    stated = {"task": Task.OPEN, "exploration": True}
    assert advise(Facts(**gather(project).facts, **stated)).method is Method.PPO
    worse = GAIN | {"low": -0.01}
    finished(project, "reward", 5, splits={"dev": {"accuracy": WON, "difference": worse}})
    assert advise(Facts(**gather(project).facts, **stated)).method is Method.DPO


def test_the_projects_own_methods_stand_in_a_table(
    project: Project, frozen: Snapshot, ritas: Client
) -> None:
    finished(project, "sft", 3)
    policy = finished(project, "ppo", 20)
    finished(project, "dpo", 10)
    saved = Checkpoint.objects.create(
        project=project, run=policy, attempt=1, step=5, uri="x", sha256="0" * 64
    )
    judged = finished(
        project, "evaluate", 1, judge={"win_rate": WON}, reward={"win_rate": WON | {"value": 0.99}}
    )
    RunInput.objects.create(run=judged, role="policy", checkpoint=saved)
    results = {result.method: result for result in run_results(project)}
    assert set(results) == {"sft", "dpo", "ppo"}
    assert results["ppo"].win_rate == WON  # never the opinion of the reward it was trained on
    assert results["ppo"].seconds == pytest.approx(1200, abs=1)
    page = read(ritas)
    assert "80.0 % (75.0–85.0 %, n = 300)" in page
    assert "not evaluated" in page
    assert "20 min" in page
    assert f"/runs/{policy.pk}/" not in page  # a reviewer does not open runs


def test_an_unfinished_run_is_no_result(project: Project) -> None:
    Run.objects.create(project=project, name="r", kind="reward", state="queued")
    assert run_results(project) == []


def test_the_rail_leads_readers_to_it(
    project: Project, ritas: Client, ana: User, signed_in
) -> None:
    assert f'href="{PAGE}"' in ritas.get("/p/arguments/datasets/").content.decode()
    assert signed_in(ana).get(PAGE).status_code == 403


# From an annotator's better answer on the label screen to a frozen demonstration.


N_PAIRS = 30  # by hash some of them are tested on


def better(number: int) -> str:
    return f"A day is **24 hours** long, version {number}."


@pytest.fixture
def improved(project: Project, ana: User) -> list[Vote]:
    """Ana improves every answer of hers but the last, which she leaves as it is."""
    pairs_make(
        project,
        N_PAIRS,
        show_improve=True,
        overlap=2,
        max_overlap=2,
        least_votes=2,
        least_agreeing=2,
    )
    cast = [vote(project, ana, "a", improvement=better(n)).vote for n in range(N_PAIRS - 1)]
    vote(project, ana, "a")
    return cast


def demonstrations(project: Project, by: User) -> Snapshot:
    """As a worker freezes them."""
    draft, _ = freezing.demonstrations_start(project=project, name="better", user=by)
    freezing.snapshot_run(snapshot=draft.pk)
    draft.refresh_from_db()
    return draft


def lines(snapshot: Snapshot) -> dict[str, list[dict]]:
    folder = Path(settings.ARTIFACTS_URL) / snapshot.uri
    return {name: list(read_rows(folder / f"{name}.jsonl")) for name in snapshot.counts["rows"]}


def test_improved_answers_become_demonstrations_that_name_their_vote(
    project: Project, ana: User, ada: User, improved: list[Vote]
) -> None:
    snapshot = demonstrations(project, ada)
    files = lines(snapshot)
    rows = [row for file in files.values() for row in file]
    assert (snapshot.kind, snapshot.state) == ("demonstrations", "frozen")
    assert sorted(row["messages"][-1]["content"] for row in rows) == sorted(
        better(n) for n in range(N_PAIRS - 1)
    )
    first = improved[0]
    row = next(row for row in rows if row["vote"] == str(first.pk))
    assert row["messages"] == [
        *first.comparison.prompt.messages,
        {"role": "assistant", "content": better(0)},
    ]
    assert row["annotator"] == names_in(snapshot.counts)(ana.pk) != f"person-{ana.pk}"
    assert "ana" not in json.dumps(rows)


def test_a_prompt_that_is_tested_on_is_in_no_training_row(
    project: Project, ada: User, improved: list[Vote]
) -> None:
    files = lines(demonstrations(project, ada))
    groups = {name: {row["group"] for row in rows} for name, rows in files.items()}
    assert len(groups) > 1
    assert not groups["train"] & set.union(*(groups[name] for name in groups if name != "train"))


def test_a_demonstration_leads_back_to_its_vote_which_says_that_it_is_frozen(
    project: Project, ada: User, improved: list[Vote]
) -> None:
    snapshot = demonstrations(project, ada)
    assert [row.snapshot for row in vote_lineage(improved[0]).rows] == [snapshot]
    plain = Vote.objects.exclude(pk__in=[v.pk for v in improved]).get()
    assert vote_uses([improved[0].pk, plain.pk]) == {improved[0].pk: 1}


def test_the_same_improvement_by_two_people_is_one_row_with_both_votes(
    project: Project, ada: User, ana: User
) -> None:
    pairs_make(project, 1, show_improve=True)
    (ben,) = annotators_make(project, 1)
    both = [vote(project, who, "a", improvement="The same.").vote for who in (ana, ben)]
    Prompt.objects.update(group_key=_trained_on())
    snapshot = demonstrations(project, ada)
    assert snapshot.counts["rows"] == {"train": 1}
    assert list(snapshot.counts["dropped"].values()) == [1]
    assert snapshot.rows.get().vote_ids == [v.pk for v in both]


def _trained_on() -> str:
    """A group that the default seed trains on."""
    recipe = SnapshotRecipe()
    return next(
        f"group-{n}"
        for n in range(100)
        if split_of(f"group-{n}", recipe.shares, recipe.seed) == "train"
    )


def test_a_changed_answer_takes_its_old_improvement_along_into_history(
    project: Project, ana: User, ada: User
) -> None:
    pairs_make(project, 1, show_improve=True)
    old = vote(project, ana, "a", improvement="First thought.").vote
    labeling.vote_revise(vote=old.pk, annotator=ana, idempotency_key="again", choice="tie")
    with pytest.raises(DomainError) as refused:
        freezing.demonstrations_start(project=project, name="none", user=ada)
    assert refused.value.code == "empty_snapshot"
    assert not Snapshot.objects.exists()


def test_ada_freezes_them_on_the_page_and_a_program_by_the_api(
    project: Project, ada: User, improved: list[Vote], signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    html = browser.get("/p/arguments/datasets/new/").content.decode()
    assert f"{N_PAIRS - 1} votes" in html
    nameless = browser.post("/p/arguments/datasets/new/", {"action": "demonstrations", "name": ""})
    assert nameless.status_code == 422
    sent = {"action": "demonstrations", "name": "by page"}
    assert browser.post("/p/arguments/datasets/new/", sent).status_code == 302
    answer = browser.post(
        "/api/v1/projects/arguments/snapshots",
        {"name": "by api", "kind": "demonstrations", "from_improvements": True},
        content_type="application/json",
    )
    assert answer.status_code == 202
    made = list(Snapshot.objects.order_by("name"))
    assert [(one.name, one.state) for one in made] == [("by api", "draft"), ("by page", "draft")]
    assert [freezing.snapshot_run(snapshot=one.pk) for one in made] == ["frozen", "frozen"]
    by_api, by_page = Snapshot.objects.order_by("name")
    assert by_api.sha256 == by_page.sha256 != ""


def test_demonstrations_that_were_not_frozen_are_tried_again_on_their_page(
    project: Project,
    ada: User,
    improved: list[Vote],
    signed_in: Callable[[User], Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft, _ = freezing.demonstrations_start(project=project, name="better", user=ada)
    with monkeypatch.context() as meanwhile:
        none = Demonstrations({}, {}, {}, "")
        meanwhile.setattr(freezing, "demonstrations_from", lambda **_: none)
        assert freezing.snapshot_run(snapshot=draft.pk) == "failed"
    browser, page = signed_in(ada), f"/p/arguments/datasets/{draft.pk}/"
    html = browser.get(page).content.decode()
    assert "No vote of the training split" in html
    assert "Retry with the same recipe" in html
    assert browser.post(page + "action/", {"action": "again"}).status_code == 302
    again = Snapshot.objects.exclude(pk=draft.pk).get()
    assert (again.kind, again.name, again.state) == ("demonstrations", "better", "draft")
    assert freezing.snapshot_run(snapshot=again.pk) == "frozen"
