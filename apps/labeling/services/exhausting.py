"""Pairs that nobody is left to vote on: contested with their reason, and open again when somebody
joins who may.

Left to vote are the project's annotators, and its reviewers and admins once they have answered a
pair here: active, not paused, within their topics and languages, who have neither voted on the pair
nor skipped it. A lease that is out counts as a vote to come; a cap of the day and guidelines that
wait to be read pass, so they do not count. The mark is `Comparison.review_reason`; while it stands,
the votes that are in are all that come (`redeciding`).
"""

from collections import Counter
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.models import Count
from django.utils import timezone

from apps.accounts.models import Project, Role
from apps.accounts.selectors import invitations_open
from apps.common.transactions import retried
from apps.labeling.models import NOBODY_LEFT, Comparison, Decision
from apps.labeling.services import bulk_statements as sql
from apps.labeling.services.eligibility import labelers_now
from apps.labeling.services.redeciding import decisions_redo, policy_of
from measures.voting import Rule
from measures.voting.rule import can_still_hold


@dataclass(frozen=True, slots=True)
class Staffing:
    """Who labels, against what the rule asks of them.

    people: who label now; most, least: votes that a pair may get, and needs at least; waiting:
    {further people: pairs that nobody is left for and that so many could settle at best}; invited:
    annotators whose invitation is open.
    """

    people: int
    most: int
    least: int
    waiting: dict[int, int]
    invited: int = 0

    @property
    def team(self) -> int:
        return self.people + self.invited

    @property
    def pairs_words(self) -> str:
        """ "13 pairs need a 5th person; you have 4…"; empty where none waits."""
        if not self.waiting:
            return ""
        parts = [
            f"{n:,} {'pair needs' if n == 1 else 'pairs need'} "
            + (f"a {_ordinal(self.people + 1)} person" if k == 1 else f"{k} more people")
            for k, n in sorted(self.waiting.items())
        ]
        settled = self.waiting.get(1, 0)
        return (
            f"{', '.join(parts)}; you have {self.people:,}. Everybody who may vote on them has, so "
            f"they are contested. One further person could settle at most {settled:,} of them; a "
            "reviewer or an admin can rule on them."
        )

    @property
    def rule_words(self) -> str:
        """What the rule asks and this team cannot give, the invited among it; empty where it
        can."""
        have = f"{self.people:,} {'person labels' if self.people == 1 else 'people label'} here"
        if self.invited:
            have += f" and {self.invited:,} {'is' if self.invited == 1 else 'are'} invited"
        if self.team < self.least:
            return f"The rule needs {self.least} votes on a pair, and {have}: none can be decided."
        if self.team < self.most:
            return (
                f"The rule asks for up to {self.most} votes on a pair, and {have}: what "
                f"{self.team:,} leave undecided becomes contested."
            )
        return ""


def staffing(*, project: Project) -> Staffing:
    policy = policy_of(project=project)
    rule = Rule(policy.least_votes, policy.least_agreeing, policy.least_share, None)
    rows = Decision.objects.filter(
        project=project,
        comparison__state=Comparison.State.CONTESTED,
        comparison__review_reason=NOBODY_LEFT,
    ).values_list("n_a", "n_b", "n_tie", "n_both_bad")
    waiting: Counter[int] = Counter()
    for *counts, n in rows.annotate(n=Count("pk")).order_by():
        k = _further(rule, sum(counts), 0 if policy.by_model else max(counts))
        if k is not None:
            waiting[k] += n
    return Staffing(
        people=labelers_now(project.pk),
        most=policy.max_overlap,
        least=max(policy.least_votes, 0 if policy.by_model else policy.least_agreeing),
        waiting=dict(waiting),
        invited=invitations_open(project)
        .filter(role=Role.ANNOTATOR, expires_at__gt=timezone.now())
        .count(),
    )


def _further(rule: Rule, n: int, top: int) -> int | None:
    """How many votes could settle it at best; a model of the voters is asked for votes alone."""
    if not top:
        return max(1, rule.least_votes - n)
    return next((k for k in range(1, 51) if can_still_hold(rule, n, top, k)), None)


def _ordinal(n: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{n}{'th' if 10 < n % 100 < 14 else ends.get(n % 10, 'th')}"


@dataclass(frozen=True, slots=True)
class Settled:
    """Ids of the comparisons that nobody is left for, and of those somebody is left for again."""

    contested: list[int]
    reopened: list[int]


@retried
@transaction.atomic
def comparisons_settle(
    *, project: Project, only: list[int] | None = None, joining: int | None = None
) -> Settled:
    """Contest what nobody is left to vote on, and open what somebody is left for again.

    only: ids of the comparisons to look at; joining: somebody who is about to label, for whom pairs
    are opened and none is contested. Comparisons that are being voted on are passed over; their
    vote, or the next sweep, looks again.
    """
    values = {"project": project.pk, "only": only, "joining": joining}
    contested: list[int] = []
    with connection.cursor() as cursor:
        if joining is None:
            cursor.execute(sql.NOBODY_LEFT_MARK, values)
            contested = [row[0] for row in cursor.fetchall()]
        cursor.execute(sql.NOBODY_LEFT_CLEAR, values)
        reopened = [row[0] for row in cursor.fetchall()]
        if contested or reopened:
            decisions_redo(project=project, only=[*contested, *reopened])
        if reopened:
            cursor.execute(sql.PLACES_BACK, {"project": project.pk, "ids": reopened})
    return Settled(contested, reopened)


def comparisons_sweep() -> int:
    """Every minute, by the scheduler: what people who came and went have changed. How many
    comparisons it touched."""
    wanted = Comparison.objects.filter(state__in=("open", "contested"))
    touched = 0
    for project in Project.objects.filter(pk__in=wanted.values("project"), archived_at=None):
        done = comparisons_settle(project=project)
        with connection.cursor() as cursor:
            cursor.execute(sql.PLACES_BACK, {"project": project.pk, "ids": None})
        touched += len(done.contested) + len(done.reopened)
    return touched
