"""A model of one project copied into another, for whoever administers both.

The copy is a model of its own: a run of the kind `register_*` reads the files of the one it is made
of (input `base`) and saves them again, without the trainer's state. Its lineage goes back over that
input, so whoever learned from the same votes or prompts stays known in the other project too. An
approval is not copied. Once made, a copy no longer needs the model that it was made of.
"""

from django.db.models import F, QuerySet

from apps.accounts.models import Project, User
from apps.accounts.selectors import administered_with
from apps.accounts.services import audit_record
from apps.common.errors import Conflict, Missing
from apps.common.json_limits import storable
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.cards import models_before
from apps.training.services.kinds import ENCODERS, POLICIES, REWARDS, Input
from apps.training.services.launching import run_launch
from workers.contract.wire import QUEUE_CPU

_KINDS = (
    (POLICIES, Run.Kind.REGISTER_POLICY),
    (REWARDS, Run.Kind.REGISTER_REWARD),
    (ENCODERS, Run.Kind.REGISTER_ENCODER),
)


def model_copy(
    *, model: Checkpoint, slug: str, user: User, name: str = "", idempotency_key: str = ""
) -> Run:
    """The run that copies `model` into the project of that slug, under the name of its run unless
    told otherwise. Raises `Missing` (field `project`) for a project that the user does not
    administer as they administer the model's, `Conflict` for one that is archived or for what is no
    model."""
    others = administered_with(project=model.project, user=user)
    target = others.filter(slug=slug).first() if "\x00" not in slug else None
    if target is None:
        raise Missing(
            "There is no other project by this name that you administer as you administer this "
            "one.",
            field="project",
        )
    if target.archived_at is not None:
        raise Conflict(f"{target.name} is archived.", code="project_archived", field="project")
    key = storable(idempotency_key)
    known = Run.objects.filter(project=target, launch_key=key).first() if key else None
    if known is not None:
        return known
    kind = next((kind for kinds, kind in _KINDS if model.run.kind in kinds), None)
    if kind is None:
        raise Conflict("This checkpoint is no model that can be copied.", code="no_model")
    inputs: dict[str, Input] = {"base": model}
    own = [one for one in models_before(model) if one.project_id == model.project_id]
    if own:  # a copy among them brought the licence with it
        inputs["licence"] = own[-1]
    run = run_launch(
        project=target,
        kind=kind,
        name=name or model.run.name,
        config={"model": f"{model.project.slug}/{model.pk}"},
        inputs=inputs,
        copied_from=model.project_id,
        queue=model.run.queue or QUEUE_CPU,
        user=user,
        idempotency_key=key,
    )
    audit_record(
        action="model.copied",
        actor=user,
        project=model.project,
        subject=model.pk,
        details={"project": target.slug, "run": run.pk},
    )
    return run


def copies_release(*, models: QuerySet[Checkpoint]) -> None:
    """Copies that other projects made of these models keep their files and lose the link to where
    they come from. Raises `Conflict` (being_copied) while one is still being made."""
    rows = RunInput.objects.filter(checkpoint__in=models).exclude(
        run__project=F("checkpoint__project")
    )
    if live := rows.filter(run__state__in=Run.LIVE_STATES).first():
        raise Conflict(
            f"Another project copies '{live.checkpoint}' right now; try again when it has.",
            code="being_copied",
        )
    rows.delete()


def project_copies_release(project: Project) -> None:
    copies_release(models=Checkpoint.objects.filter(project=project))
