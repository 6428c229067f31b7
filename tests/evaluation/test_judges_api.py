"""Judges by the API: the whole way from a judge to a dataset of its labels, and what is refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, Role, User
from apps.evaluation.models import CertifiedLabel, JudgeRun, JudgeVersion, LabelCertificate
from apps.labeling.models import Decision, Vote
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint
from tests.evaluation.judged import answered, judge_of, model_of, right, voted
from tests.people import person_make

SignedIn = Callable[[User], Client]
ROOT = "/api/v1/projects/arguments"
JUDGES = f"{ROOT}/judges"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def engineer(emil: User, signed_in: SignedIn) -> Client:
    return signed_in(emil)


@pytest.fixture
def model(project: Project) -> Checkpoint:
    return model_of(project)


@pytest.fixture
def version(project: Project, emil: User, model: Checkpoint) -> JudgeVersion:
    return judge_of(project, emil, name="Other")


def post(client: Client, path: str, body: Any = None, status: int = 201) -> Any:
    answer = client.post(path, {} if body is None else body, content_type="application/json")
    assert answer.status_code == status, answer.content
    return answer.json()


def get(client: Client, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.content
    return answer.json()


def of(version: JudgeVersion, what: str = "") -> str:
    return f"{JUDGES}/{version.judge_id}/versions/{version.number}{what}"


def asked(run: str) -> JudgeRun:
    return JudgeRun.objects.select_related("run", "pairs").get(run=run)


def test_a_judge_is_made_measured_certified_and_its_labels_are_frozen(
    project: Project, engineer: Client, model: Checkpoint
) -> None:
    voted(project, 320, votes=2, seed=1, noise=0.05, unvoted=60)
    made = post(engineer, JUDGES, {"name": "Judy", "model": model.pk, "config": {"top_k": 5}})
    assert (made["version"]["number"], made["version"]["state"]) == (1, "not_measured")
    assert made["version"]["config"]["top_k"] == 5
    path = f"{JUDGES}/{made['id']}/versions/1"
    votes = Vote.objects.count()

    run = post(engineer, f"{path}/measurements", {"share": 0.5})
    assert run["measurement"] is None
    answered(asked(run["run"]), right(4.0))
    [one] = get(engineer, f"{path}/measurements")["items"]
    assert one == get(engineer, f"{path}/measurements/{one['id']}")
    assert (one["part"], one["version"], one["refused"]) == ("all", 1, "")
    assert one["figures"]["agreement"]["value"] > 0.8
    assert one["figures"]["ppi"]["ppi"]["low"] < one["figures"]["ppi"]["ppi"]["high"]
    [listed] = get(engineer, JUDGES)
    worth = listed["version"]["worth"]
    assert (listed["name"], listed["version"]["state"]) == ("Judy", "measured")
    assert (worth["measurement"], worth["n_votes"]) == (one["id"], one["n_votes"])
    assert worth["agreement"] == one["figures"]["agreement"]["value"]
    again = post(engineer, f"{path}/measurements", {"share": 0.5})
    assert (again["run"], again["measurement"]["n_pairs"]) == (None, one["n_pairs"])

    contract = {"error": 0.2, "failure": 0.1, "against": "vote", "audited": 0.25}
    found = post(engineer, f"{path}/certificates", contract)
    assert (found["state"], found["error"], found["look"]) == ("valid", 0.2, 1)
    assert found["audit"] == {"n": 0, "wrong": 0, "low": 0, "high": 1, "alarm_at": None}
    certificate = f"{ROOT}/certificates/{found['id']}"
    labelled = post(engineer, f"{certificate}/labels")
    assert labelled["run"] is None
    assert labelled["n_labels"] == CertifiedLabel.objects.count() > 20
    dataset = post(engineer, f"{certificate}/freeze", {"name": "By Judy"})
    assert (dataset["name"], dataset["state"]) == ("By Judy", "frozen")
    assert Snapshot.objects.get(pk=dataset["id"]).recipe["ai_feedback"]["labelled_by"]
    known = get(engineer, certificate)
    assert known["uses"] == [
        {
            "dataset": dataset["id"],
            "name": "By Judy",
            "n_labels": known["n_labels"] - known["n_audited"],
        }
    ]
    assert known["n_audited"] > 0
    stopped = post(engineer, f"{certificate}/stop", {"because": "Enough."}, status=200)
    assert (stopped["state"], stopped["stopped_because"]) == ("stopped", "Enough.")
    for what in ("labels", "freeze"):
        refused = post(engineer, f"{certificate}/{what}", status=409)
        assert refused["code"] == "certificate_stopped"
    listed = get(engineer, f"{ROOT}/certificates?judge={made['id']}")
    assert [row["id"] for row in listed["items"]] == [found["id"]]
    assert get(engineer, f"{ROOT}/certificates?judge=1")["count"] == 0
    assert Vote.objects.count() == votes  # whatever it said


def test_a_new_version_differs_only_in_what_was_given(
    engineer: Client, version: JudgeVersion
) -> None:
    path = f"{JUDGES}/{version.judge_id}/versions"
    made = post(engineer, path, {"config": {"rubric": "Be brief."}, "note": "shorter"})
    assert (made["number"], made["note"], made["worth"]) == (2, "shorter", None)
    assert made["config"] == version.config | {"rubric": "Be brief."}
    same = post(engineer, path, {"config": {"rubric": "Be brief."}})
    assert same == made
    whole = get(engineer, f"{JUDGES}/{version.judge_id}")
    assert [one["number"] for one in whole["versions"]] == [2, 1]
    assert whole["version"] == made


def test_an_archived_judge_is_asked_nothing_and_can_be_read(
    project: Project, engineer: Client, version: JudgeVersion
) -> None:
    voted(project, 2)
    path = f"{JUDGES}/{version.judge_id}"
    assert post(engineer, f"{path}/archive", status=200)["archived_at"]
    assert post(engineer, f"{path}/archive", status=200)["archived_at"]
    assert get(engineer, JUDGES) == []
    assert get(engineer, path)["name"] == "Other"
    assert post(engineer, of(version, "/measurements"), status=409)["code"] == "judge_archived"


def test_each_verdict_says_whose_it_is_and_that_it_is_no_vote(
    project: Project, engineer: Client, version: JudgeVersion, rita: User, signed_in: SignedIn
) -> None:
    voted(project, 3)
    run = post(engineer, of(version, "/measurements"), {"share": 1})
    answered(asked(run["run"]), right())
    found = get(engineer, of(version, "/verdicts?limit=2"))
    assert (found["count"], len(found["items"])) == (3, 2)
    for one in found["items"]:
        assert (one["judge"], one["is_vote"]) == ("Other v1", False)
        assert one["preference"] == pytest.approx((one["first"] + 1 - one["second"]) / 2)
    assert get(engineer, of(version, "/verdicts?limit=2&offset=2"))["items"]
    # Whoever may vote on a pair must not read what a judge said of it.
    assert get(signed_in(rita), of(version, "/verdicts"))["count"] == 0
    task = version.verdicts.order_by("task_id").first()
    assert task is not None
    task.task.state = "decided"
    task.task.save(update_fields=["state"])
    assert get(signed_in(rita), of(version, "/verdicts"))["count"] == 1


def test_prompts_are_tried_and_told_by_parts(
    project: Project, engineer: Client, version: JudgeVersion
) -> None:
    voted(project, 200, seed=5)
    base = version.config["prompt"]
    body = {"prompts": [f"{base}\nBad.", f"{base}\nGood."]}
    key = post(engineer, of(version, "/trials"), body)["key"]
    for run in JudgeRun.objects.filter(purpose="tune"):
        good = run.version.config["prompt"].endswith("Good.")
        answered(run, right() if good else right(-1.0))
    answered(JudgeRun.objects.get(purpose="certify"), right())
    [trial] = get(engineer, f"{JUDGES}/{version.judge_id}/trials")
    assert (trial["key"], trial["live"], trial["scope"]["kind"]) == (key, False, "project")
    bad, good = trial["versions"]
    assert bad["choose"]["figures"]["agreement"]["value"] < 0.5
    assert bad["certify"] is None
    assert (good["certify"]["part"], good["certify"]["look"]) == ("certify", 1)


def test_the_least_sure_pairs_go_first(
    project: Project, engineer: Client, version: JudgeVersion
) -> None:
    voted(project, 20, unvoted=40)
    refused = post(engineer, of(version, "/presort"), status=409)
    assert (refused["code"], refused["field"]) == ("no_verdicts", "scope")
    run = post(engineer, of(version, "/measurements"))
    answered(asked(run["run"]), right())
    found = post(engineer, of(version, "/presort"), {"measuring": 0.3}, status=200)
    assert found["moved"] + found["measuring"] == 40
    assert found["measuring"] > 0


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"name": " "}, 400, "name"),
        ({"name": "n" * 81}, 400, "name"),
        ({"name": "Other"}, 409, "name"),
        ({"name": "n" * 201}, 422, "name"),
        ({"model": "none"}, 404, "model"),
        ({"model": "\x00"}, 404, "model"),
        ({"config": {"prompt": "Which is better?"}}, 400, "prompt"),
        ({"config": {"prompt": "x" * 9_000}}, 400, "prompt"),
        ({"config": {"nonsense": 1}}, 400, "nonsense"),
        ({"config": {"temperature": math.nan}}, 400, "temperature"),
        ({"config": {"max_new_tokens": -1}}, 400, "max_new_tokens"),
        ({"config": {"rubric": ["x"] * 6_000}}, 422, "config"),
        ({"config": []}, 422, "config"),
    ],
)
def test_a_judge_that_cannot_be_made_is_refused_at_its_field(
    engineer: Client, version: JudgeVersion, model: Checkpoint, body, status: int, field: str
) -> None:
    refused = post(engineer, JUDGES, {"name": "Judy", "model": model.pk} | body, status=status)
    assert refused["field"] == field
    assert JudgeVersion.objects.count() == 1


ELSEWHERE = {"kind": "batch", "name": "none"}
DUEL = {"kind": "head_to_head", "name": "none"}


@pytest.mark.parametrize(
    ("what", "body", "status", "field"),
    [
        ("measurements", {"share": 0}, 400, "share"),
        ("measurements", {"share": math.nan}, 400, "share"),
        ("measurements", {"attacked": 201}, 400, "attacked"),
        ("measurements", {"queue": "none"}, 400, "queue"),
        ("measurements", {"scope": ELSEWHERE}, 404, "scope"),
        ("measurements", {"scope": DUEL}, 404, "scope"),
        ("measurements", {"scope": {"kind": "all"}}, 422, "scope.kind"),
        ("measurements", {"scope": "batch:none"}, 422, "scope.kind"),
        ("measurements", {"scope": ELSEWHERE | {"name": "n" * 300}}, 422, "scope.name"),
        ("certificates", {"error": 0.6}, 400, "error"),
        ("certificates", {"failure": 0}, 400, "failure"),
        ("certificates", {"audited": math.inf}, 400, "audited"),
        ("certificates", {"against": "people"}, 400, "against"),
        ("certificates", {"scope": ELSEWHERE}, 404, "scope"),
        ("certificates", {"scope": DUEL}, 409, "scope"),
        ("presort", {"measuring": 1}, 400, "measuring"),
        ("presort", {"scope": DUEL}, 409, "scope"),
        ("trials", {}, 422, "prompts"),
        ("trials", {"prompts": ["one"]}, 400, "prompts"),
        ("trials", {"prompts": ["x"] * 7}, 422, "prompts"),
        ("trials", {"prompts": ["one", "two"], "share": 2}, 400, "share"),
        ("trials", {"prompts": ["one", "two"]}, 400, "scope"),
    ],
)
def test_what_cannot_be_asked_of_a_version_is_refused_at_its_field(
    project: Project, engineer: Client, version: JudgeVersion, what, body, status: int, field: str
) -> None:
    voted(project, 2)
    refused = post(engineer, of(version, f"/{what}"), body, status=status)
    assert refused["field"] == field
    assert not JudgeRun.objects.exists()
    assert not LabelCertificate.objects.exists()


def test_garbage_is_refused_and_nothing_happens(engineer: Client, version: JudgeVersion) -> None:
    paths = [JUDGES, f"{JUDGES}/{version.judge_id}/versions", of(version, "/measurements")]
    paths += [of(version, f"/{what}") for what in ("trials", "presort", "certificates")]
    for path in paths:
        for body in (b"{", b"\xff\xfe", b'{"scope": 1, "config": 1}'):
            answer = engineer.post(path, body, content_type="application/json")
            assert answer.status_code in (400, 422), (path, body, answer.content)
    for number in ("0", "99", str(10**30)):
        get(engineer, f"{JUDGES}/{number}", status=404)
        get(engineer, of(version, f"/measurements/{number}"), status=404)
        get(engineer, f"{JUDGES}/{version.judge_id}/versions/{number}/verdicts", status=404)
    get(engineer, f"{JUDGES}/x", status=422)
    get(engineer, of(version, "/verdicts?limit=0"), status=422)
    get(engineer, f"{ROOT}/certificates/none", status=404)
    assert JudgeVersion.objects.count() == 1


def test_a_nul_in_a_prompt_is_replaced(engineer: Client, version: JudgeVersion) -> None:
    path = f"{JUDGES}/{version.judge_id}/versions"
    made = post(engineer, path, {"config": {"rubric": "a\x00b"}})
    assert made["config"]["rubric"] == "a\ufffdb"


def test_a_judge_of_another_project_is_not_there(
    engineer: Client, emil: User, version: JudgeVersion, signed_in: SignedIn
) -> None:
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    voted(elsewhere, 1)
    other = judge_of(elsewhere, emil, name="Theirs")
    certificate = LabelCertificate.objects.create(
        version=other,
        project=elsewhere,
        scope={},
        against="vote",
        error=0.1,
        failure=0.1,
        audited=0.1,
        look=1,
    )
    get(engineer, f"{JUDGES}/{other.judge_id}", status=404)
    for what in ("/measurements", "/verdicts"):
        get(engineer, of(other, what), status=404)
    for what in ("/measurements", "/certificates", "/presort"):
        assert post(engineer, of(other, what), status=404)["field"] == "judge"
    get(engineer, f"{ROOT}/certificates/{certificate.pk}", status=404)
    for what in ("labels", "freeze", "stop"):
        post(engineer, f"{ROOT}/certificates/{certificate.pk}/{what}", status=404)
    assert get(engineer, f"{ROOT}/certificates")["count"] == 0
    refused = post(engineer, JUDGES, {"name": "Judy", "model": other.model_id}, status=404)
    assert refused["field"] == "model"


def test_outsiders_annotators_and_reviewers_get_what_is_theirs(
    project: Project, version: JudgeVersion, ana: User, rita: User, signed_in: SignedIn
) -> None:
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    olga = person_make("Olga", elsewhere, Role.ADMIN)
    for path in (JUDGES, f"{JUDGES}/{version.judge_id}", of(version, "/verdicts")):
        get(signed_in(olga), path, status=404)
        get(signed_in(ana), path, status=403)
        get(signed_in(rita), path)
        get(Client(), path, status=401)
    for person, status in ((olga, 404), (ana, 403), (rita, 403)):
        post(signed_in(person), of(version, "/measurements"), status=status)
        post(signed_in(person), of(version, "/certificates"), status=status)
    assert not JudgeRun.objects.exists()
    assert not Decision.objects.exists()
