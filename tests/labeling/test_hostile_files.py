"""Files made to crash, fill or stall their reader end in a refusal, never in an error of ours."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.common.sandbox import sandboxed, worker_limits
from apps.labeling import services
from apps.labeling.formats import FormatError, Options, layout_of, table_open
from apps.labeling.formats.records import FileLimits
from apps.labeling.formats.text_files import array
from apps.labeling.models import Comparison, ImportJob, Vote
from apps.labeling.services import importing
from apps.labeling.services.importing import file_rows
from apps.labeling.services.imports import file_parsed, file_preview
from apps.labeling.texts import MOST_MESSAGES, BadMessages, messages_from
from tests.labeling import hostile_files as hostile
from tests.labeling import test_api
from tests.labeling.pairs import leased, pairs_make, rating_leased, rows_make, tasks_make

SignedIn = Callable[[User], Client]
PAIR = hostile.PAIR


@pytest.fixture
def upload(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "upload"
        path.write_bytes(data)
        return path

    return write


Upload = Callable[[bytes], Path]


def refusal(path: Path, **chosen: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        file_preview(path, chosen)
    assert str(path.parent) not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (hostile.arrow_stream(offset=0x7FFFFF00), "file_unreadable"),
        (hostile.arrow_stream(offset=-5), "file_unreadable"),
        (hostile.parquet_dictionary_bomb(rows=60, characters=20_000_000), "file_needs_memory"),
        (hostile.json_of_many_keys(50_000), "file_unreadable"),
        (b"[" * 100_000, "file_unreadable"),
        (b'[{"prompt": ' + b"9" * 5000 + b"}]", "file_unreadable"),
        (hostile.csv_of_columns(20_000), "file_unreadable"),
        (hostile.gzip_bomb(50_000_000), "file_unreadable"),
        (hostile.workbook(sheet=hostile.SHEET * 400_000), "file_unreadable"),
        (hostile.workbook(styles=hostile.ENTITIES), "file_unreadable"),
        (hostile.workbook(sheet='<row r="99999999999"><c r="A1"/></row>'), "file_unreadable"),
        (hostile.workbook(sheet="<row><c"), "file_unreadable"),
        (hostile.workbook()[:-400], "file_unreadable"),
    ],
    ids=[
        "beyond",
        "negative",
        "texts",
        "keys",
        "deep",
        "digits",
        "columns",
        "gzip",
        "workbook bomb",
        "workbook entities",
        "workbook row",
        "workbook broken",
        "workbook cut",
    ],
)
def test_a_hostile_file_is_refused_at_upload(upload: Upload, data: bytes, code: str) -> None:
    assert refusal(upload(data)).code == code


def test_no_damaged_parquet_file_ends_its_reader() -> None:
    found = dict(sandboxed("tests.labeling.hostile_files:outcomes", worker_limits(), begin=0))
    assert len(found) == 150
    codes = {code for code in found.values() if "rows" not in code}
    assert codes == {"file_unreadable", "column_missing"}


def test_one_long_text_in_a_dictionary_is_looked_at_and_its_rows_are_refused(
    upload: Upload, settings: Any
) -> None:
    settings.UPLOAD_PARSE_MB = 800  # all of its rows at once would take 500 MB more
    path = upload(hostile.parquet_dictionary_bomb(rows=500))
    assert len(file_preview(path, {})["columns"]) == 3
    with file_parsed(path, {}) as values:
        found = file_rows(values)
    assert len(found.problems) == 500
    assert {problem.field for problem in found.problems} == {"prompt"}


def test_rows_that_need_no_bytes_are_given_up_on(
    upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MOST_ROWS", 500)
    path = upload(hostile.arrow_of_nothing())
    with file_parsed(path, {}) as values, pytest.raises(DomainError) as caught:
        file_rows(values)
    assert caught.value.code == "too_many_rows"


def test_rows_that_cannot_be_read_are_counted_up_to_a_limit(
    upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MOST_PROBLEMS", 50)
    data = json.dumps(PAIR).encode() + b"\n" + b"1\n" * 500
    path = upload(data)
    with file_parsed(path, {"container": "jsonl"}) as values, pytest.raises(DomainError) as caught:
        file_rows(values)
    assert caught.value.code == "too_many_problems"


@pytest.mark.parametrize(
    "encoding",
    [
        "undefined",
        "idna",
        "punycode",
        "a\0b",
        "unicode_escape",
        "raw_unicode_escape",
        "utf-16",
        "utf-32",
        "rot13",
        "utf-7",
        "no such thing",
    ],
)
@pytest.mark.parametrize("container", ["csv", "jsonl", "json"])
def test_an_encoding_that_does_not_fit_is_said(
    upload: Upload, encoding: str, container: str
) -> None:
    data = b"prompt,response_a,response_b\n\\ud800,b,c\n" + json.dumps(PAIR).encode()
    with (
        pytest.raises(FormatError),
        table_open(upload(data), container=container, encoding=encoding, delimiter=",") as table,
    ):
        list(layout_of(table).rows(table, Options()))


@pytest.mark.parametrize("delimiter", ["ab", "\0", "\n", '"'])
def test_a_delimiter_that_is_none_is_said(upload: Upload, delimiter: str) -> None:
    path = upload(b"prompt,response_a,response_b\n1,2,3\n")
    with pytest.raises(FormatError), table_open(path, delimiter=delimiter, container="csv"):
        pass


@pytest.mark.parametrize("split", [1, 7, 64])
@pytest.mark.parametrize(
    "text",
    ["[]", "[ ]", "[{}]", '[{"a": 12345}, 12345 ,{"b": "x,]"} ]', '\ufeff[\n{"a": [1, 2]},{}\n]\n'],
)
def test_a_list_is_read_piece_by_piece_as_json_reads_it(
    upload: Upload, monkeypatch: pytest.MonkeyPatch, text: str, split: int
) -> None:
    monkeypatch.setattr("apps.labeling.formats.text_files._BLOCK", split)
    found = [value for _, value in array(upload(text.encode()), "utf-8")]
    expected = json.loads(text.lstrip("\ufeff"))
    assert len(found) == len(expected)
    assert [value for value in found if isinstance(value, dict)] == [
        value for value in expected if isinstance(value, dict)
    ]


@pytest.mark.parametrize("text", ["[", "[{}", "[{} {}]", "[{},]", "[{}] x", "[{]", "[1e]", "[,]"])
def test_a_list_that_is_no_json_is_refused(upload: Upload, text: str) -> None:
    with pytest.raises(FormatError):
        list(array(upload(text.encode()), "utf-8"))


def test_a_file_may_be_as_wide_as_the_limit(upload: Upload) -> None:
    limits = FileLimits(columns=3)
    rows = json.dumps(PAIR) + "\n" + json.dumps(PAIR | {"more": 1})
    with table_open(upload(f"{rows}\n".encode()), limits=limits) as table:
        first, second = (record for _, record in table.records())
    assert first == PAIR
    assert "4 fields" in second.message
    with (
        pytest.raises(FormatError, match="4 columns"),
        table_open(upload(b"a,b,c,d\n1,2,3,4\n"), limits=limits),
    ):
        pass


def test_a_text_file_that_gzip_packs_well_is_read(upload: Upload) -> None:
    lines = "".join(json.dumps(PAIR | {"id": str(n)}) + "\n" for n in range(20_000))
    path = upload(gzip.compress(lines.encode(), mtime=0))
    with table_open(path) as table:
        assert sum(1 for _ in table.records()) == 20_000


def test_the_api_refuses_a_hostile_file_and_keeps_nothing(
    signed_in: SignedIn, project: Project, emil: User
) -> None:
    answer = signed_in(emil).post(
        "/api/v1/projects/arguments/imports",
        {"file": SimpleUploadedFile("rows.arrow", hostile.arrow_stream(offset=0x7FFFFF00))},
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "file_unreadable")
    assert not ImportJob.objects.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("constants", {"topic": "a\0b"}),
        ("mapping", {"prompt": "\0"}),
        ("encoding", "\ud800"),
        ("split", "\0"),
    ],
)
def test_settings_that_cannot_be_stored_are_refused_by_name(
    project: Project, emil: User, name: str, value: Any, inline_parsing: None
) -> None:
    job = services.import_job_create(
        project=project, by=emil, file_name="a\0b.jsonl", chunks=[json.dumps(PAIR).encode()]
    )
    assert "\0" not in job.file_name
    with pytest.raises(DomainError) as caught:
        services.import_job_configure(job=job, **{name: value})
    assert (caught.value.code, caught.value.field) == ("not_storable", name)


def test_cells_that_spell_half_a_character_stay_texts(
    project: Project, emil: User, inline_parsing: None
) -> None:
    half = json.dumps([{"role": "user", "content": "\ud800"}])
    rows = f'prompt,response_a,response_b\n"{half.replace(chr(34), chr(34) * 2)}",b,c\n'
    job = services.import_job_create(
        project=project, by=emil, file_name="x.csv", chunks=[rows.encode()]
    )
    services.import_job_check(job=job)
    services.import_job_run(job=job.pk)
    job.refresh_from_db()
    services.import_job_start(job=job)
    assert services.import_job_run(job=job.pk) == "done"


def test_a_conversation_has_so_many_messages() -> None:
    turns = [{"role": "user", "content": "x"}] * (MOST_MESSAGES + 1)
    assert len(messages_from(turns[1:], role="user")) == MOST_MESSAGES
    with pytest.raises(BadMessages):
        messages_from(turns, role="user")


# Text that no database stores and archives that no reader reads are refused, not our error.


call = test_api.call  # its fixture: a request by API as somebody
Call = test_api.Call
NUL, HALF = "a\x00b", "a\ud800"


@pytest.mark.parametrize(
    "sent",
    [{"idempotency_key": NUL}, {"idempotency_key": HALF}, {"rationale": HALF}],
)
def test_a_vote_with_text_that_cannot_be_stored_is_refused(
    project: Project,
    ana: User,
    call: Call,
    sent: dict[str, Any],
) -> None:
    pairs_make(project)
    slot = leased(project, ana).slot
    body = {"idempotency_key": "k", "side": "left"} | sent
    assert call(ana, "POST", f"/slots/{slot}/vote", body)[0] in (400, 422)
    assert call(ana, "POST", f"/slots/{slot}/skip", {"reason": NUL})[0] == 400
    assert not Vote.objects.exists()


def test_a_reason_that_cannot_be_stored_skips_no_rating_task(
    project: Project,
    ana: User,
    call: Call,
) -> None:
    tasks_make(project, 1)
    slot = rating_leased(project, ana).slot
    assert call(ana, "POST", f"/rating-slots/{slot}/skip", {"reason": NUL})[0] == 400
    assert rating_leased(project, ana).slot == slot


@pytest.mark.parametrize("text", [NUL, HALF])
def test_past_votes_on_an_impossible_id_are_refused(
    project: Project,
    ada: User,
    call: Call,
    text: str,
) -> None:
    rows = [{"comparison": text, "annotator": "x", "choice": "a"}]
    assert call(ada, "POST", "/projects/arguments/votes/import", {"rows": rows})[0] == 400


def test_half_a_character_in_a_row_is_refused_and_a_whole_one_kept(
    project: Project,
    emil: User,
    call: Call,
) -> None:
    row, path = rows_make(1)[0], "/projects/arguments/comparisons/import"
    assert call(emil, "POST", path, {"rows": [row | {"prompt": HALF}]})[0] == 400
    assert not Comparison.objects.exists()
    assert call(emil, "POST", path, {"rows": [row | {"prompt": "\U0001f600"}]})[0] == 201
    assert Comparison.objects.get().prompt.messages[0]["content"] == "\U0001f600"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("imports/%00", 404),
        ("decisions?outcome=%00", 400),
        ("imports/none/findings?after=9223372036854775807", 422),
    ],
)
def test_an_address_of_the_api_that_cannot_be_is_no_error_of_ours(
    project: Project,
    ada: User,
    call: Call,
    path: str,
    status: int,
) -> None:
    assert call(ada, "GET", f"/projects/arguments/{path}")[0] == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("comparisons/ambiguous/?topic=%00&q=%00", 400),
        ("label/?answer=" + "9" * 4301, 404),
    ],
)
def test_an_address_of_a_page_that_cannot_be_is_no_error_of_ours(
    project: Project, ada: User, client: Client, path: str, status: int
) -> None:
    client.force_login(ada)
    assert client.get(f"/p/{project.slug}/{path}").status_code == status


def zipped(method: int = zipfile.ZIP_STORED, **files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def damaged(method: int) -> bytes:
    """An archive with twenty bytes of its first member turned over."""
    raw = bytearray(zipped(method, **{"train.jsonl": json.dumps(rows_make(1)[0]) * 50}))
    raw[50:70] = bytes(byte ^ 0xFF for byte in raw[50:70])
    return bytes(raw)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(damaged(zipfile.ZIP_DEFLATED), id="damaged deflate"),
        pytest.param(damaged(zipfile.ZIP_LZMA), id="damaged lzma"),
        pytest.param(zipped(**{"dataset_dict.json": "[" * 100_000}), id="deep"),
        pytest.param(zipped(**{"dataset_dict.json": '{"splits": ["\\u0000"]}'}), id="NUL split"),
        pytest.param(zipped(**{"state.json": '{"_data_files": ["x"]}'}), id="no objects"),
        pytest.param(
            zipped(**{"state.json": '{"_data_files": [{"filename": "\\u0000"}]}'}), id="NUL file"
        ),
        pytest.param(b'{"prompt":"\\ud800","response_a":"a","response_b":"b"}\n', id="surrogate"),
        pytest.param(b'[{"\\ud800":"p","response_a":"a","response_b":"b"}]', id="surrogate name"),
        pytest.param(b'{"\\u0000":"p","response_a":"a","response_b":"b"}\n', id="NUL name"),
    ],
)
def test_a_hostile_file_is_refused_at_upload_and_nothing_is_kept(
    project: Project, emil: User, client: Client, content: bytes
) -> None:
    client.force_login(emil)
    file = SimpleUploadedFile("rows.bin", content)
    assert client.post(f"/p/{project.slug}/imports/", {"file": file}).status_code == 422
    assert not ImportJob.objects.exists()
