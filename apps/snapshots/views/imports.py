"""Datasets from files: upload here; the page of the import (`labeling:import`) does the rest."""

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.labeling.models import ImportJob
from apps.labeling.screens import imports as import_jobs
from apps.labeling.services import import_job_create
from apps.snapshots.services.suites import suite_add

PER_PAGE = 25
Makes = ImportJob.Makes
# What each is, and the columns of a row.
KINDS = (
    (Makes.PROMPTS, "Prompts", "What a policy is asked in PPO, GRPO and evaluations."),
    (Makes.DEMONSTRATIONS, "Demonstrations", "Prompts with the answer to imitate, for SFT."),
    (
        Makes.PREFERENCES,
        "Preferences",
        "Two answers and which is better, or answers with scores, for reward models and DPO.",
    ),
    (Makes.UNPAIRED, "Single answers", "An answer and whether it is desirable, for KTO."),
    (
        Makes.STEPWISE,
        "Judged steps",
        "The steps of a trajectory and whether each is right, for process reward models.",
    ),
)


@require_POST
@project_page(STAFF)
def suite(request: Request) -> HttpResponse:
    """Add the regression suite that is shipped."""
    made, is_new = suite_add(project=request.project, user=request.user)
    if not is_new:
        messages.info(request, "The regression suite is here already.")
    return redirect("snapshots:detail", request.project.slug, made.pk)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def snapshot_import(request: Request) -> HttpResponse:
    """Choose what a file holds and upload it; below, the files that came before."""
    chosen, error = request.POST.get("makes") or request.GET.get("makes", ""), ""
    if request.method == "POST":
        file = request.FILES.get("file")
        try:
            if file is None or chosen not in {key for key, _, _ in KINDS}:
                raise DomainError("Choose what the file holds, and the file.")
            job = import_job_create(
                project=request.project,
                by=request.user,
                file_name=file.name,
                chunks=file.chunks(),
                makes=chosen,
            )
            return redirect("labeling:import", request.project.slug, job.pk)
        except DomainError as refused:
            error = refused.message
    found = import_jobs.import_jobs_list(project=request.project, datasets=True)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Import a dataset",
        "nav": "datasets",
        "kinds": KINDS,
        "chosen": chosen or Makes.PROMPTS,
        "page": page,
        "lines": import_jobs.lines(page),
        "error": error,
    }
    return render(request, "snapshots/import.html", context, status=422 if error else 200)
