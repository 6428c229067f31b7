"""The leak gate: what it must refuse is planted here."""

import dataclasses

import pytest

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Vote
from apps.snapshots.assembling import assembly
from apps.snapshots.assembling.gate import LeakFound
from apps.snapshots.assembling.material import Assembly, Pair, SplitLine
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import RecipeFilters, SnapshotRecipe
from apps.snapshots.services import freezing, writing
from measures.splits import fold_of
from tests.snapshots.conftest import crowd_make

pytestmark = pytest.mark.django_db

RECIPE = SnapshotRecipe(
    least_votes=2,
    least_agreeing=2,
    heldout_groups=("debate-03",),
    heldout_annotators=0.2,
    splits={"train": 0.6, "dev": 0.2, "public_test": 0.2},
    seed="seed-2",
)


def freeze(project: Project, emil: User, recipe: SnapshotRecipe = RECIPE) -> Snapshot:
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=recipe, user=emil)


def plant(monkeypatch, change) -> None:
    """Let assembling go wrong: `change(lines, pairs)` alters the lines by split in place."""

    def broken(material, recipe) -> Assembly:
        made = assembly.assemble(material, recipe)
        lines = {name: list(rows) for name, rows in made.lines.items()}
        change(lines, made.pairs)
        return dataclasses.replace(made, lines={n: tuple(rows) for n, rows in lines.items()})

    monkeypatch.setattr(freezing, "assemble", broken)


def held_out_vote_on(line: SplitLine) -> int:
    for vote in Vote.objects.filter(comparison=line.pair).select_related("annotator"):
        if fold_of(f"import:{vote.annotator.username}", 0.2, "seed-2"):
            return vote.pk
    return 0


def test_a_clean_snapshot_says_what_was_checked(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    proof = freeze(project, emil).counts["leak_gate"]
    assert proof["votes"] > 200
    assert proof["texts"] == 48
    assert proof["splits"] == 5


def test_one_held_out_annotators_vote_in_a_training_row_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def leak(lines: dict[str, list[SplitLine]], pairs: dict[int, Pair]) -> None:
        row = next(k for k, line in enumerate(lines["train"]) if held_out_vote_on(line))
        line = lines["train"][row]
        lines["train"][row] = dataclasses.replace(line, votes=(*line.votes, held_out_vote_on(line)))

    plant(monkeypatch, leak)
    with pytest.raises(LeakFound, match=r"held-out .* train"):
        freeze(project, emil)
    failed = Snapshot.objects.get()
    assert failed.state == "failed"
    assert "held-out annotator" in failed.error
    assert not failed.rows.exists()


SIX = {
    "train": 0.3,
    "smoke": 0.15,
    "dev": 0.15,
    "public_test": 0.15,
    "private_test": 0.15,
    "human_audit": 0.1,
}


@pytest.mark.parametrize("split", ["smoke", "dev", "public_test", "private_test", "human_audit"])
def test_one_held_out_annotators_vote_in_any_file_stops_the_freeze(
    project: Project, emil: User, monkeypatch, split: str
) -> None:
    crowd_make(project, debates=24)
    six = dataclasses.replace(RECIPE, splits=SIX)
    assert split in freeze(project, emil, six).counts["rows"]  # clean, it is frozen

    def leak(lines: dict[str, list[SplitLine]], pairs: dict[int, Pair]) -> None:
        row = next(k for k, line in enumerate(lines[split]) if held_out_vote_on(line))
        line = lines[split][row]
        lines[split][row] = dataclasses.replace(line, votes=(*line.votes, held_out_vote_on(line)))

    plant(monkeypatch, leak)
    with pytest.raises(LeakFound, match=f"of a held-out annotator stands in {split}"):
        freeze(project, emil, six)


def test_an_argument_in_two_splits_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def leak(lines: dict[str, list[SplitLine]], pairs: dict[int, Pair]) -> None:
        lines["dev"].append(lines["train"].pop())

    plant(monkeypatch, leak)
    with pytest.raises(LeakFound, match=r"arguments .* and dev"):
        freeze(project, emil)


def test_a_held_out_group_in_training_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def leak(lines: dict[str, list[SplitLine]], pairs: dict[int, Pair]) -> None:
        lines["train"] += lines.pop("heldout_groups")
        del lines["heldout_annotators"]

    plant(monkeypatch, leak)
    with pytest.raises(LeakFound, match=r"group 'debate-03' .* train"):
        freeze(project, emil)


def test_a_vote_on_another_comparison_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def leak(lines: dict[str, list[SplitLine]], pairs: dict[int, Pair]) -> None:
        lines["train"][0] = dataclasses.replace(lines["train"][0], votes=lines["train"][1].votes)

    plant(monkeypatch, leak)
    with pytest.raises(LeakFound, match="no vote on"):
        freeze(project, emil)


def test_a_row_that_was_never_checked_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    def doubled(*args, **kwargs):
        rows = list(written(*args, **kwargs))
        return rows + rows[:1]

    written = writing.preference_rows
    monkeypatch.setattr(writing, "preference_rows", doubled)
    with pytest.raises(LeakFound, match="rows of"):
        freeze(project, emil)


def test_an_annotator_of_the_other_snapshot_stops_the_freeze(
    project: Project, crowd: list[Comparison], emil: User, monkeypatch
) -> None:
    first = freeze(project, emil)
    monkeypatch.setattr(
        freezing,
        "assemble",
        lambda material, recipe: assembly.assemble(
            dataclasses.replace(material, barred=frozenset()), recipe
        ),
    )
    other = dataclasses.replace(
        RECIPE, heldout_annotators=0.0, filters=RecipeFilters(without_annotators_of=(first.pk,))
    )
    with pytest.raises(LeakFound, match="is left out"):
        freeze(project, emil, other)
