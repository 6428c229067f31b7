"""Other runs behind the curves of one: which may be chosen, which are, and how they are drawn."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from apps.common.errors import Missing
from apps.training.models import Run
from apps.training.selectors.pages import runs_for_list

ENOUGH = 3  # runs: of fewer there is no band
MOST_LINES = 4  # runs drawn as lines; more would hide the run itself
MOST_BAND = 30
OFFERED = 40  # newest runs of the kind in the picker

LINES, BAND = "lines", "band"


@dataclass(frozen=True, slots=True)
class References:
    """What an address chooses. `problem` says what is wrong with it."""

    chosen: list[Run]
    seeds: list[Run]
    as_band: bool
    with_seeds: bool
    offered: list[Run]
    problem: str = ""


def references(run: Run, asked: Iterable[str], *, shape: str, with_seeds: bool) -> References:
    chosen = _runs(run, asked)
    seeds = seeds_beside(run)
    of_band = {one.pk for one in chosen} | ({one.pk for one in seeds} if with_seeds else set())
    as_band = shape == BAND or with_seeds
    problem = ""
    if as_band and len(of_band) < ENOUGH:
        problem = (
            f"A band needs at least {ENOUGH} other runs, and {len(of_band)} "
            f"{'is' if len(of_band) == 1 else 'are'} chosen. They are drawn as lines."
        )
        as_band = False
    if not as_band and len(chosen) > MOST_LINES:
        problem = f"At most {MOST_LINES} runs are drawn as lines; more can be drawn as a band."
        chosen = chosen[:MOST_LINES]
    if not as_band and with_seeds:
        chosen = [*chosen, *(s for s in seeds if s not in chosen)][:MOST_LINES]
    same_kind = runs_for_list(project=run.project, kind=run.kind).exclude(pk=run.pk)
    offered = list(same_kind[:OFFERED])
    offered += [one for one in chosen if one not in offered]
    return References(chosen, seeds, as_band, with_seeds, offered, problem)


def seeds_beside(run: Run) -> list[Run]:
    """The other runs of its group."""
    if not run.group:
        return []
    rows = Run.objects.filter(project=run.project, group=run.group).exclude(pk=run.pk)
    return list(rows.order_by("seed")[:MOST_BAND])


def band_runs(run: Run, asked: Iterable[str], *, seeds: bool) -> list[Run]:
    chosen = _runs(run, asked)
    beside = seeds_beside(run) if seeds else []
    return [*chosen, *(one for one in beside if one not in chosen)][:MOST_BAND]


def _runs(run: Run, asked: Iterable[str]) -> list[Run]:
    """In the order in which they were asked for; a comma joins several. Raises `Missing`."""
    ids = list(dict.fromkeys(key for one in asked for key in one.split(",") if key))[:MOST_BAND]
    ids = [key for key in ids if key != run.pk]
    if any("\x00" in key for key in ids):
        raise Missing("There is no such run in this project.", field="with")
    rows = Run.objects.filter(project=run.project).select_related("project").in_bulk(ids)
    if missing := next((key for key in ids if key not in rows), None):
        raise Missing(f"There is no run '{missing}' in this project.", field="with")
    return [rows[key] for key in ids]


def source(run: Run, *, role: str, colour: int) -> dict[str, Any]:
    """A run as the charts ask for it."""
    args = [run.project.slug, run.pk]
    return {
        "id": run.pk,
        "name": run.name,
        "page": reverse("training:run", args=args),
        "url": reverse("training:run_metrics", args=args),
        "live": run.is_live,
        "role": role,
        "colour": colour,
    }
