"""Mixing datasets into one: choose parts and weights, see what each would give, have it made."""

import math
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.permissions import STAFF, project_page
from apps.common.errors import DomainError, Unprocessable
from apps.common.http import Request
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.snapshots import mixable
from apps.snapshots.services import mixing
from apps.snapshots.views.datasets import LATER


@dataclass(frozen=True, slots=True)
class Line:
    """A dataset of the table: what was chosen of it, and what it would give."""

    snapshot: Snapshot
    chosen: bool
    weight: str
    rows: int | None = None

    @property
    def size(self) -> int:
        return self.snapshot.counts.get("rows", {}).get("train", 0)

    @property
    def repeats(self) -> float | None:
        """How often each row recurs; None where none does."""
        return self.rows / self.size if self.rows and self.rows > self.size else None


@require_http_methods(["GET", "HEAD", "POST"])
@project_page(STAFF)
def snapshot_mix(request: Request) -> HttpResponse:
    """The table of datasets of one kind; with `action=preview` what each would give."""
    asked = request.POST if request.method == "POST" else request.GET
    kinds = mixable(project=request.project, user=request.user)
    kind = asked.get("kind", "")
    kind = kind if kind in kinds else next(iter(kinds), "")
    shown = kinds.get(kind, [])
    picked = [one.pk for one in shown if one.pk in asked.getlist("pick")]
    weights = {one.pk: asked.get(f"weight_{one.pk}", "").strip() or "1" for one in shown}
    repeat = "repeat" in asked
    counts: dict[str, int] = {}
    error = ""
    if request.method == "POST":
        try:
            parts = mixing.parts_from(
                project=request.project,
                user=request.user,
                given=[(pk, _weight(weights[pk])) for pk in picked],
            )
            if request.POST.get("action") != "preview":
                made, sent = mixing.mixture_start(
                    project=request.project,
                    name=request.POST.get("name", ""),
                    parts=parts,
                    user=request.user,
                    repeat=repeat,
                )
                if not sent:
                    messages.warning(request, LATER)
                return redirect("snapshots:detail", request.project.slug, made.pk)
            mixing.parts_check(parts, project=request.project, repeat=repeat)
            sizes = [one.snapshot.counts["rows"].get("train", 0) for one in parts]
            wanted = mixing.shares_of(parts, sizes, repeat=repeat)
            counts = {one.snapshot.pk: n for one, n in zip(parts, wanted, strict=True)}
        except DomainError as refused:
            error = refused.message
    lines = [Line(one, one.pk in picked, weights[one.pk], counts.get(one.pk)) for one in shown]
    context = {
        "page_title": "Mix datasets",
        "nav": "datasets",
        "lines": lines,
        "kind": kind,
        "kinds": [(value, label) for value, label in Snapshot.Kind.choices if value in kinds],
        "name": asked.get("name", ""),
        "repeat": repeat,
        "total": sum(counts.values()),
        "error": error,
        "most": mixing.MOST_PARTS,
    }
    return render(request, "snapshots/mix.html", context, status=422 if error else 200)


def _weight(given: str) -> float:
    try:
        weight = float(given)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise Unprocessable(f"A weight must be a number, not '{given[:20]}'.", field="parts")
    return weight
