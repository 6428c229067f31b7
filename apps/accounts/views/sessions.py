"""The browsers that are signed in as one, and ending that."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext, ngettext
from django.views.decorators.http import require_POST, require_safe

from apps.accounts import selectors, services
from apps.accounts.models import BrowserSession
from apps.accounts.reauthentication import fresh_sign_in_required
from apps.accounts.screens import browser_named
from apps.common.http import Request


@require_safe
def sessions(request: Request) -> HttpResponse:
    here = request.session.session_key
    rows = [
        {"row": row, "browser": browser_named(row.browser), "is_here": row.session_key == here}
        for row in selectors.sessions_of(request.user)
    ]
    context = {
        "rows": rows,
        "has_others": any(not row["is_here"] for row in rows),
        "page_title": gettext("Your sessions"),
        "nav": "account",
    }
    return render(request, "accounts/sessions.html", context)


@require_POST
@fresh_sign_in_required
def session_end(request: Request) -> HttpResponse:
    """The one named by `session`, or without it all but this one."""
    found = BrowserSession.objects.filter(user=request.user)
    if "session" in request.POST:
        number = request.POST["session"]
        row = get_object_or_404(found, pk=number if number.isascii() and number.isdigit() else 0)
        if row.session_key == request.session.session_key:
            messages.error(request, gettext("To end this session, sign out."))
            return redirect("accounts:sessions")
        found = found.filter(pk=row.pk)
    else:
        found = found.exclude(session_key=request.session.session_key)
    n = services.sessions_end(sessions=found, by=request.user)
    ended = ngettext("%(n)s session is ended.", "%(n)s sessions are ended.", n) % {"n": n}
    messages.success(request, ended)
    return redirect("accounts:sessions")
