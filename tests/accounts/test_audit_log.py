"""The audit log: a sentence for every action, links, a period, a file, an operation."""

import ast
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts import services
from apps.accounts.models import AuditEvent, Project, Role, User
from apps.accounts.screens import SENTENCES, audit_lines
from apps.evaluation.models import PromotionDecision
from apps.evaluation.services.reviewing import DECISIONS
from apps.evaluation.services.stages import VERBS
from apps.labeling.services import BULK_ROLES, labeling_settings_update
from apps.training.models import Run

LOG = "/p/arguments/audit-log"
CODE = re.compile(r"[a-z_]+\.[a-z_]+")
RECORDERS = {"audit_record", "_record", "_audit", "_audit_role", "_move", "_note_state"}
# Actions made of two parts: their endings, from what the same file gives to its recorder.
PARTS: dict[str, Callable[[set[str]], Iterable[str]]] = {
    "channel.": lambda given: given,
    "incident.": lambda given: given,
    "watch.": lambda given: given,
    "model.": lambda _: DECISIONS,
    "comparisons.": lambda _: BULK_ROLES,
    "promotion.": lambda given: {*given, *PromotionDecision.Kind.values},
    "stage.": lambda _: VERBS.values(),
    "round.": lambda given: {one for one in given if one},
}
SignedIn = Callable[[User], Client]


def actions_recorded() -> Iterator[str]:
    """Every action that the apps write: texts given to what records, or kept under a name; of an
    action made of parts, each whole that its own file can make of it."""
    for path in Path("apps").rglob("*.py"):
        if "migrations" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        texts = {
            node.args[at].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RECORDERS
            for at in range(len(node.args))
            if isinstance(node.args[at], ast.Constant)
        }
        for node in ast.walk(tree):
            given: list[ast.expr] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") != "AuditLine":
                given = [one.value for one in node.keywords if one.arg == "action"]
                if getattr(node.func, "id", "") in RECORDERS:
                    given += node.args
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "action":
                given = [node.value]
            for inner in (inner for value in given for inner in ast.walk(value)):
                if isinstance(inner, ast.Constant) and CODE.fullmatch(str(inner.value)):
                    yield inner.value
                elif isinstance(inner, ast.JoinedStr) and isinstance(inner.values[0], ast.Constant):
                    begin = str(inner.values[0].value)
                    if re.fullmatch(r"[a-z_]+\.", begin):
                        yield from (begin + end for end in PARTS[begin](texts))


def test_every_action_has_a_sentence_and_every_sentence_an_action() -> None:
    found = set(actions_recorded()) | {"demo.person", "demo.stage", "pairs.queued", "pairs.refused"}
    found |= {"pairs.taken_back", "pairs.selected"}
    found |= {f"comparisons.{action}" for action in BULK_ROLES}
    found |= {"rating_task.dropped", "rating_task.reopened"}  # in logs of 0.2
    found |= {"audit.resealed"}  # by a migration
    assert len(found) > 70
    assert found == set(SENTENCES)


def test_a_change_of_settings_is_told_in_words(project: Project, ada: User) -> None:
    labeling_settings_update(project=project, by=ada, overlap=5)
    [line] = audit_lines(project, AuditEvent.objects.filter(action="labeling.settings_changed"))
    assert line.words == "Ada changed votes per comparison from 3 to 5"


def test_what_a_sentence_names_is_a_link_found_once_for_many(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    client = signed_in(ada)
    for number in range(3):
        run = Run.objects.create(
            project=project, name=f"rewards {number}", kind=Run.Kind.DRILL, state=Run.State.QUEUED
        )
        services.audit_record(action="run.launched", actor=ada, project=project, subject=run.pk)
    with CaptureQueriesContext(connection) as few:
        page = client.get(f"{LOG}/").content.decode()
    assert f'<a href="/p/arguments/runs/{run.pk}/">rewards 2</a>' in page
    for _ in range(30):
        services.audit_record(action="run.stopped", actor=ada, project=project, subject=run.pk)
    with CaptureQueriesContext(connection) as many:
        client.get(f"{LOG}/")
    assert len(many) <= len(few)


def test_an_action_nobody_knows_is_shown_as_it_is(
    project: Project, ada: User, signed_in: SignedIn
) -> None:
    services.audit_record(
        action="moon.landed", actor=None, project=project, subject="Eagle", details={"feet": 2}
    )
    page = signed_in(ada).get(f"{LOG}/").content.decode()
    assert 'data-action="moon.landed"' in page
    assert "moon.landed Eagle" in page
    assert "feet: 2" in page


def test_the_log_is_filtered_by_period_action_and_person_in_page_file_and_operation(
    project: Project, ada: User, ana: User, signed_in: SignedIn
) -> None:
    services.membership_set(project=project, user=ana, role=Role.REVIEWER, by=ada)
    services.membership_set(project=project, user=ana, role=Role.ANNOTATOR, by=ada)
    client, today = signed_in(ada), timezone.now().date()
    tomorrow = today + timedelta(days=1)

    def shown(query: str) -> int:
        return client.get(f"{LOG}/?{query}").content.decode().count('data-action="membership')

    assert shown("") == shown(f"since={today}&until={today}") == shown("q=ada") == 2
    assert shown(f"since={tomorrow}") == shown("action=run.launched") == shown("q=nobody") == 0
    assert shown("since=yesterday") == 2
    file = client.get(f"{LOG}.csv?action=membership.changed")
    rows = list(csv.DictReader(io.StringIO(b"".join(file.streaming_content).decode())))
    assert [row["person"] for row in rows] == ["ada", "ada"]
    assert rows[0]["sentence"].endswith("from Reviewer to Annotator")
    assert AuditEvent.objects.filter(action="file.downloaded", project=project).count() == 1
    said = client.get(f"/api/v1/projects/arguments/audit-log?since={today}&limit=2").json()
    assert [event["action"] for event in said] == ["file.downloaded", "membership.changed"]
    more = client.get(f"/api/v1/projects/arguments/audit-log?before={said[1]['id']}").json()
    assert [event["id"] for event in more] == [int(said[1]["id"]) - 1]


@pytest.mark.parametrize("query", ["page=x", "since=2026-13-40", "action=" + "x" * 80])
def test_a_malformed_filter_does_no_harm(
    query: str, project: Project, ada: User, signed_in: SignedIn
) -> None:
    assert signed_in(ada).get(f"{LOG}/?{query}").status_code == 200
    assert signed_in(ada).get(f"{LOG}.csv?{query}").status_code == 200
