"""From the database to the rows: rulings, people left out, earlier rounds, models, tie policies."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable

import datasets
import pyarrow.parquet as pq
import pytest
from django.utils import timezone
from trl.data_utils import is_conversational

from apps.accounts.models import Project, User
from apps.agreement.services.rulings import dispute_adjudicate
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot, Vote
from apps.snapshots.assembling import assembly
from apps.snapshots.assembling.assembly import assemble
from apps.snapshots.assembling.gate import LeakFound
from apps.snapshots.assembling.material import Assembly, CurrentVote, Material, Pair
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe
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
        comparison=crowd[0],
        choice="a",
        cause="guideline_gap",
        note="Shorter is right here.",
        by=ada,
        seen=0,
    )
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
    with pytest.raises(LeakFound, match="nobody ruled a"):
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
    Slot.objects.filter(task=crowd[0]).update(kind=Slot.Kind.FORMER)
    made = freeze(project, emil, **ALL)
    assert fate(made, crowd[0]) == ("", "", "no votes left")
    assert made.rows.get(comparison=crowd[0]).vote_ids == []


def test_one_vote_of_an_earlier_round_in_a_row_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, votes_of: Callable, monkeypatch
) -> None:
    slot = Slot.objects.filter(task=crowd[0]).first()

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
    assert made.counts["votes"]["refused"] == {assembly.BY_LEFT_OUT: theirs.count()}
    standing.left_out_at = None
    standing.save()
    again = freeze(project, emil, **ALL, filters=RecipeFilters(left_out=(person.pk,)))
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
    with pytest.raises(LeakFound, match=r"left out .* train"):
        freeze(project, emil, **ALL, filters=RecipeFilters(left_out=(person.pk,)))


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
    assert labels == {
        crowd[0].pk: [True, True],
        crowd[1].pk: [False, False],
        crowd[2].pk: [False, True],
    }
    loaded = datasets.load_dataset(str(folder(made)), cache_dir=str(tmp_path))
    assert is_conversational(loaded["train"][0])
    assert loaded["train"].features["label"].dtype == "bool"
    row = made.rows.filter(split="train").last()
    assert written["train"][row.ordinal]["comparison"] == str(row.comparison_id)


def test_a_wrong_label_of_a_single_answer_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    monkeypatch.setattr("apps.snapshots.assembling.rows.desirable", lambda winner, side: True)
    with pytest.raises(LeakFound, match="labels of train"):
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


# Deciding which row goes where: pure, in milliseconds.


NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)


def pair(number: int, group: str, a: str, b: str, **changes) -> Pair:
    values = {"topic": group, "batch": "", "stratum": "random", "dropped": False} | changes
    return Pair(number, group, a=a, b=b, **values)


def material(pairs: list[Pair], votes: dict[int, str], at: dt.datetime = NOON) -> Material:
    """votes: pair → one letter a vote (a, b, t for tie), by persons 1, 2, 3 …"""
    words = {"t": "tie"}
    given = [
        CurrentVote(1000 * number + k, number, k, f"user:{k}", words.get(letter, letter), at)
        for number, letters in votes.items()
        for k, letter in enumerate(letters, start=1)
    ]
    return Material(tuple(pairs), tuple(given))


def recipe(**changes) -> SnapshotRecipe:
    return SnapshotRecipe(**{"heldout_annotators": 0.0, "splits": {"train": 1.0}} | changes)


def reasons(made: Assembly) -> dict[int, str]:
    return {drop.pair: drop.reason for drop in made.drops}


def test_each_way_of_not_being_decided_has_its_own_reason() -> None:
    pairs = [pair(n, "g", f"x{n}", f"y{n}") for n in range(1, 8)]
    votes = {1: "", 2: "aa", 3: "aabb", 4: "abt", 5: "ttt", 6: "aaa", 7: "aabbt"}
    made = assemble(
        material(pairs, votes), recipe(least_votes=3, least_agreeing=2, least_share=0.5)
    )
    assert reasons(made) == {
        1: "no votes left",
        2: "too few votes",
        3: "vote tie",
        4: "too little agreement",
        5: "decided: tie",
        7: "too little agreement",
    }
    assert [line.pair for line in made.lines["train"]] == [6]


def test_filters_take_out_comparisons_by_what_they_are() -> None:
    pairs = [
        pair(1, "g", "x1", "y1", topic="t1"),
        pair(2, "g", "x2", "y2", batch="may"),
        pair(3, "g", "x3", "y3", stratum="gold"),
        pair(4, "g", "x4", "y4", dropped=True),
        pair(5, "h", "x5", "y5"),
        pair(6, "g", "x6", "y6"),
    ]
    made = assemble(
        material(pairs, dict.fromkeys(range(1, 7), "aaa")),
        recipe(
            filters=RecipeFilters(
                without_groups=("h",), without_topics=("t1",), batches=("",), strata=("random",)
            )
        ),
    )
    assert reasons(made) == {
        1: assembly.OTHER_TOPIC,
        2: assembly.OTHER_BATCH,
        3: assembly.OTHER_STRATUM,
        4: assembly.DROPPED,
        5: assembly.OTHER_GROUP,
    }


def test_only_the_comparisons_that_were_picked_enter() -> None:
    pairs = [pair(1, "g", "x1", "y1"), pair(2, "h", "x2", "y2"), pair(3, "i", "x3", "y3")]
    made = assemble(
        material(pairs, dict.fromkeys(range(1, 4), "aaa")),
        recipe(filters=RecipeFilters(comparisons=(1, 3))),
    )
    assert reasons(made) == {2: assembly.OTHER_PAIR}
    assert sorted(line.pair for lines in made.lines.values() for line in lines) == [1, 3]


def test_votes_outside_the_time_range_do_not_count() -> None:
    pairs = [pair(1, "g", "x", "y")]
    early = material(pairs, {1: "aaa"}, NOON)
    late = material(pairs, {1: "bbbb"}, NOON + dt.timedelta(days=1))
    both = Material(
        early.pairs,
        early.votes
        + tuple(
            CurrentVote(v.id + 50, 1, v.person + 9, "late", v.choice, v.at) for v in late.votes
        ),
    )
    before = recipe(filters=RecipeFilters(cast_before="2026-11-02T00:00:00+00:00"))
    assert assemble(both, before).lines["train"][0].winner == "a"
    assert assemble(both, before).counts["votes"]["refused"] == {assembly.OUT_OF_TIME: 4}
    since = recipe(filters=RecipeFilters(cast_from="2026-11-02T00:00:00+00:00"))
    assert assemble(both, since).lines["train"][0].winner == "b"


def test_with_few_groups_no_argument_stands_in_two_splits() -> None:
    # Two debates, each of 20 unconnected chains of three arguments.
    pairs, votes = [], {}
    for chain in range(40):
        group = f"debate-{chain % 2}"
        for step in range(2):
            number = 2 * chain + step + 1
            pairs.append(pair(number, group, f"{chain}-{step}", f"{chain}-{step + 1}"))
            votes[number] = "aaa"
    made = assemble(
        material(pairs, votes), recipe(splits={"train": 0.5, "dev": 0.3, "public_test": 0.2})
    )
    assert made.counts["split_by"] == "argument"
    assert made.counts["components"] == 40
    places: dict[str, set[str]] = {}
    for split, lines in made.lines.items():
        for line in lines:
            for text in (made.pairs[line.pair].a, made.pairs[line.pair].b):
                places.setdefault(text, set()).add(split)
    assert Counter(len(splits) for splits in places.values()) == {1: 120}
    assert len(made.lines) == 3
    assert any("2 groups" in text for text in made.warnings)


def test_groups_that_share_an_argument_stay_on_one_side() -> None:
    pairs = [pair(n, f"g{n:02}", f"x{n}", f"y{n}") for n in range(1, 31)]
    pairs.append(pair(99, "g01", "x1", "x30"))  # ties g01 to g30
    votes = dict.fromkeys([*range(1, 31), 99], "aaa")
    for seed in range(20):
        made = assemble(
            material(pairs, votes),
            recipe(splits={"train": 0.5, "dev": 0.5}, seed=f"s{seed}"),
        )
        place = {line.pair: split for split, lines in made.lines.items() for line in lines}
        assert made.counts["split_by"] == "group"
        assert place[1] == place[30] == place[99]


def test_a_pair_that_shares_an_argument_with_a_held_out_group_is_dropped() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "h", "x", "z"), pair(3, "g", "y", "w")]
    made = assemble(material(pairs, dict.fromkeys((1, 2, 3), "aaa")), recipe(heldout_groups=("h",)))
    assert reasons(made) == {1: assembly.SHARES_HELDOUT}
    assert [line.pair for line in made.lines["heldout_groups"]] == [2]
    assert [line.pair for line in made.lines["train"]] == [3]


def test_the_coin_flip_rate_is_that_of_the_votes_there_are() -> None:
    pairs = [pair(1, "g", "x1", "y1"), pair(2, "g", "x2", "y2"), pair(3, "g", "x3", "y3")]
    made = assemble(
        material(pairs, {1: "aaaab", 2: "aab", 3: ""}),
        recipe(least_votes=3, least_agreeing=3, least_share=0.6),
    )
    # Five coins always hold three alike (1); three coins are all alike in 1 of 4; none, never.
    assert made.counts["chance_keep_rate"] == pytest.approx((1 + 1 / 4 + 0) / 3)


def test_few_pairs_and_few_arguments_are_said() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "h", "z", "w")]
    made = assemble(material(pairs, {1: "aaa", 2: "aaa"}), recipe(heldout_groups=("h",)))
    text = " ".join(made.warnings)
    assert "1 training pairs: under 5,000" in text
    assert "heldout_groups:" in text
    assert "(2)" in text
    assert "predict people it has not seen" in text


def test_a_pair_that_was_asked_twice_is_said() -> None:
    pairs = [pair(1, "g", "x", "y"), pair(2, "g", "y", "x"), pair(3, "g", "x", "z")]
    made = assemble(material(pairs, dict.fromkeys((1, 2, 3), "aaa")), recipe())
    assert made.counts["repeated_pairs"] == 1
    assert any(text.startswith("1 training rows") for text in made.warnings)


def test_a_pair_of_one_text_is_no_preference() -> None:
    made = assemble(
        material([pair(1, "g", "x", "x"), pair(2, "g", "x", "y")], {1: "aaa", 2: "aaa"}), recipe()
    )
    assert reasons(made) == {1: assembly.SAME_TEXT}
