"""The people of the tests: Ana annotates, Rita reviews, Emil engineers, Ada administers.

Olga is an outsider: she can sign in, and belongs to another project.
"""

from collections.abc import Callable, Iterator

import pytest
from django.core.cache import cache
from django.test import Client

from apps.accounts.models import Membership, Project, Role, User
from apps.labeling.models import Annotator

PASSWORD = "correct-horse-battery"


def person_make(name: str, project: Project | None = None, role: str = "") -> User:
    user = User.objects.create_user(name.lower(), f"{name.lower()}@example.org", PASSWORD)
    user.display_name = name
    user.save(update_fields=["display_name"])
    if project is not None:
        Membership.objects.create(project=project, user=user, role=role)
        # They have read the first guidelines; a later major version finds them waiting.
        Annotator.objects.create(project=project, user=user, acknowledged_version=1)
    return user


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="arguments", name="Arguments")


@pytest.fixture
def ana(project: Project) -> User:
    return person_make("Ana", project, Role.ANNOTATOR)


@pytest.fixture
def rita(project: Project) -> User:
    return person_make("Rita", project, Role.REVIEWER)


@pytest.fixture
def emil(project: Project) -> User:
    return person_make("Emil", project, Role.ENGINEER)


@pytest.fixture
def ada(project: Project) -> User:
    return person_make("Ada", project, Role.ADMIN)


@pytest.fixture
def olga(db: None) -> User:
    other = Project.objects.create(slug="elsewhere", name="Elsewhere")
    return person_make("Olga", other, Role.ADMIN)


@pytest.fixture
def signed_in() -> Callable[[User], Client]:
    def make(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def fresh_sign_in_counts() -> Iterator[None]:
    """Failed sign-ins of other tests are forgotten, and those of this one after it."""
    cache.clear()
    yield
    cache.clear()
