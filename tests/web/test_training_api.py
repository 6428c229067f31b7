"""Runs over the API."""

import pytest

from apps.accounts.services import token_create
from apps.training.models import Run, Sample
from tests.web.runs import event_add, metrics_add, run_make

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
        ({"kind": "dpo", "name": "a"}, 400, "missing_input", "inputs.data"),
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
    assert call("post", f"/{run.pk}/stop").json()["wish"] == "stop"
    assert call("post", f"/{run.pk}/cancel").json()["wish"] == "cancel"
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
