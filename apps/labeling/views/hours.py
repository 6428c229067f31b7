"""Hours and votes by person and month: everybody's for admins, one's own for others."""

from datetime import date

from django.core.paginator import Paginator
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.views.decorators.http import require_safe

from apps.accounts.models import User
from apps.accounts.permissions import ADMIN, project_page
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling.forms.person_votes import MonthForm
from apps.labeling.selectors.hours import COLUMNS, completion_check, completion_of, hours_of
from apps.labeling.services import LABELERS

PER_PAGE = 50


@require_safe
@project_page(LABELERS)
def hours(request: Request) -> HttpResponse:
    form, is_admin = MonthForm(request.GET), request.role == ADMIN
    found = hours_of(project=request.project, user=_whose(request), month=form.chosen())
    code = form.data.get("code", "") if is_admin else ""
    context = {
        "page_title": gettext("Hours") if is_admin else gettext("My hours"),
        "nav": "annotators" if is_admin else "answers",
        "is_admin": is_admin,
        "form": form,
        "month": form.chosen(),
        "page": Paginator(found, PER_PAGE).get_page(request.GET.get("page")),
        "code": code,
        "completed": completion_check(project=request.project, code=code) if code else None,
        "completion": completion_of(project=request.project, user=request.user),
        "total": sum(row.hours for row in found),
        "priced": any(row.amount is not None for row in found),
    }
    return render(request, "labeling/hours.html", context)


@require_safe
@project_page(LABELERS)
def hours_csv(request: Request) -> StreamingHttpResponse:
    month: date | None = MonthForm(request.GET).chosen()
    rows = hours_of(project=request.project, user=_whose(request), month=month)
    answer = StreamingHttpResponse(
        csv_lines(COLUMNS, (row.as_row() for row in rows)), content_type="text/csv; charset=utf-8"
    )
    name = f"{request.project.slug}-hours{f'-{month:%Y-%m}' if month else ''}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _whose(request: Request) -> User | None:
    """Whose hours this person may see: everybody's, or their own."""
    return None if request.role == ADMIN else request.user
