"""Nobody asks more often than the site lets them, and everybody is told how often that is."""

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.common import rates

pytestmark = pytest.mark.django_db
API = "/api/v1/projects"


@pytest.fixture(autouse=True)
def _fresh_buckets() -> None:
    cache.clear()


def bearer(user: User) -> dict[str, str]:
    _, text = token_create(user=user, name="t", scopes=["read"], days=1)
    return {"Authorization": f"Bearer {text}"}


def asked(times: int, **more: Any) -> list[Any]:
    return [Client().get(API, **more) for _ in range(times)]


def test_a_token_has_so_many_a_minute_and_is_told(ana: User, settings: Settings) -> None:
    settings.API_RATE = 5
    answers = asked(6, headers=bearer(ana))
    assert [one.status_code for one in answers] == [200] * 5 + [429]
    left = [int(one["RateLimit-Remaining"]) for one in answers]
    assert left == [4, 3, 2, 1, 0, 0]
    assert {one["RateLimit-Limit"] for one in answers} == {"5"}
    last = answers[-1]
    assert last.json()["code"] == "too_many_requests"
    assert last["Retry-After"] == last["RateLimit-Reset"]
    assert 1 <= int(last["Retry-After"]) <= 12
    assert answers[0]["RateLimit-Reset"] == "12"


def test_another_persons_token_has_its_own(ana: User, rita: User, settings: Settings) -> None:
    settings.API_RATE = 2
    assert asked(3, headers=bearer(ana))[-1].status_code == 429
    assert asked(1, headers=bearer(rita))[0].status_code == 200


def test_many_tokens_of_one_person_are_one_person(ana: User, settings: Settings) -> None:
    settings.API_RATE = 3
    answers = [asked(1, headers=bearer(ana))[0] for _ in range(7)]
    assert [one.status_code for one in answers] == [200] * 6 + [429]
    assert int(answers[-1]["Retry-After"]) >= 1


def test_without_a_token_the_clients_address_is_counted_and_not_the_proxys(
    settings: Settings, db: None
) -> None:
    from ipaddress import ip_network

    settings.API_RATE_UNKNOWN = 2
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/8")]

    def ask(address: str) -> int:
        return (
            Client(REMOTE_ADDR="10.0.0.1")
            .get(API, headers={"X-Forwarded-For": address})
            .status_code
        )

    assert [ask("203.0.113.5") for _ in range(3)] == [401, 401, 429]
    assert ask("203.0.113.6") == 401


def test_made_up_tokens_are_counted_by_address(settings: Settings) -> None:
    settings.API_RATE_UNKNOWN = 3
    answers = [asked(1, headers={"Authorization": f"Bearer ccd_{n}"})[0] for n in range(4)]
    assert [one.status_code for one in answers] == [401] * 3 + [429]
    assert int(answers[-1]["Retry-After"]) >= 1


def test_exports_have_a_smaller_bucket_of_their_own(
    project: Project, emil: User, settings: Settings
) -> None:
    settings.HEAVY_RATE = 1
    client = Client()
    client.force_login(emil)
    url = f"/p/{project.slug}/audit-log.csv"
    first, second = client.get(url), client.get(url)
    assert second.status_code == 429
    assert second["Retry-After"]
    assert first.status_code != 429
    assert client.get(f"/p/{project.slug}/").status_code in (200, 302)


def test_what_is_heavy_is_counted_by_person_with_all_their_tokens(
    project: Project, emil: User, ada: User, settings: Settings
) -> None:
    settings.HEAVY_RATE = 1
    url = f"/api/v1/projects/{project.slug}/results"
    assert Client().get(url, headers=bearer(emil)).status_code == 200
    assert Client().get(url, headers=bearer(emil)).status_code == 429
    assert Client().get(url, headers=bearer(ada)).status_code == 200
    assert Client().get(API, headers=bearer(emil)).status_code == 200


def test_what_is_heavy_is_counted_for_all_of_a_project_and_outsiders_take_nothing_from_it(
    project: Project, emil: User, ada: User, rita: User, olga: User, settings: Settings
) -> None:
    settings.HEAVY_RATE_PROJECT = 2
    url, olgas = f"/p/{project.slug}/comparisons/votes/", "/p/elsewhere/comparisons/votes/"

    def ask(user: User, where: str = url) -> int:
        client = Client()
        client.force_login(user)
        return client.get(where, {"format": "csv"}).status_code

    assert [ask(olga) for _ in range(4)] == [404] * 4
    assert [ask(user) for user in (emil, ada, emil)] == [200, 200, 429]
    assert ask(olga, olgas) == 200, "another project has its own"


def test_a_bucket_fills_evenly() -> None:
    assert rates.Taken(60, 0.25, ok=False).retry_s == 1
    assert rates.Taken(6, 0.5, ok=False).retry_s == 5
    assert rates.Taken(60, 59.0, ok=True).headers["RateLimit-Reset"] == "1"


def test_while_redis_is_away_nobody_is_counted(
    ana: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    def away() -> Any:
        raise redis.ConnectionError("away")

    settings.API_RATE = 1
    monkeypatch.setattr(rates, "_script", away)
    assert [one.status_code for one in asked(3, headers=bearer(ana))] == [200] * 3
