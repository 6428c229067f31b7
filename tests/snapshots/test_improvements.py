"""From an annotator's better answer on the label screen to a frozen demonstration."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.common.registry import vote_uses
from apps.labeling import services as labeling
from apps.labeling.models import Prompt, Vote
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors.lineage import vote_lineage
from apps.snapshots.services import freezing
from apps.snapshots.storage import names_in, read_rows
from measures.splits import split_of
from tests.labeling.pairs import annotators_make, pairs_make, vote

pytestmark = pytest.mark.django_db
N_PAIRS = 30  # by hash some of them are tested on


def better(number: int) -> str:
    return f"A day is **24 hours** long, version {number}."


@pytest.fixture
def improved(project: Project, ana: User) -> list[Vote]:
    """Ana improves every answer of hers but the last, which she leaves as it is."""
    pairs_make(project, N_PAIRS, show_improve=True, overlap=2, max_overlap=2, least_votes=2,
               least_agreeing=2)  # fmt: skip
    cast = [vote(project, ana, "a", improvement=better(n)).vote for n in range(N_PAIRS - 1)]
    vote(project, ana, "a")
    return cast


def lines(snapshot: Snapshot) -> dict[str, list[dict]]:
    folder = Path(settings.ARTIFACTS_URL) / snapshot.uri
    return {name: list(read_rows(folder / f"{name}.jsonl")) for name in snapshot.counts["rows"]}


def test_improved_answers_become_demonstrations_that_name_their_vote(
    project: Project, ana: User, ada: User, improved: list[Vote]
) -> None:
    snapshot = freezing.demonstrations_freeze(project=project, name="better", user=ada)
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
    files = lines(freezing.demonstrations_freeze(project=project, name="better", user=ada))
    groups = {name: {row["group"] for row in rows} for name, rows in files.items()}
    assert len(groups) > 1
    assert not groups["train"] & set.union(*(groups[name] for name in groups if name != "train"))


def test_a_demonstration_leads_back_to_its_vote_which_says_that_it_is_frozen(
    project: Project, ada: User, improved: list[Vote]
) -> None:
    snapshot = freezing.demonstrations_freeze(project=project, name="better", user=ada)
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
    snapshot = freezing.demonstrations_freeze(project=project, name="one", user=ada)
    assert snapshot.counts["rows"] == {"train": 1}
    assert snapshot.counts["dropped"] == {"repeats an earlier row": 1}
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
        freezing.demonstrations_freeze(project=project, name="none", user=ada)
    assert refused.value.code == "empty_snapshot"
    assert Snapshot.objects.get().state == "failed"


def test_ada_freezes_them_on_the_page_and_a_program_by_the_api(
    project: Project, ada: User, improved: list[Vote], signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    html = browser.get("/p/arguments/datasets/new/").content.decode()
    assert f"{N_PAIRS - 1} votes came with a better answer" in html
    nameless = browser.post("/p/arguments/datasets/new/", {"action": "demonstrations", "name": ""})
    assert nameless.status_code == 422
    sent = {"action": "demonstrations", "name": "by page"}
    assert browser.post("/p/arguments/datasets/new/", sent).status_code == 302
    answer = browser.post(
        "/api/v1/projects/arguments/snapshots",
        {"name": "by api", "kind": "demonstrations", "from_improvements": True},
        content_type="application/json",
    )
    assert answer.status_code == 201
    assert answer.json()["sha256"] == Snapshot.objects.get(name="by page").sha256
