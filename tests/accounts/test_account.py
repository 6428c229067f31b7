"""One's own account: theme, password, tokens."""

from django.test import Client

from apps.accounts import services
from apps.accounts.models import ApiToken, AuditEvent
from apps.accounts.scopes import token_sha256
from tests.people import PASSWORD


def test_the_theme_is_kept_with_the_person_and_in_the_page_from_the_first_byte(ana, signed_in):
    client = signed_in(ana)
    assert 'data-theme="system"' in client.get("/account/").content.decode()
    assert client.post("/account/theme/", {"theme": "dark", "next": "/account/"}).url == "/account/"
    assert 'data-theme="dark"' in client.get("/account/").content.decode()


def test_an_unknown_theme_changes_nothing(ana, signed_in):
    signed_in(ana).post("/account/theme/", {"theme": "<script>"})
    ana.refresh_from_db()
    assert ana.theme == "system"


def test_changing_the_password_needs_the_old_one_and_keeps_this_browser_signed_in(ana, signed_in):
    client = signed_in(ana)
    new = "a-much-better-one-7"
    wrong = client.post(
        "/account/password/",
        {"old_password": "nope", "new_password1": new, "new_password2": new},
    )
    assert wrong.status_code == 422
    other = signed_in(ana)
    right = client.post(
        "/account/password/",
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )
    assert right.status_code == 302
    assert client.get("/account/").status_code == 200
    assert other.get("/account/").status_code == 302  # other browsers are signed out


def test_a_new_password_ends_every_token_of_that_person(ana, emil, signed_in):
    _, text = services.token_create(user=ana, name="notebook", scopes=["read"], days=30)
    _, other = services.token_create(user=emil, name="ci", scopes=["read"], days=30)
    new = "a-much-better-one-7"
    signed_in(ana).post(
        "/account/password/",
        {"old_password": PASSWORD, "new_password1": new, "new_password2": new},
    )
    answers = [
        Client().get("/api/v1/me", headers={"authorization": f"Bearer {token}"}).status_code
        for token in (text, other)
    ]
    assert answers == [401, 200]
    actions = AuditEvent.objects.filter(actor=ana).values_list("action", flat=True)
    assert {"token.revoked", "user.password_changed"} <= set(actions)


def test_a_token_is_shown_once_and_kept_as_a_hash(ana, signed_in):
    client = signed_in(ana)
    page = client.post(
        "/account/tokens/", {"name": "notebook", "scopes": ["read", "label"], "days": "30"}
    )
    text = page.content.decode().split('<div class="secret"><code>')[1].split("</code>")[0]
    row = ApiToken.objects.get(user=ana)
    assert row.sha256 == token_sha256(text)
    assert row.scopes == ["label", "read"]
    assert text not in client.get("/account/").content.decode()
    assert text not in str(list(ApiToken.objects.values()))


def test_a_token_form_without_scopes_is_marked_and_makes_nothing(ana, signed_in):
    page = signed_in(ana).post("/account/tokens/", {"name": "x", "days": "9999"})
    assert page.status_code == 422
    assert "less than or equal to 365" in page.content.decode()
    assert not ApiToken.objects.exists()


def test_nobody_revokes_anothers_token(ana, emil, signed_in):
    from apps.accounts.services import token_create

    token, _ = token_create(user=ana, name="x", scopes=["read"], days=1)
    assert signed_in(emil).post(f"/account/tokens/{token.pk}/revoke/").status_code == 404
    assert signed_in(ana).post(f"/account/tokens/{token.pk}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_an_email_somebody_else_has_is_refused_and_what_was_typed_is_kept(ana, emil, signed_in):
    page = signed_in(ana).post(
        "/account/profile/", {"display_name": "Ana B.", "email": "emil@example.org"}
    )
    assert page.status_code == 422
    assert 'value="Ana B."' in page.content.decode()
    ana.refresh_from_db()
    assert ana.display_name == "Ana"
