"""Reads of people, roles, tokens and the audit log."""

from collections.abc import Callable, Collection, Iterable
from datetime import date, timedelta
from importlib import import_module
from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db.models import Count, Exists, Model, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import (
    ApiToken,
    AuditEvent,
    BrowserSession,
    Invitation,
    Maintenance,
    Membership,
    Notice,
    NoticesSeen,
    Project,
    Role,
    User,
    token_sha256,
)
from apps.common.environment import SITE_ADMIN
from apps.common.registry import Named


def memberships_of(user: User) -> list[Membership]:
    """The person's memberships in unarchived projects, by the projects' names."""
    return list(
        Membership.objects.select_related("project")
        .filter(user=user, project__archived_at__isnull=True)
        .order_by("project__name")
    )


def administered_with(*, project: Project, user: User) -> QuerySet[Project]:
    """The other projects, archived or not, that the user administers as they administer this one:
    what such a person may carry from one to the other."""
    mine = user.memberships.filter(role=Role.ADMIN).values_list("project", flat=True)
    found = Project.objects.filter(pk__in=mine).exclude(pk=project.pk).order_by("name")
    return found if project.pk in mine else found.none()


def may_create_projects(user: User) -> bool:
    """Site administrators, whom they allow it, and whoever administers a project already."""
    return (
        user.is_superuser
        or user.may_create_projects
        or user.memberships.filter(role=Role.ADMIN).exists()
    )


def person_named(login: str) -> User | None:
    """Who has this sign-in name or this e-mail, whatever the case; None where two would fit."""
    login = login.strip()
    field = "email" if "@" in login else "username"
    for name in (field, "username"):
        found = list(User.objects.filter(**{f"{name}__iexact": login})[:2]) if login else []
        if len(found) == 1:
            return found[0]
    return None


def site_has_people() -> bool:
    """Whether anybody ever had an account, deactivated ones too: until then the site shows its
    set-up page."""
    return User.objects.filter(is_imported=False).exists()


def people_of_site(*, search: str = "", who: str = "") -> QuerySet[User]:
    """Everybody who signs in, or has signed in, by name; `who`: "", "active", "inactive"."""
    factor = Authenticator.objects.filter(user=OuterRef("pk"))
    rows = User.objects.filter(is_imported=False).annotate(
        n_projects=Count("memberships"), has_factor=Exists(factor)
    )
    if who:
        rows = rows.filter(is_active=who == "active")
    if search:
        rows = rows.filter(_named_like(search))
    return rows.order_by("username")


def belongs_only_to_admin(user: User, admin: User) -> bool:
    """Whether `admin` administers every project the person is in: only then may they hand out a
    link to the account. Administrators of the site are out of everybody else's reach."""
    if user.is_superuser and not admin.is_superuser:
        return False
    mine = admin.memberships.filter(role=Role.ADMIN).values("project")
    return admin.is_superuser or not user.memberships.exclude(project__in=mine).exists()


def archived_of(user: User) -> QuerySet[Project]:
    """The archived projects that the person administers."""
    return Project.objects.filter(
        archived_at__isnull=False, memberships__user=user, memberships__role=Role.ADMIN
    )


def people_counts(projects: Iterable[Project]) -> dict[str, int]:
    """{project: its people who can sign in}."""
    rows = Membership.objects.filter(project__in=list(projects), user__is_active=True)
    return dict(rows.values_list("project").annotate(n=Count("pk")))


def invitations_open(project: Project) -> QuerySet[Invitation]:
    """Neither used nor revoked, the expired among them, newest first."""
    return project.invitations.filter(accepted_at=None, revoked_at=None)


def invitation_of(token: str) -> Invitation | None:
    """The invitation that this token still opens."""
    return (
        Invitation.objects.select_related("project")
        .filter(
            sha256=token_sha256(token),
            accepted_at=None,
            revoked_at=None,
            expires_at__gt=timezone.now(),
            project__archived_at=None,
        )
        .first()
    )


def _named_like(search: str, prefix: str = "") -> Q:
    return (
        Q(**{f"{prefix}username__icontains": search})
        | Q(**{f"{prefix}display_name__icontains": search})
        | Q(**{f"{prefix}email__icontains": search})
    )


def people_list(
    project: Project, *, search: str = "", role: str = "", imported: bool | None = None
) -> QuerySet[Membership]:
    """Memberships of a project by name; imported annotators, who cannot sign in, come last.

    `imported` keeps only those (True) or leaves them out (False).
    """
    rows = Membership.objects.select_related("user").filter(project=project)
    if imported is not None:
        rows = rows.filter(user__is_imported=imported)
    if role:
        rows = rows.filter(role=role)
    if search:
        rows = rows.filter(_named_like(search, "user__"))
    return rows.order_by("user__is_imported", "user__username")


def tokens_of(user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=user, revoked_at__isnull=True).order_by("-created_at")


def has_second_factor(user: User) -> bool:
    """Recovery codes alone are none."""
    kinds = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
    return Authenticator.objects.filter(user=user, type__in=kinds).exists()


def needs_second_factor(user: User) -> bool:
    """Whether a role of theirs needs a second factor (REQUIRE_SECOND_FACTOR), and they have none.
    Site administrators need one wherever anybody does."""
    roles = settings.REQUIRE_SECOND_FACTOR
    if not roles or has_second_factor(user):
        return False
    held = user.memberships.filter(role__in=roles - {SITE_ADMIN}, project__archived_at=None)
    return user.is_superuser or held.exists()


def sessions_of(user: User) -> list[BrowserSession]:
    """The browsers that are signed in as this person, used last first."""
    idle = timezone.now() - timedelta(hours=settings.SESSION_IDLE_HOURS, minutes=10)
    rows = BrowserSession.objects.filter(user=user, seen_at__gte=idle).order_by("-seen_at", "pk")
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    return [row for row in rows if store.exists(row.session_key)]


def audit_list(
    project: Project,
    *,
    search: str = "",
    action: str = "",
    since: date | None = None,
    until: date | None = None,
) -> QuerySet[AuditEvent]:
    """What was done in a project, newest first; `since` and `until` are days, both included."""
    rows = AuditEvent.objects.select_related("actor", "about").filter(project=project)
    if action:
        rows = rows.filter(action=action)
    if since:
        rows = rows.filter(at__date__gte=since)
    if until:
        rows = rows.filter(at__date__lte=until)
    if search:
        rows = rows.filter(
            Q(subject__icontains=search)
            | Q(action__icontains=search)
            | Q(actor__username__icontains=search)
            | Q(actor__display_name__icontains=search)
            | Q(about__username__icontains=search)
            | Q(about__display_name__icontains=search)
        )
    return rows.order_by("-at", "-id")


def audit_actions(project: Project) -> list[str]:
    """The kinds of action the project's log holds."""
    rows = AuditEvent.objects.filter(project=project).order_by("action")
    return list(rows.values_list("action", flat=True).distinct())


def notices_of(membership: Membership) -> QuerySet[Notice]:
    """What the person was told in the project since they joined it, newest first; what they did
    themselves is no news to them."""
    mine = Q(user=membership.user_id) | Q(user=None, roles__contains=[membership.role])
    rows = Notice.objects.filter(
        mine, project=membership.project_id, at__gte=membership.created_at
    ).exclude(by=membership.user_id)
    return rows.select_related("by").order_by("-id")


def notices_seen_by(membership: Membership) -> NoticesSeen:
    """How far they have looked; not at all, where they never did."""
    found = NoticesSeen.objects.filter(project=membership.project_id, user=membership.user_id)
    return found.first() or NoticesSeen(
        project_id=membership.project_id, user_id=membership.user_id
    )


def named_by(
    model: type[Model], field: str, url_name: str
) -> Callable[[Project, Collection[str]], dict[str, Named]]:
    """Finds rows of a project's model by their keys, for `registry.audit_subjects_add`."""

    def find(project: Project, keys: Collection[str]) -> dict[str, Named]:
        rows: Any = model._default_manager.filter(project=project, pk__in=keys)
        return {
            pk: Named(str(name), reverse(url_name, args=[project.slug, pk]))
            for pk, name in rows.values_list("pk", field)
        }

    return find


def maintenance_now() -> Maintenance | None:
    """What keeps people out of the site now; it stays until it is ended, however late it is."""
    return Maintenance.objects.first()
