"""Small projects in which people write."""

from typing import Any

from apps.accounts.models import Project, User
from apps.labeling.models import WritingBatch, WrittenText, WrittenVersion
from apps.labeling.services import writing as services
from apps.labeling.services.leasing import writing_lease_next
from apps.labeling.services.results import Lease

ROWS = [
    {"prompt": "Why is the sky blue?", "topic": "physics", "group": "sky"},
    {"prompt": "How do bees find flowers?", "topic": "biology", "group": "bees"},
    {"prompt": "What is a leap year?", "group": "years"},
]


def batch_make(project: Project, by: User | None = None, **more: Any) -> WritingBatch:
    given: dict[str, Any] = {"kind": "demonstrations", "name": "Answers", "prompts": ROWS} | more
    if given["kind"] == "prompts":
        del given["prompts"]
    return services.writing_batch_create(project=project, by=by, **given)


def taken(project: Project, user: User) -> WrittenText:
    """The text in the person's hands, or the next one."""
    got = writing_lease_next(project=project, annotator=user)
    assert isinstance(got, Lease), got
    return services.text_of_lease(got)


def submitted(
    text: WrittenText, author: User, body: str = "Light is scattered.", **more: Any
) -> WrittenVersion:
    given: dict[str, Any] = {"idempotency_key": f"{text.pk}.{text.n_versions}"} | more
    return services.text_submit(text=text.pk, author=author, body=body, **given).version


def accepted(project: Project, author: User, reviewer: User, body: str) -> WrittenText:
    text = taken(project, author)
    version = submitted(text, author, body)
    return services.text_review(
        text=text.pk, reviewer=reviewer, version=version.number, verdict="accepted"
    )
