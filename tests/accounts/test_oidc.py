"""Signing in by a provider of OpenID Connect that runs beside the tests; roles by its claims."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from django.contrib.messages.storage.fallback import FallbackStorage
from django.test import Client, RequestFactory

from apps.accounts import oidc, services
from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import claims, invitation_create, membership_set
from apps.common.environment import BadEnvironment, ClaimRule, claim_rules
from tests.accounts.second_factors import app_make, code_of, is_signed_in, sign_in, stale
from tests.people import PASSWORD, person_make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh_sign_in_counts")]
START_SECONDS = 60
LOGIN = "/sign-in/with/oidc/"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """The address of the package `oidc-provider-mock`, a server of its own on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, **quiet)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert process.poll() is None, "the provider ended at once"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def provider(issuer: str, settings: Any) -> str:
    """The same, and the settings of a site that uses it."""
    person_make("Sam")  # the site is set up
    settings.OIDC_ISSUER = issuer
    settings.OIDC_CLIENT_ID = "concord"
    settings.OIDC_CLIENT_SECRET = "a-secret"
    settings.OIDC_NAME = "Example login"
    settings.OIDC_ROLES = [
        ClaimRule("groups", "annotators", "arguments", "annotator"),
        ClaimRule("groups", "leads", "arguments", "admin"),
        ClaimRule("groups", "makers", "", "create-projects"),
        ClaimRule("realm.roles", "root", "", "site-admin"),
    ]
    return issuer


def come(client: Client, provider: str, sub: str, *, where: str = LOGIN, **said: Any) -> Any:
    """The whole way: our link, the provider's page, and back with a code. `said`: its claims."""
    assert requests.put(f"{provider}/users/{sub}", json=said, timeout=9).status_code == 204
    asked = client.get(where)
    assert asked.url.startswith(f"{provider}/oauth2/authorize?"), asked.url
    given = requests.post(asked.url, data={"sub": sub}, allow_redirects=False, timeout=9)
    back = urlsplit(given.headers["Location"])
    return client.get(f"{back.path}?{back.query}")


def roles_of(user: User) -> dict[str, str]:
    return dict(user.memberships.values_list("project__slug", "role"))


def test_somebody_whose_group_has_a_role_comes_for_the_first_time(
    project: Project, provider: str, client: Client
):
    page = come(
        client,
        provider,
        "s-1",
        preferred_username="Mia Moore",
        name="Mia",
        email="Mia@Example.org",
        email_verified=True,
        groups=["annotators", "others"],
    )
    assert page.url == "/"
    mia = User.objects.get(username="Mia-Moore")
    assert (mia.display_name, mia.email, mia.has_usable_password()) == (
        "Mia",
        "mia@example.org",
        False,
    )
    assert int(client.session["_auth_user_id"]) == mia.pk
    assert roles_of(mia) == {"arguments": "annotator"}
    assert not mia.is_superuser
    assert not mia.may_create_projects
    assert AuditEvent.objects.get(action="user.signed_in").details["by"] == "oidc"
    assert AuditEvent.objects.get(action="membership.added").details["by"] == "claim"
    assert client.get("/account/sessions/").context["rows"][0]["is_here"]
    # Known by `sub`: another name, the same person; the same name, another person.
    again = Client()
    come(again, provider, "s-1", preferred_username="mia-new", groups=["annotators"])
    assert int(again.session["_auth_user_id"]) == mia.pk
    other = Client()
    come(other, provider, "s-2", preferred_username="Mia Moore", groups=["annotators"])
    assert User.objects.get(pk=other.session["_auth_user_id"]).username == "Mia-Moore-2"


def test_the_way_there_carries_pkce_and_a_state_that_is_checked(
    project: Project, provider: str, client: Client
):
    asked = parse_qs(urlsplit(client.get(LOGIN).url).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(asked["code_challenge"][0]) == 43
    assert asked["redirect_uri"] == ["http://testserver/sign-in/with/oidc/callback/"]
    page = client.get(f"{LOGIN}callback/?code=x&state=made-up")
    assert page.url == "/sign-in/"
    assert "did not work" in client.get("/sign-in/").content.decode()
    state = asked["state"][0]
    assert client.get(f"{LOGIN}callback/?code=made-up&state={state}").url == "/sign-in/"
    assert not is_signed_in(client)


def test_roles_follow_the_claims_at_every_sign_in_and_those_by_hand_stay(
    ada: User, project: Project, provider: str, client: Client
):
    other = Project.objects.create(slug="by-hand", name="By hand")
    come(client, provider, "s-3", preferred_username="noa", groups=["leads", "annotators"])
    User.objects.filter(username="sam").update(is_superuser=True)
    noa = User.objects.get(username="noa")
    assert roles_of(noa) == {"arguments": "admin"}  # the highest that fits
    membership_set(project=other, user=noa, role="reviewer", by=ada)
    come(Client(), provider, "s-3", groups=["annotators", "makers"], realm={"roles": ["root"]})
    noa.refresh_from_db()
    assert roles_of(noa) == {"arguments": "annotator", "by-hand": "reviewer"}
    assert noa.may_create_projects
    assert noa.is_superuser
    come(Client(), provider, "s-3", groups=[])
    noa.refresh_from_db()
    assert roles_of(noa) == {"by-hand": "reviewer"}
    assert (noa.may_create_projects, noa.is_superuser, noa.is_staff) == (False, False, False)
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {"membership.added", "membership.changed", "membership.removed"} <= actions
    assert AuditEvent.objects.filter(action="user.rights_changed").count() == 2


def test_rights_and_roles_given_by_hand_are_not_the_claims_to_take(
    ada: User, project: Project, provider: str
):
    noa = person_make("Noa", project, Role.REVIEWER)
    services.user_rights_set(user=noa, site_admin=True, creates=True, by=ada)
    for said in ({"groups": ["leads", "makers"], "realm": {"roles": ["root"]}}, {}):
        services.claims_apply(user=noa, claims=said)
        noa.refresh_from_db()
        assert roles_of(noa) == {"arguments": "reviewer"}
        assert noa.is_superuser
        assert noa.may_create_projects


def test_a_role_of_a_claim_that_an_admin_changes_is_by_hand_from_then_on(
    ada: User, project: Project, provider: str
):
    noa = person_make("Noa")
    services.claims_apply(user=noa, claims={"groups": ["annotators"]})
    assert Membership.objects.get(user=noa).by_claim
    membership_set(project=project, user=noa, role="engineer", by=ada)
    services.claims_apply(user=noa, claims={})
    assert roles_of(noa) == {"arguments": "engineer"}


def test_the_last_admin_stays_and_a_project_that_is_not_there_is_passed_over(
    project: Project, provider: str, settings: Any
):
    settings.OIDC_ROLES = [*settings.OIDC_ROLES, ClaimRule("groups", "leads", "nowhere", "admin")]
    noa = person_make("Noa")
    said = {"groups": ["leads", "makers"], "realm": {"roles": ["root"]}}
    services.claims_apply(user=noa, claims=said)
    services.claims_apply(user=noa, claims={"groups": []})
    assert roles_of(noa) == {"arguments": "admin"}
    assert (noa.is_superuser, noa.may_create_projects) == (True, False)
    person_make("Max")
    User.objects.filter(username="max").update(is_superuser=True)
    services.claims_apply(user=noa, claims={"groups": []})
    assert not noa.is_superuser


def test_the_first_of_a_site_comes_by_the_set_up_page_or_to_administer_it(
    project: Project, provider: str, client: Client
):
    User.objects.all().delete()
    come(client, provider, "s-21", groups=["annotators"])
    assert not User.objects.exists()
    come(client, provider, "s-21", groups=["annotators"], realm={"roles": ["root"]})
    assert User.objects.get().is_superuser


# --- who does not come in


@pytest.mark.parametrize("said", [{}, {"groups": ["strangers"]}, {"groups": "annotators-not"}])
def test_who_has_neither_account_nor_role_is_refused(
    project: Project, provider: str, client: Client, said: dict[str, Any]
):
    page = come(client, provider, "s-4", preferred_username="eve", **said)
    assert page.url == "/sign-in/"
    assert "Ask an admin for an invitation" in client.get(page.url).content.decode()
    assert not User.objects.filter(username="eve").exists()
    event = AuditEvent.objects.get(action="user.sign_in_refused")
    assert event.details["reason"] == "no account"


def test_a_deactivated_person_is_refused_and_gets_no_role(
    project: Project, provider: str, client: Client
):
    come(Client(), provider, "s-5", preferred_username="kim", groups=["annotators"])
    User.objects.filter(username="kim").update(is_active=False)
    come(client, provider, "s-5", groups=["leads"])
    assert not is_signed_in(client)
    assert roles_of(User.objects.get(username="kim")) == {"arguments": "annotator"}
    assert AuditEvent.objects.filter(action="user.sign_in_refused").exists()


def test_an_imported_annotator_never_comes_in(
    project: Project, provider: str, client: Client, settings: Any
):
    settings.OIDC_LINK_BY_EMAIL = True
    a17 = User.objects.create(
        username="a17", email="a17@example.org", password="!", is_active=False, is_imported=True
    )
    said = {"email": "a17@example.org", "email_verified": True, "preferred_username": "a17"}
    come(client, provider, "s-6", **said)
    assert not is_signed_in(client)
    SocialAccount.objects.create(user=a17, provider="oidc", uid="s-6")
    come(client, provider, "s-6", **said, groups=["annotators"])
    assert not is_signed_in(client)


def test_who_says_no_at_the_provider_is_back_at_the_sign_in_page(provider: str, client: Client):
    asked = client.get(LOGIN)
    given = requests.post(asked.url, data={"action": "deny"}, allow_redirects=False, timeout=9)
    back = urlsplit(given.headers["Location"])
    state = back.query if "state=" in back.query else parse_qs(urlsplit(asked.url).query)["state"]
    query = back.query if isinstance(state, str) else f"{back.query}&state={state[0]}"
    assert client.get(f"{back.path}?{query}").url == "/sign-in/"


def test_a_provider_that_does_not_answer_is_said(provider: str, client: Client, settings: Any):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        settings.OIDC_ISSUER = f"http://127.0.0.1:{probe.getsockname()[1]}"
    assert client.get(LOGIN).url == "/sign-in/"
    assert "does not answer now" in client.get("/sign-in/").content.decode()


def test_without_a_provider_there_is_no_such_page_whatever_the_database_says(
    ana: User, client: Client
):
    SocialApp.objects.create(
        provider="openid_connect",
        provider_id="oidc",
        name="x",
        client_id="x",
        settings={"server_url": "http://127.0.0.1:9/"},
    )
    assert client.get(LOGIN).status_code == 404
    assert "with/oidc" not in client.get("/sign-in/").content.decode()


def login_of(**said: dict[str, Any]) -> SocialLogin:
    return SocialLogin(user=User(), account=SocialAccount(uid="1", extra_data=said))


def test_a_user_info_answer_about_somebody_else_is_refused(provider: str):
    request = RequestFactory().get("/")
    request.session, request.user = {}, User()
    request._messages = FallbackStorage(request)
    sociallogin = login_of(id_token={"sub": "1"}, userinfo={"sub": "2", "groups": ["leads"]})
    sociallogin.state = {"process": "login"}
    with pytest.raises(ImmediateHttpResponse):
        oidc.ProviderAdapter(request).pre_social_login(request, sociallogin)
    assert AuditEvent.objects.get().details["reason"] == "subjects differ"


# --- accounts that there are


@pytest.mark.parametrize("verified", [False, "true", None, 1])
def test_an_address_opens_an_account_only_where_it_is_verified(
    ana: User, provider: str, client: Client, settings: Any, verified: Any
):
    settings.OIDC_LINK_BY_EMAIL = True
    come(client, provider, "s-7", email=ana.email, email_verified=verified)
    assert not is_signed_in(client)
    assert not SocialAccount.objects.exists()


def test_nor_where_the_site_does_not_want_it(ana: User, provider: str, client: Client):
    come(client, provider, "s-8", email=ana.email, email_verified=True)
    assert not is_signed_in(client)


def test_who_was_made_by_the_directory_comes_in_by_the_address_it_gave(
    ana: User, provider: str, client: Client
):
    User.objects.filter(pk=ana.pk).update(scim_external_id="00u1")
    come(client, provider, "s-scim", email=ana.email, email_verified=True)
    assert int(client.session["_auth_user_id"]) == ana.pk


def test_who_comes_by_their_address_takes_the_account_over_alone(
    ana: User, provider: str, client: Client, settings: Any
):
    """Whoever typed that address into their account may not be who has it."""
    settings.OIDC_LINK_BY_EMAIL = True
    before = Client()
    sign_in(before, "ana")
    services.token_create(user=ana, name="old", scopes=["read"], days=9)
    app_make(ana)
    SocialAccount.objects.create(user=ana, provider="oidc", uid="somebody else's")
    come(client, provider, "s-9", email="ANA@example.org", email_verified=True)
    assert [one.uid for one in SocialAccount.objects.filter(user=ana)] == ["s-9"]
    assert AuditEvent.objects.filter(action="second_factor.removed", about=ana).count() == 1
    assert int(client.session["_auth_user_id"]) == ana.pk
    ana.refresh_from_db()
    assert not ana.has_usable_password()
    assert not ana.api_tokens.filter(revoked_at=None).exists()
    assert before.get("/account/").status_code == 302
    assert roles_of(ana) == {"arguments": "annotator"}  # by hand: it stays
    assert AuditEvent.objects.filter(action="user.provider_connected").exists()


def test_an_administrator_of_the_site_is_not_found_by_address(
    ada: User, provider: str, client: Client, settings: Any
):
    settings.OIDC_LINK_BY_EMAIL = True
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    come(client, provider, "s-10", email=ada.email, email_verified=True)
    assert not is_signed_in(client)


def test_ana_connects_her_account_herself(
    ana: User, provider: str, signed_in: Callable[[User], Client]
):
    client = signed_in(ana)
    assert "Connect with Example login" in client.get("/account/").content.decode()
    there = client.post("/account/provider/")
    come(client, provider, "s-11", where=there.url, email="other@example.org")
    assert SocialAccount.objects.get(uid="s-11").user == ana
    new = Client()
    come(new, provider, "s-11")
    assert int(new.session["_auth_user_id"]) == ana.pk
    # Nobody else can connect the same, and nobody is connected by a link they were sent.
    rita = person_make("Rita")
    hers = signed_in(rita)
    come(hers, provider, "s-11", where=hers.post("/account/provider/").url)
    come(hers, provider, "s-12", where=f"{LOGIN}?process=connect")
    assert not SocialAccount.objects.filter(user=rita).exists()


def test_who_has_another_way_in_disconnects_and_who_has_none_stays_connected(
    ana: User, provider: str, signed_in: Callable[[User], Client], settings: Any
):
    client = signed_in(ana)
    assert client.post("/account/provider/disconnect/").status_code == 404, "not connected"
    SocialAccount.objects.create(user=ana, provider="oidc", uid="s-20")
    password, ana.password = ana.password, "!"
    ana.save()
    said = signed_in(ana).post("/account/provider/disconnect/", follow=True).content.decode()
    assert "set a password or a passkey first" in said
    ana.password = password
    ana.save()
    settings.OIDC_ONLY = True
    client.post("/account/provider/disconnect/")
    assert SocialAccount.objects.filter(user=ana).exists()
    settings.OIDC_ONLY = False
    assert "Disconnect" in client.get("/account/").content.decode()
    client.post("/account/provider/disconnect/")
    assert not SocialAccount.objects.filter(user=ana).exists()
    assert AuditEvent.objects.filter(action="user.provider_disconnected", about=ana).exists()
    come(new := Client(), provider, "s-20")
    assert not is_signed_in(new)


def test_connecting_needs_a_sign_in_of_just_now(
    ana: User, provider: str, signed_in: Callable[[User], Client]
):
    client = signed_in(ana)
    stale(client)
    assert client.post("/account/provider/").url.startswith("/account/again/")


def test_the_second_factor_of_this_site_is_asked_after_the_provider_too(
    project: Project, provider: str, client: Client
):
    come(Client(), provider, "s-13", preferred_username="lea", groups=["annotators"])
    app_make(User.objects.get(username="lea"))
    page = come(client, provider, "s-13", groups=["annotators"])
    assert page.url == "/sign-in/second-factor/"
    assert not is_signed_in(client)
    client.post(page.url, {"code": code_of()})
    assert is_signed_in(client)


@pytest.mark.parametrize(("amr", "status"), [(["pwd", "mfa"], 200), (["pwd"], 302), ("mfa", 302)])
def test_a_second_factor_asked_by_the_provider_counts_where_a_role_needs_one(
    project: Project, provider: str, client: Client, settings: Any, amr: Any, status: int
):
    settings.REQUIRE_SECOND_FACTOR = frozenset({"annotator"})
    come(client, provider, "s-14", groups=["annotators"], amr=amr)
    assert is_signed_in(client)
    assert client.get("/projects/").status_code == status


# --- signing in again


def test_signing_in_again_at_the_provider_confirms_and_comes_back(
    project: Project, provider: str, client: Client
):
    come(client, provider, "s-15", groups=["leads"])
    stale(client)
    log = "/p/arguments/audit-log.csv"
    page = client.get(client.get(log).url)
    assert "Confirm with Example login" in page.content.decode()
    there = page.context["provider_url"]
    asked = parse_qs(urlsplit(client.get(there).url).query)
    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    session = client.session.session_key
    assert come(client, provider, "s-15", where=there, groups=["leads"]).url == log
    assert client.session.session_key == session
    assert client.get(log).status_code == 200


def test_a_browser_that_was_signed_in_there_for_long_is_not_fresh_by_coming_in(
    project: Project, provider: str, client: Client
):
    said = {"groups": ["leads"], "auth_time": int(time.time()) - 3600}
    come(client, provider, "s-22", **said)
    assert is_signed_in(client)
    page = client.get("/p/arguments/audit-log.csv")
    assert page.url.startswith("/account/again/")


def test_what_the_provider_is_asked_is_not_chosen_by_the_address(provider: str, client: Client):
    wrong = "auth_params=prompt%3Dnone%26max_age%3D99999&scope=everything"
    asked = parse_qs(urlsplit(client.get(f"{LOGIN}?process=redirect&{wrong}").url).query)
    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    assert set(asked["scope"][0].split()) == {"openid", "profile", "email"}
    plain = parse_qs(urlsplit(client.get(f"{LOGIN}?{wrong}").url).query)
    assert "prompt" not in plain


@pytest.mark.parametrize("what", ["somebody else", "long ago"])
def test_neither_somebody_else_nor_an_old_sign_in_confirms(
    project: Project, provider: str, client: Client, what: str
):
    come(client, provider, "s-16", groups=["leads"])
    come(Client(), provider, "s-17", groups=["annotators"])
    stale(client)
    page = client.get(client.get("/p/arguments/audit-log.csv").url)
    sub = "s-17" if what == "somebody else" else "s-16"
    said = {"auth_time": int(time.time()) - 3600} if what == "long ago" else {}
    back = come(client, provider, sub, where=page.context["provider_url"], **said)
    assert back.url == "/account/again/"
    assert client.get("/p/arguments/audit-log.csv").status_code == 302
    assert User.objects.get(pk=client.session["_auth_user_id"]).memberships.exists()


# --- invitations, and a site without passwords


def test_an_invitation_is_accepted_by_the_provider(
    ada: User, project: Project, provider: str, client: Client
):
    _, token = invitation_create(project=project, role="reviewer", by=ada)
    path = f"/invitation/{token}/"
    page = client.get(path)
    assert "Join with Example login" in page.content.decode()
    back = come(client, provider, "s-18", where=page.context["provider_url"], name="Zoe")
    assert back.url == path
    assert client.post(path).status_code == 302
    assert roles_of(User.objects.get(display_name="Zoe")) == {"arguments": "reviewer"}
    late = Client()
    come(late, provider, "s-19", where=page.context["provider_url"])  # it is used
    assert not is_signed_in(late)


def test_passwords_and_passkeys_are_closed_but_to_site_administrators(
    ana: User, ada: User, project: Project, provider: str, settings: Any
):
    settings.OIDC_ONLY = True
    client = Client()
    assert sign_in(client, "ana").url == "/sign-in/"
    assert "Passwords open nothing here" in client.get("/sign-in/").content.decode()
    assert not is_signed_in(client)
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    sign_in(client, "ada")
    assert is_signed_in(client)
    come(Client(), provider, "s-20", groups=["annotators"])
    _, token = invitation_create(project=project, role="reviewer", by=ada)
    path = f"/invitation/{token}/"
    assert 'name="password"' not in Client().get(path).content.decode()
    typed = {"username": "zoe", "password": "a-long-pass-phrase"}
    assert "Sign in with Example login first" in Client().post(path, typed).content.decode()
    assert not User.objects.filter(username="zoe").exists()


def test_the_password_does_not_confirm_there_either(
    ana: User, provider: str, settings: Any, signed_in: Callable[[User], Client]
):
    settings.OIDC_ONLY = True
    client = signed_in(ana)
    stale(client)
    sent = {"how": "password", "password": PASSWORD}
    assert client.post("/account/again/", sent).status_code == 422


# --- the environment


def test_rules_of_the_environment_are_read_or_refused(monkeypatch: pytest.MonkeyPatch):
    rules = "groups:a, b=x-1/admin; realm.roles:cn=staff,dc=org=create-projects\n g:r=site-admin;"
    monkeypatch.setenv("OIDC_ROLES", rules)
    assert claim_rules("OIDC_ROLES") == [
        ClaimRule("groups", "a, b", "x-1", "admin"),
        ClaimRule("realm.roles", "cn=staff,dc=org", "", "create-projects"),
        ClaimRule("g", "r", "", "site-admin"),
    ]
    for wrong in ("groups", "groups:a", "groups:a=x/owner", "groups:a=admin", ":a=x/admin"):
        monkeypatch.setenv("OIDC_ROLES", wrong)
        with pytest.raises(BadEnvironment, match="OIDC_ROLES"):
            claim_rules("OIDC_ROLES")


def test_a_claim_is_a_text_a_list_or_lies_in_objects():
    rule = ClaimRule("a.b", "x", "p", "admin")
    fits = [{"a": {"b": "x"}}, {"a": {"b": ["y", "x"]}}, {"a.b": ["x"]}]
    misses: list[dict[str, Any]] = [{}, {"a": "x"}, {"a": {"b": {"x": 1}}}, {"a": {"b": ["xx", 1]}}]
    assert all(rule.value in claims._values(one, rule.claim) for one in fits)
    assert not any(rule.value in claims._values(one, rule.claim) for one in misses)
