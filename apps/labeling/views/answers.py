"""An annotator's own answers."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import READERS, project_page
from apps.common.http import Request
from apps.labeling import selectors
from apps.labeling.forms import AnswersFilter
from apps.labeling.screens.answers import answer_rows, answers_only
from apps.labeling.services import LABELERS

PER_PAGE = 50


@require_safe
@project_page(LABELERS)
def answers(request: Request) -> HttpResponse:
    """What I have answered, newest first; each can be opened and changed."""
    form = AnswersFilter(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    found = selectors.answers_of(
        project=request.project,
        annotator=request.user,
        choice=wanted.get("choice", ""),
        search=wanted.get("q", ""),
    )
    found = answers_only(found, wanted.get("only", ""))
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "My answers",
        "nav": "answers",
        "form": form,
        "filtered": any(wanted.values()),
        "page": page,
        "rows": answer_rows(page, named=request.role in READERS),
        "n_today": selectors.answers_today(project=request.project, annotator=request.user),
    }
    return render(request, "labeling/answers.html", context)
