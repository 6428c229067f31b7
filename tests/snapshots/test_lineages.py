"""Following votes by pages, in both directions, and the notices when they change later."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.models import Membership, Project, Role, User
from apps.common.registry import comparison_uses, vote_traces
from apps.labeling.models import Comparison, Response, Slot, Vote
from apps.labeling.services import vote_withdraw
from apps.snapshots.assembling.assembly import LITTLE_AGREEMENT
from apps.snapshots.assembling.rows import source_of
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors import lineage, snapshots
from apps.snapshots.selectors.comparing import Became, changed_counts, changed_votes, vote_states
from apps.snapshots.selectors.snapshots import RowsWanted, rows_of
from apps.snapshots.services import freezing
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.training.models import Checkpoint, Run, RunInput
from tests.database import as_superuser
from tests.snapshots.conftest import revote
from workers.data.snapshot import read_preferences

pytestmark = pytest.mark.django_db


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    """Pair 1 is left out: nobody agrees on it."""
    revote(crowd[1], ["a", "a", "b", "b", "tie"])
    recipe = SnapshotRecipe(
        heldout_annotators=0.0, splits={"train": 0.7, "dev": 0.3}, seed="seed-2"
    )
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


@pytest.fixture
def trained(project: Project, frozen: Snapshot) -> tuple[Run, Checkpoint, Run]:
    reward = run_make(project, "reward", data=frozen)
    saved = Checkpoint.objects.create(
        project=project, run=reward, attempt=1, step=5, uri="x", sha256="0" * 64, tags=["best"]
    )
    return reward, saved, run_make(project, "ppo", reward=saved)


@pytest.fixture
def ritas(rita: User, signed_in) -> Client:
    return signed_in(rita)


@pytest.fixture
def emils(emil: User, signed_in) -> Client:
    return signed_in(emil)


def read(client: Client, path: str, **sent: object) -> str:
    answer = client.get(f"/p/arguments/{path}", sent)
    assert answer.status_code == 200, path
    return " ".join(answer.content.decode().split())


def withdraw(vote: Vote) -> None:
    Vote.objects.filter(pk=vote.pk).update(is_current=False)


# --- votes changed later --------------------------------------------------------------------------


def test_nothing_is_said_while_every_vote_stands(frozen: Snapshot, emils: Client) -> None:
    assert changed_counts([frozen]) == {}
    assert "changed since" not in read(emils, f"datasets/{frozen.pk}/")
    assert "No vote behind" in read(emils, f"datasets/{frozen.pk}/lineage/")


def test_a_changed_a_withdrawn_and_a_former_vote_are_each_named(
    frozen: Snapshot, crowd: list[Comparison], emils: Client
) -> None:
    revote(crowd[0], ["a", "b", "b", "b", "b"])  # five revisions, one of them another answer
    gone = Vote.objects.filter(comparison=crowd[2]).first()
    withdraw(gone)
    former = Vote.objects.filter(comparison=crowd[3]).first()
    Slot.objects.filter(pk=former.slot_id).update(kind="former")
    found = {one.vote for one in changed_votes([frozen])}
    assert {gone.pk, former.pk} < found
    assert changed_counts([frozen]) == {frozen.pk: 7}
    states = vote_states(found)
    assert states[gone.pk].became is Became.TAKEN_BACK
    assert states[gone.pk].changed_at is None  # planted without the service, which records it
    assert states[former.pk].became is Became.EARLIER_ROUND
    revised = [state for state in states.values() if state.became is Became.CHANGED]
    assert [state.other_answer for state in revised].count(True) == 1
    assert "7 votes behind" in read(emils, f"datasets/{frozen.pk}/")
    page = read(emils, f"datasets/{frozen.pk}/lineage/")
    for words in ("changed to A is better", "the same answer", "taken back", "earlier round"):
        assert words in page


def test_a_vote_taken_back_says_when(frozen: Snapshot, crowd: list[Comparison]) -> None:
    vote = Vote.objects.filter(comparison=crowd[2]).first()
    Membership.objects.create(project=vote.project, user=vote.annotator, role=Role.ANNOTATOR)
    vote_withdraw(vote=vote.pk, annotator=vote.annotator)
    state = vote_states([vote.pk])[vote.pk]
    assert state.became is Became.TAKEN_BACK
    assert state.changed_at > vote.cast_at
    assert changed_counts([frozen]) == {frozen.pk: 1}


def test_votes_on_comparisons_that_were_left_out_do_not_count(
    frozen: Snapshot, crowd: list[Comparison]
) -> None:
    withdraw(Vote.objects.filter(comparison=crowd[1], is_current=True).first())
    assert changed_counts([frozen]) == {}


def test_runs_and_models_downstream_show_the_same_notice(
    frozen: Snapshot,
    trained: tuple[Run, Checkpoint, Run],
    crowd: list[Comparison],
    emils: Client,
) -> None:
    _, saved, policy = trained
    assert "votes behind" not in read(emils, f"runs/{policy.pk}/", tab="lineage")
    withdraw(Vote.objects.filter(comparison=crowd[2]).first())
    words = f'1 vote behind <a href="/p/arguments/datasets/{frozen.pk}/lineage/">pairs</a> was'
    assert words in read(emils, f"runs/{policy.pk}/", tab="lineage")
    assert words in read(emils, f"models/{saved.pk}/")


# --- forward: vote to checkpoint ------------------------------------------------------------------


def test_a_comparisons_page_names_the_datasets_and_runs_its_votes_went_into(
    frozen: Snapshot,
    trained: tuple[Run, Checkpoint, Run],
    crowd: list[Comparison],
    ritas: Client,
    emils: Client,
) -> None:
    page = read(emils, f"comparisons/{crowd[0].pk}/")
    assert f'<a href="/p/arguments/datasets/{frozen.pk}/">pairs</a>' in page
    assert f'<a href="/p/arguments/runs/{trained[0].pk}/">reward</a>' in page
    assert "read by reward" in read(ritas, f"comparisons/{crowd[0].pk}/")  # no way in for her
    assert f"/p/arguments/datasets/lineage/{crowd[0].pk}/" in page
    assert LITTLE_AGREEMENT in read(ritas, f"comparisons/{crowd[1].pk}/")


def test_a_vote_is_followed_to_the_models_that_stand_on_it(
    frozen: Snapshot,
    trained: tuple[Run, Checkpoint, Run],
    crowd: list[Comparison],
    emils: Client,
    ritas: Client,
) -> None:
    reward, saved, policy = trained
    page = read(emils, f"datasets/lineage/{crowd[0].pk}/")
    for address in (f"runs/{reward.pk}/", f"models/{saved.pk}/", f"runs/{policy.pk}/"):
        assert f'href="/p/arguments/{address}"' in page
    vote = Vote.objects.filter(comparison=crowd[0], is_current=True).first()
    followed = read(ritas, f"datasets/lineage/{crowd[0].pk}/", vote=vote.pk)
    assert f"Following vote {vote.pk} only" in followed
    assert "pairs" in followed


def test_a_vote_that_came_too_late_is_in_no_dataset(
    frozen: Snapshot, crowd: list[Comparison], ritas: Client
) -> None:
    revote(crowd[0], ["a"] * 5)
    late = Vote.objects.filter(comparison=crowd[0], is_current=True).first()
    page = read(ritas, f"datasets/lineage/{crowd[0].pk}/", vote=late.pk)
    assert "No dataset" in page
    assert "5 of these votes" in read(ritas, f"datasets/lineage/{crowd[0].pk}/")


def test_the_pages_ask_no_more_for_many_checkpoints(
    project: Project,
    frozen: Snapshot,
    trained: tuple[Run, Checkpoint, Run],
    crowd: list[Comparison],
    emils: Client,
    django_assert_max_num_queries,
) -> None:
    Checkpoint.objects.bulk_create(
        Checkpoint(
            project=project, run=trained[0], attempt=1, step=10 + k, uri="x", sha256=f"{k:064}"
        )
        for k in range(40)
    )
    for path in (f"comparisons/{crowd[0].pk}/", f"datasets/lineage/{crowd[0].pk}/"):
        read(emils, path)  # what waits for people is counted once a minute
        with django_assert_max_num_queries(30):
            read(emils, path)


def test_the_tree_of_what_was_made_ends_though_runs_meet_twice(
    project: Project, frozen: Snapshot, trained: tuple[Run, Checkpoint, Run]
) -> None:
    reward, saved, policy = trained
    RunInput.objects.create(run=policy, role="judge", checkpoint=saved)
    (made,) = lineage.made_from(frozen)
    assert (made.run, made.checkpoints) == (reward, (saved,))
    assert [(later.role, later.run) for later in made.later] == [
        ("reward", policy),
        ("judge", policy),
    ]
    assert made.later[1].later == ()


def test_readers_see_names_where_annotators_see_a_number(
    frozen: Snapshot, project: Project, crowd: list[Comparison], ana: User, rita: User, signed_in
) -> None:
    """Each of them owns a vote behind a training row."""
    votes = Vote.objects.filter(comparison__in=[crowd[0], crowd[2]], is_current=True)
    for person, pair in ((ana, crowd[0]), (rita, crowd[2])):
        old = votes.filter(comparison=pair).first()
        Vote.objects.filter(pk=old.pk).update(is_current=False)
        Slot.objects.filter(pk=old.slot_id).update(annotator=person)
        mine = Vote.objects.create(
            project=project,
            comparison=pair,
            slot=old.slot,
            annotator=person,
            choice=old.choice,
            chosen=old.chosen,
            idempotency_key=f"mine-{person.pk}",
            revision=2,
            supersedes=old,
            cast_at=old.cast_at,
        )
        again = SnapshotRecipe(heldout_annotators=0.0, splits={"train": 1.0})
    made = freezing.snapshot_freeze(project=project, name="second", recipe=again, user=None)
    assert [use.name for use in vote_traces([mine.pk])[mine.pk]] == ["second"]
    assert "second" not in read(signed_in(ana), "answers/")
    assert "in a frozen dataset" in read(signed_in(ana), "answers/")
    assert f'href="/p/arguments/datasets/{made.pk}/">second</a>' in read(
        signed_in(rita), "answers/"
    )
    assert "used in" in read(signed_in(rita), "label/", answer=mine.pk)
    own = Vote.objects.get(annotator=ana)
    page = read(signed_in(ana), "label/", answer=own.pk)
    assert "already in 1 frozen" in page
    assert "used in" not in page


# --- back: dataset to vote ------------------------------------------------------------------------


def test_rows_are_found_by_file_reason_winner_and_text(
    frozen: Snapshot, crowd: list[Comparison]
) -> None:
    def found(**wanted: object) -> set[int]:
        return {row.comparison_id for row in rows_of(frozen, RowsWanted(**wanted))}

    rows = dict(frozen.rows.values_list("comparison", "split"))
    assert found() == set(rows) == {pair.pk for pair in crowd}
    assert found(split="dev") == {pair for pair, split in rows.items() if split == "dev"}
    assert found(split="dropped") == found(reason="too little agreement") == {crowd[1].pk}
    assert found(search=f"#{crowd[5].pk}") >= {crowd[5].pk}
    assert found(search="debate 7.") == {
        pair.pk for pair in crowd if pair.prompt.group_key == "debate-07"
    }
    assert found(winner="a") == set()
    revote(crowd[4], ["a"] * 5)
    assert found(changed=True) == {crowd[4].pk}
    assert snapshots.drop_reasons(frozen) == [("too little agreement", 1)]


def test_a_filter_with_a_nul_finds_no_row(frozen: Snapshot) -> None:
    for name in ("split", "reason", "winner", "search"):
        assert not rows_of(frozen, RowsWanted(**{name: "a\x00"})).exists()


def test_each_row_leads_to_its_comparison_and_its_votes(
    frozen: Snapshot, crowd: list[Comparison], ritas: Client
) -> None:
    page = read(ritas, f"datasets/{frozen.pk}/rows/", split="dropped")
    assert f"/p/arguments/comparisons/{crowd[1].pk}/" in page
    assert f"/p/arguments/datasets/lineage/{crowd[1].pk}/" in page
    assert "1 row<" in page
    assert "No matching rows" in read(ritas, f"datasets/{frozen.pk}/rows/", q="nowhere at all")


def test_imported_rows_say_that_no_votes_stand_behind_them(project: Project, ritas: Client) -> None:
    made = snapshot_import(project=project, kind="prompts", name="asked", rows=[{"prompt": "Why?"}])
    assert "No comparisons behind" in read(ritas, f"datasets/{made.pk}/rows/")
    assert "Imported rows" in read(ritas, f"datasets/{made.pk}/lineage/")


def test_another_projects_comparison_leads_nowhere(
    crowd: list[Comparison], olga: User, signed_in, frozen: Snapshot
) -> None:
    client = signed_in(olga)
    for path in (
        f"datasets/lineage/{crowd[0].pk}/",
        f"datasets/{frozen.pk}/rows/",
        f"datasets/{frozen.pk}/lineage/",
        f"datasets/{frozen.pk}/export/",
        f"datasets/compare/?old={frozen.pk}&new={frozen.pk}",
    ):
        assert client.get(f"/p/elsewhere/{path}").status_code == 404, path
    assert comparison_uses(olga.memberships.get().project, crowd[0].pk) == []


def test_the_export_page_names_every_form_with_its_rows(
    frozen: Snapshot, emils: Client, ritas: Client
) -> None:
    page = read(emils, f"datasets/{frozen.pk}/export/")
    for title in ("as frozen", "plain strings", "implicit prompt", "KTO", "Soft", "Raw votes"):
        assert title in page
    sent = emils.get(
        f"/p/arguments/datasets/{frozen.pk}/export/file/",
        {"shape": "kto", "split": "train", "format": "jsonl"},
    )
    rows = b"".join(sent.streaming_content).splitlines()
    assert len(rows) == 2 * frozen.counts["rows"]["train"]
    assert ritas.get(f"/p/arguments/datasets/{frozen.pk}/export/").status_code == 403


def test_private_rows_are_not_looked_through(
    frozen: Snapshot, emil: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    row = frozen.rows.exclude(split="").order_by("pk").first()
    assert row is not None
    # past the trigger that keeps frozen rows: as if this one had fallen into the private test
    with as_superuser():
        frozen.rows.filter(pk=row.pk).update(split="private_test")
    for person in (emil, ada):
        browser = signed_in(person)
        url = f"/p/arguments/datasets/{frozen.pk}/rows/"
        shown = browser.get(url, {"split": "private_test"}).content.decode()
        assert f"/lineage/{row.comparison_id}/" not in shown
        page = browser.get(f"/p/arguments/comparisons/{row.comparison_id}/").content.decode()
        assert "kept private" in page
        vote = row.vote_ids[0]
        told = browser.get(f"/api/v1/projects/arguments/votes/{vote}/lineage").json()["rows"]
        assert [one["winner"] for one in told if one["snapshot"] == frozen.pk] == [""]


# From one vote to the models it touched, and back.


@pytest.fixture
def used(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    recipe = SnapshotRecipe(
        least_votes=2,
        least_agreeing=2,
        heldout_annotators=0.2,
        splits={"train": 0.7, "dev": 0.3},
        seed="seed-2",
    )
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


def run_make(project: Project, name: str, **inputs) -> Run:
    run = Run.objects.create(project=project, name=name, kind="drill", state="queued")
    for role, value in inputs.items():
        kind = {Snapshot: "snapshot", Checkpoint: "checkpoint", Run: "upstream"}[type(value)]
        RunInput.objects.create(run=run, role=role, **{kind: value})
    return run


def test_a_vote_leads_to_every_model_that_stands_on_it(project: Project, used: Snapshot) -> None:
    reward = run_make(project, "reward", data=used)
    saved = Checkpoint.objects.create(
        project=project, run=reward, attempt=1, step=5, uri="x", sha256="0" * 64
    )
    policy = run_make(project, "ppo", reward=saved)
    fresh = run_make(project, "generate", policy=policy)
    run_make(project, "unrelated")
    row = used.rows.filter(split="train").first()
    found = lineage.vote_lineage(Vote.objects.get(pk=row.vote_ids[0]))
    assert [r.snapshot_id for r in found.trained_on] == [used.pk]
    assert [run.name for run in found.runs] == ["reward", "ppo", "generate"]
    assert found.checkpoints == [saved]
    back = lineage.origins(fresh)
    assert [run.name for run in back.runs] == ["ppo", "reward"]
    assert back.snapshots == [used]
    kept = used.rows.exclude(split="")
    assert back.n_votes == len({vote for row in kept for vote in row.vote_ids})


def test_a_vote_on_a_dropped_comparison_leads_to_no_model(project: Project, used: Snapshot) -> None:
    run_make(project, "reward", data=used)
    outside = Vote.objects.exclude(
        pk__in=[vote for row in used.rows.all() for vote in row.vote_ids]
    ).first()
    found = lineage.vote_lineage(outside)
    assert (found.rows, found.runs, found.checkpoints) == ([], [], [])


# Rows of preferences say where their answers are from and on which day people decided.


RECIPE = SnapshotRecipe(splits={"train": 0.8, "dev": 0.2}, heldout_annotators=0.0)


@pytest.mark.parametrize(
    ("kind", "reference", "metadata", "said"),
    [
        ("model", "ckpt7", {}, "ckpt7"),
        ("model", "", {"model": "gpt-2"}, "gpt-2"),
        ("model", "", None, "model"),
        ("import", "", {"source": "debates.csv"}, "debates.csv"),
        ("import", "", {}, ""),
        ("human", "rita", {"model": "x"}, "human"),
        ("edit", "rita", {}, "edit"),
    ],
)
def test_an_origin_is_named_unless_it_is_a_person(kind, reference, metadata, said):
    assert source_of(kind, reference, metadata) == said


def test_rows_without_a_known_origin_have_no_such_column(
    project: Project, crowd: list[Comparison], emil: User, lines_of: Callable
):
    made = freeze(project, emil)
    for rows in lines_of(made).values():
        for row in rows:
            assert "sources" not in row
            assert row["decided_at"] == "2026-11-01"  # when the crowd of the fixture voted


def test_every_row_names_both_origins_as_soon_as_one_is_known(
    project: Project, crowd: list[Comparison], emil: User, lines_of: Callable
):
    first = crowd[0]
    Response.objects.filter(pk=first.response_b_id).update(origin="model", origin_ref="ckpt7")
    made = freeze(project, emil)
    rows = [row for of in lines_of(made).values() for row in of]
    with_it = [row for row in rows if row["sources"] != ["", ""]]
    assert {"ckpt7"} == {source for row in with_it for source in row["sources"]} - {""}
    for row in with_it:
        side = "chosen" if row["sources"][0] else "rejected"
        stored = Response.objects.get(origin_ref="ckpt7").messages
        assert row[side] == stored
    folder = Path(settings.ARTIFACTS_URL) / made.uri
    assert "`sources`" in (folder / "README.md").read_text()
    table = pq.read_table(folder / "parquet" / "train.parquet")
    assert table["sources"].to_pylist()[0] is not None
    read = read_preferences(folder)
    assert {source for row in read for source in row.sources} <= {"", "ckpt7"}
    assert {row.decided_at for row in read} == {dt.datetime(2026, 11, 1, tzinfo=dt.UTC).timestamp()}


def test_the_day_is_that_of_the_newest_vote_and_no_more_than_a_day(
    project: Project, crowd: list[Comparison], emil: User, lines_of: Callable
):
    late = dt.datetime(2026, 11, 9, 23, 30, tzinfo=dt.timezone(dt.timedelta(hours=-3)))
    revote(crowd[0], ["b"] * 5, cast_at=late)
    days = days_of(freeze(project, emil), lines_of)
    assert days[str(crowd[0].pk)] == "2026-11-10"
    assert days[str(crowd[1].pk)] == "2026-11-01"


def days_of(made: Snapshot, lines_of: Callable) -> dict[str, str]:
    rows = [row for of in lines_of(made).values() for row in of]
    return {row["comparison"]: row["decided_at"] for row in rows}


def freeze(project: Project, emil: User) -> Snapshot:
    made = snapshot_freeze(project=project, name="pairs", recipe=RECIPE, user=emil)
    assert json.loads((Path(settings.ARTIFACTS_URL) / made.uri / "card.json").read_text())
    return made
