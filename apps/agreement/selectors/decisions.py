"""Reads of what was decided and how."""

from django.db import connection
from django.db.models import Count

from apps.accounts.models import Project
from apps.agreement.models import ConsensusReport
from apps.labeling.models import Consensus, Decision, Vote
from apps.labeling.services.redeciding import decisions_behind

# Fewer votes are not worth a fit: the priors would say everything.
LEAST_VOTES = 30
# All ways to decide are compared anew when so much has come in, as a share of the votes.
WORTH_COMPARING = 0.05
# A fit is renewed after so many votes as a share, or when it is older than this.
WORTH_FITTING = 0.001
OLD_SECONDS = 600

_VOTES_BY_PROJECT = """
select p.id, count(v.id) filter (where v.is_current), coalesce(max(v.id), 0),
       coalesce(min(f.last_vote_id), 0), coalesce(min(f.n_votes), 0),
       coalesce(min(extract(epoch from now() - f.fitted_at)), 1e9),
       coalesce(min(r.n_votes), 0)
from accounts_project p
join labeling_vote v on v.project_id = p.id
left join labeling_consensus f on f.project_id = p.id
left join agreement_consensusreport r on r.project_id = p.id
where p.archived_at is null
group by p.id
"""


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
    """Projects with comparisons that another rule than the one in force has decided."""
    return [
        project
        for project in Project.objects.filter(archived_at__isnull=True)
        if decisions_behind(project=project)
    ]
