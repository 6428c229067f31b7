"""Rating tasks are imported whole or not at all; each problem names its row and field."""

from typing import Any

import pytest

from apps.accounts.models import Project
from apps.labeling.models import LabelingSettings, Prompt, RatingItem, RatingTask, Response
from apps.labeling.services import comparisons_import
from apps.labeling.services.ratings import ratings_import
from apps.labeling.services.results import RowsRefused
from tests.labeling.rating_tasks import task_rows

pytestmark = pytest.mark.django_db
ROW: dict[str, Any] = {"prompt": "Which?", "responses": ["This.", "That."]}


def problems_of(project: Project, *rows: Any) -> list[tuple[int, str, str]]:
    with pytest.raises(RowsRefused) as refused:
        ratings_import(project=project, rows=rows)
    assert not RatingTask.objects.exists()
    assert not Prompt.objects.exists()
    return [(one.row, one.field, one.message) for one in refused.value.problems]


def test_rows_become_tasks_with_items_in_order_and_slots(project: Project) -> None:
    report = ratings_import(project=project, rows=task_rows(3, k=4, overlap=2, topic="time"))
    assert report.as_dict() == {
        "n_rows": 3, "n_created": 3, "n_unchanged": 0, "n_prompts": 3, "n_responses": 12,
        "n_slots": 6,
    }  # fmt: skip
    task = RatingTask.objects.get(external_id="task-2")
    items = task.items.order_by("position").select_related("response")
    assert [item.response.messages[0]["content"][:8] for item in items] == [
        "Answer 1", "Answer 2", "Answer 3", "Answer 4",
    ]  # fmt: skip
    assert (task.low, task.high, task.overlap, task.prompt.group_key) == (1, 7, 2, "time")


def test_the_same_rows_again_change_nothing(project: Project) -> None:
    named, nameless = task_rows(1), [ROW, {**ROW, "responses": ["That.", "This."]}]
    assert ratings_import(project=project, rows=named + nameless).n_created == 2
    again = ratings_import(project=project, rows=named + nameless)
    assert (again.n_created, again.n_unchanged, again.n_prompts) == (0, 3, 0)
    assert RatingTask.objects.count() == 2


def test_prompts_and_responses_are_shared_with_comparisons(project: Project) -> None:
    pair = {"prompt": "Which?", "response_a": "This.", "response_b": "That."}
    comparisons_import(project=project, rows=[pair])
    assert ratings_import(project=project, rows=[ROW]).as_dict()["n_responses"] == 0
    assert (Prompt.objects.count(), Response.objects.count()) == (1, 2)


def test_scales_models_and_rankings_are_kept(project: Project) -> None:
    scale = {"min": 0, "max": 10, "min_label": "useless", "max_label": "perfect"}
    answers = [{"text": "This.", "model": "m-1"}, [{"role": "assistant", "content": "That."}]]
    ratings_import(
        project=project,
        rows=[
            {**ROW, "id": "g", "scale": scale, "responses": answers},
            {**ROW, "id": 7, "kind": "ranking", "language": None},
        ],
    )
    graded, ranking = RatingTask.objects.order_by("pk")
    assert (graded.low, graded.high, graded.high_label) == (0, 10, "perfect")
    assert (ranking.external_id, ranking.low, ranking.high) == ("7", 1, 2)
    first = RatingItem.objects.get(task=graded, position=1).response
    assert (first.origin, first.origin_ref) == ("model", "m-1")


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"prompt": None}, "prompt", "required"),
        ({"prompt": "  "}, "prompt", "empty"),
        ({"responses": []}, "responses", "at least 1"),
        ({"responses": [str(n) for n in range(10)]}, "responses", "at most 9"),
        ({"responses": ["One.", {"text": 3}]}, "responses.2.text", "must be a text"),
        ({"responses": ["One.", {"text": "x", "txt": "x"}]}, "responses.2.txt", "not permitted"),
        ({"responses": ["One.", "One. "]}, "responses", "same text as number 1"),
        ({"kind": "ranking", "responses": ["One."]}, "responses", "at least two"),
        ({"kind": "ranking", "scale": {"max": 5}}, "scale", "a ranking has none"),
        ({"kind": "stars"}, "kind", "graded"),
        ({"scale": {"min": 5, "max": 5}}, "scale", "2 to 11 points"),
        ({"scale": {"min": 0, "max": 11}}, "scale", "2 to 11 points"),
        ({"scale": {"max": 4.5}}, "scale.max", "integer"),
        ({"scale": {"min_label": "x" * 41}}, "scale.min_label", "at most 40"),
        ({"overlap": 0}, "overlap", "greater"),
        ({"overlap": True}, "overlap", "integer"),
        ({"priority": float("nan")}, "priority", "finite"),
        ({"topic": "a\x00b"}, "topic", "NUL"),
        ({"typo": 1}, "typo", "not permitted"),
    ],
)
def test_a_bad_field_is_named(
    project: Project, change: dict[str, Any], field: str, words: str
) -> None:
    ((row, where, message),) = problems_of(project, {**ROW, "id": "fine"}, {**ROW, **change})
    assert (row, where) == (2, field)
    assert words in message


def test_every_bad_row_is_listed_and_nothing_is_imported(project: Project) -> None:
    found = problems_of(
        project, {**ROW, "id": "x"}, "no object", {**ROW, "id": "x", "topic": "t"}, {"prompt": "P"}
    )
    assert [(row, field) for row, field, _ in found] == [(2, "row"), (3, "id"), (4, "responses")]


def test_a_known_id_for_another_task_is_an_error(project: Project) -> None:
    ratings_import(project=project, rows=[{**ROW, "id": "x"}])
    for change in ({"responses": ["This.", "Other."]}, {"kind": "ranking"}, {"scale": {"max": 5}}):
        with pytest.raises(RowsRefused, match="imported before"):
            ratings_import(project=project, rows=[{**ROW, "id": "x", **change}])
    assert RatingTask.objects.count() == 1


def test_a_constraint_phrase_sends_a_task_to_review(project: Project) -> None:
    LabelingSettings.objects.create(project=project, constraint_phrases=["I love you"])
    report = ratings_import(
        project=project, rows=[ROW, {**ROW, "responses": ["Fine.", "Ｉ Ｌove… you!"]}]
    )
    assert (report.n_created, report.n_slots) == (2, 3)
    task = RatingTask.objects.get(state="review")
    assert task.review_reason == "Response 2 holds the constraint phrase “I love you”"
    assert set(task.slots.values_list("state", flat=True)) == {"withdrawn"}


def test_the_place_in_the_queue_depends_on_the_row_alone(project: Project) -> None:
    rows = task_rows(5)
    ratings_import(project=project, rows=reversed(rows))
    places = dict(RatingTask.objects.values_list("external_id", "slots__shuffle"))
    RatingTask.objects.all().delete()
    ratings_import(project=project, rows=rows)
    assert dict(RatingTask.objects.values_list("external_id", "slots__shuffle")) == places
    assert len(set(places.values())) == 5
