"""What the rules about people read of a project's votes: whether they agree less than before, miss
known answers more often, or wait for somebody."""

from datetime import timedelta
from typing import Any

import numpy as np
from django.db.models import Count, Exists, OuterRef, Q
from django.urls import reverse
from django.utils import timezone
from numpy.typing import NDArray

from apps.accounts.models import Membership, Project
from apps.agreement.models import AnnotatorReport
from apps.agreement.selectors.audits import AuditSample, audit_sample
from apps.agreement.selectors.slices import Comparisons, comparisons_read, golds_of
from apps.agreement.selectors.votes import (
    KINDS,
    VoteColumns,
    counted_votes,
    settings_of,
    vote_columns,
)
from apps.agreement.services.dimensions import by_guideline
from apps.agreement.services.statistics import Votes, votes_indexed
from apps.common.numbers import figure
from apps.common.registry import ProjectFigure
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot, Vote
from measures.agreement import clustering
from measures.agreement.falls import Fall, fall_of, newest_items
from measures.agreement.slices import LEAST_ITEMS, item_agreement
from workers.contract.reasons import reason_words

NEWEST_VOTES = 300  # that are held against all before them
NEWEST_KNOWN = 100  # answers on gold pairs, or audits
MOST_NAMED = 5  # annotators in one sentence
STUCK_DAYS = 7

Bools = NDArray[np.bool_]


# --- agreement, by time, guideline and batch ---


def vote_figures(project: Project) -> list[ProjectFigure]:
    """All that needs every vote: about ten statements, half a second at 200,000 votes."""
    columns, settings = vote_columns(project=project), settings_of(project=project)
    sample = audit_sample(project=project)
    return [
        *_agreement_figures(project, columns, settings),
        _gold_figure(project, columns),
        *_audit_figures(project, sample),
        _spend_figure(project, len(columns), settings),
    ]


def _agreement_figures(
    project: Project, columns: VoteColumns, settings: LabelingSettings
) -> list[ProjectFigure]:
    indexed = votes_indexed(columns.only(counted_votes(columns, settings).rows))
    about = comparisons_read(project=project)
    return [
        _over_time(project, indexed, about),
        _by_guideline(project, indexed, about),
        _worst_batch(project, indexed, about),
    ]


def _over_time(project: Project, votes: Votes, about: Comparisons) -> ProjectFigure:
    """By when a comparison got its last counted vote: none of them was asked for because the others
    differed."""
    last = np.zeros(len(votes.ids), dtype=np.int64)
    np.maximum.at(last, votes.item, votes.columns.cast_at)
    scores, n_votes = item_agreement(votes.counts), votes.counts.sum(axis=1)
    whole = np.isfinite(scores)
    newest = np.zeros(len(votes.ids), dtype=bool)
    newest[whole] = newest_items(last[whole], n_votes[whole], NEWEST_VOTES)
    rows = np.arange(len(votes.ids))
    found = _fall(scores, newest, rows, votes, about)
    since = _day(last[newest]) if newest.any() else ""
    detail = f"The newest {int(n_votes[newest].sum()):,} votes on {found.n_now:,} pairs"
    detail += f", since {since}, against {found.n_before:,} pairs before." if since else "."
    page = reverse("agreement:slices", args=[project.slug])
    return _of_fall("agreement_fell", "people/agreement_fall", found, detail, page)


def _by_guideline(project: Project, votes: Votes, about: Comparisons) -> ProjectFigure:
    slices = by_guideline(votes)
    page = reverse("agreement:slices", args=[project.slug])
    if len(slices.labels) < 2:
        missing = "all votes were cast under one version of the guidelines"
        return ProjectFigure(rule="agreement_fell_guideline", page=page, missing=missing)
    newest = slices.place == len(slices.labels) - 1
    found = _fall(item_agreement(slices.counts), newest, slices.of, votes, about)
    detail = f"Guidelines {slices.labels[-1]}, {found.n_now:,} pairs, against all before."
    return _of_fall("agreement_fell_guideline", "people/guideline_fall", found, detail, page)


def _worst_batch(project: Project, votes: Votes, about: Comparisons) -> ProjectFigure:
    """Of the batches that agree less than the rest, the one that does so most surely."""
    named = dict(
        Comparison.objects.filter(project=project, n_votes__gt=0)
        .exclude(batch="")
        .values_list("pk", "batch")
    )
    batch = np.array([named.get(key, "") for key in votes.ids.tolist()], dtype=object)
    scores, rows = item_agreement(votes.counts), np.arange(len(votes.ids))
    found = {
        name: _fall(scores, batch == name, rows, votes, about) for name in sorted({*batch} - {""})
    }
    judged = {name: one for name, one in found.items() if one.errors is not None}
    page = reverse("agreement:results", args=[project.slug])
    if not judged:
        missing = f"no batch has {LEAST_ITEMS} pairs with two votes, and as many beside it"
        return ProjectFigure(rule="batch_off", page=page, missing=missing)
    name = max(judged, key=lambda one: judged[one].errors or 0.0)
    detail = f"The batch “{name}”, {judged[name].n_now:,} pairs, of {len(judged)} judged."
    return _of_fall("batch_off", "people/batch_gap", judged[name], detail, page)


def _fall(
    scores: NDArray[np.float64],
    is_new: Bools,
    of: NDArray[np.int64],
    votes: Votes,
    about: Comparisons,
) -> Fall:
    """`of`: the comparison of each score, as a row of `votes`."""
    rows = about.rows_of(votes.ids)[of]
    clusters = clustering(about.group[rows], (about.answer_a[rows], about.answer_b[rows]))
    return fall_of(scores, is_new, **clusters.how())


def _of_fall(rule: str, metric: str, found: Fall, detail: str, page: str) -> ProjectFigure:
    """A fall of a share, as its rule reads it and its page prints it."""
    if found.fall is None or found.errors is None:
        counts = f"{found.n_now:,} and {found.n_before:,}, at least {LEAST_ITEMS} each are needed"
        return ProjectFigure(
            rule=rule, page=page, missing=f"{reason_words(found.missing)}: {counts}"
        )
    return ProjectFigure(
        rule=rule,
        page=page,
        metrics={metric: found.fall, f"{metric}_errors": found.errors},
        value=_share(found.now),
        expected=_share(found.before),
        detail=f"{detail} {figure(abs(found.errors))} standard errors apart.",
    )


# --- known answers, and audits ---


def _gold_figure(project: Project, columns: VoteColumns) -> ProjectFigure:
    gold = columns.only(columns.kind == KINDS.index(Slot.Kind.GOLD))
    ids, item = np.unique(gold.comparison, return_inverse=True)
    known = golds_of(project, ids)[item.reshape(-1)] if len(ids) else gold.choice
    answered = gold.only(known >= 0)
    wrong = answered.choice != known[known >= 0]
    page = reverse("agreement:annotators", args=[project.slug])
    return _error_rise(
        "gold_error_rose",
        "people/gold_error_rise",
        wrong,
        answered.cast_at,
        answered.annotator,
        "answers on gold pairs",
        page,
    )


def _audit_figures(project: Project, sample: AuditSample) -> list[ProjectFigure]:
    page = reverse("agreement:audits", args=[project.slug])
    done = sample.done
    rose = _error_rise(
        "audit_error_rose",
        "people/audit_error_rise",
        np.array([row.differs for row in done], dtype=bool),
        np.array([row.judged_at.timestamp() for row in done]),
        np.array([row.annotator for row in done], dtype=np.int64),
        "audits",
        page,
    )
    waiting = [one.since for one in sample.waiting.values() if one.overdue]
    since = f", the oldest since {min(waiting):%Y-%m-%d}" if waiting else ""
    overdue = ProjectFigure(
        rule="audits_overdue",
        page=page,
        metrics={"people/audits_overdue": float(sample.overdue)},
        value=f"{sample.overdue:,} of {sample.due:,} that wait",
        expected=f"none after {sample.settings.audit_days} days",
        detail=f"{sample.overdue:,} votes of {len(waiting):,} annotators{since}."
        if waiting
        else "",
    )
    return [rose, overdue]


def _error_rise(
    rule: str,
    metric: str,
    wrong: Bools,
    at: NDArray[Any],
    who: NDArray[np.int64],
    what: str,
    page: str,
) -> ProjectFigure:
    """The newest answers against those before, by annotator where there are enough of them."""
    newest = newest_items(at, np.ones(len(at)), NEWEST_KNOWN)
    found = fall_of(~wrong, newest, groups=clustering(who).groups if len(who) else None)
    if found.now is None or found.before is None:
        return _of_fall(rule, metric, found, "", page)
    most = _most_wrong(wrong & newest, who)
    detail = f"The newest {found.n_now:,} {what} against {found.n_before:,} before.{most}"
    told = _of_fall(rule, metric, found, detail, page)
    return ProjectFigure(
        rule=rule,
        page=page,
        metrics=told.metrics,
        value=f"{_share(1 - found.now)} wrong",
        expected=f"{_share(1 - found.before)} wrong",
        detail=told.detail,
    )


def _most_wrong(wrong: Bools, who: NDArray[np.int64]) -> str:
    people, n = np.unique(who[wrong], return_counts=True)
    order = np.argsort(-n, kind="stable")[:MOST_NAMED]
    named = [f"Annotator {people[one]} ({n[one]})" for one in order]
    return f" Wrong most often: {', '.join(named)}." if named else ""


# --- money ---


def _spend_figure(project: Project, n_votes: int, settings: LabelingSettings) -> ProjectFigure:
    page = reverse("labeling:settings", args=[project.slug])
    if not (settings.vote_price and settings.label_budget):
        missing = "the settings state no price of a vote or no budget"
        return ProjectFigure(rule="label_spend", page=page, missing=missing)
    spent, budget = n_votes * settings.vote_price, settings.label_budget
    return ProjectFigure(
        rule="label_spend",
        page=page,
        metrics={"people/budget_spent": spent / budget},
        value=f"{spent:,.2f} {settings.currency}",
        expected=f"a budget of {budget:,.2f} {settings.currency}",
        detail=f"{n_votes:,} votes at {settings.vote_price:g} {settings.currency} each.",
    )


# --- what waits for somebody: two statements ---


def due_figures(project: Project) -> list[ProjectFigure]:
    return [_flagged_figure(project), _stuck_figure(project)]


def _flagged_figure(project: Project) -> ProjectFigure:
    """Who is paused or left out has been dealt with; imported people are not here to talk to."""
    page = reverse("agreement:annotators", args=[project.slug]) + "?show=flagged"
    reports = AnnotatorReport.objects.filter(project=project, user__is_imported=False)
    out = Annotator.objects.filter(
        project=project, user=OuterRef("user"), left_out_at__isnull=False
    )
    active = Membership.objects.filter(project=project, user=OuterRef("user"), paused_reason="")
    flagged = list(
        reports.exclude(flags=[]).filter(Exists(active), ~Exists(out)).order_by("user_id")
    )
    labels = [
        f"Annotator {one.user_id} ({', '.join(flag['label'] for flag in one.flags)})"
        for one in flagged[:MOST_NAMED]
    ]
    more = f" and {len(flagged) - MOST_NAMED} more" if len(flagged) > MOST_NAMED else ""
    return ProjectFigure(
        rule="annotator_flagged",
        page=page,
        metrics={"people/annotators_flagged": float(len(flagged))},
        value=f"{len(flagged):,} people",
        detail=f"{', '.join(labels)}{more}." if labels else "",
    )


def _stuck_figure(project: Project) -> ProjectFigure:
    before = timezone.now() - timedelta(days=STUCK_DAYS)
    late = Vote.objects.filter(comparison=OuterRef("pk"), cast_at__gte=before)
    waiting = (Comparison.State.CONTESTED, Comparison.State.REVIEW)
    rows = Comparison.objects.filter(project=project, state__in=waiting, created_at__lt=before)
    found = rows.filter(~Exists(late)).aggregate(
        n=Count("pk"), review=Count("pk", filter=Q(state=Comparison.State.REVIEW))
    )
    n, review = found["n"], found["review"]
    return ProjectFigure(
        rule="pairs_stuck",
        page=reverse("agreement:disputes", args=[project.slug]),
        metrics={"people/pairs_stuck": float(n)},
        value=f"{n:,} pairs",
        detail=f"{n - review:,} contested and {review:,} sent to review, without a vote for "
        f"{STUCK_DAYS} days."
        if n
        else "",
    )


def _day(seconds: NDArray[np.int64]) -> str:
    return str(np.datetime64(int(seconds.min()), "s").astype("datetime64[D]"))


def _share(value: float | None) -> str:
    return f"{100 * value:.1f} %" if value is not None else "—"
