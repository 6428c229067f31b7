"""The playbook: found by words, by stage, or from the rule that fired."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import Missing
from apps.common.http import Request
from apps.monitoring import playbook
from apps.monitoring.screens.playbook import entry_view, sections
from apps.monitoring.selectors.incidents import lessons_of
from apps.monitoring.stages import STAGE_NAMES
from apps.training import selectors
from apps.training.models import Run


@require_safe
@project_page(STAFF)
def playbook_list(request: Request) -> HttpResponse:
    words, link = request.GET.get("q", "").strip()[:200], request.GET.get("link", "")
    found = playbook.search(words, stage=link)
    context = {
        "page_title": "Playbook",
        "nav": "monitoring",
        "search": words,
        "link": link,
        "stages": STAGE_NAMES.items(),
        "run": _run(request),
        "found": found if words else [],
        "sections": [] if words else sections(found),
        "n": len(found),
        "filtered": bool(words or link),
    }
    return render(request, "monitoring/playbook.html", context)


@require_safe
@project_page(STAFF)
def playbook_entry(request: Request, entry: str) -> HttpResponse:
    """One entry; with `?run=` its checks become buttons and links of that run."""
    known = playbook.entry_get(entry)
    if known is None:
        raise Missing("There is no such entry in the playbook.", field="entry")
    run = _run(request)
    context = {
        "page_title": known.title,
        "nav": "monitoring",
        "run": run,
        "entry": entry_view(known, run),
        "lessons": lessons_of(project=request.project, rules=known.rules),
    }
    return render(request, "monitoring/playbook_entry.html", context)


def _run(request: Request) -> Run | None:
    run_id = request.GET.get("run", "")
    return selectors.run_get(project=request.project, run_id=run_id) if run_id else None
