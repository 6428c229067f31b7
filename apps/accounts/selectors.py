"""Reads of people, roles, tokens and the audit log."""

from django.db.models import Q, QuerySet

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role, User


def memberships_of(user: User) -> list[Membership]:
    """The person's memberships in unarchived projects, by the projects' names."""
    return list(
        Membership.objects.select_related("project")
        .filter(user=user, project__archived_at__isnull=True)
        .order_by("project__name")
    )


def may_create_projects(user: User) -> bool:
    """Superusers, and whoever administers a project already."""
    return user.is_superuser or user.memberships.filter(role=Role.ADMIN).exists()


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
        rows = rows.filter(
            Q(user__username__icontains=search)
            | Q(user__display_name__icontains=search)
            | Q(user__email__icontains=search)
        )
    return rows.order_by("user__is_imported", "user__username")


def tokens_of(user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user=user, revoked_at__isnull=True).order_by("-created_at")


def audit_list(project: Project, *, search: str = "", action: str = "") -> QuerySet[AuditEvent]:
    """What was done in a project, newest first."""
    rows = AuditEvent.objects.select_related("actor").filter(project=project)
    if action:
        rows = rows.filter(action=action)
    if search:
        rows = rows.filter(
            Q(subject__icontains=search)
            | Q(action__icontains=search)
            | Q(actor__username__icontains=search)
        )
    return rows.order_by("-at", "-id")


def audit_actions(project: Project) -> list[str]:
    """The kinds of action the project's log holds."""
    rows = AuditEvent.objects.filter(project=project).order_by("action")
    return list(rows.values_list("action", flat=True).distinct())
