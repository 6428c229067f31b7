"""Files with several answers to a prompt: ranked or graded together, as the project or the import
says; checked, brought in once, undone."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common import registry
from apps.common.errors import DomainError
from apps.labeling import dispatch, services
from apps.labeling.models import (
    Comparison,
    ImportJob,
    LabelingSettings,
    Prompt,
    Response,
    Slot,
    Task,
    TaskItem,
)
from tests.labeling.pairs import checked, imported, rating_leased, upload

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("inline_parsing")]
SignedIn = Callable[[User], Client]
ROOT = "/p/arguments/imports/"


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes messages to the workers here but the test itself."""
    monkeypatch.setattr(dispatch, "import_send", lambda job: True)


def rows(n: int = 3, k: int = 4) -> list[dict[str, Any]]:
    """Prompts with answers of a model each, as UltraFeedback has them, and a column more."""
    return [
        {
            "id": f"q{number}",
            "instruction": f"Question {number}: how long is a day?",
            "completions": [
                {"model": f"model-{m}", "response": f"Answer {m} to {number}.", "overall_score": m}
                for m in range(1, k + 1)
            ],
            "difficulty": number,
        }
        for number in range(1, n + 1)
    ]


def test_all_answers_of_a_row_become_one_ranking(project: Project, ada: User) -> None:
    job = upload(project, ada, *rows())
    services.import_job_configure(job=job, pairing="rank")
    assert job.preview["rows"][0]["answers"][0] == "Answer 1 to 1."
    report = checked(job).check_report
    assert (report["kind"], report["n_created"], report["n_refused"]) == ("rank", 3, 0)
    assert not Task.objects.exists()
    result = imported(job).result
    assert (result["n_created"], result["n_responses"], result["n_slots"]) == (3, 12, 9)
    task = Task.objects.get(external_id="q2")
    assert (task.kind, task.low, task.high, task.metadata) == ("rank", 1, 4, {"difficulty": 2})
    items = task.items.select_related("response").order_by("position")
    assert [(i.response.origin, i.response.origin_ref) for i in items] == [
        ("model", f"model-{m}") for m in range(1, 5)
    ]
    again = upload(project, ada, *rows())
    services.import_job_configure(job=again, pairing="rank")
    assert checked(again).check_report["n_unchanged"] == 3


def test_settings_that_do_not_say_how_answers_are_judged_leave_it_to_the_project(
    project: Project, ada: User
) -> None:
    services.labeling_settings_update(project=project, by=ada, task_kind="rank")
    job = upload(project, ada, *rows())
    services.import_job_configure(job=job, seed=7)
    assert job.settings["pairing"] == "rank"
    services.import_job_configure(job=job, pairing="all")
    assert job.settings["pairing"] == "all"


def test_a_project_of_gradings_has_its_scale_in_every_import(project: Project, ada: User) -> None:
    services.labeling_settings_update(
        project=project,
        by=ada,
        task_kind="grade",
        grade_low=0,
        grade_high=10,
        grade_high_label="perfect",
    )
    imported(checked(upload(project, ada, *rows(2))))
    tasks = Task.objects.values_list("kind", "low", "high", "high_label")
    assert set(tasks) == {("grade", 0, 10, "perfect")}
    lease = rating_leased(project, ada)
    assert (lease.kind, len(lease.responses)) == ("grade", 4)


def test_rows_that_cannot_be_judged_together_are_named(project: Project, ada: User) -> None:
    long, twice = rows(2, k=10)[1], rows(3)[2]
    twice["completions"][1]["response"] = twice["completions"][0]["response"]
    job = upload(project, ada, rows(1)[0], long, twice)
    services.import_job_configure(job=job, pairing="rank")
    report = checked(job).check_report
    assert (report["n_created"], report["n_refused"]) == (1, 2)
    assert imported(job, "skip").result["n_refused"] == 2
    assert list(Task.objects.values_list("external_id", flat=True)) == ["q1"]


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"pairing": "sorted"}, "pairing"),
        ({"pairing": "grade", "grade_low": 5, "grade_high": 5}, "grade_high"),
        ({"pairing": "grade", "grade_low": 1, "grade_high": 100}, "grade_high"),
        ({"pairing": "grade", "grade_low": "one"}, "grade_low"),
    ],
)
def test_what_is_no_scale_is_refused_at_its_field(
    project: Project, ada: User, chosen: dict[str, Any], field: str
) -> None:
    job = upload(project, ada, *rows(1))
    with pytest.raises(DomainError) as refused:
        services.import_job_configure(job=job, **chosen)
    assert refused.value.field == field
    assert ImportJob.objects.get(pk=job.pk).settings == {}


def test_an_import_of_rankings_is_undone_whole(project: Project, ada: User) -> None:
    job = upload(project, ada, *rows())
    services.import_job_configure(job=job, pairing="rank")
    imported(checked(job))
    services.import_people_set(job=job, people=[ada.pk], by=ada)
    services.import_job_undo(job=job, by=ada)
    for model in (Task, TaskItem, Slot, Prompt, Response):
        assert not model.objects.exists(), model


def test_the_page_offers_every_way_and_keeps_what_was_chosen(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    browser, job = signed_in(ada), upload(project, ada, *rows())
    page = browser.get(f"{ROOT}{job.pk}/")
    form = page.context["form"]
    offered = {value for value, _ in form.fields["pairing"].choices}
    assert {"all", "best_worst", "rank", "grade"} <= offered
    given = {name: form[name].value() for name in form.fields} | {"pairing": "grade"}
    sent = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    answer = browser.post(f"{ROOT}{job.pk}/settings/", sent | {"action": "check", "grade_high": 5})
    assert answer.status_code == 302, answer.context["form"].errors
    services.import_job_run(job=job.pk)
    page = browser.get(f"{ROOT}{job.pk}/")
    assert (page.context["noun"], page.context["report"]["n_created"]) == ("grading", 3)
    start = {"action": "start", "on_error": "refuse"}
    assert browser.post(f"{ROOT}{job.pk}/do/", start).status_code == 302
    services.import_job_run(job=job.pk)
    page = browser.get(f"{ROOT}{job.pk}/")
    assert page.context["n_brought"] == 3
    assert browser.get(f"/p/arguments/ratings/{Task.objects.first().pk}/").status_code == 200
    assert set(Task.objects.values_list("kind", "high")) == {("grade", 5)}
    assert not Comparison.objects.exists()


def test_a_new_project_is_asked_what_people_do(ada: User, signed_in: SignedIn) -> None:
    browser = signed_in(ada)
    [question] = registry.project_questions()
    assert list(question.choices()) == ["pair", "rank", "grade"]
    sent = {"name": "Ranks", "description": "", "copy_of": "", "task_kind": "rank"}
    assert browser.post("/projects/new/", sent).status_code == 302
    made = Project.objects.get(name="Ranks")
    assert LabelingSettings.objects.get(project=made).task_kind == "rank"
    assert browser.post("/projects/new/", sent | {"name": "Pairs", "task_kind": "pair"})
    assert not LabelingSettings.objects.filter(project__name="Pairs").exists()
    assert browser.post("/projects/new/", sent | {"task_kind": "essay"}).status_code == 422


def kind_of(name: str) -> str:
    return LabelingSettings.objects.get(project__name=name).task_kind


def test_a_copied_project_keeps_its_kind_of_task_which_the_form_shows_and_can_change(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    services.labeling_settings_update(project=project, by=ada, task_kind="rank")
    browser = signed_in(ada)
    fields = browser.get("/projects/new/").context["form"].fields
    kinds = fields["task_kind"].choices
    words = dict(kinds)
    assert kinds[0][0] == fields["task_kind"].initial == ""
    shown = dict(fields["copy_of"].choices)
    assert words["rank"] in shown[project.slug]
    assert words["pair"] in shown[""]
    sent = {"description": "", "copy_of": project.slug}
    for name, kind in (("Same", ""), ("Pairs", "pair"), ("Grades", "grade")):
        assert browser.post("/projects/new/", sent | {"name": name, "task_kind": kind})
    assert [kind_of(name) for name in ("Same", "Pairs", "Grades")] == ["rank", "pair", "grade"]


def test_the_api_copies_the_kind_of_task_too_and_takes_another(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    services.labeling_settings_update(project=project, by=ada, task_kind="grade")
    browser = signed_in(ada)

    def create(name: str, **answers: str) -> Any:
        body = {"name": name, "copy_of": project.slug, "answers": answers}
        return browser.post("/api/v1/projects", body, content_type="application/json")

    assert create("Same").status_code == create("Ranks", task_kind="rank").status_code == 201
    assert (kind_of("Same"), kind_of("Ranks")) == ("grade", "rank")
    for name, bad in (("task_kind", "essay"), ("colour", "pair")):
        refused = create("Odd", **{name: bad})
        assert refused.status_code in (400, 422)
        assert name in refused.content.decode()
    assert not Project.objects.filter(name="Odd").exists()
