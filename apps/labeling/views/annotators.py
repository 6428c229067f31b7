"""The people who label, for admins: how much they do, how they stand, what they may get."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import services as accounts
from apps.accounts.models import Membership
from apps.accounts.permissions import ADMIN, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.registry import annotator_pages
from apps.labeling import selectors, services
from apps.labeling.forms.settings import AnnotatorsFilter, LimitsForm, PauseForm
from apps.labeling.models import Annotator, QualificationAttempt
from apps.labeling.screens import annotators as reads
from apps.labeling.screens.label import LOOKS

ADMINS = frozenset({ADMIN})
PER_PAGE = 50


@require_safe
@project_page(ADMINS)
def annotators(request: Request) -> HttpResponse:
    form = AnnotatorsFilter(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    settings = selectors.settings_get(project=request.project)
    found = reads.annotators_list(
        project=request.project,
        search=wanted.get("q", ""),
        state=wanted.get("state", ""),
        sort=wanted.get("sort") or "name",
    )
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Annotators",
        "nav": "annotators",
        "form": form,
        "filtered": bool(wanted.get("q") or wanted.get("state")),
        "page": page,
        "rows": [
            {"person": row, "qualification": reads.qualification_words(row, settings)}
            for row in page
        ],
        "settings": settings,
        "due": reads.newest_major(project=request.project)
        if settings.acknowledge_guidelines
        else None,
        "n_imported": reads.imported_count(project=request.project),
        "figures": annotator_pages(),
    }
    return render(request, "labeling/annotators.html", context | _practice(request, settings))


def _practice(request: Request, settings: Any) -> dict[str, int]:
    """Practice pairs wanted and there, so that a round nobody can begin is seen; and how many
    people it stops who have worked here before."""
    if not settings.qualification_pairs:
        return {}
    pairs = services.practice_pairs(project=request.project, settings=settings)
    return {
        "practice_wanted": settings.qualification_pairs,
        "practice_ready": pairs.count(),
        "n_stopped": services.experienced_unqualified(project=request.project).count(),
    }


@require_POST
@project_page(ADMINS)
def annotators_qualify(request: Request) -> HttpResponse:
    """Qualify by hand all who have answered pairs here before."""
    n = services.annotators_qualify_experienced(project=request.project, by=request.user)
    messages.success(request, f"{n} {'person' if n == 1 else 'people'} qualified.")
    return redirect("labeling:annotators", request.project.slug)


@require_safe
@project_page(ADMINS)
def annotator(request: Request, user_id: int) -> HttpResponse:
    return _page(request, _person(request, user_id))


@require_POST
@project_page(ADMINS)
def annotator_limits(request: Request, user_id: int) -> HttpResponse:
    person = _person(request, user_id)
    form = _limits_form(request, person, request.POST)
    if not form.is_valid():
        return _page(request, person, limits=form)

    def act() -> str:
        services.annotator_limits_set(
            project=request.project, user=person.user, by=request.user, **form.cleaned_data
        )
        return "Saved. It holds from the next pair on."

    return _try(request, person, act, form, "limits")


@require_POST
@project_page(ADMINS)
def annotator_pause(request: Request, user_id: int) -> HttpResponse:
    """Pause with a reason, or `action=resume`."""
    person = _person(request, user_id)
    who = {"project": request.project, "user": person.user, "by": request.user}
    if request.POST.get("action") == "resume":
        accounts.membership_resume(**who)
        messages.success(request, f"{person.user} gets pairs again.")
        return redirect("labeling:annotator", request.project.slug, user_id)
    form = PauseForm(request.POST)
    if not form.is_valid():
        return _page(request, person, pause=form)

    def act() -> str:
        accounts.membership_pause(**who, reason=form.cleaned_data["reason"])
        return f"{person.user} gets no more pairs until you resume their labeling."

    return _try(request, person, act, form, "pause")


@require_POST
@project_page(ADMINS)
def annotator_qualification(request: Request, user_id: int) -> HttpResponse:
    """Qualify by hand, take it back, or grant another attempt."""
    person = _person(request, user_id)
    deeds: dict[str, tuple[Callable[..., Any], str]] = {
        "qualify": (services.annotator_qualify, "{} may label now."),
        "disqualify": (services.annotator_disqualify, "{} has to qualify before the next pair."),
        "grant": (services.attempt_grant, "{} can start another attempt."),
    }
    if request.POST.get("action") not in deeds:
        raise Http404("no such action")
    deed, said = deeds[request.POST["action"]]
    try:
        deed(project=request.project, user=person.user, by=request.user)
    except DomainError as error:
        messages.warning(request, error.message)
    else:
        messages.success(request, said.format(person.user))
    return redirect("labeling:annotator", request.project.slug, user_id)


def _try(
    request: Request, person: Membership, act: Callable[[], str], form: Any, name: str
) -> HttpResponse:
    """Act and say what was done; a refusal is shown at its field, with what was typed."""
    try:
        said = act()
    except DomainError as error:
        form.add_error(error.field if error.field in form.fields else None, error.message)
        return _page(request, person, **{name: form})
    messages.success(request, said)
    return redirect("labeling:annotator", request.project.slug, person.user_id)


def _person(request: Request, user_id: int) -> Membership:
    """Their row of the list; 404 for who does not label here."""
    found = reads.annotators_list(project=request.project).filter(user_id=user_id).first()
    if found is None:
        raise Http404("no such annotator")
    return found


def _limits_form(request: Request, person: Membership, data: Any = None) -> LimitsForm:
    current = Annotator.objects.filter(project=request.project, user=person.user).first()
    return LimitsForm(
        data,
        current=current or Annotator(project=request.project, user=person.user),
        topics=reads.topics_of(project=request.project),
        languages=reads.languages_of(project=request.project),
    )


def _page(
    request: Request,
    person: Membership,
    *,
    limits: LimitsForm | None = None,
    pause: PauseForm | None = None,
) -> HttpResponse:
    settings = selectors.settings_get(project=request.project)
    status = services.labeling_status(project=request.project, annotator=person.user)
    attempts = QualificationAttempt.objects.filter(project=request.project, user=person.user)
    context = {
        "page_title": str(person.user),
        "nav": "annotators",
        "person": person,
        "figures": annotator_pages(),
        "settings": settings,
        "words": reads.qualification_words(person, settings),
        "qualification": services.qualification_of(project=request.project, user=person.user),
        "attempts": list(attempts.order_by("-number")),
        "status": status,
        "why_not": LOOKS[status.nothing.code].words if status.nothing else "",
        "due": reads.newest_major(project=request.project),
        "limits": limits or _limits_form(request, person),
        "pause": pause or PauseForm(),
    }
    return render(
        request, "labeling/annotator.html", context, status=422 if limits or pause else 200
    )
