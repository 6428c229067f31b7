"""Every form of a frozen dataset says the same thing as its frozen files."""

import csv
import datetime as dt
import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard
from trl.data_utils import extract_prompt, is_conversational, unpair_preference_dataset

from apps.accounts.models import Project, User
from apps.common.errors import DomainError, Missing
from apps.labeling.models import Comparison, Prompt, Vote
from apps.snapshots import exports, formats
from apps.snapshots.models import Snapshot
from apps.snapshots.recipe import SnapshotRecipe
from apps.snapshots.services import freezing
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import names_in
from tests.snapshots.conftest import revote

pytestmark = pytest.mark.django_db

RECIPE = SnapshotRecipe(
    least_votes=2,
    least_agreeing=2,
    least_share=0.5,
    heldout_groups=("debate-03",),
    heldout_annotators=0.2,
    splits={"train": 0.6, "dev": 0.2, "public_test": 0.2},
    seed="seed-2",
)


@pytest.fixture
def frozen(project: Project, crowd: list[Comparison], emil: User) -> Snapshot:
    Prompt.objects.filter(project=project).update(language="en")
    return freezing.snapshot_freeze(project=project, name="pairs", recipe=RECIPE, user=emil)


def content(snapshot: Snapshot, **chosen: Any) -> bytes:
    sent = exports.snapshot_export(snapshot=snapshot, **chosen).content
    if hasattr(sent, "read"):
        with sent:
            return sent.read()
    return b"".join(sent)


def lines(snapshot: Snapshot, shape: str = "", split: str = "train") -> list[dict[str, Any]]:
    text = content(snapshot, shape=shape, split=split)
    return [json.loads(line) for line in text.splitlines()]


def unzipped(snapshot: Snapshot, shape: str, at: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(content(snapshot, shape=shape, form="zip"))) as archive:
        archive.extractall(at)
    (folder,) = at.iterdir()
    return folder


def _said(row: dict[str, Any]) -> dict[str, Any]:
    """`datasets` makes moments of what it takes for some, of days too, in UTC without saying so."""

    def text_of(name: str, value: Any) -> Any:
        if not isinstance(value, dt.datetime):
            return value
        moment = value.replace(tzinfo=dt.UTC)
        return moment.date().isoformat() if name == "decided_at" else moment.isoformat()

    return {name: text_of(name, value) for name, value in row.items()}


SHAPES = [shape.key for shape in formats.shapes_for("preferences") if not shape.binary]


@pytest.mark.parametrize("shape", SHAPES)
def test_parquet_table_and_folder_hold_the_rows_of_the_lines(
    frozen: Snapshot, shape: str, tmp_path: Path
) -> None:
    rows = lines(frozen, shape)
    assert rows
    path = tmp_path / "train.parquet"
    path.write_bytes(content(frozen, shape=shape, split="train", form="parquet"))
    assert pq.read_table(path).to_pylist() == rows
    text = content(frozen, shape=shape, split="train", form="csv").decode()
    table = list(csv.DictReader(io.StringIO(text, newline="")))
    assert (len(table), list(table[0])) == (len(rows), list(rows[0]))
    folder = unzipped(frozen, shape, tmp_path / "zip")
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert list(loaded["train"].features) == list(rows[0])
    assert [_said(row) for row in loaded["train"].to_list()] == rows
    assert {name: len(part) for name, part in loaded.items()} == {
        split: len(lines(frozen, shape, split)) for split in exports.snapshot_splits(frozen)
    }
    assert content(frozen, shape=shape, form="zip") == content(frozen, shape=shape, form="zip")


def test_plain_strings_are_the_texts_and_end_the_prompt_with_a_break(frozen: Snapshot) -> None:
    for plain, row in zip(lines(frozen, "standard"), lines(frozen), strict=True):
        assert plain["prompt"] == row["prompt"][0]["content"] + "\n\n"
        assert plain["chosen"] == row["chosen"][0]["content"]
        assert plain["rejected"] == row["rejected"][0]["content"]
        assert plain["comparison"] == row["comparison"]
        assert not is_conversational(plain)


def test_a_conversation_is_written_out_up_to_where_the_answer_begins() -> None:
    turns = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Why?"},
    ]
    written = formats.shapes.prompt_string(turns)
    assert written == "User: Hello\n\nAssistant: Hi\n\nUser: Why?\n\nAssistant: "


def test_trl_takes_the_prompt_out_of_the_implicit_form_again(frozen: Snapshot) -> None:
    for row, whole in zip(lines(frozen, "implicit"), lines(frozen), strict=True):
        assert "prompt" not in row
        found = extract_prompt(row)
        assert {name: found[name] for name in ("prompt", "chosen", "rejected")} == {
            name: whole[name] for name in ("prompt", "chosen", "rejected")
        }


def test_kto_rows_are_what_trl_itself_unpairs(frozen: Snapshot) -> None:
    texts = [
        {name: row[name] for name in ("prompt", "chosen", "rejected")} for row in lines(frozen)
    ]
    expected = unpair_preference_dataset(datasets.Dataset.from_list(texts)).to_list()

    def counted(rows: list[dict]) -> Counter:
        names = ("prompt", "completion", "label")
        return Counter(json.dumps([row[name] for name in names]) for row in rows)

    assert counted(lines(frozen, "kto")) == counted(expected)


def test_soft_labels_are_shares_with_ties_as_halves(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    """Nobody is held out here, so the votes of every pair are the five that were cast."""
    for pair, votes in zip(
        crowd, (["b", "b", "b", "tie", "a"], ["a", "a", "a", "both_bad", "tie"]), strict=False
    ):
        revote(pair, votes)
    recipe = SnapshotRecipe(
        least_votes=2, least_share=0.5, heldout_annotators=0.0, splits={"train": 1.0}
    )
    made = freezing.snapshot_freeze(project=project, name="soft", recipe=recipe, user=emil)
    share = {row["comparison"]: row["probability"] for row in lines(made, "soft")}
    assert share.pop(str(crowd[0].pk)) == pytest.approx(0.7)  # (3 + ½) ÷ 5
    assert share.pop(str(crowd[1].pk)) == pytest.approx(0.8)  # (3 + ½ + ½) ÷ 5
    assert set(share.values()) == {1.0}


def test_a_dataset_with_soft_labels_gives_them_and_its_ties_no_side(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    """Pair 0 is a tie by votes; its order in the frozen row was drawn and says nothing."""
    revote(crowd[0], ["tie", "tie", "tie", "tie", "tie"])
    revote(crowd[1], ["b", "b", "b", "b", "tie"])
    recipe = SnapshotRecipe(ties="soft", heldout_annotators=0.0, splits={"train": 1.0})
    made = freezing.snapshot_freeze(project=project, name="soft", recipe=recipe, user=emil)
    label = {row["comparison"]: row["probability"] for row in lines(made, "soft")}
    assert label[str(crowd[0].pk)] == 0.5
    assert label[str(crowd[1].pk)] == pytest.approx(0.9)
    frozen = {row["comparison"]: row["label_probability"] for row in lines(made)}
    assert label == frozen
    assert str(crowd[0].pk) not in {row["comparison"] for row in lines(made, "kto")}
    assert len(lines(made, "kto")) == 2 * (len(frozen) - 1)
    assert exports.form_rows(snapshot=made)["kto"] == {"train": 2 * (len(frozen) - 1)}
    ranked = {pair for row in lines(made, "ranking") for pair in row["comparisons"]}
    assert str(crowd[0].pk) not in ranked
    tied = [row for row in lines(made, "votes") if row["comparison"] == str(crowd[0].pk)]
    assert {row["voted_for"] for row in tied} == {"tie"}


def test_single_answers_are_frozen_as_they_are_and_give_their_votes(
    project: Project, crowd: list[Comparison], emil: User, tmp_path: Path
) -> None:
    revote(crowd[0], ["both_bad"] * 4 + ["a"])
    recipe = SnapshotRecipe(ties="kto", heldout_annotators=0.0, splits={"train": 1.0})
    made = freezing.snapshot_freeze(project=project, name="single", recipe=recipe, user=emil)
    assert [shape.key for shape in formats.shapes_for(made.kind)] == ["conversational", "votes"]
    bad = [row for row in lines(made) if row["comparison"] == str(crowd[0].pk)]
    assert [row["label"] for row in bad] == [False, False]
    assert exports.form_rows(snapshot=made)["votes"] == {"train": 360}
    told = [row for row in lines(made, "votes") if row["comparison"] == str(crowd[0].pk)]
    assert sorted(row["voted_for"] for row in told) == ["", *["both_bad"] * 4]
    folder = unzipped(made, "", tmp_path / "zip")
    assert "kto" in DatasetCard.load(folder / "README.md").data.tags


def test_private_splits_are_in_no_export(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    shares = {"train": 0.4, "private_test": 0.3, "human_audit": 0.3}
    recipe = SnapshotRecipe(
        heldout_annotators=0.0, splits=shares, split_by="argument", near_duplicates="join"
    )
    made = freezing.snapshot_freeze(project=project, name="kept", recipe=recipe, user=emil)
    kept_back = {"private_test", "human_audit"} & set(made.counts["rows"])
    assert kept_back
    hidden = {
        str(pair)
        for pair in made.rows.filter(split__in=kept_back).values_list("comparison", flat=True)
    }
    for shape in SHAPES:
        for name in kept_back:
            with pytest.raises(Missing, match="no split"):
                content(made, shape=shape, split=name)
        if shape == "ranking":
            continue
        with zipfile.ZipFile(io.BytesIO(content(made, shape=shape, form="zip"))) as archive:
            assert not any(name in path for path in archive.namelist() for name in kept_back)
        assert not hidden & {row["comparison"] for row in lines(made, shape)}
    assert all(not kept_back & set(rows) for rows in exports.form_rows(snapshot=made).values())


def test_the_frozen_folders_own_card_is_read_by_the_hub(frozen: Snapshot, tmp_path: Path) -> None:
    card = DatasetCard.load(unzipped(frozen, "", tmp_path) / "README.md")
    said = card.data.to_dict()
    assert (said["license"], said["language"]) == ("cc-by-4.0", ["en"])
    assert [file["split"] for file in said["configs"][0]["data_files"]] == list(
        exports.snapshot_splits(frozen)
    )
    for words in ("`cluster_ids`", "debate-03", *frozen.counts["warnings"]):
        assert words in card.text


def test_one_held_out_vote_is_a_certain_label(frozen: Snapshot) -> None:
    rows = lines(frozen, "soft", "heldout_annotators")
    assert rows
    assert {row["probability"] for row in rows} == {1.0}


def test_answers_are_ranked_where_comparisons_connect_them(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    """The longer argument won everywhere, but in one debate where three beat each other."""
    first, second, third = crowd[0].response_a_id, crowd[0].response_b_id, crowd[1].response_b_id
    cycle = next(c for c in crowd if {c.response_a_id, c.response_b_id} == {first, third})
    revote(cycle, ["a"] * 5)  # 2 beats 1, 3 beats 2, and 1 beats 3
    recipe = SnapshotRecipe(heldout_annotators=0.0, splits={"train": 1.0})
    made = freezing.snapshot_freeze(project=project, name="ranked", recipe=recipe, user=emil)
    rows = lines(made, "ranking")
    assert len(rows) == 12
    odd = [row for row in rows if row["cyclic"]]
    assert [row["prompt"] for row in odd] == [crowd[0].prompt.messages]
    assert second not in (first, third)
    for row in rows:
        said = [answer[0]["content"] for answer in row["responses"]]
        assert (len(said), len(row["comparisons"])) == (4, 6)
        if not row["cyclic"]:
            assert said == sorted(said, key=len, reverse=True)
            assert row["complete"]
            assert row["scores"] == [3, 1, -1, -3]


def test_raw_votes_are_those_behind_the_rows_without_names(
    frozen: Snapshot, project: Project
) -> None:
    kept = frozen.rows.exclude(split="")
    behind = {vote for row in kept for vote in row.vote_ids}
    sent = [
        row for split in exports.snapshot_splits(frozen) for row in lines(frozen, "votes", split)
    ]
    assert {int(row["vote"]) for row in sent} == behind
    assert behind < set(Vote.objects.values_list("pk", flat=True))  # dropped ones stay out
    told = {row["vote"]: row for row in sent}
    for vote in Vote.objects.filter(pk__in=behind):
        row = told[str(vote.pk)]
        assert (row["choice"], row["comparison"]) == (vote.choice, str(vote.comparison_id))
        assert row["annotator"] == names_in(frozen.counts)(vote.annotator_id)
        assert row["cast_at"] == vote.cast_at.isoformat()
    text = json.dumps(sent)
    assert "crowd-" not in text
    assert "debate" not in text


def test_a_raw_vote_says_which_answer_of_the_frozen_row_it_was_for(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    revote(crowd[0], ["b", "b", "b", "tie", "a"])
    for vote in Vote.objects.filter(comparison=crowd[0], choice="b", is_current=True):
        Vote.objects.filter(pk=vote.pk).update(is_current=False)
        kept = {name: getattr(vote, name) for name in ("project", "comparison", "slot", "chosen")}
        Vote.objects.create(
            **kept,
            annotator=vote.annotator,
            choice="b",
            left_is="a",
            idempotency_key=f"{vote.pk}-l",
            revision=3,
            supersedes=vote,
            cast_at=vote.cast_at,
        )
    recipe = SnapshotRecipe(heldout_annotators=0.0, splits={"train": 1.0})
    made = freezing.snapshot_freeze(project=project, name="votes", recipe=recipe, user=emil)
    rows = [row for row in lines(made, "votes") if row["comparison"] == str(crowd[0].pk)]
    told = sorted((row["voted_for"], row["side"]) for row in rows)
    assert told == [("chosen", "right")] * 3 + [("rejected", ""), ("tie", "")]


def test_votes_changed_later_leave_the_export_as_it_was(
    frozen: Snapshot, crowd: list[Comparison]
) -> None:
    before = {shape: content(frozen, shape=shape, form="zip") for shape in SHAPES}
    for pair in crowd[:20]:
        revote(pair, ["a"] * 5)
    assert {shape: content(frozen, shape=shape, form="zip") for shape in SHAPES} == before


def test_the_card_of_a_form_is_read_by_the_hub(frozen: Snapshot, tmp_path: Path) -> None:
    folder = unzipped(frozen, "kto", tmp_path)
    card = DatasetCard.load(folder / "README.md")
    said = card.data.to_dict()
    assert said["license"] == "cc-by-4.0"
    assert said["language"] == ["en"]
    assert said["size_categories"] == ["n<1K"]
    assert said["task_categories"] == ["text-generation"]
    (config,) = said["configs"]
    assert [file["split"] for file in config["data_files"]] == exports.snapshot_splits(frozen)
    for words in ("`label`", "held", "debate-03", frozen.sha256, *frozen.counts["warnings"]):
        assert words in card.text
    about = json.loads((folder / "card.json").read_text())
    assert about["made_from"] == {"snapshot": frozen.pk, "sha256": frozen.sha256}
    assert about["form_rows"]["train"] == 2 * frozen.counts["rows"]["train"]


def test_demonstrations_and_prompts_have_a_form_of_plain_strings(project: Project) -> None:
    made = snapshot_import(
        project=project,
        kind="demonstrations",
        name="shown",
        rows=[{"prompt": "Why?", "response": "Because."}],
    )
    (row,) = lines(made, "prompt_completion")
    assert (row["prompt"], row["completion"], "messages" in row) == ("Why?\n\n", "Because.", False)
    asked = snapshot_import(
        project=project, kind="prompts", name="asked", rows=[{"prompt": "Why?"}]
    )
    (row,) = lines(asked, "prompt_only")
    assert row["prompt"] == "Why?\n\n"
    with pytest.raises(DomainError, match="prompt_only"):
        content(asked, shape="kto", split="train")


def test_a_form_without_rows_says_so(project: Project, crowd: list[Comparison], emil: User) -> None:
    # One pair of each debate: nothing connects three answers.
    Comparison.objects.exclude(pk__in=[pair.pk for pair in crowd[::6]]).update(state="dropped")
    recipe = SnapshotRecipe(heldout_annotators=0.0, splits={"train": 1.0})
    made = freezing.snapshot_freeze(project=project, name="few", recipe=recipe, user=emil)
    for form in ("jsonl", "zip"):
        with pytest.raises(Missing, match="row"):
            content(made, shape="ranking", split="train", form=form)


# The ids and columns that a row came in with.

SHAPED = ("conversational", "standard", "implicit", "kto", "soft", "votes")


def _named(crowd: list[Comparison]) -> dict[str, str]:
    """{comparison: its id}; each has a column of its own."""
    for number, comparison in enumerate(crowd):
        comparison.external_id, comparison.metadata = f"q{number}", {"our_row": number}
    Comparison.objects.bulk_update(crowd, ["external_id", "metadata"])
    return {str(comparison.pk): comparison.external_id for comparison in crowd}


def test_every_form_names_each_row_as_it_was_imported(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    names = _named(crowd)
    made = freezing.snapshot_freeze(project=project, name="named", recipe=RECIPE, user=emil)
    for shape in SHAPED:
        rows = lines(made, shape)
        assert rows
        assert all(row["external_id"] == names[row["comparison"]] for row in rows), shape
        assert all(
            f"q{json.loads(row['metadata'])['our_row']}" == row["external_id"] for row in rows
        )
        table = pq.read_table(io.BytesIO(content(made, shape=shape, split="train", form="parquet")))
        assert table.column("external_id").to_pylist() == [row["external_id"] for row in rows]
    for ranked in lines(made, "ranking"):
        assert ranked["external_id"] == [names[pair] for pair in ranked["comparisons"]]
        assert len(ranked["metadata"]) == len(ranked["comparisons"])


def test_files_frozen_before_have_empty_columns_and_the_hash_they_had(
    project: Project,
    crowd: list[Comparison],
    emil: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as before:
        before.setattr("apps.snapshots.assembling.rows.own_columns", lambda *_: {})
        old = freezing.snapshot_freeze(project=project, name="old", recipe=RECIPE, user=emil)
    _named(crowd)
    assert "external_id" not in lines(old)[0]  # the frozen bytes, as they are
    for shape in SHAPED[1:]:
        assert {row["external_id"] for row in lines(old, shape)} == {""}, shape
        for form in ("csv", "parquet"):
            assert content(old, shape=shape, split="train", form=form)
    read = csv.DictReader(io.StringIO(content(old, split="train", form="csv").decode(), newline=""))
    assert {(row["external_id"], row["metadata"]) for row in read} == {("", "")}
    assert all(set(row["external_id"]) == {""} for row in lines(old, "ranking"))
    again = Snapshot.objects.get(pk=old.pk)
    assert again.sha256 == old.sha256
    assert freezing.snapshot_verify(snapshot=again).ok
