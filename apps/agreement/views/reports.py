"""The statistics pages: agreement, by segment, by pair of people. All begin with the report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.models import Project
from apps.accounts.permissions import ADMIN, READERS, project_page
from apps.agreement.models import AgreementReport
from apps.agreement.screens import matrix as matrix_screen
from apps.agreement.screens import overview as screen
from apps.agreement.screens import runs as runs_screen
from apps.agreement.screens import slices as slices_screen
from apps.agreement.screens.annotators import name_of
from apps.agreement.screens.overview import STATISTICS_COLUMNS, statistics_csv_rows, which_votes
from apps.agreement.selectors import slices as people
from apps.agreement.selectors import votes
from apps.agreement.selectors.runs import agreement_on_runs
from apps.agreement.selectors.slices import words_about
from apps.agreement.services.pairing import MOST_PEOPLE, TwoPeople, matrix_of_chosen, two_people
from apps.agreement.services.reports import report_refresh
from apps.common.http import Request
from apps.common.numbers import share as percent
from apps.common.spreadsheet import csv_lines
from apps.labeling.models import Choice, Vote
from apps.labeling.selectors import ambiguity
from apps.labeling.texts import excerpt
from measures.voting import CHOICES
from workers.contract.reasons import reason_words


def report_context(request: Request) -> tuple[AgreementReport | None, dict[str, Any]]:
    report = votes.report_get(project=request.project)
    newest = votes.newest_vote_id(project=request.project)
    context: dict[str, Any] = {"nav": "agreement", "report": report, "has_votes": newest > 0}
    if report is not None:
        context |= {
            "newer_votes": newest > report.last_vote_id,
            "which_votes": which_votes(report),
        }
    return report, context


def csv_response(
    request: Request, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(csv_lines(columns, rows), content_type="text/csv; charset=utf-8")
    file = f"{request.project.slug}-{name}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{file}"'
    return answer


# The agreement page.


@require_safe
@project_page(READERS)
def overview(request: Request) -> HttpResponse:
    report, context = report_context(request)
    if report is not None:
        context |= screen.overview(report)
    return render(request, "agreement/overview.html", context | {"page_title": "Agreement"})


@require_POST
@project_page(READERS)
def refresh(request: Request) -> HttpResponse:
    report_refresh(project=request.project)
    messages.success(request, "Computed again from all current votes.")
    back = "results" if request.POST.get("page") == "results" else "overview"
    return redirect(f"agreement:{back}", slug=request.project.slug)


@require_safe
@project_page(READERS)
def statistics_csv(request: Request) -> StreamingHttpResponse:
    """Every statistic, the pull of the left side and what labels cost."""
    report = votes.report_get(project=request.project)
    rows = statistics_csv_rows(report) if report else []
    return csv_response(request, "agreement", STATISTICS_COLUMNS, rows)


@require_safe
@project_page(READERS)
def splits_csv(request: Request) -> StreamingHttpResponse:
    """The numbers behind the chart of vote splits."""
    report = votes.report_get(project=request.project)
    columns = ("pattern", "votes", "largest share", "comparisons", "accepted by the rule")
    rows = [
        # The leading quote keeps a spreadsheet from reading "4–1" as a date.
        dict(
            zip(
                columns,
                (
                    f"'{row['pattern']}",
                    row["n_votes"],
                    round(row["share"], 4),
                    row["comparisons"],
                    row["accepted"],
                ),
                strict=True,
            )
        )
        for row in (report.figures["splits"] if report else [])
    ]
    return csv_response(request, "vote-splits", columns, rows)


# Agreement by segment: agreement by slice, and the prompts they read differently.

MOST_PROMPTS = 10


@require_safe
@project_page(READERS)
def slices(request: Request) -> HttpResponse:
    """`sort` and `down` order the tables of numbers."""
    report, context = report_context(request)
    sort, down = request.GET.get("sort", ""), request.GET.get("down") == "1"
    if report is not None and report.n_votes:
        context |= slices_screen.slices(report, sort=sort, down=down)
        context |= _ambiguous(request.project)
    context |= {
        "page_title": "Agreement by segment",
        "sort": sort,
        "down": down,
        "columns": [
            {"key": key, "label": label, "url": _sorted_url(key, again=key == sort and not down)}
            for key, label in slices_screen.SORTS.items()
        ],
    }
    return render(request, "agreement/slices.html", context)


@require_safe
@project_page(READERS)
def runs(request: Request) -> HttpResponse:
    """Agreement on what was said about runs of agents."""
    context = {
        "page_title": "Agreement on runs of agents",
        "nav": "agreement",
        "rows": runs_screen.rows(agreement_on_runs(project=request.project)),
    }
    return render(request, "agreement/runs.html", context)


def _sorted_url(key: str, *, again: bool) -> str:
    """A second click on a column turns it round."""
    return "?" + urlencode({"sort": key} | ({"down": 1} if again else {}))


def _ambiguous(project: Project) -> dict[str, Any]:
    ranking = ambiguity.ranking(project=project)
    rows = ranking.rows[:MOST_PROMPTS]
    keys = [int(row.key) for row in rows]
    details = ambiguity.prompt_details(prompts=keys)
    words = words_about(project=project, prompts=keys)
    prompts = [
        {"row": row, "details": details[key], "words": [_word(vote) for vote in words.get(key, [])]}
        for row, key in zip(rows, keys, strict=True)
        if key in details
    ]
    return {"prompts": prompts, "n_prompts": ranking.n}


def _word(vote: Any) -> dict[str, Any]:
    return {
        "rationale": vote.rationale[:400],
        "reasons": vote.reasons,
        "flags": [flag.replace("_", " ") for flag in vote.flags],
        "choice_words": vote.get_choice_display(),
        "comparison_id": vote.comparison_id,
    }


@require_safe
@project_page(READERS)
def slices_csv(request: Request) -> StreamingHttpResponse:
    report = votes.report_get(project=request.project)
    rows = slices_screen.csv_rows(report) if report else []
    return csv_response(request, "agreement-slices", slices_screen.CSV_COLUMNS, rows)


# Who agrees with whom: the matrix, and where two people chose differently.

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
            "matrix": matrix_screen.matrix(figures, names),
            "levels": list(enumerate(matrix_screen.LEVEL_WORDS)),
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
    rows = matrix_screen.csv_rows(figures, _names(request, figures["people"])) if figures else []
    return csv_response(request, "agreement-matrix", matrix_screen.CSV_COLUMNS, rows)


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
        "no_kappa": reason_words(two.kappa.undefined or two.kappa.no_interval),
        "n_common": two.share.n,
        "share": "" if two.share.value is None else percent(two.share.value),
        "share_spread": matrix_screen.spread(two.share),
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
        "prompt": excerpt(comparison.prompt.brief, 240),
        "answers": [
            {"side": "a", "letter": "A", "text": excerpt(comparison.response_a.brief, 320)},
            {"side": "b", "letter": "B", "text": excerpt(comparison.response_b.brief, 320)},
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
