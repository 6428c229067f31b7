"""Launching a run from its form."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.snapshots.models import Snapshot
from apps.training.forms.launch import ROLE_LABELS, RunForm
from apps.training.models import Run, RunInput
from apps.training.selectors import queueing
from apps.training.services import launching
from apps.training.services.kinds import KINDS as RULES
from tests.web.world import run_make
from workers.config import parsing, preset_purposes, recipe_fields, recipe_presets
from workers.config.rewards import SOURCES
from workers.contract.fleet import Fleet, WorkerReport
from workers.rules.choices import guard_errors, guardrails_of


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
        counts={"rows": {"train": 8, "dev": 2}},
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


@pytest.mark.parametrize(
    "kind",
    [
        *("sft", "reward", "process_reward", "dpo", "kto", "ppo", "grpo"),
        *("generate", "evaluate", "drill"),
    ],
)
def test_every_kind_has_a_form_with_every_field_of_its_recipe(open_form, kind):
    _, sent, page = open_form(kind)
    text = page.content.decode()
    for field in recipe_fields(kind):
        if field.name != "guards":  # a table of rules stands for it
            assert f'name="c_{field.name}"' in text
    assert sent["name"] == f"{kind}-1"


def test_every_input_that_a_run_can_have_is_named_for_people():
    roles = {role for rule in RULES.values() for role in rule.roles}
    assert roles - set(ROLE_LABELS) == set()


def test_an_untouched_drill_is_launched_with_every_default_written_down(open_form, project, emil):
    client, sent, _ = open_form("drill")
    answer = client.post("/p/arguments/runs/new/drill/", sent)
    run = Run.objects.get()
    assert answer.url == f"/p/arguments/runs/{run.pk}/"
    assert (run.kind, run.created_by) == ("drill", emil)
    assert run.config == {
        field.name: field.default for field in recipe_fields("drill") if field.default is not None
    }


def test_a_drill_that_goes_wrong_is_offered_on_machines_of_tests_alone(
    open_form, project, monkeypatch
):
    run = run_make(project, config={"steps": 3, "fault": "none", "children": 0, "witness": None})
    _, sent, _ = open_form("drill")
    assert "c_fault" in sent
    monkeypatch.delenv("DRILL_FOLDER")
    client, sent, page = open_form("drill", f"?from={run.pk}")
    names = {name for name in page.context["form"].fields if name.startswith("c_")}
    assert not names & {"c_fault", "c_children", "c_witness", "c_hold_file", "c_ignore_stop"}
    assert client.post("/p/arguments/runs/new/drill/", sent).status_code == 302
    client, sent, _ = open_form("drill")
    wrong = client.post("/p/arguments/runs/new/drill/", sent | {"pasted": '{"fault": "kill"}'})
    assert wrong.context["form"].errors.keys() == {"pasted"}


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
    assert answer.context["form"].errors.keys() == {"c_steps"}
    assert 'value="my drill"' in text
    assert not Run.objects.exists()


def test_a_bound_that_is_excluded_is_refused(project):
    form = RunForm({"c_learning_rate": "0"}, project=project, kind="sft")
    assert form.errors["c_learning_rate"]


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        ("{no", "Not JSON"),
        ("[1]", "Expected an object"),
        ('{"stepz": 3}', "is &#x27;steps&#x27; meant?"),
        ('{"steps": "many"}', "steps: expected int"),
        ('{"fault": "fire"}', "fault: &#x27;fire&#x27; is none of"),
        ('{"steps": null}', "steps: expected int"),
    ],
)
def test_pasted_json_that_does_not_fit_says_where(open_form, pasted, words):
    client, sent, _ = open_form("drill")
    text = client.post("/p/arguments/runs/new/drill/", sent | {"pasted": pasted}).content.decode()
    assert words in text
    assert not Run.objects.exists()


@pytest.mark.parametrize("name", ["pasted", "c_reward"])
@pytest.mark.parametrize("text", ['{"a":' * 100_000, f'{{"kl_coef": {"9" * 5_000}}}'])
def test_json_that_nobody_can_read_is_marked_at_its_field(open_form, name, text):
    client, sent, _ = open_form("ppo")
    text += "1" + "}" * text.count("{") if text.endswith(":") else ""
    answer = client.post("/p/arguments/runs/new/ppo/", sent | {name: text})
    assert answer.status_code == 422
    assert name in answer.context["form"].errors


def test_names_beyond_number_are_not_compared_one_by_one(open_form, monkeypatch):
    compared = []
    monkeypatch.setattr(parsing.difflib, "get_close_matches", lambda *a, **_: compared.append(a))
    client, sent, _ = open_form("drill")
    many = json.dumps({f"k{n}": n for n in range(6_000)})
    answer = client.post("/p/arguments/runs/new/drill/", sent | {"pasted": many})
    assert len(answer.context["form"].errors["pasted"]) <= parsing.MOST_ERRORS + 1
    assert len(compared) <= 20


def test_pasted_json_overrides_the_fields(open_form):
    client, sent, _ = open_form("drill")
    client.post("/p/arguments/runs/new/drill/", sent | {"pasted": '{"steps": 7}'})
    assert Run.objects.get().config["steps"] == 7


def test_only_fitting_inputs_are_offered_and_the_only_needed_one_is_chosen(
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
    client, sent, _ = open_form("dpo", "?preset=lora")
    answer = client.post("/p/arguments/runs/new/dpo/", sent)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["input_sft"]


def test_a_run_waits_for_the_live_run_among_its_inputs(open_form, project, pairs):
    sft = run_make(project, name="base model", kind="sft", state="running")
    client, sent, _ = open_form("dpo", "?preset=lora")
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
    assert '<button class="button small primary" type="submit" name="preset" value="demo"' in (
        page.content.decode()
    )
    run = run_make(project, kind="sft", config={"preset": "demo", "batch_size": 8})
    _, sent, _ = open_form("sft", f"?from={run.pk}")
    assert (sent["c_learning_rate"], sent["c_batch_size"]) == (fast, "8")
    assert "pasted" not in sent


@pytest.fixture
def two_of_each(project):
    """Of everything that can be an input there is a choice."""
    for kind in Snapshot.Kind.values:
        for name in ("old", "new"):
            Snapshot.objects.create(
                project=project,
                name=name,
                kind=kind,
                state="frozen",
                uri="snapshots/x",
                sha256="0" * 64,
                counts={"rows": {"train": 8, "dev": 2}},
                frozen_at=timezone.now(),
            )
    for kind in ("sft", "dpo", "reward", "drill"):
        for name in ("old", "new"):
            run_make(project, name=f"{name} {kind}", kind=kind, state="finished")


def offered(bound) -> list[str]:
    groups = [label for value, label in bound.field.choices if isinstance(label, list)]
    return [value for group in groups for value, _ in group]


@pytest.mark.parametrize(
    "kind", ["sft", "reward", "dpo", "kto", "ppo", "grpo", "generate", "evaluate", "drill"]
)
def test_of_several_inputs_none_is_chosen_beforehand(open_form, two_of_each, kind):
    _, sent, page = open_form(kind)
    inputs = page.context["form"].input_fields
    assert {sent.get(bound.html_name, "") for bound in inputs} <= {""}
    needed = [bound for bound in inputs if bound.field.hide_optional]
    assert all(bound.field.choices[0] == ("", "Choose one") for bound in needed)
    always = {"sft": 1, "dpo": 2, "kto": 2, "generate": 2, "evaluate": 3}
    always |= {"ppo": 1, "grpo": 1, "reward": 1}
    required = [bound for bound in inputs if bound.field.widget.attrs.get("required")]
    assert len(required) == always.get(kind, 0)


@pytest.mark.parametrize(
    "kind", ["sft", "reward", "dpo", "kto", "ppo", "grpo", "generate", "evaluate", "drill"]
)
def test_a_preset_fills_the_configuration_and_touches_nothing_else(
    open_form, two_of_each, project, kind
):
    client, sent, page = open_form(kind)
    form = page.context["form"]
    inputs = {bound.html_name: offered(bound)[-1] for bound in form.input_fields}
    chosen = inputs | {"name": "my name", "seed": "7", "seeds": "3", "queue": "gpu"}
    chosen |= {"priority": "2", "key": "of this form"}
    chosen |= {"layout": "data", "processes": "2"} if "layout" in form.fields else {}
    chosen |= {"override_reason": "tried before"} if "override_reason" in form.fields else {}
    before = Run.objects.count()
    for name in recipe_presets(kind):
        answer = client.post(
            f"/p/arguments/runs/new/{kind}/?preset=another", sent | chosen | {"preset": name}
        )
        shown = answer.context["form"]
        assert (answer.status_code, shown.errors) == (200, {})
        assert {field: str(shown[field].value()) for field in chosen} == chosen
        as_asked = fields_of(RunForm(project=project, kind=kind, preset=name))
        now = fields_of(shown)
        settings = {n for n in as_asked | now if n.startswith(("c_", "g_"))}
        assert {n: now.get(n) for n in settings} == {n: as_asked.get(n) for n in settings}
        assert f'value="{name}" formaction="#presets-title" formnovalidate aria-current' in (
            answer.content.decode()
        )
    assert Run.objects.count() == before, "it launches nothing"


def test_a_preset_without_guardrails_leaves_those_that_were_chosen(open_form, project):
    client, sent, _ = open_form("ppo")
    name = next(n for n, values in recipe_presets("ppo").items() if "guards" not in values)
    sent |= {"g_clip_fraction_threshold": "0.3", "preset": name}
    answer = client.post("/p/arguments/runs/new/ppo/", sent)
    assert answer.context["form"].guards_changed == 1


def test_the_first_button_of_the_form_which_enter_presses_is_no_preset(open_form):
    _, _, page = open_form("ppo")
    form = page.content.decode().partition('class="stack loose run-form"')[2]
    first = form[form.index("<button") : form.index(">", form.index("<button"))]
    assert first == '<button type="submit" hidden'


@pytest.mark.parametrize("kind", ["ppo", "grpo", "evaluate"])
def test_the_held_out_judge_is_not_offered_as_the_reward(open_form, two_of_each, project, kind):
    judge = Run.objects.get(name="new reward")
    policy = run_make(project, name="judged", kind="ppo", state="finished")
    RunInput.objects.create(run=policy, role="judge", upstream=judge)
    _, _, page = open_form(kind)
    form = page.context["form"]
    other = f"run:{Run.objects.get(name='old reward').pk}"
    assert offered(form["input_reward"]) == [other]
    assert f"run:{judge.pk}" in offered(form["input_judge"])


# --- seeds, guardrails, sections ---


def test_several_seeds_are_launched_as_a_group_once(open_form):
    client, sent, _ = open_form("drill")
    first = client.post("/p/arguments/runs/new/drill/", sent | {"seed": "5", "seeds": "3"})
    again = client.post("/p/arguments/runs/new/drill/", sent | {"seed": "5", "seeds": "3"})
    runs = list(Run.objects.order_by("seed"))
    assert [run.name for run in runs] == [f"drill-1, seed {seed}" for seed in (5, 6, 7)]
    assert first.url == again.url == f"/p/arguments/runs/groups/{runs[0].group}/"


@pytest.mark.parametrize("seeds", ["0", "21", "some"])
def test_a_number_of_seeds_that_makes_no_sense_is_marked(open_form, seeds):
    client, sent, _ = open_form("drill")
    answer = client.post("/p/arguments/runs/new/drill/", sent | {"seeds": seeds})
    assert answer.status_code == 422
    assert answer.context["form"].errors.keys() == {"seeds"}
    assert not Run.objects.exists()


def form(project, sent=None, **more):
    values = fields_of(RunForm(project=project, kind="ppo", **more))
    return RunForm(values | (sent or {}), project=project, kind="ppo")


def config_of(form: RunForm) -> dict:
    form.is_valid()
    return form.cleaned_data["config"]


def test_every_guardrail_of_a_kind_has_its_row_with_limit_looks_and_action(project):
    rows = RunForm(project=project, kind="ppo").guard_rows
    assert [row.rule.name for row in rows] == [rule.name for rule in guardrails_of("ppo")]
    row = next(row for row in rows if row.rule.name == "clip_fraction")
    assert (row.threshold.value(), row.patience.value(), row.action.value()) == (0.4, 3, "warn")
    assert not any(row.changed for row in rows)


def test_guardrails_left_alone_are_not_written_down(project):
    assert config_of(form(project))["guards"] == {}


def test_what_was_chosen_of_a_guardrail_is_all_that_is_written_down(project):
    sent = {
        "g_clip_fraction_threshold": "0.3",
        "g_reference_kl_action": "stop",
        "g_reference_kl_threshold": "10",  # its default, typed otherwise
        "g_length_patience": "2",
    }
    guards = config_of(form(project, sent))["guards"]
    assert guards == {
        "clip_fraction": {"threshold": 0.3},
        "reference_kl": "stop",
        "length": {"patience": 2},
    }
    assert guard_errors("ppo", guards) == []


def test_a_guardrail_field_left_empty_means_its_default(project):
    sent = {"g_clip_fraction_threshold": "", "g_clip_fraction_patience": ""}
    assert config_of(form(project, sent))["guards"] == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("g_clip_fraction_threshold", "much"),
        ("g_clip_fraction_patience", "0"),
        ("g_stale_action", "off"),
        ("g_clip_fraction_threshold", "nan"),
    ],
)
def test_a_wrong_choice_is_marked_at_its_rule_and_the_table_opens(project, name, value):
    bad = form(project, {name: value})
    assert bad.errors[name]
    assert bad.guards_are_open
    assert not bad.more_is_open


def test_a_cloned_run_brings_its_guardrails_and_an_unknown_one_is_not_fatal(project):
    guards = {"clip_fraction": {"threshold": 0.25, "action": "stop"}}
    run = run_make(project, kind="ppo", config={"guards": guards})
    clone = RunForm(project=project, kind="ppo", source=run)
    assert clone.guards_changed == 1
    assert config_of(form(project, source=run))["guards"] == guards
    run.config = {"guards": {"of_another_version": "stop"}}
    assert RunForm(project=project, kind="ppo", source=run).guards_changed == 0


def test_pasted_guardrails_are_checked_by_name(project):
    bad = form(project, {"pasted": '{"guards": {"clip_fractoin": "stop"}}'})
    assert "'clip_fraction'" in bad.errors["pasted"][0]
    good = form(project, {"pasted": '{"guards": {"length": "stop"}}'})
    assert config_of(good)["guards"] == {"length": "stop"}


KINDS = [
    "sft",
    "reward",
    "process_reward",
    "dpo",
    "kto",
    "ppo",
    "grpo",
    "generate",
    "evaluate",
    "assess",
]


@pytest.mark.parametrize("kind", ["reward", "ppo", "grpo"])
def test_every_field_stands_under_a_heading(project, kind):
    titles = [title for title, _, _ in RunForm(project=project, kind=kind).more_sections]
    assert "Other settings" not in titles
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("kind", KINDS)
def test_every_preset_says_what_it_is_for(kind):
    assert preset_purposes(kind).keys() == recipe_presets(kind).keys()


def test_the_form_of_a_reward_knows_every_source_and_every_error_stands_at_its_field(project):
    ppo = RunForm(project=project, kind="ppo")
    known = {one["type"]: one for one in ppo.reward_grammar["sources"]}
    assert known.keys() == SOURCES.keys()
    for name, cls in SOURCES.items():
        assert [one["name"] for one in known[name]["fields"]] == [
            one.name for one in parsing.setting_fields(cls)
        ]
    assert json.loads(json.dumps(ppo.reward_grammar)) == ppo.reward_grammar
    assert RunForm(project=project, kind="sft").reward_grammar == {}
    assert '\n  "type": "model"' in ppo["c_reward"].value()
    wrong = {"type": "sum", "parts": [{"name": "a b", "source": {"type": "http", "retries": -1}}]}
    told = form(project, {"c_reward": json.dumps(wrong)}).errors["c_reward"]
    assert [text.partition(": ")[0] for text in told] == [
        "reward.parts[0].name",
        "reward.parts[0].source.retries",
        "reward.parts[0].source.url",
    ]


# --- a reward tried on answers ---

BRIEF = {"type": "rules", "rules": [{"name": "brief", "words": {"most": 2}}]}
TYPED = {
    "tried-TOTAL_FORMS": "5",
    "tried-INITIAL_FORMS": "0",
    "tried-1-prompt": "Why?",
    "tried-1-response": "Because.",
    "c_reward": json.dumps(BRIEF),
}
TRY = "/p/arguments/runs/new/ppo/try/"


def test_a_reward_is_tried_on_typed_answers_whatever_else_the_form_lacks(open_form, project):
    client, sent, _ = open_form("ppo")
    page = client.post(TRY, sent | TYPED | {"name": ""}, headers={"HX-Request": "true"})
    run = Run.objects.get()
    assert (run.kind, run.queue) == ("check", "short")
    assert run.config == {
        "check": "answers",
        "reward": BRIEF,
        "answers": [{"prompt": "Why?", "response": "Because."}],
    }
    shown = f"/p/arguments/runs/{run.pk}/tried/"
    assert f'hx-get="{shown}"' in page.content.decode()
    found = {"outcome": "scored", "words": "1 answer scores 0"}
    Run.objects.update(state="finished", ended_at=timezone.now(), summary=found)
    done = client.get(shown).content.decode()
    assert "1 answer scores 0" in done
    assert "hx-get" not in done
    Run.objects.update(
        state="failed", fault="data", failure_kind="x", failure_message="nobody says"
    )
    assert "nobody says" in client.get(shown).content.decode()
    assert client.post(TRY, sent | TYPED).status_code == 302  # without JavaScript, to its page


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"c_reward": '{"type": "http"}'}, "reward.url: must begin with"),
        ({"c_reward": "{"}, "Enter a valid JSON"),
        ({"tried-1-prompt": ""}, "Answer 2: Say what was asked."),
        ({"tried-1-prompt": "", "tried-1-response": ""}, "needs an input"),
        ({"c_reward": '{"type": "model"}'}, "needs an input"),
    ],
)
def test_a_reward_that_cannot_be_tried_says_why_and_nothing_is_launched(open_form, changed, told):
    client, sent, _ = open_form("ppo")
    page = client.post(TRY, sent | TYPED | changed, headers={"HX-Request": "true"})
    assert told in page.content.decode()
    page = client.post(TRY, sent | TYPED | changed)
    assert page.status_code == 422
    assert told in page.content.decode()
    assert not Run.objects.exists()


def test_a_reward_function_that_nobody_has_is_refused_at_its_field(open_form, monkeypatch):
    client, sent, _ = open_form("ppo")
    reward = {"type": "function", "name": "brevity"}
    sent |= TYPED | {"c_reward": json.dumps(reward)}
    page = client.post(TRY, sent, headers={"HX-Request": "true"}).content.decode()
    assert "reward.name: no worker that was heard" in page
    monkeypatch.setattr(launching, "reward_functions", lambda: {"brevity"})
    client.post(TRY, sent)
    assert Run.objects.get().config["reward"] == reward


def test_a_reward_that_runs_code_is_refused_where_no_worker_does(open_form, monkeypatch):
    client, sent, _ = open_form("ppo")
    reward = {"type": "verifier", "check": "code"}
    sent |= TYPED | {"c_reward": json.dumps(reward), "tried-1-answer": "assert f(1) == 1"}
    worker = WorkerReport(name="w", host="h", pid=1, queues=("cpu",), at=0.0)
    heard = Fleet(workers=(worker,))
    monkeypatch.setattr(queueing, "fleet_state", lambda: heard)
    page = client.post(TRY, sent, headers={"HX-Request": "true"}).content.decode()
    assert "reward.check: no worker that was heard runs the code of answers" in page
    heard = Fleet(workers=(replace(worker, runs_code=True),))
    client.post(TRY, sent)
    assert Run.objects.get().config["reward"] == reward


def test_the_form_says_how_long_it_takes_when_a_setting_changes(open_form, project):
    ended = timezone.now()
    started = ended - timedelta(seconds=100)
    before = run_make(project, state="finished", step=100, started_at=started, ended_at=ended)
    client, sent, page = open_form("drill")
    assert 'hx-trigger="load, change' in page.content.decode()
    address = "/p/arguments/runs/new/drill/estimate/"
    text = client.post(address, sent | {"c_steps": "300", "seeds": "2"}).content.decode()
    assert "2 runs, about 10 min in all" in text
    assert before.name in text
    text = client.post(address, sent | {"c_steps": "-1"}).content.decode()
    assert "once the settings are right" in text


def test_a_sweep_is_launched_from_the_form_and_a_wrong_value_is_marked_beside_it(open_form):
    client, sent, _ = open_form("drill")
    address = "/p/arguments/runs/new/drill/"
    swept = sent | {"sweep_1": "steps", "values_1": "3, 4", "seeds": "2"}
    for wrong, field in (
        ({"values_1": "3, x"}, "values_1"),
        ({"values_1": "3, 0"}, "values_1"),  # which the recipe refuses
        ({"values_1": "3"}, "values_1"),
        ({"sweep_2": "steps", "values_2": "5, 6"}, "sweep_2"),
        ({"sweep_2": "", "values_2": "5, 6"}, "sweep_2"),
        ({"sweep_2": "fault", "values_2": "none, nonsense"}, "values_2"),
        ({"values_1": ", ".join(map(str, range(1, 21))), "seeds": "4"}, "values_1"),
    ):
        answer = client.post(address, swept | wrong)
        assert (answer.status_code, list(answer.context["form"].errors)) == (422, [field]), wrong
    assert not Run.objects.exists()
    estimate = client.post(f"{address}estimate/", swept)
    assert "4 runs" in estimate.content.decode()
    answer = client.post(address, swept)
    runs = Run.objects.order_by("created_at")
    assert answer.headers["Location"] == f"/p/arguments/runs/groups/{runs[0].group}/"
    assert [(run.config["steps"], run.seed) for run in runs] == [(3, 0), (3, 1), (4, 0), (4, 1)]
