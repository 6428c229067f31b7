"""A few requests of each operation, drawn from the API's description, as every role: no 500.

The long run, on a whole site, is `tests/system/drill_api.py`.
"""

import os
from pathlib import Path

import pytest
from django.conf import settings
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import SCOPES, User
from apps.accounts.services import token_create
from tests.system.drill_api import fuzzed, read

PROGRAM = Path(settings.BASE_DIR) / ".venv-fuzz" / "bin" / "schemathesis"
SECONDS = (12, 40, 120)  # of each role; half of the first goes into reading the description
ENOUGH = 20  # answers; on a busy machine only the second or third try has them
SIGNED_IN = {200, 201, 204}


@pytest.fixture
def people(
    transactional_db: None, ana: User, rita: User, emil: User, ada: User, olga: User
) -> dict[str, User]:
    return {"ana": ana, "rita": rita, "emil": emil, "ada": ada, "olga": olga}


@pytest.mark.parametrize("name", ["ana", "rita", "emil", "ada", "olga", ""])
def test_no_drawn_request_is_answered_by_a_500(
    name: str, people: dict[str, User], live_server: LiveServer, tmp_path: Path
) -> None:
    if not PROGRAM.exists():
        if os.environ.get("CI"):
            pytest.fail("schemathesis is not there: make test-spread installs it")
        pytest.skip("schemathesis is not installed: make test-api installs it")
    token = None
    if name:
        _, token = token_create(user=people[name], name="drawn", scopes=list(SCOPES), days=1)
    report = tmp_path / "report.ndjson"
    for seconds in SECONDS:
        report.unlink(missing_ok=True)
        fuzzed(PROGRAM, live_server.url, token, report, 1, seconds=seconds)
        answers, bad = read(report)
        assert not bad
        if sum(answers.values()) > ENOUGH:
            break
    assert sum(answers.values()) > ENOUGH
    assert bool(SIGNED_IN & set(answers)) == bool(name), answers


def test_a_500_would_be_found(tmp_path: Path) -> None:
    report = tmp_path / "report.ndjson"
    report.write_text(
        '{"x": [{"request": {"method": "GET", "uri": "/a"}, "response": {"status_code": 500}}]}\n'
        '{"request": {"method": "GET", "uri": "/b"}, "response": {"status_code": 503}}\n'
    )
    answers, bad = read(report)
    assert answers == {500: 1, 503: 1}
    assert bad == ["500 GET /a"]
