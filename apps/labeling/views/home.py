"""The annotator's home: every project they label in, and how things stand there."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.common.http import Request
from apps.labeling.screens import home


@require_safe
def work(request: Request) -> HttpResponse:
    """Takes no lease: looking at what there is to do is not doing it."""
    return render(request, "labeling/home.html", home.context(user=request.user))
