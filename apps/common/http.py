"""The request our views get."""

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

if TYPE_CHECKING:
    from apps.accounts.models import Project, User


class Request(HttpRequest):
    """A request that passed the middleware: `htmx` is set; in project views, so are the rest."""

    htmx: HtmxDetails
    user: "User | Any"
    project: "Project"
    role: str
