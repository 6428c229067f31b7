"""The page each role lands on, the notifications behind the bell, and the pairs that a run made."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts import selectors as accounts
from apps.accounts.permissions import ANNOTATOR, EVERYONE, READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.labeling.forms.sending import SendPairsForm
from apps.labeling.services import LABELERS
from apps.loop import screens, selectors, services
from apps.loop.round_end import round_end_figures
from apps.loop.screens.selecting import SelectPairsForm, slices_of, verdict_of
from apps.loop.services import bell_seen
from apps.loop.services.selecting import pairs_select
from apps.training.models import Run
from apps.training.selectors import run_get
from workers.artifacts import ArtifactError

PER_PAGE = 50
PAIRS_PER_PAGE = 20


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
@project_page(READERS)
def demo_results(request: Request) -> HttpResponse:
    """How the demo's rounds ended: what people and the gate said of the policy, and its card."""
    ended = (round_end_figures(run) for run in selectors.evaluations_of_rounds(request.project))
    context = {
        "rounds": [found for found in ended if found],
        "may_open": request.role in STAFF,
        "page_title": "Results of the demo",
        "nav": "overview",
    }
    return render(request, "loop/demo_results.html", context)


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


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def pairs(request: Request, run_id: str) -> HttpResponse:
    """What a generation wrote, as its run's tab or a page of its own; sent to people and taken back
    here."""
    run = run_get(project=request.project, run_id=run_id)
    shown = screens.pairs_of(run)
    form = SendPairsForm(
        request.POST if request.POST.get("action") == "send" else None,
        most=shown.most,
        initial={"votes": shown.votes, "priority": shown.priority},
    )
    choosing = SelectPairsForm(
        request.POST if request.POST.get("choose") else None, initial={"pairs": len(shown.rows)}
    )
    refused = ""
    if request.method == "POST":
        try:
            if said := _pairs_act(request, run, form, choosing):
                messages.success(request, said)
                page = reverse("training:run", args=[request.project.slug, run.pk])
                return redirect(f"{page}?tab=pairs")
        except (DomainError, ArtifactError) as error:
            refused = str(error)
    context: dict[str, Any] = {
        "run": run,
        "pairs": shown,
        "choosing": choosing,
        "slices": slices_of(selectors.pairs_selection(run)),
        "verdict": verdict_of(request.project),
        "page": Paginator(shown.rows, PAIRS_PER_PAGE).get_page(request.GET.get("page")),
        "form": form,
        "refused": refused,
        "page_title": f"Pairs of {run.name}",
        "nav": "runs",
    }
    template = "loop/_pairs.html" if request.htmx else "loop/pairs.html"
    failed = refused or form.errors or choosing.errors
    return render(request, template, context, status=422 if failed else 200)


def _pairs_act(request: Request, run: Run, form: SendPairsForm, choosing: SelectPairsForm) -> str:
    """What was done, in words; nothing where the form is to be looked at."""
    if request.POST.get("action") == "take_back":
        n = services.fresh_pairs_take_back(run=run, by=request.user)
        return f"{n:,} pairs were taken back." if n else "No pair of this run was in the queue."
    if not form.is_valid():
        return ""
    if choosing.is_bound:
        return _pairs_chosen(request, run, choosing, form.cleaned_data["priority"])
    found = services.fresh_pairs_queue(run=run, by=request.user, **form.cleaned_data)
    left_out = f"; {found.refused:,} could not be compared" if found.refused else ""
    if not found.queued:
        return f"No new pair was queued{left_out}."
    return f"{found.queued:,} pairs are in the label queue{left_out}."


def _pairs_chosen(request: Request, run: Run, form: SelectPairsForm, priority: float) -> str:
    if (plan := form.plan()) is None:
        return ""
    try:
        found = pairs_select(run=run, plan=plan, priority=priority, by=request.user)
    except DomainError as error:
        if error.field not in form.fields:
            raise
        form.refuse(error)
        return ""
    return f"{found.queued:,} of {found.candidates:,} pairs are in the label queue."
