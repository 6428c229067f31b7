"""Limits count clients, also behind a proxy."""

from ipaddress import ip_network
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User

pytestmark = pytest.mark.usefixtures("fresh_sign_in_counts")
ASKED_BY_ONE = 20  # allauth's limit of password resets a minute and address


@pytest.fixture
def behind_proxy(settings: Any) -> None:
    """Every request comes from the proxy at 127.0.0.1."""
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.0/8")]


def reset_asked(client: Client, number: int, address: str) -> int:
    """The status of asking for a link; each asks for another address, so that it alone counts."""
    asked = {"email": f"nobody-{number}@example.org"}
    page = client.post("/password/forgotten/", asked, headers={"x-forwarded-for": address})
    return page.status_code


def test_password_resets_are_counted_by_client_behind_a_proxy(
    behind_proxy: None, ana: User, client: Client
) -> None:
    asked = [reset_asked(client, n, f"203.0.113.{n}") for n in range(ASKED_BY_ONE + 5)]
    assert asked == [302] * (ASKED_BY_ONE + 5)


def test_one_client_behind_a_proxy_has_a_limit_whatever_it_claims(
    behind_proxy: None, ana: User, client: Client
) -> None:
    """What stands before the proxy's own entry anybody could have written."""
    asked = [reset_asked(client, n, f"10.0.0.{n}, 203.0.113.9") for n in range(ASKED_BY_ONE + 1)]
    assert asked == [302] * ASKED_BY_ONE + [429]


def test_without_a_proxy_nobody_chooses_their_address(ana: User, client: Client) -> None:
    asked = [reset_asked(client, n, f"203.0.113.{n}") for n in range(ASKED_BY_ONE + 1)]
    assert asked[-1] == 429
