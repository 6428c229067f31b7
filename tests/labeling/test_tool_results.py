"""Long results of tools: stored apart from their run, and read whole by whoever needs the whole."""

import json
from typing import Any, get_args, get_type_hints

import pytest
from django.db import connection
from django.test import Client

from apps.accounts.models import Membership, Project, User
from apps.labeling import exports, services
from apps.labeling.api import trajectories
from apps.labeling.formats.conversations import log_from
from apps.labeling.formats.written_logs import WRITERS
from apps.labeling.models import (
    Comparison,
    LabelingSettings,
    Prompt,
    Response,
    ToolResult,
    whole_prompt,
    whole_response,
)
from apps.labeling.selectors.finding import Wanted
from apps.labeling.services.answers import improvement_store
from apps.labeling.services.task_rows import tasks_import
from apps.labeling.texts import messages_from
from measures.messages import LONG_RESULT, briefly, plain, plain_length, with_results
from tests.labeling.test_run_pairs import call, result, say

pytestmark = pytest.mark.django_db

LONG = "\n".join(f"line {n} of a long output" for n in range(400))
OTHER = LONG + "\nand one more"


def run(*results: str) -> list[dict[str, Any]]:
    steps = [(call("read", n=n), result(text)) for n, text in enumerate(results)]
    return [message for step in steps for message in step] + [say(f"{len(results)} read.")]


ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Read."}, call("pwd"), result(LONG)]
A, B = run(LONG, "short", LONG), run(LONG, "short", OTHER)


@pytest.fixture
def pair(project: Project) -> Comparison:
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 1, "acknowledge_guidelines": False}
    )
    services.comparisons_import(
        project=project,
        rows=[{"id": "pair", "prompt": ASKED, "response_a": A, "response_b": B}],
        batch="runs",
    )
    return Comparison.objects.select_related("prompt", "response_a", "response_b").get()


def test_a_long_result_is_stored_apart_and_read_whole(pair: Comparison) -> None:
    assert pair.prompt.brief[2]["cut"]["length"] == len(LONG) > LONG_RESULT
    assert LONG.startswith(pair.prompt.brief[2]["content"])
    assert len(json.dumps(pair.response_a.brief)) < LONG_RESULT
    assert ToolResult.objects.count() == 5
    assert [pair.prompt.messages, pair.response_a.messages, pair.response_b.messages] == [
        ASKED,
        A,
        B,
    ]
    asked, a = Comparison.objects.values_list(
        whole_prompt("prompt"), whole_response("response_a")
    ).get()
    assert (asked, a) == (ASKED, A)


def test_short_results_and_those_with_images_stay_with_their_message() -> None:
    picture = f"![seen](image:{'0' * 64}) {LONG}"
    messages = run("short", picture)
    assert briefly(messages) == (messages, {})
    long = run(LONG, picture)
    brief, whole = briefly(long)
    assert list(whole) == [1]
    assert with_results(brief, whole) == long
    assert plain_length(brief) == plain_length(long) == len(plain(long))


def test_importing_a_run_again_finds_it(project: Project, pair: Comparison) -> None:
    again = services.comparisons_import(
        project=project, rows=[{"prompt": ASKED, "response_a": B, "response_b": A}]
    )
    assert (again.n_created, again.n_unchanged) == (0, 1)
    assert ToolResult.objects.count() == 5


def test_runs_are_downloaded_in_the_form_that_is_asked_for(
    project: Project, pair: Comparison, ada: User, client: Client
) -> None:
    client.force_login(ada)
    address = f"/p/{project.slug}/comparisons/trajectories/"
    listed = client.get(f"/p/{project.slug}/comparisons/").content.decode()
    assert f"{address}?format=anthropic" in listed
    for form in WRITERS:
        sent = client.get(address, {"format": form})
        lines = b"".join(sent.streaming_content).splitlines()
        found = [messages_from(log_from(json.loads(line)).messages, role="user") for line in lines]
        said = [[(m["role"], m["content"]) for m in run] for run in found]
        assert said == [[(m["role"], m["content"]) for m in (*ASKED, *run)] for run in (A, B)]
    assert client.get(address, {"format": "yaml"}).status_code == 400


def test_exports_have_every_result_whole(project: Project, pair: Comparison) -> None:
    sent = b"".join(exports.trajectories_export(project=project, wanted=Wanted()).content).decode()
    runs = [json.loads(line) for line in sent.splitlines()]
    observed = [
        [
            r["content"]
            for step in one["steps"]
            for r in step.get("observation", {}).get("results", ())
        ]
        for one in runs
    ]
    assert observed == [[LONG, LONG, "short", LONG], [LONG, LONG, "short", OTHER]]


def test_the_api_offers_every_form_that_is_written() -> None:
    hints = get_type_hints(trajectories)
    assert get_args(hints["format"]) == tuple(WRITERS)


def test_the_label_page_folds_them_and_tells_equal_from_different(
    project: Project, pair: Comparison, ana: User, ben: User, client: Client
) -> None:
    client.force_login(ana)
    page = client.get(f"/p/{project.slug}/label/").content.decode()
    assert "line 399 of" not in page
    assert page.count("differs-first") == 2
    assert 'class="step assistant differs-first" id="step-left-5"' in page.replace("  ", " ")
    cut = pair.response_b.brief[5]["cut"]["hash"]
    address = f"/results/{cut}/"
    assert f'hx-get="{address}"' in page
    assert "and one more" in client.get(address).content.decode()
    assert client.get(f"/results/{'0' * 64}/").status_code == 404
    Membership.objects.filter(user=ben, project=project).delete()
    client.force_login(ben)
    assert client.get(address).status_code == 404


def test_pages_of_readers_have_the_beginning_and_an_address(
    project: Project, pair: Comparison, ada: User, client: Client
) -> None:
    client.force_login(ada)
    for page in (f"comparisons/{pair.pk}/", f"disputes/{pair.pk}/", "comparisons/"):
        shown = client.get(f"/p/{project.slug}/{page}")
        assert shown.status_code == 200, page
        text = shown.content.decode()
        assert "line 399 of" not in text
        if page != "comparisons/":
            assert text.count('hx-get="/results/') == 5


def test_rankings_of_runs_show_calls_and_results_as_text(
    project: Project, ana: User, client: Client
) -> None:
    hostile = run("<script>alert(1)</script> **bold**", LONG)
    tasks_import(
        project=project,
        rows=[{"kind": "rank", "prompt": "Read.", "responses": [hostile, A, B]}],
    )
    client.force_login(ana)
    page = client.get(f"/p/{project.slug}/label/").content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; **bold**" in page
    assert "<strong>bold" not in page
    assert 'read({"n":1})' in page
    assert page.count('hx-get="/results/') == 5
    assert "line 399 of" not in page


def test_programs_that_label_are_given_them_whole(
    project: Project, pair: Comparison, ana: User, client: Client
) -> None:
    client.force_login(ana)
    given = client.post(f"/api/v1/projects/{project.slug}/next").json()["pair"]

    def said(messages: list[dict[str, Any]]) -> list[str]:
        return [message["content"] for message in messages]

    assert said(given["prompt"]) == said(ASKED)
    assert {tuple(said(given[side])) for side in ("left", "right")} == {
        tuple(said(A)),
        tuple(said(B)),
    }
    Comparison.objects.update(state="dropped")
    services.slot_skip(slot=given["slot"], annotator=ana)
    row = {"kind": "rank", "prompt": ASKED, "responses": [A, B]}
    tasks_import(project=project, rows=[row])
    task = client.post(f"/api/v1/projects/{project.slug}/next?kinds=rank").json()["task"]
    assert said(task["prompt"]) == said(ASKED)
    assert [said(one) for one in task["responses"]] in (
        [said(A), said(B)],
        [said(B), said(A)],
    )


def test_an_improved_run_keeps_them(pair: Comparison, ana: User) -> None:
    made = improvement_store(text="All read.", chosen=pair.response_a_id, annotator=ana.pk)
    better = Response.objects.get(pk=made)
    assert better.messages == [*A[:-1], say("All read.")]
    assert "cut" in better.brief[1]
    again = improvement_store(text="All read.", chosen=pair.response_a_id, annotator=ana.pk)
    assert again == made


def test_undoing_an_import_takes_them_back(project: Project, pair: Comparison) -> None:
    assert services.batch_take_back(project=project, batch="runs") == 1
    assert not ToolResult.objects.exists()
    assert not Prompt.objects.filter(project=project).exists()


def test_what_is_missing_stays_so_in_a_statement() -> None:
    with connection.cursor() as cursor:
        cursor.execute("select labeling_whole(null, 1, null), labeling_whole('[]', 1, null)")
        assert cursor.fetchone() == (None, "[]")
