"""A constitution is saved as versions, taken by runs that rewrite, and frozen into datasets."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict, DomainError, Unprocessable
from apps.labeling.services import labeling_settings_update
from apps.snapshots.models import Snapshot
from apps.snapshots.storage import artifact_store
from apps.training import selectors, services
from apps.training.models import Artifact, Constitution, Run, RunInput
from apps.training.selectors.constitution import constitution_versions
from apps.training.services.constitution import constitution_applied, constitution_save
from apps.training.services.revisions import revisions_freeze
from tests.training.conftest import FakeWire
from workers.config import recipe_fields

HONEST = {"name": "honest", "text": "An answer says what it does not know."}
SHORT = {"name": "short", "text": "An answer is as short as it can be."}
RULES = {
    "type": "rules",
    "rules": [{"name": "no-love", "lacks": ["love"], "on_violation": "block"}],
}
SignedIn = Callable[[User], Client]


def save(project: Project, user: User, *principles: dict[str, str], **more: Any) -> Constitution:
    given = {"hard_rules": {}, "note": ""} | more
    return constitution_save(project=project, principles=principles, user=user, **given)


def test_a_version_is_kept_with_who_saved_it_and_logged(project: Project, emil: User) -> None:
    made = save(project, emil, HONEST, note="the first")
    assert (made.number, made.principles, made.created_name) == (1, [HONEST], "Emil")
    event = AuditEvent.objects.get(action="constitution.saved")
    assert event.details == {"version": 1, "principles": 1, "note": "the first"}


def test_saving_the_same_again_makes_no_version(project: Project, emil: User) -> None:
    first = save(project, emil, HONEST)
    assert save(project, emil, HONEST, note="again") == first
    assert save(project, emil, HONEST, SHORT).number == 2


def test_a_version_can_be_neither_changed_nor_deleted_but_with_its_project(
    project: Project, emil: User
) -> None:
    made = save(project, emil, HONEST)
    rows = Constitution.objects.filter(pk=made.pk)
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        rows.update(note="other")
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        rows.delete()
    rows.update(created_by=None)  # as when the account is deleted
    Project.objects.filter(pk=project.pk).update(archived_at=made.created_at)
    rows.delete()
    assert not Constitution.objects.exists()


@pytest.mark.parametrize(
    ("principles", "more", "field"),
    [
        ([], {}, "principles"),
        ([HONEST] * 51, {}, "principles"),
        ([HONEST, HONEST | {"name": "Honest"}], {}, "principles[1].name"),
        ([HONEST, SHORT | {"text": " "}], {}, "principles[1].text"),
        ([HONEST | {"name": "x" * 81}], {}, "principles[0].name"),
        ([HONEST | {"weight": 2}], {}, "principles[0]"),
        ([HONEST], {"note": "x" * 501}, "note"),
        ([HONEST], {"hard_rules": {"type": "no such"}}, "hard_rules"),
        ([HONEST], {"hard_rules": {"type": "model"}}, "hard_rules"),
    ],
)
def test_what_is_wrong_with_a_version_is_named(
    project: Project,
    emil: User,
    principles: list[dict[str, Any]],
    more: dict[str, Any],
    field: str,
) -> None:
    with pytest.raises(DomainError) as refused:
        save(project, emil, *principles, **more)
    assert refused.value.field == field
    assert not Constitution.objects.exists()


def test_two_people_do_not_overwrite_each_other(project: Project, emil: User, ada: User) -> None:
    save(project, emil, HONEST, over=0)
    with pytest.raises(Conflict) as refused:
        save(project, ada, SHORT, over=0)
    assert refused.value.code == "superseded"


def test_what_a_version_changed_is_told_principle_by_principle(
    project: Project, emil: User
) -> None:
    save(project, emil, HONEST, SHORT)
    reworded, renamed = HONEST | {"text": "It is honest."}, SHORT | {"name": "brief"}
    save(project, emil, reworded, renamed, {"name": "kind", "text": "It is kind."})
    save(project, emil, reworded, hard_rules=RULES)
    third, second, first = constitution_versions(project=project)
    assert [(one.what, one.name) for one in second.changes] == [
        ("reworded", "honest"),
        ("renamed", "brief"),
        ("added", "kind"),
    ]
    assert [(one.what, one.name) for one in third.changes] == [
        ("removed", "brief"),
        ("removed", "kind"),
    ]
    assert (third.rules_changed, second.rules_changed, first.changes) == (True, False, ())


# Runs take the newest version.


def taken(project: Project, **config: Any) -> dict[str, Any]:
    return constitution_applied(project=project, config=config)


def test_a_run_that_rewrites_takes_the_newest_version(project: Project, emil: User) -> None:
    save(project, emil, SHORT)
    save(project, emil, HONEST, SHORT, hard_rules=RULES)
    got = taken(project, opponent="revision")
    assert got["principles"] == [HONEST["text"], SHORT["text"]]
    assert got["filter"] == RULES
    known = {field.name for field in recipe_fields("generate")}
    assert ("constitution" in got) == ("constitution" in known)
    assert taken(project, opponent="revision", filter={"type": "rules"})["filter"] == {
        "type": "rules"
    }


def test_the_recipe_s_own_principles_count_as_none_given(project: Project, emil: User) -> None:
    save(project, emil, HONEST)
    default = next(one.default for one in recipe_fields("generate") if one.name == "principles")
    assert taken(project, opponent="revision", principles=list(default))["principles"] == [
        HONEST["text"]
    ]


def test_a_run_with_principles_of_its_own_or_that_rewrites_nothing_stays_as_it_is(
    project: Project, emil: User
) -> None:
    save(project, emil, HONEST)
    for config in ({"opponent": "revision", "principles": ["Be brief."]}, {"opponent": "self"}):
        assert taken(project, **config) == config


def test_a_run_does_not_claim_a_version_that_it_does_not_follow(
    project: Project, emil: User
) -> None:
    save(project, emil, HONEST)
    save(project, emil, SHORT)
    older = taken(project, opponent="revision", constitution=1)
    assert older["principles"] == [HONEST["text"]]
    assert taken(project, **older) == older, "a copy keeps its version"
    for config in ({"constitution": 9}, {"constitution": 2, "principles": ["Be brief."]}):
        with pytest.raises(Unprocessable):
            taken(project, opponent="revision", **config)


def test_a_launched_run_has_the_principles_in_its_configuration(
    project: Project, emil: User, wire: FakeWire, snapshot_make: Callable[..., Snapshot]
) -> None:
    save(project, emil, HONEST)
    policy = Run.objects.create(project=project, name="sft", kind=Run.Kind.SFT, attempt=1)
    run = services.run_launch(
        project=project,
        kind="generate",
        name="rewrite",
        config={"opponent": "revision"},
        inputs={"prompts": snapshot_make("prompts"), "policy": policy},
        user=emil,
    )
    assert run.config["principles"] == [HONEST["text"]]
    if "constitution" in {field.name for field in recipe_fields("generate")}:
        assert (run.config["constitution"], run.config["principle_names"]) == (1, ["honest"])


# Pages and the API.


def form(**more: Any) -> dict[str, Any]:
    return {
        "p-TOTAL_FORMS": 3,
        "p-INITIAL_FORMS": 0,
        "p-0-name": "honest",
        "p-0-text": "It is honest.",
        "over": 0,
        "note": "",
        "hard_rules": "",
    } | more


def test_the_page_saves_versions_without_scripts_and_keeps_what_was_typed(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    client, page = signed_in(emil), f"/p/{project.slug}/training/constitution/"
    assert "None yet" in client.get(page).content.decode()
    bad = client.post(page, form(**{"p-1-name": "half"}))
    assert bad.status_code == 422
    assert "To remove the principle, empty both" in bad.content.decode()
    assert "It is honest." in bad.content.decode()
    assert client.post(page, form(hard_rules='{"type": "model"}')).status_code == 422
    assert client.post(page, form(hard_rules=json.dumps(RULES))).status_code == 302
    changed = form(**{"p-0-text": "It is true.", "over": 1, "note": "clearer"})
    assert client.post(page, changed).status_code == 302
    shown = client.get(page).content.decode()
    for words in ("Version 2", "Version 1", "reworded", "<del>It is honest.</del>", "clearer"):
        assert words in shown
    assert client.post(page, changed | {"p-0-text": "late", "over": 1}).status_code == 422


def test_the_launch_form_shows_the_version_that_a_run_would_take(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    save(project, emil, HONEST)
    page = signed_in(emil).get(f"/p/{project.slug}/runs/new/generate/").content.decode()
    assert "version 1" in page
    assert HONEST["text"] in page


def test_the_api_saves_and_lists_versions(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    client, path = signed_in(emil), f"/api/v1/projects/{project.slug}/constitution"
    body = {"principles": [HONEST], "hard_rules": RULES, "note": "first"}
    made = client.post(path, body, content_type="application/json")
    assert made.status_code == 201, made.content
    assert made.json()["number"] == 1
    [only] = client.get(path).json()
    assert (only["principles"], only["hard_rules"], only["created_by"]) == ([HONEST], RULES, "Emil")
    stale = client.post(path, body | {"note": "", "over": 7}, content_type="application/json")
    assert stale.status_code == 409


# What a run rewrote, as a dataset.


def rewritten(project: Project, artifacts: Path, n: int = 20, **config: Any) -> Run:
    """A finished generation with so many rewritten answers."""
    run = Run.objects.create(
        project=project,
        name="rewrite",
        kind=Run.Kind.GENERATE,
        config={"opponent": "revision"} | config,
        attempt=1,
    )
    Run.objects.filter(pk=run.pk).update(state="finished", ended_at=run.created_at)
    rows = [
        {
            "prompt": [{"role": "user", "content": f"question {k} {k * k} {k**3}?"}],
            "chosen": [{"role": "assistant", "content": f"better {k}"}],
            "rejected": [{"role": "assistant", "content": f"worse {k}"}],
            "sources": ["revision", "policy"],
            "principle": (HONEST, SHORT)[k % 2]["text"],
            "principle_name": (HONEST, SHORT)[k % 2]["name"],
            "critique": "Too long.",
        }
        for k in range(n)
    ]
    file_put(run, artifacts, "revisions.jsonl", rows)
    run.refresh_from_db()
    return run


def file_put(run: Run, artifacts: Path, name: str, rows: list[dict[str, Any]]) -> Artifact:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = artifacts / "runs" / run.pk / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Artifact.objects.create(
        run=run,
        attempt=run.attempt,
        seq=run.artifacts.count() + 1,
        name=name,
        uri=f"runs/{run.pk}/{name}",
        sha256=sha256(text.encode()).hexdigest(),
        size_bytes=len(text),
    )


def test_what_a_run_rewrote_becomes_a_dataset_once(
    project: Project, emil: User, artifacts: Path
) -> None:
    run = rewritten(project, artifacts, constitution=3)
    made = revisions_freeze(run=run, name="", user=emil)
    rows = list(artifact_store().lines(f"{made.uri}/train.jsonl"))
    assert {(row["labelled_by"], row["weight"]) for row in rows} == {("ai:constitution", 0.5)}
    assert sum(made.counts["by_principle"].values()) == len(rows)
    assert set(made.counts["by_principle"]) == {"honest", "short"}
    assert made.recipe["ai_feedback"]["constitution"] == 3
    with pytest.raises(Conflict, match="frozen already as 'rewrite, rewritten'"):
        revisions_freeze(run=run, name="twice", user=emil)


@pytest.mark.parametrize(
    ("how", "field"),
    [({"weight": 1.5}, "weight"), ({"label_probability": 0.5}, "label_probability")],
)
def test_a_weight_over_a_person_s_is_refused_and_nothing_is_kept(
    project: Project, emil: User, artifacts: Path, how: dict[str, float], field: str
) -> None:
    run = rewritten(project, artifacts)
    with pytest.raises(DomainError) as refused:
        revisions_freeze(run=run, name="heavy", user=emil, **how)
    assert refused.value.field == field
    assert not Snapshot.objects.exists()


def test_a_preferred_answer_with_a_blocked_phrase_is_not_trained_on(
    project: Project, emil: User, ada: User, artifacts: Path
) -> None:
    labeling_settings_update(project=project, by=ada, constraint_phrases=["better 7"])
    made = revisions_freeze(run=rewritten(project, artifacts), name="clean", user=emil)
    assert made.counts["blocked_phrases"] == 1
    assert sum(made.counts["rows"].values()) == 19


def test_lineage_leads_from_the_run_over_the_dataset_to_what_it_trained(
    project: Project, emil: User, artifacts: Path, signed_in: SignedIn
) -> None:
    run = rewritten(project, artifacts)
    made = revisions_freeze(run=run, name="pairs", user=emil)
    reward = Run.objects.create(project=project, name="learned", kind=Run.Kind.REWARD)
    RunInput.objects.create(run=reward, role="data", snapshot=made)
    [dataset] = selectors.lineage_down(run)
    assert (dataset.kind, dataset.id) == ("snapshot", made.pk)
    assert [one.name for one in dataset.outputs] == ["learned"]
    [behind] = selectors.lineage_up(reward)
    assert [(one.role, one.id) for one in behind.inputs] == [("labelled by", run.pk)]
    client = signed_in(emil)
    for page in (f"runs/{run.pk}/?tab=lineage", f"datasets/{made.pk}/lineage/"):
        assert client.get(f"/p/{project.slug}/{page}").status_code == 200
    shown = client.get(f"/p/{project.slug}/datasets/{made.pk}/").content.decode()
    assert f"/runs/{run.pk}/" in shown


def test_the_run_s_page_offers_the_dataset_and_then_links_to_it(
    project: Project, emil: User, artifacts: Path, signed_in: SignedIn
) -> None:
    run = rewritten(project, artifacts, constitution=2)
    client, page = signed_in(emil), f"/p/{project.slug}/runs/{run.pk}/"
    shown = client.get(page).content.decode()
    assert "Freeze as dataset" in shown
    assert "#version-2" in shown
    asked = {"name": "pairs", "weight": "2", "label_probability": "1"}
    assert client.post(f"{page}revisions/", asked).status_code == 422
    assert client.post(f"{page}revisions/", asked | {"weight": "0.25"}).status_code == 302
    made = Snapshot.objects.get()
    assert "which no person labelled" in client.get(page).content.decode()
    again = client.post(f"{page}revisions/", asked | {"weight": "0.25"})
    assert again.status_code == 422
    assert made.pk in again.content.decode()


def test_the_api_freezes_what_a_run_rewrote(
    project: Project, emil: User, artifacts: Path, signed_in: SignedIn
) -> None:
    run = rewritten(project, artifacts)
    path = f"/api/v1/projects/{project.slug}/runs/{run.pk}/freeze-revisions"
    client = signed_in(emil)
    made = client.post(path, {"weight": 0.3}, content_type="application/json")
    assert made.status_code == 201, made.content
    assert made.json()["counts"]["labelled"] == "AI feedback"
    assert client.post(path, {}, content_type="application/json").status_code == 409
