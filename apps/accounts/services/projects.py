"""Projects: made, described, archived, deleted."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ForeignKey, Model
from django.utils import timezone
from django.utils.text import slugify

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.accounts.selectors import may_create_projects
from apps.accounts.services.audit import audit_record
from apps.common import registry
from apps.common.errors import Conflict, DomainError, Refused

DELETIONS_TRIED = 3


@transaction.atomic
def project_create(
    *,
    name: str,
    by: User,
    slug: str = "",
    description: str = "",
    copy_of: Project | None = None,
    answers: Mapping[str, str] | None = None,
    first_steps: bool = False,
) -> Project:
    """A new project whose first admin is `by`, with the settings of `copy_of` and the answers to
    `registry.project_questions`; its pages lead through the first steps where that is wanted."""
    if not may_create_projects(by):
        raise Refused("Only people who administer a project already may create another.")
    name = name.strip()
    slug = slug or _free_slug(slugify(name)[:56])
    if not name or not slug:
        raise DomainError("A project needs a name with letters or digits.", field="name")
    try:
        with transaction.atomic():
            project = Project(slug=slug, name=name, description=description, created_by=by)
            project.set_up_at = None if first_steps else timezone.now()
            project.full_clean(validate_unique=False)
            project.save()
    except IntegrityError:
        raise Conflict(
            f"There is a project with the address '{slug}' already.", code="taken", field="slug"
        ) from None
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise DomainError(messages[0], field=field) from None
    Membership.objects.create(project=project, user=by, role=Role.ADMIN)
    if copy_of is not None:
        registry.project_settings_copy(copy_of, project)
    questions = {question.name: question for question in registry.project_questions()}
    for asked, answer in (answers or {}).items():
        if asked not in questions:
            raise DomainError(f"A new project is not asked {asked!r}.", field=asked)
        if answer not in questions[asked].choices():
            expected = ", ".join(questions[asked].choices())
            raise DomainError(f"One of {expected} is expected.", field=asked)
        questions[asked].save(project, answer)
    audit_record(
        action="project.created",
        actor=by,
        project=project,
        subject=project.slug,
        details=dict(answers or {}),
    )
    return project


def _free_slug(wanted: str) -> str:
    """`wanted`, with a number after it where another project has it: names may repeat."""
    taken = set(Project.objects.filter(slug__startswith=wanted).values_list("slug", flat=True))
    numbered = (f"{wanted}-{n}" for n in range(2, 1000))
    return wanted if wanted not in taken else next(one for one in numbered if one not in taken)


@transaction.atomic
def project_change(*, project: Project, name: str, description: str, by: User) -> None:
    """Another name or description; the address stays, so links keep working."""
    name = name.strip()
    if not name:
        raise DomainError("A project needs a name.", field="name")
    before = {"name": project.name, "description": project.description}
    project.name, project.description = name, description.strip()
    try:
        project.clean_fields(exclude=["created_by"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise DomainError(messages[0], field=field) from None
    project.save(update_fields=["name", "description", "updated_at"])
    if before != {"name": project.name, "description": project.description}:
        audit_record(
            action="project.changed",
            actor=by,
            project=project,
            subject=project.slug,
            details={"name": project.name, "name_before": before["name"]},
        )


@transaction.atomic
def project_archive(*, project: Project, by: User) -> None:
    """Nobody reaches it any more, by page or by API, until an admin of it restores it."""
    if project.archived_at is None:
        project.archived_at = timezone.now()
        project.save(update_fields=["archived_at", "updated_at"])
        audit_record(action="project.archived", actor=by, project=project, subject=project.slug)


@transaction.atomic
def project_restore(*, project: Project, by: User) -> None:
    if project.archived_at is not None:
        project.archived_at = None
        project.save(update_fields=["archived_at", "updated_at"])
        audit_record(action="project.restored", actor=by, project=project, subject=project.slug)


def project_delete(*, project: Project, typed: str, by: User) -> None:
    """Delete an archived project with everything in it; `typed` must be its name.

    Its audit log stays, and files of its datasets and runs stay in the artifact store. Raises
    `Conflict` where others keep adding to it.
    """
    for _ in range(DELETIONS_TRIED):
        # What a request that began before the archiving adds meanwhile, goes with the next try.
        with suppress(IntegrityError):
            _project_deleted(project=project, typed=typed, by=by)
            return
    raise Conflict("Something is still being added to it. Try again.", code="project_in_use")


@transaction.atomic
def _project_deleted(*, project: Project, typed: str, by: User) -> None:
    if project.archived_at is None:
        raise Conflict("Archive the project first.", code="not_archived")
    if typed.strip() != project.name:
        raise DomainError(f"Type the name of the project, {project.name}.", field="typed")
    registry.deletion_check(project)
    registry.deletion_steps(project)
    for model, path in models_of_projects():
        model._default_manager.filter(**{path: project}).delete()
    audit_record(action="project.deleted", actor=by, project=project, subject=project.slug)
    Project.objects.filter(pk=project.pk).delete()  # the object keeps its key for another try


def project_set_up(*, project: Project) -> None:
    """Its pages stop showing the first steps."""
    Project.objects.filter(pk=project.pk, set_up_at=None).update(set_up_at=timezone.now())


@cache
def models_of_projects() -> list[tuple[type[Model], str]]:
    """(model, how a filter names its project) of all our tables, those that point at others first.

    In this order they can be deleted one after the other, also where a key is protected.
    """
    paths: dict[type[Model], str] = {}
    own = [one for one in apps.get_models() if one.__module__.startswith("apps.")]
    while True:  # from the project outwards, along keys that are never empty
        found = {
            model: f"{field.name}__{paths[to]}" if to in paths else field.name
            for model in own
            if model not in paths
            for field, to in _keys(model)
            if (to in paths or to is Project) and not field.null and model is not AuditEvent
        }
        if not found:
            break
        paths |= found
    ordered: list[type[Model]] = []

    def visit(model: type[Model], waiting: tuple[type[Model], ...] = ()) -> None:
        if model in ordered or model in waiting:
            return
        for other in paths:
            if other is not model and any(to is model for _, to in _keys(other)):
                visit(other, (*waiting, model))
        ordered.append(model)

    for model in paths:
        visit(model)
    return [(model, paths[model]) for model in ordered]


def _keys(model: type[Model]) -> list[tuple[ForeignKey, type[Model]]]:
    fields = [one for one in model._meta.concrete_fields if isinstance(one, ForeignKey)]
    return [(field, field.related_model) for field in fields]
