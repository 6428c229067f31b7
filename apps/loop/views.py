"""The page each role lands on, and the notifications behind the bell."""

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import translation
from django.utils.translation import gettext
from django.views.decorators.http import require_safe

from apps.accounts import selectors as accounts
from apps.accounts.permissions import ANNOTATOR, EVERYONE, project_page
from apps.common.http import Request
from apps.labeling.services import LABELERS
from apps.loop import screens
from apps.loop.services import bell_seen

PER_PAGE = 50


def _speak(request: Request) -> None:
    """These pages are translated for annotators; what others see on them is English."""
    if request.role != ANNOTATOR:
        translation.activate(settings.LANGUAGE_CODE)


@require_safe
@project_page(EVERYONE)
def overview(request: Request) -> HttpResponse:
    _speak(request)
    context = {
        "overview": screens.overview_of(request.membership),
        "page_title": gettext("Overview"),
        "nav": "overview",
    }
    return render(request, "loop/overview.html", context)


@require_safe
@project_page(LABELERS)
def progress(request: Request) -> HttpResponse:
    """How one does oneself: pace, agreement, practice, and gold pairs where the project says so."""
    found = screens.results_of(request.membership)
    page = Paginator(() if found.gold is None else found.gold, PER_PAGE).get_page(
        request.GET.get("page")
    )
    page.object_list = [screens.gold_shown(vote) for vote in page.object_list]
    context = {
        "own": found.own,
        "attempts": found.attempts,
        "shows_gold": found.gold is not None,
        "gold": page,
        "gold_right": found.n_right,
        "page_title": gettext("My progress"),
        "nav": "answers",
    }
    return render(request, "loop/progress.html", context)


@require_safe
@project_page(EVERYONE)
def notifications(request: Request) -> HttpResponse:
    """Looking at the first page of them is having seen them."""
    _speak(request)
    seen = accounts.notices_seen_by(request.membership)
    page = Paginator(accounts.notices_of(request.membership), PER_PAGE).get_page(
        request.GET.get("page")
    )
    needs = screens.needs_of(request.project, request.role)
    context = {
        "page": page,
        "seen": seen.notice,
        "needs": [(need, need.n > seen.needs.get(need.key, 0)) for need in needs],
        "page_title": gettext("Notifications"),
        "nav": "notifications",
    }
    if page.number == 1:
        newest = page.object_list[0].pk if page.object_list else seen.notice
        bell_seen(
            membership=request.membership,
            notice=newest,
            needs={need.key: need.n for need in needs},
        )
    return render(request, "loop/notifications.html", context)
