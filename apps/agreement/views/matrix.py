"""Who agrees with whom: the matrix, and where two people chose differently."""

from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from apps.accounts.permissions import ADMIN, READERS, project_page
from apps.agreement.screens import matrix as screen
from apps.agreement.screens.annotators import name_of
from apps.agreement.screens.charts import percent
from apps.agreement.selectors import slices as people
from apps.agreement.services.pairing import MOST_PEOPLE, TwoPeople, matrix_of_chosen, two_people
from apps.agreement.views.reports import csv_response, report_context
from apps.common.http import Request
from apps.labeling.models import Choice, Vote
from apps.labeling.texts import excerpt
from measures.voting import CHOICES

PER_PAGE = 20


@require_safe
@project_page(READERS)
def matrix(request: Request) -> HttpResponse:
    """`people` (ids, with commas) chooses who is shown; without it, those with most in common.
    `q` searches people to add. Admins see names, others numbers."""
    report, context = report_context(request)
    figures, chosen = _figures(request, report)
    context |= {"page_title": "Who agrees with whom", "chosen": bool(chosen), "figures": figures}
    if figures is not None:
        names = _names(request, figures["people"])
        shown = [person for person in figures["people"] if person in names]
        search = request.GET.get("q", "").replace("\x00", "").strip()[:100]
        context |= {
            "matrix": screen.matrix(figures, names),
            "levels": list(enumerate(screen.LEVEL_WORDS)),
            "people": [
                {"name": names[person], "url": _choice(p for p in shown if p != person)}
                for person in shown
            ],
            "search": search,
            "found": _found(request, search, shown),
            "room": len(shown) < MOST_PEOPLE,
            "most": MOST_PEOPLE,
            "asked": ",".join(map(str, shown)) if chosen else "",
            "n_people": report.figures["matrix"]["n_people"] if report else 0,
            "with_names": request.role == ADMIN,
        }
    return render(request, "agreement/matrix.html", context)


def _figures(request: Request, report: Any) -> tuple[dict[str, Any] | None, list[int]]:
    """The stored matrix, or that of the people asked for."""
    parts = request.GET.get("people", "").split(",")
    wanted = [int(part) for part in parts if part.isdecimal() and len(part) < 10]
    known = people.people_known(project=request.project, people=wanted)
    chosen = [person for person in dict.fromkeys(wanted) if person in known][:MOST_PEOPLE]
    if chosen:
        return matrix_of_chosen(project=request.project, people=chosen), chosen
    return (None if report is None or not report.n_votes else report.figures["matrix"]), []


def _names(request: Request, ids: list[int]) -> dict[int, str]:
    known = people.people_known(project=request.project, people=ids)
    return {key: name_of(user, with_names=request.role == ADMIN) for key, user in known.items()}


def _choice(ids: Any) -> str:
    return "?people=" + ",".join(str(person) for person in ids)


def _found(request: Request, search: str, shown: list[int]) -> list[dict[str, str]]:
    if not search:
        return []
    with_names = request.role == ADMIN
    found = people.people_found(
        project=request.project, search=search, without=shown, with_names=with_names
    )
    # The last one shown makes room where the matrix is full.
    kept = shown[: MOST_PEOPLE - 1]
    return [
        {"name": name_of(user, with_names=with_names), "url": _choice([*kept, user.pk])}
        for user in found
    ]


@require_safe
@project_page(READERS)
def matrix_csv(request: Request) -> StreamingHttpResponse:
    report, _ = report_context(request)
    figures, _ = _figures(request, report)
    rows = screen.csv_rows(figures, _names(request, figures["people"])) if figures else []
    return csv_response(request, "agreement-matrix", screen.CSV_COLUMNS, rows)


@require_safe
@project_page(READERS)
def disagreements(request: Request, first: int, second: int) -> HttpResponse:
    """Comparisons on which two people chose differently; `first` and `second` in the query string
    keep those where they chose these."""
    names = _names(request, [first, second])
    if first == second or len(names) < 2:
        raise Http404("these two people have not both voted here")
    two = two_people(project=request.project, first=first, second=second)
    wanted = (request.GET.get("first", ""), request.GET.get("second", ""))
    ids = _differing(two, wanted)
    page = Paginator(ids, PER_PAGE).get_page(request.GET.get("page"))
    rows = people.votes_of_two(comparisons=list(page), first=first, second=second)
    context = {
        "page_title": f"{names[first]} and {names[second]}",
        "nav": "agreement",
        "first_name": names[first],
        "second_name": names[second],
        "two": two,
        "n_common": two.share.n,
        "share": "" if two.share.value is None else percent(two.share.value),
        "share_spread": screen.spread(two.share),
        "n_differing": sum(len(keys) for (c, d), keys in two.cells.items() if c != d),
        "choices": [Choice(str(choice)).label for choice in CHOICES],
        "table": _table(two, wanted),
        "filtered": any(wanted),
        "page": page,
        "rows": [_row(*row) for row in rows],
        "matrix_url": reverse("agreement:matrix", args=[request.project.slug]),
    }
    return render(request, "agreement/disagreements.html", context)


def _differing(two: TwoPeople, wanted: tuple[str, str]) -> list[int]:
    places = {str(choice): place for place, choice in enumerate(CHOICES)}
    cell = (places.get(wanted[0], -1), places.get(wanted[1], -1))
    if cell[0] >= 0 and cell[1] >= 0:
        return two.cells.get(cell, [])
    keys = [key for (c, d), found in two.cells.items() if c != d for key in found]
    return sorted(keys, reverse=True)


def _table(two: TwoPeople, wanted: tuple[str, str]) -> list[dict[str, Any]]:
    """Rows of what the first chose, cells of what the second did."""
    return [
        {
            "label": Choice(str(c)).label,
            "cells": [
                {
                    "n": two.table[row][column],
                    "url": f"?first={c}&second={d}",
                    "same": row == column,
                    "current": wanted == (str(c), str(d)),
                }
                for column, d in enumerate(CHOICES)
            ],
        }
        for row, c in enumerate(CHOICES)
    ]


def _row(comparison: Any, first: Vote, second: Vote) -> dict[str, Any]:
    return {
        "comparison": comparison,
        "prompt": excerpt(comparison.prompt.messages, 240),
        "answers": [
            {"side": "a", "letter": "A", "text": excerpt(comparison.response_a.messages, 320)},
            {"side": "b", "letter": "B", "text": excerpt(comparison.response_b.messages, 320)},
        ],
        "votes": [_said(first), _said(second)],
    }


def _said(vote: Vote) -> dict[str, Any]:
    return {
        "choice": vote.choice,
        "words": vote.get_choice_display(),
        "rationale": vote.rationale[:400],
        "reasons": vote.reasons,
        "flags": [flag.replace("_", " ") for flag in vote.flags],
        "at": vote.cast_at,
    }
