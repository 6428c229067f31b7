"""Files of other tools: recognised from their content, and read as their tools mean them."""

import contextlib
import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict
from apps.labeling import services
from apps.labeling.formats import Converted, FormatError, Options, layout_of, table_open
from apps.labeling.formats.binary_files import MOST_FILES
from apps.labeling.forms.settings import LabelingSettingsForm
from apps.labeling.models import Guideline, LabelingSettings, Slot
from tests.labeling.pairs import annotators_make, leased, pairs_make, vote

PAIR = {"prompt": "Why?", "response_a": "So.", "response_b": "Because."}
Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A file of some content; its name says nothing."""

    def make(content: str | bytes) -> Path:
        path = tmp_path / "upload"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def read(path: Path, layout: str = "", **options: Any) -> tuple[str, str, list[Converted]]:
    """(container, layout, rows)."""
    opening = {k: options.pop(k) for k in ("container", "split", "encoding") if k in options}
    with table_open(path, **opening) as table:
        found = layout_of(table, layout)
        return table.container, found.key, list(found.rows(table, Options(**options)))


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def only(rows: list[Converted]) -> dict[str, Any]:
    (row,) = rows
    assert row.fault is None, row.fault
    assert row.comparison is not None
    return row.comparison


def zipped(**files: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


# --- containers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "container"),
    [
        (lines(PAIR, PAIR), "jsonl"),
        (json.dumps([PAIR, PAIR], indent=2), "json"),
        (json.dumps({"data": [PAIR, PAIR]}, indent=2), "json"),
        (json.dumps({name: [text] * 2 for name, text in PAIR.items()}, indent=1), "json"),
        ("prompt,response_a,response_b\nWhy?,So.,Because.\nWhy?,So.,Because.\n", "csv"),
        ("prompt;response_a;response_b\r\nWhy?;So.;Because.\r\nWhy?;So.;Because.\r\n", "csv"),
        ("prompt\tresponse_a\tresponse_b\nWhy?\tSo.\tBecause.\nWhy?\tSo.\tBecause.\n", "csv"),
        (parquet([PAIR, PAIR]), "parquet"),
        (gzip.compress(lines(PAIR, PAIR).encode(), mtime=0), "jsonl"),
        (zipped(**{"data/train.jsonl": lines(PAIR, PAIR)}), "zip"),
        (b"\xef\xbb\xbf" + lines(PAIR, PAIR).encode(), "jsonl"),
        (lines(PAIR, PAIR).encode("utf-16"), "jsonl"),
    ],
)
def test_the_same_rows_are_read_from_every_container(
    write: Write, content: str | bytes, container: str
) -> None:
    found, layout, rows = read(write(content))
    assert (found, layout) == (container, "pairs")
    assert [row.comparison for row in rows] == [PAIR, PAIR]
    assert [row.row for row in rows] == [1, 2]


def test_a_cell_may_hold_newlines_quotes_and_the_delimiter(write: Write) -> None:
    text = 'She said "well",\nand left; then\r\ncame back'
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerows([list(PAIR), ["Why?", text, "Because."]])
    assert only(read(write(buffer.getvalue()))[2])["response_a"] == text


def test_text_that_is_not_utf8_is_read_and_said_so(write: Write) -> None:
    path = write("prompt;response_a;response_b\nWarum?;Schön, weiß.;Möglich.\n".encode("cp1252"))
    with table_open(path) as table:
        assert "Windows-1252" in table.notes[0]
        assert next(table.records())[1]["response_a"] == "Schön, weiß."
    assert only(read(path, encoding="latin-1")[2])["response_b"] == "Möglich."


def test_a_row_of_another_width_is_named_and_the_others_are_read(write: Write) -> None:
    rows = read(write("prompt,response_a,response_b\nWhy?,So\nWhy?,So.,Because.\n"))[2]
    assert rows[0].fault.field == "row"
    assert re.findall(r"\d", rows[0].fault.message) == ["2", "3"]
    assert rows[1].comparison == PAIR


def test_empty_columns_at_the_end_of_a_spreadsheet_are_left_out(write: Write) -> None:
    rows = read(
        write("prompt;response_a;response_b;;\nWhy?;So.;Because.;;\nWhy?;So.;Because.;x;\n")
    )[2]
    assert rows[0].comparison == PAIR
    assert rows[1].fault.field == "row"  # what stands there has no name


def test_a_column_without_a_name_counts_only_where_it_holds_something(write: Write) -> None:
    table = "prompt,,response_a,,response_b\nWhy?,,So.,,Because.\nWho?,,Me.,seen,\n"
    _, _, (first, second) = read(write(table))
    assert first.comparison == PAIR
    assert second.comparison["response_b"] == ""  # a model may answer nothing
    assert second.comparison["metadata"] == {"column 4": "seen"}


def test_a_line_that_is_no_json_is_named_and_the_others_are_read(write: Write) -> None:
    rows = read(write(lines(PAIR) + "{oops}\n[1]\n" + lines(PAIR)))[2]
    assert [(row.row, row.fault is None) for row in rows] == [
        (1, True),
        (2, False),
        (3, False),
        (4, True),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"   \n ", "empty"),
        (b"\x89PNG\r\n", "image"),
        (b"one word", "neither as JSON nor as a table"),
        (b"a,a\n1,2\n", "twice"),
        (b"prompt,response_a\n", "no rows"),
        (b"[1, 2", "not JSON"),
        (b'{"a": [1], "b": [1, 2]}\n', "differ in length"),
        (b"PAR1 and nothing more", "Parquet"),
        (b"PK\x03\x04 and nothing more", "unpacked"),
        (b"ARROW1 and nothing more", "Arrow"),
        (b"\x1f\x8bxx", "gzip"),
    ],
)
def test_what_cannot_be_read_says_why(write: Write, content: bytes, words: str) -> None:
    container = {"container": "json"} if content.startswith(b'{"a": [1]') else {}
    with pytest.raises(FormatError, match=words):
        read(write(content), **container)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(data)
    with contextlib.suppress(FormatError):
        read(path)


# --- dataset folders -----------------------------------------------------------------------------


def saved_dataset(splits: dict[str, list[dict[str, Any]]]) -> dict[str, bytes | str]:
    """The files of `DatasetDict.save_to_disk`, as the `datasets` library writes them."""
    files: dict[str, bytes | str] = {"set/dataset_dict.json": json.dumps({"splits": list(splits)})}
    for split, rows in splits.items():
        sink = io.BytesIO()
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        files[f"set/{split}/data-00000-of-00001.arrow"] = sink.getvalue()
        files[f"set/{split}/state.json"] = json.dumps(
            {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        )
        files[f"set/{split}/dataset_info.json"] = "{}"
    return files


def test_a_saved_dataset_is_read_by_split(write: Write) -> None:
    other = PAIR | {"prompt": "How?"}
    path = write(zipped(**saved_dataset({"train": [PAIR], "test": [other]})))
    with table_open(path) as table:
        assert (table.split, table.splits) == ("train", ("train", "test"))
    assert only(read(path)[2])["prompt"] == "Why?"
    assert only(read(path, split="test")[2])["prompt"] == "How?"
    with pytest.raises(FormatError, match="no split 'dev'"):
        read(path, split="dev")


def test_what_the_datasets_library_saves_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    turns = [{"role": "user", "content": "Hi"}]
    rows = [
        {
            "chosen": [*turns, {"role": "assistant", "content": "Hello."}],
            "rejected": [*turns, {"role": "assistant", "content": "Go."}],
        }
    ]
    made = datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)})
    made.save_to_disk(tmp_path / "set")
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for file in (tmp_path / "set").rglob("*"):
            target.write(file, file.relative_to(tmp_path))
    _, layout, found = read(archive)
    row = only(found)
    assert layout == "preference"
    assert row["prompt"] == turns
    assert {row["response_a"][0]["content"], row["response_b"][0]["content"]} == {"Hello.", "Go."}


def test_parquet_files_of_a_folder_are_read_in_order_as_one_split(write: Write) -> None:
    parts = {
        f"data/train-0000{n}-of-00002.parquet": parquet([PAIR | {"prompt": str(n)}]) for n in (0, 1)
    }
    rows = read(write(zipped(**parts, **{"data/README.md": "no data"})))[2]
    assert [(row.row, row.comparison["prompt"]) for row in rows] == [(1, "0"), (2, "1")]


@pytest.mark.parametrize("name", ["../outside.jsonl", "/etc/rows.jsonl", "a/../../b.jsonl"])
def test_an_archive_whose_paths_leave_it_is_refused(write: Write, name: str) -> None:
    with pytest.raises(FormatError, match="leaves it"):
        read(write(zipped(**{name: lines(PAIR)})))


def test_an_archive_that_swells_is_refused_before_it_is_unpacked(write: Write) -> None:
    with pytest.raises(FormatError, match="times its size"):
        read(write(zipped(**{"bomb.jsonl": b"\0" * 30_000_000})))


def test_an_archive_of_links_or_of_too_many_files_is_refused(write: Write) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("link.jsonl")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(FormatError, match="a link"):
        read(write(buffer.getvalue()))
    with pytest.raises(FormatError, match="at most"):
        read(write(zipped(**{f"{n}.txt": "" for n in range(MOST_FILES + 1)})))


def test_a_dataset_that_names_a_file_outside_itself_is_refused(write: Write) -> None:
    files = saved_dataset({"train": [PAIR]})
    files["set/train/state.json"] = json.dumps({"_data_files": [{"filename": "../../x.arrow"}]})
    with pytest.raises(FormatError, match="outside its folder"):
        read(write(zipped(**files)))


# What reviewers, engineers and admins see of comparisons, and what admins may do.


@pytest.fixture
def decided(project: Project) -> object:
    (pair,) = pairs_make(project, 1)
    for person, choice in zip(annotators_make(project, 3), ("a", "a", "a"), strict=True):
        vote(project, person, choice, rationale="Because.")
    return pair


def test_a_reviewer_sees_numbers_where_an_admin_sees_names(
    project: Project, rita: User, ada: User, signed_in, decided
) -> None:
    path = f"/p/arguments/comparisons/{decided.pk}/"
    ritas = signed_in(rita).get(path).content.decode()
    adas = signed_in(ada).get(path).content.decode()
    assert "Annotator 1" in ritas
    assert "annotator-0" not in ritas
    assert "annotator-0" in adas
    for page in (ritas, adas):
        assert "A has 3 of 3 votes (100%)" in page
        assert "Because." in page


def test_all_that_came_with_a_vote_is_shown_to_readers(
    project: Project, ana: User, rita: User, signed_in
) -> None:
    (pair,) = pairs_make(
        project,
        1,
        criteria=[{"key": "clear", "label": "Clearer"}],
        show_rationale=True,
        reasons=["To the point"],
        show_improve=True,
    )
    vote(
        project,
        ana,
        "b",
        criteria={"clear": "a"},
        reasons=["To the point"],
        improvement="Better <b>so</b>.",
    )
    html = signed_in(rita).get(f"/p/arguments/comparisons/{pair.pk}/").content.decode()
    assert "Clearer: A" in html
    assert "To the point" in html
    assert "Better &lt;b&gt;so&lt;/b&gt;." in html


def test_every_revision_is_shown_and_the_old_one_struck_through(
    project: Project, ana: User, rita: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    cast = vote(project, ana, "a").vote
    services.vote_revise(vote=cast.pk, annotator=ana, idempotency_key="k", choice="b")
    html = signed_in(rita).get(f"/p/arguments/comparisons/{pair.pk}/").content.decode()
    assert html.count('class="past"') == 1
    assert "revision 2" in html
    assert "Annotator 2" not in html


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", 3),
        ("state=decided", 1),
        ("state=open", 2),
        ("winner=b", 1),
        ("winner=a", 0),
        ("q=pair-2", 1),
        ("q=Question 3", 1),
        ("q=nothing like it", 0),
        ("stratum=gold", 0),
        ("state=nonsense", 3),
        ("page=99", 3),
    ],
)
def test_the_list_filters_and_searches(
    project: Project, rita: User, signed_in, query: str, shown: int
) -> None:
    pairs = pairs_make(project, 3)
    for person in annotators_make(project, 3):
        slot = services.slot_lease_for(comparison=pairs[0], annotator=person)
        services.vote_cast(slot=slot, annotator=person, idempotency_key="k", choice="b")
    html = signed_in(rita).get(f"/p/arguments/comparisons/?{query}").content.decode()
    assert html.count('class="primary-link"') == shown
    if not shown:
        assert 'data-empty="funnel"' in html


def test_an_empty_project_says_how_comparisons_come_in(rita: User, signed_in) -> None:
    assert "No comparisons yet" in signed_in(rita).get("/p/arguments/comparisons/").content.decode()


def test_a_comparison_of_another_project_is_not_found(
    project: Project, olga: User, rita: User, signed_in
) -> None:
    elsewhere = Project.objects.get(slug="elsewhere")
    (theirs,) = pairs_make(elsewhere, 1)
    assert signed_in(rita).get(f"/p/arguments/comparisons/{theirs.pk}/").status_code == 404


def test_a_dropped_comparison_leaves_the_queue_and_can_come_back(
    project: Project, ada: User, ana: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    browser, path = signed_in(ada), f"/p/arguments/comparisons/{pair.pk}/"
    browser.post(f"{path}state/", {"action": "drop"})
    pair.refresh_from_db()
    assert pair.state == "dropped"
    assert isinstance(
        services.slot_lease_next(project=project, annotator=ana), services.NothingReason
    )
    browser.post(f"{path}state/", {"action": "reopen"})
    pair.refresh_from_db()
    assert (pair.state, pair.slots.filter(state="free").count()) == ("open", 3)
    assert leased(project, ana).comparison == pair.pk
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {"comparison.dropped", "comparison.reopened"} <= actions


def test_what_was_sent_to_review_shows_why_and_is_put_back(
    project: Project, ada: User, signed_in
) -> None:
    (pair,) = pairs_make(project, 1)
    for person in annotators_make(project, 3):
        services.slot_skip(slot=leased(project, person).slot, annotator=person, reason="cut off")
    page = signed_in(ada).get(f"/p/arguments/comparisons/{pair.pk}/")
    assert page.context["skips"] == ["cut off"] * 3
    services.comparison_reopen(comparison=pair, by=ada)
    assert Slot.objects.filter(task=pair, state="free").count() == 3


def test_a_decided_comparison_comes_back_decided(project: Project, ada: User, decided) -> None:
    services.comparison_drop(comparison=decided, by=ada)
    with pytest.raises(Conflict):
        services.comparison_drop(comparison=decided, by=ada)
    services.comparison_reopen(comparison=decided, by=ada)
    decided.refresh_from_db()
    assert decided.state == "decided"
    with pytest.raises(Conflict):
        services.comparison_reopen(comparison=decided, by=ada)


def test_my_answers_lists_mine_alone_and_filters(
    project: Project, ana: User, ben: User, signed_in
) -> None:
    pairs_make(project, 4)
    mine = [vote(project, ana, choice).vote for choice in ("a", "b", "tie")]
    vote(project, ben, "both_bad")
    browser = signed_in(ana)
    page = browser.get("/p/arguments/answers/").content.decode()
    assert page.count("?answer=") == 3
    sides = ["left" if v.choice == v.left_is else "right" for v in mine[:2]]
    for side in ("left", "right"):
        found = browser.get(f"/p/arguments/answers/?choice={side}").content.decode()
        assert found.count("?answer=") == sides.count(side)
    assert browser.get("/p/arguments/answers/?choice=tie").content.decode().count("?answer=") == 1
    assert "No answer matches" in browser.get("/p/arguments/answers/?q=zzz").content.decode()


def test_a_published_guideline_is_what_votes_are_cast_under(
    project: Project, ada: User, ana: User, signed_in
) -> None:
    pairs_make(project, 2)
    first = vote(project, ana).vote
    browser = signed_in(ada)
    sent = {"body": "# Be **strict**\n<script>alert(1)</script>", "is_major": "on"}
    assert browser.post("/p/arguments/guidelines/edit/", sent).status_code == 302
    page = browser.get("/p/arguments/guidelines/").content.decode()
    assert "<strong>strict</strong>" in page
    assert "<script>alert" not in page
    assert "Version 2" in page
    services.guideline_acknowledge(project=project, user=ana, version=2)
    assert vote(project, ana).vote.guideline.version == 2
    assert first.guideline.version == 1
    old = browser.get("/p/arguments/guidelines/?version=1").content.decode()
    assert "This is version 1" in old
    services.guideline_publish(project=project, body=sent["body"], by=ada)
    assert Guideline.objects.filter(project=project).count() == 2  # the same text is no version


def test_an_empty_guideline_is_refused_with_the_field_marked(ada: User, signed_in) -> None:
    answer = signed_in(ada).post("/p/arguments/guidelines/edit/", {"body": "  "})
    assert answer.status_code == 422
    assert "required" in answer.content.decode()


def test_a_rule_that_cannot_work_is_refused_and_what_was_typed_is_kept(
    project: Project, ada: User, signed_in
) -> None:
    stored = LabelingSettings.objects.create(project=project, show_both_bad=False)
    shown = LabelingSettingsForm(current=stored)
    form = {bound.name: bound.value() for bound in shown if bound.value() is not False}
    form |= {"least_votes": 7}
    browser = signed_in(ada)
    answer = browser.post("/p/arguments/settings/", form)
    assert answer.status_code == 422
    html = answer.content.decode()
    assert "Maximum votes (" in html
    assert 'value="7"' in html
    fewer = browser.post("/p/arguments/settings/", form | {"least_votes": 2, "max_overlap": 2})
    assert list(fewer.context["form"].errors) == ["max_overlap"]
    assert browser.post("/p/arguments/settings/", form | {"least_votes": 5}).status_code == 302
    saved = LabelingSettings.objects.get(project=project)
    assert (saved.least_votes, saved.show_tie, saved.show_both_bad) == (5, True, False)
    assert AuditEvent.objects.get(action="labeling.settings_changed").details["least_votes"] == [
        3,
        5,
    ]


def test_a_new_project_is_ready_for_labeling(ada: User) -> None:
    made = services.project_create(
        slug="second", name="Second", created_by=ada, overlap=1, max_overlap=3
    )
    assert LabelingSettings.objects.get(project=made).overlap == 1
    assert Guideline.objects.get(project=made).version == 1
    assert made.memberships.get(user=ada).role == "admin"
