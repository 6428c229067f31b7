"""The dataset pages, as Emil the engineer and others see them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison
from apps.snapshots import services
from apps.snapshots.models import Snapshot
from tests.snapshots.test_freezing import freeze

pytestmark = pytest.mark.django_db

SignedIn = Callable[[User], Client]


def at(name: str, project: Project, *args: str) -> str:
    return reverse(f"snapshots:{name}", args=[project.slug, *args])


def answers(**changes) -> dict[str, object]:
    return {
        "name": "May pairs",
        "least_votes": 2,
        "least_agreeing": 2,
        "least_share": 0.6,
        "heldout_groups": ["debate-03"],
        "heldout_annotators": 0.2,
        "train_share": 0.6,
        "dev_share": 0.2,
        "test_share": 0.2,
        "split_by": "auto",
        "seed": "seed-2",
    } | changes


def test_an_empty_list_says_what_to_do_next(
    project: Project, emil: User, signed_in: SignedIn
) -> None:
    page = signed_in(emil).get(at("list", project)).content.decode()
    assert "No dataset yet" in page
    assert at("create", project) in page


def test_the_form_starts_from_the_projects_own_rule(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    page = signed_in(emil).get(at("create", project))
    assert page.context["form"]["least_share"].value() == 0.6
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
    assert "A coin-flip crowd would pass" in text
    whole = client.post(at("create", project), answers(action="preview"))
    assert "<html" in whole.content.decode()
    assert whole.context["preview"]["tiles"][0].basis == "of 72 comparisons"
    assert not Snapshot.objects.exists()


def test_freezing_from_the_page_leads_to_the_dataset(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    page = signed_in(emil).post(at("create", project), answers(action="freeze"), follow=True)
    made = Snapshot.objects.get()
    assert page.redirect_chain[-1][0] == at("detail", project, made.pk)
    assert made.created_by == emil
    assert made.recipe["heldout_groups"] == ["debate-03"]
    text = page.content.decode()
    assert made.sha256[:16] in text
    assert "Leak gate" in text
    assert "under 5,000 a reward model overfits" in text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"least_share": 2}, "least_share"),
        ({"train_share": 0.9}, None),
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


def test_a_refused_freeze_is_said_on_the_form_and_in_the_list(
    project: Project, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    client = signed_in(emil)
    page = client.post(at("create", project), answers(action="freeze", least_votes=6))
    assert page.status_code == 422
    assert "Nothing is left to train on" in page.content.decode()
    failed = Snapshot.objects.get()
    assert "failed" in client.get(at("list", project)).content.decode()
    detail = client.get(at("detail", project, failed.pk)).content.decode()
    assert "This dataset was not frozen." in detail


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


def test_verify_names_the_damaged_file(
    project: Project, rita: User, emil: User, signed_in: SignedIn, crowd: list[Comparison]
) -> None:
    made = freeze(project, emil)
    client = signed_in(rita)
    fine = client.post(at("verify", project, made.pk), follow=True).content.decode()
    assert "Every file has the content it was frozen with" in fine
    (Path(settings.ARTIFACTS_URL) / made.uri / "train.jsonl").write_text("{}\n")
    broken = client.post(at("verify", project, made.pk), follow=True).content.decode()
    assert "The files are not what was frozen" in broken
    assert "train.jsonl" in broken


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
    services.snapshot_import(
        project=project,
        kind="demonstrations",
        name="Shown",
        rows=[{"prompt": "one", "response": "yes"}],
    )
    prompts = services.snapshot_import(
        project=project, kind="prompts", name="Asked", rows=[{"prompt": "One"}, {"prompt": "two"}]
    )
    page = signed_in(emil).get(at("detail", project, prompts.pk)).content.decode()
    assert "1 of 2 prompts are in the demonstrations Shown (0.50)" in page
