"""People, projects as the place where roles live, tokens, and what was done by whom."""

import hashlib
import json
import secrets
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.common import numbers
from apps.common.models import Named, Stamped


class User(AbstractUser):
    """A person.

    Imported annotators are people too (their votes carry their ids): `is_imported`, not active,
    and with the unusable password "!", so thousands of them are made without hashing.
    """

    username = models.CharField(
        max_length=150, unique=True, validators=[UnicodeUsernameValidator()]
    )
    display_name = models.CharField(max_length=150, blank=True)
    is_imported = models.BooleanField(default=False)
    theme = models.CharField(
        max_length=8, default="system", choices=[(x, x) for x in ("system", "light", "dark")]
    )
    may_create_projects = models.BooleanField(default=False)
    language = models.CharField(
        max_length=8, blank=True, default="", db_default="", help_text="empty: as the browser asks"
    )
    time_zone = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="empty: the browser's"
    )
    erasure_asked_at = models.DateTimeField(null=True, blank=True, help_text="by the person")
    erased_at = models.DateTimeField(null=True, blank=True, help_text="their data are gone")
    scim_external_id = models.CharField(
        max_length=254,
        blank=True,
        default="",
        db_default="",
        help_text="by which the directory that made the account knows it",
    )
    deprovisioned_at = models.DateTimeField(
        null=True, blank=True, help_text="the directory took them away"
    )
    # Which of the rights on the site a claim of the sign-in provider gave, and may take away.
    admin_by_claim = models.BooleanField(default=False, db_default=False)
    creates_by_claim = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                F("email"), condition=~Q(email=""), name="user_email_unique_when_given"
            ),
            # Imported people go by the ids of their file, which may differ in case alone.
            models.UniqueConstraint(
                Lower("username"),
                condition=Q(is_imported=False),
                name="user_name_unique_whatever_case",
                violation_error_code="username_taken",
            ),
            models.CheckConstraint(
                condition=Q(is_imported=False) | Q(is_active=False),
                name="user_imported_cannot_sign_in",
            ),
            models.CheckConstraint(
                condition=Q(erased_at=None) | Q(is_active=False), name="user_erased_cannot_sign_in"
            ),
        ]

    def __str__(self) -> str:
        if self.erased_at is not None:
            return gettext("a person who was erased")
        return self.display_name or self.username


class Role(models.TextChoices):
    """What a person may do in a project; each role is listed with its pages in docs/roles.md."""

    ANNOTATOR = "annotator", _("Annotator")
    REVIEWER = "reviewer", _("Reviewer")
    ENGINEER = "engineer", _("ML engineer")
    ADMIN = "admin", _("Admin")


class Project(Named):
    """The tenant: everything else belongs to exactly one project."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    archived_at = models.DateTimeField(null=True, blank=True)
    set_up_at = models.DateTimeField(null=True, blank=True)  # null: its pages show the first steps

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(Stamped):
    """One person's role in one project. A person without one does not learn that it exists."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role.choices)
    paused_reason = models.CharField(max_length=300, blank=True)
    # The role was given by a claim of the sign-in provider, which may change it or take it away.
    by_claim = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="membership_once_per_project"),
            models.CheckConstraint(
                condition=Q(role__in=[str(r) for r in Role]), name="membership_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}: {self.role}"


class Invitation(Named):
    """A link that makes one person a member of a project; only the hash of its token is kept."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=12, choices=Role.choices)
    email = models.EmailField(blank=True)
    sha256 = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    accepted_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    mailed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(role__in=[str(r) for r in Role]), name="invitation_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email or 'a link'} to {self.project}: {self.role}"


class ApiToken(Named):
    """A key for programs: only its hash is kept, it can be limited and it expires."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12, help_text="the first characters, to recognise it by")
    sha256 = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)  # names from accounts.scopes
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class BrowserSession(models.Model):
    """A browser that somebody is signed in with: what their page of sessions lists and ends."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="browser_sessions")
    session_key = models.CharField(max_length=40, unique=True)
    address = models.CharField(max_length=45, blank=True)
    browser = models.CharField(max_length=300, blank=True, help_text="its User-Agent")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)
    seen_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user_id} at {self.address}"


class Maintenance(models.Model):
    """One row while the site is closed to everybody but its administrators; none otherwise."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    since = models.DateTimeField(auto_now_add=True)
    until = models.DateTimeField(help_text="when people may come back, as they are told")
    message = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="maintenance_once")]

    def __str__(self) -> str:
        return f"until {self.until:%Y-%m-%d %H:%M %Z}"


class AuditEvent(models.Model):
    """What was done, by whom, to what or about whom. Append-only: a trigger refuses every change
    but one, the erasure of texts.

    What goes into the chain of hashes is `sealed`: numbers and account ids as they are, and of
    every text only the hash of it with a salt of its own. An erasure takes away a text and its
    salt; the chain holds, and nobody can guess the text back.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(auto_now_add=True, db_index=True)
    project = models.ForeignKey(
        Project,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
    )
    actor = models.ForeignKey(
        User,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
    )
    about = models.ForeignKey(
        User,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        help_text="the person it was done to; the subject is their id then",
    )
    action = models.CharField(max_length=60)  # entity.action, such as run.launched
    subject = models.CharField(max_length=80, blank=True)
    details = models.JSONField(default=dict)
    sealed = models.JSONField(
        default=dict, db_default={}, help_text="what is hashed of subject and details"
    )
    salts = models.JSONField(
        default=dict, db_default={}, help_text="of the texts among them, by name"
    )
    erased_by = models.BigIntegerField(
        null=True, blank=True, help_text="the event of the erasure that took texts away"
    )

    class Meta:
        indexes = [
            models.Index(fields=["project", "-at"], name="audit_by_project"),
            models.Index(
                fields=["about", "-id"], condition=Q(about__isnull=False), name="audit_about"
            ),
            models.Index(
                fields=["actor", "-id"], condition=Q(actor__isnull=False), name="audit_by_actor"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M} {self.action} {self.subject}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self._state.adding:
            self.sealed, self.salts = seal_of(self.values)
        super().save(*args, **kwargs)

    @property
    def shown_subject(self) -> str:
        """People by their sign-in name."""
        return self.about.username if self.about else self.subject

    @property
    def values(self) -> dict[str, Any]:
        """The subject and the details, by name."""
        return {f"details.{name}": value for name, value in self.details.items()} | {
            "subject": self.subject
        }


def seal_of(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """(what is hashed of these values, {name: salt}): each that holds a text as a salted hash."""
    salts = {name: secrets.token_hex(16) for name, value in values.items() if not is_plain(value)}
    sealed = {
        name: salted_sha256(salts[name], value) if name in salts else value
        for name, value in values.items()
    }
    return sealed, salts


def is_plain(value: Any) -> bool:
    """No text is in it: a number, yes or no, nothing, somebody's account id, or a list of such."""
    if isinstance(value, list):
        return all(is_plain(one) for one in value)
    if isinstance(value, dict):
        return value.keys() == {"person"} and isinstance(value["person"], int)
    return value is None or value == "" or isinstance(value, int | float)


def salted_sha256(salt: str, value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(f"{salt}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()


class AuditLink(models.Model):
    """One link of the chain over the audit log: `sha256` is of the link before and the event.
    Append-only, as the log is."""

    position = models.BigIntegerField(primary_key=True)
    event = models.BigIntegerField(unique=True)
    sha256 = models.CharField(max_length=64)
    former = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="its hash before the chain was resealed",
    )
    sealed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.position}: {self.sha256[:12]}"


class AuditCursor(models.Model):
    """How far the chain has been sent to `name`, by position."""

    name = models.CharField(max_length=20, primary_key=True)
    position = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.position}"


class Notice(models.Model):
    """Something that happened and concerns one person, or everybody of some roles, in a project:
    what the bell tells. One row serves all whom it concerns; who has seen it says `NoticesSeen`."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    roles = ArrayField(models.CharField(max_length=12), default=list, blank=True)
    kind = models.CharField(max_length=30)
    text = models.CharField(max_length=500, help_text="a message of the catalogues, or any text")
    values = models.JSONField(default=dict, blank=True, help_text="of the text's placeholders")
    path = models.CharField(max_length=300, blank=True, help_text="of the page it leads to")
    by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, roles=[]) | (Q(user__isnull=True) & ~Q(roles=[])),
                name="notice_to_one_or_to_roles",
            )
        ]
        indexes = [
            models.Index(
                fields=["project", "user", "-id"],
                condition=Q(user__isnull=False),
                name="notice_to_one",
            ),
            models.Index(
                fields=["project", "-id"], condition=Q(user__isnull=True), name="notice_to_roles"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"

    @property
    def sentence(self) -> str:
        """What it says, in the language of the thread that asks."""
        shown = {name: _shown(value) for name, value in self.values.items()}
        return gettext(self.text) % shown if shown else gettext(self.text)


def _shown(value: Any) -> str:
    """A value of a notice: numbers with the signs of the language, messages in it."""
    if isinstance(value, list):
        return gettext(value[0])
    return numbers.count(value) if isinstance(value, int) else str(value)


class NoticesSeen(models.Model):
    """How far a person has looked at the bell of a project: the newest notice, and how many of each
    thing waited then."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+", db_index=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    notice = models.BigIntegerField(default=0)
    needs = models.JSONField(default=dict, help_text="{kind: how many}")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="notices_seen_once")
        ]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.project_id}: {self.notice}"


# What an API token may be used for. A token never allows more than its person's role does.

SCOPES = {
    "read": _("read what the person may read"),
    "label": _("ask for comparisons and vote"),
    "write": _("create projects, import, freeze snapshots"),
    "train": _("start, stop and cancel runs"),
    "approve": _("approve, reject and retire reward models, decide about promotions"),
    "admin": _("change people and roles"),
}
DEFAULT_SCOPES = ("read",)


# What a token looks like and how it is recognised without being kept.

TOKEN_PREFIX = "ccd_"  # noqa: S105 - lets secret scanners recognise a leaked token


def token_sha256(token: str) -> str:
    """Tokens are 256 random bits: a plain hash cannot be guessed back, and is found by index."""
    return hashlib.sha256(token.encode()).hexdigest()
