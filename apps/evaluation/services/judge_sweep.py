"""What the scheduler does for judges, every few seconds: verdicts of runs that have ended are taken
over and what was wanted of them is done, servers are asked again, audits are looked at.

Taking verdicts and acting on them are two transactions: a process that is killed between them
leaves a run that is taken and `wanted`, which the next sweep acts on.
"""

import logging

from django.db import transaction
from django.db.models import Q

from apps.common.errors import DomainError
from apps.common.models import longest
from apps.evaluation.models import JudgeRun
from apps.evaluation.selectors.judges import Part, Scope, certificate_get
from apps.evaluation.services.certificates import audits_look, labels_give
from apps.evaluation.services.judge_worth import measurement_make, trial_taken
from apps.evaluation.services.judges import give_up, probes_launch, runs_take

log = logging.getLogger(__name__)


def judges_sweep() -> int:
    """How many runs were taken over or acted on, and probes launched."""
    done = len(runs_take())
    waiting = JudgeRun.objects.filter(taken_at__isnull=False, acted=False).exclude(wanted={})
    # A trial also ends by a run of it that failed.
    failed = JudgeRun.objects.filter(~Q(problem=""), acted=False, wanted__has_key="trial")
    due = (waiting | failed).order_by("run__ended_at").values_list("run_id", flat=True)
    for run_id in list(due[:50]):
        try:
            done += _act(run_id)
        except Exception as error:
            log.exception("after the verdicts of run %s", run_id)  # the next sweep tries again
            give_up(run_id, since="run__ended_at", error=error)
    return done + probes_launch() + audits_look()


@transaction.atomic
def _act(run_id: str) -> bool:
    found = (
        JudgeRun.objects.select_for_update(of=("self",), skip_locked=True)
        .select_related("version__judge__project", "version__model__run", "by")
        .filter(run=run_id, acted=False)
        .first()
    )
    if found is None:
        return False
    try:
        with transaction.atomic():
            _do(found)
    except DomainError as error:
        found.problem = error.message[: longest(JudgeRun, "problem")]
    found.acted = True
    found.save(update_fields=["acted", "problem", "updated_at"])
    return True


def _do(found: JudgeRun) -> None:
    version, scope, wanted = found.version, Scope.of(found.scope), found.wanted
    if "trial" in wanted:
        trial_taken(found)
    elif "certify" in wanted:
        measurement_make(
            version=version,
            scope=scope,
            share=float(wanted["share"]),
            by=found.by,
            part=Part.CERTIFY,
        )
    elif "measure" in wanted:
        measurement_make(version=version, scope=scope, share=float(wanted["measure"]), by=found.by)
    elif "certificate" in wanted:
        certificate = certificate_get(
            project=version.judge.project, certificate_id=wanted["certificate"]
        )
        labels_give(certificate=certificate, scope=scope)
