"""Every page of a large site: how many statements it takes, and how long it is.

What a page may not do is ask once for each row, or show all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.agreement.services.annotators import annotator_reports_refresh
from apps.agreement.services.reports import report_refresh
from tests.web.access_table import ADMIN, SIGNED_IN, TABLE, Line, address
from tests.web.large_site import large_site_write
from tests.web.world import World, world_make

pytestmark = [pytest.mark.spread, pytest.mark.django_db]
MOST_STATEMENTS = 70
MOST_BYTES = 400_000
PAGES = [
    line
    for line in TABLE
    if line.method == "GET"
    and not line.is_api
    and (line.roles is SIGNED_IN or ADMIN in line.roles)
    and line.expected(ADMIN) == 200
    # as long as there are operations, whatever the site
    and line.name not in ("api:openapi-view", "api:openapi-json")
]


@dataclass(frozen=True)
class Page:
    name: str
    statements: int
    size: int


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock(), transaction.atomic():
        made = world_make()
        large_site_write(made.project)
        annotator_reports_refresh(project=made.project)
        report_refresh(project=made.project)
        cache.clear()
        yield made
        transaction.set_rollback(True)
        cache.clear()


def opened(line: Line, world: World) -> Page | None:
    """None for files, which are as long as they are."""
    client = Client()
    client.force_login(world.ada)
    with transaction.atomic():
        data = line.data(world) if callable(line.data) else line.data
        where = address(line, world)
        with CaptureQueriesContext(connection) as asked:
            answer = client.get(where, data)
        transaction.set_rollback(True)
    assert answer.status_code == 200, line.name
    if answer.headers.get("Content-Disposition", "").startswith("attachment"):
        return None
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return Page(line.name, len(asked), len(body))


def test_no_page_asks_or_tells_more_the_larger_the_site_is(world: World) -> None:
    found = [page for line in PAGES if (page := opened(line, world))]
    assert len(found) > 60
    assert {page.name: page.statements for page in found if page.statements > MOST_STATEMENTS} == {}
    assert {page.name: page.size for page in found if page.size > MOST_BYTES} == {}
