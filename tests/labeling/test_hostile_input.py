"""Text that no database stores and archives that no reader reads are refused, not our error."""

import io
import json
import zipfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, ImportJob, Vote
from tests.labeling import test_api
from tests.labeling.pairs import leased, pairs_make, rows_make
from tests.labeling.rating_tasks import held, tasks_make

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
    slot = held(project, ana).slot
    assert call(ana, "POST", f"/rating-slots/{slot}/skip", {"reason": NUL})[0] == 400
    assert held(project, ana).slot == slot


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
