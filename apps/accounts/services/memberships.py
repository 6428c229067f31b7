"""Who is in a project, in which role, and who is paused there."""

from django.db import transaction

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services.audit import audit_record
from apps.common.errors import Conflict, DomainError
from apps.common.models import longest


@transaction.atomic
def membership_set(
    *, project: Project, user: User, role: str, by: User | None = None, by_claim: bool = False
) -> Membership:
    """Give `user` the role in the project, as a newcomer or instead of the role they have;
    `by_claim`: the sign-in provider said so, and may take it back."""
    if role not in Role.values:
        raise DomainError(f"'{role}' is no role: use {', '.join(Role.values)}.", field="role")
    _lock(project)
    claimed = {"by": "claim"} if by_claim else {}
    membership = Membership.objects.filter(project=project, user=user).first()
    if membership is None:
        membership = Membership.objects.create(
            project=project, user=user, role=role, by_claim=by_claim
        )
        _audit_role(by, project, user, "membership.added", {"role": role, **claimed})
    elif membership.role != role:
        before = membership.role
        _keep_an_admin(project, membership)
        membership.role, membership.by_claim = role, by_claim
        membership.save(update_fields=["role", "by_claim", "updated_at"])
        details = {"role": role, "before": before, **claimed}
        _audit_role(by, project, user, "membership.changed", details)
    elif membership.by_claim and not by_claim:
        membership.by_claim = False
        membership.save(update_fields=["by_claim", "updated_at"])
    return membership


@transaction.atomic
def membership_remove(*, project: Project, user: User, by: User | None = None) -> None:
    """Take the person out of the project. What they did stays, under their name."""
    _lock(project)
    membership = Membership.objects.filter(project=project, user=user).first()
    if membership is None:
        raise Conflict(f"{user} is not in this project any more.", code="not_a_member")
    _keep_an_admin(project, membership)
    membership.delete()
    _audit_role(by, project, user, "membership.removed", {"role": membership.role})


@transaction.atomic
def membership_pause(*, project: Project, user: User, reason: str, by: User | None = None) -> None:
    """The person gets no more pairs, and reads why. What they did stays, and they may sign in."""
    reason = reason.strip()
    most = longest(Membership, "paused_reason")
    if not reason:
        raise DomainError("Say why: the person reads this instead of a pair.", field="reason")
    if len(reason) > most:
        raise DomainError(f"At most {most} characters.", field="reason")
    if "\x00" in reason:
        raise DomainError("A NUL character cannot be stored.", field="reason")
    membership = _membership_lock(project, user)
    if membership.paused_reason != reason:
        membership.paused_reason = reason
        membership.save(update_fields=["paused_reason", "updated_at"])
        _audit_role(by, project, user, "membership.paused", {"reason": reason})


@transaction.atomic
def membership_resume(*, project: Project, user: User, by: User | None = None) -> None:
    """Undo a pause; for somebody who is not paused it changes nothing."""
    membership = _membership_lock(project, user)
    if membership.paused_reason:
        membership.paused_reason = ""
        membership.save(update_fields=["paused_reason", "updated_at"])
        _audit_role(by, project, user, "membership.resumed", {})


def _membership_lock(project: Project, user: User) -> Membership:
    membership = (
        Membership.objects.select_for_update(no_key=True).filter(project=project, user=user).first()
    )
    if membership is None:
        raise Conflict(f"{user} is not in this project any more.", code="not_a_member")
    return membership


def _lock(project: Project) -> None:
    """Two admins who demote each other at once are served one after the other."""
    Project.objects.select_for_update().get(pk=project.pk)


def _keep_an_admin(project: Project, leaving: Membership) -> None:
    others = Membership.objects.filter(
        project=project, role=Role.ADMIN, user__is_active=True
    ).exclude(pk=leaving.pk)
    if leaving.role == Role.ADMIN and not others.exists():
        raise Conflict(
            f"{leaving.user} is the last admin of {project.name}. Make somebody else an admin "
            "first.",
            code="last_admin",
            field="role",
        )


def _audit_role(
    by: User | None, project: Project, user: User, action: str, details: dict[str, str]
) -> None:
    audit_record(action=action, actor=by, project=project, subject=user, details=details)
