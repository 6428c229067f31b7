"""Times in the reader's zone, pages in the reader's language."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import translation

from apps.accounts.models import ApiToken, Project, User
from apps.accounts.reader import ZONE_COOKIE
from apps.accounts.services import token_create
from apps.common import registry

LABEL = "labeling:label"


@pytest.fixture
def shown(ada: User, signed_in: Callable[[User], Client]) -> Callable[..., str]:
    """Ada's account; a token of hers ends at 22:30 UTC on New Year's Eve."""
    token, _ = token_create(user=ada, name="loader", scopes=["read"], days=9)
    ApiToken.objects.filter(pk=token.pk).update(expires_at="2040-12-31T22:30:00Z")

    def show(zone: str = "") -> str:
        client = signed_in(ada)
        if zone:
            client.cookies[ZONE_COOKIE] = zone
        return client.get("/account/").content.decode()

    return show


def test_times_are_those_of_the_browsers_zone_unless_the_person_chose_one(
    shown: Callable[..., str], ada: User
) -> None:
    assert "2040-12-31 22:30:00 UTC" in shown()
    assert "2041-01-01 04:00:00 IST" in shown("Asia/Kolkata")
    assert "2041-01-01 04:00:00 IST" in shown("Asia%2FKolkata")
    for garbage in ("../../etc/passwd", "Mars/Olympus", "\x00", "Europe/Berlin;x"):
        assert "2040-12-31 22:30:00 UTC" in shown(garbage)
    User.objects.filter(pk=ada.pk).update(time_zone="Europe/Berlin")
    assert "2040-12-31 23:30:00 CET" in shown("Asia/Kolkata")


@pytest.mark.parametrize(
    ("field", "value", "bad"), [("language", "de", "xx"), ("time_zone", "Europe/Berlin", "Berlin")]
)
def test_language_and_zone_are_chosen_on_the_account_page(
    ana: User, signed_in: Callable[[User], Client], field: str, value: str, bad: str
) -> None:
    client = signed_in(ana)
    refused = client.post("/account/profile/", {"display_name": "Ana", field: bad})
    assert refused.status_code == 422
    assert refused.context["profile_form"].has_error(field)
    assert (
        client.post("/account/profile/", {"display_name": "Ana", field: value}).status_code == 302
    )
    ana.refresh_from_db()
    assert getattr(ana, field) == value


def test_only_translated_pages_take_the_readers_language(
    ana: User,
    project: Project,
    signed_in: Callable[[User], Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, german = signed_in(ana), {"HTTP_ACCEPT_LANGUAGE": "de-CH,de;q=0.9,en;q=0.5"}
    monkeypatch.setattr(registry, "_TRANSLATED", {LABEL})
    page = client.get(f"/p/{project.slug}/label/", **german)
    assert page.headers["Content-Language"] == "de"
    assert "Accept-Language" in page.headers["Vary"]
    assert b'<html lang="de"' in page.content
    assert translation.get_language() == "en"  # the next request starts from there
    other = client.get(f"/p/{project.slug}/guidelines/", **german)
    assert b'<html lang="en"' in other.content
    assert "Content-Language" not in other.headers
    User.objects.filter(pk=ana.pk).update(language="en")
    assert b'<html lang="en"' in client.get(f"/p/{project.slug}/label/", **german).content
