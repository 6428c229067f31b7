"""Two systems compared by people: the list, opening one, its live page, and the link for others."""

import csv
import io
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.evaluation.forms.head_to_head import HeadToHeadForm, ShareForm
from apps.evaluation.models import HeadToHead
from apps.evaluation.screens import head_to_head as screen
from apps.evaluation.screens.judges import beside_words
from apps.evaluation.selectors.head_to_head import (
    evaluations,
    head_to_head_get,
    head_to_heads,
    looks_of,
    overdue,
    progress_of,
    result_now,
    shared_get,
    votes_rows,
)
from apps.evaluation.selectors.judges import versions_of
from apps.evaluation.services.head_to_head import (
    head_to_head_end,
    head_to_head_look,
    head_to_head_open,
    head_to_head_share,
    head_to_head_unshare,
)
from apps.evaluation.services.judge_beside import beside_people
from apps.training.selectors import run_get
from measures.head_to_head import Result

_COLUMNS = ("prompt", "preferred", "left", "person", "simulated", "seconds", "cast_at")


@require_safe
@project_page(READERS)
def head_to_head_list(request: Request) -> HttpResponse:
    found = list(head_to_heads(project=request.project).select_related("pairs"))
    late = {one.pk for one in overdue(project=request.project, now=timezone.now())}
    context = {
        "page_title": "Head-to-heads",
        "nav": "head_to_heads",
        "rows": [
            {**screen.listed(one, result_now(one), progress_of(one)), "overdue": one.pk in late}
            for one in found
        ],
        "may_open": request.role in STAFF,
    }
    return render(request, "evaluation/head_to_heads.html", context)


@require_safe
@project_page(READERS)
def run_people(request: Request, run_id: str) -> HttpResponse:
    """What people said of an evaluation's answers, as the run's tab."""
    run = run_get(project=request.project, run_id=run_id)
    found = head_to_heads(project=request.project).filter(source=run).select_related("pairs")
    context = {
        "run": run,
        "rows": [screen.listed(one, result_now(one), progress_of(one)) for one in found],
        "may_open": request.role in STAFF,
        "kept": any(one.pk == run.pk for one in evaluations(project=request.project)),
        "page_title": f"People on {run.name}",
    }
    template = "_run_people" if request.htmx else "run_people"
    return render(request, f"evaluation/{template}.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def head_to_head_new(request: Request) -> HttpResponse:
    if request.method == "POST":
        form = HeadToHeadForm(request.POST, request.FILES, project=request.project)
        if form.is_valid():
            try:
                made = head_to_head_open(project=request.project, user=request.user, **form.asked())
            except DomainError as error:
                form.take(error)
            else:
                messages.success(request, "The pairs are in the label queue.")
                return redirect("evaluation:head_to_head", request.project.slug, made.pk)
    else:
        form = HeadToHeadForm(project=request.project, initial=_suggested(request))
    context = {"page_title": "New head-to-head", "nav": "head_to_heads", "form": form}
    status = 422 if form.errors else 200
    return render(request, "evaluation/head_to_head_new.html", context, status=status)


def _suggested(request: Request) -> dict[str, Any]:
    """Names from the evaluation that one came from, or from the head-to-head that is repeated."""
    again = request.GET.get("again", "")
    before = HeadToHead.objects.filter(project=request.project, pk=again).first()
    if before is not None:
        kept = ("first_name", "second_name", "votes_each", "stopping", "repeat_days")
        plan = before.protocol.get("plan", {})
        return {name: getattr(before, name) for name in kept} | {
            "name": f"{before.name}, again"[:120],
            "source": before.source_id or "",
            "more_sources": before.protocol.get("more_evaluations", []),
            "margin_points": 100 * before.margin,
            "people": plan.get("people"),
            "more_names": "\n".join(before.more_names),
            "pairs_each": plan.get("pairs_each", 1),
        }
    key = request.GET.get("run", "")
    run = next((one for one in evaluations(project=request.project) if one.pk == key), None)
    if run is None:
        return {}
    names = dict(
        run.inputs.filter(checkpoint__isnull=False).values_list("role", "checkpoint__run__name")
    )
    return {
        "source": run.pk,
        "name": run.name,
        "first_name": names.get("policy", "Policy")[:80],
        "second_name": names.get("sft", "Baseline")[:80],
    }


@never_cache
@require_safe
@project_page(READERS)
def head_to_head(request: Request, head_to_head_id: str) -> HttpResponse:
    """The page; for htmx its figures alone, again while votes come in. That somebody looked is
    kept."""
    found = head_to_head_get(project=request.project, head_to_head=head_to_head_id)
    result = None
    if found.ended_at is None:
        result = head_to_head_look(head_to_head=found, by=request.user)
        found.refresh_from_db()
    context = _figures(found, result) | {
        "page_title": found.name,
        "nav": "head_to_heads",
        "may_change": request.role in STAFF,
        "share_form": ShareForm(),
        "share_url": _share_url(request, found),
    }
    if request.htmx:
        return render(request, "evaluation/_head_to_head.html", context)
    if not found.is_several:
        context |= {
            "beside": [beside_words(one) for one in beside_people(found)],
            "judges": versions_of(project=request.project) if context["may_change"] else [],
        }
    return render(request, "evaluation/head_to_head.html", context)


def _figures(found: HeadToHead, result: Result | None = None) -> dict[str, Any]:
    result = result or result_now(found)
    return screen.context(found, result, progress_of(found), looks_of(found))


def _share_url(request: Request, found: HeadToHead) -> str:
    if found.shared_until is None or found.shared_until < timezone.now():
        return ""
    return request.build_absolute_uri(reverse("evaluation:shared", args=[found.share_key]))


@require_POST
@project_page(STAFF)
def head_to_head_act(request: Request, head_to_head_id: str) -> HttpResponse:
    """End it; make a link for somebody outside; take that back."""
    found = head_to_head_get(project=request.project, head_to_head=head_to_head_id)
    action = request.POST.get("action", "")
    if action == "end":
        head_to_head_end(head_to_head=found, by=request.user)
        messages.success(request, "It has ended; nobody is asked any more.")
    elif action == "share":
        form = ShareForm(request.POST)
        if form.is_valid():
            head_to_head_share(head_to_head=found, by=request.user, **form.cleaned_data)
            messages.success(request, "Whoever has the link below can read the result.")
        else:
            messages.error(request, "Days: a whole number from 1 to 365. No link was made.")
    elif action == "unshare":
        head_to_head_unshare(head_to_head=found, by=request.user)
        messages.success(request, "The link leads nowhere any more.")
    else:
        raise Http404("no such action")
    return redirect("evaluation:head_to_head", request.project.slug, found.pk)


@require_safe
@project_page(READERS)
def head_to_head_csv(request: Request, head_to_head_id: str) -> HttpResponse:
    """Its votes, once it has ended: before, they would be looks that nobody counts."""
    found = head_to_head_get(project=request.project, head_to_head=head_to_head_id)
    if found.ended_at is None:
        raise Http404("it has not ended")
    text = io.StringIO(newline="")
    columns = (_COLUMNS[0], "one", "other", *_COLUMNS[1:]) if found.is_several else _COLUMNS
    file = csv.DictWriter(text, columns)
    file.writeheader()
    file.writerows(votes_rows(found))
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="head-to-head-{found.pk}.csv"'
    return response


@never_cache
@require_safe
@login_not_required
def shared(request: Request, key: str) -> HttpResponse:
    """What somebody outside may read until the link expires: figures and names of systems, no
    person and no text."""
    found = shared_get(key, now=timezone.now())
    if found is None:
        raise Http404("no such link")
    context = _figures(found) | {"page_title": found.name}
    response = render(request, "evaluation/head_to_head_shared.html", context)
    response["X-Robots-Tag"] = "noindex"
    response["Referrer-Policy"] = "no-referrer"
    return response
