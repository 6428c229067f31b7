"""Rows of preferences say where their answers are from and on which day people decided."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.conf import settings

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Response
from apps.snapshots.assembling.rows import source_of
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from tests.snapshots.conftest import revote
from workers.data.snapshot import read_preferences

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
