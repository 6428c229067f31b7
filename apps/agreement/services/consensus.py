"""Fitting a model of the voters, giving labeling what it learned, and comparing ways to decide.

The fit runs in the background: warm-started after new votes, from the beginning when the ways to
decide are compared. What it learned goes to `Consensus` and the annotators' rows, from where each
vote absorbs itself into its comparison's posterior; comparisons whose posterior moved are decided
again.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from django.db import connection, transaction
from django.utils import timezone
from numpy.typing import NDArray

from apps.accounts.models import Project, User
from apps.agreement.models import ConsensusReport
from apps.agreement.reports.consensus import caution_said, check_said, reason_said, trust_said
from apps.agreement.selectors.decisions import decision_tally
from apps.agreement.selectors.slices import Crowd, crowd_of
from apps.agreement.selectors.votes import flipped_keep_rate, kept_accuracy
from apps.common.errors import Conflict
from apps.labeling.models import Annotator, Consensus, DecideBy, LabelingSettings
from apps.labeling.services import comparisons_settle, labeling_settings_update, rule_of
from apps.labeling.services.redeciding import Redecided, decisions_redo
from measures.consensus import (
    METHODS,
    Check,
    Comparison,
    Fit,
    compare,
    fit,
    majority,
    share_right,
    wawa,
)
from measures.consensus.choosing import LEAST_PROPOSED
from measures.intervals import wilson
from measures.voting import (
    PosteriorRule,
    Rule,
    decide_many,
    decide_many_by_posterior,
    expected_keep_rate,
)

# What each way to decide makes of the same votes: kept, right on gold pairs, passed by chance.


def figures_of(crowd: Crowd, comparison: Comparison, settings: LabelingSettings) -> dict[str, Any]:
    """The stored comparison: a row per way, what is recommended and whether it is proposed."""
    votes = crowd.votes
    counted = majority(votes)
    rows = [_counted_row(crowd, rule_of(settings), comparison)]
    for method in METHODS:
        if method in comparison.fits:
            made, check = comparison.fits[method], comparison.checks[method]
            rows.append(_model_row(crowd, made, check, posterior_rule_of(settings), counted.winner))
    return {
        "ways": rows,
        "wawa": _gold(crowd, wawa(votes).shares, None),
        "n_items": votes.n_items,
        "n_annotators": votes.n_annotators,
        "recommended": comparison.method,
        "trusted": comparison.trusted,
        "trust": trust_said(comparison),
        "reason": reason_said(comparison),
        "proposed": comparison.method if comparison.proposed else "",
        "caution": caution_said(comparison),
        "needed_votes": LEAST_PROPOSED,
        "rule": asdict(rule_of(settings)),
        "least_posterior": settings.least_posterior,
    }


def posterior_rule_of(settings: LabelingSettings) -> PosteriorRule:
    return PosteriorRule(
        least_posterior=settings.least_posterior,
        least_votes=settings.least_votes,
        max_votes=settings.max_overlap,
    )


def _counted_row(crowd: Crowd, rule: Rule, comparison: Comparison) -> dict[str, Any]:
    counts = crowd.votes.counts()
    decided = decide_many(counts, rule)
    checks = [c for c in comparison.checks.values() if c.counted_log_loss is not None]
    return {
        "method": DecideBy.VOTES.value,
        "kept": int((decided.winner >= 0).sum()),
        "n": crowd.votes.n_items,
        "gold": _gold(crowd, majority(crowd.votes).shares, decided.winner),
        "chance": expected_keep_rate(rule, counts.sum(axis=1).tolist()),
        "same_as_counting": None,
        "check": {"log_loss": checks[0].counted_log_loss, "brier": checks[0].counted_brier}
        if checks
        else None,
    }


def _model_row(
    crowd: Crowd,
    made: Fit,
    check: Check,
    rule: PosteriorRule,
    counted_winner: NDArray[np.integer[Any]],
) -> dict[str, Any]:
    votes = crowd.votes
    decided = decide_many_by_posterior(votes.counts(), made.posteriors, rule)
    both = (decided.winner >= 0) & (counted_winner >= 0)
    same = (decided.winner[both] == counted_winner[both]).mean() if both.any() else None
    return {
        "method": made.method,
        "kept": int((decided.winner >= 0).sum()),
        "n": votes.n_items,
        "gold": _gold(crowd, made.posteriors, decided.winner),
        "chance": flipped_keep_rate(
            votes, made.priors, made.confusion, made.default_confusion, rule
        ),
        "same_as_counting": None if same is None else float(same),
        "check": {
            "log_loss": check.log_loss,
            "brier": check.brier,
            "calibrated": check.calibrated,
            "sentence": check_said(check),
            "bars": [asdict(bar) for bar in check.bars],
        },
        "converged": made.converged,
    }


def _gold(
    crowd: Crowd, shares: NDArray[np.float64], winner: NDArray[np.integer[Any]] | None
) -> dict[str, Any] | None:
    """Accuracy against known answers: of every label (a tie of labels counts its share), and of
    what is accepted."""
    known = crowd.golds >= 0
    if not known.any():
        return None
    right = share_right(shares[known], crowd.golds[known])
    kept = None if winner is None else kept_accuracy(crowd.golds, winner)
    return {
        "n": int(known.sum()),
        "all": asdict(wilson(float(right.sum()), int(known.sum()))),
        "kept": asdict(kept) if kept else None,
    }


_FIRST = DecideBy.ONE_COIN.value  # before the ways to decide were compared

_LEARNED = """
insert into labeling_annotator as w (project_id, user_id, acknowledged_version, topics, languages,
                                     votes_of_day, confusion, reliability, created_at, updated_at)
select %(project)s, p.id, 0, '{}', '{}', 0, m.confusion::float8[], m.reliability, now(), now()
from unnest(%(people)s::bigint[], %(confusion)s::text[], %(reliability)s::float8[])
  as m(id, confusion, reliability)
join accounts_user p on p.id = m.id
on conflict (project_id, user_id) do update set
  confusion = excluded.confusion, reliability = excluded.reliability
"""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a fit led to."""

    consensus: Consensus
    redecided: Redecided


@dataclass(frozen=True, slots=True)
class Switched:
    """{outcome: comparisons} before and after a rule was changed."""

    before: dict[str, int]
    after: dict[str, int]


def consensus_refresh(
    *, project: Project, method: str = "", crowd: Crowd | None = None, fitted: Fit | None = None
) -> Refreshed | None:
    """Fit and store; decide again what moved. None without votes, or where the project switched
    to another model meanwhile.

    method: one of `METHODS`; empty for the one that decides, else the one the last comparison
    recommends. fitted: a fit of that method to `crowd` that somebody has already.
    """
    found = crowd_of(project=project) if crowd is None else crowd
    if not len(found.votes):
        return None
    method = method or method_in_use(project=project)
    made = (
        fitted
        if fitted is not None
        else fit(method, found.votes, start=_start(project, found, method))
    )
    with transaction.atomic():
        if _decided_otherwise(project, method):
            return None
        consensus = _store(project, found, made)
    return Refreshed(consensus, _redo(project, consensus, found, made))


def consensus_compare(*, project: Project) -> ConsensusReport | None:
    """Compare counting and every model on the project's own votes; refits the one in use.

    None without votes.
    """
    crowd = crowd_of(project=project)
    if not len(crowd.votes):
        return None
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    comparison = compare(crowd.votes, golds=crowd.golds)
    report, _ = ConsensusReport.objects.update_or_create(
        project=project,
        defaults={
            "computed_at": timezone.now(),
            "last_vote_id": crowd.last_vote_id,
            "n_votes": len(crowd.votes),
            "figures": figures_of(crowd, comparison, settings),
        },
    )
    method = method_in_use(project=project)
    consensus_refresh(
        project=project, method=method, crowd=crowd, fitted=comparison.fits.get(method)
    )
    return report


def decide_by_switch(*, project: Project, by: User, **changes: Any) -> Switched:
    """Apply another method of deciding; `changes` are fields of the rule in LabelingSettings.

    A model is fitted first, so that it decides with what it knows of these voters. A model needs
    LEAST_PROPOSED votes: `Conflict` (too_few_votes) with fewer. Other errors are those of
    `labeling_settings_update`. Returns what the change did to decisions.
    """
    method, crowd, made = changes.get("decide_by", ""), None, None
    if method in METHODS:
        crowd = crowd_of(project=project)
        if len(crowd.votes) < LEAST_PROPOSED:
            raise Conflict(
                f"A model of the voters needs {LEAST_PROPOSED} votes; there are "
                f"{len(crowd.votes):,}.",
                code="too_few_votes",
                field="decide_by",
            )
        made = fit(method, crowd.votes, start=_start(project, crowd, method))
    before = decision_tally(project=project)
    with transaction.atomic():
        # Together, so that no vote meets a rule whose model is not there.
        consensus = _store(project, crowd, made) if crowd and made else None
        labeling_settings_update(project=project, by=by, redo=False, **changes)
    if consensus is not None and crowd and made:
        _redo(project, consensus, crowd, made)
    else:
        decisions_redo(project=project)
    comparisons_settle(project=project)
    return Switched(before, decision_tally(project=project))


def method_in_use(*, project: Project) -> str:
    """The model that decides; where votes are counted, the one whose posteriors are shown."""
    decide_by = (
        LabelingSettings.objects.filter(project=project).values_list("decide_by", flat=True).first()
    )
    if decide_by in METHODS:
        return decide_by
    report = ConsensusReport.objects.filter(project=project).first()
    advised = report.figures.get("recommended", "") if report else ""
    return advised if advised in METHODS else _FIRST


def _start(project: Project, crowd: Crowd, method: str) -> Fit | None:
    """The stored fit in the numbering of this crowd, to go on from; None after another model."""
    stored = Consensus.objects.filter(project=project, method=method).first()
    if stored is None:
        return None
    learned = dict(
        Annotator.objects.filter(project=project, confusion__isnull=False).values_list(
            "user_id", "confusion"
        )
    )
    confusion = np.array([learned.get(person) or stored.confusion for person in crowd.people])
    return Fit(
        method=method,
        priors=np.array(stored.priors),
        confusion=confusion.reshape(-1, 4, 4),
        default_confusion=np.array(stored.confusion).reshape(4, 4),
        posteriors=np.zeros((0, 4)),  # rebuilt from the matrices
        reliability=np.zeros(len(crowd.people)),
        log_likelihood=0.0,
        iterations=0,
        converged=False,
    )


def _decided_otherwise(project: Project, method: str) -> bool:
    """Whether the project has switched to another model while this one was fitted. Holds its
    settings, so that it does not switch before the fit is stored."""
    row = LabelingSettings.objects.select_for_update().filter(project=project).first()
    return row is not None and row.decide_by in METHODS and row.decide_by != method


def _store(project: Project, crowd: Crowd, made: Fit) -> Consensus:
    """What every vote needs from now on. It names no last vote until decisions have followed, so
    that a worker that dies in between is noticed."""
    consensus, _ = Consensus.objects.update_or_create(
        project=project,
        defaults={
            "method": made.method,
            "priors": made.priors.tolist(),
            "confusion": made.default_confusion.ravel().tolist(),
            "n_votes": len(crowd.votes),
            "last_vote_id": 0,
            "fitted_at": timezone.now(),
        },
    )
    _people_store(project, crowd, made)
    return consensus


def _redo(project: Project, consensus: Consensus, crowd: Crowd, made: Fit) -> Redecided:
    redecided = decisions_redo(
        project=project, posteriors=(crowd.ids, made.posteriors.astype(np.float64))
    )
    consensus.last_vote_id = crowd.last_vote_id
    consensus.save(update_fields=["last_vote_id"])
    return redecided


def _people_store(project: Project, crowd: Crowd, made: Fit) -> None:
    matrices = made.confusion.reshape(len(crowd.people), 16)
    with connection.cursor() as cursor:
        cursor.execute(
            _LEARNED,
            {
                "project": project.pk,
                "people": crowd.people.tolist(),
                "confusion": ["{" + ",".join(map(repr, row)) + "}" for row in matrices.tolist()],
                "reliability": made.reliability.tolist(),
            },
        )
