"""Each address × each role, the outsider and the anonymous; and that no address is forgotten."""

import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from config.api import api as concord_api
from tests.web.access_table import ADMIN, PERSONAS, TABLE, Line, address
from tests.web.world import World, world_make

pytestmark = pytest.mark.django_db  # each try in a savepoint of the world's transaction
LINES = {f"{line.method} {line.name}" if not line.is_api else line.name: line for line in TABLE}


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """Made once, with everybody signed in; every try works in a savepoint that is rolled back."""
    with django_db_blocker.unblock(), transaction.atomic():
        made = world_make()
        for persona in PERSONAS:
            if (user := made.persona(persona)) is not None:
                client = Client()
                client.force_login(user)
                made.cookies[persona] = {one.key: one.value for one in client.cookies.values()}
        yield made
        transaction.set_rollback(True)


def page_names() -> set[str]:
    """The names of all pages; Django's own admin counts as its index."""
    found: set[str] = set()

    def walk(resolver: URLResolver, prefix: str) -> None:
        for pattern in resolver.url_patterns:
            if isinstance(pattern, URLResolver):
                inner = f"{prefix}{pattern.namespace}:" if pattern.namespace else prefix
                walk(pattern, inner)
            elif isinstance(pattern, URLPattern):
                name = f"{prefix}{pattern.name}"
                found.add("admin:index" if name.startswith("admin:") else name)

    walk(get_resolver(), "")
    return {name for name in found if name not in api_url_names()}


def api_operations() -> Iterator[tuple[str, str]]:
    """(method and path, URL name) of every operation, also those hidden from the schema."""
    for router in concord_api._get_bound_routers():
        for path, view in router.path_operations.items():
            for operation in view.operations:
                for method in operation.methods:
                    full = re.sub(r"{[^}:]+:", "{", f"{router.prefix}{path}")
                    yield f"{method} {full}", f"api:{view.url_name or operation.view_func.__name__}"


def api_url_names() -> set[str]:
    own = {"api:openapi-json", "api:openapi-view", "api:api-root", "api:unknown"}
    return {
        f"api:{pattern.name}"
        for resolver in get_resolver().url_patterns
        if isinstance(resolver, URLResolver) and resolver.namespace == "api"
        for pattern in resolver.url_patterns
    } - own


def test_every_page_is_in_the_table():
    listed = {line.name for line in TABLE if not line.is_api}
    assert listed == page_names(), "add or remove lines in tests/web/access_table.py"


def test_every_api_operation_is_in_the_table():
    listed = {line.name for line in TABLE if line.is_api}
    assert listed == {name for name, _ in api_operations()}, (
        "add or remove lines in tests/web/access_table.py"
    )


def _ask(line: Line, world: World, persona: str) -> HttpResponse:
    client = Client(raise_request_exception=True)
    client.cookies = SimpleCookie(world.cookies.get(persona, {}))
    data = line.data(world) if callable(line.data) else line.data
    ask = getattr(client, line.method.lower())
    if line.is_api and line.method in {"POST", "PUT", "PATCH"}:
        return ask(address(line, world), data, content_type="application/json")
    return ask(address(line, world), data)


@pytest.mark.parametrize("key", sorted(LINES))
def test_an_address_answers_each_persona_as_the_table_says(key, world):
    line, answers = LINES[key], {}
    for persona in PERSONAS:
        with transaction.atomic():
            answer = _ask(line, world, persona)
            answers[persona] = answer.status_code
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            if answer.streaming:
                b"".join(answer.streaming_content)
            transaction.set_rollback(True)
    assert answers == {persona: line.expected(persona) for persona in PERSONAS}


def test_head_is_answered_wherever_get_is(world):
    lines = [
        line
        for line in TABLE
        if (line.name.startswith("GET /") if line.is_api else line.method == "GET")
        and (line.roles is None or ADMIN in line.roles)
    ][::8]  # tests/common/test_front.py reads the views of the others
    answers = {}
    for line in lines:
        client = Client()
        client.force_login(world.ada)
        with transaction.atomic():
            data = line.data(world) if callable(line.data) else line.data
            answer = client.head(address(line, world), data)
            answers[line.name] = answer.status_code
            transaction.set_rollback(True)
    assert len(answers) >= 15
    assert answers == {line.name: line.expected(ADMIN) for line in lines}


def test_every_role_has_a_landing_page_it_may_see(world):
    for user in (world.ana, world.rita, world.emil, world.ada):
        client = Client()
        client.force_login(user)
        page = client.get("/", follow=True)
        assert page.status_code == 200, (user, page.redirect_chain)


def test_every_entry_of_a_rail_leads_to_a_page_that_role_may_see(world):
    for user in (world.ana, world.rita, world.emil, world.ada):
        client = Client()
        client.force_login(user)
        page = client.get("/account/").content.decode()
        rail = page.split('aria-label="Main"')[1].split("</nav>")[0]
        links = re.findall(r'<a href="([^"]+)"', rail)
        assert links, user
        for link in links:
            assert client.get(link, follow=True).status_code == 200, (user, link)
