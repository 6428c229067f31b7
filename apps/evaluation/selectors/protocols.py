"""What the evaluations of a project were measured by."""

from django.db.models import Count, QuerySet

from apps.accounts.models import Project
from apps.common.errors import Missing
from apps.evaluation.models import EvaluationProtocol, ProtocolUse
from apps.training.models import Run
from workers.contract.protocol import Difference, differences

LEAST = 12  # characters of a hash by which a protocol is found


def protocols(*, project: Project) -> QuerySet[EvaluationProtocol]:
    """Newest first, with `n_runs`."""
    rows = EvaluationProtocol.objects.filter(project=project)
    return rows.annotate(n_runs=Count("uses")).order_by("-created_at", "-pk")


def protocol_get(*, project: Project, sha256: str) -> EvaluationProtocol:
    """By its hash, or the first `LEAST` characters of it. Raises `Missing`."""
    rows = EvaluationProtocol.objects.filter(project=project)
    known = len(sha256) >= LEAST and sha256.isalnum()
    row = rows.filter(sha256__startswith=sha256).order_by("pk").first() if known else None
    if row is None:
        raise Missing("There is no such protocol in this project.", field="sha256")
    return row


def runs_by(protocol: EvaluationProtocol) -> QuerySet[Run]:
    """The evaluations that it measured, newest first."""
    return Run.objects.filter(protocol_use__protocol=protocol).order_by("-ended_at", "-pk")


def protocol_of_run(run: Run) -> EvaluationProtocol | None:
    """None for a run that was evaluated before protocols were kept."""
    use = ProtocolUse.objects.filter(run=run).select_related("protocol").first()
    return use.protocol if use else None


def protocol_differences(one: EvaluationProtocol, other: EvaluationProtocol) -> list[Difference]:
    """The lines in which they differ; none for a protocol and itself."""
    return differences(one.content, other.content)
