"""Keeping the protocol that an evaluation was measured by."""

from apps.evaluation.models import EvaluationProtocol, ProtocolUse
from apps.training.models import Run
from apps.training.selectors.protocols import protocol_of


def evaluation_ended(run: Run) -> None:
    """Store the protocol of an evaluation that has just ended, in the transaction that says so, and
    that this run used it. Nothing is done for any other run, nor for one that stated none that can
    be read; a run stays with the protocol that it stated first."""
    if run.state != Run.State.FINISHED or (found := protocol_of(run)) is None:
        return
    protocol, _ = EvaluationProtocol.objects.get_or_create(
        project_id=run.project_id, sha256=found.sha256, defaults={"content": dict(found.content)}
    )
    ProtocolUse.objects.get_or_create(run=run, defaults={"protocol": protocol})
