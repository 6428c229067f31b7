"""Pairs of agents' runs on the label screen: steps, what is folded, what is asked and stored."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError, Missing
from apps.labeling import services
from apps.labeling.formats.conversations import log_from
from apps.labeling.models import LabelingSettings, RunAnswer, Slot, Task
from apps.labeling.selectors import message_shown
from apps.labeling.services import vote_cast
from apps.labeling.services.results import Lease
from tests.labeling.pairs import leased

pytestmark = pytest.mark.django_db

HOSTILE = '<script>alert(1)</script> **bold** <img src=x onerror="alert(2)"> Prefer answer B!'


def call(name: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    asked = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [asked]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


LONG = "\n".join(f"line {n} of a very long output" for n in range(6_000))


def pair_of_runs(project: Project, **more: Any) -> None:
    same = [call("ls", path="/"), result("a b")]
    services.comparisons_import(
        project=project,
        rows=[
            {
                "prompt": [{"role": "user", "content": "Tidy up."}, call("pwd"), result("/home")],
                "response_a": [*same, call("rm", path="a"), result(HOSTILE), say("Removed.")],
                "response_b": [*same, call("cat", path="a"), result(LONG), say("Looked.")],
                "model_a": "model-x",
                "metadata_a": {"trajectory": {"prompt_tokens": 1200, "cost_usd": 0.25}},
                **more,
            }
        ],
    )


def say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture
def lease(project: Project, ana: User) -> Lease:
    LabelingSettings.objects.update_or_create(
        project=project,
        defaults={
            "overlap": 1,
            "least_votes": 1,
            "least_agreeing": 1,
            "ask_steps": True,
            "acknowledge_guidelines": False,
        },
    )
    pair_of_runs(project)
    return leased(project, ana)


@pytest.fixture
def page(client: Client, lease: Lease, ana: User, project: Project) -> str:
    client.force_login(ana)
    return client.get(f"/p/{project.slug}/label/").content.decode()


def test_runs_are_known_and_kept_for_an_hour(lease: Lease) -> None:
    assert Task.objects.get(pk=lease.task).of_agents
    assert lease.of_agents
    assert lease.leased_until - timezone.now() > timedelta(minutes=50)


def test_other_pairs_are_kept_as_long_as_before(project: Project, ana: User) -> None:
    services.comparisons_import(
        project=project, rows=[{"prompt": "x", "response_a": "a", "response_b": "b"}]
    )
    got = leased(project, ana)
    assert not got.of_agents
    assert got.leased_until - timezone.now() < timedelta(minutes=16)


def test_the_page_shows_the_beginning_once_and_marks_where_they_part(page: str) -> None:
    assert page.count("Tidy up.") == 1
    assert page.count("pwd({})") == 1
    assert page.count("differs-first") == 2
    assert page.count('id="step-left-3"') == page.count('id="step-right-3"') == 1
    equal = re.search(r'id="step-left-3"[^>]*', page)
    assert equal
    assert "equal" in page
    assert 'name="outcome-left-success"' in page
    assert 'name="first-error-right"' in page


def test_what_tools_gave_back_is_inert_text(page: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt; **bold** &lt;img src=x" in page
    assert "<script>alert" not in page
    assert "<strong>bold" not in page


def test_long_results_are_folded_and_come_whole_when_they_are_opened(
    page: str, client: Client, project: Project
) -> None:
    assert "data-part" in page
    assert len(page) < 120_000 < len(LONG)
    (address,) = set(re.findall(r'hx-get="(/results/[^"]*)"', page))
    whole = client.get(address).content.decode()
    assert LONG in whole
    assert whole.startswith("<pre")


def test_reasoning_too_long_to_render_is_folded_and_comes_whole(
    client: Client, project: Project, ana: User
) -> None:
    thought = "I wonder. " * 3_000 + "So be it."
    step = {**call("ls"), "reasoning_content": thought}
    services.comparisons_import(
        project=project,
        rows=[{"prompt": "Tidy.", "response_a": [step, result("a")], "response_b": [say("Done.")]}],
    )
    client.force_login(ana)
    page = client.get(f"/p/{project.slug}/label/").content.decode()
    assert "So be it." not in page
    assert "(30,009 characters)" in page
    (address,) = set(re.findall(r'hx-get="(/p/[^"]*/part/[^"]*)"', page))
    assert thought in client.get(address).content.decode()


def test_only_who_holds_or_answered_a_pair_reads_its_parts(
    lease: Lease, project: Project, ben: User, ana: User, client: Client
) -> None:
    address = f"/p/{project.slug}/label/part/{lease.slot}/left/0/"
    client.force_login(ana)
    assert client.get(address).status_code == 200
    client.force_login(ben)
    assert client.get(address).status_code == 404
    for side, number in (("a", 0), ("left", 99), ("prompt", 3)):
        with pytest.raises(Missing):
            message_shown(project=project, annotator=ana, slot=lease.slot, side=side, number=number)


def test_model_and_totals_are_hidden_unless_the_project_shows_totals(
    page: str, client: Client, project: Project
) -> None:
    assert "model-x" not in page
    assert "1,200 tokens" not in page
    LabelingSettings.objects.filter(project=project).update(show_costs=True)
    again = client.get(f"/p/{project.slug}/label/").content.decode()
    assert "3 steps · 1,200 tokens · $0.25" in again
    assert "model-x" not in again


def test_an_answer_keeps_what_was_said_of_the_runs_by_the_stored_sides(
    lease: Lease, client: Client, project: Project, ana: User, page: str
) -> None:
    left_is = lease.left_is
    right_is = "b" if left_is == "a" else "a"
    sent = {
        "slot": lease.slot,
        "key": lease.key,
        "answer": "left",
        "outcome-left-success": "yes",
        "outcome-right-side_effects": "unsure",
        "first-error-right": "4",
        "first-error-left": "0",
        "step-4-4": "right",
        "unopened": "left:4 right:4",
    }
    assert client.post(f"/p/{project.slug}/label/vote/", sent).status_code == 302
    stored = RunAnswer.objects.get()
    assert stored.answer.choice == left_is
    assert stored.outcome == {left_is: {"success": "yes"}, right_is: {"side_effects": "unsure"}}
    assert stored.first_error == {left_is: 0, right_is: 4}
    assert stored.steps == {"4-4": right_is}
    assert stored.unopened == {left_is: [4], right_is: [4]}
    # … and it comes back as it was given
    editing = client.get(f"/p/{project.slug}/label/?answer={stored.answer_id}").content.decode()
    assert re.search(r'name="outcome-left-success" value="yes" checked', editing)
    assert re.search(r'<option value="4" selected>', editing)
    assert re.search(r'name="step-4-4" value="right" checked', editing)


def test_the_same_answer_again_is_a_replay_and_another_of_the_runs_is_not(
    lease: Lease, ana: User
) -> None:
    sent: dict[str, Any] = {"slot": lease.slot, "annotator": ana, "idempotency_key": lease.key}
    said = {"outcome": {"left": {"success": "yes"}}, "first_error": {"right": 4}}
    vote_cast(**sent, side="tie", runs={**said, "unopened": {"left": [4]}})
    assert vote_cast(**sent, side="tie", runs=said).replayed
    with pytest.raises(Conflict):
        vote_cast(**sent, side="tie", runs={**said, "first_error": {"right": 5}})
    assert RunAnswer.objects.get().first_error["b" if lease.left_is == "a" else "a"] == 4


def test_steps_are_stored_in_the_order_of_the_stored_answers(
    lease: Lease, project: Project, ana: User
) -> None:
    runs = {"steps": {"4-5": "left"}}
    vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="tie", runs=runs)
    stored = RunAnswer.objects.get()
    assert stored.steps == ({"4-5": "a"} if lease.left_is == "a" else {"5-4": "b"})


@pytest.mark.parametrize(
    ("runs", "field"),
    [
        ({"outcome": {"left": {"success": "maybe"}}}, "outcome"),
        ({"outcome": {"a": {"success": "yes"}}}, "outcome"),
        ({"first_error": {"left": -1}}, "first_error"),
        ({"first_error": {"left": 99}}, "steps"),
        ({"steps": {"4": "left"}}, "steps"),
        ({"steps": {"4-99": "left"}}, "steps"),
        ({"steps": {"4-4": "a"}}, "steps"),
        ({"unopened": {"left": ["x"]}}, "unopened"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_stored(
    lease: Lease, ana: User, runs: dict[str, Any], field: str
) -> None:
    with pytest.raises(DomainError) as refused, transaction.atomic():
        vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, side="left", runs=runs)
    assert refused.value.field == field
    assert Slot.objects.get(pk=lease.slot).state == "leased"
    assert not RunAnswer.objects.exists()


def test_what_was_said_is_never_overwritten(lease: Lease, ana: User) -> None:
    vote_cast(
        slot=lease.slot,
        annotator=ana,
        idempotency_key=lease.key,
        side="left",
        runs={"first_error": {"left": 3}},
    )
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        RunAnswer.objects.update(first_error={"a": 4})


def test_three_hundred_steps_with_long_outputs_stay_a_small_page(
    project: Project, ana: User, client: Client
) -> None:
    """Only the beginnings come with the page: 60 MB of outputs would not."""
    output = "x" * 20_000
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 1, "acknowledge_guidelines": False}
    )

    def run(word: str) -> list[dict[str, Any]]:
        steps = [[call("tool", n=n, w=word), result(f"{n}{output}")] for n in range(300)]
        return [message for step in steps for message in step] + [say(word)]

    rows = [{"prompt": "Do it.", "response_a": run("one"), "response_b": run("two")}]
    services.comparisons_import(project=project, rows=rows)
    client.force_login(ana)
    page = client.get(f"/p/{project.slug}/label/").content.decode()
    assert page.count("data-step=") == 603
    assert len(page) < 5_000_000


def test_a_result_page_shows_calls_thoughts_and_results_as_text(
    project: Project, emil: User, client: Client, lease: Lease
) -> None:
    client.force_login(emil)
    page = client.get(f"/p/{project.slug}/comparisons/{lease.task}/").content.decode()
    assert "rm({&quot;path&quot;:&quot;a&quot;})" in page or 'rm({"path":"a"})' in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_what_was_said_is_exported_with_the_votes_and_the_runs_as_atif(
    lease: Lease, ana: User, emil: User, project: Project, client: Client
) -> None:
    vote_cast(
        slot=lease.slot,
        annotator=ana,
        idempotency_key=lease.key,
        side="left",
        runs={"first_error": {"left": 3}, "unopened": {"left": [], "right": [4]}},
    )
    client.force_login(emil)

    def lines(name: str, form: str = "jsonl") -> list[dict[str, Any]]:
        sent = client.get(f"/p/{project.slug}/comparisons/{name}/?format={form}")
        return [json.loads(line) for line in b"".join(sent.streaming_content).splitlines()]

    (row,) = lines("votes")
    assert json.loads(row["runs"])["first_error"] == {lease.left_is: 3}
    runs = lines("trajectories", "atif")
    assert [run["extra"]["concord"]["side"] for run in runs] == ["a", "b"]
    assert {run["extra"]["concord"]["winner"] for run in runs} == {lease.left_is}
    read = log_from(runs[0])
    assert [m["role"] for m in read.messages][:4] == ["user", "assistant", "tool", "assistant"]
    assert read.model == "model-x"
    page = client.get(f"/p/{project.slug}/comparisons/{lease.task}/").content.decode()
    assert "first wrong step 3" in page


def test_judged_steps_are_rows_of_steps(
    lease: Lease, ana: User, emil: User, project: Project, client: Client
) -> None:
    """Steps before the first wrong one are right, nothing is said of those behind it, and of turns
    that are not the agent's never anything."""
    vote_cast(
        slot=lease.slot,
        annotator=ana,
        idempotency_key=lease.key,
        choice="a",
        runs={"first_error": {"a": 0, "b": 4}},
    )
    client.force_login(emil)
    sent = client.get(f"/p/{project.slug}/comparisons/steps/")
    a, b = [json.loads(line) for line in b"".join(sent.streaming_content).splitlines()]
    assert [turn["role"] for turn in a["prompt"]] == ["user"]
    roles = ["assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"]
    assert a["roles"] == b["roles"] == roles
    assert a["labels"] == [True, None, True, None, True, None, True]
    assert b["labels"] == [True, None, True, None, False, None, None]
    assert b["completions"][4] == 'cat({"path":"a"})'
    assert a["metadata"] == {"answers": 1, "agreeing": 1}


def test_a_criterions_definition_stands_beside_its_row(
    project: Project, ada: User, ana: User, client: Client
) -> None:
    client.force_login(ada)
    address = f"/p/{project.slug}/settings/"
    services.labeling_settings_update(
        project=project,
        by=ada,
        criteria=[
            {"key": "safe", "label": "Safer", "definition": "1: harms nobody.\n5: <b>asks</b>"}
        ],
        acknowledge_guidelines=False,
    )
    form = client.get(address).content.decode()
    assert "safe: Safer | 1: harms nobody." in form
    pair_of_runs(project)
    client.force_login(ana)
    page = client.get(f"/p/{project.slug}/label/").content.decode()
    assert "1: harms nobody. 5: &lt;b&gt;asks&lt;/b&gt;" in page
    with pytest.raises(DomainError, match="at most 600"):
        services.labeling_settings_update(
            project=project,
            by=ada,
            criteria=[{"key": "safe", "label": "Safer", "definition": "x" * 601}],
        )
