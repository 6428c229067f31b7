"""All votes of one person, for admins: narrowed, discarded and asked of others, brought back."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.models import User
from apps.accounts.permissions import ADMIN, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.registry import annotator_pages
from apps.labeling import services
from apps.labeling.forms.person_votes import DiscardForm, VotesForm
from apps.labeling.screens import person_votes as screen
from apps.labeling.selectors.person_votes import discards_of, person_of, person_votes

ADMINS = frozenset({ADMIN})
PER_PAGE = 50


@require_safe
@project_page(ADMINS)
def votes(request: Request, user_id: int) -> HttpResponse:
    person, form = _person(request, user_id), VotesForm(request.GET)
    found = person_votes(project=request.project, annotator=person, wanted=form.wanted())
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": f"Votes of {person}",
        "nav": "annotators",
        "person": person,
        "form": form,
        "filtered": bool(form.wanted().as_dict()),
        "page": page,
        "rows": screen.rows(page),
        "query": form.query(),
        "discards": discards_of(project=request.project, annotator=person),
        "figures": annotator_pages(),
    }
    return render(request, "labeling/person_votes.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(ADMINS)
def votes_discard(request: Request, user_id: int) -> HttpResponse:
    """What discarding the votes of the filter would do; a POST does it."""
    person = _person(request, user_id)
    if not VotesForm(request.GET).is_valid():
        return redirect("labeling:person_votes", request.project.slug, user_id)
    form = DiscardForm(request.POST) if request.method == "POST" else None
    if form is None or not form.is_valid():
        return _discard_page(request, person, form)
    try:
        done = services.votes_discard(
            project=request.project,
            annotator=person,
            by=request.user,
            wanted=VotesForm(request.GET).wanted(),
            **form.cleaned_data,
        )
    except DomainError as error:
        form.add_error("reason" if error.field == "reason" else None, error.message)
        return _discard_page(request, person, form)
    messages.success(
        request,
        f"{done.n_votes:,} votes were discarded; {done.n_asked:,} are asked of others again.",
    )
    return redirect("labeling:person_votes", request.project.slug, user_id)


@require_POST
@project_page(ADMINS)
def discard_undo(request: Request, user_id: int, discard_id: int) -> HttpResponse:
    try:
        done = services.discard_undo(project=request.project, discard=discard_id, by=request.user)
        messages.success(request, f"{done.n_votes:,} votes count again.")
    except DomainError as error:
        messages.error(request, error.message)
    return redirect("labeling:person_votes", request.project.slug, user_id)


def _discard_page(request: Request, person: User, form: DiscardForm | None) -> HttpResponse:
    wanted = VotesForm(request.GET)
    context: dict[str, Any] = {
        "page_title": f"Discard votes of {person}",
        "nav": "annotators",
        "person": person,
        "query": wanted.query(),
        "narrowed": screen.filter_words(wanted),
    }
    try:
        preview = services.votes_discard(
            project=request.project,
            annotator=person,
            by=request.user,
            wanted=wanted.wanted(),
            dry_run=True,
        )
    except DomainError as error:
        messages.error(request, error.message)
        url = reverse("labeling:person_votes", args=[request.project.slug, person.pk])
        return redirect(f"{url}?{wanted.query()}")
    context |= {
        "preview": preview,
        "changes": screen.changes(preview),
        "form": form or DiscardForm(initial={"pause": True}),
    }
    status = 200 if form is None else 422
    return render(request, "labeling/person_votes_discard.html", context, status=status)


def _person(request: Request, user_id: int) -> User:
    person = person_of(project=request.project, user_id=user_id)
    if person is None:
        raise Http404("no such annotator")
    return person
