"""From the database to the rows: rulings, people left out, earlier rounds, models, tie policies."""

import json
from collections.abc import Callable

import datasets
import pyarrow.parquet as pq
import pytest
from django.utils import timezone
from trl.data_utils import is_conversational

from apps.accounts.models import Project, User
from apps.agreement.services.rulings import dispute_adjudicate
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot, Vote
from apps.snapshots.assembling.gate import LeakFound
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import Filters, SnapshotRecipe
from apps.snapshots.selectors import snapshots
from apps.snapshots.services import freezing
from apps.snapshots.services.gathering import material_of
from tests.snapshots.conftest import argument, revote
from tests.snapshots.test_freezing import folder, freeze, rows

pytestmark = pytest.mark.django_db
ALL = {"heldout_annotators": 0.0, "splits": {"train": 1.0}}


def fate(snapshot: Snapshot, comparison: Comparison) -> tuple[str, str, str]:
    row = snapshot.rows.get(comparison=comparison)
    return row.winner, row.decided_by, row.dropped_because


def test_an_adjudicated_comparison_is_frozen_as_it_was_ruled(
    project: Project, crowd: list[Comparison], emil: User, ada: User
) -> None:
    dispute_adjudicate(
        comparison=crowd[0], choice="a", cause="guideline_gap", note="Shorter is right here.",
        by=ada, seen=0,
    )  # fmt: skip
    made = freeze(project, emil, **ALL)
    row = made.rows.get(comparison=crowd[0])
    assert (row.winner, row.decided_by, row.confidence) == ("a", "ruling", 1.0)
    assert "Shorter is right here." in row.reason
    assert len(row.vote_ids) == 5
    written = next(r for r in rows(made, "train") if r["comparison"] == str(crowd[0].pk))
    assert written["chosen"][0]["content"] == argument(0, 0)
    assert written["confidence"] == 1.0
    assert made.counts["rulings"] == {"against the votes": 1, "used": 1}
    assert made.counts["leak_gate"]["rulings"] == 1
    ignored = freeze(project, emil, **ALL, rulings="ignore")
    assert fate(ignored, crowd[0]) == ("b", "votes", "")


def test_a_ruling_that_nobody_made_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, ada: User, monkeypatch
) -> None:
    dispute_adjudicate(comparison=crowd[0], choice="a", cause="taste", note="", by=ada, seen=0)
    monkeypatch.setattr("apps.snapshots.services.writing.ruling_facts", lambda project, pairs: {})
    with pytest.raises(LeakFound, match="nobody ruled a on comparison"):
        freeze(project, emil, **ALL)


def test_what_waits_for_review_stays_out_until_somebody_has_looked(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    Comparison.objects.filter(pk=crowd[0].pk).update(state="review", review_reason="A secret.")
    row = freeze(project, emil, **ALL).rows.get(comparison=crowd[0])
    assert (row.dropped_because, row.reason) == ("needs review", "A secret.")


def test_votes_of_an_earlier_round_never_count(
    project: Project, crowd: list[Comparison], emil: User, votes_of: Callable
) -> None:
    Slot.objects.filter(comparison=crowd[0]).update(kind=Slot.Kind.FORMER)
    made = freeze(project, emil, **ALL)
    assert fate(made, crowd[0]) == ("", "", "no votes left")
    assert made.rows.get(comparison=crowd[0]).vote_ids == []


def test_one_vote_of_an_earlier_round_in_a_row_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, votes_of: Callable, monkeypatch
) -> None:
    slot = Slot.objects.filter(comparison=crowd[0]).first()

    def late(*args, **kwargs):
        made = material_of(*args, **kwargs)
        Slot.objects.filter(pk=slot.pk).update(kind=Slot.Kind.FORMER)  # between reading and proving
        return made

    monkeypatch.setattr(freezing, "material_of", late)
    with pytest.raises(LeakFound, match=f"is no vote on comparison {crowd[0].pk}"):
        freeze(project, emil, **ALL)


def test_who_is_left_out_is_written_into_the_recipe_and_stays_out_of_it(
    project: Project, crowd: list[Comparison], emil: User, votes_of: Callable
) -> None:
    person = next(iter(votes_of(crowd[0]).values()))
    standing, _ = Annotator.objects.get_or_create(project=project, user=person)
    standing.left_out_at = timezone.now()
    standing.save()
    default = snapshots.recipe_default(project=project)
    assert default.filters.left_out == (person.pk,)
    made = freeze(project, emil, **ALL, filters=default.filters)
    used = {vote for row in made.rows.all() for vote in row.vote_ids}
    theirs = Vote.objects.filter(annotator=person, is_current=True)
    assert not used & set(theirs.values_list("pk", flat=True))
    assert made.counts["votes"]["refused"] == {"by annotators left out by an admin": theirs.count()}
    standing.left_out_at = None
    standing.save()
    again = freeze(project, emil, **ALL, filters=Filters(left_out=(person.pk,)))
    assert again.sha256 == made.sha256
    # A program that filters by something else still leaves them out, unless it says so.
    standing.left_out_at = timezone.now()
    standing.save()
    named = snapshots.recipe_over_defaults(project=project, data={"filters": {"groups": ["x"]}})
    assert named.filters.left_out == (person.pk,)
    all_of_them = {"filters": {"left_out": []}}
    assert snapshots.recipe_over_defaults(project=project, data=all_of_them).filters.left_out == ()


def test_one_vote_of_a_person_left_out_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, votes_of: Callable, monkeypatch
) -> None:
    person = next(iter(votes_of(crowd[0]).values()))
    assemble = freezing.assemble

    def blind(material, recipe):
        return assemble(material, SnapshotRecipe(**ALL, least_votes=2, least_agreeing=2))

    monkeypatch.setattr(freezing, "assemble", blind)
    with pytest.raises(LeakFound, match="of an annotator who is left out stands in train"):
        freeze(project, emil, **ALL, filters=Filters(left_out=(person.pk,)))


def test_the_projects_own_way_to_decide_is_the_default(project: Project) -> None:
    LabelingSettings.objects.create(project=project, decide_by="mace", least_posterior=0.8)
    recipe = snapshots.recipe_default(project=project)
    assert (recipe.decide_by, recipe.least_posterior) == ("mace", 0.8)


@pytest.mark.parametrize("method", ["one_coin", "dawid_skene", "mace"])
def test_a_dataset_decided_by_a_model_is_the_same_each_time(
    project: Project, crowd: list[Comparison], emil: User, method: str
) -> None:
    revote(crowd[0], ["a", "a", "b", "b", "tie"])
    first, second = (freeze(project, emil, decide_by=method) for _ in range(2))
    assert first.sha256 == second.sha256
    row = first.rows.filter(split="train").first()
    assert row.decided_by == "model"
    assert row.confidence == row.posterior >= 0.9
    written = rows(first, "train")[row.ordinal]
    assert (written["confidence"], written["comparison"]) == (row.posterior, str(row.comparison_id))


def test_soft_labels_are_read_by_other_programs(
    project: Project, crowd: list[Comparison], emil: User, tmp_path
) -> None:
    revote(crowd[0], ["tie"] * 5)
    revote(crowd[1], ["b", "b", "b", "tie", "a"])
    made = freeze(project, emil, **ALL, ties="soft")
    by = {row["comparison"]: row for row in rows(made, "train")}
    assert by[str(crowd[0].pk)]["label_probability"] == 0.5
    assert by[str(crowd[1].pk)]["label_probability"] == pytest.approx(0.7)
    assert by[str(crowd[2].pk)]["label_probability"] == 1.0
    loaded = datasets.load_dataset(str(folder(made)), cache_dir=str(tmp_path))
    assert is_conversational(loaded["train"][0])
    assert made.rows.get(comparison=crowd[0]).winner == "tie"


def test_ties_do_not_always_stand_the_same_way_round(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    for comparison in crowd[:30]:
        revote(comparison, ["tie"] * 5)
    made = freeze(project, emil, **ALL, ties="soft")
    a_first = sum(
        row["chosen"] == Comparison.objects.get(pk=row["comparison"]).response_a.messages
        for row in rows(made, "train")
        if row["label_probability"] == 0.5
    )
    assert 5 < a_first < 25


def test_single_answers_are_a_dataset_of_their_own_kind(
    project: Project, crowd: list[Comparison], emil: User, tmp_path
) -> None:
    revote(crowd[0], ["tie"] * 5)
    revote(crowd[1], ["both_bad"] * 5)
    made = freeze(project, emil, heldout_annotators=0.2, ties="kto", least_votes=2)
    assert made.kind == "unpaired"
    written = {name: rows(made, name) for name in made.counts["rows"]}
    assert {name: len(of) for name, of in written.items()} == made.counts["rows"]
    labels = {
        comparison.pk: [
            row["label"]
            for name, of in written.items()
            if name != "heldout_annotators"
            for row in of
            if row["comparison"] == str(comparison.pk)
        ]
        for comparison in crowd[:3]
    }
    assert labels == {crowd[0].pk: [True, True], crowd[1].pk: [False, False],
                      crowd[2].pk: [False, True]}  # fmt: skip
    loaded = datasets.load_dataset(str(folder(made)), cache_dir=str(tmp_path))
    assert is_conversational(loaded["train"][0])
    assert loaded["train"].features["label"].dtype == "bool"
    row = made.rows.filter(split="train").last()
    assert written["train"][row.ordinal]["comparison"] == str(row.comparison_id)


def test_a_wrong_label_of_a_single_answer_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    monkeypatch.setattr("apps.snapshots.assembling.rows.desirable", lambda winner, side: True)
    with pytest.raises(LeakFound, match="the labels of train are not those that were decided"):
        freeze(project, emil, **ALL, ties="kto")


def test_grades_reach_the_rows_and_weights_the_lineage(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    revote(crowd[0], ["b"] * 5, strength=2)
    revote(crowd[1], ["b"] * 5, strength=1, flags=["unsafe"])
    made = freeze(project, emil, **ALL, balance=("unsafe",), weight_cap=3.0)
    by = {row["comparison"]: row for row in rows(made, "train")}
    strong, weak, none = (by[str(c.pk)]["strength"] for c in crowd[:3])
    assert strong > weak > 0
    assert none is None
    assert by[str(crowd[1].pk)]["weight"] == 3.0
    assert made.rows.get(comparison=crowd[1]).weight == 3.0
    table = pq.read_table(folder(made) / "parquet" / "train.parquet")
    assert table.column("strength").to_pylist() == [row["strength"] for row in rows(made, "train")]
    card = json.loads((folder(made) / "card.json").read_text())
    assert card["counts"]["weights"]["capped_rows"] == 1


def test_another_projects_rulings_and_votes_are_none_of_this_ones(
    project: Project, crowd: list[Comparison], emil: User, olga: User
) -> None:
    elsewhere = olga.memberships.get().project
    assert material_of(project=elsewhere, recipe=SnapshotRecipe()).pairs == ()
