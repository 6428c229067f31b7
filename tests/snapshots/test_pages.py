"""The dataset pages, as Emil the engineer and others see them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.db.models import OuterRef, Subquery
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.labeling.models import Annotator, Comparison, Vote
from apps.snapshots import dispatch
from apps.snapshots.forms import SnapshotForm
from apps.snapshots.models import Snapshot
from apps.snapshots.services import freezing
from apps.snapshots.services.importing import snapshot_import
from apps.training.models import Run, RunInput
from tests.snapshots.test_freezing import freeze

pytestmark = pytest.mark.django_db

SignedIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def no_worker(monkeypatch) -> None:
    """Nobody takes what is queued, so that a test can be the worker."""
    monkeypatch.setattr(dispatch, "freeze_send", lambda pk: True)


def at(name: str, project: Project, *args: str) -> str:
    return reverse(f"snapshots:{name}", args=[project.slug, *args])


def answers(**changes) -> dict[str, object]:
    return {
        "name": "May pairs",
        "least_votes": 2,
        "least_agreeing": 2,
        "least_share": 60,
        "heldout_groups": ["debate-03"],
        "heldout_annotators": 20,
        "train_share": 60,
        "dev_share": 20,
        "test_share": 20,
        "split_by": "auto",
        "seed": "seed-2",
    } | changes


def test_an_empty_list_says_what_to_do_next(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    page = signed_in(emil).get(at("list", project)).content.decode()
    assert "No dataset yet" in page
    assert at("create", project) in page


def test_an_address_with_a_nul_is_refused(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    client = signed_in(emil)
    for name in ("detail", "rows", "report", "exports"):
        assert client.get(at(name, project, "a\x00b")).status_code == 404
    for name in ("q", "kind"):
        assert client.get(at("list", project), {name: "a\x00"}).status_code == 400


def test_the_form_starts_from_the_projects_own_rule(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    page = signed_in(emil).get(at("create", project))
    assert page.context["form"]["least_share"].value() == "60"
    assert "debate-03 (6)" in page.content.decode()


def test_a_preview_counts_what_would_be_kept_and_freezes_nothing(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    client = signed_in(emil)
    part = client.post(
        at("create", project),
        answers(action="preview", name=""),
        headers={"HX-Request": "true"},
    )
    text = part.content.decode()
    assert "<html" not in text
    assert "by chance" in text
    whole = client.post(at("create", project), answers(action="preview"))
    assert "<html" in whole.content.decode()
    assert whole.context["preview"]["tiles"][0].basis == "of 72 comparisons"
    assert not Snapshot.objects.exists()


def test_freezing_from_the_page_leads_to_the_dataset(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    client = signed_in(emil)
    page = client.post(at("create", project), answers(action="freeze"), follow=True)
    draft = Snapshot.objects.get()
    assert page.redirect_chain[-1][0] == at("detail", project, draft.pk)
    assert "Waiting for a worker" in page.content.decode()
    polled = client.get(at("detail", project, draft.pk), headers={"HX-Request": "true"})
    assert "Waiting for a worker" in polled.content.decode()
    assert "<html" not in polled.content.decode()

    assert freezing.snapshot_run(snapshot=draft.pk) == "frozen"
    polled = client.get(at("detail", project, draft.pk), headers={"HX-Request": "true"})
    assert polled.headers["HX-Refresh"] == "true"
    made = Snapshot.objects.get()
    assert made.created_by == emil
    assert made.recipe["heldout_groups"] == ["debate-03"]
    text = client.get(at("detail", project, made.pk)).content.decode()
    assert made.sha256[:16] in text
    assert "Leakage check" in text
    assert "under 5,000" in text


def test_single_votes_are_frozen_as_soft_labels_by_one_choice_on_the_page(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    """One vote a pair, which the project's rule of three decides nowhere."""
    first = Vote.objects.filter(comparison=OuterRef("comparison")).order_by("pk").values("pk")[:1]
    Vote.objects.exclude(pk=Subquery(first)).update(is_current=False)
    client = signed_in(emil)
    counted = client.post(at("create", project), answers(action="preview"))
    assert counted.context["preview"]["n_train"] == 0
    chosen = {"action": "freeze", "preset": "single_votes"}
    client.post(at("create", project), answers(**chosen))
    draft = Snapshot.objects.get()
    assert freezing.snapshot_run(snapshot=draft.pk) == "frozen"
    made = Snapshot.objects.get()
    assert (made.recipe["decide_by"], made.recipe["ties"]) == ("single_votes", "soft")
    assert made.counts["decided_by"] == {"vote": made.counts["kept"]}
    page = client.get(at("detail", project, made.pk)).content.decode()
    assert "single votes, soft labels" in page
    again = client.get(at("create", project), {"like": made.pk}).context["form"]
    assert again["preset"].value() == "single_votes"


def test_a_draft_can_be_cancelled_and_made_again_from_its_page(
    project: Project, emil: User, rita: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    client = signed_in(emil)
    client.post(at("create", project), answers(action="freeze"))
    draft = Snapshot.objects.get()
    watched = signed_in(rita).get(at("detail", project, draft.pk)).content.decode()
    assert 'value="cancel"' not in watched
    said = client.post(at("action", project, draft.pk), {"action": "cancel"}, follow=True)
    assert "It was cancelled." in said.content.decode()
    again = client.post(at("action", project, draft.pk), {"action": "again"}, follow=True)
    assert "Waiting for a worker" in again.content.decode()
    assert Snapshot.objects.filter(state="draft").get().recipe == draft.recipe
    odd = client.post(at("action", project, draft.pk), {"action": "melt"}, follow=True)
    assert "can be done" in odd.content.decode()


def test_runs_that_use_it_are_links_for_whoever_may_open_them(
    project: Project, emil: User, rita: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    made = freeze(project, emil)
    run = Run.objects.create(project=project, name="learner", kind="reward", state="queued")
    RunInput.objects.create(run=run, role="data", snapshot=made)
    for person, linked in ((emil, True), (rita, False)):
        page = signed_in(person).get(at("detail", project, made.pk)).content.decode()
        assert "learner" in page
        assert (f"/runs/{run.pk}/" in page) == linked


def test_a_form_starts_from_another_datasets_recipe(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    made = freeze(project, emil, ties="soft", heldout_groups=("debate-05",), balance=("length",))
    page = signed_in(emil).get(at("create", project), {"like": made.pk})
    form = page.context["form"]
    assert (form["ties"].value(), form["least_votes"].value()) == ("soft", 2)
    assert form["train_share"].value() == "60"
    assert "<details open>" in page.content.decode()
    assert signed_in(emil).get(at("create", project), {"like": "x\x00"}).status_code == 400


def test_every_field_of_the_form_reaches_the_recipe(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    chosen = {
        "decide_by": "one_coin",
        "least_posterior": 80,
        "rulings": "ignore",
        "ties": "soft",
        "smoke_share": 0.0,
        "private_share": 10,
        "test_share": 10,
        "near_duplicates": "refuse",
        "duplicate_similarity": 90,
        "balance": ["length", "unsafe"],
        "weight_cap": 3,
        "most_train_rows": 30,
        "half_life_days": 90,
        "reliability_weights": "on",
        "name_annotators": "on",
        "topics": ["debate-01_yes", "debate-03_yes"],
        "cast_from": "2026-10-01T00:00",
    }
    signed_in(emil).post(at("create", project), answers(action="preview", **chosen))
    form = SnapshotForm(answers(**chosen), project=project)
    assert form.is_valid(), form.errors
    recipe = form.cleaned_data["recipe"]
    assert recipe.least_posterior == 0.8
    for name in ("decide_by", "rulings", "ties", "near_duplicates"):
        assert getattr(recipe, name) == chosen[name]
    assert (recipe.balance, recipe.weight_cap) == (("length", "unsafe"), 3.0)
    assert (recipe.most_train_rows, recipe.half_life_days) == (30, 90.0)
    assert recipe.reliability_weights
    assert recipe.name_annotators
    assert recipe.shares["private_test"] == 0.1
    assert recipe.filters.topics == ("debate-01_yes", "debate-03_yes")
    assert recipe.filters.cast_from.startswith("2026-10-01T00:00")


def test_who_an_admin_left_out_is_left_out_unless_asked_for(
    project: Project, ana: User, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    Annotator.objects.filter(user=ana).update(left_out_at=timezone.now())
    form = SnapshotForm(answers(), project=project)
    assert form.is_valid()
    assert form.cleaned_data["recipe"].filters.left_out == (ana.pk,)
    form = SnapshotForm(answers(include_left_out="on"), project=project)
    assert form.is_valid()
    assert form.cleaned_data["recipe"].filters.left_out == ()
    page = signed_in(emil).get(at("create", project)).content.decode()
    assert "1 person is" in page


def test_an_anonymised_import_marks_the_field_in_preview_and_freeze(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    User.objects.filter(username="crowd-00").update(username=f"imported.{project.pk}.unknown")
    client = signed_in(emil)
    for action in ("preview", "freeze"):
        page = client.post(at("create", project), answers(action=action))
        assert page.status_code == 422
        (error,) = page.context["form"].errors["heldout_annotators"]
        assert "imported votes" in error
    fine = client.post(at("create", project), answers(action="preview", heldout_annotators=0))
    assert fine.status_code == 200


def test_only_an_admin_reads_private_rows_and_the_log_says_who(
    project: Project, emil: User, ada: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    shares = {"train": 0.5, "private_test": 0.3, "dev": 0.2}
    made = freeze(project, emil, splits=shares)
    where, sent = at("private", project, made.pk), {"split": "private_test"}
    assert signed_in(emil).post(where, sent).status_code == 403
    assert (
        "Private rows" not in signed_in(emil).get(at("detail", project, made.pk)).content.decode()
    )
    adas = signed_in(ada)
    assert "Private rows" in adas.get(at("detail", project, made.pk)).content.decode()
    file = b"".join(adas.post(where, sent).streaming_content)
    assert len(file.splitlines()) == made.counts["rows"]["private_test"] > 0
    log = AuditEvent.objects.get(action="snapshot.private_read")
    assert (log.actor, log.details["split"]) == (ada, "private_test")
    assert adas.post(where, {"split": "train"}).status_code == 404


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"least_share": 200}, "least_share"),
        ({"train_share": 90}, "train_share"),
        ({"train_share": 0, "dev_share": 80}, "train_share"),
        ({"name": ""}, "name"),
        ({"heldout_groups": ["nowhere"]}, "heldout_groups"),
        ({"cast_from": "2026-05-02T00:00", "cast_before": "2026-05-01T00:00"}, "cast_before"),
    ],
)
def test_a_wrong_answer_is_marked_and_what_was_typed_is_kept(
    project: Project,
    emil: User,
    signed_in: SignedIn,
    crowd: list[Comparison],
    changes: dict,
    field: str | None,
) -> None:
    page = signed_in(emil).post(at("create", project), answers(action="freeze", **changes))
    assert page.status_code == 422
    assert (page.context["form"].errors.get(field or "__all__")) is not None
    assert 'value="seed-2"' in page.content.decode()
    assert not Snapshot.objects.exists()


def test_a_refused_freeze_is_said_on_the_form(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    client = signed_in(emil)
    page = client.post(at("create", project), answers(action="freeze", least_votes=6))
    assert page.status_code == 422
    assert "Nothing is left" in page.content.decode()
    assert not Snapshot.objects.exists()


def test_a_failed_freeze_is_said_in_the_list_and_on_its_page(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison], monkeypatch
) -> None:
    monkeypatch.setattr(freezing, "CHECKED_AT_ONCE", -1)
    client = signed_in(emil)
    client.post(at("create", project), answers(action="freeze", least_votes=6))
    failed = Snapshot.objects.get()
    freezing.snapshot_run(snapshot=failed.pk)
    assert "failed" in client.get(at("list", project)).content.decode()
    detail = client.get(at("detail", project, failed.pk)).content.decode()
    assert "Nothing is left" in detail
    assert 'value="again"' in detail


def test_a_download_is_the_frozen_file(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    made = freeze(project, emil)
    client = signed_in(emil)
    sent = client.get(at("download", project, made.pk), {"split": "train"})
    frozen = Path(settings.ARTIFACTS_URL) / made.uri / "train.jsonl"
    assert b"".join(sent.streaming_content) == frozen.read_bytes()
    assert f"{project.slug}-{made.pk}-train.jsonl" in sent["Content-Disposition"]
    table = client.get(at("download", project, made.pk), {"split": "train", "format": "csv"})
    assert b"".join(table.streaming_content).startswith(b'"prompt","chosen","rejected"')
    assert client.get(at("download", project, made.pk), {"split": "x"}).status_code == 404
    logged = AuditEvent.objects.filter(action="file.downloaded", project=project, actor=emil)
    assert [row.subject for row in logged.order_by("id")] == [
        f"{project.slug}-{made.pk}-train.jsonl",
        f"{project.slug}-{made.pk}-train.csv",
    ]


def test_verify_names_the_damaged_file(
    project: Project, rita: User, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    made = freeze(project, emil)
    client = signed_in(rita)
    fine = client.post(at("verify", project, made.pk), follow=True).content.decode()
    assert "Every file" in fine
    (Path(settings.ARTIFACTS_URL) / made.uri / "train.jsonl").write_text("{}\n")
    broken = client.post(at("verify", project, made.pk), follow=True).content.decode()
    assert "train.jsonl" in broken
    for form in ("jsonl", "csv", "zip"):  # nor does anybody take it away as what was frozen
        asked = {"split": "train", "format": form}
        sent = signed_in(emil).get(at("download", project, made.pk), asked)
        assert sent.status_code == 409, form
        assert "train.jsonl" in sent.content.decode(), form


def test_people_see_datasets_as_their_role_allows(
    project: Project,
    ana: User,
    rita: User,
    emil: User,
    olga: User,
    signed_in: SignedIn,
    crowd: list[Comparison],
) -> None:
    made = freeze(project, emil)
    expected = {
        ana: {"list": 403, "create": 403, "detail": 403, "download": 403},
        rita: {"list": 200, "create": 403, "detail": 200, "download": 403},
        emil: {"list": 200, "create": 200, "detail": 200, "download": 200},
        olga: {"list": 404, "create": 404, "detail": 404, "download": 404},
    }
    for person, codes in expected.items():
        client = signed_in(person)
        for name, code in codes.items():
            extra = [made.pk] if name in ("detail", "download") else []
            query = {"split": "train"} if name == "download" else {}
            answer = client.get(at(name, project, *extra), query)
            assert answer.status_code == code, (person, name)
            if answer.streaming:
                assert b"".join(answer.streaming_content)


def test_anothers_dataset_is_not_found(
    project: Project, emil: User, olga: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    made = freeze(project, emil)
    elsewhere = olga.memberships.get().project
    assert signed_in(olga).get(at("detail", elsewhere, made.pk)).status_code == 404


def test_prompts_show_how_many_of_them_were_imitated(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    snapshot_import(
        project=project,
        kind="demonstrations",
        name="Shown",
        rows=[{"prompt": "one", "response": "yes"}],
    )
    prompts = snapshot_import(
        project=project, kind="prompts", name="Asked", rows=[{"prompt": "One"}, {"prompt": "two"}]
    )
    page = signed_in(emil).get(at("detail", project, prompts.pk)).content.decode()
    assert "1 of 2 prompts" in page
    assert "Shown (0.50)" in page
