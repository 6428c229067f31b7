"""Who is eligible to label in a project: guidelines read, limits, qualification.

The row `Annotator` is made when something is first said; whether a pair is handed out by it is for
the statement of the hand-out to say (`leasing`).
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from django.conf import settings as django_settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, DomainError, Missing, Refused
from apps.common.numbers import count
from apps.labeling.models import (
    Annotator,
    Answer,
    Guideline,
    LabelingSettings,
    Prompt,
    Vote,
    WrittenVersion,
)
from apps.labeling.services.results import NothingReason
from apps.labeling.services.statements import LABELERS_COUNT, MIX

# One person in one project: what keeps them from labeling, and how their queue is mixed.

# Engineers see where answers come from and how others voted, so they do not vote.
LABELERS = frozenset({Role.ANNOTATOR, Role.REVIEWER, Role.ADMIN})
# Reviewers audit votes, without knowing them; admins may too.
AUDITORS = frozenset({Role.REVIEWER, Role.ADMIN})
_DEFAULTS = LabelingSettings()

_COUNT_SECONDS = 30.0
_counted: dict[str, tuple[float, int]] = {}
_lately: dict[str, tuple[float, int]] = {}
QUOTA_PERIOD = timedelta(days=30)

Stream = Literal["gold", "repeat", "audit", "queue"]


@dataclass(frozen=True, slots=True)
class Eligibility:
    """As the columns `statements.ELIGIBILITY_COLUMNS` say."""

    role: str | None
    paused: str | None
    guideline_due: int | None  # the first major version they have not acknowledged
    qualification_pairs: int | None
    qualified_at: datetime | None
    daily_cap: int | None
    n_today: int  # votes cast since midnight UTC
    topics: list[str] | None
    languages: list[str] | None
    avoids_topics: list[str] | None
    avoids_sensitive: bool | None
    sensitive_topics: list[str] | None
    sensitive_cap: int | None
    n_sensitive: int  # pairs with a warning handed out since midnight UTC
    lease_seconds: int
    random_share: float
    gold_share: float
    repeat_share: float
    audit_share: float
    audit_rate: float
    consent_due: str | None = None  # what they have not agreed to yet
    votes_quota: int = 0  # answers that the project takes in 30 days; 0: no limit
    closed_ids: str | None = None  # of comparisons whose imports others label; a multirange

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Eligibility":
        """A project without settings has the defaults."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        if row["lease_seconds"] is None:
            values |= {name: getattr(_DEFAULTS, name) for name in MIX}
        return cls(**values)

    def after_a_vote(self) -> "Eligibility":
        return replace(self, n_today=self.n_today + 1)

    def closed(self, project: str) -> NothingReason | None:
        """Why this person gets no pair at all just now; None when the queue decides."""
        if self.paused:
            return NothingReason(
                "paused",
                gettext("Your labeling is paused"),
                gettext("An admin of this project paused it: %(why)s") % {"why": self.paused},
                n_today=self.n_today,
            )
        most = votes_most(self.votes_quota)
        if most and votes_lately(project=project) >= most:
            return NothingReason(
                "quota",
                gettext("No more answers are taken for now"),
                gettext(
                    "This project has taken %(n)s answers in the last 30 days, as many as it may. "
                    "Its admins know when more can come."
                )
                % {"n": count(most)},
                n_today=self.n_today,
            )
        if self.consent_due:
            return NothingReason(
                "consent",
                gettext("What your answers are used for"),
                self.consent_due,
                n_today=self.n_today,
            )
        if self.guideline_due is not None:
            return NothingReason(
                "guideline",
                gettext("The guidelines have changed"),
                gettext("Read the current version and confirm it to get the next pair."),
                n_today=self.n_today,
            )
        if self.qualification_pairs and not self.qualified_at and self.role == Role.ANNOTATOR:
            return NothingReason(
                "qualification",
                gettext("First a short qualification"),
                ngettext(
                    "You judge %(n)s pair whose right answer is known, and see after it why it is "
                    "right. Then real work begins.",
                    "You judge %(n)s pairs whose right answer is known, and see after each why it "
                    "is right. Then real work begins.",
                    self.qualification_pairs,
                )
                % {"n": self.qualification_pairs},
                n_today=self.n_today,
            )
        if self.daily_cap and self.n_today >= self.daily_cap:
            return NothingReason(
                "daily_cap",
                gettext("That is all for today"),
                ngettext(
                    "You have answered %(n)s pair today, as many as this project takes from one "
                    "person a day. More come after midnight UTC.",
                    "You have answered %(n)s pairs today, as many as this project takes from one "
                    "person a day. More come after midnight UTC.",
                    self.n_today,
                )
                % {"n": count(self.n_today)},
                n_today=self.n_today,
            )
        return None

    def stream(self, draw: float) -> Stream:
        """Which part of the queue a hand-out comes from, by a uniform draw in [0, 1)."""
        audit_share = self.audit_share if self.role in AUDITORS else 0.0
        streams: tuple[tuple[Stream, float], ...] = (
            ("gold", self.gold_share),
            ("repeat", self.repeat_share),
            ("audit", audit_share),
        )
        for stream, share in streams:
            if draw < share:
                return stream
            draw -= share
        return "queue"

    @property
    def careful(self) -> bool:
        """Whether there are pairs to spare them, by their choice or by the cap of the day."""
        return bool(self.avoids_topics or self.avoids_sensitive or self.sensitive_cap)

    @property
    def capped(self) -> bool:
        return bool(self.sensitive_cap and self.n_sensitive >= self.sensitive_cap)

    @property
    def limits(self) -> dict[str, Any]:
        return {
            "topics": self.topics or [],
            "languages": self.languages or [],
            "avoided": self.avoids_topics or [],
            "sensitive": self.sensitive_topics or [],
            "cap": self.sensitive_cap or 0,
            "closed": self.closed_ids or "{}",
        }


def role_check(role: str | None) -> None:
    if role not in LABELERS:
        raise Refused(
            gettext("Your role here is %(role)s, and people of that role do not label.")
            % {"role": role}
        )


MOST_A_DAY = 100_000


@transaction.atomic
def guideline_acknowledge(*, project: Project, user: User, version: int) -> Annotator:
    """This person has read the guidelines up to `version`; the next pair can come.

    Any version from the newest major one on is taken, since what people read is the current text.
    Saying it again, or of an older version than they have acknowledged, changes nothing. Errors:
    `Missing` for people outside the project, `Refused` for roles that do not label, `Conflict`
    (`guideline_outdated`) when a newer major version has come out since.
    """
    annotator = annotator_lock(project=project, user=user)
    if version <= annotator.acknowledged_version:
        return annotator
    versions = Guideline.objects.filter(project=project)
    if not versions.filter(version=version).exists():
        raise DomainError(
            gettext("There is no version %(version)s of the guidelines.") % {"version": version},
            field="version",
        )
    newer = versions.filter(version__gt=version, is_major=True).order_by("-version").first()
    if newer is not None:
        raise Conflict(
            gettext(
                "Version %(version)s of the guidelines has come out since you opened them. "
                "Read that one; it is shown now."
            )
            % {"version": newer.version},
            code="guideline_outdated",
            field="version",
        )
    annotator.acknowledged_version = version
    annotator.acknowledged_at = timezone.now()
    annotator.save(update_fields=["acknowledged_version", "acknowledged_at", "updated_at"])
    _record("guideline.acknowledged", user, annotator, {"version": version})
    return annotator


@transaction.atomic
def consent_give(*, project: Project, user: User, version: int) -> Annotator:
    """This person has read what answers are used for, and agrees. Errors: `Conflict`
    (`statement_outdated`) for another version than the one that holds."""
    annotator = annotator_lock(project=project, user=user)
    settings = LabelingSettings.objects.filter(project=project).first() or _DEFAULTS
    if version != settings.data_statement_version:
        raise Conflict(
            gettext("The text has changed since you opened it. Read it again; it is shown now."),
            code="statement_outdated",
            field="version",
        )
    if annotator.consent_version != version:
        annotator.consent_version, annotator.consented_at = version, timezone.now()
        annotator.save(update_fields=["consent_version", "consented_at", "updated_at"])
        _record("consent.given", user, annotator, {"version": version})
    return annotator


@transaction.atomic
def annotator_limits_set(
    *,
    project: Project,
    user: User,
    by: User,
    daily_cap: int | None,
    topics: Collection[str] = (),
    languages: Collection[str] = (),
) -> Annotator:
    """What this person gets from now on; a pair in their hands stays theirs.

    daily_cap: votes a day (UTC), 0 for no cap, None for the project's. topics, languages: only
    pairs of these; empty for all. Each must be one that the project's prompts have (or that the
    person is limited to already), since a misspelt one would leave them without work.
    """
    annotator = annotator_lock(project=project, user=user)
    if daily_cap is not None and not 0 <= daily_cap <= MOST_A_DAY:
        raise DomainError(f"Between 0 (no cap) and {MOST_A_DAY:,}.", field="daily_cap")
    wanted: dict[str, Any] = {
        "daily_cap": daily_cap,
        "topics": _known(project, "topic", topics, annotator.topics),
        "languages": _known(project, "language", languages, annotator.languages),
    }
    changed = {
        name: [getattr(annotator, name), value]
        for name, value in wanted.items()
        if getattr(annotator, name) != value
    }
    if changed:
        for name, value in wanted.items():
            setattr(annotator, name, value)
        annotator.save(update_fields=[*wanted, "updated_at"])
        _record("annotator.limited", by, annotator, changed)
    return annotator


@transaction.atomic
def annotator_opt_out(
    *, project: Project, user: User, avoids_topics: Collection[str], avoids_sensitive: bool
) -> Annotator:
    """What this person does not want to get, by their own choice: pairs of some topics, or any with
    a warning. A pair in their hands stays theirs, to skip."""
    annotator = annotator_lock(project=project, user=user)
    topics = _known(project, "topic", avoids_topics, annotator.avoids_topics, "avoids_topics")
    if (topics, avoids_sensitive) != (annotator.avoids_topics, annotator.avoids_sensitive):
        annotator.avoids_topics, annotator.avoids_sensitive = topics, avoids_sensitive
        annotator.save(update_fields=["avoids_topics", "avoids_sensitive", "updated_at"])
        _record("annotator.opted_out", user, annotator, {})  # what, is their own business
    return annotator


@transaction.atomic
def annotator_qualify(*, project: Project, user: User, by: User) -> Annotator:
    """Let somebody label without (another) qualification round; it is noted who did."""
    annotator = annotator_lock(project=project, user=user)
    if annotator.qualified_at is None:
        annotator.qualified_at = timezone.now()
        annotator.save(update_fields=["qualified_at", "updated_at"])
        _record("annotator.qualified", by, annotator, {"by": "hand"})
    return annotator


def experienced_unqualified(*, project: Project) -> QuerySet[User]:
    """Annotators who have answered pairs here and have not qualified: where a project begins to
    ask for a qualification, they are stopped in the middle of their work."""
    answered = Vote.objects.filter(project=project, annotator=OuterRef("pk"), is_current=True)
    qualified = Annotator.objects.filter(
        project=project, user=OuterRef("pk"), qualified_at__isnull=False
    )
    return User.objects.filter(
        Exists(answered),
        ~Exists(qualified),
        memberships__project=project,
        memberships__role=Role.ANNOTATOR,
        is_imported=False,
        is_active=True,
    )


@transaction.atomic
def annotators_qualify_experienced(*, project: Project, by: User) -> int:
    """Qualify by hand everybody who has answered pairs here already; returns how many."""
    people = list(experienced_unqualified(project=project))
    for user in people:
        annotator_qualify(project=project, user=user, by=by)
    return len(people)


@transaction.atomic
def annotator_disqualify(*, project: Project, user: User, by: User) -> Annotator:
    """Ask for the qualification (again): no pair until they pass or are qualified by hand."""
    annotator = annotator_lock(project=project, user=user)
    if annotator.qualified_at is not None:
        annotator.qualified_at = None
        annotator.save(update_fields=["qualified_at", "updated_at"])
        _record("annotator.disqualified", by, annotator, {})
    return annotator


def annotator_lock(*, project: Project, user: User) -> Annotator:
    """The person's row in the project, made if need be, locked until the transaction ends."""
    role = (
        Membership.objects.filter(project=project, user=user).values_list("role", flat=True).first()
    )
    if role is None:
        raise Missing(gettext("There is no such person in this project."), field="user")
    if role not in LABELERS:
        raise Refused(gettext("People of the role %(role)s do not label.") % {"role": role})
    Annotator.objects.get_or_create(project=project, user=user)
    return (
        Annotator.objects.select_for_update(no_key=True, of=("self",))
        .select_related("user", "project")
        .get(project=project, user=user)
    )


def _known(
    project: Project, name: str, given: Collection[str], had: list[str], field: str = ""
) -> list[str]:
    """`given` once each and in order, checked against the project's prompts."""
    wanted = sorted(set(given))
    fresh = set(wanted) - set(had)
    if fresh:
        found = Prompt.objects.filter(project=project, **{f"{name}__in": fresh})
        fresh -= set(found.order_by().values_list(name, flat=True).distinct())
    if fresh or "" in wanted:
        unknown = sorted(fresh | ({""} & set(wanted)))[0]
        raise DomainError(f"No prompt here has the {name} {unknown!r}.", field=field or f"{name}s")
    return wanted


def _record(action: str, actor: User, annotator: Annotator, details: dict[str, Any]) -> None:
    audit_record(
        action=action,
        actor=actor,
        project=annotator.project,
        subject=annotator.user,
        details=details,
    )


# How many people label here, for pairs that nobody may be left to vote on.


def labelers_count(*, project: str) -> int:
    """How many people label in the project, at most half a minute old: every vote asks."""
    known = _counted.get(project)
    if known is None or time.monotonic() - known[0] > _COUNT_SECONDS:
        known = _counted[project] = time.monotonic(), labelers_now(project)
    return known[1]


def votes_most(own: int) -> int:
    """Answers a project may take in 30 days, by its own limit and the site's; 0: any number."""
    return min((most for most in (own, django_settings.PROJECT_VOTES) if most), default=0)


def votes_lately(*, project: str) -> int:
    """Answers and written texts of people in the last 30 days, at most half a minute old."""
    known = _lately.get(project)
    if known is None or time.monotonic() - known[0] > _COUNT_SECONDS:
        since = timezone.now() - QUOTA_PERIOD
        cast = Answer.objects.filter(project=project, cast_at__gt=since, revision=1)
        cast = cast.exclude(source__in=(Answer.Source.IMPORT, Answer.Source.SIMULATED))
        written = WrittenVersion.objects.filter(
            project=project, submitted_at__gt=since, edits__isnull=True
        ).exclude(source=Answer.Source.SIMULATED)
        known = _lately[project] = time.monotonic(), cast.count() + written.count()
    return known[1]


def labelers_now(project: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(LABELERS_COUNT, {"project": project, "joining": None})
        return cursor.fetchone()[0]
