"""Nobody labels before they agreed to what their answers are used for, where a project says it."""

from typing import Any

import pytest

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import Conflict
from apps.labeling import selectors, services
from apps.labeling.models import Annotator
from apps.labeling.services import consent_give, labeling_settings_update
from tests.labeling.pairs import leased, pairs_make, vote
from tests.people import person_make

TEXT = "Your answers train a model, and are published without your name."


def asked(project: Project, user: User) -> str:
    got = services.slot_lease_next(project=project, annotator=user)
    assert isinstance(got, services.NothingReason)
    return got.code


def test_nobody_gets_a_pair_before_they_agreed_and_again_when_the_text_changes(
    project: Project, ada: User, ana: User
) -> None:
    pairs_make(project, 3)
    vote(project, ana)  # nobody is asked while there is no text
    labeling_settings_update(project=project, by=ada, data_statement=TEXT)
    assert asked(project, ana) == "consent"
    with pytest.raises(Conflict, match="has changed"):
        consent_give(project=project, user=ana, version=7)
    consent_give(project=project, user=ana, version=1)
    leased(project, ana)
    row = Annotator.objects.get(project=project, user=ana)
    assert (row.consent_version, row.consented_at is not None) == (1, True)
    event = AuditEvent.objects.get(action="consent.given")
    assert (event.actor, event.about, event.details) == (ana, ana, {"version": 1})
    labeling_settings_update(project=project, by=ada, data_statement=TEXT + " More.")
    zoe = person_make("Zoe", project, "annotator")
    assert asked(project, zoe) == "consent"
    labeling_settings_update(project=project, by=ada, data_statement="")
    leased(project, zoe)


def test_the_page_shows_the_text_and_takes_the_answer(
    project: Project, ada: User, ana: User, signed_in: Any
) -> None:
    pairs_make(project, 1)
    labeling_settings_update(project=project, by=ada, data_statement=TEXT)
    client = signed_in(ana)
    page = client.get("/p/arguments/label/").content.decode()
    assert TEXT in page
    assert "I agree" in page
    client.post("/p/arguments/consent/", {"version": "1"})
    assert 'data-nothing="consent"' not in client.get("/p/arguments/label/").content.decode()


def test_what_the_card_says_of_the_pool(project: Project, ada: User, ana: User) -> None:
    labeling_settings_update(
        project=project, by=ada, data_statement=TEXT, remarks_licence="CC-BY-4.0"
    )
    consent_give(project=project, user=ana, version=1)
    rita = person_make("Rita", project, "reviewer")
    pool = selectors.pool_of(project=project, voters={ana.pk, rita.pk})
    assert pool == {
        "people": 2,
        "imported": 0,
        "agreed": 1,
        "agreed_before": 0,
        "statement": TEXT,
        "statement_version": 1,
        "remarks_licence": "CC-BY-4.0",
    }
