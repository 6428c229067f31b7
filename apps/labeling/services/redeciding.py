"""Deciding a whole project again: after its rule has changed, or its model of the voters.

Read all, decide as arrays, write what differs in parts. Each part locks its comparisons in order of
id, so votes wait for at most one part; a comparison that was voted on meanwhile keeps what its vote
decided. What a person ruled (adjudicated, dropped, sent to review) stays.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

import numpy as np
from django.db import connection, transaction
from numpy.typing import NDArray

from apps.accounts.models import Project
from apps.common.transactions import columns_named, retried
from apps.labeling.models import Consensus, DecideBy, Decision, LabelingSettings
from apps.labeling.services import bulk_statements as bulk_sql
from apps.labeling.services import statements as sql
from apps.labeling.services.deciding import STATE_OF, Policy, posteriors_of
from apps.labeling.services.decision_words import decision_said
from measures import voting
from measures.voting import (
    CHOICES,
    Decisions,
    Outcome,
    decide,
    decide_by_posterior,
    decide_many,
    decide_many_by_posterior,
)
from measures.voting.many import OUTCOMES

# Settings that decisions depend on.
RULE_FIELDS = frozenset(sql.POLICY) - {"overlap"}
REDONE_AT_ONCE = 20_000  # comparisons, about two seconds of one's waiting
_PART = 2_000
# A posterior that moved less than this is not written again.
_MOVED = 2e-3
_BY_VOTES = (Decision.Outcome.ACCEPTED, Decision.Outcome.CONTESTED, Decision.Outcome.NEEDS_VOTES)


@dataclass(frozen=True, slots=True)
class Redecided:
    """`n`: comparisons looked at; `changed`: {(before, after): how many} outcomes or winners that
    differ; `written`: rows written, those that only got another rule or posterior included."""

    n: int
    changed: dict[tuple[str, str], int]
    written: int

    @property
    def n_changed(self) -> int:
        return sum(self.changed.values())


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored of each comparison with a decision that votes may move, in order of id."""

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    overlap: NDArray[np.int64]
    outcomes: Sequence[str]
    winners: Sequence[str]
    decided_by: Sequence[str]
    posteriors: NDArray[np.float64]  # NaN rows where there are none
    same_rule: NDArray[np.bool_]
    used_up: NDArray[np.bool_]  # nobody is left to vote: the votes that are in are all that come


def policy_of(*, project: Project) -> Policy:
    """The project's rule and consensus, as every vote reads them."""
    settings = LabelingSettings.objects.filter(project=project).first() or LabelingSettings()
    fitted = Consensus.objects.filter(project=project).first()
    learned = (fitted.method, fitted.priors, fitted.confusion) if fitted else (None, None, None)
    return Policy(*(getattr(settings, name) for name in sql.POLICY), *learned)


def decisions_count(*, project: Project) -> int:
    return Decision.objects.filter(project=project).count()


def decisions_behind(*, project: Project) -> bool:
    """Whether some comparison is still decided by another rule than the current one."""
    policy = policy_of(project=project)
    moved_by_votes = Decision.objects.filter(project=project, outcome__in=_BY_VOTES)
    wanted = str(policy.decide_by) if policy.by_model else DecideBy.VOTES.value
    return moved_by_votes.exclude(rule=asdict(_rule(policy)), decided_by=wanted).exists()


def decisions_redo(
    *,
    project: Project,
    posteriors: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None,
    only: list[int] | None = None,
) -> Redecided:
    """Decide every comparison of the project by the current rule, and store what differs.

    posteriors: (ids in ascending order, (n, 4) probabilities) of a new fit; without them those
    that are stored decide. A comparison without any posterior is decided by counting. only: these
    comparisons and no others.
    """
    policy = policy_of(project=project)
    known = _read(project, policy, only)
    shares = known.posteriors if posteriors is None else _aligned(known, *posteriors)
    made = _decide(known, shares, policy)
    differs, moved = _differs(known, shares, made, policy)
    rows = np.flatnonzero(differs)
    changed: Counter[tuple[str, str]] = Counter()
    only_moved = np.flatnonzero(moved & ~differs)
    _store_posteriors(known, shares, only_moved)
    for start in range(0, len(rows), _PART):
        part = rows[start : start + _PART]
        _store(project, known, shares, made, part, policy)
    for row in rows.tolist():
        before, after = _said(known.outcomes[row], known.winners[row]), _word(made, row)
        if before != after:
            changed[before, after] += 1
    return Redecided(n=len(known.ids), changed=dict(changed), written=len(rows) + len(only_moved))


def votes_recount(*, project: Project, comparisons: list[int]) -> Redecided:
    """Count the votes of these comparisons again and decide them, where many votes have come or
    gone at once. The caller is in a transaction and has locked the comparisons."""
    ids = sorted(comparisons)
    policy = policy_of(project=project)
    posteriors = None
    with connection.cursor() as cursor:
        cursor.execute(bulk_sql.COUNTS_STORE, {"ids": ids})
        if policy.method:
            shares = [posteriors_of(cursor, comparison, policy) for comparison in ids]
            posteriors = np.array(ids, dtype=np.int64), np.array(shares, dtype=np.float64)
    return decisions_redo(project=project, only=ids, posteriors=posteriors)


@dataclass(frozen=True, slots=True)
class Patterns:
    """What is stored, comparisons with the same votes, overlap, winner and gold label as one: `n`
    of each. A project of a million comparisons has some thousands of them."""

    counts: NDArray[np.int64]
    overlap: NDArray[np.int64]
    winners: Sequence[str]
    golds: Sequence[str]
    used_up: NDArray[np.bool_]
    n: NDArray[np.int64]


def patterns_preview(*, project: Project, policy: Policy) -> tuple[Patterns, Decisions]:
    """As `decisions_preview`, by a rule that counts votes."""
    with connection.cursor() as cursor:
        cursor.execute(bulk_sql.READ_PATTERNS, {"project": project.pk})
        found = columns_named(cursor)
    counts = [found[name] for name in ("n_a", "n_b", "n_tie", "n_both_bad")]
    patterns = Patterns(
        counts=np.array(counts, dtype=np.int64).T.reshape(-1, len(CHOICES)),
        overlap=np.array(found["overlap"], dtype=np.int64),
        winners=found["winner"],
        golds=found["gold"],
        used_up=np.array(found["used_up"], dtype=bool),
        n=np.array(found["n"], dtype=np.int64),
    )
    possible = _possible(patterns, policy)
    return patterns, decide_many(patterns.counts, policy.rule(), votes_possible=possible)


def decisions_preview(
    *,
    project: Project,
    policy: Policy,
    posteriors: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None,
) -> tuple[Known, Decisions]:
    """What a policy would decide of what is stored now; writes nothing. Arguments as in
    `decisions_redo`."""
    known = _read(project, policy)
    shares = known.posteriors if posteriors is None else _aligned(known, *posteriors)
    return known, _decide(known, shares, policy)


def _read(project: Project, policy: Policy, only: list[int] | None = None) -> Known:
    with connection.cursor() as cursor:
        cursor.execute(
            bulk_sql.READ_DECISIONS,
            {"project": project.pk, "rule": json.dumps(asdict(_rule(policy))), "only": only},
        )
        found = columns_named(cursor)
    missing = (np.nan,) * len(CHOICES)
    counts = [found[name] for name in ("n_a", "n_b", "n_tie", "n_both_bad")]
    posteriors = [row or missing for row in found["posteriors"]]
    return Known(
        ids=np.array(found["comparison_id"], dtype=np.int64),
        counts=np.array(counts, dtype=np.int64).T.reshape(-1, len(CHOICES)),
        overlap=np.array(found["overlap"], dtype=np.int64),
        outcomes=found["outcome"],
        winners=found["winner"],
        decided_by=found["decided_by"],
        posteriors=np.array(posteriors).reshape(-1, len(CHOICES)),
        same_rule=np.array(found["same_rule"], dtype=bool),
        used_up=np.array(found["used_up"], dtype=bool),
    )


def _rule(policy: Policy) -> Any:
    return policy.posterior_rule() if policy.by_model else policy.rule()


def _aligned(
    known: Known, ids: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The new posteriors in the order of what is stored, the stored ones where none are new."""
    place = np.searchsorted(ids, known.ids)
    found = place < len(ids)
    found[found] = ids[place[found]] == known.ids[found]
    aligned = known.posteriors.copy()
    aligned[found] = shares[place[found]]
    return aligned


def _possible(known: Known | Patterns, policy: Policy) -> NDArray[np.int64]:
    """The most votes that each comparison can end up with."""
    most = np.maximum(policy.max_overlap, known.overlap)
    return np.where(known.used_up, known.counts.sum(axis=1), most)


def _decide(known: Known, shares: NDArray[np.float64], policy: Policy) -> Decisions:
    possible = _possible(known, policy)
    counted = decide_many(known.counts, policy.rule(), votes_possible=possible)
    if not policy.by_model:
        return counted
    has = ~np.isnan(shares).any(axis=1)
    weighed = decide_many_by_posterior(
        known.counts, np.nan_to_num(shares), policy.posterior_rule(), votes_possible=possible
    )
    return Decisions(
        *(
            np.where(has, getattr(weighed, name), getattr(counted, name))
            for name in Decisions.__dataclass_fields__
        )
    )


def _differs(
    known: Known, shares: NDArray[np.float64], made: Decisions, policy: Policy
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(what is decided otherwise, or is explained otherwise; whose posterior has moved)."""
    wanted_by = str(policy.decide_by) if policy.by_model else DecideBy.VOTES.value
    before = np.array([_said(o, w) for o, w in zip(known.outcomes, known.winners, strict=True)])
    after = np.array([_word(made, row) for row in range(len(made))])
    moved = np.nan_to_num(np.abs(shares - known.posteriors).max(axis=1, initial=0.0), nan=1.0)
    moved[np.isnan(shares).all(axis=1)] = 0.0
    other_way = np.array([by != wanted_by for by in known.decided_by], dtype=bool)
    otherwise = (before != after) | ~known.same_rule | other_way
    if policy.by_model:  # then the posterior stands in the reason
        otherwise |= moved > _MOVED
    return otherwise, moved > _MOVED


def _said(outcome: str, winner: str) -> str:
    return f"{outcome}: {winner}" if winner else outcome


def _word(made: Decisions, row: int) -> str:
    winner = int(made.winner[row])
    return _said(
        OUTCOMES[int(made.outcome[row])].value, CHOICES[winner].value if winner >= 0 else ""
    )


@retried
def _store_posteriors(known: Known, shares: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
    """One statement for all: no comparison is locked, since a decision whose votes have changed
    meanwhile is left alone and nothing else is written."""
    if not len(rows):
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(bulk_sql.MOVED_TABLE)
        cursor.execute("truncate moved_posteriors")
        with cursor.copy("copy moved_posteriors from stdin") as copy:
            for start in range(0, len(rows), _PART):
                part = rows[start : start + _PART]
                lines = zip(
                    known.ids[part].tolist(),
                    known.counts[part].tolist(),
                    shares[part].round(6).tolist(),
                    strict=True,
                )
                copy.write(
                    "".join(
                        f"{key}\t{a}\t{b}\t{tie}\t{bad}\t{{{p[0]},{p[1]},{p[2]},{p[3]}}}\n"
                        for key, (a, b, tie, bad), p in lines
                    )
                )
        cursor.execute("analyze moved_posteriors")
        cursor.execute(bulk_sql.STORE_POSTERIORS)


@retried
def _store(
    project: Project,
    known: Known,
    shares: NDArray[np.float64],
    made: Decisions,
    rows: NDArray[np.int64],
    policy: Policy,
) -> None:
    possible = _possible(known, policy)
    said = [_one(known, shares, row, policy, int(possible[row])) for row in rows.tolist()]
    decided = [decision for decision, _ in said]
    extras = [
        int(
            one.outcome is Outcome.NEEDS_VOTES
            and one.n_votes >= known.overlap[row]
            and known.overlap[row] < policy.max_overlap
        )
        for one, row in zip(decided, rows.tolist(), strict=True)
    ]
    with transaction.atomic(), connection.cursor() as cursor:
        ids = known.ids[rows].tolist()
        cursor.execute(bulk_sql.LOCK_COMPARISONS, {"ids": ids})
        cursor.execute(
            bulk_sql.STORE_DECISIONS,
            {
                "ids": ids,
                "outcomes": [one.outcome.value for one in decided],
                "winners": [one.winner.value if one.winner else "" for one in decided],
                "n_agreeing": [one.n_agreeing for one in decided],
                "shares": [one.share or 0.0 for one in decided],
                "reasons": [words[:300] for _, words in said],
                "states": [STATE_OF[one.outcome].value for one in decided],
                "extras": extras,
                **{
                    name: known.counts[rows, column].tolist()
                    for column, name in enumerate(("n_a", "n_b", "n_tie", "n_both_bad"))
                },
                # an array of arrays would have to be rectangular: each as its own text
                "posteriors": [
                    None if any(map(isnan, row)) else "{" + ",".join(map(repr, row)) + "}"
                    for row in shares[rows].tolist()
                ],
                "rule": json.dumps(asdict(_rule(policy))),
                "decided_by": str(policy.decide_by) if policy.by_model else DecideBy.VOTES.value,
                "base": policy.overlap,
                "stop": policy.stop_early,
            },
        )


def _one(
    known: Known, shares: NDArray[np.float64], row: int, policy: Policy, possible: int
) -> tuple[voting.Decision, str]:
    """With the sentence that explains it."""
    counts = dict(zip(CHOICES, known.counts[row].tolist(), strict=True))
    if policy.by_model and not np.isnan(shares[row]).any():
        weighing = policy.posterior_rule()
        decision = decide_by_posterior(
            counts, shares[row].tolist(), weighing, votes_possible=possible
        )
        return decision, decision_said(decision, weighing)
    counting = policy.rule()
    decision = decide(counts, counting, votes_possible=possible)
    return decision, decision_said(decision, counting)
