"""What a decision rule would make of the votes there are, beside what is decided now."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.agreement.selectors.crowd import Crowd, crowd_of, golds_of
from apps.agreement.selectors.kept import flipped_keep_rate, kept_accuracy
from apps.labeling.models import Annotator, Consensus, DecideBy
from apps.labeling.services.deciding import Policy
from apps.labeling.services.redeciding import Known, decisions_preview
from measures.consensus import fit
from measures.estimate import Interval
from measures.voting import CHOICES, Decisions, expected_keep_rate
from measures.voting.many import OUTCOMES


@dataclass(frozen=True, slots=True)
class RulePreview:
    """Over the comparisons that votes may decide; what people ruled stays whatever the rule.

    n: comparisons with votes; outcomes: {outcome: comparisons}; chance: share that coin-flippers
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
    shares = None
    if policy.decide_by != DecideBy.VOTES:
        policy, shares, chance = _by_model(project, policy)
    known, made = decisions_preview(project=project, policy=policy, posteriors=shares)
    if policy.decide_by == DecideBy.VOTES:
        chance = expected_keep_rate(policy.rule(), known.counts.sum(axis=1).tolist())
    return RulePreview(
        n=len(known.ids),
        outcomes=_tally(made),
        chance=chance,
        gold=kept_accuracy(golds_of(project, known.ids), made.winner),
        **_changes(known, made),
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


def _tally(made: Decisions) -> dict[str, int]:
    counted = np.bincount(made.outcome, minlength=len(OUTCOMES))
    return {outcome.value: int(n) for outcome, n in zip(OUTCOMES, counted, strict=True)}


def _changes(known: Known, made: Decisions) -> dict[str, int]:
    said: Counter[str] = Counter()
    for before, winner in zip(known.winners, made.winner.tolist(), strict=True):
        after = CHOICES[winner].value if winner >= 0 else ""
        if before and after:
            said["flipped" if before != after else "same"] += 1
        elif after:
            said["newly_accepted"] += 1
        elif before:
            said["taken_back"] += 1
    return {
        "accepted_now": sum(bool(winner) for winner in known.winners),
        "newly_accepted": said["newly_accepted"],
        "taken_back": said["taken_back"],
        "flipped": said["flipped"],
    }
