"""The API of people and projects."""

from datetime import datetime

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from apps.accounts import selectors, services
from apps.accounts.api_auth import needs
from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.permissions import ADMIN, READERS, project_for
from apps.common.errors import Missing

router = Router(tags=["projects and people"])
ADMINS = frozenset({ADMIN})


class ProjectIn(Schema):
    name: str = Field(max_length=120, min_length=1)
    slug: str = Field("", max_length=60, pattern=r"^[a-z0-9-]*$", description="made from the name")
    description: str = Field("", max_length=5000)


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
def project_create(request: HttpRequest, payload: ProjectIn) -> Status:
    """You become its first admin. Needs a person who administers a project already."""
    project = services.project_create(**payload.dict(), by=request.user)
    return Status(201, _project(project, Role.ADMIN))


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
