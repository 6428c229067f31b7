"""Erasing a person: who they were goes everywhere, what they did stays under a number.

The account stays as a row without a name, so that votes, decisions and the audit log have somebody
to point at. Whatever names them in texts of others is replaced by "erased person 12"; texts that
were imported or written by models are not searched (`KEPT`). What stands in the artifact store of
it (`erasures/`) is the number, the day and the choice, so that a restore of an older backup can do
it again.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models, transaction
from django.utils import timezone

from apps.accounts.models import (
    ApiToken,
    AuditEvent,
    Invitation,
    Membership,
    Notice,
    NoticesSeen,
    Project,
    Role,
    User,
)
from apps.accounts.services.audit import audit_record
from apps.accounts.services.audit_chain import ERASED
from apps.accounts.services.sessions import sessions_drop
from apps.common import registry
from apps.common.errors import Conflict, DomainError
from apps.common.registry import ErasureWish
from workers.artifacts import ArtifactError, Store

FOLDER = "erasures"  # of the artifact store: a file for each erased person
VOTES, REMARKS = ("keep", "discard"), ("remove", "keep")

# What is not searched for a name, and why. A table, or a column of one.
KEPT: dict[str, str] = {
    "django_content_type": "names of models",
    "auth_permission": "names of rights",
    "auth_group": "names of groups",
    "django_session": "signed; those of the person are deleted",
    "django_site": "the site's own name",
    "accounts_user": "the person's own row is emptied, and others' names are theirs",
    "accounts_auditevent": "searched event by event, since its texts have salts",
    "accounts_auditlink": "hashes",
    "accounts_apitoken": "the person's are deleted; others' names of their programs are theirs",
    "accounts_project.slug": "the address of the project",
    "labeling_prompt": "material: text that was imported or generated",
    "labeling_response": "material: text that was imported or generated",
    "labeling_toolresult": "material: text that was imported or generated",
    "labeling_writtenversion.body": "material: text that was written for a dataset",
    "labeling_writtenversion.idempotency_key": "numbers and words of our own",
    "labeling_task.external_id": "the material's own key",
    "labeling_task.metadata": "the material's own columns",
    "labeling_task.batch": "the material's own key",
    "labeling_facet": "values of the material's columns",
    "labeling_searchdocument": "an index of the material",
    "labeling_searchpending": "an index of the material",
    "labeling_importjob.preview": "the first rows of the material",
    "snapshots_snapshotrow": "numbers and words of our own",
    "snapshots_snapshot.recipe": "frozen and hashed; people stand there by number",
    "snapshots_snapshot.counts": "frozen and hashed; people stand there by number",
    "snapshots_snapshot.uri": "an address in the artifact store",
    "training_runevent": "what trainers reported",
    "training_metricblock": "what trainers reported",
    "training_sample": "texts of models",
    "training_runattempt": "settings of a run and its machine",
    "training_checkpoint": "what trainers reported",
    "training_artifact": "what trainers reported",
    "evaluation_sheetitem": "texts of models",
    "evaluation_flaggedanswer.prompt": "texts of models",
    "evaluation_flaggedanswer.response": "texts of models",
    "evaluation_promptoverlap": "texts of datasets",
    "evaluation_evaluationprotocol": "hashed; people stand there by number",
    "evaluation_labelcertificate.figures": "hashed; people stand there by number",
    "loop_pipelineversion": "steps of a pipeline, which never change",
    "monitoring_trafficconversation": "conversations of a served model",
    "monitoring_trafficbatch": "keys and counts",
    "monitoring_trafficday": "counts",
}
# Columns that hold a person's name and nothing else.
NAMES = re.compile(r"(^|_)(by|created|decided|seconded|imported|requested|person)_name$")
_IN_JSON = "by|by_name|username|person|author|annotator|decided_by|requested_by|seconded_by|name"
_PART = 500


def person_called(user: User) -> str:
    """What stands in the place of their name."""
    return f"erased person {user.pk}"


@dataclass(frozen=True, slots=True)
class Identifiers:
    """What a person is recognised by. `sure`: words that mean nobody and nothing else, such as an
    e-mail address or a name of two words; `short`: one plain word, such as `ana`, which is replaced
    only where it can but be a person: after @, as a whole value, under a key that names people."""

    sure: tuple[str, ...]
    short: tuple[str, ...]

    @classmethod
    def of(cls, user: User) -> "Identifiers":
        names = {user.username, user.display_name, user.get_full_name()}
        names |= {user.first_name, user.last_name}
        names = {name.strip() for name in names} - {""}
        # A name of digits alone is short too: as a number it may stand for anything.
        plain = {name for name in names if name.isalpha() or not any(c.isalpha() for c in name)}
        sure = (names - plain) | ({user.email} - {""})
        return cls(tuple(sorted(sure, key=len, reverse=True)), tuple(sorted(names - sure)))

    @property
    def everything(self) -> tuple[str, ...]:
        return self.sure + self.short

    def in_text(self) -> str:
        """A pattern of PostgreSQL for free texts."""
        parts = [_word(one) for one in self.sure]
        parts += [f"(?<![[:alnum:]_@.])@{_any_case(one)}(?![[:alnum:]_])" for one in self.short]
        return "|".join(parts)

    def in_json(self) -> str:
        """For JSON as text: as in texts, and a short name as a value under a key of people."""
        texts = Identifiers(*(tuple(map(_escaped, part)) for part in (self.sure, self.short)))
        parts = [texts.in_text()]
        parts += [f'(?<="(?:{_IN_JSON})": "){_any_case(one)}(?=")' for one in texts.short]
        return "|".join(part for part in parts if part)

    def meant_in(self, value: Any) -> bool:
        """Whether a value of an audit event names the person, as a word of it or as all of it."""
        text = json.dumps(value, ensure_ascii=False)
        sure = "|".join(re.escape(_escaped(one)) for one in self.sure)
        if sure and re.search(rf"(?<![\w@.-])@?(?:{sure})(?![\w@-])", text, re.IGNORECASE):
            return True
        return any(
            re.search(rf'(?:"|@|, ){re.escape(one)}(?:"|,|\b(?<=@{re.escape(one)}))', text, re.I)
            for one in self.short
        )


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _any_case(text: str) -> str:
    """A pattern that finds it in upper and lower case; PostgreSQL knows no switch for a part."""
    return "".join(
        f"[{c.lower()}{c.upper()}]"
        if c.isalpha() and len(c.lower()) == len(c.upper()) == 1
        else c
        if c.isalnum()
        else f"\\{c}"
        for c in text
    )


def _word(text: str) -> str:
    return f"(?<![[:alnum:]_@.-])@?{_any_case(text)}(?![[:alnum:]_@-])"


def texts_searched() -> Iterator[tuple[type[models.Model], "models.Field[Any, Any]"]]:
    """Every column of every table that may hold a text, but for what is `KEPT`. A new table is
    among them without being named anywhere."""
    for model in apps.get_models(include_auto_created=True):
        table = model._meta.db_table
        if table in KEPT or not model._meta.managed or model._meta.proxy:
            continue
        for field in model._meta.concrete_fields:
            is_text = isinstance(field, models.CharField | models.TextField | models.JSONField)
            is_list = isinstance(field, ArrayField) and isinstance(
                field.base_field, models.CharField
            )
            if not (is_text or is_list) or field.primary_key or field.choices or field.remote_field:
                continue
            if f"{table}.{field.attname}" in KEPT or "sha256" in field.name:
                continue
            yield model, field


def _texts_replace(user: User, known: Identifiers) -> int:
    """In texts of everybody; returns in how many."""
    n, called = 0, person_called(user)
    with connection.cursor() as cursor:
        for model, field in texts_searched():
            table, column = (
                connection.ops.quote_name(one) for one in (model._meta.db_table, field.attname)
            )
            is_json = isinstance(field, models.JSONField | ArrayField)
            kind = field.db_type(connection)
            if NAMES.search(field.attname):
                cursor.execute(  # names of ours; what people typed is a parameter
                    f"update {table} set {column} = %s where {column} = any(%s)",  # noqa: S608
                    [called, list(known.everything)],
                )
                n += cursor.rowcount
            if pattern := known.in_json() if is_json else known.in_text():
                cursor.execute(
                    f"update {table} set {column} ="  # noqa: S608
                    f" regexp_replace({column}::text, %s, %s, 'g')::{kind}"
                    f" where {column}::text ~ %s",
                    [pattern, called, pattern],
                )
                n += cursor.rowcount
    return n


def _events_clear(user: User, known: Identifiers, erasure: AuditEvent) -> int:
    """Takes the person's network addresses and every text that names them out of the audit log."""
    rough = "|".join(_any_case(one) for name in known.everything for one in {name, _escaped(name)})
    about = AuditEvent.objects.filter(models.Q(actor=user) | models.Q(about=user))
    about = about.filter(details__has_key="address")
    named = AuditEvent.objects.extra(
        where=["details::text ~ %s or subject ~ %s"], params=[rough, rough]
    )
    wanted = {*about.values_list("pk", flat=True), *named.values_list("pk", flat=True)}
    n = 0
    for event in AuditEvent.objects.filter(pk__in=wanted).iterator(chunk_size=_PART):
        mine = user.pk in (event.actor_id, event.about_id)
        gone = {
            name
            for name, value in event.values.items()
            if name in event.salts
            and ((mine and name == "details.address") or known.meant_in(value))
        }
        gone -= {"subject"} if event.about_id is not None else set()
        if not gone:
            continue
        AuditEvent.objects.filter(pk=event.pk).update(
            subject=GONE if "subject" in gone else event.subject,
            details={
                name: None if f"details.{name}" in gone else value
                for name, value in event.details.items()
            },
            salts={name: salt for name, salt in event.salts.items() if name not in gone},
            erased_by=erasure.pk,
        )
        n += 1
    return n


GONE = ""  # the subject of an event whose subject was erased


# --- what an admin does ---------------------------------------------------------------------------


def wish_checked(votes: str, remarks: str) -> ErasureWish:
    if votes not in VOTES:
        raise DomainError(f"Say what becomes of the votes: {' or '.join(VOTES)}.", field="votes")
    if remarks not in REMARKS:
        raise DomainError(
            f"Say what becomes of the remarks: {' or '.join(REMARKS)}.", field="remarks"
        )
    return ErasureWish(votes, remarks)


def person_erase(*, user: User, by: User | None, votes: str, remarks: str) -> AuditEvent:
    """Erase a person for good. votes: "keep" under a pseudonym or "discard"; remarks: "remove" or
    "keep" what they wrote about pairs.

    Errors: `Conflict` for oneself (`yourself`), for somebody erased already (`erased`) and for the
    last admin of a project or the site (`last_admin`).
    """
    wish = wish_checked(votes, remarks)
    with transaction.atomic():
        user = User.objects.select_for_update().get(pk=user.pk)
        _require_erasable(user, by)
        known = Identifiers.of(user)
        with connection.cursor() as cursor:  # triggers let texts go in this transaction alone
            cursor.execute("select set_config('concord.erasing', %s, true)", [str(user.pk)])
        event = audit_record(
            action="person.erased" if by else "person.erased_again",
            actor=by,
            subject=user,
            details={"votes": wish.votes, "remarks": wish.remarks},
        )
        parts = registry.person_erase_parts(user, by, wish)
        _account_empty(user, event.at)
        parts["texts"] = _texts_replace(user, known)
        parts["events"] = _events_clear(user, known, event)
        audit_record(action="person.erasure_done", actor=by, subject=user, details=dict(parts))
        with connection.cursor() as cursor:
            cursor.execute("select set_config('concord.erasing', '', true)")
        transaction.on_commit(lambda: erasure_write(user, wish), robust=True)
    return event


def _require_erasable(user: User, by: User | None) -> None:
    if user.erased_at is not None:
        raise Conflict("This person was erased already.", code="erased")
    if by is None:  # a replay: it was allowed then
        return
    if user == by:
        raise Conflict("Somebody else has to erase you.", code="yourself")
    admins = User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk)
    if user.is_superuser and not admins.exists():
        raise Conflict(
            "They are the last administrator of the site. Make somebody else one first.",
            code="last_admin",
        )
    mine = Membership.objects.filter(user=user, role=Role.ADMIN).values("project")
    for project in Project.objects.filter(pk__in=mine, archived_at=None):
        others = Membership.objects.filter(
            project=project, role=Role.ADMIN, user__is_active=True
        ).exclude(user=user)
        if not others.exists():
            raise Conflict(
                f"They are the last admin of {project.name}. Make somebody else one first.",
                code="last_admin",
            )


def _account_empty(user: User, at: datetime) -> None:
    """The row without anything that says who it was, and nothing beside it."""
    email = user.email
    sessions_drop(user)
    for model in apps.get_models():  # addresses, factors, accounts elsewhere, Django's admin log
        if model._meta.app_label in SIDE:
            for field in model._meta.fields:
                if field.remote_field is not None and field.related_model is User:
                    model._base_manager.filter(**{field.name: user}).delete()
    ApiToken.objects.filter(user=user).delete()
    Membership.objects.filter(user=user).delete()
    Notice.objects.filter(user=user).delete()
    NoticesSeen.objects.filter(user=user).delete()
    sent = models.Q(accepted_by=user)
    if email:
        sent |= models.Q(email__iexact=email)
    Invitation.objects.filter(sent).update(email="")
    user.groups.clear()
    user.user_permissions.clear()
    user.username = f"erased-{user.pk}"
    user.first_name = user.last_name = user.email = user.display_name = ""
    user.language = user.time_zone = user.scim_external_id = ""
    user.theme = "system"
    user.is_active = user.is_staff = user.is_superuser = user.may_create_projects = False
    user.admin_by_claim = user.creates_by_claim = False
    user.last_login = user.erasure_asked_at = None
    user.erased_at = at
    user.set_unusable_password()
    user.save()


SIDE = frozenset({"account", "socialaccount", "mfa", "usersessions", "admin"})


# --- asked for by the person ----------------------------------------------------------------------


def erasure_ask(*, user: User, asked: bool) -> None:
    """Tell the administrators of the site that this person wants to be erased, or no longer."""
    if (user.erasure_asked_at is not None) != asked:
        user.erasure_asked_at = timezone.now() if asked else None
        user.save(update_fields=["erasure_asked_at"])
        action = "person.erasure_asked" if asked else "person.erasure_not_asked"
        audit_record(action=action, actor=user, subject=user)


# --- the list that outlives a backup --------------------------------------------------------------


def erasure_write(user: User, wish: ErasureWish) -> None:
    """No name is in it. When the account began tells it from another that got its number."""
    said = {
        "person": user.pk,
        "began": user.date_joined.astimezone(UTC).isoformat(),
        "erased": (user.erased_at or timezone.now()).astimezone(UTC).isoformat(),
        "votes": wish.votes,
        "remarks": wish.remarks,
    }
    Store(settings.ARTIFACTS_URL).write_bytes(
        f"{FOLDER}/{user.pk}-{int(user.date_joined.timestamp())}.json",
        json.dumps(said, indent=1).encode(),
    )


@dataclass(frozen=True, slots=True)
class Replayed:
    """erased: ids of those who were erased again; known: erased already; gone: not in this
    database; unreadable: files of the list."""

    erased: tuple[int, ...]
    known: int
    gone: int
    unreadable: tuple[str, ...]


def replay_erasures() -> Replayed:
    """Erase again whoever a restored backup brought back. Call it after a restore, before anybody
    is let in; what is erased already stays as it is."""
    store = Store(settings.ARTIFACTS_URL)
    erased, known, gone, unreadable = [], 0, 0, []
    for name in sorted(store.names(FOLDER)):
        try:
            said = json.loads(store.read_bytes(f"{FOLDER}/{name}"))
            began = datetime.fromisoformat(said["began"])
            pk, votes, remarks = int(said["person"]), said["votes"], said["remarks"]
        except (ArtifactError, ValueError, KeyError, TypeError):
            unreadable.append(name)
            continue
        user = User.objects.filter(pk=pk, date_joined=began).first()
        if user is None:
            gone += 1
        elif user.erased_at is not None:
            known += 1
        else:
            person_erase(user=user, by=None, votes=votes, remarks=remarks)
            erased.append(user.pk)
    return Replayed(tuple(erased), known, gone, tuple(unreadable))


def erasures_missing_write() -> int:
    """Files of erasures that the artifact store did not take when they happened."""
    store, n = Store(settings.ARTIFACTS_URL), 0
    have = set(store.names(FOLDER))
    for user in User.objects.filter(erased_at__isnull=False):
        if f"{user.pk}-{int(user.date_joined.timestamp())}.json" in have:
            continue
        done = AuditEvent.objects.filter(about=user, action__in=ERASED)
        if event := done.order_by("-pk").first():
            erasure_write(user, ErasureWish(event.details["votes"], event.details["remarks"]))
            n += 1
    return n
