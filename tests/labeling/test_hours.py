"""Who worked how much, for pay, and the code that says that somebody has done their share."""

import csv
import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.common.errors import DomainError
from apps.labeling import services
from apps.labeling.models import Comparison, ImportJob, LabelingSettings, Slot, Vote
from apps.labeling.screens.imports import due_of
from apps.labeling.selectors.hours import completion_check, completion_code, completion_of, hours_of
from tests.labeling.pairs import leased, pairs_make, vote
from tests.people import person_make

SignedIn = Callable[[User], Client]
OCTOBER, NOVEMBER = date(2026, 10, 1), date(2026, 11, 1)
HOUR = 3_600_000


def worked(project: Project, person: User, day: datetime, ms: int | None) -> Vote:
    """A vote of that day that took so long."""
    lease = leased(project, person)
    # they held it for long enough: the time a page measures is bounded by that
    Slot.objects.filter(pk=lease.slot).update(leased_at=lease.leased_at - timedelta(hours=2))
    made = services.vote_cast(
        slot=lease.slot,
        annotator=person,
        idempotency_key=lease.key,
        choice="a",
        cast_at=day,
        active_ms=ms,
    )
    return made.vote


@pytest.fixture
def months(project: Project, ana: User, ben: User) -> None:
    pairs_make(project, 6, vote_price=0.25)
    worked(project, ana, datetime(2026, 10, 31, 23, 59, tzinfo=UTC), HOUR)
    worked(project, ana, datetime(2026, 11, 1, tzinfo=UTC), HOUR // 2)
    worked(project, ana, datetime(2026, 11, 2, tzinfo=UTC), None)
    worked(project, ben, datetime(2026, 11, 2, tzinfo=UTC), HOUR // 4)
    services.votes_import(
        project=project, rows=[{"comparison": "pair-1", "annotator": "w", "choice": "a"}]
    )


@pytest.mark.usefixtures("months")
def test_months_end_at_midnight_utc_and_imported_votes_are_no_work(
    project: Project, ana: User, ben: User
) -> None:
    found = [
        (row.month, row.user, row.votes, row.hours, row.untimed, row.amount)
        for row in hours_of(project=project)
    ]
    assert sorted(found) == sorted(
        [
            (NOVEMBER, ana.pk, 2, 0.5, 1, 0.5),
            (NOVEMBER, ben.pk, 1, 0.25, 0, 0.25),
            (OCTOBER, ana.pk, 1, 1.0, 0, 0.25),
        ]
    )
    assert [row.month for row in hours_of(project=project, user=ana)] == [NOVEMBER, OCTOBER]
    assert [row.user for row in hours_of(project=project, month=OCTOBER)] == [ana.pk]


@pytest.mark.usefixtures("months")
def test_a_change_adds_time_and_no_vote_and_a_discarded_vote_is_counted_as_such(
    project: Project, ana: User, ben: User, ada: User
) -> None:
    first = Vote.objects.get(annotator=ben)
    services.vote_revise(vote=first.pk, annotator=ben, idempotency_key="again", choice="b")
    services.votes_discard(project=project, annotator=ben, by=ada, reason="Clicks.")
    (row,) = [r for r in hours_of(project=project, user=ben) if r.votes]
    assert (row.votes, row.hours) == (1, 0.25)
    assert sum(r.discarded for r in hours_of(project=project, user=ben)) == 1


@pytest.mark.usefixtures("months")
def test_an_admin_gets_everybody_as_csv_and_a_person_their_own(
    signed_in: SignedIn, project: Project, ana: User, ada: User, olga: User
) -> None:
    def rows(person: User, address: str = "/p/arguments/hours.csv") -> list[dict[str, Any]]:
        answer = signed_in(person).get(address)
        text = b"".join(answer.streaming_content).decode()
        return list(csv.DictReader(io.StringIO(text)))

    assert len(rows(ada)) == 3
    assert {row["username"] for row in rows(ana)} == {ana.username}
    (october,) = rows(ada, "/p/arguments/hours.csv?month=2026-10")
    assert (october["month"], october["hours"], october["currency"]) == ("2026-10", "1.0", "EUR")
    page = signed_in(ana).get("/p/arguments/hours/?month=2026-11")
    assert [row.user for row in page.context["page"]] == [ana.pk]
    by_api = signed_in(ana).get("/api/v1/projects/arguments/hours?month=2026-11").json()
    assert [(row["votes"], row["hours"]) for row in by_api] == [(2, 0.5)]
    assert signed_in(olga).get("/p/arguments/hours/").status_code == 404


def test_the_code_is_earned_by_a_share_or_by_all_there_is(
    signed_in: SignedIn, project: Project, ana: User, ben: User
) -> None:
    pairs_make(project, 3)
    vote(project, ana)
    assert completion_of(project=project, user=ana).code == ""  # the project has none
    LabelingSettings.objects.update(completion_votes=2)
    screen = signed_in(ana).get("/p/arguments/label/").content.decode()
    assert "data-completion" not in screen
    vote(project, ana)
    own = completion_of(project=project, user=ana).code
    assert own == completion_code(project=project, user=ana)
    assert own != completion_code(project=project, user=ben)
    assert own in signed_in(ana).get("/p/arguments/label/").content.decode()
    LabelingSettings.objects.update(completion_votes=50)
    assert completion_of(project=project, user=ana).code == ""
    vote(project, ana)
    assert own in signed_in(ana).get("/p/arguments/label/").content.decode()  # nothing is left


def test_an_admin_checks_a_code_as_people_type_it(
    signed_in: SignedIn, project: Project, ana: User, ada: User
) -> None:
    pairs_make(project, 2, completion_votes=1)
    vote(project, ana)
    own = completion_code(project=project, user=ana)
    found = completion_check(project=project, code=f" {own.lower().replace('-', ' ')} ")
    assert found is not None
    assert (found.user, found.answers, found.discarded) == (ana, 1, 0)
    zoe = person_make("Zoe", project, Role.ANNOTATOR)  # has answered nothing
    for wrong in ("", own[:-1], completion_code(project=project, user=zoe), "é"):
        assert completion_check(project=project, code=wrong) is None
    client = signed_in(ada)
    assert client.get(f"/p/arguments/hours/?code={own}").context["completed"].user == ana
    assert client.get("/p/arguments/hours/?code=none").context["completed"] is None
    assert client.get(f"/api/v1/projects/arguments/completion/{own}").json()["user"] == ana.pk
    mine = signed_in(ana)
    assert mine.get(f"/p/arguments/hours/?code={own}").context["completed"] is None
    assert mine.get("/api/v1/projects/arguments/completion").json()["code"] == own


# Days by which work is to be done.


def test_a_project_and_an_import_are_due_on_days_that_annotators_see(
    signed_in: SignedIn, project: Project, ana: User, ada: User
) -> None:
    pairs_make(project, 2)
    job = ImportJob.objects.create(
        project=project,
        number=1,
        file_name="rows.jsonl",
        file_size=1,
        stage="import",
        state="done",
    )
    later = date(2030, 1, 31)
    services.labeling_settings_update(project=project, by=ada, due_on="2030-01-31")
    assert due_of(project=project) == later
    assert "31 January" in signed_in(ana).get("/p/arguments/label/").content.decode()
    client = signed_in(ada)
    client.post(f"/p/arguments/imports/{job.pk}/do/", {"action": "due", "due_on": "2020-01-31"})
    assert due_of(project=project) == later  # no pair of it is open
    assert "data-late" not in client.get("/p/arguments/imports/").content.decode()
    Comparison.objects.filter(external_id="pair-1").update(batch=f"import {job.pk}")
    assert due_of(project=project) == date(2020, 1, 31)
    assert "data-late" in client.get("/p/arguments/imports/").content.decode()
    assert 'data-due="2020-01-31"' in signed_in(ana).get("/my-work/").content.decode()
    api, path = signed_in(ada), f"/api/v1/projects/arguments/imports/{job.pk}/due"
    done = api.post(path, {"due_on": None}, content_type="application/json")
    assert done.json()["due_on"] is None
    assert AuditEvent.objects.filter(action="import.due_set").count() == 2
    with pytest.raises(DomainError) as caught:
        services.labeling_settings_update(project=project, by=ada, due_on="tomorrow")
    assert caught.value.field == "due_on"
    services.labeling_settings_update(project=project, by=ada, due_on="")
    assert due_of(project=project) is None
