"""Pages of reward models."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.accounts.permissions import STAFF, project_page
from apps.common.http import Request
from apps.evaluation.selectors import models as selectors

PER_PAGE = 50


@require_GET
@project_page(STAFF)
def reward_models(request: Request) -> HttpResponse:
    rows = selectors.reward_models(project=request.project)
    context = {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "page_title": "Reward models",
        "nav": "reward_models",
    }
    return render(request, "evaluation/reward_models.html", context)
