"""A model copied into another project: who may, what goes along, what stays apart."""

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import project_archive, project_delete
from apps.common.errors import Conflict, DomainError
from apps.snapshots.models import Snapshot, SnapshotRow
from apps.training import services
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.runs import lineage_down, lineage_up
from apps.training.services.held_out import judge_check
from apps.training.services.housekeeping import run_delete
from apps.training.services.sharing import model_copy
from tests.labeling.pairs import pairs_make
from tests.training.reports import report, saved
from tests.training.test_downloads import FILES, Put, api, put
from tests.web.world import run_make
from workers.contract import Finished, Opened

__all__ = ["put"]  # a fixture


@pytest.fixture
def other(project: Project, ada: User) -> Project:
    """A second project that ada administers as she administers the first."""
    assert Membership.objects.get(project=project, user=ada).role == Role.ADMIN
    made = Project.objects.create(slug="other", name="Other")
    Membership.objects.create(project=made, user=ada, role=Role.ADMIN)
    return made


def finish(run: Run) -> Checkpoint:
    """As a worker would end the copy."""
    Run.objects.filter(pk=run.pk).update(state=Run.State.RUNNING)
    run.refresh_from_db()
    report(run, Opened(), saved(0, "last", "final"), Finished(step=0, summary={}))
    return Checkpoint.objects.get(run=run)


@pytest.fixture
def copied(put: Put, other: Project, ada: User) -> Callable[..., Checkpoint]:
    def make(model: Checkpoint) -> Checkpoint:
        return finish(model_copy(model=model, slug=other.slug, user=ada))

    return make


def test_the_page_and_the_api_copy_it_for_whoever_administers_both(
    client: Client, ada: User, other: Project, put: Put
) -> None:
    base = put(FILES | {"LICENSE": "MIT"}, kind="register_policy", model="org/small")
    model = put(start=base)
    client.force_login(ada)
    page = f"/p/{model.project.slug}/models/{model.pk}/"
    assert '<option value="other">Other</option>' in client.get(page).content.decode()
    for _ in range(2):  # a double click
        sent = client.post(f"{page}copy/", {"project": "other", "key": "k"})
        assert sent.status_code == 302
    run = Run.objects.get(project=other)
    assert sent.headers["Location"] == f"/p/other/runs/{run.pk}/"
    assert (run.kind, run.name) == ("register_policy", model.run.name)
    assert run.config == {"model": f"{model.project.slug}/{model.pk}"}
    inputs = {row.role: row.checkpoint for row in run.inputs.all()}
    assert inputs == {"base": model, "licence": base}
    told = AuditEvent.objects.get(action="model.copied", project=model.project)
    assert (told.subject, told.details) == (model.pk, {"project": "other", "run": run.pk})
    by_api = client.post(
        api(model, "/copy"), {"project": "other", "name": "mine"}, "application/json"
    )
    assert (by_api.status_code, by_api.json()["name"]) == (201, "mine")
    assert client.get(sent.headers["Location"]).status_code == 200


def test_nobody_else_copies_it_nor_learns_which_projects_there_are(
    client: Client, emil: User, ada: User, olga: User, other: Project, put: Put
) -> None:
    model = put()
    Membership.objects.create(project=other, user=emil, role=Role.ADMIN)
    Membership.objects.create(project=other, user=olga, role=Role.ADMIN)
    unknown = {}
    for user, slug in ((emil, "other"), (ada, "nowhere"), (ada, model.project.slug), (ada, "\x00")):
        client.force_login(user)
        answer = client.post(api(model, "/copy"), {"project": slug}, "application/json")
        assert (answer.status_code, answer.json()["field"]) == (404, "project")
        unknown[slug] = answer.json()["message"]
    assert len(set(unknown.values())) == 1
    client.force_login(emil)
    page = client.get(f"/p/{model.project.slug}/models/{model.pk}/").content.decode()
    assert "Copy to another project" not in page
    for address in (api(model, "/copy"), f"/p/{model.project.slug}/models/{model.pk}/copy/"):
        client.force_login(olga)  # of the other project alone
        assert client.post(address, {"project": "other"}, "application/json").status_code == 404
    assert not Run.objects.filter(project=other).exists()


def test_an_input_of_another_project_is_refused_by_the_usual_door(
    client: Client, ada: User, other: Project, put: Put
) -> None:
    """Only the service may name it: `POST runs` and a clone know no other project."""
    model = put()
    run = model_copy(model=model, slug=other.slug, user=ada)
    client.force_login(ada)
    sent = {"kind": "register_policy", "name": "x", "config": {"model": "org/model"}}
    answer = client.post(
        "/api/v1/projects/other/runs",
        sent | {"inputs": {"base": f"checkpoint:{model.pk}"}},
        "application/json",
    )
    assert answer.status_code == 404
    for role in ("base", "licence"):  # nor a model of one's own, said to be another one
        with pytest.raises(DomainError) as refused:
            services.run_launch(
                project=model.project,
                kind="register_policy",
                name="x",
                config={"model": "org/model"},
                inputs={role: model},
            )
        assert refused.value.code == "unknown_input"
    finish(run)
    with pytest.raises(DomainError) as refused:
        services.run_clone(run=run, user=ada)
    assert refused.value.code == "unknown_input"


def test_an_archived_project_gets_none_and_a_rejected_model_goes_nowhere(
    ada: User, other: Project, put: Put
) -> None:
    model = put()
    Checkpoint.objects.filter(pk=model.pk).update(status=Checkpoint.Status.REJECTED)
    model.refresh_from_db()
    with pytest.raises(Conflict) as refused:
        model_copy(model=model, slug=other.slug, user=ada)
    assert refused.value.code == "checkpoint_rejected"
    project_archive(project=other, by=ada)
    with pytest.raises(Conflict) as refused:
        model_copy(model=put(), slug=other.slug, user=ada)
    assert refused.value.code == "project_archived"
    assert not Run.objects.filter(project=other).exists()


def test_lineage_goes_on_over_the_copy_without_links_that_lead_nowhere(
    client: Client, emil: User, other: Project, put: Put, copied: Callable[..., Checkpoint]
) -> None:
    base = put(kind="register_policy", model="org/small", summary={"licence": "mit"})
    model = put(start=base)
    copy = copied(model)
    (up, licence) = lineage_up(copy.run)
    assert (up.role, up.id, up.project) == ("base", model.run_id, model.project.slug)
    assert [(one.id, one.project) for one in up.inputs] == [(base.run_id, model.project.slug)]
    assert licence.role == "licence"
    (down,) = [one for one in lineage_down(model.run) if one.role == "base"]
    assert (down.id, down.project, down.outputs) == (copy.run_id, "other", [])
    later = run_make(other, kind="dpo", name="later")
    RunInput.objects.create(run=later, role="sft", checkpoint=copy)
    (down,) = [one for one in lineage_down(model.run) if one.role == "base"]
    assert down.outputs == []
    Membership.objects.create(project=other, user=emil, role=Role.ENGINEER)
    client.force_login(emil)
    shown = client.get(f"/p/other/models/{copy.pk}/").content.decode()
    assert f"/p/other/runs/{model.run_id}/" not in shown
    assert f"of the project {model.project.slug}" in shown
    assert "mit" in client.get(f"/api/v1/projects/other/models/{copy.pk}").json()["card"]
    shown = client.get(f"/p/{model.project.slug}/models/{model.pk}/").content.decode()
    assert f"/runs/{copy.run_id}/" not in shown
    assert "copy in the project other" in shown


def test_a_copied_judge_that_learned_from_the_same_votes_is_refused_there_too(
    project: Project, other: Project, copied: Callable[..., Checkpoint], put: Put
) -> None:
    (pair,) = pairs_make(project, 1)
    models = []
    for votes in ([1, 2], [2, 3], [4]):
        data = Snapshot.objects.create(project=project, kind="preferences")
        SnapshotRow.objects.create(snapshot=data, comparison=pair, split="train", vote_ids=votes)
        model = put(kind="reward")
        RunInput.objects.create(run=model.run, role="data", snapshot=data)
        models.append(copied(model))
    reward, same, apart = models
    judge_check(project_id=other.pk, kind="ppo", inputs={"reward": reward, "judge": apart})
    with pytest.raises(DomainError) as refused:
        judge_check(project_id=other.pk, kind="ppo", inputs={"reward": reward, "judge": same})
    assert refused.value.code == "judge_not_held_out"


def test_the_first_project_and_its_run_can_be_deleted_and_the_copy_stays(
    ada: User, other: Project, put: Put, copied: Callable[..., Checkpoint]
) -> None:
    model, second = put(), put()
    being = model_copy(model=model, slug=other.slug, user=ada)
    with pytest.raises(Conflict) as refused:
        run_delete(run=model.run, typed=model.run.name, user=ada)
    assert refused.value.code == "being_copied"
    kept = [finish(being), copied(second)]
    run_delete(run=model.run, typed=model.run.name, user=ada)
    project = second.project
    project_archive(project=project, by=ada)
    project_delete(project=project, typed=project.name, by=ada)
    for copy in kept:
        copy.refresh_from_db()
        assert not lineage_up(copy.run)
        assert copy.run.config["model"].startswith(f"{project.slug}/")
