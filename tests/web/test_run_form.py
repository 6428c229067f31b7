"""Launching a run from its form."""

import json

import pytest
from django.utils import timezone

from apps.snapshots.models import Snapshot
from apps.training.forms import RunForm
from apps.training.models import Run
from tests.web.runs import run_make
from workers.contract.recipes import recipe_fields, recipe_presets


def fields_of(form: RunForm) -> dict[str, str]:
    """What a browser would send for a form nobody touched."""
    sent = {}
    for bound in form:
        value = bound.value()
        if value is True:
            sent[bound.html_name] = "on"
        elif value is not None and value is not False:
            sent[bound.html_name] = str(value)
    return sent


@pytest.fixture
def pairs(project):
    return Snapshot.objects.create(
        project=project,
        name="pairs",
        kind="preferences",
        state="frozen",
        uri="snapshots/x",
        sha256="0" * 64,
        frozen_at=timezone.now(),
    )


@pytest.fixture
def open_form(project, emil, signed_in):
    client = signed_in(emil)

    def open_(kind: str, query: str = ""):
        page = client.get(f"/p/arguments/runs/new/{kind}/{query}")
        assert page.status_code == 200
        return client, fields_of(page.context["form"]), page

    return open_


@pytest.mark.parametrize("kind", ["sft", "reward", "dpo", "ppo", "generate", "evaluate", "drill"])
def test_every_kind_has_a_form_with_every_field_of_its_recipe(open_form, kind):
    _, sent, page = open_form(kind)
    text = page.content.decode()
    for field in recipe_fields(kind):
        assert f'name="c_{field.name}"' in text
    assert sent["name"] == f"{kind}-1"


def test_an_untouched_drill_is_launched_with_every_default_written_down(open_form, project, emil):
    client, sent, _ = open_form("drill")
    answer = client.post("/p/arguments/runs/new/drill/", sent)
    run = Run.objects.get()
    assert answer.url == f"/p/arguments/runs/{run.pk}/"
    assert (run.kind, run.created_by) == ("drill", emil)
    assert run.config == {
        field.name: field.default for field in recipe_fields("drill") if field.default is not None
    }


def test_a_double_click_launches_once(open_form):
    client, sent, _ = open_form("drill")
    first = client.post("/p/arguments/runs/new/drill/", sent)
    second = client.post("/p/arguments/runs/new/drill/", sent)
    assert first.url == second.url
    assert Run.objects.count() == 1


def test_a_wrong_value_is_marked_at_its_field_kept_and_nothing_is_launched(open_form):
    client, sent, _ = open_form("drill")
    answer = client.post(
        "/p/arguments/runs/new/drill/", sent | {"c_steps": "0", "name": "my drill"}
    )
    text = answer.content.decode()
    assert answer.status_code == 422
    assert "greater than or equal to 1" in text
    assert 'value="my drill"' in text
    assert not Run.objects.exists()


def test_a_bound_that_is_excluded_is_refused(project):
    form = RunForm({"c_learning_rate": "0"}, project=project, kind="sft")
    assert form.errors["c_learning_rate"] == ["Must be over 0."]


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        ("{no", "Not JSON"),
        ("[1]", "Expected an object"),
        ('{"stepz": 3}', "is &#x27;steps&#x27; meant?"),
        ('{"steps": "many"}', "Enter a whole number"),
        ('{"fault": "fire"}', "fire is not one of the available choices"),
        ('{"steps": null}', "needs a value"),
    ],
)
def test_pasted_json_that_does_not_fit_says_where(open_form, pasted, words):
    client, sent, _ = open_form("drill")
    text = client.post("/p/arguments/runs/new/drill/", sent | {"pasted": pasted}).content.decode()
    assert words in text
    assert not Run.objects.exists()


def test_pasted_json_overrides_the_fields(open_form):
    client, sent, _ = open_form("drill")
    client.post("/p/arguments/runs/new/drill/", sent | {"pasted": '{"steps": 7}'})
    assert Run.objects.get().config["steps"] == 7


def test_only_fitting_inputs_are_offered_and_the_newest_needed_one_is_chosen(
    open_form, project, pairs
):
    Snapshot.objects.create(project=project, name="draft", kind="preferences")
    sft = run_make(project, name="base model", kind="sft", state="finished")
    run_make(project, name="broken", kind="sft", state="failed")
    _, sent, page = open_form("dpo")
    text = page.content.decode()
    assert sent["input_data"] == f"snapshot:{pairs.pk}"
    assert sent["input_sft"] == f"run:{sft.pk}"
    assert "draft" not in text
    assert "broken" not in text


def test_an_input_that_is_missing_is_marked_at_its_role(open_form, project, pairs):
    client, sent, _ = open_form("dpo")
    answer = client.post("/p/arguments/runs/new/dpo/", sent)
    assert answer.status_code == 422
    assert answer.context["form"].errors["input_sft"][0].startswith("A dpo run needs an input")


def test_a_run_waits_for_the_live_run_among_its_inputs(open_form, project, pairs):
    sft = run_make(project, name="base model", kind="sft", state="running")
    client, sent, _ = open_form("dpo")
    client.post("/p/arguments/runs/new/dpo/", sent)
    run = Run.objects.get(kind="dpo")
    assert run.state == "waiting"
    assert run.inputs.get(role="sft").upstream == sft


def test_a_clone_starts_from_the_others_inputs_seed_and_configuration(open_form, project, pairs):
    client, sent, _ = open_form("reward")
    sent |= {"c_base_model": "tiny", "c_learning_rate": "0.003", "seed": "7"}
    assert client.post("/p/arguments/runs/new/reward/", sent).status_code == 302
    first = Run.objects.get()
    _, sent, _ = open_form("reward", f"?from={first.pk}")
    assert sent["name"] == "reward-1 (copy)"
    assert (sent["seed"], sent["c_learning_rate"]) == ("7", "0.003")
    assert sent["input_data"] == f"snapshot:{pairs.pk}"
    assert client.post("/p/arguments/runs/new/reward/", sent).status_code == 302
    assert [run.config for run in Run.objects.all()] == [first.config, first.config]


def test_what_this_versions_recipe_does_not_know_is_not_dropped_from_a_clone(project):
    run = run_make(project, config={"steps": 3, "from_the_future": 1})
    form = RunForm(project=project, kind="drill", source=run)
    assert json.loads(form.fields["pasted"].initial) == {"from_the_future": 1}


def test_another_projects_things_cannot_be_named(open_form, olga):
    from apps.accounts.models import Project

    other = Project.objects.get(slug="elsewhere")
    theirs = run_make(other, kind="sft", state="finished")
    client, sent, _ = open_form("dpo")
    answer = client.post("/p/arguments/runs/new/dpo/", sent | {"input_sft": f"run:{theirs.pk}"})
    assert answer.status_code == 422
    assert "Select a valid choice" in answer.content.decode()


def test_a_preset_fills_the_form_and_a_clone_of_a_preset_run_has_its_values(open_form, project):
    preset = recipe_presets("sft")["demo"]
    fast = str(preset["learning_rate"])
    default = next(f for f in recipe_fields("sft") if f.name == "learning_rate").default
    assert fast != str(default)  # otherwise this test could not fail
    _, sent, page = open_form("sft", "?preset=demo")
    assert sent["c_learning_rate"] == fast
    assert "?preset=demo" in page.content.decode()
    run = run_make(project, kind="sft", config={"preset": "demo", "batch_size": 8})
    _, sent, _ = open_form("sft", f"?from={run.pk}")
    assert (sent["c_learning_rate"], sent["c_batch_size"]) == (fast, "8")
    assert "pasted" not in sent
