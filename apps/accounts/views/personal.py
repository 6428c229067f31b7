"""A person's data: given to them, and erased."""

from django.contrib import messages
from django.http import FileResponse, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts import services
from apps.accounts.forms import ErasureForm
from apps.accounts.models import User
from apps.accounts.reauthentication import fresh_sign_in_required, posted
from apps.accounts.views.site import site_admins_only
from apps.common import registry
from apps.common.errors import DomainError
from apps.common.http import Request

# Exports and erasures of personal data: whoever asks must have proved lately who they are.


@never_cache
@require_POST
@fresh_sign_in_required
def own_data(request: Request) -> FileResponse:
    """Everything of oneself, as a zip."""
    return _zip(request.user, request.user)


@never_cache
@require_POST
@site_admins_only
@fresh_sign_in_required
def person_data(request: Request, user_id: int) -> FileResponse:
    """The same of somebody else, by an administrator of the site on their behalf."""
    return _zip(get_object_or_404(User, pk=user_id), request.user)


@require_POST
def erasure_ask(request: Request) -> HttpResponse:
    asked = "withdraw" not in request.POST
    services.erasure_ask(user=request.user, asked=asked)
    messages.success(
        request,
        gettext("The administrators of this site see that you want to be erased.")
        if asked
        else gettext("You no longer ask to be erased."),
    )
    return redirect("accounts:account")


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@site_admins_only
@fresh_sign_in_required(when=posted)
def person_erase(request: Request, user_id: int) -> HttpResponse:
    """What it would change, then the erasure."""
    person = get_object_or_404(User, pk=user_id, erased_at=None)
    form = ErasureForm(request.POST or None, person=person)
    if request.method == "POST" and form.is_valid():
        try:
            services.person_erase(
                user=person,
                by=request.user,
                votes=form.cleaned_data["votes"],
                remarks=form.cleaned_data["remarks"],
            )
        except DomainError as error:
            form.add_error(None, error.message)
        else:
            messages.success(request, f"The person with the number {person.pk} is erased.")
            return redirect("accounts:site_people")
    context = {
        "person": person,
        "form": form,
        "datasets": registry.person_datasets(person),
        "page_title": f"Erase {person}",
        "nav": "site_people",
    }
    status = 422 if form.errors else 200
    return render(request, "accounts/person_erase.html", context, status=status)


def _zip(person: User, by: User) -> FileResponse:
    return FileResponse(
        services.person_data(user=person, by=by),
        as_attachment=True,
        filename=f"person-{person.pk}.zip",
        content_type="application/zip",
    )
