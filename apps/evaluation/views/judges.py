"""Pages of judges: the list, one with what it is worth, and labels under a certificate."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import READERS, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.evaluation.forms import judges as forms
from apps.evaluation.models import JudgeRun, JudgeVersion
from apps.evaluation.screens import judges as screen
from apps.evaluation.selectors.head_to_head import head_to_head_get
from apps.evaluation.selectors.judges import (
    HEAD_TO_HEAD,
    Scope,
    certificate_get,
    certificates_of,
    could_judge,
    disagreements,
    is_shaped,
    judge_get,
    measurement_of,
    measurements_of,
    runs_of,
    trials_of,
    version_get,
    versions_of,
)
from apps.evaluation.services import certificates, judge_worth
from apps.evaluation.services import judges as services

SHOWN_RUNS = 10


@require_safe
@project_page(READERS)
def judge_list(request: Request) -> HttpResponse:
    context = {
        "page_title": "Judges",
        "nav": "judges",
        "rows": [screen.row_of(one) for one in versions_of(project=request.project)],
        "may_change": request.role in STAFF,
    }
    return render(request, "evaluation/judges.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def judge_new(request: Request) -> HttpResponse:
    posted = request.POST if request.method == "POST" else None
    initial = {"model": request.GET.get("model", "")} if posted is None else None
    form = forms.JudgeForm(posted, project=request.project, initial=initial)
    if form.is_valid():
        try:
            made = services.judge_make(
                project=request.project,
                name=form.cleaned_data["name"],
                user=request.user,
                **form.given(),
            )
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, "The judge is there. Measure it before its word counts.")
            return redirect("evaluation:judge", request.project.slug, made.judge_id)
    context = {
        "page_title": "New judge",
        "nav": "judges",
        "form": form,
        "has_models": bool(could_judge(request.project)),
    }
    status = 422 if form.errors else 200
    return render(request, "evaluation/judge_new.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def version_new(request: Request, judge_id: int) -> HttpResponse:
    judge = judge_get(project=request.project, judge_id=judge_id)
    version = version_get(judge=judge)
    posted = request.POST if request.method == "POST" else None
    form = forms.VersionForm(posted, project=request.project, version=version)
    if form.is_valid():
        try:
            made = services.version_make(
                judge=judge, note=form.cleaned_data["note"], user=request.user, **form.given()
            )
        except DomainError as error:
            form.refuse(error)
        else:
            same = made.pk == version.pk
            words = (
                f"Nothing differs from version {made.number}."
                if same
                else f"Version {made.number} is there, without figures of its own."
            )
            messages.success(request, words)
            return redirect("evaluation:judge", request.project.slug, judge.pk)
    context = {
        "page_title": f"New version of {judge.name}",
        "nav": "judges",
        "form": form,
        "judge": judge,
        "has_models": True,
    }
    status = 422 if form.errors else 200
    return render(request, "evaluation/judge_new.html", context, status=status)


@never_cache
@require_safe
@project_page(READERS)
def judge(request: Request, judge_id: int) -> HttpResponse:
    """Its newest version, or `?version=`; for htmx the fragment of its runs, and the whole page
    again once they have ended."""
    found = judge_get(project=request.project, judge_id=judge_id)
    return _judge_page(request, _version(request, found), {})


def _version(request: Request, judge: Any) -> JudgeVersion:
    given = request.GET.get("version") or request.POST.get("version") or ""
    known = given.isdecimal() and len(given) < 10
    return version_get(judge=judge, number=int(given) if known else None)


def _judge_page(
    request: Request, version: JudgeVersion, bound: dict[str, Any], status: int = 200
) -> HttpResponse:
    rows = runs_of(version).exclude(purpose=JudgeRun.Purpose.PROBE)
    runs = list(rows[:SHOWN_RUNS])
    probe = runs_of(version).filter(purpose=JudgeRun.Purpose.PROBE).first()
    live = [one for one in runs if not one.acted and not one.problem]
    context: dict[str, Any] = {
        "judge": version.judge,
        "version": version,
        "runs": runs,
        "live": bool(live),
        "probe": probe,
        "may_change": request.role in STAFF,
    }
    if request.htmx:
        response = render(request, "evaluation/_judge_runs.html", context)
        if not live:
            response["HX-Refresh"] = "true"
        return response
    project = request.project
    every = measurements_of(version)
    asked = request.GET.get("measurement", "")
    chosen = next((one for one in every if str(one.pk) == asked), None)
    counted = measurement_of(version)
    words, tone = screen.state_of(version, counted)
    measurement = chosen or counted
    context |= {
        "measured": screen.measured_rows(every),
        "page_title": f"{version.judge.name}, version {version.number}",
        "nav": "judges",
        "state_words": words,
        "state_tone": tone,
        "shaped": is_shaped(version),
        "versions": list(version.judge.versions.select_related("model__run").order_by("-number")),
        "trials": [screen.trial_words(one) for one in trials_of(version.judge)],
        "certificates": [
            (one, *screen.certificate_words(one)) for one in certificates_of(version.judge)[:20]
        ],
        **screen.worth_context(measurement, version),
    }
    if context["may_change"]:
        context |= {
            "measure_form": forms.MeasureForm(None, project=project),
            "trial_form": forms.TrialForm(
                None,
                project=project,
                initial={"prompts": forms.SEPARATOR.join([version.config.get("prompt", "")] * 2)},
            ),
            "certify_form": forms.CertifyForm(None, project=project, head_to_heads=False),
            "presort_form": forms.PresortForm(None, project=project, head_to_heads=False),
        } | bound
    return render(request, "evaluation/judge.html", context, status=status)


@require_safe
@project_page(STAFF)
def differences(request: Request, judge_id: int) -> HttpResponse:
    """Pairs of the part for tuning on which it differs from people; for htmx as a fragment."""
    version = _version(request, judge_get(project=request.project, judge_id=judge_id))
    measurement = measurement_of(version)
    scope = Scope.of(measurement.scope) if measurement else Scope()
    context = {
        "page_title": f"Where {version} differs from people",
        "nav": "judges",
        "judge": version.judge,
        "version": version,
        "disagreements": disagreements(
            version, scope=scope, share=measurement.share if measurement else 1.0
        ),
    }
    name = "_judge_differences" if request.htmx else "judge_differences"
    return render(request, f"evaluation/{name}.html", context)


@require_POST
@project_page(STAFF)
def judge_act(request: Request, judge_id: int) -> HttpResponse:
    """Measure, try prompts, certify, sort pairs, archive."""
    found = judge_get(project=request.project, judge_id=judge_id)
    version = _version(request, found)
    action = request.POST.get("action", "")
    if action == "archive":
        services.judge_archive(judge=found, user=request.user)
        messages.success(request, f"{found.name} was archived; what it said stays.")
        return redirect("evaluation:judges", request.project.slug)
    if action not in _ACTS:
        raise Http404("no such action")
    form_class, act = _ACTS[action]
    extra = {"head_to_heads": False} if action in ("certify", "presort") else {}
    form = form_class(request.POST, project=request.project, **extra)
    if form.is_valid():
        try:
            answer = act(request, version, form.given())
        except DomainError as error:
            form.refuse(error)
        else:
            return answer
    return _judge_page(request, version, {f"{action}_form": form}, status=422)


def _back(version: JudgeVersion) -> HttpResponse:
    answer = redirect("evaluation:judge", version.judge.project.slug, version.judge_id)
    answer["Location"] += f"?version={version.number}"
    return answer


def _measure(request: Request, version: JudgeVersion, given: dict[str, Any]) -> HttpResponse:
    made = judge_worth.judge_measure(version=version, user=request.user, **given)
    words = (
        "The judge is being asked; the figures appear here."
        if isinstance(made, JudgeRun)
        else "It had judged all of these pairs; the figures are new."
    )
    messages.success(request, words)
    return _back(version)


def _trial(request: Request, version: JudgeVersion, given: dict[str, Any]) -> HttpResponse:
    judge_worth.judge_tune(version=version, user=request.user, **given)
    messages.success(
        request, "The prompts are being tried; the best is then measured on pairs kept apart."
    )
    return _back(version)


def _certify(request: Request, version: JudgeVersion, given: dict[str, Any]) -> HttpResponse:
    made = certificates.certificate_make(version=version, user=request.user, **given)
    return redirect("evaluation:certificate", request.project.slug, made.pk)


def _presort(request: Request, version: JudgeVersion, given: dict[str, Any]) -> HttpResponse:
    moved, kept = judge_worth.pairs_presort(version=version, user=request.user, **given)
    messages.success(
        request,
        f"{moved:,} pairs go first, the least sure ones at the front; {kept:,} keep their place "
        "and measure.",
    )
    return _back(version)


_ACTS: dict[str, Any] = {
    "measure": (forms.MeasureForm, _measure),
    "trial": (forms.TrialForm, _trial),
    "certify": (forms.CertifyForm, _certify),
    "presort": (forms.PresortForm, _presort),
}


# --- certificates ---


@never_cache
@require_safe
@project_page(READERS)
def certificate(request: Request, certificate_id: str) -> HttpResponse:
    return _certificate_page(request, certificate_id, {})


def _certificate_page(
    request: Request, certificate_id: str, bound: dict[str, Any], status: int = 200
) -> HttpResponse:
    found = certificate_get(project=request.project, certificate_id=certificate_id)
    words, tone = screen.certificate_words(found)
    labels = found.labels
    asked = JudgeRun.objects.filter(wanted__certificate=found.pk, acted=False, problem="")
    context = {
        "page_title": f"Labels by {found.version}",
        "nav": "judges",
        "found": found,
        "words": words,
        "tone": tone,
        "scope_words": Scope.of(found.scope).words,
        "n_labels": labels.count(),
        "n_audited": labels.filter(is_audited=True).count(),
        "audit_words": screen.audit_words(certificates.audit_of(found), found),
        "uses": list(found.uses.select_related("snapshot")),
        "live": asked.exists(),
        "may_change": request.role in STAFF,
    }
    if context["may_change"]:
        context |= {
            "label_form": forms.ScopedForm(None, project=request.project, head_to_heads=False),
            "freeze_form": forms.FreezeForm(
                None, initial={"name": f"Labels by {found.version}"[:120]}
            ),
        } | bound
    return render(request, "evaluation/certificate.html", context, status=status)


@require_POST
@project_page(STAFF)
def certificate_act(request: Request, certificate_id: str) -> HttpResponse:
    """Label pairs, freeze the labels, stop."""
    found = certificate_get(project=request.project, certificate_id=certificate_id)
    action = request.POST.get("action", "")
    if action == "stop":
        certificates.certificate_stop(
            certificate=found, because=f"Stopped by {request.user}.", by=request.user
        )
        messages.success(request, "Nothing more is labelled or frozen under it.")
        return redirect("evaluation:certificate", request.project.slug, found.pk)
    form: Any
    if action == "label":
        form = forms.ScopedForm(request.POST, project=request.project, head_to_heads=False)
    elif action == "freeze":
        form = forms.FreezeForm(request.POST)
    else:
        raise Http404("no such action")
    if form.is_valid():
        try:
            if action == "freeze":
                made = certificates.labels_freeze(
                    certificate=found, name=form.cleaned_data["name"], user=request.user
                )
                return redirect("snapshots:detail", request.project.slug, made.pk)
            asked = certificates.labels_ask(
                certificate=found, scope=form.scope_given(), user=request.user
            )
        except DomainError as error:
            if error.field not in form.fields:
                messages.error(request, error.message)
                return redirect("evaluation:certificate", request.project.slug, found.pk)
            form.refuse(error)
        else:
            words = "The judge is being asked." if asked else "The labels are there."
            messages.success(request, words)
            return redirect("evaluation:certificate", request.project.slug, found.pk)
    return _certificate_page(request, certificate_id, {f"{action}_form": form}, status=422)


# --- beside a head-to-head ---


@require_POST
@project_page(STAFF)
def head_to_head_judge(request: Request, head_to_head_id: str) -> HttpResponse:
    """Have a judge asked about all pairs of a head-to-head, to stand beside people's votes."""
    found = head_to_head_get(project=request.project, head_to_head=head_to_head_id)
    given = request.POST.get("version", "")
    version = next(
        (one for one in versions_of(project=request.project) if str(one.pk) == given), None
    )
    if version is None:
        raise Http404("no such judge")
    try:
        asked = judge_worth.judge_measure(
            version=version, scope=Scope(HEAD_TO_HEAD, found.pk), share=1.0, user=request.user
        )
    except DomainError as error:
        messages.error(request, error.message)
    else:
        words = "is being asked" if isinstance(asked, JudgeRun) else "has judged them all"
        messages.success(request, f"{version} {words}; its figures stand below people's.")
    return redirect("evaluation:head_to_head", request.project.slug, found.pk)
