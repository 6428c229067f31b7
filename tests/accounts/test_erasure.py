"""A person is given their data, and erased: from everywhere, for good, after a restore too."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.services import (
    audit_record,
    erasure_ask,
    membership_set,
    person_data,
    person_erase,
    replay_erasures,
    token_create,
    user_activate,
)
from apps.accounts.services.audit_chain import SETTLED, audit_seal, audit_verify
from apps.accounts.services.erasure import (
    FOLDER,
    KEPT,
    Identifiers,
    erasures_missing_write,
    texts_searched,
)
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comment, Comparison, Discard, Slot
from apps.labeling.services.comments import comment_add
from apps.labeling.services.discarding import discard_undo
from apps.snapshots.storage import artifact_store
from tests.accounts.second_factors import SECRET, app_make
from tests.database import as_superuser
from tests.labeling.pairs import pairs_make, vote
from tests.web.world import world_make

NAME, EMAIL, LOGIN = "Zoë Quillfeather", "zoe.q@quillfeather.example", "zoe.quill"


@pytest.fixture(autouse=True)
def _artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = tmp_path.as_uri()


def named(user: User) -> User:
    User.objects.filter(pk=user.pk).update(
        username=LOGIN, display_name=NAME, email=EMAIL, first_name="Zoë", last_name="Quillfeather"
    )
    user.refresh_from_db()
    return user


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_user("boss", password="x", is_superuser=True)


# --- nothing is left ------------------------------------------------------------------------------


def columns() -> list[tuple[str, str]]:
    """Every column of the database that may hold a text, by the database's own account."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select c.table_name, c.column_name from information_schema.columns c"
            " join information_schema.tables t using (table_schema, table_name)"
            " where c.table_schema = 'public' and t.table_type = 'BASE TABLE'"
            " and (c.data_type in ('text', 'character varying', 'jsonb')"
            " or c.udt_name in ('_text', '_varchar'))"
        )
        return cursor.fetchall()


def left(words: list[str]) -> list[str]:
    """Columns that hold one of the words."""
    found = []
    with connection.cursor() as cursor:
        for table, column in columns():
            cursor.execute(
                f'select 1 from "{table}" where "{column}"::text ilike any(%s) limit 1',
                [[f"%{word}%" for word in words]],
            )
            if cursor.fetchone():
                found.append(f"{table}.{column}")
    return found


def planted() -> int:
    """The name in every text of every row that takes it, past triggers."""
    n = 0
    with as_superuser(), connection.cursor() as cursor:
        for model, field in texts_searched():
            kind = field.db_type(connection) or ""
            value = f"asked {NAME} <{EMAIL}> aka @{LOGIN}"
            length = getattr(field, "max_length", None)
            if kind.endswith("[]"):
                value = "{" + LOGIN + "}"
            elif kind == "jsonb":
                value = json.dumps({"said": value, "by": LOGIN, NAME: [EMAIL]})
            elif length is not None and length < len(value):
                value = LOGIN if length >= len(LOGIN) else ""
            try:
                with transaction.atomic():
                    cursor.execute(
                        f'update "{model._meta.db_table}" set "{field.column}" = %s', [value]
                    )
                    n += cursor.rowcount
            except DatabaseError:  # unique or checked
                continue
    return n


def test_no_table_holds_a_name_or_an_address_of_somebody_erased(db: None, boss: User) -> None:
    world = world_make()
    person = named(world.ana)
    audit_record(
        action="user.signed_in", actor=person, subject=person, details={"address": "203.0.113.9"}
    )
    audit_record(action="test.done", actor=boss, subject=EMAIL, details={"reason": f"{NAME}!"})
    audit_seal(now=timezone.now() + 2 * SETTLED)
    assert planted() > 100
    assert len(left([EMAIL])) > 40
    person_erase(user=person, by=boss, votes="keep", remarks="remove")
    found = left([EMAIL, LOGIN, "Quillfeather", "203.0.113.9"])
    assert [one for one in found if one not in KEPT and one.partition(".")[0] not in KEPT] == []
    audit_seal(now=timezone.now() + 2 * SETTLED)
    assert [one for one in audit_verify().broken if one.what != "it is not what was sealed"] == []


def test_every_exception_names_a_table_or_column_that_there_is(db: None) -> None:
    searched = {f"{model._meta.db_table}.{field.column}" for model, field in texts_searched()}
    assert not searched & KEPT.keys()
    there = {table for table, _ in columns()} | {f"{t}.{c}" for t, c in columns()}
    assert {name for name in KEPT if name not in there} <= {
        "django_site",
        "labeling_searchdocument",  # no text, but lexemes
    }
    assert {"evaluation_verdict.by_name", "labeling_comment.text"} <= searched


def test_the_audit_log_verifies_after_an_erasure_and_says_erased(
    project: Project, ana: User, boss: User
) -> None:
    person = named(ana)
    event = audit_record(
        action="user.signed_in", actor=person, subject=person, details={"address": "203.0.113.9"}
    )
    other = audit_record(
        action="membership.paused", actor=boss, project=project, subject=boss,
        details={"reason": f"as {NAME} asked"},
    )  # fmt: skip
    refused = audit_record(action="user.sign_in_refused", actor=None, subject=EMAIL)
    audit_seal(now=timezone.now() + 2 * SETTLED)
    person_erase(user=person, by=boss, votes="keep", remarks="keep")
    event.refresh_from_db()
    other.refresh_from_db()
    assert event.details == {"address": None}
    assert other.details == {"reason": None}
    refused.refresh_from_db()
    assert refused.subject == ""
    assert event.salts.keys() == {"subject"}
    assert str(event.about) == "a person who was erased"
    found = audit_verify()
    assert found.broken == ()
    assert found.erased == 3


def test_short_names_are_replaced_only_where_they_mean_the_person(
    project: Project, ana: User, boss: User
) -> None:
    assert Identifiers.of(ana).short == ("Ana", "ana")
    digits = User(username="2026", display_name="Ana", email="ana@example.org")
    assert Identifiers.of(digits).short == ("2026", "Ana"), "a number may stand for anything"
    [pair] = pairs_make(project, 1)
    membership_set(project=project, user=boss, role=Role.ADMIN)
    comment = comment_add(comparison=pair, author=boss, text="@Ana: an analysis of Ana's banana.")
    person_erase(user=ana, by=boss, votes="keep", remarks="keep")
    comment.refresh_from_db()
    assert comment.text == f"erased person {ana.pk}: an analysis of Ana's banana."


# --- the account ----------------------------------------------------------------------------------


def test_who_is_erased_cannot_sign_in_or_be_let_in_again(
    project: Project, ana: User, boss: User, client: Client
) -> None:
    _, token = token_create(user=ana, name="mine", scopes=["read"], days=3)
    client.force_login(ana)
    key = client.session.session_key
    assert client.get("/account/").status_code == 200
    person_erase(user=ana, by=boss, votes="keep", remarks="remove")
    assert client.get("/account/").status_code == 302
    assert not client.session.exists(key)
    said = Client().get("/api/v1/me", headers={"authorization": f"Bearer {token}"})
    assert said.status_code == 401
    ana.refresh_from_db()
    assert (ana.username, ana.email, ana.display_name) == (f"erased-{ana.pk}", "", "")
    assert not ana.has_usable_password()
    assert not Membership.objects.filter(user=ana).exists()
    with pytest.raises(Conflict, match="were erased"):
        user_activate(user=ana, active=True, by=boss)
    with pytest.raises(Conflict, match="already"):
        person_erase(user=ana, by=boss, votes="keep", remarks="remove")


def test_not_oneself_not_the_last_admin_and_not_without_a_choice(
    project: Project, ada: User, ana: User, boss: User
) -> None:
    with pytest.raises(Conflict, match="Somebody else"):
        person_erase(user=boss, by=boss, votes="keep", remarks="remove")
    with pytest.raises(Conflict, match="last admin of"):
        person_erase(user=ada, by=boss, votes="keep", remarks="remove")
    with pytest.raises(DomainError, match="votes"):
        person_erase(user=ana, by=boss, votes="perhaps", remarks="remove")


# --- votes and remarks ----------------------------------------------------------------------------


def test_discarded_votes_decide_nothing_and_cannot_be_counted_again(
    project: Project, ana: User, boss: User
) -> None:
    [pair] = pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    vote(project, ana, "a")
    pair.refresh_from_db()
    assert pair.state == "decided"
    person_erase(user=ana, by=boss, votes="discard", remarks="remove")
    pair.refresh_from_db()
    assert (pair.state, pair.n_votes) == ("open", 0)
    [slot] = Slot.objects.filter(task=pair, answers__annotator=ana)
    assert slot.kind == Slot.Kind.DISCARD
    with pytest.raises(Conflict, match="erased"):
        discard_undo(project=project, discard=Discard.objects.get().pk, by=boss)


def test_kept_votes_go_on_counting_under_a_number(project: Project, ana: User, boss: User) -> None:
    [pair] = pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    vote(project, ana, "a")
    person_erase(user=ana, by=boss, votes="keep", remarks="remove")
    pair.refresh_from_db()
    assert (pair.state, pair.decision.winner) == ("decided", "a")


@pytest.mark.parametrize(("remarks", "text"), [("remove", "(removed)"), ("keep", "Odd pair.")])
def test_remarks_stay_or_go_by_choice(
    remarks: str, text: str, project: Project, rita: User, boss: User
) -> None:
    comment = comment_add(comparison=pairs_make(project, 1)[0], author=rita, text="Odd pair.")
    person_erase(user=rita, by=boss, votes="keep", remarks=remarks)
    comment.refresh_from_db()
    assert comment.text == text
    assert str(comment.author) == "a person who was erased"


# --- the list that outlives a backup --------------------------------------------------------------


def test_a_restored_person_is_erased_again_and_a_newer_one_with_their_number_is_not(
    project: Project, ana: User, boss: User, django_capture_on_commit_callbacks: Any
) -> None:
    before = {
        name: getattr(named(ana), name)
        for name in ("username", "email", "display_name", "is_active", "password")
    }
    with django_capture_on_commit_callbacks(execute=True):
        person_erase(user=ana, by=boss, votes="keep", remarks="remove")
    [name] = artifact_store().names(FOLDER)
    said = artifact_store().read_bytes(f"{FOLDER}/{name}").decode()
    assert not [word for word in (NAME, EMAIL, LOGIN, "Zoë") if word in said]
    User.objects.filter(pk=ana.pk).update(**before | {"erased_at": None})  # an older backup
    assert replay_erasures().erased == (ana.pk,)
    ana.refresh_from_db()
    assert ana.username == f"erased-{ana.pk}"
    assert replay_erasures().known == 1
    User.objects.filter(pk=ana.pk).update(
        **before | {"erased_at": None, "date_joined": timezone.now()}
    )
    assert (replay_erasures().erased, replay_erasures().gone) == ((), 1)
    call_command("replay_erasures")
    artifact_store().write_bytes(f"{FOLDER}/odd.json", b"{}")
    assert replay_erasures().unreadable == ("odd.json",)


def test_an_erasure_that_the_store_did_not_take_is_written_later(
    project: Project, ana: User, boss: User
) -> None:
    person_erase(user=ana, by=boss, votes="keep", remarks="keep")  # no commit: nothing is written
    assert artifact_store().names(FOLDER) == []
    assert erasures_missing_write() == 1
    assert erasures_missing_write() == 0
    [name] = artifact_store().names(FOLDER)
    assert json.loads(artifact_store().read_bytes(f"{FOLDER}/{name}"))["remarks"] == "keep"


# --- pages ----------------------------------------------------------------------------------------


def test_ones_data_are_all_there_without_hashes(
    project: Project, ana: User, client: Client
) -> None:
    pairs_make(project, 1)
    vote(project, ana, "a")
    _, token = token_create(user=ana, name="mine", scopes=["read"], days=3)
    SocialAccount.objects.create(user=ana, provider="oidc", uid="7", extra_data={"city": "Mainz"})
    app_make(ana)
    client.force_login(ana)
    answer = client.post("/account/data/")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    names = set(archive.namelist())
    assert {"profile.json", "tables/labeling_answer.jsonl"} <= names
    assert {"tables/accounts_membership.jsonl", "tables/mfa_authenticator.jsonl"} <= names
    assert {"tables/accounts_browsersession.jsonl", "tables/accounts_auditevent.jsonl"} <= names
    text = "\n".join(archive.read(name).decode() for name in names)
    assert '"username": "ana"' in text
    assert '"prefix"' in text
    assert "sha256" not in text
    assert '"password":' not in text
    assert token not in text
    assert "Mainz" in text, "what a provider said of them"
    assert client.session.session_key not in text
    assert SECRET not in text
    assert '"kind": "gold"' not in text
    event = AuditEvent.objects.get(action="person.exported")
    assert (event.actor, event.about) == (ana, ana)
    person_data(user=ana, by=ana).close()


def test_a_person_asks_and_an_administrator_sees_what_it_changes_and_erases(
    project: Project, ana: User, boss: User, signed_in: Any
) -> None:
    pairs_make(project, 1, overlap=1, max_overlap=1, least_votes=1, least_agreeing=1)
    vote(project, ana, "a")
    signed_in(ana).post("/account/erasure/")
    ana.refresh_from_db()
    assert ana.erasure_asked_at is not None
    admin = signed_in(boss)
    assert "asks to be erased" in admin.get("/site/people/").content.decode()
    path = f"/site/people/{ana.pk}/erase/"
    assert "No frozen dataset" in admin.get(path).content.decode()
    wrong = admin.post(path, {"votes": "keep", "remarks": "keep", "confirm": "anna"})
    assert wrong.status_code == 422
    assert (
        admin.post(path, {"votes": "keep", "remarks": "keep", "confirm": "ana"}).status_code == 302
    )
    assert admin.get(path).status_code == 404
    erasure_ask(user=boss, asked=True)
    erasure_ask(user=boss, asked=False)
    assert AuditEvent.objects.filter(action="person.erasure_not_asked").count() == 1
    assert Comparison.objects.count() == 1
    assert Comment.objects.count() == 0
