"""How votes become decisions: the rule with its live preview, and the ways compared."""

from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.permissions import ADMIN, READERS, STAFF, project_page
from apps.agreement.forms import RuleForm
from apps.agreement.screens import decisions as screen
from apps.agreement.selectors import decisions as reads
from apps.agreement.selectors.decisions import rule_preview
from apps.agreement.services.consensus import consensus_compare, decide_by_switch
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.common.spreadsheet import csv_lines
from apps.labeling.selectors import settings_get


@require_safe
@project_page(READERS)
def decisions(request: Request) -> HttpResponse:
    """The rule of the query string (of the project where it names none), looked at."""
    return _page(request, _form(request))


@require_safe
@project_page(READERS)
def preview(request: Request) -> HttpResponse:
    """The live preview beside a rule's fields, here and in the labeling settings."""
    form = _form(request)
    context = {"form": form}
    if not form.is_bound or form.is_valid():
        context["preview"] = screen.preview_lines(
            rule_preview(project=request.project, policy=form.policy())
        )
    return render(request, "agreement/_rule_preview.html", context)


@require_POST
@project_page(READERS)
def apply(request: Request) -> HttpResponse:
    """`action=apply` applies the rule (admins); otherwise it gets an address to share."""
    form = RuleForm(request.POST, current=settings_get(project=request.project))
    if request.POST.get("action") != "apply":
        named = {name: request.POST.get(name, "") for name in form.fields if name in request.POST}
        address = reverse("agreement:decisions", args=[request.project.slug])
        return redirect(f"{address}?{urlencode(named)}")
    if request.role != ADMIN:
        raise PermissionDenied("Only project admins can apply a rule.")
    if form.is_valid():
        try:
            done = decide_by_switch(project=request.project, by=request.user, **form.cleaned_data)
        except DomainError as error:
            form.add_error(error.field if error.field in form.fields else None, error.message)
        else:
            kept, before = (t.get("accepted", 0) for t in (done.after, done.before))
            messages.success(
                request, f"Rule applied: {kept:,} comparisons accepted, {before:,} before."
            )
            return redirect("agreement:decisions", request.project.slug)
    return _page(request, form, status=422)


@require_POST
@project_page(STAFF)
def compare(request: Request) -> HttpResponse:
    if consensus_compare(project=request.project) is None:
        messages.error(request, "There are no votes yet to compare methods on.")
    else:
        messages.success(request, "All aggregation methods were compared on the current votes.")
    return redirect("agreement:decisions", request.project.slug)


@require_safe
@project_page(READERS)
def ways_csv(request: Request) -> HttpResponse:
    report = reads.consensus_report_get(project=request.project)
    rows = screen.csv_rows(report) if report else []
    response = StreamingHttpResponse(
        csv_lines(screen.COLUMNS, rows), content_type="text/csv; charset=utf-8"
    )
    name = f"{request.project.slug}-ways-to-decide.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _form(request: Request) -> RuleForm:
    """Bound to the query where it names a rule; what it leaves out is as in the current rule."""
    current = settings_get(project=request.project)
    if not request.GET:
        return RuleForm(current=current)
    data = {
        name: field.prepare_value(getattr(current, name))
        for name, field in RuleForm.base_fields.items()
    }
    if "least_votes" in request.GET:  # a submitted form leaves out a box that is not ticked
        data.pop("stop_early")
    return RuleForm(data | request.GET.dict(), current=current)


def _page(request: Request, form: RuleForm, status: int = 200) -> HttpResponse:
    project = request.project
    current = settings_get(project=project)
    report = reads.consensus_report_get(project=project)
    context = {
        "page_title": "Decisions",
        "nav": "agreement",
        "tab": "decisions",
        "form": form,
        "current": current,
        "may_apply": request.role == ADMIN,
        "may_compare": request.role in STAFF,
        "consensus": reads.consensus_get(project=project),
        "outcomes": screen.outcome_bars(reads.decision_tally(project=project)),
        "report": report,
    }
    if not form.is_bound or form.is_valid():
        context["preview"] = screen.preview_lines(
            rule_preview(project=project, policy=form.policy())
        )
    if report is not None:
        figures = report.figures
        context |= {
            "ways": screen.ways(report, current.decide_by),
            "diagrams": screen.diagrams(report),
            "proposed": screen.LABELS.get(figures["proposed"], ""),
            "proposed_method": figures["proposed"],
            "recommended": screen.LABELS[figures["recommended"]],
            "reason": figures["reason"],
            "caution": figures.get("caution"),
            "trusted": figures["trusted"],
            "trust": figures.get("trust", "") if figures["recommended"] != "votes" else "",
            "newer": reads.votes_since(project=project, vote_id=report.last_vote_id),
            "too_few": report.n_votes < figures["needed_votes"],
            "needed": figures["needed_votes"],
        }
    return render(request, "agreement/decisions.html", context, status=status)
