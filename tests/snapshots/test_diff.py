"""What changed between two datasets, by planted changes."""

import csv
import io

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, Vote
from apps.snapshots.assembling.assembly import DROPPED, LITTLE_AGREEMENT
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors import comparing
from apps.snapshots.selectors.comparing import DiffFilter
from apps.snapshots.services import freezing
from apps.snapshots.services.importing import snapshot_import
from tests.snapshots.conftest import crowd_make, revote

pytestmark = pytest.mark.django_db

RECIPE = SnapshotRecipe(
    heldout_annotators=0.0, splits={"train": 0.7, "dev": 0.3}, seed="seed-2", least_share=0.5
)


def freeze(project: Project, name: str, recipe: SnapshotRecipe = RECIPE) -> Snapshot:
    return freezing.snapshot_freeze(project=project, name=name, recipe=recipe, user=None)


@pytest.fixture
def planted(project: Project, crowd: list[Comparison]) -> tuple[Snapshot, Snapshot]:
    """Between the two: pair 0 flips, 1 loses its majority, 2 loses a vote for the winner, 3 is
    dropped, and a new debate comes in."""
    old = freeze(project, "old")
    revote(crowd[0], ["a"] * 5)
    revote(crowd[1], ["a", "a", "b", "b", "tie"])
    revote(crowd[2], ["a", "b", "b", "b", "b"])
    Comparison.objects.filter(pk=crowd[3].pk).update(state="dropped")
    crowd_make(project, debates=1, start=40)
    return old, freeze(project, "new")


def changed(old: Snapshot, new: Snapshot, **wanted: str) -> dict[int, comparing.Change]:
    rows = comparing.compare_rows(old=old, new=new, wanted=DiffFilter(**wanted))
    return {row.comparison: row for row in rows}


def test_every_planted_change_is_found_and_nothing_else(
    planted: tuple[Snapshot, Snapshot], crowd: list[Comparison]
) -> None:
    old, new = planted
    found = comparing.compare_summary(old=old, new=new)
    assert found.counts == {
        "added": 6,
        "removed": 2,
        "flipped": 1,
        "moved": 0,
        "confidence": 1,
        "left_out": 0,
    }
    assert (found.kept, found.same) == (70, 68)
    assert found.added_from == [("not there before", 6)]
    assert dict(found.removed_to) == {LITTLE_AGREEMENT: 1, DROPPED: 1}
    assert set(changed(old, new, change="flipped")) == {crowd[0].pk}
    assert set(changed(old, new, change="confidence")) == {crowd[2].pk}
    assert set(changed(old, new, change="removed")) == {crowd[1].pk, crowd[3].pk}
    assert len(changed(old, new)) == 10


def test_a_flip_names_the_votes_that_came_between(
    planted: tuple[Snapshot, Snapshot], crowd: list[Comparison]
) -> None:
    row = changed(*planted, change="flipped")[crowd[0].pk]
    assert (row.before.winner, row.after.winner) == ("b", "a")
    votes = Vote.objects.filter(comparison=crowd[0])
    assert set(row.gone) == set(votes.filter(is_current=False).values_list("pk", flat=True))
    assert set(row.came) == set(votes.filter(is_current=True).values_list("pk", flat=True))


def test_a_dataset_differs_in_nothing_from_its_twin(
    project: Project, crowd: list[Comparison]
) -> None:
    old, new = freeze(project, "one"), freeze(project, "two")
    found = comparing.compare_summary(old=old, new=new)
    assert not found.changed
    assert found.same == found.kept == len(crowd)
    assert changed(old, new) == {}


def test_moves_between_learning_and_measuring_are_said(
    project: Project, crowd: list[Comparison]
) -> None:
    shares = {"train": 0.5, "public_test": 0.5}
    one = freeze(project, "one", SnapshotRecipe(heldout_annotators=0.0, splits=shares, seed="s1"))
    two = freeze(project, "two", SnapshotRecipe(heldout_annotators=0.0, splits=shares, seed="s2"))
    found = comparing.compare_summary(old=one, new=two)
    before, after = (
        dict(snapshot.rows.values_list("comparison", "split")) for snapshot in (one, two)
    )
    expected = sum(before[pair] != after[pair] for pair in before)
    assert expected
    assert found.counts["moved"] == found.crossed == expected
    assert sum(n for _, _, n in found.moves) == expected


def test_a_held_out_persons_vote_is_a_row_of_its_own(
    project: Project, crowd: list[Comparison]
) -> None:
    shares = {"train": 0.5, "public_test": 0.5}
    nobody = SnapshotRecipe(heldout_annotators=0.0, splits=shares, seed="seed-2")
    some = SnapshotRecipe(heldout_annotators=0.3, splits=shares, seed="seed-2")
    old, new = freeze(project, "nobody", nobody), freeze(project, "some", some)
    rows = list(comparing.compare_rows(old=old, new=new, wanted=DiffFilter()))
    held = [row for row in rows if row.held]
    assert {row.comparison for row in held} == set(
        new.rows.filter(split="heldout_annotators").values_list("comparison", flat=True)
    )
    assert all(row.before is None and row.what == ("added",) for row in held)


def test_rows_are_filtered_searched_and_paged(
    planted: tuple[Snapshot, Snapshot], crowd: list[Comparison]
) -> None:
    old, new = planted
    assert crowd[0].pk in changed(old, new, search=str(crowd[0].pk))
    assert len(changed(old, new, search="debate 40.")) == 6
    assert changed(old, new, search="100%") == {}
    split = old.rows.get(comparison=crowd[0]).split
    assert crowd[0].pk in changed(old, new, split=split)
    pages = [
        [
            r.comparison
            for r in comparing.compare_rows(
                old=old, new=new, wanted=DiffFilter(), start=start, most=4
            )
        ]
        for start in (0, 4, 8)
    ]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert [pair for page in pages for pair in page] == sorted(changed(old, new))
    assert comparing.compare_count(old=old, new=new, wanted=DiffFilter()) == 10


def test_what_cannot_be_compared_says_why(project: Project, crowd: list[Comparison]) -> None:
    frozen = freeze(project, "one")
    with pytest.raises(DomainError, match="two different"):
        comparing.compare_summary(old=frozen, new=frozen)
    draft = Snapshot.objects.create(project=project, name="x", kind="preferences")
    with pytest.raises(Conflict, match="Only frozen"):
        comparing.compare_summary(old=frozen, new=draft)
    asked = snapshot_import(
        project=project, kind="prompts", name="asked", rows=[{"prompt": "Why?"}]
    )
    with pytest.raises(DomainError, match="frozen from votes"):
        comparing.compare_summary(old=frozen, new=asked)


def test_the_api_gives_the_same_summary_and_rows(
    emil: User, signed_in, planted: tuple[Snapshot, Snapshot], crowd: list[Comparison]
) -> None:
    old, new = planted
    base = "/api/v1/projects/arguments/snapshots"
    answer = signed_in(emil).get(f"{base}/{new.pk}/changes", {"since": old.pk, "limit": 4}).json()
    assert (answer["counts"]["flipped"], answer["kept"], answer["n"]) == (1, 70, 10)
    assert [row["comparison"] for row in answer["rows"]] == [pair.pk for pair in crowd[:4]]
    assert answer["rows"][0]["what"] == ["flipped"]
    assert len(answer["rows"][0]["came"]) == 5
    refused = signed_in(emil).get(f"{base}/{new.pk}/changes", {"since": new.pk})
    assert (refused.status_code, refused.json()["field"]) == (400, "new")
    wrong = signed_in(emil).get(f"{base}/{new.pk}/changes", {"since": old.pk, "change": "x"})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "change")


# --- the page ------------------------------------------------------------------------------------

PAGE = "/p/arguments/datasets/compare/"


@pytest.fixture
def ritas(rita: User, signed_in) -> Client:
    return signed_in(rita)


def test_two_ticked_datasets_are_compared_from_old_to_new(
    ritas: Client, planted: tuple[Snapshot, Snapshot]
) -> None:
    old, new = planted
    answer = ritas.get(PAGE, {"pick": [new.pk, old.pk]})
    assert answer.status_code == 302
    assert answer.url == f"{PAGE}?old={old.pk}&new={new.pk}"
    page = ritas.get(answer.url).content.decode()
    assert "not there before 6" in page
    assert "10 comparisons" in page


def test_the_page_shows_a_flip_with_its_votes(
    ritas: Client, planted: tuple[Snapshot, Snapshot], crowd: list[Comparison]
) -> None:
    old, new = planted
    page = ritas.get(PAGE, {"old": old.pk, "new": new.pk, "change": "flipped"}).content.decode()
    assert f"/p/arguments/comparisons/{crowd[0].pk}/" in page
    assert "5 added: " in page
    assert "5 removed: " in page
    assert page.count("changed to A") == 1


def test_the_table_has_the_rows_of_the_page(
    ritas: Client, planted: tuple[Snapshot, Snapshot], crowd: list[Comparison]
) -> None:
    old, new = planted
    answer = ritas.get(f"{PAGE}changes.csv", {"old": old.pk, "new": new.pk, "change": "removed"})
    text = b"".join(answer.streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {int(row["comparison"]): row["left_out_after"] for row in rows} == {
        crowd[1].pk: LITTLE_AGREEMENT,
        crowd[3].pk: DROPPED,
    }


def test_recipes_stand_side_by_side_with_what_differs_first(
    ritas: Client, project: Project, crowd: list[Comparison]
) -> None:
    old = freeze(project, "old")
    new = freeze(project, "new", SnapshotRecipe(heldout_annotators=0.0, least_share=0.9))
    page = ritas.get(PAGE, {"old": old.pk, "new": new.pk}).content.decode()
    assert page.index("a share of 0.5") < page.index("a share of 0.9") < page.index("Split by")
    assert page.count("differs</span>") == 3  # rule, splits and seed


def test_a_refusal_is_a_note_on_the_page(
    ritas: Client, project: Project, crowd: list[Comparison]
) -> None:
    one = freeze(project, "one")
    freeze(project, "two")
    answer = ritas.get(PAGE, {"old": one.pk, "new": one.pk})
    assert answer.status_code == 200
    assert "two different datasets" in answer.content.decode()
    assert ritas.get(PAGE, {"old": one.pk, "new": "nothing"}).status_code == 404


def test_the_page_asks_the_database_a_fixed_number_of_questions(
    ritas: Client, planted: tuple[Snapshot, Snapshot], django_assert_max_num_queries
) -> None:
    old, new = planted
    ritas.get(
        PAGE, {"old": old.pk, "new": new.pk}
    )  # what waits for people is counted once a minute
    with django_assert_max_num_queries(22):
        assert ritas.get(PAGE, {"old": old.pk, "new": new.pk}).status_code == 200
