"""Comments on a comparison, and questions from the label screen."""

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import JUDGES, project_page
from apps.common.errors import DomainError, Missing, Refused
from apps.common.http import Request
from apps.labeling import selectors
from apps.labeling.forms import AskForm, CommentForm
from apps.labeling.models import Comparison
from apps.labeling.screens.label import turns_shown
from apps.labeling.selectors import comments as reads
from apps.labeling.services import LABELERS
from apps.labeling.services import comments as services
from apps.labeling.texts import excerpt
from apps.labeling.views.label import label_url

PER_PAGE = 50


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(JUDGES)
def comments(request: Request, comparison_id: int) -> HttpResponse:
    """A comparison's thread. What is posted is a comment, or the answer to a question."""
    comparison = selectors.comparison_get(project=request.project, comparison=comparison_id)
    if request.method != "POST":
        return _page(request, comparison)
    form = CommentForm(request.POST)
    if form.is_valid():
        try:
            services.comment_add(comparison=comparison, author=request.user, **form.cleaned_data)
        except (Missing, Refused):
            raise
        except DomainError as error:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            return _thread(request, comparison.pk)
    return _page(request, comparison, form)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(JUDGES)
def comment(request: Request, comment_id: int) -> HttpResponse:
    """Change one's own comment, or delete it (`action=delete`)."""
    found = reads.comment_get(project=request.project, comment=comment_id)
    if request.POST.get("action") == "delete":
        services.comment_delete(comment=found, by=request.user)
        messages.success(request, "The comment is deleted.")
        return _thread(request, found.comparison_id)
    form = CommentForm(request.POST if request.method == "POST" else {"text": found.text})
    if request.method == "POST" and form.is_valid():
        try:
            services.comment_edit(comment=found, by=request.user, text=form.cleaned_data["text"])
        except Refused:
            raise
        except DomainError as error:
            form.add_error("text", error.message)
        else:
            return _thread(request, found.comparison_id)
    context = {"page_title": "Edit comment", "nav": "comparisons", "comment": found, "form": form}
    status = 422 if request.method == "POST" else 200
    return render(request, "labeling/comment_edit.html", context, status=status)


def _thread(request: Request, comparison: int) -> HttpResponse:
    url = reverse("labeling:comparison", args=[request.project.slug, comparison])
    return redirect(f"{url}#comments")


def _page(
    request: Request, comparison: Comparison, form: CommentForm | None = None
) -> HttpResponse:
    context = {
        "page_title": f"Comments on {comparison.external_id or comparison.pk}",
        "nav": "comparisons",
        "comparison": comparison,
        "prompt": turns_shown(comparison.prompt.brief),
        "thread": reads.thread_of(comparison=comparison, reader=request.user, role=request.role),
        "comment_form": form,
    }
    return render(request, "labeling/comments.html", context, status=422 if form else 200)


@require_safe
@project_page(LABELERS)
def questions(request: Request) -> HttpResponse:
    """What waits for reviewers and admins; what somebody asked themselves, with the answers."""
    judges = request.role in JUDGES
    if judges:
        translation.activate(settings.LANGUAGE_CODE)  # their part of this page is English
    found = (
        reads.questions_open(project=request.project)
        if judges
        else reads.questions_of(project=request.project, annotator=request.user)
    )
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Questions" if judges else gettext("My questions"),
        "nav": "disputes" if judges else "answers",
        "judges": judges,
        "page": page,
        "rows": [
            (row, excerpt(row.comment.comparison.prompt.brief))
            for row in reads.shown(page.object_list, request.user, request.role)
        ],
    }
    return render(request, "labeling/questions.html", context)


@require_POST
@project_page(LABELERS)
def ask(request: Request) -> HttpResponse:
    """A question to the reviewers about the pair in hand; the pair stays where it is."""
    form = AskForm(request.POST)
    try:
        form.check()
        services.question_ask(project=request.project, annotator=request.user, **form.cleaned_data)
        error = ""
    except DomainError as refused:
        error = refused.message
    if request.htmx:
        return render(request, "labeling/_asked.html", {"error": error})
    said = "Your question was sent. The answer comes by the bell."
    (messages.error if error else messages.success)(request, error or said)
    return redirect(label_url(request))
