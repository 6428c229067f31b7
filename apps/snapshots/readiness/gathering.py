"""The project's own numbers, each with where it comes from and as of when."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.urls import reverse

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.agreement.selectors.votes import newest_vote_id, report_get
from apps.common.registry import RunResult, run_results
from apps.labeling.models import Choice, Decision
from apps.snapshots.models import Snapshot
from apps.snapshots.readiness.lengths import length_only
from apps.snapshots.readiness.wording import text_baseline
from measures.estimate import Interval

# Held-out files by how much they say about new data, the best first.
HELD_OUT = ("public_test", "heldout_groups", "heldout_annotators", "dev")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact was read, with its page; `at` is as of when, `stale` that newer votes exist,
    `is_run` that the page is a run's, which reviewers do not open."""

    words: str
    url: str = ""
    at: datetime | None = None
    stale: bool = False
    is_run: bool = False


@dataclass(slots=True)
class Gathered:
    """`facts`: keywords for `measures.advice.Facts`, those that are known; `sources` by the same
    names; `runs`: what was trained, for the project's own table of methods."""

    facts: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    runs: list[RunResult] = field(default_factory=list)

    def add(self, source: Source, **facts: Any) -> None:
        for name, value in facts.items():
            if value is not None:
                self.facts[name] = value
                self.sources[name] = source


def gather(project: Project) -> Gathered:
    found = Gathered(runs=run_results(project))
    _agreement(found, project)
    _pairs(found, project)
    _demonstrations(found, project)
    _reward(found)
    return found


def interval_read(said: Mapping[str, Any] | None, n: str = "n") -> Interval | None:
    """A stored statistic as it was computed; None where there is nothing like one."""
    if not said or "value" not in said:
        return None
    return Interval(
        value=said["value"],
        low=said.get("low"),
        high=said.get("high"),
        n=int(said.get(n) or 0),
        undefined=said.get("undefined") or (None if said["value"] is not None else "no value"),
        no_interval=said.get("no_interval"),
    )


def _agreement(found: Gathered, project: Project) -> None:
    report: AgreementReport | None = report_get(project=project)
    if report is None or not report.n_votes:
        return
    source = Source(
        "votes on the random stratum",
        reverse("agreement:overview", args=[project.slug]),
        report.computed_at,
        stale=newest_vote_id(project=project) > report.last_vote_id,
    )
    statistics = report.figures["statistics"]
    choices = report.figures.get("choices") or {}
    n_votes = sum(choices.values())
    undecided = sum(choices.get(choice, 0) for choice in (Choice.TIE, Choice.BOTH_BAD))
    ties = None
    if n_votes:
        ties = Interval(
            value=undecided / n_votes,
            low=None,
            high=None,
            n=n_votes,
            no_interval="votes on one comparison hang together",
        )
    found.add(
        source,
        agreement=interval_read(statistics["percent"], "n_items"),
        alpha=interval_read(statistics["alpha"], "n_items"),
        tie_share=ties,
    )


def _pairs(found: Gathered, project: Project) -> None:
    """From the newest frozen pairs; without any, the decided comparisons as they are."""
    newest = _newest(project, Snapshot.Kind.PREFERENCES)
    if newest is None:
        decided = Decision.objects.filter(
            project=project,
            winner__in=[Choice.A, Choice.B],
            outcome__in=["accepted", "adjudicated"],
        ).count()
        url = reverse("labeling:comparisons", args=[project.slug])
        found.add(Source("decided comparisons; no dataset is frozen yet", url), pairs=decided)
        return
    source = _dataset(project, newest)
    counts = newest.counts
    found.add(
        source,
        pairs=counts.get("rows", {}).get("train", 0),
        prompts=counts.get("groups", {}).get("train"),
        annotators=counts.get("annotators", {}).get("training"),
        length_only=length_only(newest),
        text_baseline=text_baseline(newest),
    )


def _demonstrations(found: Gathered, project: Project) -> None:
    newest = _newest(project, Snapshot.Kind.DEMONSTRATIONS)
    if newest is not None:
        n = newest.counts.get("rows", {}).get("train", 0)
        found.add(_dataset(project, newest), demonstrations=n)
        return
    url = reverse("snapshots:list", args=[project.slug])
    found.add(Source("no dataset of demonstrations is frozen", url), demonstrations=0)


def _reward(found: Gathered) -> None:
    """Of the newest reward model with a held-out report."""
    for result in found.runs:
        split = next((name for name in HELD_OUT if name in result.splits), None)
        if result.method != "reward" or split is None:
            continue
        said = result.splits[split]
        found.add(
            Source(f"{result.name}, on {split}", result.url, result.ended_at, is_run=True),
            reward_accuracy=interval_read(said.get("accuracy")),
            reward_gain=interval_read(said.get("difference")),
        )
        return


def _newest(project: Project, kind: str) -> Snapshot | None:
    frozen = Snapshot.objects.filter(project=project, kind=kind, state=Snapshot.State.FROZEN)
    return frozen.order_by("-created_at").first()


def _dataset(project: Project, snapshot: Snapshot) -> Source:
    url = reverse("snapshots:detail", args=[project.slug, snapshot.pk])
    return Source(f"{snapshot.name}, training rows", url, snapshot.frozen_at)
