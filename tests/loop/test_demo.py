"""The demo workspace on a slice of its data: built once, after any number of kills."""

import json
import stat
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Vote
from apps.labeling.services import slot_lease_next
from apps.loop import demo, report
from apps.loop.demo import PEOPLE, demo_build, sign_ins_path, stage_seconds
from apps.loop.report import table_lines
from apps.snapshots.models import Snapshot
from apps.training.models import Run
from apps.training.services import metrics_store
from measures.splits import overlap_containment

pytestmark = [pytest.mark.django_db, pytest.mark.spread]


@pytest.fixture(autouse=True)
def _own_var(settings, tmp_path) -> None:
    settings.VAR_DIR = tmp_path
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def _slice(monkeypatch) -> None:
    """Every sixth pair: 367 of them with their 1,830 votes, all debates and stances among them."""
    rows = demo.comparison_rows()[::6]
    kept = {row["id"] for row in rows}
    votes = [vote for vote in demo.vote_rows() if vote["comparison"] in kept]
    monkeypatch.setattr(demo, "comparison_rows", lambda: rows)
    monkeypatch.setattr(demo, "vote_rows", lambda: votes)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.mark.usefixtures("_slice")
def test_the_build_goes_on_where_it_was_killed(said: list[str], monkeypatch) -> None:
    def die(**kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(demo, "snapshot_freeze", die)
        with pytest.raises(KeyboardInterrupt):
            demo_build(say=said.append)
    n_votes = Vote.objects.count()
    assert n_votes == len(demo.vote_rows())
    stuck = Snapshot.objects.create(
        project=Project.objects.get(), name="Argument preferences", kind="preferences"
    )

    first = demo_build(say=said.append)
    assert Vote.objects.count() == n_votes
    assert Comparison.objects.count() == len(demo.comparison_rows())
    stuck.refresh_from_db()
    assert stuck.state == "failed"
    assert len(first.runs) == 8
    assert set(stage_seconds(first.project)) == {"import", "votes", "agreement", "datasets"}

    counts = (Snapshot.objects.count(), Run.objects.count(), User.objects.count())
    second = demo_build(say=said.append)
    assert (Snapshot.objects.count(), Run.objects.count(), User.objects.count()) == counts
    assert second.data == first.data

    _people_can_sign_in(first.project)
    _the_judge_is_independent(first)
    _the_report_says_what_the_runs_said(first)


def _people_can_sign_in(project: Project) -> None:
    rows = json.loads(sign_ins_path().read_text())
    assert [row["role"] for row in rows] == ["annotator", "reviewer", "engineer", "admin"]
    assert stat.S_IMODE(sign_ins_path().stat().st_mode) == 0o600
    for row in rows:
        assert Client().login(username=row["username"], password=row["password"])
        member = Membership.objects.get(project=project, user__username=row["username"])
        assert member.role == row["role"]
    assert len({row["password"] for row in rows}) == len(PEOPLE)


def _the_judge_is_independent(workspace: demo.Workspace) -> None:
    main, judge = workspace.data.preferences, workspace.data.judge_preferences
    assert main.recipe["heldout_groups"] == ["ban-plastic-water-bottles"]
    assert judge.counts["groups"]["train"] == 1
    assert judge.recipe["filters"]["without_annotators_of"] == [main.pk]


def _the_report_says_what_the_runs_said(workspace: demo.Workspace) -> None:
    run = workspace.runs["ppo"]
    curve = [(1, 0.0), (2, 0.5), (3, 1.25)]
    metrics_store(run=run, attempt=1, series={"objective/kl": curve})
    Run.objects.filter(pk=workspace.runs["evaluate"].pk).update(
        summary={"judge": {"win_rate": {"value": 0.625, "low": 0.5, "high": 0.75}}}
    )
    Run.objects.filter(pk=workspace.runs["assess"].pk).update(
        summary={"green": 1, "red": 1, "unmeasured": 0, "lines": {"accuracy": "red"}}
    )
    made = json.loads(json.dumps(report.report_make(workspace)))
    assert made["import"]["votes"] == len(demo.vote_rows())
    assert made["runs"]["ppo"]["curves"]["objective/kl"] == {
        "points": 3,
        "first": {"step": 1, "value": 0.0},
        "last": {"step": 3, "value": 1.25},
    }
    assert made["datasets"]["independence"]["shared"] == {
        "annotators": 0,
        "groups": 0,
        "arguments": 0,
    }
    assert made["datasets"]["prompt_overlap"]["containment"] == 0.0
    assert made["agreement"]["percent"]["value"] == pytest.approx(0.56, abs=0.04)
    text = "\n".join(table_lines(made))
    assert "62.5 % (50 to 75)" in text
    assert "PPO held-out" in text
    assert "1 green, 1 red, 0" in text


@pytest.mark.usefixtures("_slice")
@pytest.mark.usefixtures("_slice")
def test_nobody_takes_the_room_of_a_vote_that_is_on_its_way_in(
    said: list[str], monkeypatch
) -> None:
    def as_ana() -> object:
        project = Project.objects.get(slug=demo.SLUG)
        return slot_lease_next(project=project, annotator=User.objects.get(username="ana"))

    met: list[object] = []
    original = demo.votes_import

    def replay(**kwargs: Any) -> object:
        met.append(as_ana())
        return original(**kwargs)

    monkeypatch.setattr(demo, "votes_import", replay)
    demo_build(say=said.append)
    assert {reason.code for reason in met} == {"paused"}
    assert getattr(as_ana(), "code", "") != "paused"


def test_a_lost_password_file_is_written_anew(said: list[str]) -> None:
    people = demo._people(said.append)
    before = sign_ins_path().read_text()
    assert demo._people(said.append) == people
    assert sign_ins_path().read_text() == before
    sign_ins_path().unlink()
    demo._people(said.append)
    (row,) = [r for r in json.loads(sign_ins_path().read_text()) if r["username"] == "ana"]
    assert row["password"] not in before
    assert Client().login(username="ana", password=row["password"])
    assert AuditEvent.objects.filter(action="demo.person").count() == len(PEOPLE)


def test_somebody_elses_ana_is_left_alone(said: list[str]) -> None:
    User.objects.create_user("ana", password="her-own-password")
    with pytest.raises(DomainError, match="ana"):
        demo_build(say=said.append)
    assert Client().login(username="ana", password="her-own-password")
    assert not Project.objects.exists()


def test_the_demos_prompts_are_in_no_demonstration() -> None:
    asked = [row["prompt"] for row in demo.prompt_rows()]
    assert len(set(asked)) == 32
    shown = [row["prompt"] for row in demo.demonstration_rows()]
    assert overlap_containment(shown, asked).n_both == 0


def test_the_demos_texts_name_their_licence() -> None:
    rows = [*demo.prompt_rows(), *demo.demonstration_rows(), *demo.comparison_rows()]
    assert {row["licence"] for row in rows} == {"CC-BY-4.0", "MIT", "Apache-2.0"}
