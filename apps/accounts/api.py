"""The API of people and projects."""

from datetime import date, datetime
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from ninja import Field, Query, Router, Schema, Status

from apps.accounts import screens, selectors, services
from apps.accounts.api_auth import fresh_sign_in_demand, needs
from apps.accounts.models import Invitation, Membership, Project, Role, User
from apps.accounts.permissions import ADMIN, READERS, project_for
from apps.accounts.services.invitations import MAX_DAYS
from apps.common.errors import Missing, Refused
from apps.common.row_files import FILE_SENT, MEDIA, Export, download_response

router = Router(tags=["projects and people"])
ADMINS = frozenset({ADMIN})


class ProjectIn(Schema):
    name: str = Field(max_length=120, min_length=1)
    slug: str = Field("", max_length=60, pattern=r"^[a-z0-9-]*$", description="made from the name")
    description: str = Field("", max_length=5000)


class NewProjectIn(ProjectIn):
    copy_of: str = Field("", description="a project of yours whose settings the new one gets")
    answers: dict[str, str] = Field(
        {},
        description="to what a new project is asked, instead of the usual or the copied: "
        "task_kind (pair, rank, grade)",
    )


class ProjectChangeIn(Schema):
    name: str | None = Field(None, max_length=120, min_length=1)
    description: str | None = Field(None, max_length=5000)


class ProjectDeleteIn(Schema):
    name: str = Field(description="the name of the project, to prove that it is the one you mean")


class InvitationIn(Schema):
    role: Role
    email: str = Field("", max_length=254, description="empty: a link for whoever gets it")
    days: int = Field(14, ge=1, le=MAX_DAYS)


class InvitationOut(Schema):
    id: str
    role: str
    email: str
    created_at: datetime
    expires_at: datetime
    path: str = Field("", description="of the link, in the answer that makes it and never again")


class ProjectOut(Schema):
    slug: str
    name: str
    description: str
    role: str = Field(description="your role in it")
    created_at: datetime


class PersonOut(Schema):
    username: str
    display_name: str
    role: str
    since: datetime


class AuditEventOut(Schema):
    id: int
    at: datetime
    person: str = Field(description="a username; empty for the system")
    action: str
    subject: str
    sentence: str = Field(description="who did what, as the audit log's page says it")
    details: dict[str, Any]


class MembershipIn(Schema):
    role: Role


class MeOut(Schema):
    username: str
    display_name: str
    projects: list[ProjectOut]


def _project(project: Project, role: str) -> ProjectOut:
    return ProjectOut(
        slug=project.slug,
        name=project.name,
        description=project.description,
        role=role,
        created_at=project.created_at,
    )


def _person(membership: Membership) -> PersonOut:
    return PersonOut(
        username=membership.user.username,
        display_name=membership.user.display_name,
        role=membership.role,
        since=membership.created_at,
    )


def _projects(user: User) -> list[ProjectOut]:
    return [_project(m.project, m.role) for m in selectors.memberships_of(user)]


@router.get("/me", auth=needs("read"), response=MeOut, summary="Who the token belongs to")
def me(request: HttpRequest) -> MeOut:
    user = request.user
    return MeOut(username=user.username, display_name=user.display_name, projects=_projects(user))


@router.get("/projects", auth=needs("read"), response=list[ProjectOut], summary="Your projects")
def project_list(request: HttpRequest) -> list[ProjectOut]:
    return _projects(request.user)


@router.post(
    "/projects", auth=needs("write"), response={201: ProjectOut}, summary="Create a project"
)
def project_create(request: HttpRequest, payload: NewProjectIn) -> Status:
    """You become its first admin. Needs somebody who administers a project already, or whom an
    administrator of the site allows it."""
    given = payload.dict()
    if slug := given.pop("copy_of"):
        given["copy_of"], _ = project_for(request.user, slug, ADMINS)
    project = services.project_create(**given, by=request.user)
    return Status(201, _project(project, Role.ADMIN))


@router.patch(
    "/projects/{slug}", auth=needs("write"), response=ProjectOut, summary="Rename, describe"
)
def project_change(request: HttpRequest, slug: str, payload: ProjectChangeIn) -> ProjectOut:
    project, role = project_for(request.user, slug, ADMINS)
    given = payload.dict(exclude_none=True)
    now = {"name": project.name, "description": project.description}
    services.project_change(project=project, by=request.user, **now | given)
    return _project(project, role)


@router.post(
    "/projects/{slug}/archive",
    auth=needs("write"),
    response={204: None},
    summary="Archive a project",
)
def project_archive(request: HttpRequest, slug: str) -> Status:
    """Nobody reaches it any more until it is restored; nothing is deleted."""
    project, _ = project_for(request.user, slug, ADMINS)
    services.project_archive(project=project, by=request.user)
    return Status(204, None)


@router.post(
    "/projects/{slug}/restore",
    auth=needs("write"),
    response=ProjectOut,
    summary="Restore an archived project",
)
def project_restore(request: HttpRequest, slug: str) -> ProjectOut:
    project = _archived(request.user, slug)
    services.project_restore(project=project, by=request.user)
    return _project(project, Role.ADMIN)


@router.post(
    "/projects/{slug}/delete",
    auth=needs("admin"),
    response={204: None},
    summary="Delete an archived project",
)
def project_delete(request: HttpRequest, slug: str, payload: ProjectDeleteIn) -> Status:
    """Its comparisons, votes, datasets, runs and models go; the audit log stays."""
    project = _archived(request.user, slug)
    services.project_delete(project=project, typed=payload.name, by=request.user)
    return Status(204, None)


def _archived(user: User, slug: str) -> Project:
    project = selectors.archived_of(user).filter(slug=slug).first()
    if project is None:
        raise Missing("You administer no archived project of this address.", field="project")
    return project


@router.get("/projects/{slug}", auth=needs("read"), response=ProjectOut, summary="One project")
def project_get(request: HttpRequest, slug: str) -> ProjectOut:
    return _project(*project_for(request.user, slug))


@router.get(
    "/projects/{slug}/people", auth=needs("read"), response=list[PersonOut], summary="Its people"
)
def people_list(
    request: HttpRequest, slug: str, limit: int = Query(1000, ge=1, le=5000)
) -> list[PersonOut]:
    project, _ = project_for(request.user, slug, READERS)
    return [_person(row) for row in selectors.people_list(project)[:limit]]


@router.get(
    "/projects/{slug}/audit-log",
    auth=needs("read"),
    response=list[AuditEventOut],
    summary="Who did what, newest first",
)
def audit_log(
    request: HttpRequest,
    slug: str,
    search: str = "",
    action: str = "",
    since: date | None = None,
    until: date | None = None,
    before: int | None = Query(None, description="the id of the last event you have"),
    limit: int = Query(100, ge=1, le=1000),
) -> list[AuditEventOut]:
    project, _ = project_for(request.user, slug, ADMINS)
    rows = selectors.audit_list(project, search=search, action=action, since=since, until=until)
    events = list((rows.filter(pk__lt=before) if before else rows)[:limit])
    return [
        AuditEventOut(
            id=event.pk,
            at=event.at,
            person=event.actor.username if event.actor else "",
            action=event.action,
            subject=event.shown_subject,
            sentence=line.words,
            details=event.details,
        )
        for event, line in zip(events, screens.audit_lines(project, events), strict=True)
    ]


@router.get(
    "/audit-log",
    auth=needs("admin"),
    summary="Every sealed event of the site with the hashes of the chain, as JSON Lines",
    openapi_extra=FILE_SENT,
)
def site_audit_log(
    request: HttpRequest,
    after: int = Query(0, ge=0, description="the position of the last event you have"),
) -> HttpResponseBase:
    """For administrators of the site. `manage.py audit_verify --file` checks what is sent."""
    if not request.user.is_superuser:
        raise Refused("This is for administrators of the site.")
    fresh_sign_in_demand(request, reads=True)
    lines = services.audit_jsonl(by=request.user, after=after)
    return download_response(Export("audit-log.jsonl", MEDIA["jsonl"], lines))


@router.get(
    "/projects/{slug}/invitations",
    auth=needs("admin"),
    response=list[InvitationOut],
    summary="Open invitations",
)
def invitation_list(request: HttpRequest, slug: str) -> list[InvitationOut]:
    project, _ = project_for(request.user, slug, ADMINS)
    return [_invitation(row) for row in selectors.invitations_open(project)]


@router.post(
    "/projects/{slug}/invitations",
    auth=needs("admin"),
    response={201: InvitationOut},
    summary="Invite a person",
)
def invitation_create(request: HttpRequest, slug: str, payload: InvitationIn) -> Status:
    """The answer holds the path of a link that works once; hand it over, nothing is mailed."""
    project, _ = project_for(request.user, slug, ADMINS)
    row, token = services.invitation_create(project=project, by=request.user, **payload.dict())
    return Status(201, _invitation(row, token))


@router.delete(
    "/projects/{slug}/invitations/{invitation_id}",
    auth=needs("admin"),
    response={204: None},
    summary="Withdraw an invitation",
)
def invitation_revoke(request: HttpRequest, slug: str, invitation_id: str) -> Status:
    project, _ = project_for(request.user, slug, ADMINS)
    row = project.invitations.filter(pk=invitation_id).first()
    if row is None:
        raise Missing("There is no such invitation.", field="invitation_id")
    services.invitation_revoke(invitation=row, by=request.user)
    return Status(204, None)


def _invitation(row: Invitation, token: str = "") -> InvitationOut:
    return InvitationOut(
        id=row.pk,
        role=row.role,
        email=row.email,
        created_at=row.created_at,
        expires_at=row.expires_at,
        path=reverse("accounts:invitation", args=[token]) if token else "",
    )


@router.put(
    "/projects/{slug}/people/{username}",
    auth=needs("admin"),
    response=PersonOut,
    summary="Give a person a role",
)
def person_set(request: HttpRequest, slug: str, username: str, payload: MembershipIn) -> PersonOut:
    project, _ = project_for(request.user, slug, ADMINS)
    user = _user(username)
    membership = services.membership_set(
        project=project, user=user, role=payload.role, by=request.user
    )
    return _person(membership)


@router.delete(
    "/projects/{slug}/people/{username}",
    auth=needs("admin"),
    response={204: None},
    summary="Take a person out of the project",
)
def person_remove(request: HttpRequest, slug: str, username: str) -> Status:
    project, _ = project_for(request.user, slug, ADMINS)
    services.membership_remove(project=project, user=_user(username), by=request.user)
    return Status(204, None)


def _user(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise Missing(f"Nobody has the sign-in name '{username}'.", field="username")
    return user
