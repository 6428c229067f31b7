"""The images of a project: those that messages and guidelines show, and the page that adds some."""

import re

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.permissions import ADMIN, STAFF, project_page
from apps.common.errors import DomainError
from apps.common.http import Request
from apps.labeling import selectors
from apps.labeling.services import images as services

_PAGE = 48
_MOST_AT_ONCE = 50
_HASH = re.compile("[0-9a-f]{64}")


@require_safe
def image(request: Request, sha256: str) -> HttpResponse:
    """An image of a project that this person belongs to; nobody else learns that there is one."""
    found = (
        selectors.image_for(user=request.user, sha256=sha256) if _HASH.fullmatch(sha256) else None
    )
    if found is None:
        raise Http404("There is no such image.")
    response = HttpResponse(services.image_content(found), content_type=found.media_type)
    response["Content-Disposition"] = f'inline; filename="{sha256[:12]}"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, max-age=86400, immutable"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def images(request: Request) -> HttpResponse:
    """Look at the images of a project, newest first, and add files."""
    if request.method == "POST":
        _add(request)
        return redirect("labeling:images", request.project.slug)
    page = Paginator(selectors.images_of(project=request.project), _PAGE)
    context = {
        "page_title": "Images",
        "nav": "imports",
        "page": page.get_page(request.GET.get("page")),
        "may_delete": request.role == ADMIN,
    }
    return render(request, "labeling/images.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(frozenset({ADMIN}))
def image_delete(request: Request, sha256: str) -> HttpResponse:
    """Say where it is shown, and delete it."""
    found = selectors.image_in(project=request.project.pk, sha256=sha256)
    if found is None:
        raise Http404("There is no such image.")
    if request.method == "POST":
        services.image_delete(image=found, by=request.user)
        messages.success(request, "The image is deleted.")
        return redirect("labeling:images", request.project.slug)
    uses = selectors.image_uses(image=found)
    words = [f"{n:,} {name if n == 1 else name + 's'}" for name, n in uses.items() if n]
    context = {"page_title": "Delete an image", "nav": "imports", "image": found, "uses": words}
    return render(request, "labeling/image_delete.html", context)


def _add(request: Request) -> None:
    files = request.FILES.getlist("files")[:_MOST_AT_ONCE]
    added = 0
    for file in files:
        try:
            if (file.size or 0) > services.MOST_BYTES:
                raise services.BadImage(f"has more than {services.MOST_BYTES:,} bytes")
            services.image_store(
                project=request.project, data=file.read(), name=file.name or "", user=request.user
            )
            added += 1
        except DomainError as error:
            messages.error(request, f"“{file.name}” {error.message}.")
    if added:
        word = "image is" if added == 1 else "images are"
        messages.success(request, f"{added} {word} stored. Copy a reference to name it in a text.")
    elif not files:
        messages.error(request, "Choose at least one file.")
