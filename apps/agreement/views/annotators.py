"""The pages about annotators: everybody beside each other, and one person with the evidence."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.models import User
from apps.accounts.permissions import ADMIN, READERS, project_page
from apps.agreement.forms import AnnotatorsFilter, LeaveOutForm
from apps.agreement.screens import annotator_charts as charts
from apps.agreement.screens import annotators as screen
from apps.agreement.selectors import annotators as reads
from apps.agreement.selectors.values import values_controls
from apps.agreement.services.annotators import (
    annotator_leave_out,
    annotator_reports_refresh,
    annotator_take_in,
)
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling.texts import excerpt

PER_PAGE = 50


@require_safe
@project_page(READERS)
def annotators(request: Request) -> HttpResponse:
    form = AnnotatorsFilter(request.GET)
    page = Paginator(_found(request, form), PER_PAGE).get_page(request.GET.get("page"))
    wanted = form.cleaned_data if form.is_valid() else {}
    context = {
        "page_title": "Annotators",
        "nav": "agreement",
        "form": form,
        "filtered": any(wanted.get(name) for name in ("q", "show", "least")),
        "page": page,
        "rows": screen.list_rows(list(page), with_names=request.role == ADMIN),
        "summary": reads.summary_of(project=request.project),
        "kinds": reads.flag_kinds(project=request.project),
        "with_names": request.role == ADMIN,
    }
    return render(request, "agreement/annotators.html", context)


@require_safe
@project_page(READERS)
def annotators_csv(request: Request) -> StreamingHttpResponse:
    """The list as it is filtered, all pages of it."""
    found = _found(request, AnnotatorsFilter(request.GET))
    rows = screen.csv_rows(list(found), with_names=request.role == ADMIN)
    return _csv(screen.CSV_COLUMNS, rows, f"{request.project.slug}-annotators.csv")


@require_POST
@project_page(READERS)
def annotators_refresh(request: Request) -> HttpResponse:
    n = annotator_reports_refresh(project=request.project)
    people = "person" if n == 1 else "people"
    messages.success(request, f"The statistics of {n:,} {people} were computed from all votes.")
    return redirect("agreement:annotators", slug=request.project.slug)


@require_safe
@project_page(READERS)
def annotator(request: Request, user_id: int) -> HttpResponse:
    return _page(request, _person(request, user_id))


@require_safe
@project_page(READERS)
def annotator_csv(request: Request, user_id: int) -> StreamingHttpResponse:
    """One person's figures, and the numbers behind the charts."""
    user = _person(request, user_id)
    report = reads.reports_of(project=request.project).filter(user=user).first()
    of_values = screen.values_rows(values_controls(project=request.project, user=user))
    rows: Iterable[Mapping[str, Any]] = of_values
    if report is not None:
        rows = chain(screen.figure_rows(report), of_values, charts.chart_rows(report.figures))
    name = f"{request.project.slug}-annotator-{user_id}.csv"
    return _csv(screen.PERSON_COLUMNS, rows, name)


@require_POST
@project_page(frozenset({ADMIN}))
def annotator_datasets(request: Request, user_id: int) -> HttpResponse:
    """Leave somebody out of new datasets with a reason, or `action=take_in`."""
    user = _person(request, user_id)
    who = {"project": request.project, "user": user, "by": request.user}
    if request.POST.get("action") == "take_in":
        annotator_take_in(**who)
        messages.success(request, f"The votes of {user} enter new datasets again.")
        return redirect("agreement:annotator", request.project.slug, user_id)
    form = LeaveOutForm(request.POST)
    if not form.is_valid():
        return _page(request, user, form=form, status=422)
    try:
        annotator_leave_out(**who, reason=form.cleaned_data["reason"])
    except DomainError as error:
        form.add_error(error.field if error.field in form.fields else None, error.message)
        return _page(request, user, form=form, status=422)
    messages.success(request, f"New datasets are made without the votes of {user}.")
    return redirect("agreement:annotator", request.project.slug, user_id)


def _found(request: Request, form: AnnotatorsFilter) -> Any:
    wanted = form.cleaned_data if form.is_valid() else {}
    return reads.reports_list(
        project=request.project,
        with_names=request.role == ADMIN,
        search=wanted.get("q", ""),
        show=wanted.get("show", ""),
        least=wanted.get("least") or 0,
        sort=wanted.get("sort") or "flags",
    )


def _person(request: Request, user_id: int) -> User:
    user = reads.person_of(project=request.project, user_id=user_id)
    if user is None:
        raise Http404("no such annotator")
    return user


def _page(
    request: Request, user: User, *, form: LeaveOutForm | None = None, status: int = 200
) -> HttpResponse:
    project, with_names = request.project, request.role == ADMIN
    report = reads.reports_of(project=project).filter(user=user).first()
    context: dict[str, Any] = {
        "page_title": screen.name_of(user, with_names=with_names),
        "nav": "agreement",
        "person": user,
        "report": report,
        "annotator": reads.annotator_of(project=project, user=user),
        "is_admin": with_names,
    }
    context["lines"] = of_values = screen.values_lines(values_controls(project=project, user=user))
    if report is not None:
        model = reads.model_of(project=project, user=user)
        found = reads.differences_of(project=project, user=user)
        context |= {
            "verdict": screen.verdict(report),
            "lines": screen.lines(report, model) + of_values,
            "confusion": screen.confusion_rows(model),
            "model": model,
            "differences": screen.differences(found, excerpt),
            "speed": charts.speed_chart(report.figures),
            "time": charts.time_chart(report.figures),
            "habits": charts.habit_chart(report.figures),
        }
    if with_names:
        context |= {
            "may_pause": reads.may_label(project=project, user=user),
            "reach": reads.reach_of(project=project, user=user),
            "form": form or LeaveOutForm(),
        }
    return render(request, "agreement/annotator.html", context, status=status)


def _csv(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], name: str
) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(csv_lines(columns, rows), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
