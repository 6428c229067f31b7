"""The label screen, My answers and My work.

A vote is answered with the next pair; without JavaScript, by going there.
"""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.permissions import READERS, project_page
from apps.common.errors import Conflict, DomainError, Missing
from apps.common.http import Request
from apps.common.registry import vote_traces
from apps.labeling import selectors, services
from apps.labeling.forms import (
    AnswerForm,
    AnswersFilter,
    Checked,
    SkipForm,
    VoteForm,
    criteria_sent,
    runs_sent,
)
from apps.labeling.forms.settings import OptOutForm
from apps.labeling.models import RATED, Slot
from apps.labeling.screens import label as bar
from apps.labeling.screens import label as screen
from apps.labeling.screens import rating_screen, runs
from apps.labeling.screens import work as work_screen
from apps.labeling.screens.annotators import topics_of
from apps.labeling.screens.work import answer_rows, answers_only
from apps.labeling.selectors import AnsweredPair
from apps.labeling.selectors.ratings import has_rating_tasks
from apps.labeling.services import LABELERS, Lease, NothingReason

Next = Lease | NothingReason
BACK_TO_ANSWERS = "answers"
AUDIT = "audit"  # of the query string
AUDITING = "auditing"  # of the session: the project whose votes a reviewer is auditing
_HELD = screen.Notice(
    _(
        "You still have a pair of the common queue: it comes first, and your vote on it counts as "
        "usual. Audits follow."
    ),
    tone="",
    icon="info",
)
_AUDITING = screen.Notice(
    _(
        "Audits: you judge pairs again that others voted on, without seeing their votes. "
        "Open Label in the menu to return to the common queue."
    ),
    tone="",
    icon="eye-off",
)


@require_safe
@project_page(LABELERS)
def label(request: Request) -> HttpResponse:
    """The pair in hand or the next one; `?answer=ID` opens an answer of one's own to change it,
    `?unskip=ID` takes back the skip of a comparison.

    With `?lane=audit` a reviewer gets votes of others to audit, one after another, until they
    open the page without it. A page that waits for a pair says in `?waiting=` what it shows: as
    long as that is still so, nothing is sent, so that nothing moves under its reader.
    """
    wanted, skipped = (request.GET.get(name, "")[:18] for name in ("answer", "unskip"))
    if not request.htmx:
        _stream_set(request)
    notice = None
    try:
        if skipped.isdecimal():
            services.skip_undo(
                project=request.project, annotator=request.user, comparison=int(skipped)
            )
        got = _answered(request, int(wanted)) if wanted.isdecimal() else _next(request)
    except Missing as error:
        raise Http404(error.message) from error
    except Conflict as error:
        got, notice = _next(request), screen.Notice(error.message)
    if isinstance(got, NothingReason) and request.GET.get("waiting") == got.text and request.htmx:
        return HttpResponse(status=204)
    back_to = _back_to(request.GET, "from")
    if not notice and _auditing(request) and isinstance(got, Lease):
        notice = _AUDITING if _is_audit(got) else _HELD
    return shown(request, got, undo=_undo(request), back_to=back_to, notice=notice)


@require_POST
@project_page(LABELERS)
def vote(request: Request) -> HttpResponse:
    form = VoteForm(request.POST)

    def act() -> HttpResponse:
        result = services.vote_cast(
            slot=form.cleaned_data["slot"],
            annotator=request.user,
            idempotency_key=form.cleaned_data["key"],
            lease_next=not _auditing(request),
            **form.answer_fields(),
        )
        done = _go_on(request, result.next or _next(request), undo=f"answer={result.vote.pk}")
        return stored(done, form.cleaned_data["key"])

    return _try(request, form, act)


@require_POST
@project_page(LABELERS)
def skip(request: Request) -> HttpResponse:
    form = SkipForm(request.POST)

    def act() -> HttpResponse:
        try:
            following = services.slot_skip(annotator=request.user, **form.cleaned_data)
        except Missing as error:
            if error.code != "slot_gone":  # it went with an import that was undone
                raise
            following = _next(request)
        done = _go_on(request, following, undo=_undo(request))
        return stored(done, f"skip.{form.cleaned_data['slot']}")

    return _try(request, form, act)


@require_POST
@project_page(LABELERS)
def revise(request: Request, vote_id: int) -> HttpResponse:
    """Change an answer, then go on where one was."""
    form = AnswerForm(request.POST)

    def act() -> HttpResponse:
        result = services.vote_revise(
            vote=vote_id,
            annotator=request.user,
            idempotency_key=form.cleaned_data["key"],
            **form.answer_fields(),
        )
        done = _changed(
            request, gettext("Your answer was changed."), undo=f"answer={result.vote.pk}"
        )
        return stored(done, form.cleaned_data["key"])

    return _try(request, form, act, answered=vote_id)


@require_POST
@project_page(LABELERS)
def withdraw(request: Request, vote_id: int) -> HttpResponse:
    """Take an answer back; the pair goes to others."""

    def act() -> HttpResponse:
        services.vote_withdraw(vote=vote_id, annotator=request.user)
        said = gettext("Your answer was withdrawn; others will judge this pair.")
        return _changed(request, said, undo=_undo(request))

    return _try(request, None, act)


@require_POST
@project_page(LABELERS)
def hold(request: Request) -> HttpResponse:
    """Keep the pair in hand a while longer, for someone who is still reading it."""
    got = _next(request)
    if isinstance(got, NothingReason):
        return JsonResponse({"slot": None, "leased_until": None})
    return JsonResponse({"slot": got.slot, "leased_until": got.leased_until.isoformat()})


@require_safe
@project_page(LABELERS)
def part(request: Request, slot: int, side: str, number: int) -> HttpResponse:
    """The whole text of a message of the runs in hand, of which the page holds the beginning."""
    try:
        html = runs.part_html(
            project=request.project, annotator=request.user, slot=slot, side=side, number=number
        )
    except Missing as error:
        raise Http404(error.message) from error
    return HttpResponse(html)


@require_safe
def result(request: Request, sha256: str) -> HttpResponse:
    """What a tool gave back, whole, where a page has the beginning; to members of a project with
    it alone."""
    text = selectors.result_for(user=request.user, sha256=sha256)
    if text is None:
        raise Http404("There is no such result.")
    response = HttpResponse(runs.letters_html(text))
    response["Cache-Control"] = "private, max-age=86400, immutable"
    return response


@require_safe
@never_cache
@login_not_required
def who(request: Request, slug: str) -> JsonResponse:
    """Who is signed in here now, and a token to send with.

    An answer that waited in the browser is delivered for the person who gave it and no other, also
    after someone signed out and in again, which changes the token. It says nothing of the project.
    """
    person = request.user.pk if request.user.is_authenticated else None
    return JsonResponse({"person": person, "csrf": get_token(request)})


# --- how every answer of this screen ends ---------------------------------------------------------


def _try(
    request: Request,
    form: Checked | None,
    act: Callable[[], HttpResponse],
    answered: int | None = None,
) -> HttpResponse:
    """Check the form and act. What cannot be done is said above the pair in hand.

    answered: the answer that was to be changed; it stays open with what was typed, unless others
    or another tab made that pointless.
    """
    try:
        if form is not None:
            form.check()
        return act()
    except Missing as error:
        raise Http404(error.message) from error
    except DomainError as error:
        if answered is not None and not isinstance(error, Conflict):
            got, same = _answered(request, answered), True
        else:
            got = _next(request)
            same = isinstance(got, Lease) and request.POST.get("slot") == str(got.slot)
        response = shown(
            request,
            got,
            status=error.status,
            undo=_undo(request),
            notice=screen.Notice(error.message),
            typed=_typed(request) if same else None,
            back_to=_back_to(request.POST),
        )
        response["Concord-Refused"] = error.code
        return response


def stored(response: HttpResponse, key: str) -> HttpResponse:
    """Tell the browser's outbox, which may forget what is stored."""
    response["Concord-Stored"] = key
    return response


def _back_to(sent: QueryDict, name: str = "back_to") -> str:
    return BACK_TO_ANSWERS if sent.get(name) == BACK_TO_ANSWERS else ""


def _typed(request: Request) -> screen.Given:
    sent = request.POST
    return screen.Given(
        answer=sent.get("answer", ""),
        criteria=criteria_sent(sent),
        reasons=sent.getlist("reasons"),
        rationale=sent.get("rationale", ""),
        flags=sent.getlist("flags"),
        improvement=sent.get("improvement", ""),
        runs=runs_sent(sent),
    )


def _go_on(request: Request, got: Next, *, undo: str) -> HttpResponse:
    """The next pair in place, or without JavaScript the page that shows it."""
    if not request.htmx:
        return redirect(label_url(request))
    return shown(request, got, undo=undo)


def _changed(request: Request, said: str, *, undo: str) -> HttpResponse:
    """After an old answer was changed: back to My answers, or on with the pair in hand."""
    if _back_to(request.POST):
        messages.success(request, said)
        url = reverse("labeling:answers", args=[request.project.slug])
        return HttpResponseClientRedirect(url) if request.htmx else redirect(url)
    if not request.htmx:
        messages.success(request, said)
        return redirect(label_url(request))
    notice = screen.Notice(said, tone="good", icon="circle-check")
    return shown(request, _next(request), undo=undo, notice=notice)


def shown(
    request: Request, got: Next | AnsweredPair, *, status: int = 200, **more: Any
) -> HttpResponse:
    """The screen of the kind of task that came."""
    if isinstance(got, Lease) and got.kind in RATED:
        if request.htmx:  # another screen, with scripts of its own
            return HttpResponseClientRedirect(label_url(request))
        notice = more.get("notice")
        context = rating_screen.context(got, notice=str(notice.text) if notice else "")
        return render(request, "labeling/rating.html", context, status=status)
    return _page(request, _context(request, got, **more), status=status)


def _page(request: Request, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    if request.htmx:  # htmx swaps in what comes with 200 only
        return render(request, "labeling/_pair.html", context)
    return render(request, "labeling/label.html", context, status=status)


def _context(request: Request, got: Next | AnsweredPair, **more: Any) -> dict[str, Any]:
    slug = request.project.slug
    context = screen.context(got, project=request.project, annotator=request.user, **more)
    context["urls"] = bar.addresses(slug)
    context["auditing"] = _auditing(request) and isinstance(got, Lease) and _is_audit(got)
    if isinstance(got, Lease) and not more.get("typed"):
        context["bar"] = bar.bar_html(slug=slug, questions=got.questions, undo=more.get("undo", ""))
    if isinstance(got, AnsweredPair) and request.role in READERS:
        context["frozen_uses"] = vote_traces([got.vote.pk]).get(got.vote.pk, [])
    return context


def _next(request: Request) -> Next:
    if _auditing(request):
        return services.slot_lease_audit(project=request.project, annotator=request.user)
    return services.slot_lease_next(project=request.project, annotator=request.user)


def _stream_set(request: Request) -> None:
    """Whoever opens the page with `?lane=audit` gets audits until they open it without."""
    if request.GET.get("lane") == AUDIT and request.role in services.AUDITORS:
        request.session[AUDITING] = request.project.pk
    elif AUDITING in request.session:
        del request.session[AUDITING]


def label_url(request: Request) -> str:
    """The label page in the stream through which one came: the common queue or audits."""
    query = f"?lane={AUDIT}" if _auditing(request) else ""
    return reverse("labeling:label", args=[request.project.slug]) + query


def _is_audit(lease: Lease) -> bool:
    return Slot.objects.filter(pk=lease.slot, kind=Slot.Kind.AUDIT).exists()


def _auditing(request: Request) -> bool:
    asked = request.session.get(AUDITING) == request.project.pk
    return asked and request.role in services.AUDITORS


def _answered(request: Request, vote: int) -> AnsweredPair:
    return selectors.answered_pair(project=request.project, annotator=request.user, vote=vote)


def _undo(request: Request) -> str:
    return selectors.undo_query(project=request.project, annotator=request.user)


# An annotator's own answers.

ANSWERS_PER_PAGE = 50


@require_safe
@project_page(LABELERS)
def answers(request: Request) -> HttpResponse:
    """What I have answered, newest first; each can be opened and changed."""
    form = AnswersFilter(request.GET)
    wanted = form.cleaned_data if form.is_valid() else {}
    found = selectors.answers_of(
        project=request.project,
        annotator=request.user,
        choice=wanted.get("choice", ""),
        search=wanted.get("q", ""),
    )
    found = answers_only(found, wanted.get("only", ""))
    page = Paginator(found, ANSWERS_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page_title": gettext("My answers"),
        "nav": "answers",
        "form": form,
        "filtered": any(wanted.values()),
        "page": page,
        "rated": has_rating_tasks(request.project),
        "rows": answer_rows(page, named=request.role in READERS),
        "n_today": selectors.answers_today(project=request.project, annotator=request.user),
    }
    return render(request, "labeling/answers.html", context)


# What an annotator does not want to get.


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(LABELERS)
def opt_outs(request: Request) -> HttpResponse:
    """One's own choice: topics to leave out, and everything with a warning."""
    mine = selectors.annotator_of(project=request.project, user=request.user)
    topics = topics_of(project=request.project)
    form = OptOutForm(request.POST or None, current=mine, topics=topics)
    if request.method == "POST" and form.is_valid():
        services.annotator_opt_out(project=request.project, user=request.user, **form.cleaned_data)
        messages.success(request, gettext("Saved. It holds from your next pair on."))
        return redirect("labeling:opt_outs", request.project.slug)
    context = {
        "page_title": gettext("What you do not want to get"),
        "nav": "answers",
        "form": form,
        "settings": selectors.settings_get(project=request.project),
    }
    return render(request, "labeling/opt_outs.html", context)


# The annotator's home: every project they label in, and how things stand there.


@require_safe
def work(request: Request) -> HttpResponse:
    """Takes no lease: looking at what there is to do is not doing it."""
    return render(request, "labeling/home.html", work_screen.context(user=request.user))
