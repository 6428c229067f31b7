"""A label page in plain ORM calls, with the same sign-in, CSRF check and membership check.

Kept smaller than Concord's: texts are shown without Markdown, there are no flags, no undo, no
count of what remains.
"""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import include, path
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.models import Membership, Project
from apps.accounts.urls import allauth_urls
from apps.labeling.models import Slot
from benchmarks import plain_orm

_CANONICAL = {"left": "a", "right": "b", "tie": "tie"}  # the plain cycle shows A left always


def _project(request: HttpRequest, slug: str) -> Project:
    return get_object_or_404(
        Membership.objects.select_related("project"), project__slug=slug, user=request.user
    ).project


def _page(request: HttpRequest, project: Project, slot: Slot, vote: int | None) -> HttpResponse:
    return render(request, "plain_pair.html", {"project": project, "slot": slot, "vote": vote})


@require_GET
def label(request: HttpRequest, slug: str) -> HttpResponse:
    project = _project(request, slug)
    return _page(request, project, plain_orm.lease(project, request.user), None)


@require_POST
def vote(request: HttpRequest, slug: str) -> HttpResponse:
    project = _project(request, slug)
    stored, held = plain_orm.vote(
        project, request.user, int(request.POST["slot"]), _CANONICAL[request.POST["answer"]]
    )
    return _page(request, project, held, stored.pk)


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse("signed in")


urlpatterns = [
    path("", home, name="home"),
    path("p/<slug:slug>/label/", label),
    path("p/<slug:slug>/label/vote/", vote),
    path("", include("apps.accounts.urls")),
    path("", include(allauth_urls)),
]
