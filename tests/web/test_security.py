"""The content security policy, what templates may hold, and the deployment check."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

ROOT = Path(settings.BASE_DIR)
TEMPLATES = sorted((ROOT / "templates").rglob("*.*"))
STYLES = sorted((ROOT / "static").rglob("*.css"))
OURS = [path for path in (ROOT / "static").rglob("*.*") if "vendor" not in path.parts]
FORBIDDEN = {
    "an inline script": re.compile(r"<script(?![^>]*\bsrc=)[^>]*>", re.I),
    "an inline style element": re.compile(r"<style\b", re.I),
    "a style attribute": re.compile(r"[\s\"']style\s*=\s*[\"'{]", re.I),
    "an event handler attribute": re.compile(r"\son[a-z]+\s*=\s*[\"']", re.I),
    "an htmx inline handler": re.compile(r"\shx-on[:-]", re.I),
    "a javascript: address": re.compile(r"javascript:", re.I),
    "another host": re.compile(r"(?:src|href|action)=[\"'](?:https?:)?//", re.I),
    "unescaped output": re.compile(r"\|\s*safe\b|autoescape off"),
}
# Where the templates of others may say more, with the reason.
ALLOWED: dict[str, set[str]] = {}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_template_holds_nothing_the_policy_would_refuse(path):
    text = path.read_text()
    found = {what for what, pattern in FORBIDDEN.items() if pattern.search(text)}
    assert found <= ALLOWED.get(str(path.relative_to(ROOT)), set())


def test_stylesheets_and_scripts_load_nothing_from_elsewhere():
    for path in OURS:
        if path.suffix in {".css", ".js"}:
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, not fetched
            assert not re.search(r"https?://|@import|url\(\s*['\"]?//", text), path


def test_every_vendored_file_is_listed_with_its_licence():
    vendor = ROOT / "static/vendor"
    listed = re.findall(r"`([^`]+)`", (vendor / "README.md").read_text())
    for path in vendor.rglob("*.*"):
        if path.name != "README.md" and "LICENSE" not in path.name:
            assert any(path.relative_to(vendor).match(pattern) for pattern in listed), path


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address",
    ["/", "/sign-in/", "/account/", "/nothing-here/", "/api/v1/me", "/livez", "/static/js/app.js"],
)
def test_every_answer_carries_the_policy_and_the_other_headers(address, emil, signed_in, client):
    for browser in (client, signed_in(emil)):
        answer = browser.get(address)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        for directive in ("object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert directive in policy
        answer.getvalue()  # a static file is open until it is read
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/sign-in/", "/account/", "/api/v1/me", "/static/js/app.js"])
def test_no_other_site_may_read_an_answer(address, emil, signed_in):
    answer = signed_in(emil).get(address, headers={"origin": "https://elsewhere.example.org"})
    answer.getvalue()
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


COOKIES = """
import django
django.setup()
from django.conf import settings
from django.utils.module_loading import import_string
from apps.accounts import reader, throttle
print(settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, throttle.DEVICE_COOKIE,
      reader.ZONE_COOKIE, import_string(settings.MESSAGE_STORAGE).cookie_name)
print(settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE,
      settings.SESSION_COOKIE_HTTPONLY, settings.CSRF_COOKIE_HTTPONLY,
      settings.SESSION_COOKIE_SAMESITE, settings.CSRF_COOKIE_SAMESITE,
      settings.SESSION_COOKIE_DOMAIN, settings.CSRF_COOKIE_DOMAIN)
"""


@pytest.mark.parametrize(("https", "prefix"), [("1", "__Host-concord_"), ("0", "concord_")])
def test_every_cookie_is_this_hosts_alone_where_there_is_https(https, prefix):
    done = subprocess.run(
        [sys.executable, "-c", COOKIES],
        cwd=ROOT,
        env=os.environ | {"HTTPS": https, "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names, flags = done.stdout.splitlines()
    assert all(name.startswith(prefix) for name in names.split())
    secure = str(https == "1")
    assert flags == f"{secure} {secure} True True Lax Lax None None"
    set_in = {p.name for p in ROOT.glob("apps/**/*.py") if ".set_cookie(" in p.read_text()}
    assert set_in == {"throttle.py"}, "a new cookie needs the prefix too"


@pytest.mark.django_db
def test_a_page_nobody_knows_says_so_in_our_words(emil, signed_in):
    page = signed_in(emil).get("/nothing-here/")
    assert page.status_code == 404
    assert page.templates[0].name == "404.html"


@pytest.mark.django_db
def test_a_page_of_another_role_says_whose_turn_it_is(ana, signed_in):
    page = signed_in(ana).get("/p/arguments/people/")
    assert page.status_code == 403
    assert page.templates[0].name == "403.html"
    assert "Arguments is Annotator" in page.content.decode()


@pytest.mark.django_db
def test_an_error_of_ours_shows_a_page_without_its_inside(ana, monkeypatch):
    from django.test import Client

    from apps.accounts.views import account

    def broken(*_: object, **__: object):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(account, "tokens_of", broken)
    client = Client(raise_request_exception=False)
    client.force_login(ana)
    page = client.get("/account/")
    assert page.status_code == 500
    assert page.templates[0].name == "500.html"
    assert "secret" not in page.content.decode()


def test_the_deployment_check_is_clean_with_production_settings(tmp_path):
    # The browser tests, collected in the same process, set a variable that deployments must not.
    inherited = {k: v for k, v in os.environ.items() if k != "DJANGO_ALLOW_ASYNC_UNSAFE"}
    environment = inherited | {
        "PRODUCTION": "1",
        "SECRET_KEY": "k" * 30 + "0123456789abcdefghijklmnopqrstuvwxyz",
        "ALLOWED_HOSTS": "concord.example.org",
        "CACHE_URL": "redis://cache.example.org:6379/0",
        "VAR_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    environment.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)  # the browser tests set it
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", "check", "--deploy", "--fail-level", "INFO"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY must be set"),
        ({"SECRET_KEY": "k" * 60, "CACHE_URL": ""}, "CACHE_URL"),  # then it is the broker
    ],
)
def test_production_refuses_to_start_without_what_keeps_it_safe(given, named):
    done = subprocess.run(
        [sys.executable, "-c", "import config.settings"],
        cwd=ROOT,
        env=os.environ | {"PRODUCTION": "1"} | given,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert named in done.stderr


# The frame every page stands in.


@pytest.mark.django_db
def test_the_sign_in_page_is_served_to_anyone(ana, client: Client):
    page = client.get("/sign-in/")
    assert page.status_code == 200
    assert "htmx-2.min.js" in page.content.decode()


def test_home_lists_nothing_but_what_to_do_for_a_person_without_a_project(db, signed_in):
    from tests.people import person_make

    page = signed_in(person_make("Nils")).get("/", follow=True)
    assert page.redirect_chain == [("/projects/", 302)]
    assert not page.context["rows"]
