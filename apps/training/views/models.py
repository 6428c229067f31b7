"""Models: checkpoints that are best, last or final of their run, and where they come from."""

import secrets

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.accounts.selectors import administered_with
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.registry import model_panels, named_models
from apps.common.row_files import resumable_response
from apps.snapshots.selectors.lineage import datasets_behind
from apps.training import display, selectors, services
from apps.training.models import Checkpoint, Run
from apps.training.screens.use import use_of
from apps.training.selectors import pages
from apps.training.services.downloads import model_archive, model_push
from apps.training.services.kinds import ANSWERING, POLICIES, REWARDS
from apps.training.services.sharing import model_copy
from workers.artifacts import MERGED

PER_PAGE = 50


@require_safe
@project_page(STAFF)
def model_list(request: Request) -> HttpResponse:
    search, kind = request.GET.get("q", "").strip(), request.GET.get("kind", "")
    status = request.GET.get("status", "")
    rows = pages.models_for_list(project=request.project, search=search, kind=kind, status=status)
    context = {
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "search": search,
        "kind": kind,
        "status": status,
        "kinds": Run.Kind.choices,
        "statuses": Checkpoint.Status.choices,
        "filtered": bool(search or kind or status),
        "page_title": "Models",
        "nav": "models",
    }
    return render(request, "training/models.html", context)


@require_safe
@project_page(STAFF)
def model_detail(request: Request, checkpoint_id: str) -> HttpResponse:
    checkpoint = pages.checkpoint_get(project=request.project, checkpoint_id=checkpoint_id)
    run = checkpoint.run
    context = {
        "checkpoint": checkpoint,
        "run": run,
        "metrics": display.facts(checkpoint.metrics),
        "registered": display.read_of(run),
        "is_reward": run.kind in REWARDS,
        "is_served": run.kind == Run.Kind.SERVED,
        "may_watch": run.kind in ANSWERING | REWARDS
        and checkpoint.status not in (Checkpoint.Status.REJECTED, Checkpoint.Status.RETIRED),
        "may_ask": run.kind in ANSWERING,
        "may_promote": run.kind in POLICIES and checkpoint.files_removed_at is None,
        "named": [one for one in named_models(request.project) if one.checkpoint == checkpoint.pk],
        "may_evaluate": run.kind in POLICIES and not services.evaluation_missing(checkpoint),
        "panels": [
            {"template": one.template, "found": one.find(checkpoint)} for one in model_panels()
        ],
        "use": use_of(checkpoint),
        "key": secrets.token_urlsafe(16),
        "push_key": secrets.token_urlsafe(16),
        "copy_to": administered_with(project=request.project, user=request.user).filter(
            archived_at=None
        ),
        "copy_key": secrets.token_urlsafe(16),
        "counts": checkpoint in selectors.checkpoints(run),
        "up": selectors.lineage_up(run),
        "behind": datasets_behind(run),
        "uses": checkpoint.used_by.exclude(run__kind__in=pages.READ_ONLY_KINDS)
        .select_related("run__project")
        .order_by("-run__created_at"),
        "page_title": f"{run.name}, step {checkpoint.step:,}",
        "nav": "models",
    }
    return render(request, "training/model.html", context)


@require_safe
@project_page(STAFF)
def model_download(request: Request, checkpoint_id: str) -> HttpResponseBase:
    """`?part=merged|adapter`: a tar of it."""
    model = pages.checkpoint_get(project=request.project, checkpoint_id=checkpoint_id)
    part = request.GET.get("part", MERGED)
    sent = model_archive(model=model, part=part, user=request.user)
    return resumable_response(
        request, name=sent.name, size=sent.size, etag=sent.etag, chunks=sent.chunks
    )


@require_POST
@project_page(STAFF)
def model_push_page(request: Request, checkpoint_id: str) -> HttpResponse:
    """Push it to a hub: a run, whose page says how it went."""
    model = pages.checkpoint_get(project=request.project, checkpoint_id=checkpoint_id)
    try:
        run = model_push(
            model=model,
            repo=request.POST.get("repo", ""),
            part=request.POST.get("part", MERGED),
            private="private" in request.POST,
            user=request.user,
            idempotency_key=request.POST.get("key", ""),
        )
    except DomainError as error:
        messages.error(request, error.message)
        return redirect("training:model", request.project.slug, model.pk)
    return redirect("training:run", request.project.slug, run.pk)


@require_POST
@project_page(STAFF)
def model_copy_page(request: Request, checkpoint_id: str) -> HttpResponse:
    """Copy it into another project, whose page of the run says how it went."""
    model = pages.checkpoint_get(project=request.project, checkpoint_id=checkpoint_id)
    try:
        run = model_copy(
            model=model,
            slug=request.POST.get("project", ""),
            user=request.user,
            idempotency_key=request.POST.get("key", ""),
        )
    except DomainError as error:
        messages.error(request, error.message)
        return redirect("training:model", request.project.slug, model.pk)
    return redirect("training:run", run.project.slug, run.pk)
