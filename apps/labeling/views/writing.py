"""Writing work: the editor, reviews, and the pages on which engineers and admins ask for texts."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.permissions import EVERYONE, READERS, STAFF, project_page
from apps.common.errors import DomainError, Missing
from apps.common.http import Request
from apps.labeling.forms.writing import (
    BatchForm,
    DraftForm,
    PassOnForm,
    ReviewForm,
    SubmitForm,
    TextsFilter,
)
from apps.labeling.models import WrittenText
from apps.labeling.rendering import text_html
from apps.labeling.screens import label as label_screen
from apps.labeling.screens import writing as screen
from apps.labeling.screens.annotators import topics_of
from apps.labeling.selectors import writing as reads
from apps.labeling.services import LABELERS, NothingReason
from apps.labeling.services import writing as services
from apps.labeling.services.leasing import writing_lease_next
from apps.labeling.texts import MOST_CHARACTERS

PER_PAGE = 50
_EDITOR = "labeling/write.html"


# --- writing ------------------------------------------------------------------------------------


@require_safe
@project_page(LABELERS)
def write(request: Request) -> HttpResponse:
    """The text in one's hands, or the next place to write at."""
    got = writing_lease_next(project=request.project, annotator=request.user)
    if isinstance(got, NothingReason):
        context = label_screen.context(got, project=request.project, annotator=request.user)
        context |= {"page_title": gettext("Write"), "nav": "write", "writing": True}
        context["n_waiting"] = _reviewable(request).count()
        return render(request, _EDITOR, context)
    text = services.text_of_lease(got)
    return _editor(request, _text(request, text.pk))


@require_safe
@project_page(EVERYONE)
def write_text(request: Request, text_id: int) -> HttpResponse:
    """One text: in the editor for whoever has it in hand, else with its versions, for its author
    and for those who may review or read it."""
    text = _text(request, text_id)
    if screen.is_held(text, request.user) and request.role in LABELERS:
        return _editor(request, text)
    return _shown(request, text)


@require_POST
@project_page(LABELERS)
def write_draft(request: Request, text_id: int) -> HttpResponse:
    """Keep what was typed. A newer draft of another page is never overwritten unasked."""
    form = DraftForm(request.POST)
    context: dict[str, Any] = {"text_id": text_id}
    try:
        form.check()
        draft = services.draft_save(text=text_id, author=request.user, **form.draft_fields())
        context |= {"draft": draft, "draft_number": draft.number}
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        context |= {
            "refused": error,
            "draft_number": request.POST.get("draft", "0"),
            "newer_number": (error.details or {}).get("number")
            if error.code == "draft_newer"
            else None,
        }
    return render(request, "labeling/_draft.html", context)


@require_POST
@project_page(LABELERS)
def write_submit(request: Request, text_id: int) -> HttpResponse:
    """Hand the text in, then the next one."""
    form = SubmitForm(request.POST)
    try:
        form.check()
        done = services.text_submit(text=text_id, author=request.user, **form.submit_fields())
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        text = _text(request, text_id)
        if not screen.is_held(text, request.user):
            messages.warning(request, error.message)
            return redirect("labeling:write_mine", request.project.slug)
        newer = error.code == "draft_newer"
        response = _editor(
            request,
            text,
            status=error.status,
            typed=request.POST.get("body", "")[:MOST_CHARACTERS],
            number=_number(request.POST.get("draft", "")),
            notice=error.message,
            confirm=error.code == "personal_data",
            newer=reads.draft_of(text=text, author=request.user) if newer else None,
        )
        response["Concord-Refused"] = error.code
        return response
    if not done.replayed:
        accepted = done.version.text.state == WrittenText.State.ACCEPTED
        said = (
            gettext("Submitted and accepted.")
            if accepted
            else gettext("Submitted. Somebody else reviews it now.")
        )
        messages.success(request, said)
    return redirect("labeling:write", request.project.slug)


@require_POST
@project_page(LABELERS)
def write_skip(request: Request, text_id: int) -> HttpResponse:
    """Pass on: others may write it, and it does not come back."""
    form = PassOnForm(request.POST)
    try:
        form.check()
        services.text_pass_on(text=text_id, author=request.user, **form.cleaned_data)
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        messages.warning(request, error.message)
    return redirect("labeling:write", request.project.slug)


@require_POST
@project_page(EVERYONE)
def write_preview(request: Request) -> HttpResponse:
    """What was typed, as readers will see it."""
    body = request.POST.get("body", "")[:MOST_CHARACTERS].replace("\x00", "")
    return HttpResponse(text_html(body) if body.strip() else "")


@require_safe
@project_page(LABELERS)
def write_mine(request: Request) -> HttpResponse:
    """What is in my hands, and what I have written."""
    found = reads.mine(project=request.project, user=request.user)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": gettext("My texts"),
        "nav": "write",
        "held": screen.rows_of(reads.held_by(project=request.project, user=request.user)),
        "page": page,
        "rows": screen.rows_of(page),
        "n_waiting": _reviewable(request).count(),
    }
    return render(request, "labeling/write_mine.html", context)


def _editor(request: Request, text: WrittenText, *, status: int = 200, **more: Any) -> HttpResponse:
    context = screen.editor_context(text, user=request.user, **more)
    return render(request, _EDITOR, context, status=status)


def _text(request: Request, text: int) -> WrittenText:
    try:
        return reads.text_get(project=request.project, text=text)
    except Missing as error:
        raise Http404(error.message) from error


def _number(typed: str) -> int:
    return int(typed) if typed.isdecimal() and len(typed) < 10 else 0


# --- review -------------------------------------------------------------------------------------


@require_safe
@project_page(EVERYONE)
def write_review(request: Request) -> HttpResponse:
    """What waits for a review by this person."""
    found = _reviewable(request).select_related("batch", "slot__task__prompt", "author")
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": gettext("Texts to review"),
        "nav": "write" if request.role not in READERS else "writing",
        "page": page,
        "rows": screen.rows_of(page),
    }
    return render(request, "labeling/write_review.html", context)


@require_POST
@project_page(EVERYONE)
def write_verdict(request: Request, text_id: int) -> HttpResponse:
    """Accept, accept with an edit, or send back; then the next one that waits."""
    form = ReviewForm(request.POST)
    try:
        form.check()
        services.text_review(text=text_id, reviewer=request.user, **form.cleaned_data)
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        typed = {name: request.POST.get(name, "") for name in ("body", "reason", "verdict")}
        return _shown(
            request, _text(request, text_id), status=error.status, notice=error.message, typed=typed
        )
    words = {
        "accepted": gettext("Accepted."),
        "edited": gettext("Accepted with your edit."),
        "rejected": gettext("Sent back."),
    }
    messages.success(request, words[form.cleaned_data["verdict"]])
    following = _reviewable(request).first()
    if following is not None:
        return redirect("labeling:write_text", request.project.slug, following.pk)
    return redirect("labeling:write_review", request.project.slug)


def _reviewable(request: Request) -> Any:
    return reads.reviewable(project=request.project, user=request.user, role=request.role)


def _shown(request: Request, text: WrittenText, *, status: int = 200, **more: Any) -> HttpResponse:
    context = screen.text_context(
        text, user=request.user, role=request.role, project=request.project, **more
    )
    wrote = text.versions.filter(author=request.user).exists()
    if not (wrote or context["reviewing"] or request.role in READERS):
        raise Http404("not theirs to read")
    return render(request, "labeling/written.html", context, status=status)


# --- asking for texts ---------------------------------------------------------------------------


@require_safe
@project_page(READERS)
def writing(request: Request) -> HttpResponse:
    """Every batch with its progress."""
    found = reads.batches(project=request.project)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": "Writing",
        "nav": "writing",
        "page": page,
        "lines": reads.progress_of(page),
        "may_ask": request.role in STAFF,
        "n_waiting": _reviewable(request).count(),
    }
    return render(request, "labeling/writing.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def writing_new(request: Request) -> HttpResponse:
    topics = topics_of(project=request.project)
    form = BatchForm(
        request.POST or None, request.FILES or None, project=request.project, topics=topics
    )
    if request.method == "POST" and form.is_valid():
        try:
            batch = services.writing_batch_create(
                project=request.project, by=request.user, **form.fields_for_service()
            )
        except DomainError as error:
            form.refuse(error)
        else:
            messages.success(request, "Asked for. People who label find it under My work.")
            return redirect("labeling:writing_batch", request.project.slug, batch.pk)
    context = {"page_title": "New writing work", "nav": "writing", "form": form}
    return render(request, "labeling/writing_new.html", context, status=422 if form.errors else 200)


@require_safe
@project_page(READERS)
def writing_batch(request: Request, batch_id: str) -> HttpResponse:
    """One batch: how far it is, and its texts."""
    batch = _batch(request, batch_id)
    form = TextsFilter(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    found = reads.texts_list(
        project=request.project,
        batch=batch,
        state=wanted.get("state", ""),
        search=wanted.get("q", ""),
    )
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    progress = reads.progress_of([batch])[0]
    context = {
        "page_title": batch.name,
        "nav": "writing",
        "batch": batch,
        "instruction": text_html(batch.instruction) if batch.instruction else "",
        "progress": progress,
        "tiles": [(reads.STATES[name], n) for name, n in progress.counts.items() if n],
        "form": form,
        "filtered": any(wanted.values()),
        "page": page,
        "rows": screen.rows_of(page),
        "named": request.role == "admin",
        "may_ask": request.role in STAFF,
    }
    return render(request, "labeling/writing_batch.html", context)


@require_POST
@project_page(STAFF)
def writing_state(request: Request, batch_id: str) -> HttpResponse:
    """Hand out no more places of a batch, or again."""
    batch = _batch(request, batch_id)
    is_open = request.POST.get("action") == "open"
    services.writing_batch_open(batch=batch, is_open=is_open, by=request.user)
    messages.success(
        request,
        "Open again."
        if is_open
        else "Closed. Nobody gets a new text of it; what people hold stays theirs.",
    )
    return redirect("labeling:writing_batch", request.project.slug, batch.pk)


def _batch(request: Request, batch: str) -> Any:
    try:
        return reads.batch_get(project=request.project, batch=batch)
    except Missing as error:
        raise Http404(error.message) from error
