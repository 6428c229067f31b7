"""The demo workspace on a slice of its data: built once, after any number of kills."""

import json
import stat
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Membership, Project, User
from apps.common.errors import DomainError
from apps.labeling.models import Comparison, Vote, WrittenText
from apps.labeling.services import slot_lease_next
from apps.loop import demo, report, row_files, selectors
from apps.loop.demo import PEOPLE, demo_build, sign_ins_path, stage_seconds
from apps.loop.report import markdown_lines, table_lines
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
from apps.training.services import metrics_store
from measures.splits import overlap_containment
from workers.contract.pretrained import ENCODER, MANIFEST, POLICY

pytestmark = [pytest.mark.django_db, pytest.mark.spread]


@pytest.fixture(autouse=True)
def _own_var(settings, tmp_path) -> None:
    settings.VAR_DIR = tmp_path
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def _slice(monkeypatch) -> None:
    """Every sixth pair: 367 of them with their 1,830 votes, all debates and stances among them."""
    _keep(monkeypatch, 6)


@pytest.fixture
def _few(monkeypatch) -> None:
    """Every sixtieth pair, for what reads no dataset of votes."""
    _keep(monkeypatch, 60)


def _keep(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    rows = demo.comparison_rows()[::every]
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
        project=Project.objects.get(slug=demo.SLUG), name="Argument preferences", kind="preferences"
    )

    first = demo_build(say=said.append)
    assert Vote.objects.count() == n_votes
    assert Comparison.objects.filter(project__slug=demo.SLUG).count() == len(demo.comparison_rows())
    stuck.refresh_from_db()
    assert stuck.state == "failed"
    assert len(first.runs) == 9
    asked = {
        stage: first.runs[stage].inputs.get(role="prompts").snapshot
        for stage in ("evaluate", "suite")
    }
    assert asked["evaluate"] == first.data.prompts
    assert asked["evaluate"].counts["rows"]["dev"] >= 48
    assert asked["suite"].name == "Regression suite"
    states = WrittenText.objects.order_by("pk").values_list("state", flat=True)
    assert list(states) == ["accepted", "accepted", "waiting", "rejected", "open"]
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
    assert "1 ok, 1 bad, 0" in text


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
    assert len(set(asked)) == 32 + 48
    shown = [row["prompt"] for row in demo.demonstration_rows()]
    assert overlap_containment(shown, asked).n_both == 0


def test_four_debates_are_held_out_by_name_and_the_judge_has_its_own() -> None:
    voted = {row["group"] for row in demo.comparison_rows()}
    assert voted == set(row_files.HELD_OUT_DEBATES)
    learned, judged = demo.reward_debates(), row_files.JUDGE_DEBATES
    assert (len(learned), len(judged)) == (6, 3)
    assert not set(learned) & {*judged, *voted}
    for train in (learned, judged):
        rows = demo.pair_rows(train)
        held_out = [row for row in rows if row["split"] == "heldout_groups"]
        assert {row["group"] for row in held_out} == voted
        assert {row["group"] for row in rows} - voted == set(train)
        assert len(held_out) == 1_875
        assert {row["gold"] for row in rows} == {"a", "b"}
    assert {row["group"] for row in demo.short_argument_rows()} <= set(learned)


def test_the_policy_is_compared_on_questions_without_an_argument() -> None:
    rows = demo.short_prompt_rows()
    asked = {row["prompt"] for row in rows if row["split"] == "dev"}
    assert len(asked) == 48
    assert not asked & {row["prompt"] for row in rows if row["split"] == "train"}
    shown = [row["prompt"] for row in demo.short_argument_rows()]
    assert overlap_containment(shown, sorted(asked)).n_both == 0


def test_without_models_the_circle_on_pretrained_ones_says_how_to_get_them(
    said: list[str],
) -> None:
    assert demo.pretrained_models() is None
    with pytest.raises(DomainError, match="make models"):
        demo_build(say=said.append, real=demo.FULL)
    assert not Project.objects.exists()


@pytest.mark.usefixtures("_few")
def test_with_models_the_circle_starts_from_them(said: list[str], settings) -> None:
    models = settings.VAR_DIR / "models"
    for name in (POLICY, ENCODER):
        (models / name).mkdir(parents=True)
        (models / name / "config.json").write_text("{}")
    (models / MANIFEST).write_text("{}")
    made = demo_build(say=said.append, real=demo.SMALL)
    assert made.runs["policy"].config == {"model": str(models / POLICY)}
    assert made.runs["encoder"].kind == "register_encoder"
    assert made.runs["judge"].config["head_only"] is True
    assert "head_only" not in made.runs["reward"].config
    reads = {
        (stage, row.role): row.upstream_id or row.snapshot.name
        for stage, run in made.runs.items()
        for row in run.inputs.select_related("snapshot")
    }
    assert reads["sft", "base"] == made.runs["policy"].pk
    assert reads["reward", "base"] == reads["judge", "base"] == made.runs["encoder"].pk
    assert reads["dpo", "data"] == "Published pairs of short arguments, small"
    assert reads["reward", "hard"] == "Arguments beside spoiled ones, small"
    row = next(artifact_store().lines(f"{made.data.preferences.uri}/train.jsonl"))
    assert row["votes"] == 0
    assert len(row["cluster_ids"]) == 2  # arguments recur: intervals are over them
    assert "cluster" not in row
    assert json.loads(row["metadata"])["votes"] in (4, 5)
    again = demo_build(say=said.append, real=demo.SMALL)
    assert again.data == made.data
    assert {s: r.pk for s, r in again.runs.items()} == {s: r.pk for s, r in made.runs.items()}
    figures = selectors.independence(
        preferences=made.data.preferences, judge=made.data.judge_preferences
    )
    assert figures.proved
    assert figures.shared == {"groups": 0, "arguments": 0}
    _the_report_can_be_read(made)


def _the_report_can_be_read(workspace: demo.Workspace) -> None:
    half = {"value": 0.5, "low": 0.4, "high": 0.6}
    Run.objects.filter(pk=workspace.runs["evaluate"].pk).update(
        summary={
            "prompts": 48,
            "judge": {"win_rate": half, "people_win_rate": half},
            "policy": {"response_length": 40.0, "ended_share": 0.5, "kl": 1.25},
        }
    )
    Run.objects.filter(pk=workspace.runs["reward"].pk).update(
        summary={"splits": {"heldout_groups": {"accuracy": half, "length_only": half}}}
    )
    made = json.loads(json.dumps(report.report_make(workspace)))
    assert set(made["debates"]["held_out"]) <= set(row_files.HELD_OUT_DEBATES)
    assert len(made["debates"]["held_out"]) >= 3  # 12 pairs need not be of all four
    assert "annotators" not in made["datasets"]["independence"]["shared"]
    text = "\n".join(markdown_lines(made))
    assert "| win rate, by the judge | 50 % (40 to 60) |" in text
    assert "| KL from SFT (nats per answer), PPO | 1.25 |" in text
    assert made["debates"]["held_out"][0] in text


def test_the_demos_texts_name_their_licence() -> None:
    rows = [*demo.prompt_rows(), *demo.demonstration_rows(), *demo.comparison_rows()]
    rows += [*demo.short_argument_rows(), *demo.short_prompt_rows()]
    rows += demo.pair_rows(demo.reward_debates())
    assert {row["licence"] for row in rows} == {"CC-BY-4.0", "MIT", "Apache-2.0"}


def test_spoiled_arguments_lose_by_their_making_and_not_by_length() -> None:
    rows = row_files.spoiled_rows(row_files.reward_debates(), most=120)

    assert {row["metadata"]["spoiled"] for row in rows} == {*row_files.SPOILED, *row_files.ABOUT}
    assert {row["group"] for row in rows}.isdisjoint(
        {*row_files.HELD_OUT_DEBATES, *row_files.JUDGE_DEBATES}
    )
    assert len({row["id"] for row in rows}) == len(rows) == 120
    for row in rows:
        won, lost = row[f"response_{row['gold']}"], row[f"response_{'ba'['ab'.index(row['gold'])]}"]
        assert won.split() != lost.split()
        if row["metadata"]["spoiled"] in ("filler", "stance_again", "one_sentence"):
            assert len(won.split()) <= len(lost.split()) <= 1.5 * len(won.split()) + 1
        elif row["metadata"]["spoiled"] == "shuffled":
            assert sorted(won.split()) == sorted(lost.split())
    assert row_files.spoiled_rows(row_files.reward_debates(), most=120) == rows
