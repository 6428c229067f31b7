"""Pages of judges: making, measuring, certifying and labelling by form, for whoever may."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.evaluation.models import Judge, JudgeRun, JudgeVersion, LabelCertificate
from apps.evaluation.selectors.judges import Scope
from apps.evaluation.services.certificates import certificate_make, certificate_stop
from apps.evaluation.services.judge_worth import judge_measure
from apps.labeling import services as labeling
from apps.labeling.models import LabelingSettings, Task
from apps.snapshots.models import Snapshot
from tests.evaluation.judged import answered, judge_of, model_of, right, voted

SignedIn = Callable[[User], Client]
ROOT = "/p/arguments/judges/"
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def engineer(emil: User, signed_in: SignedIn) -> Client:
    return signed_in(emil)


@pytest.fixture
def version(project: Project, emil: User) -> JudgeVersion:
    return judge_of(project, emil)


def shown(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, path
    return re.sub(r"\s+", " ", answer.content.decode())


def posted(client: Client, path: str, data: dict[str, Any], status: int = 302) -> str:
    answer = client.post(path, data)
    assert answer.status_code == status, answer.content.decode()[-3000:]
    return answer["Location"] if status == 302 else answer.content.decode()


def page_of(version: JudgeVersion, what: str = "") -> str:
    return f"{ROOT}{version.judge_id}/{what}"


def measured(version: JudgeVersion, user: User, **about: Any) -> JudgeVersion:
    asked = judge_measure(version=version, scope=Scope(), user=user, share=1.0)
    if isinstance(asked, JudgeRun):
        answered(asked, right(4.0), **about)
    version.refresh_from_db()
    return version


def certified(version: JudgeVersion, user: User, error: float = 0.2) -> LabelCertificate:
    return certificate_make(
        version=version,
        scope=Scope(),
        error=error,
        failure=0.1,
        against="vote",
        audited=0.25,
        user=user,
    )


def test_the_list_says_which_judges_were_measured(
    project: Project, emil: User, rita: User, engineer: Client, signed_in: SignedIn
) -> None:
    assert "No judge yet" in shown(engineer, ROOT)
    assert "An engineer or an admin makes one." in shown(signed_in(rita), ROOT)
    voted(project, 60)
    measured(judge_of(project, emil), emil)
    judge_of(project, emil, name="Untold")
    for client in (engineer, signed_in(rita)):
        page = shown(client, ROOT)
        assert "Judy" in page
        assert "Untold" in page
        assert page.count('<span class="badge good">Measured</span>') == 1
        assert page.count('<span class="badge warn">Not measured</span>') == 1
    assert "New judge" in shown(engineer, ROOT)
    assert "New judge" not in shown(signed_in(rita), ROOT)


def test_a_judge_is_made_by_form_and_what_was_typed_stays_where_it_is_refused(
    project: Project, engineer: Client
) -> None:
    assert "No model could judge" in shown(engineer, f"{ROOT}new/")
    model = model_of(project)
    assert "{first}" in shown(engineer, f"{ROOT}new/?model={model.pk}")
    form = {
        "name": "Judy",
        "model": model.pk,
        "prompt": "Which is better, my typed question?",
        "rubric": "Brevity above all.",
        "parser": "letter",
        "max_new_tokens": "8",
        "temperature": "0",
    }
    refused = posted(engineer, f"{ROOT}new/", form, status=422)
    assert "must hold {prompt}, {first}, {second}" in refused
    for text in ("my typed question?", "Brevity above all.", 'value="Judy"'):
        assert text in refused
    assert not Judge.objects.exists()
    good = form | {"prompt": "{rubric} {prompt} {first} {second} A, B or tie?"}
    to = posted(engineer, f"{ROOT}new/", good)
    judge = Judge.objects.get()
    assert to == f"{ROOT}{judge.pk}/"
    assert judge.versions.get().config["rubric"] == "Brevity above all."
    again = posted(engineer, f"{ROOT}new/", good, status=422)
    assert "A judge of this project has that name." in again


def test_another_prompt_is_another_version_and_the_same_is_not(
    engineer: Client, version: JudgeVersion
) -> None:
    path = page_of(version, "version/")
    page = engineer.get(path).content.decode()
    assert "Which answer is better?" in page
    form = {name: version.config[name] for name in ("prompt", "rubric", "parser")}
    form |= {"model": version.model_id, "max_new_tokens": "8", "temperature": "0", "note": "n"}
    posted(engineer, path, form)
    assert version.judge.versions.count() == 1
    posted(engineer, path, form | {"rubric": "Be kind."})
    assert version.judge.versions.get(number=2).note == "n"
    assert "Be kind." in shown(engineer, page_of(version))
    assert "Be kind." not in shown(engineer, page_of(version, "?version=1"))
    shown(engineer, page_of(version, "?version=9"), status=404)


def test_a_judge_s_page_before_and_after_it_was_measured(
    project: Project, emil: User, rita: User, engineer: Client, signed_in: SignedIn
) -> None:
    voted(project, 120, votes=2, seed=1)
    version = judge_of(project, emil)
    reader = signed_in(rita)
    for client in (engineer, reader):
        assert "Nobody has measured this version." in shown(client, page_of(version))
    act = page_of(version, "act/")
    refused = posted(
        engineer, act, {"action": "measure", "scope": "project", "share": "0"}, status=422
    )
    assert "greater than or equal to 1" in refused
    form = {"action": "measure", "version": "1", "scope": "project", "share": "100"}
    assert posted(engineer, act, form) == page_of(version, "?version=1")
    polled = engineer.get(page_of(version), headers={"HX-Request": "true"})
    assert "every 5s" in polled.content.decode()
    assert "HX-Refresh" not in polled
    answered(
        JudgeRun.objects.get(),
        right(),
        fingerprint="fp-1",
        attacks={"flattery": {"n": 20, "moved": 5}, "threat": {"n": 0, "moved": 0}},
    )
    for client in (engineer, reader):
        page = shown(client, page_of(version))
        for words in ("Agrees with a vote", "People alone", "Judge alone", "flattery", "fp-1"):
            assert words in page
        assert "Whoever voted saw no verdict." in page
    assert "Measure it" in shown(engineer, page_of(version))
    assert "Measure it" not in shown(reader, page_of(version))
    assert "Where it differs from people" not in shown(reader, page_of(version))


def test_a_probe_that_was_taken_over_is_no_run_that_is_waited_for(
    project: Project, emil: User, engineer: Client
) -> None:
    voted(project, 30)
    version = measured(judge_of(project, emil), emil)
    answered(version.runs.get(purpose="probe"), right(4.0))
    assert "every 5s" not in shown(engineer, page_of(version))


def test_prompts_are_tried_by_form(project: Project, emil: User, engineer: Client) -> None:
    voted(project, 200, seed=5)
    version = judge_of(project, emil)
    act, base = page_of(version, "act/"), version.config["prompt"]
    form = {"action": "trial", "scope": "project", "share": "100"}
    refused = posted(engineer, act, form | {"prompts": base}, status=422)
    assert "Give 2 to 6 prompts." in refused
    posted(engineer, act, form | {"prompts": f"{base}\r\n---\r\n{base} Decide quickly."})
    tried = JudgeRun.objects.filter(purpose="tune")
    assert tried.count() == 2
    assert "under way" in shown(engineer, page_of(version))
    for run in tried:
        answered(run, right())
    answered(JudgeRun.objects.get(purpose="certify"), right())
    page = shown(engineer, page_of(version))
    assert "Part kept apart" in page
    assert page.count("not read") == 1


def test_the_queue_is_sorted_by_form(project: Project, emil: User, engineer: Client) -> None:
    voted(project, 30, unvoted=30)
    version = judge_of(project, emil)
    act = page_of(version, "act/")
    form = {"action": "presort", "scope": "project", "measuring": "30"}
    assert "ask it first" in posted(engineer, act, form, status=422)
    measured(version, emil)
    posted(engineer, act, form)
    assert Task.objects.filter(slice="measuring").exists()
    assert "go first" in shown(engineer, page_of(version))
    posted(engineer, act, {"action": "nonsense"}, status=404)


def test_labels_are_certified_given_and_frozen_by_form(
    project: Project, emil: User, rita: User, engineer: Client, signed_in: SignedIn
) -> None:
    voted(project, 320, seed=1, noise=0.05, unvoted=60)
    version = measured(judge_of(project, emil), emil)
    form = {"action": "certify", "scope": "project", "failure": "10", "against": "vote"}
    form |= {"audited": "25"}
    act = page_of(version, "act/")
    assert "less than or equal to 50" in posted(engineer, act, form | {"error": "90"}, status=422)
    to = posted(engineer, act, form | {"error": "20"})
    found = LabelCertificate.objects.get()
    assert to == f"/p/arguments/label-certificates/{found.pk}/"
    reader = signed_in(rita)
    for client in (engineer, reader):
        page = shown(client, to)
        assert '<span class="badge good">Valid</span>' in page
        assert "No audited label has been settled by people yet." in page
        assert found.sha256 in page
    assert "Label pairs without a vote" in shown(engineer, to)
    assert "Label pairs without a vote" not in shown(reader, to)
    posted(engineer, f"{to}act/", {"action": "label", "scope": "batch:none"}, status=422)
    posted(engineer, f"{to}act/", {"action": "freeze", "name": "Early"})
    assert "There are no labels" in shown(engineer, to)
    posted(engineer, f"{to}act/", {"action": "label", "scope": "project"})
    assert found.labels.count() > 20
    assert f"{found.labels.count()} labels" in shown(engineer, to)
    posted(engineer, f"{to}act/", {"action": "freeze", "name": ""}, status=422)
    posted(engineer, f"{to}act/", {"action": "freeze", "name": "By Judy"})
    dataset = Snapshot.objects.get(name="By Judy")
    assert "By Judy" in shown(reader, to)
    shown(engineer, f"/p/arguments/datasets/{dataset.pk}/")
    posted(engineer, f"{to}act/", {"action": "stop"})
    for client in (engineer, reader):
        page = shown(client, to)
        assert '<span class="badge bad">Stopped</span>' in page
        assert "Freeze as a dataset" not in page
    posted(engineer, f"{to}act/", {"action": "label", "scope": "project"})
    assert "This certificate has stopped" in shown(engineer, to)


def test_a_certificate_of_nothing_says_why_and_labels_nothing(
    project: Project, emil: User, rita: User, engineer: Client, signed_in: SignedIn
) -> None:
    voted(project, 40)
    found = certified(measured(judge_of(project, emil), emil), emil, error=0.01)
    path = f"/p/arguments/label-certificates/{found.pk}/"
    for client in (engineer, signed_in(rita)):
        page = shown(client, path)
        assert "Nothing could be certified" in page
        assert "Label pairs without a vote" not in page
    assert not found.labels.exists()


def test_hostile_texts_are_shown_as_text(project: Project, emil: User, engineer: Client) -> None:
    LabelingSettings.objects.update_or_create(project=project, defaults={})
    voted(project, 200, seed=7)
    labeling.comparisons_import(
        project=project,
        rows=[
            {
                "id": f"hostile-{n}",
                "prompt": f"{HOSTILE} {n}?",
                "response_a": f"{HOSTILE} a{n} quality=9.0",
                "response_b": f"{HOSTILE} b{n} quality=-9.0",
            }
            for n in range(30)
        ],
    )
    labeling.votes_import(
        project=project,
        rows=[
            {"comparison": f"hostile-{n}", "annotator": f"w{who}", "choice": "b"}
            for n in range(30)
            for who in range(2)
        ],
    )
    model = model_of(project)
    model.run.name = f"{HOSTILE} run"
    model.run.save()
    prompt = f"{HOSTILE} {{prompt}} {{first}} {{second}} {{rubric}}"
    version = judge_of(project, emil, name=f"{HOSTILE}"[:80], prompt=prompt, rubric=HOSTILE)
    version.note = HOSTILE
    version.save()
    asked = judge_measure(version=version, scope=Scope(), user=emil, share=1.0)
    assert isinstance(asked, JudgeRun)
    answered(asked, right(), fingerprint=HOSTILE)
    version.verdicts.update(said=[HOSTILE, HOSTILE])
    found = certified(version, emil)
    certificate_stop(certificate=found, because=HOSTILE, by=emil)
    page = shown(engineer, page_of(version))
    assert "Where it differs from people" in page
    assert page.count("&lt;script&gt;") > 5
    pages = [page, shown(engineer, ROOT), shown(engineer, f"{ROOT}new/")]
    pages.append(shown(engineer, page_of(version, "version/")))
    pages.append(shown(engineer, f"/p/arguments/label-certificates/{found.pk}/"))
    form = {"action": "trial", "scope": HOSTILE, "prompts": HOSTILE, "share": HOSTILE}
    pages.append(posted(engineer, page_of(version, "act/"), form, status=422))
    form = {"name": HOSTILE, "prompt": HOSTILE, "rubric": HOSTILE, "model": HOSTILE}
    pages.append(posted(engineer, f"{ROOT}new/", form, status=422))
    pages.append(shown(engineer, "/p/arguments/runs/"))
    for one in pages:
        assert "<script>alert" not in one
        assert "<img src=x" not in one
