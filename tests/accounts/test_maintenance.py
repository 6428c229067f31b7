"""A closed site says until when, lets its administrators in, and gives no run a slot."""

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.selectors import maintenance_now
from apps.accounts.services import maintenance_begin, maintenance_end
from apps.common.errors import DomainError
from apps.training.models import Run
from apps.training.services.queueing import runs_admit

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def looked_for_at_once(settings: Any) -> None:
    settings.MAINTENANCE_LOOK_SECONDS = 0


def test_people_are_told_until_when_and_administrators_are_let_in(
    project: Project, ana: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    ada.is_superuser = True
    ada.save()
    browser, admin = signed_in(ana), signed_in(ada)
    until = timezone.now() + timedelta(minutes=30)
    maintenance_begin(until=until, message="PostgreSQL is upgraded.")
    for path in ("/p/arguments/label/", "/api/v1/projects"):
        answer = browser.get(path)
        assert answer.status_code == 503
        assert 1700 < int(answer["Retry-After"]) <= 1800
        assert b"PostgreSQL is upgraded." in answer.content
    assert browser.get("/api/v1/projects").json()["code"] == "maintenance"
    assert b"until" in browser.get("/projects/").content
    assert browser.post("/account/theme/", {"theme": "dark"}).status_code == 503
    ana.refresh_from_db()
    assert ana.theme == "system"
    assert admin.get("/projects/").status_code == 200
    assert Client().get("/sign-in/").status_code == 200
    assert Client().get("/livez").status_code == 200
    assert maintenance_end()
    assert browser.get("/projects/").status_code == 200


def test_no_run_is_given_a_slot_and_says_why(project: Project, ana: User) -> None:
    from apps.training.selectors.queueing import why_it_waits

    run = Run.objects.create(
        project=project, kind="sft", name="waits", state=Run.State.QUEUED, created_by=ana
    )
    maintenance_begin(until=timezone.now() + timedelta(minutes=5))
    assert runs_admit() == 0
    assert "closed for maintenance" in why_it_waits(run)
    maintenance_end()
    assert "maintenance" not in why_it_waits(run)


def test_by_command_with_a_line_in_the_audit_log() -> None:
    def said(*words: str) -> str:
        out = StringIO()
        call_command("maintenance", *words, stdout=out)
        return out.getvalue()

    assert "open" in said()
    assert "closed until" in said("--minutes", "20")
    assert "closed until" in said("--minutes", "40")  # later than was said first
    assert maintenance_now() is not None
    assert "open again" in said("--off")
    assert "was open" in said("--off")
    actions = AuditEvent.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["site.closed", "site.closed", "site.opened"]
    with pytest.raises(CommandError, match="ahead"):
        said("--minutes", "0")
    with pytest.raises(DomainError):
        maintenance_begin(until=timezone.now())
