"""Reads of what was decided and how."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from django.db import connection
from django.db.models import Count
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.models import ConsensusReport
from apps.agreement.selectors.slices import Crowd, crowd_of, golds_of
from apps.agreement.selectors.votes import flipped_keep_rate, kept_accuracy
from apps.labeling.models import Annotator, Consensus, DecideBy, Decision, Vote
from apps.labeling.selectors.projects import NEWEST_VOTE
from apps.labeling.services.deciding import Policy
from apps.labeling.services.redeciding import (
    decisions_behind,
    decisions_preview,
    patterns_preview,
)
from measures.consensus import fit
from measures.estimate import Interval
from measures.voting import CHOICES, Decisions, expected_keep_rate
from measures.voting.many import OUTCOMES

# Fewer votes are not worth a fit: the priors would say everything.
LEAST_VOTES = 30
# All ways to decide are compared again when so much has come in, as a share of the votes.
WORTH_COMPARING = 0.05
# A fit is renewed after so many votes as a share, or when it is older than this.
WORTH_FITTING = 0.001
OLD_SECONDS = 600

# The votes that decide are counted with each comparison, and are the ones a model is fitted to.
_VOTES_BY_PROJECT = f"""
select p.id, n.votes, v.id, coalesce(f.last_vote_id, 0), coalesce(f.n_votes, 0),
       coalesce(extract(epoch from now() - f.fitted_at), 1e9), coalesce(r.n_votes, 0)
from accounts_project p
join (select project_id, sum(n_votes) as votes from labeling_comparison group by project_id) n
  on n.project_id = p.id
cross join lateral ({NEWEST_VOTE.format(project="p.id")}) v
left join labeling_consensus f on f.project_id = p.id
left join agreement_consensusreport r on r.project_id = p.id
where p.archived_at is null
"""  # noqa: S608


def decision_tally(*, project: Project) -> dict[str, int]:
    """{outcome: comparisons}."""
    rows = Decision.objects.filter(project=project).values_list("outcome").annotate(n=Count("*"))
    return dict(rows)


def consensus_report_get(*, project: Project) -> ConsensusReport | None:
    return ConsensusReport.objects.filter(project=project).first()


def consensus_get(*, project: Project) -> Consensus | None:
    return Consensus.objects.filter(project=project).first()


def votes_since(*, project: Project, vote_id: int) -> int:
    """How many votes are newer than this one."""
    return Vote.objects.filter(project=project, pk__gt=vote_id).count()


def projects_to_fit() -> list[tuple[Project, bool]]:
    """(project, whether all ways are to be compared) of projects whose fit is behind their votes.

    Votes taken back since the fit count as votes: the number of current votes differs. A fit that
    never ended names no vote, and is begun again.
    """
    with connection.cursor() as cursor:
        cursor.execute(_VOTES_BY_PROJECT)
        rows = cursor.fetchall()
    wanted: dict[str, bool] = {}
    for key, n, newest, fitted_to, n_fitted, age, n_compared in rows:
        if n < LEAST_VOTES or (newest <= fitted_to and n == n_fitted):
            continue
        moved = abs(n - n_fitted)
        if abs(n - n_compared) >= WORTH_COMPARING * n:
            wanted[key] = True
        elif not fitted_to or moved >= max(1, WORTH_FITTING * n) or age >= OLD_SECONDS:
            wanted[key] = False
    projects = Project.objects.in_bulk(list(wanted))
    return [(projects[key], compare) for key, compare in wanted.items() if key in projects]


def projects_to_decide() -> list[Project]:
    """Projects with comparisons that another rule than the current one has decided."""
    return [
        project
        for project in Project.objects.filter(archived_at__isnull=True)
        if decisions_behind(project=project)
    ]


# Preview a decision rule on the existing votes, beside what is decided now.


@dataclass(frozen=True, slots=True)
class RulePreview:
    """Over the comparisons that votes may decide; what people ruled stays whatever the rule.

    n: comparisons with votes; outcomes: {outcome: comparisons}; chance: share that random voters
    would get through; gold: accuracy of what is kept against known answers, None without any;
    accepted_now, newly_accepted, taken_back, flipped: against what is stored.
    """

    n: int
    outcomes: dict[str, int]
    chance: float | None
    gold: Interval | None
    accepted_now: int
    newly_accepted: int
    taken_back: int
    flipped: int

    @property
    def kept(self) -> int:
        return self.outcomes.get("accepted", 0)


def rule_preview(*, project: Project, policy: Policy) -> RulePreview:
    """`policy` names a rule; a model that is not the fitted one is fitted for the look."""
    if policy.decide_by == DecideBy.VOTES:
        found, made = patterns_preview(project=project, policy=policy)
        winners, n = found.winners, found.n
        places = {"": -1} | {str(choice): place for place, choice in enumerate(CHOICES)}
        golds = np.array([places[gold] for gold in found.golds], dtype=np.int64)
        votes = found.counts.sum(axis=1).tolist()
        chance = expected_keep_rate(policy.rule(), votes, n.tolist())
    else:
        policy, shares, chance = _by_model(project, policy)
        known, made = decisions_preview(project=project, policy=policy, posteriors=shares)
        winners, n = known.winners, np.ones(len(known.ids), dtype=np.int64)
        golds = golds_of(project, known.ids)
    return RulePreview(
        n=int(n.sum()),
        outcomes=_tally(made, n),
        chance=chance,
        gold=kept_accuracy(golds, made.winner, n),
        **_changes(winners, made, n),
    )


def _by_model(
    project: Project, policy: Policy
) -> tuple[Policy, tuple[NDArray[np.int64], NDArray[np.float64]] | None, float | None]:
    """(policy that the posteriors decide, posteriors where they are not stored, chance)."""
    crowd = crowd_of(project=project)
    stored = Consensus.objects.filter(project=project, method=policy.decide_by).first()
    policy = replace(policy, method=policy.decide_by)
    if stored is not None:
        learned = _learned(project, crowd, stored)
        chance = flipped_keep_rate(crowd.votes, *learned, policy.posterior_rule())
        return policy, None, chance
    if not len(crowd.votes):
        return policy, None, None
    made = fit(policy.decide_by, crowd.votes)
    chance = flipped_keep_rate(
        crowd.votes, made.priors, made.confusion, made.default_confusion, policy.posterior_rule()
    )
    return policy, (crowd.ids, made.posteriors), chance


def _learned(
    project: Project, crowd: Crowd, stored: Consensus
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    known = dict(
        Annotator.objects.filter(project=project, confusion__isnull=False).values_list(
            "user_id", "confusion"
        )
    )
    rows = [known.get(person) or stored.confusion for person in crowd.people.tolist()]
    return (
        np.array(stored.priors),
        np.array(rows).reshape(-1, 4, 4),
        np.array(stored.confusion).reshape(4, 4),
    )


def _tally(made: Decisions, n: NDArray[np.int64]) -> dict[str, int]:
    counted = np.bincount(made.outcome, weights=n, minlength=len(OUTCOMES))
    return {outcome.value: int(n) for outcome, n in zip(OUTCOMES, counted, strict=True)}


def _changes(winners: Sequence[str], made: Decisions, n: NDArray[np.int64]) -> dict[str, int]:
    said: Counter[str] = Counter()
    accepted_now = 0
    for before, winner, k in zip(winners, made.winner.tolist(), n.tolist(), strict=True):
        after = CHOICES[winner].value if winner >= 0 else ""
        accepted_now += k if before else 0
        if before and after:
            said["flipped" if before != after else "same"] += k
        elif after:
            said["newly_accepted"] += k
        elif before:
            said["taken_back"] += k
    return {
        "accepted_now": accepted_now,
        "newly_accepted": said["newly_accepted"],
        "taken_back": said["taken_back"],
        "flipped": said["flipped"],
    }
