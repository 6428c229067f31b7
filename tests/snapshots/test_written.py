"""Accepted texts of writing work become datasets with their provenance."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.models import Project, Role, User
from apps.accounts.services import person_erase
from apps.common.errors import DomainError
from apps.common.registry import person_datasets
from apps.labeling.models import Annotator, LabelingSettings, WritingBatch
from apps.labeling.services import writing
from apps.snapshots.models import Snapshot, SnapshotText
from apps.snapshots.services import freezing
from apps.snapshots.storage import names_in, read_rows
from tests.labeling.writing import accepted, batch_make, submitted, taken
from tests.people import person_make
from workers.data.snapshot import read_demonstrations, read_prompts

N_PROMPTS = 30  # by hash some of them are tested on


def frozen(project: Project, by: User, source: str, **more: Any) -> Snapshot:
    """As a worker freezes them."""
    draft, _ = freezing.demonstrations_start(
        project=project, name="written", user=by, source=source, **more
    )
    freezing.snapshot_run(snapshot=draft.pk)
    draft.refresh_from_db()
    assert draft.state == "frozen", draft.error
    return draft


def folder(snapshot: Snapshot) -> Path:
    return Path(settings.ARTIFACTS_URL) / snapshot.uri


def rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    names = snapshot.counts["rows"]
    return [row for name in names for row in read_rows(folder(snapshot) / f"{name}.jsonl")]


def answer(number: int) -> str:
    return f"Answer {number} is **this**."


@pytest.fixture
def batch(project: Project, ana: User, rita: User) -> WritingBatch:
    """Ana has written to every prompt. Rita edited the first text, sent the second back, left the
    third waiting, and accepted the others."""
    LabelingSettings.objects.create(
        project=project, data_statement="For models.", data_statement_version=1
    )
    Annotator.objects.filter(user=ana).update(consent_version=1)
    prompts = [{"prompt": f"Question {n}?", "group": f"g-{n}"} for n in range(N_PROMPTS)]
    made = batch_make(project, prompts=prompts, licence="CC0-1.0", name="First answers")
    for number in range(N_PROMPTS):
        text = taken(project, ana)
        version = submitted(text, ana, answer(number))
        given: dict[str, Any] = {"text": text.pk, "reviewer": rita, "version": version.number}
        if number == 0:
            writing.text_review(**given, verdict="edited", body="Edited **answer**.")
        elif number == 1:
            writing.text_review(**given, verdict="rejected", reason="Longer.")
            text_sent_back = text
        elif number != 2:
            writing.text_review(**given, verdict="accepted")
        if number == 1:  # out of her hands, so that the next place is drawn
            writing.text_pass_on(text=text_sent_back.pk, author=ana)
    return made


def test_accepted_texts_become_demonstrations_with_their_provenance(
    project: Project, ana: User, rita: User, emil: User, batch: WritingBatch
) -> None:
    snapshot = frozen(project, emil, "written demonstrations")
    found = rows(snapshot)
    said = {row["messages"][-1]["content"] for row in found}
    assert not said & {answer(0), answer(1), answer(2)}, "edited, sent back, waiting"
    name_of = names_in(snapshot.counts)
    for row in found:
        assert (row["source"], row["licence"], row["batch"]) == (
            "human",
            "CC0-1.0",
            "First answers",
        )
        assert row["reviewed"] == "yes"
        edited = row["messages"][-1]["content"] == "Edited **answer**."
        assert row["annotator"] == name_of(rita.pk if edited else ana.pk)
        assert row["edited_from"] == (name_of(ana.pk) if edited else "")
        assert row["version"] == ("2" if edited else "1")
    assert "ana" not in json.dumps(found)
    texts = SnapshotText.objects.filter(snapshot=snapshot)
    assert texts.count() == len(found)
    assert {str(one.version.text_id) for one in texts} == {row["text"] for row in found}


def test_the_card_counts_people_licences_and_what_they_agreed_to(
    project: Project, emil: User, batch: WritingBatch
) -> None:
    snapshot = frozen(project, emil, "written demonstrations")
    card = json.loads((folder(snapshot) / "card.json").read_text())
    assert card["licences"] == ["CC0-1.0"]
    assert card["sources"] == ["human"]
    assert (card["pool"]["statement"], card["pool"]["statement_version"]) == ("For models.", 1)
    assert card["pool"]["agreed"] == 1
    written = card["counts"]["written"]
    assert written["texts"] == written["reviewed"] == sum(card["counts"]["rows"].values())
    assert written["batches"] == {"First answers": written["texts"]}
    readme = (folder(snapshot) / "README.md").read_text()
    assert "written demonstrations" in readme
    assert "reviewed by another person" in readme


def test_a_prompt_that_is_tested_on_is_in_no_training_row(
    project: Project, emil: User, batch: WritingBatch
) -> None:
    snapshot = frozen(project, emil, "written demonstrations")
    groups = {
        name: {row["group"] for row in read_rows(folder(snapshot) / f"{name}.jsonl")}
        for name in snapshot.counts["rows"]
    }
    assert len(groups) > 1
    assert not groups["train"] & set.union(*(of for name, of in groups.items() if name != "train"))


def test_readers_of_the_sft_recipe_datasets_and_trl_take_the_rows(
    project: Project, emil: User, batch: WritingBatch, tmp_path: Path
) -> None:
    snapshot = frozen(project, emil, "written demonstrations")
    read = read_demonstrations(folder(snapshot))
    assert len(read) == snapshot.counts["rows"]["train"]
    loaded = datasets.load_dataset(str(folder(snapshot)), cache_dir=str(tmp_path))
    assert {name: len(of) for name, of in loaded.items()} == snapshot.counts["rows"]
    from trl.data_utils import is_conversational

    first = loaded["train"][0]
    assert is_conversational(first)
    assert [message["role"] for message in first["messages"]] == ["user", "assistant"]


def test_written_prompts_become_a_dataset_of_prompts(
    project: Project, ana: User, rita: User, emil: User
) -> None:
    batch_make(
        project,
        kind="prompts",
        name="Riddles",
        instruction="A riddle.",
        n_prompts=20,
        review="none",
    )
    for number in range(20):
        submitted(taken(project, ana), ana, f"What has {number} keys?")
    snapshot = frozen(project, emil, "written prompts")
    assert snapshot.kind == "prompts"
    found = rows(snapshot)
    assert {row["reviewed"] for row in found} == {"no"}
    assert all("A riddle." not in json.dumps(row["prompt"]) for row in found)
    read = read_prompts(folder(snapshot))
    assert len(read) == snapshot.counts["rows"]["train"]


def test_some_batches_alone_are_frozen_and_others_are_unknown(
    project: Project, ana: User, rita: User, emil: User, batch: WritingBatch
) -> None:
    prompts = [{"prompt": f"More {n}?", "group": f"m-{n}"} for n in range(10)]
    more = batch_make(project, prompts=prompts, name="More answers")
    LabelingSettings.objects.update(data_statement="")
    ben = person_make("Ben", project, Role.ANNOTATOR)
    for number in range(len(prompts) + 1):  # one of the first batch is free again
        accepted(project, ben, rita, f"Ben's {number}.")
    one = frozen(project, emil, "written demonstrations", batches=[more.pk])
    assert {row["batch"] for row in rows(one)} == {"More answers"}
    assert one.recipe["batches"] == [more.pk]
    with pytest.raises(DomainError) as caught:
        frozen(project, emil, "written prompts", batches=[more.pk])
    assert (caught.value.code, caught.value.field) == ("unknown_batch", "writing_batches")


def test_an_erased_author_is_told_of_the_datasets_and_enters_no_other(
    project: Project, ana: User, rita: User, emil: User, ada: User, batch: WritingBatch
) -> None:
    snapshot = frozen(project, emil, "written demonstrations")
    [dataset] = person_datasets(ana)
    n = len(rows(snapshot))
    assert (dataset.name, dataset.pairs, dataset.changed, dataset.alone) == ("written", n, n, n)
    person_erase(user=ana, by=ada, votes="discard", remarks="keep")
    with pytest.raises(DomainError) as caught:
        frozen(project, emil, "written demonstrations")
    assert (caught.value.code, caught.value.field) == ("empty_snapshot", "from_writing")


def test_the_page_and_the_api_freeze_written_texts(
    project: Project, emil: User, batch: WritingBatch, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(emil)
    page = "/p/arguments/datasets/new/"
    assert "Written demonstrations" in browser.get(page).content.decode()
    sent = {"action": "written", "kind": "demonstrations", "name": "by page"}
    assert browser.post(page, sent).status_code == 302
    made = Snapshot.objects.get(name="by page")
    assert made.recipe["from"] == "written demonstrations"
    assert freezing.snapshot_run(snapshot=made.pk) == "frozen"
    html = browser.get(f"/p/arguments/datasets/{made.pk}/").content.decode()
    assert "written demonstrations" in html
    sent["kind"], sent["name"] = "prompts", "none"
    assert browser.post(page, sent).status_code == 422
    url = "/api/v1/projects/arguments/snapshots"
    given = {"name": "by API", "kind": "demonstrations", "from_writing": True}
    answer = browser.post(url, given, content_type="application/json")
    assert (answer.status_code, answer.json()["kind"]) == (202, "demonstrations")
    for bad, field in (
        ({"kind": "preferences"}, "kind"),
        ({"rows": [{"prompt": "x"}]}, "from_writing"),
        ({"writing_batches": ["nowhere"]}, "writing_batches"),
    ):
        answer = browser.post(url, given | bad, content_type="application/json")
        assert answer.json()["field"] == field, answer.json()
