"""The newest figures of single runs while they live: at most METRICS_RUNS of them, in four queries.

A run is named by its id, which is drawn at random, short, and leads to its page. Its name is never
told: people write it freely, who reads `/metrics` need not be a member of its project, and a series
would begin with every renaming. Metrics are those of `FIGURES`, never what a trainer calls them.

A series ends at the first scrape after its run has: Prometheus then marks it as stale.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, F

from apps.monitoring.models import SEVERITIES, Incident
from apps.monitoring.selectors.gauges import Family
from apps.training.models import Run
from apps.training.selectors import metrics_newest

RUN = ("run", "kind")
FIGURE = (*RUN, "metric")


@dataclass(frozen=True, slots=True)
class Figure:
    """A family: `metrics`, of workers.contract.metrics, are its values of the label `metric`. All
    have one unit, which the name ends with where the figure has one."""

    name: str
    help: str
    metrics: tuple[str, ...]


FIGURES = (
    Figure(
        "concord_run_reward",
        "Newest mean reward, raw score: of a batch, or on fixed prompts (eval/score).",
        ("objective/scores", "eval/score"),
    ),
    Figure(
        "concord_run_held_out_score",
        "Newest mean score, raw, by a judge that is not optimised against.",
        ("eval/held_out_score",),
    ),
    Figure(
        "concord_run_kl_nats",
        "Newest KL to the reference, nats per sequence.",
        ("objective/kl", "eval/kl"),
    ),
    Figure(
        "concord_run_kl_nats_per_token",
        "Newest KL to the reference, nats per token.",
        ("objective/kl_per_token",),
    ),
    Figure(
        "concord_run_entropy_nats_per_token",
        "Newest entropy, nats per token.",
        ("objective/entropy_per_token", "policy/entropy_avg", "entropy"),
    ),
    Figure(
        "concord_run_response_tokens",
        "Newest mean length of responses, tokens.",
        ("response/length", "eval/response_length"),
    ),
    Figure(
        "concord_run_implicit_margin_nats",
        "Newest margin of implicit rewards, chosen less rejected, nats times beta: DPO and KTO.",
        ("rewards/margins", "eval/rewards/margins"),
    ),
    Figure(
        "concord_run_score_margin",
        "Newest margin of chosen over rejected, raw score: reward models.",
        ("margin", "eval/margin"),
    ),
    Figure(
        "concord_run_response_tokens_per_second",
        "Newest throughput, tokens of responses per second.",
        ("throughput/response_tokens_per_s",),
    ),
)
METRICS = tuple(name for figure in FIGURES for name in figure.metrics)


def run_families(now: datetime) -> Iterable[Family]:
    """Of the live runs that have begun, those heard from last. Nothing where METRICS_RUNS is 0."""
    if not settings.METRICS_RUNS:
        return
    live = Run.objects.filter(state__in=Run.LIVE_STATES, started_at__isnull=False)
    heard_last = F("heard_at").desc(nulls_last=True)
    runs = list(
        live.select_related("project")
        .only("kind", "queue", "step", "project__slug")
        .order_by(heard_last, "-started_at", "pk")[: settings.METRICS_RUNS]
    )
    yield Family(
        "concord_runs_left_out",
        "Live runs beyond METRICS_RUNS, which have no series of their own.",
        (),
        [((), max(0, live.count() - len(runs)))],
    )
    yield from _state(runs)
    yield from _incidents(runs)
    yield from _figures(runs, now)


def _state(runs: list[Run]) -> Iterable[Family]:
    told = settings.METRICS_PROJECT_LABELS
    yield Family(
        "concord_run_info",
        "1 for each live run that is shown; project is empty without METRICS_PROJECT_LABELS.",
        (*RUN, "queue", "project"),
        [((*_of(run), run.queue, run.project.slug if told else ""), 1) for run in runs],
    )
    yield Family(
        "concord_run_step",
        "The step that a live run has reached.",
        RUN,
        [(_of(run), run.step) for run in runs],
    )


def _incidents(runs: list[Run]) -> Iterable[Family]:
    """Every severity of every run, also at 0: a rule can compare what it has."""
    found = {
        (run, severity): n
        for run, severity, n in Incident.objects.filter(run__in=runs)
        .exclude(state=Incident.State.RESOLVED)
        .order_by()
        .values_list("run", "severity")
        .annotate(Count("pk"))
    }
    yield Family(
        "concord_run_incidents_open",
        "Incidents of a live run that nobody has resolved.",
        (*RUN, "severity"),
        [
            ((*_of(run), severity), found.get((run.pk, severity), 0))
            for run in runs
            for severity, _ in SEVERITIES
        ],
    )


def _figures(runs: list[Run], now: datetime) -> Iterable[Family]:
    newest = metrics_newest(runs=[run.pk for run in runs], names=METRICS)
    # A run may have been deleted since the first query.
    measured = [(run, newest[run.pk]) for run in runs if run.pk in newest]
    yield Family(
        "concord_run_point_age_seconds",
        "How long ago the newest point of a live run arrived, curves of the machine apart.",
        RUN,
        [
            (_of(run), max(0.0, now.timestamp() - one.at))
            for run, one in measured
            if one.at is not None
        ],
    )
    for figure in FIGURES:
        yield Family(
            figure.name,
            figure.help,
            FIGURE,
            [
                ((*_of(run), name), one.figures[name][1])
                for run, one in measured
                for name in figure.metrics
                if name in one.figures
            ],
        )


def _of(run: Run) -> tuple[str, str]:
    return run.pk, run.kind
