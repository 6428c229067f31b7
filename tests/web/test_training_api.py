"""Runs over the API."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common.scheduler_signs import Schedulers
from apps.training import services
from apps.training.models import Run, RunAttempt, RunQuota, Sample
from apps.training.screens.fleet import differences, gpu_words
from apps.training.selectors import queueing as fleet_reading
from apps.training.services.points import blocks_merge, metrics_store
from tests.web.test_run_form import fields_of
from tests.web.world import event_add, metrics_add, run_make
from workers.contract.code_version import code_version
from workers.contract.fleet import Fleet, Gpu, WorkerReport

ROOT = "/api/v1/projects/arguments/runs"


@pytest.fixture
def call(emil, client):
    _, text = token_create(user=emil, name="t", scopes=["read", "train"], days=1)
    headers = {"authorization": f"Bearer {text}"}

    def go(method: str, path: str = "", **payload):
        ask = getattr(client, method)
        if method == "post":
            return ask(ROOT + path, payload, "application/json", headers=headers)
        return ask(ROOT + path, payload, headers=headers)

    return go


def test_a_run_is_launched_and_found(project, emil, call):
    made = call("post", kind="drill", name="from afar", config={"steps": 3}, seed=5)
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["state"], body["created_by"]) == ("queued", "emil")
    assert call("get", f"/{body['id']}").json()["config"] == {"steps": 3}
    listed = call("get", search="afar").json()
    assert (listed["count"], listed["items"][0]["id"]) == (1, body["id"])
    assert call("get", state="failed").json()["count"] == 0


def test_the_same_key_launches_once(project, call):
    first = call("post", kind="drill", name="a", idempotency_key="k1").json()["id"]
    assert call("post", kind="drill", name="a", idempotency_key="k1").json()["id"] == first
    assert Run.objects.count() == 1


def test_several_seeds_are_one_group_that_more_may_join(project, call):
    first = call("post", kind="drill", name="a", seed=4, seeds=3).json()
    assert (first["seed"], first["name"]) == (4, "a, seed 4")
    joined = call("post", kind="drill", name="a", seed=7, group=first["group"]).json()
    listed = call("get", group=first["group"]).json()
    assert sorted(run["seed"] for run in listed["items"]) == [4, 5, 6, 7]
    assert joined["group"] == first["group"]
    taken = call("post", kind="drill", name="a", seed=5, group=first["group"])
    assert (taken.status_code, taken.json()["code"]) == (409, "seed_in_group")
    assert call("post", kind="drill", name="a", group="nobodys").status_code == 404
    assert call("post", kind="drill", name="a", seeds=21).status_code == 422
    assert call("get", group="nobodys").json()["count"] == 0


@pytest.mark.parametrize(
    ("payload", "status", "code", "field"),
    [
        ({"kind": "drill"}, 422, "invalid_input", "name"),
        ({"kind": "fly", "name": "a"}, 422, "invalid_input", "kind"),
        ({"kind": "drill", "name": "a", "queue": "moon"}, 400, "unknown_queue", "queue"),
        ({"kind": "dpo", "name": "a"}, 422, "bad_config", "config.learning_rate"),
        (
            {"kind": "dpo", "name": "a", "config": {"preset": "lora"}},
            400,
            "missing_input",
            "inputs.data",
        ),
        (
            {"kind": "drill", "name": "a", "inputs": {"base": "run:nothing"}},
            404,
            "not_found",
            "inputs",
        ),
        ({"kind": "drill", "name": "a", "seed": -1}, 422, "invalid_input", "seed"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_code_and_the_field(
    project, call, payload, status, code, field
):
    answer = call("post", **payload)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert answer.json()["field"] == field
    assert not Run.objects.exists()


def test_events_are_read_on_with_a_cursor(project, call):
    run = run_make(project)
    event_add(run, 1, "Log", {"lines": ["one"], "level": "info"})
    event_add(run, 2, "Log", {"lines": ["two"], "level": "info"})
    first = call("get", f"/{run.pk}/events", limit=1).json()
    assert [event["seq"] for event in first["events"]] == [1]
    rest = call("get", f"/{run.pk}/events", cursor=first["cursor"]).json()
    assert [event["seq"] for event in rest["events"]] == [2]
    assert call("get", f"/{run.pk}/events", cursor=rest["cursor"]).json()["events"] == []
    assert [line["text"] for line in call("get", f"/{run.pk}/log").json()] == ["one", "two"]


def test_polling_with_the_cursor_loses_no_late_evaluation_and_says_where_a_run_went_back(
    project, call
):
    run = run_make(project, state="running")
    assert call("get", f"/{run.pk}/metrics").json() == {
        "series": {},
        "cursor": "",
        "discard_after": None,
    }
    metrics_add(run, 1, [1, 2, 3, 4], loss=[4.0, 3.0, 2.0, 1.0])
    first = call("get", f"/{run.pk}/metrics").json()
    assert call("get", f"/{run.pk}/metrics", cursor=first["cursor"]).json()["series"] == {}
    metrics_add(run, 2, [2], eval__loss=[3.5])  # of a step that is behind already
    second = call("get", f"/{run.pk}/metrics", cursor=first["cursor"]).json()
    assert second["series"] == {"eval/loss": {"steps": [2], "values": [3.5]}}
    metrics_add(run, 3, [5], loss=[0.5])
    assert blocks_merge(run_id=run.pk, attempt=1, least=2)
    third = call("get", f"/{run.pk}/metrics", cursor=second["cursor"]).json()
    assert third["series"]["loss"]["steps"][-1] == 5
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=2, cause="resume")
    back = call("get", f"/{run.pk}/metrics", cursor=third["cursor"]).json()
    assert (back["series"], back["discard_after"]) == ({}, 2)
    metrics_store(run=run, attempt=2, series={"loss": [(3, 2.5)]})
    new = call("get", f"/{run.pk}/metrics", cursor=third["cursor"]).json()
    assert new["series"] == {"loss": {"steps": [3], "values": [2.5]}}
    after = call("get", f"/{run.pk}/metrics", cursor=new["cursor"]).json()
    assert (after["series"], after["discard_after"]) == ({}, None)
    refused = call("get", f"/{run.pk}/metrics", cursor="yesterday")
    assert (refused.status_code, refused.json()["field"]) == (400, "cursor")


def test_metrics_are_named_and_what_is_no_number_is_a_word(project, call):
    run = run_make(project)
    metrics_add(run, 1, [1, 2], loss=[1.0, "nan"], kl=[0.0, 0.5])
    series = call("get", f"/{run.pk}/metrics", names="loss").json()["series"]
    assert series == {"loss": {"steps": [1, 2], "values": [1.0, "nan"]}}


def test_new_points_are_read_on_from_a_step_and_are_no_events(project, call):
    run = run_make(project)
    metrics_add(run, 1, [1, 2, 3, 4], loss=[1.0, 2.0, 3.0, 4.0])
    series = call("get", f"/{run.pk}/metrics", from_step=3).json()["series"]
    assert series["loss"]["steps"] == [3, 4]
    series = call("get", f"/{run.pk}/metrics", from_step=2, to_step=3).json()["series"]
    assert series["loss"]["steps"] == [2, 3]
    assert call("get", f"/{run.pk}/events").json()["events"] == []
    assert call("get", f"/{run.pk}/metrics", from_step=2**63).status_code == 422


def test_samples_come_with_their_reward_even_when_it_is_no_number(project, call):
    run = run_make(project)
    Sample.objects.create(
        run=run,
        attempt=1,
        seq=1,
        step=3,
        bucket="high",
        prompt=[{"role": "user", "content": "Hi"}],
        response="Hello",
        reward=float("inf"),
    )
    rows = call("get", f"/{run.pk}/samples", bucket="high").json()
    assert (rows[0]["response"], rows[0]["reward"]) == ("Hello", "inf")
    assert call("get", f"/{run.pk}/samples", bucket="low").json() == []


def test_stop_cancel_and_resume_say_what_became_of_the_run(project, call):
    run = run_make(project)
    assert call("post", f"/{run.pk}/stop").json()["command"] == "stop"
    assert call("post", f"/{run.pk}/cancel").json()["command"] == "cancel"
    assert call("get", f"/{run.pk}").json()["wish"] == "cancel"  # its name before 0.2.0
    done = run_make(project, state="finished")
    late = call("post", f"/{done.pk}/cancel")
    assert (late.status_code, late.json()["code"]) == (409, "run_has_ended")
    assert call("post", f"/{done.pk}/resume").json()["code"] == "run_not_resumable"


def test_lineage_leads_up_and_down(project, call):
    base = run_make(project, kind="drill", state="running", name="base")
    made = call("post", kind="drill", name="next", inputs={"base": f"run:{base.pk}"}).json()
    up = call("get", f"/{made['id']}/lineage").json()
    assert [node["name"] for node in up["inputs"]] == ["base"]
    down = call("get", f"/{base.pk}/lineage").json()
    assert [node["name"] for node in down["outputs"]] == ["next"]


# The Fleet page: machines, queues with their reasons, and nothing of other projects.


Sign = Callable[[User], Client]


def worker(name: str, **more: Any) -> WorkerReport:
    at = timezone.now().timestamp()
    given = {
        "pid": 7,
        "queues": ("cpu",),
        "versions": {"torch": "2.13.0"},
        "code_version": code_version(),
    }
    return WorkerReport(name, name.partition("@")[2], at=at, **(given | more))


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[WorkerReport]:
    """What Redis would tell; empty it, or fill it."""
    known: list[WorkerReport] = []
    monkeypatch.setattr(
        fleet_reading,
        "fleet_state",
        lambda: Fleet(tuple(known), draining=fleet_reading.drained_names()),
    )
    return known


def queued(project: Project, name: str, **more: Any) -> Run:
    """A run that waits for a slot; `slot=True` has one."""
    slot = more.pop("slot", False)
    run = run_make(project, name=name, state="queued", queue="cpu", **more)
    Run.objects.filter(pk=run.pk).update(admitted_at=timezone.now() if slot else None)
    return run


def test_the_page_shows_machines_and_what_they_are_at(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    run = run_make(project, name="My PPO", state="running", step=3, total_steps=9)
    Run.objects.filter(pk=run.pk).update(admitted_at=timezone.now())
    other = run_make(Project.objects.create(slug="x", name="X"), name="Secret", state="running")
    Run.objects.filter(pk=other.pk).update(admitted_at=timezone.now())
    gpu = Gpu("NVIDIA H200", 150 * 10**9, 140 * 10**9, "570")
    machines += [
        worker("a@one", queues=("gpu",), gpus=(gpu, gpu), runs=(run.pk,), cpus=64),
        worker("b@two", runs=(other.pk,), versions={"torch": "2.13.0"}),
        worker("c@three", versions={"torch": "2.12.0"}, code_version="abc"),
    ]
    text = signed_in(emil).get("/p/arguments/fleet/").content.decode()
    for words in (
        "a@one",
        "2 × NVIDIA H200, 150.0 GB each, at least 140.0 GB free (driver 570)",
        "My PPO",
        "step 3 of 9",
        "A run of another project",
        "torch 2.12.0 here; elsewhere 2.13.0.",
        "Code abc here; this site runs",
    ):
        assert words in text, words
    assert "Secret" not in text
    assert other.pk not in text


def test_workers_of_one_name_are_shown_each_and_told_apart(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    machines += [
        worker("a@one", instance="a@one/one/7/aa", pid=7),
        worker("a@one", instance="a@one/one/8/bb", pid=8, queues=("cpu", "gpu")),
        worker("b@one"),
    ]
    client = signed_in(emil)
    text = client.get("/p/arguments/fleet/").content.decode()
    assert text.count('aria-label="a@one"') == 2
    assert text.count("2 workers") == 2
    assert "shared with gpu" in text
    found = client.get("/api/v1/projects/arguments/fleet").json()["workers"]
    assert [one["instance"] for one in found] == ["a@one/one/7/aa", "a@one/one/8/bb", ""]


def test_waiting_runs_stand_in_order_with_their_reasons_and_can_be_moved(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    machines.append(worker("a@one"))
    queued(project, "now", slot=True)
    first, second = queued(project, "first", place=1), queued(project, "second", place=2)
    client = signed_in(emil)
    text = client.get("/p/arguments/fleet/").content.decode()
    assert "in class cpu:" in text
    assert "1 run before it." in text
    assert text.index(">first<") < text.index(">second<")
    answer = client.post(f"/p/arguments/runs/{second.pk}/move/", {"to": "first"})
    assert answer.url == "/p/arguments/fleet/"
    client.post(f"/p/arguments/runs/{first.pk}/priority/", {"priority": "0"})
    fragment = client.get("/p/arguments/fleet/", headers={"hx-request": "true"}).content.decode()
    assert "<html" not in fragment
    assert fragment.index(">second<") < fragment.index(">first<")
    assert "low priority" in fragment
    head = client.get(f"/p/arguments/runs/{first.pk}/").content.decode()
    assert "1 run before it." in head


@pytest.mark.parametrize(
    ("path", "data"), [("move", {"to": "up up"}), ("priority", {"priority": "urgent"})]
)
def test_a_place_that_does_not_exist_is_refused(
    project: Project, emil: User, signed_in: Sign, machines: Any, path: str, data: dict[str, str]
) -> None:
    run = queued(project, "one")
    answer = signed_in(emil).post(f"/p/arguments/runs/{run.pk}/{path}/", data)
    assert answer.status_code in (400, 422)


def test_only_an_admin_sets_the_quota_and_a_blank_one_lifts_it(
    project: Project, emil: User, ada: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    assert 'name="runs_at_once"' not in signed_in(emil).get("/p/arguments/fleet/").content.decode()
    admin = signed_in(ada)
    admin.post("/p/arguments/fleet/quota/", {"runs_at_once": "3", "gpu_hours": "50"})
    row = RunQuota.objects.get(project=project)
    assert (row.runs_at_once, row.gpu_hours) == (3, 50)
    assert "50 GPU hours of the last 30 days" in admin.get("/p/arguments/fleet/").content.decode()
    assert "0 of the 3 runs" in admin.get("/p/arguments/fleet/").content.decode()
    assert admin.post("/p/arguments/fleet/quota/", {"runs_at_once": "0"}).status_code in (400, 422)
    admin.post("/p/arguments/fleet/quota/", {"runs_at_once": ""})
    assert RunQuota.objects.get(project=project).runs_at_once is None


def test_a_worker_is_drained_from_the_page_and_shown_as_it_ends_its_run(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    client = signed_in(emil)
    machines.append(worker("a@one", runs=("r",)))
    queued(project, "waits")

    def page() -> str:
        return client.get("/p/arguments/fleet/").content.decode()

    assert 'value="yes"' in page()
    client.post("/p/arguments/fleet/drain/", {"worker": "a@one", "drain": "yes"})
    assert "draining: it finishes what it is at" in page()
    assert "0 workers · 1 draining" in page()
    assert "is draining and takes no new run" in page()
    machines[:] = [worker("a@one")]
    assert "draining: it has not confirmed yet" in page()
    machines[:] = [worker("a@one", draining=True)]
    assert "idle, drained" in page()
    machines.clear()
    assert "a@one is drained and not heard." in page()
    client.post("/p/arguments/fleet/drain/", {"worker": "a@one", "drain": "no"})
    assert "a@one" not in page().replace("a@one takes runs again.", "")
    answer = client.post("/p/arguments/fleet/drain/", {"worker": "b@one", "drain": "yes"})
    assert answer.status_code in (400, 422)


def test_a_worker_is_drained_by_the_api(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    client = signed_in(emil)
    machines.append(worker("a@one", draining=True))

    def drain(**given: Any) -> Any:
        address = "/api/v1/projects/arguments/fleet/drain"
        return client.post(address, given, content_type="application/json")

    assert drain(worker="a@one").json() == {"worker": "a@one", "draining": True, "changed": True}
    assert drain(worker="a@one").json()["changed"] is False
    [told] = client.get("/api/v1/projects/arguments/fleet").json()["workers"]
    assert (told["draining"], told["drained"]) == (True, True)
    assert drain(worker="nobody@one").json()["code"] == "unknown_worker"
    assert drain(worker="a@one", draining=False).json()["changed"]
    [told] = client.get("/api/v1/projects/arguments/fleet").json()["workers"]
    assert (told["draining"], told["drained"]) == (False, False)


def test_the_page_says_which_scheduler_leads(
    project: Project, emil: User, signed_in: Sign, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Schedulers()
    monkeypatch.setattr("apps.training.screens.fleet.schedulers", lambda: known)
    client = signed_in(emil)
    assert "No scheduler leads" in client.get("/p/arguments/fleet/").content.decode()
    known = Schedulers(leads="web-1:12:aaaa", stand_by=("web-2:7:bbbb",))
    text = client.get("/p/arguments/fleet/").content.decode()
    assert "Process 12 on web-1 leads; 1 more would take over." in text


def test_a_redis_that_is_away_is_said_and_no_machine_invented(
    project: Project, emil: User, signed_in: Sign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_reading, "fleet_state", lambda: None)
    queued(project, "one")
    page = signed_in(emil).get("/p/arguments/fleet/")
    assert page.context["fleet"].unknown
    assert 'role="alert"' in page.content.decode()


def test_the_api_tells_the_fleet_without_a_runs_name_and_why_a_run_waits(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    queued(project, "now", slot=True)
    run = queued(project, "later")
    machines.append(worker("a@one", slots=1, runs=("secret",)))
    client = signed_in(emil)
    found = client.get("/api/v1/projects/arguments/fleet").json()
    assert found["workers"][0]["name"] == "a@one"
    assert found["workers"][0]["busy"] == 1
    assert {"queue": "cpu", "slots": 1, "taken": 1, "waiting": 1} in found["classes"]
    assert "secret" not in str(found)
    told = client.get(f"/api/v1/projects/arguments/runs/{run.pk}").json()
    assert "in class cpu:" in told["waits"]
    assert (told["layout"], told["processes"], told["priority"]) == ("one", 1, "normal")


# --- what a run needs ---


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"layout": "zero9"}, "layout"),
        ({"layout": "fsdp", "launcher": "plain"}, "launcher"),
        ({"layout": "fsdp", "processes": 99}, "processes"),
        ({"processes": 2}, "processes"),
        ({"priority": 7}, "priority"),
        ({"kind": "generate", "layout": "fsdp"}, None),
    ],
)
def test_needs_that_do_not_go_together_are_refused_by_field(
    project: Project, changes: dict[str, Any], field: str | None
) -> None:
    from apps.common.errors import DomainError

    given = {"kind": "drill", "name": "a", "config": {}, "inputs": {}} | changes
    with pytest.raises(DomainError) as refusal:
        services.run_launch(project=project, **given)
    assert refusal.value.field == (field or "layout")
    assert not Run.objects.exists()


def test_the_form_asks_for_a_layout_and_a_clone_and_the_spec_keep_it(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    client = signed_in(emil)
    page = client.get("/p/arguments/runs/new/drill/?layout=fsdp&processes=4")
    form = page.context["form"]
    assert (form["layout"].value(), form["processes"].value()) == ("fsdp", 4)
    sent = fields_of(form)
    answer = client.post("/p/arguments/runs/new/drill/", sent | {"queue": "gpu", "priority": "2"})
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.get()
    assert answer.url == f"/p/arguments/runs/{run.pk}/"
    assert (run.layout, run.processes, run.launcher, run.priority) == ("fsdp", 4, "torchrun", 2)
    spec = run.attempts.get().spec
    assert (spec["layout"], spec["processes"], spec["launcher"]) == ("fsdp", 4, "torchrun")
    copy = client.get(f"/p/arguments/runs/new/drill/?from={run.pk}").context["form"]
    assert (copy["layout"].value(), copy["processes"].value()) == ("fsdp", 4)
    plain = services.run_clone(run=run, layout="one")
    assert (plain.layout, plain.processes, plain.launcher) == ("one", 1, "plain")
    assert "fsdp over 4 processes" in client.get(answer.url).content.decode()


def test_class_cpu_needs_a_number_of_processes(
    project: Project, emil: User, signed_in: Sign, machines: list[WorkerReport]
) -> None:
    client = signed_in(emil)
    form = client.get("/p/arguments/runs/new/drill/").context["form"]
    sent = fields_of(form)
    answer = client.post("/p/arguments/runs/new/drill/", sent | {"layout": "data"})
    assert answer.status_code == 422
    assert "Say how many" in answer.content.decode()


# --- words ---


def test_where_no_version_is_the_most_common_everybody_is_told() -> None:
    one, two = worker("a@one"), worker("b@two", versions={"torch": "2.12.0"})
    site = code_version()
    assert differences(one, [one, two], site) == ["torch 2.13.0 here; elsewhere 2.12.0."]
    assert differences(two, [one, two], site) == ["torch 2.12.0 here; elsewhere 2.13.0."]
    assert differences(one, [one, one, two], site) == []


def test_gpus_without_figures_are_named_without_them() -> None:
    assert gpu_words([Gpu("T4")]) == ["T4"]
    assert gpu_words([]) == []
