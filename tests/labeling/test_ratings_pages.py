"""Rating on pages that need no script, and over the API."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Membership, Project, User
from apps.labeling.models import (
    Answer,
    LabelingSettings,
    Prompt,
    Response,
    Skip,
    Slot,
    Task,
    TaskItem,
)
from apps.labeling.services import comparisons_import
from apps.labeling.services.results import RowsRefused
from apps.labeling.services.task_rows import tasks_import
from tests.labeling.pairs import rate, task_rows, tasks_make

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]


def fields_of(page: str) -> dict[str, str]:
    """What a browser without script would send of the form's hidden fields."""
    form = page.split("data-rating")[1].split("</form>")[0]
    return dict(re.findall(r'type="hidden" name="([a-z_]+)" value="([^"]*)"', form))


def at(name: str, **args: Any) -> str:
    return reverse(f"labeling:{name}", kwargs={"slug": "arguments", **args})


def test_ana_rates_a_task_by_form_alone(project: Project, ana: User, signed_in: SignIn) -> None:
    tasks_make(project, n=2, overlap=1)
    client = signed_in(ana)
    page = client.get(at("label")).content.decode()
    assert page.count('type="radio"') == 3 * 7
    assert "Grade 3 answers" in page
    sent = fields_of(page) | {"value-1": "7", "value-2": "1", "value-3": "4", "note": "a\r\nb"}
    answer = client.post(at("rate_submit"), sent)
    assert (answer.status_code, answer["Location"]) == (302, at("label"))
    rating = Answer.objects.get()
    assert [rating.values[place - 1] for place in rating.shown] == [7, 1, 4]
    assert (rating.rationale, rating.source) == ("a\nb", "page")
    assert "task 2 today" in client.get(at("label")).content.decode()
    assert client.post(at("rate_submit"), sent).status_code == 302  # sent twice, stored once
    assert Answer.objects.count() == 1


def test_what_is_missing_is_named_and_what_was_typed_is_kept(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    tasks_make(project)
    client = signed_in(ana)
    sent = fields_of(client.get(at("label")).content.decode())
    answer = client.post(at("rate_submit"), sent | {"value-1": "6", "note": "half a thought"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert answer.context["notice"].startswith("Answer B ")
    assert re.search(r'name="value-1" value="6" data-key="6" checked', page)
    assert page.count(" checked required") == 1
    assert "half a thought" in page
    for bad in ("99", "x", "-", "1" * 40):
        values = {f"value-{n}": bad for n in (1, 2, 3)}
        assert client.post(at("rate_submit"), sent | values).status_code == 400
    assert not Answer.objects.exists()


def test_a_task_that_others_have_now_is_said_and_the_next_one_shown(
    project: Project, ana: User, ben: User, signed_in: SignIn
) -> None:
    tasks_make(project, n=1, overlap=1, settings={"overlap": 1, "max_overlap": 1})
    client = signed_in(ana)
    sent = fields_of(client.get(at("label")).content.decode())
    Slot.objects.update(annotator=ben)
    answer = client.post(at("rate_submit"), sent | {f"value-{n}": "3" for n in (1, 2, 3)})
    assert answer.status_code == 409
    assert answer.context["notice"]
    assert 'data-nothing="held"' in answer.content.decode()


def test_a_skip_needs_no_rating_and_brings_the_next(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    tasks_make(project, n=1)
    client = signed_in(ana)
    sent = fields_of(client.get(at("label")).content.decode()) | {"reason": "Not my subject"}
    assert client.post(at("rate_skip"), sent).status_code == 302
    assert Skip.objects.get().reason == "Not my subject"
    assert 'data-nothing="yours_done"' in client.get(at("label")).content.decode()


def test_ana_changes_a_rating_of_hers_and_nobody_else_can_see_it(
    project: Project, ana: User, ben: User, signed_in: SignIn
) -> None:
    tasks_make(project, n=1)
    rating = rate(project, ana, [1, 2, 3]).vote
    client = signed_in(ana)
    assert "Question 1" in client.get(at("ratings_mine")).content.decode()
    assert "No rating matches" in client.get(at("ratings_mine"), {"q": "zebra"}).content.decode()
    url = at("rating_change", rating_id=rating.pk)
    page = client.get(url).content.decode()
    shown = [rating.values[place - 1] for place in rating.shown]
    assert [int(v) for v in re.findall(r'value="(\d)" data-key="\d" checked', page)] == shown
    sent = fields_of(page) | {f"value-{n}": "5" for n in (1, 2, 3)}
    assert client.post(url, sent | {"value-2": ""}).status_code == 400
    assert client.post(url, sent).status_code == 302
    changed = Answer.objects.get(is_current=True)
    assert changed.values == [5, 5, 5]
    assert client.get(url).status_code == 404  # the old revision is history
    url = at("rating_change", rating_id=changed.pk)
    others = signed_in(ben)
    assert [client.get(url).status_code, others.get(url).status_code] == [200, 404]
    assert 'data-empty="history"' in others.get(at("ratings_mine")).content.decode()


@pytest.mark.parametrize(("person", "link"), [("ana", "ratings_mine"), ("ada", "rating_tasks")])
def test_ratings_are_named_only_where_there_are_some(
    project: Project, ana: User, ada: User, signed_in: SignIn, person: str, link: str
) -> None:
    client = signed_in({"ana": ana, "ada": ada}[person])
    assert f'href="{at(link)}"' not in client.get(at("answers")).content.decode()
    tasks_make(project)
    assert f'href="{at(link)}"' in client.get(at("answers")).content.decode()


def test_a_paused_person_reads_why_and_gets_no_task(
    project: Project, ana: User, signed_in: SignIn
) -> None:
    tasks_make(project)
    Membership.objects.filter(user=ana).update(paused_reason="a holiday")
    page = signed_in(ana).get(at("label")).content.decode()
    assert "a holiday" in page
    assert "Question" not in page


def test_readers_sort_tasks_by_spread_and_names_are_for_admins(
    project: Project, ana: User, ben: User, ada: User, rita: User, signed_in: SignIn
) -> None:
    flat, wide = tasks_make(project, n=2, k=2, settings={"random_share": 0.001})
    Slot.objects.filter(task=flat).update(priority=1)
    for who in (ana, ben):
        rate(project, who, [4, 4])
        rate(project, who, [1, 7])
    admin, reader = signed_in(ada), signed_in(rita)
    page = reader.get(at("rating_tasks"), {"sort": "spread"}).content.decode()
    assert page.index(at("rating_task", task_id=wide.pk)) < page.index(
        at("rating_task", task_id=flat.pk)
    )
    assert "4.24" in page  # the standard deviation of 1 and 7
    task_page = at("rating_task", task_id=wide.pk)
    assert ">Ana<" in admin.get(task_page).content.decode()
    blind = reader.get(task_page).content.decode()
    assert (">Ana<" in blind, "annotator 1" in blind) == (False, True)
    answer = admin.post(at("rating_task_state", task_id=wide.pk), {"action": "drop"}, follow=True)
    assert "Put back" in answer.content.decode()
    assert Task.objects.get(pk=wide.pk).state == "dropped"
    filtered = reader.get(at("rating_tasks"), {"kind": "ranking"}).content.decode()
    assert 'data-empty="funnel"' in filtered


def test_a_whole_round_by_api(
    project: Project, ana: User, emil: User, rita: User, signed_in: SignIn
) -> None:
    def call(user: User, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = signed_in(user).generic(
            method, f"/api/v1{path}", json.dumps(body or {}), content_type="application/json"
        )
        return answer.status_code, answer.json()

    rows = [
        {"id": "r", "prompt": "Which?", "responses": ["One.", "Two.", "Three."], "kind": "ranking"}
    ]
    status, report = call(emil, "POST", "/projects/arguments/ratings/import", {"rows": rows})
    assert (status, report["n_created"], report["n_slots"]) == (201, 1, 3)
    status, refused = call(emil, "POST", "/projects/arguments/ratings/import", {"rows": [{}]})
    assert (status, refused["code"], refused["row"]) == (400, "rows_invalid", 1)

    task = call(ana, "POST", "/projects/arguments/ratings/next")[1]["task"]
    assert set(task) == {
        "slot",
        "task",
        "kind",
        "key",
        "prompt",
        "responses",
        "scale",
        "leased_until",
    }
    order = ["One.", "Two.", "Three."]
    ranks = [order.index(messages[0]["content"]) + 1 for messages in task["responses"]]
    body = {"values": ranks, "idempotency_key": task["key"]}
    status, rated = call(ana, "POST", f"/rating-slots/{task['slot']}/rating", body)
    assert (status, rated["replayed"], rated["nothing"]["code"]) == (200, False, "yours_done")
    assert call(ana, "POST", f"/rating-slots/{task['slot']}/rating", body)[1]["replayed"]
    status, revised = call(
        ana, "POST", f"/ratings/{rated['rating']}/revise", {"values": ranks, "idempotency_key": "2"}
    )
    assert (status, revised["revision"]) == (200, 2)
    (item,) = call(rita, "GET", "/projects/arguments/ratings")[1]["items"]
    assert (item["means"], item["n_ratings"], item["between_raters"]) == ([1, 0.5, 0], 1, None)
    assert item["pairs"][0] == {"a": 1, "b": 2, "n_a": 1, "n_b": 0, "n_tie": 0}
    page = call(rita, "GET", f"/projects/arguments/ratings?before={item['task']}")[1]
    assert page == {"items": [], "before": None}


# Rating tasks are imported whole or not at all; each problem names its row and field.


ROW: dict[str, Any] = {"prompt": "Which?", "responses": ["This.", "That."]}


def problems_of(project: Project, *rows: Any) -> list[tuple[int, str, str]]:
    with pytest.raises(RowsRefused) as refused:
        tasks_import(project=project, rows=rows)
    assert not Task.objects.exists()
    assert not Prompt.objects.exists()
    return [(one.row, one.field, one.message) for one in refused.value.problems]


def test_rows_become_tasks_with_items_in_order_and_slots(project: Project) -> None:
    report = tasks_import(project=project, rows=task_rows(3, k=4, overlap=2, topic="time"))
    assert (report.n_rows, report.n_created, report.n_unchanged, report.n_refused) == (3, 3, 0, 0)
    assert (report.n_prompts, report.n_responses, report.n_slots) == (3, 12, 6)
    assert (report.n_review, report.problems, report.warnings) == (0, [], [])
    task = Task.objects.get(external_id="task-2")
    items = task.items.order_by("position").select_related("response")
    assert [item.response.messages[0]["content"][:8] for item in items] == [
        "Answer 1",
        "Answer 2",
        "Answer 3",
        "Answer 4",
    ]
    assert (task.low, task.high, task.overlap, task.prompt.group_key) == (1, 7, 2, "time")


def test_the_same_rows_again_change_nothing(project: Project) -> None:
    named, nameless = task_rows(1), [ROW, {**ROW, "responses": ["That.", "This."]}]
    assert tasks_import(project=project, rows=named + nameless).n_created == 2
    again = tasks_import(project=project, rows=named + nameless)
    assert (again.n_created, again.n_unchanged, again.n_prompts) == (0, 3, 0)
    assert Task.objects.count() == 2


def test_prompts_and_responses_are_shared_with_comparisons(project: Project) -> None:
    pair = {"prompt": "Which?", "response_a": "This.", "response_b": "That."}
    comparisons_import(project=project, rows=[pair])
    assert tasks_import(project=project, rows=[ROW]).as_dict()["n_responses"] == 0
    assert (Prompt.objects.count(), Response.objects.count()) == (1, 2)


def test_scales_models_and_rankings_are_kept(project: Project) -> None:
    scale = {"min": 0, "max": 10, "min_label": "useless", "max_label": "perfect"}
    answers = [{"text": "This.", "model": "m-1"}, [{"role": "assistant", "content": "That."}]]
    tasks_import(
        project=project,
        rows=[
            {**ROW, "id": "g", "scale": scale, "responses": answers},
            {**ROW, "id": 7, "kind": "ranking", "language": None},
        ],
    )
    graded, ranking = Task.objects.order_by("pk")
    assert (graded.low, graded.high, graded.high_label) == (0, 10, "perfect")
    assert (ranking.external_id, ranking.low, ranking.high) == ("7", 1, 2)
    first = TaskItem.objects.get(task=graded, position=1).response
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
    tasks_import(project=project, rows=[{**ROW, "id": "x"}])
    for change in ({"responses": ["This.", "Other."]}, {"kind": "ranking"}, {"scale": {"max": 5}}):
        with pytest.raises(RowsRefused, match="imported before"):
            tasks_import(project=project, rows=[{**ROW, "id": "x", **change}])
    assert Task.objects.count() == 1


def test_a_constraint_phrase_sends_a_task_to_review(project: Project) -> None:
    LabelingSettings.objects.create(project=project, constraint_phrases=["I love you"])
    report = tasks_import(
        project=project, rows=[ROW, {**ROW, "responses": ["Fine.", "Ｉ Ｌove… you!"]}]
    )
    assert (report.n_created, report.n_slots) == (2, 3)
    task = Task.objects.get(state="review")
    assert re.search("Response 2 .*“I love you”", task.review_reason)
    assert set(task.slots.values_list("state", flat=True)) == {"withdrawn"}


def test_the_place_in_the_queue_depends_on_the_row_alone(project: Project) -> None:
    rows = task_rows(5)
    tasks_import(project=project, rows=reversed(rows))
    places = dict(Task.objects.values_list("external_id", "slots__shuffle"))
    Task.objects.all().delete()
    tasks_import(project=project, rows=rows)
    assert dict(Task.objects.values_list("external_id", "slots__shuffle")) == places
    assert len(set(places.values())) == 5
