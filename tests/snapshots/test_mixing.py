"""Several datasets as one: weights, what is held out, where rows are from."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Membership, Project, User
from apps.common.errors import Conflict, Unprocessable
from apps.labeling.models import Comparison, Vote
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.selectors.lineage import vote_lineage
from apps.snapshots.services import freezing, mixing
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.services.mixing import Part
from apps.snapshots.storage import artifact_store, private_folder_of
from tests.training.conftest import wire  # noqa: F401 — a fixture

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("wire")]
Make = Callable[..., Snapshot]


def rows_of(snapshot: Snapshot, split: str = "train") -> list[dict[str, Any]]:
    return list(artifact_store().lines(f"{snapshot.uri}/{split}.jsonl"))


def private_rows(snapshot: Snapshot, split: str) -> list[dict[str, Any]]:
    return list(artifact_store().lines(f"{private_folder_of(snapshot.pk)}/{split}.jsonl"))


def asked(row: dict[str, Any]) -> str:
    return row["prompt"][-1]["content"]


def prompts(word: str, n: int, held: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{word} {k} {word * 3}", "split": "train" if k < n else "test", **more}
        for k in range(n + held)
    ]


@pytest.fixture
def make(project: Project, emil: User) -> Make:
    def made(name: str, rows: list[dict[str, Any]], **more: Any) -> Snapshot:
        given = {"project": project, "kind": "prompts", "user": emil} | more
        return snapshot_import(name=name, rows=rows, **given)

    return made


def mixed(project: Project, user: User, *parts: tuple[Snapshot, float], **more: Any) -> Snapshot:
    draft, _ = mixing.mixture_start(
        project=project, name="Mixed", parts=[Part(*one) for one in parts], user=user, **more
    )
    freezing.snapshot_run(snapshot=draft.pk)
    draft.refresh_from_db()
    assert draft.state == "frozen", draft.error
    return draft


def test_weights_are_shares_and_what_is_held_out_stays_so(
    project: Project, emil: User, make: Make
) -> None:
    sums, words = make("Sums", prompts("sum", 40, 5)), make("Words", prompts("word", 90, 7))
    made = mixed(project, emil, (sums, 1), (words, 2))
    assert made.counts["rows"] == made.counts["groups"] == {"train": 120, "public_test": 12}
    assert Counter(row["part"] for row in rows_of(made)) == {sums.pk: 40, words.pk: 80}
    assert made.counts["dropped"] == {"of Words: not drawn": 10}
    again = mixed(project, emil, (sums, 1), (words, 2))
    assert again.sha256 == made.sha256
    assert freezing.snapshot_verify(snapshot=made).ok


def test_a_small_part_recurs_where_that_was_asked_for(
    project: Project, emil: User, make: Make
) -> None:
    few, many = make("Few", prompts("few", 10, 2)), make("Many", prompts("many", 50, 2))
    made = mixed(project, emil, (few, 1), (many, 2), repeat=True)
    times = Counter(Counter(asked(row) for row in rows_of(made)).values())
    assert made.counts["rows"]["train"] == 75
    assert times == {1: 50, 2: 5, 3: 5}
    with pytest.raises(Unprocessable) as refused:
        mixed(project, emil, (few, 50), (many, 1), repeat=True)
    assert refused.value.code == "too_many_repeats"


def test_no_part_trains_on_what_another_holds_out(project: Project, emil: User, make: Make) -> None:
    first = make("First", prompts("shared", 8, 2))
    rows = [{"prompt": asked(row), "split": "train"} for row in rows_of(first, "public_test")]
    second = make("Second", [*rows, *prompts("own", 6, 2)])
    made = mixed(project, emil, (first, 4), (second, 3))
    told = made.counts["dropped"]
    assert told["of Second: its prompt is held out"] == 2
    trained = {asked(row) for row in rows_of(made)}
    assert not trained & {asked(row) for row in rows_of(made, "public_test")}


def test_what_a_part_keeps_private_is_not_trained_on_either(
    project: Project, emil: User, make: Make, crowd: list[Comparison]
) -> None:
    recipe = SnapshotRecipe(splits={"train": 0.5, "private_test": 0.5})
    voted = freezing.snapshot_freeze(project=project, name="Voted", recipe=recipe, user=emil)
    private = {row["prompt"][-1]["content"] for row in private_rows(voted, "private_test")}
    rows = [
        {"prompt": text, "response_a": f"yes {n}", "response_b": f"no {n}", "gold": "a"}
        for n, text in enumerate([*sorted(private), *(f"Which {n}?" for n in range(9))])
    ]
    other = make("Other", [row | {"split": "train"} for row in rows], kind="preferences")
    made = mixed(project, emil, (voted, 1), (other, 1))
    assert made.counts["dropped"]["of Other: its prompt is held out"] == len(private) > 0
    assert not private & {asked(row) for row in rows_of(made)}
    assert made.counts["warnings"]


def test_columns_of_the_parts_are_brought_together(
    project: Project, emil: User, make: Make
) -> None:
    sums = make("Sums", prompts("sum", 4, 2, answer="4"))
    words = make("Words", prompts("word", 4, 2))
    made = mixed(project, emil, (sums, 1), (words, 1))
    columns = {tuple(row) for split in made.counts["rows"] for row in rows_of(made, split)}
    assert len(columns) == 1
    assert Counter(row["answer"] for row in rows_of(made)) == {"4": 4, None: 4}


@pytest.mark.parametrize(
    ("pick", "code"),
    [
        (lambda a, b, c: [Part(a)], "wrong_number"),
        (lambda a, b, c: [Part(a), Part(a)], "repeated_part"),
        (lambda a, b, c: [Part(a), Part(c)], "mixed_kinds"),
        (lambda a, b, c: [Part(a), Part(b, 0)], "bad_weight"),
        (lambda a, b, c: [Part(a), Part(b, float("nan"))], "bad_weight"),
        (lambda a, b, c: [Part(a, 1e-6), Part(b, 1e6)], "empty_part"),
    ],
)
def test_what_cannot_be_mixed_is_refused_before_anything_is_stored(
    project: Project, emil: User, make: Make, pick: Any, code: str
) -> None:
    a, b = make("A", prompts("a", 4, 2)), make("B", prompts("b", 4, 2))
    said = [{"prompt": f"Say {n}", "response": f"{n}"} for n in range(9)]
    c = make("C", said, kind="demonstrations")
    with pytest.raises(Unprocessable) as refused:
        mixing.mixture_start(project=project, name="M", parts=pick(a, b, c), user=emil)
    assert (refused.value.code, refused.value.field) == (code, "parts")
    assert Snapshot.objects.count() == 3


def test_votes_are_traced_through_a_mixture(
    project: Project, emil: User, make: Make, crowd: list[Comparison]
) -> None:
    recipe = SnapshotRecipe(heldout_annotators=0.2, splits={"train": 0.6, "public_test": 0.4})
    voted = freezing.snapshot_freeze(project=project, name="Voted", recipe=recipe, user=emil)
    pairs = [
        {"prompt": f"Which {n}?", "response_a": f"yes {n}", "response_b": f"no {n}", "gold": "a"}
        for n in range(40)
    ]
    elsewhere = make("Elsewhere", pairs, kind="preferences")
    made = mixed(project, emil, (voted, 1), (elsewhere, 1))
    assert made.is_imported
    assert not made.is_decided
    rows = rows_of(made)
    fates = list(SnapshotRow.objects.filter(snapshot=made, split="train").order_by("ordinal"))
    assert fates
    for fate in fates:
        assert rows[fate.ordinal]["comparison"] == str(fate.comparison_id)
    found = vote_lineage(Vote.objects.get(pk=fates[0].vote_ids[0]))
    assert made.pk in {row.snapshot_id for row in found.trained_on}
    assert "heldout_annotators" not in made.counts["rows"]
    assert made.counts["warnings"]


def test_a_dataset_of_another_project_needs_an_admin_of_both(
    project: Project, emil: User, ada: User, make: Make
) -> None:
    other = Project.objects.create(slug="other", name="Other")
    foreign = make("Foreign", prompts("foreign", 8, 2), project=other)
    with pytest.raises(Unprocessable) as refused:
        mixing.parts_from(project=project, user=emil, given=[(foreign.pk, 1)])
    assert refused.value.code == "no_such_part"
    with pytest.raises(Unprocessable):  # admin here alone
        mixing.parts_from(project=project, user=ada, given=[(foreign.pk, 1)])
    Membership.objects.update_or_create(user=ada, project=other, defaults={"role": "admin"})
    here = asked(rows_of(foreign)[0])
    make("Held out here", [{"prompt": here, "split": "test"}, *prompts("own", 4, 1)])
    parts = mixing.parts_from(project=project, user=ada, given=[(foreign.pk, 1)])
    made = mixed(project, ada, (parts[0].snapshot, 1))
    assert made.is_imported
    assert rows_of(made)[0]["part"] == foreign.pk
    assert here not in {asked(row) for row in rows_of(made)}


def test_the_page_shows_what_each_gives_and_starts_it(
    project: Project, emil: User, make: Make, client: Client
) -> None:
    sums, words = make("Sums", prompts("sum", 40, 5)), make("Words", prompts("word", 90, 7))
    client.force_login(emil)
    address = f"/p/{project.slug}/datasets/mix/"
    chosen = {"kind": "prompts", "pick": [sums.pk, words.pk], f"weight_{words.pk}": "2"}
    assert [line.snapshot for line in client.get(address).context["lines"]] == [words, sums]
    shown = client.post(address, chosen | {"action": "preview"})
    assert shown.context["total"] == 120
    for bad in ("", "many", "-1"):
        answer = client.post(address, chosen | {f"weight_{sums.pk}": bad or "nan", "name": "M"})
        assert answer.status_code == 422
    assert client.post(address, chosen | {"name": ""}).status_code == 422
    answer = client.post(address, chosen | {"name": "M"})
    made = Snapshot.objects.get(name="M")
    assert answer["Location"].endswith(f"/datasets/{made.pk}/")
    freezing.snapshot_run(snapshot=made.pk)
    page = client.get(answer["Location"]).content.decode()
    assert "Sums" in page
    assert "33" in page


def test_a_mixture_whose_part_has_gone_fails_in_words_and_can_be_tried_again(
    project: Project, emil: User, make: Make
) -> None:
    a, b = make("A", prompts("a", 4, 2)), make("B", prompts("b", 4, 2))
    draft, _ = mixing.mixture_start(project=project, name="M", parts=[Part(a), Part(b)], user=emil)
    held = b.uri
    artifact_store().delete_tree(held)
    freezing.snapshot_run(snapshot=draft.pk)
    draft.refresh_from_db()
    assert draft.state == "failed"
    assert draft.error
    again, _ = freezing.snapshot_start_again(snapshot=draft, user=emil)
    assert again.recipe == draft.recipe
    with pytest.raises(Conflict):
        freezing.snapshot_start_again(snapshot=again, user=emil)


def test_by_api(project: Project, emil: User, make: Make, client: Client) -> None:
    a, b = make("A", prompts("a", 4, 2)), make("B", prompts("b", 4, 2))
    client.force_login(emil)
    body = {"name": "M", "parts": [{"snapshot": a.pk}, {"snapshot": b.pk, "weight": 3}]}
    answer = client.post(
        f"/api/v1/projects/{project.slug}/snapshots/mixtures", json.dumps(body), "application/json"
    )
    assert answer.status_code == 202, answer.content
    assert answer.json()["state"] == "draft"
