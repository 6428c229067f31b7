"""Data readiness: what the project's own numbers say about methods, and what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from django import forms
from django.core.cache import cache
from django.urls import reverse

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.agreement.selectors.votes import newest_vote_id, report_get
from apps.common.errors import Conflict
from apps.common.registry import RunResult, run_results
from apps.labeling.models import Choice, Decision
from apps.snapshots.advice import Rules, Task
from apps.snapshots.advice.facts import interval_read
from apps.snapshots.models import AI_FEEDBACK, Snapshot
from apps.snapshots.recipe import TRAIN
from apps.snapshots.services.reporting import report_read
from apps.snapshots.storage import artifact_store
from measures.accuracy import pair_credit
from measures.estimate import Interval
from measures.intervals import dyadic_interval, mean_interval
from measures.messages import said
from workers.artifacts import ArtifactError

# How often the longer answer won, among the training rows of a frozen dataset.


def length_only(snapshot: Snapshot) -> Interval | None:
    """Accuracy of "the longer wins", lengths in words; None where the files are gone.

    A frozen dataset never changes, so it is computed once.
    """
    key = f"readiness-length:{snapshot.pk}:{snapshot.sha256}"
    found = cache.get(key)
    if found is None:
        try:
            found = asdict(_computed(snapshot))
        except ArtifactError:
            return None
        cache.set(key, found, timeout=None)
    return Interval(**found)


def _computed(snapshot: Snapshot) -> Interval:
    margins, first, second = [], [], []
    for row in artifact_store().lines(f"{snapshot.uri}/{TRAIN}.jsonl"):
        margins.append(_words(row["chosen"]) - _words(row["rejected"]))
        one, other = row.get("cluster_ids") or (row.get("cluster"), None)
        first.append(one)
        second.append(other)
    credit = pair_credit(np.array(margins, dtype=np.float64))
    if any(key is None for key in second):
        return mean_interval(credit, clusters=[str(key) for key in first])
    return dyadic_interval(credit, np.array(first), np.array(second))


def _words(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(said(message).split()) for message in messages)


# How well a model of words alone predicts the winner, from the report of a dataset.

CHECK = "growth"
# Datasets frozen before there were reports get theirs made when it is asked for, and kept for a
# day: of more rows than this, that is for the report's own page and not for this one to wait for.
MADE_UP_TO = 5_000


def text_baseline(snapshot: Snapshot) -> Interval | None:
    """The end of its learning curve, on groups it has not seen; None without such a report."""
    n = snapshot.counts.get("rows", {}).get(TRAIN, 0)
    if not snapshot.counts.get("report") and n > MADE_UP_TO:
        return None
    try:
        report = report_read(snapshot=snapshot)
    except Conflict:
        return None
    if report is None:
        return None
    curves = [
        part["rows"]
        for check in report.get("checks", [])
        if check.get("key") == CHECK
        for part in check.get("evidence", [])
        if part.get("kind") == "curve" and part.get("rows")
    ]
    if not curves:
        return None
    last = curves[0][-1]
    if last.get("value") is None:
        return None
    return Interval(
        value=last["value"],
        low=last.get("low"),
        high=last.get("high"),
        n=int(last.get("n") or 0),
        no_interval=last.get("why") or None,
    )


# The project's own numbers, each with where it comes from and as of when.

# Held-out files by how much they say about new data, the best first.
HELD_OUT = ("public_test", "heldout_groups", "heldout_annotators", "dev")


@dataclass(frozen=True, slots=True)
class FactSource:
    """Where a fact was read, with its page; `at` is as of when, `stale` that newer votes exist,
    `is_run` that the page is a run's, which reviewers do not open."""

    words: str
    url: str = ""
    at: datetime | None = None
    stale: bool = False
    is_run: bool = False


@dataclass(slots=True)
class Gathered:
    """`facts`: keywords for `advice.Facts`, those that are known; `sources` by the same
    names; `runs`: what was trained, for the project's own table of methods."""

    facts: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, FactSource] = field(default_factory=dict)
    runs: list[RunResult] = field(default_factory=list)

    def add(self, source: FactSource, **facts: Any) -> None:
        for name, value in facts.items():
            if value is not None:
                self.facts[name] = value
                self.sources[name] = source


def gather(project: Project) -> Gathered:
    found = Gathered(runs=run_results(project))
    found.facts |= {"methods": tuple(found.runs), "project": project.slug}
    _agreement(found, project)
    _pairs(found, project)
    _demonstrations(found, project)
    _reward(found)
    return found


def _agreement(found: Gathered, project: Project) -> None:
    report: AgreementReport | None = report_get(project=project)
    if report is None or not report.n_votes:
        return
    source = FactSource(
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
        found.add(FactSource("decided comparisons; no dataset is frozen yet", url), pairs=decided)
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
    found.add(FactSource("no dataset of demonstrations is frozen", url), demonstrations=0)


def _reward(found: Gathered) -> None:
    """Of the newest reward model with a held-out report."""
    for result in found.runs:
        split = next((name for name in HELD_OUT if name in result.splits), None)
        if result.method != "reward" or split is None:
            continue
        said = result.splits[split]
        found.add(
            FactSource(f"{result.name}, on {split}", result.url, result.ended_at, is_run=True),
            reward_accuracy=interval_read(said.get("accuracy")),
            reward_gain=interval_read(said.get("difference")),
        )
        return


def _newest(project: Project, kind: str) -> Snapshot | None:
    """Without what a model labelled: the advice is about people's data."""
    frozen = Snapshot.objects.filter(project=project, kind=kind, state=Snapshot.State.FROZEN)
    frozen = frozen.exclude(recipe__has_key=AI_FEEDBACK)
    return frozen.order_by("-created_at").first()


def _dataset(project: Project, snapshot: Snapshot) -> FactSource:
    url = reverse("snapshots:detail", args=[project.slug, snapshot.pk])
    return FactSource(f"{snapshot.name}, training rows", url, snapshot.frozen_at)


# What the data cannot know, as a form whose answers live in the address.

UNKNOWN = ("", "Not known yet")


class StatedForm(forms.Form):
    """Every field may stay empty: what is not stated is unknown, and asked for."""

    task = forms.ChoiceField(
        required=False,
        label="What makes an answer good?",
        choices=[
            UNKNOWN,
            (Task.FACTUAL, "It is right: it can be checked"),
            (Task.OPEN, "People prefer it: several can be good"),
        ],
    )
    rules = forms.ChoiceField(
        required=False,
        label="Can rules list what must not happen?",
        choices=[
            UNKNOWN,
            (Rules.ALL, "Yes, and that is all I want"),
            (Rules.SOME, "Some of it"),
            (Rules.NONE, "No"),
        ],
    )
    baseline = forms.FloatField(
        required=False,
        min_value=0,
        max_value=100,
        label="Tasks the model in use does right (%)",
        help_text="Judged by people on a random sample.",
    )
    latency = forms.FloatField(
        required=False,
        min_value=0.1,
        max_value=3_600_000,
        label="An answer must come within (ms)",
        help_text="From question to whole answer.",
    )
    exploration = forms.ChoiceField(
        required=False,
        label="Are there better answers than those in the data?",
        choices=[UNKNOWN, ("yes", "Yes, and they can be told apart"), ("no", "No, or hardly")],
    )

    def stated(self) -> dict[str, Any]:
        """Keywords for `advice.Facts`; a field with an error counts as not stated."""
        self.full_clean()
        given = {
            name: value for name, value in self.cleaned_data.items() if value not in ("", None)
        }
        facts: dict[str, Any] = {}
        if "task" in given:
            facts["task"] = Task(given["task"])
        if "rules" in given:
            facts["rules"] = Rules(given["rules"])
        if "baseline" in given:
            facts["baseline"] = given["baseline"] / 100
        if "latency" in given:
            facts["latency_ms"] = given["latency"]
        if "exploration" in given:
            facts["exploration"] = given["exploration"] == "yes"
        return facts


__all__ = ["Gathered", "StatedForm", "gather"]
