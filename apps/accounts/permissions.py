"""Who may do what: a person's role in a project, checked before a view or endpoint runs.

An outsider gets 404, since a project's existence is nobody else's business; a member whose role
does not allow it gets 403.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.utils import translation
from django.utils.translation import gettext

from apps.accounts.identity import membership_get
from apps.accounts.models import Project, Role, User
from apps.common import turns
from apps.common.errors import Missing, Refused
from apps.common.http import Request, language_of
from apps.common.refusals import note_reason

ANNOTATOR, REVIEWER, ENGINEER, ADMIN = Role.ANNOTATOR, Role.REVIEWER, Role.ENGINEER, Role.ADMIN
EVERYONE = frozenset(Role)
STAFF = frozenset({ENGINEER, ADMIN})
JUDGES = frozenset({REVIEWER, ADMIN})
READERS = frozenset({REVIEWER, ENGINEER, ADMIN})


OUTSIDER = "outsider"  # why somebody was refused: the project is others'


class Outsider(Missing):
    """To who asks it is as if there were no such project; the audit log knows better."""

    reason = OUTSIDER


def project_for(user: User, slug: str, roles: frozenset[str] = EVERYONE) -> tuple[Project, str]:
    """(project, role), or `Missing` for outsiders and `Refused` for other roles (the API's way)."""
    membership = membership_get(user=user, slug=slug)
    if membership is None:
        raise Outsider("There is no such project, or you are not a member of it.", field="project")
    if membership.role not in roles:
        wanted = ", ".join(sorted(str(role) for role in roles))
        raise Refused(f"Your role here is {membership.role}; this needs one of: {wanted}.")
    turns.project_known(person=user.pk, project=membership.project_id)
    return membership.project, membership.role


def project_page(roles: frozenset[str] = EVERYONE) -> Callable[..., Any]:
    """Decorator of page views whose URL starts with `<slug:slug>/`.

    Sets `request.project`, `request.role`, `request.membership` and calls the view without `slug`.
    Signing in is already required by LoginRequiredMiddleware.
    """

    def decorate(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def inner(request: Request, slug: str, *args: Any, **kwargs: Any) -> HttpResponse:
            membership = membership_get(user=request.user, slug=slug)
            if membership is None:
                note_reason(request, OUTSIDER)
                raise Http404("no such project")
            if membership.role not in roles:
                with translation.override(language_of(request)):
                    raise PermissionDenied(
                        gettext("Your role in %(project)s is %(role)s.")
                        % {
                            "project": membership.project.name,
                            "role": membership.get_role_display(),
                        }
                    )
            turns.project_known(person=request.user.pk, project=membership.project_id)
            request.membership = membership
            request.project, request.role = membership.project, membership.role
            return view(request, *args, **kwargs)

        inner.roles = roles
        return inner

    return decorate
