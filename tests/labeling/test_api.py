"""The API: the same rules as the screen, with tokens, and errors that say where."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.labeling.models import Comparison, Decision, LabelingSettings, Vote
from tests.labeling.pairs import annotators_make, pairs_make, rows_make, vote

Call = Callable[..., tuple[int, Any]]


@pytest.fixture
def call(signed_in: Callable[[User], Client]) -> Call:
    def do(user: User, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = signed_in(user).generic(
            method,
            f"/api/v1{path}",
            data=b"" if body is None else json.dumps(body),
            content_type="application/json",
        )
        return answer.status_code, answer.json()

    return do


def test_a_whole_round_by_api(project: Project, ada: User, ana: User, call: Call) -> None:
    rules = {"overlap": 1, "max_overlap": 1, "least_votes": 1, "least_agreeing": 1}
    assert call(ada, "PATCH", "/projects/arguments/labeling", rules)[0] == 200
    status, report = call(
        ada, "POST", "/projects/arguments/comparisons/import", {"rows": rows_make(2)}
    )
    assert (status, report["n_created"], report["problems"]) == (201, 2, [])

    status, got = call(ana, "POST", "/projects/arguments/next")
    pair = got["pair"]
    assert pair["prompt"][0]["content"].startswith("Question")
    assert set(pair) == {
        "slot",
        "comparison",
        "key",
        "prompt",
        "left",
        "right",
        "leased_until",
        "warning",
        "asks",
    }
    vote = {"side": "left", "idempotency_key": pair["key"], "strength": 2}
    status, stored = call(ana, "POST", f"/slots/{pair['slot']}/vote", vote)
    assert (status, stored["replayed"]) == (200, False)
    assert stored["pair"]["slot"] != pair["slot"]
    assert "decision" not in stored  # what others said is not for annotators
    again = call(ana, "POST", f"/slots/{pair['slot']}/vote", vote)[1]
    assert (again["vote"], again["replayed"]) == (stored["vote"], True)
    assert Vote.objects.get().source == "api"

    status, revised = call(
        ana,
        "POST",
        f"/votes/{stored['vote']}/revise",
        {"choice": "tie", "idempotency_key": "changed"},
    )
    assert (status, revised["revision"]) == (200, 2)
    status, done = call(ana, "POST", f"/slots/{stored['pair']['slot']}/skip", {"reason": "No."})
    assert (status, done["nothing"]["code"]) == (200, "yours_done")

    status, page = call(ada, "GET", "/projects/arguments/decisions")
    (decision,) = page["items"]
    assert (decision["winner"], decision["n_tie"], page["after"]) == ("tie", 1, None)


def test_the_voter_reads_no_decisions(project: Project, ana: User, olga: User, call: Call) -> None:
    assert call(ana, "GET", "/projects/arguments/decisions")[0] == 403
    assert call(olga, "GET", "/projects/arguments/decisions")[0] == 404


def test_an_outsider_cannot_vote_or_tell_that_a_slot_exists(
    project: Project, ana: User, olga: User, call: Call
) -> None:
    pairs_make(project)
    slot = call(ana, "POST", "/projects/arguments/next")[1]["pair"]["slot"]
    vote = {"side": "left", "idempotency_key": "k"}
    real = call(olga, "POST", f"/slots/{slot}/vote", vote)
    unreal = call(olga, "POST", "/slots/999999/vote", vote)
    assert real == unreal
    assert real[0] == 404
    assert call(olga, "POST", f"/slots/{slot}/skip", {})[0] == 404
    assert not Vote.objects.exists()


def test_bad_rows_are_named_and_nothing_is_imported(
    project: Project, ada: User, call: Call
) -> None:
    rows = [*rows_make(2), {"prompt": "x", "response_a": "y"}, 3]
    status, error = call(ada, "POST", "/projects/arguments/comparisons/import", {"rows": rows})
    assert (status, error["code"], error["row"], error["field"]) == (
        400,
        "rows_invalid",
        3,
        "response_b",
    )
    assert [(d["row"], d["field"]) for d in error["details"]] == [(3, "response_b"), (4, "row")]
    assert not Comparison.objects.exists()
    status, report = call(
        ada,
        "POST",
        "/projects/arguments/comparisons/import",
        {"rows": rows, "on_error": "skip"},
    )
    assert (status, report["n_created"], report["n_refused"]) == (201, 2, 2)


def test_past_votes_come_in_by_api_for_admins_only(
    project: Project, ada: User, emil: User, call: Call
) -> None:
    pairs_make(project, 1)
    body = {"rows": [{"comparison": "pair-1", "annotator": "w1", "choice": "b"}]}
    assert call(emil, "POST", "/projects/arguments/votes/import", body)[0] == 403
    status, report = call(ada, "POST", "/projects/arguments/votes/import", body)
    assert (status, report["n_created"], report["n_people"]) == (201, 1, 1)
    assert call(ada, "POST", "/projects/arguments/votes/import", body)[1]["n_unchanged"] == 1


def test_decisions_are_paged_without_gaps(project: Project, ada: User, call: Call) -> None:
    pairs_make(project, 7)
    (person,) = annotators_make(project, 1)
    for _ in range(7):
        vote(project, person)
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = call(ada, "GET", f"/projects/arguments/decisions?limit=3&after={after}")[1]
        seen += [item["comparison"] for item in page["items"]]
        after = page["after"]
    assert seen == sorted(Decision.objects.values_list("comparison_id", flat=True))


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"side": "left"}, 422, "idempotency_key"),
        ({"idempotency_key": "k"}, 400, "choice"),
        ({"idempotency_key": "k", "side": "up"}, 400, "side"),
        ({"idempotency_key": "k" * 81, "side": "left"}, 422, "idempotency_key"),
        ({"idempotency_key": "k", "side": "left", "flags": ["x"]}, 400, "flags"),
        ({"idempotency_key": "k", "side": "left", "strength": "much"}, 422, "strength"),
    ],
)
def test_an_error_of_a_vote_names_its_field(
    project: Project, ana: User, call: Call, body: dict, status: int, field: str
) -> None:
    pairs_make(project)
    slot = call(ana, "POST", "/projects/arguments/next")[1]["pair"]["slot"]
    answer = call(ana, "POST", f"/slots/{slot}/vote", body)
    assert (answer[0], answer[1]["field"]) == (status, field)
    assert not Vote.objects.exists()


def test_a_rule_that_cannot_work_is_refused(project: Project, ada: User, call: Call) -> None:
    for change, field in (
        ({"max_overlap": 2}, "max_overlap"),
        ({"least_share": 0}, "least_share"),
        ({"random_share": 0}, "random_share"),
        ({"least_votes": 9}, "max_overlap"),
        ({"overlap": 0}, "overlap"),
    ):
        status, error = call(ada, "PATCH", "/projects/arguments/labeling", change)
        assert (status, error["field"]) == (400, field), change
    assert not LabelingSettings.objects.filter(project=project, least_votes=9).exists()


CRITERIA = [{"key": "correct", "label": "Correct"}, {"key": "clear", "label": "Clear"}]


def test_a_client_can_ask_what_the_project_asks_and_answer_all_of_it(
    project: Project, ana: User, call: Call
) -> None:
    pairs_make(
        project,
        1,
        criteria=CRITERIA,
        require_criteria=True,
        show_rationale=True,
        reasons=["Correct", "Safer"],
        show_improve=True,
    )
    pair = call(ana, "POST", "/projects/arguments/next")[1]["pair"]
    assert pair["asks"]["criteria"] == [one | {"definition": ""} for one in CRITERIA]
    assert (pair["asks"]["reasons"], pair["asks"]["improve"]) == (["Correct", "Safer"], True)
    vote = {"side": "left", "idempotency_key": pair["key"], "reasons": ["Safer"]}
    status, refused = call(ana, "POST", f"/slots/{pair['slot']}/vote", vote)
    assert (status, refused["field"]) == (400, "criteria")
    vote |= {
        "criteria": {"correct": "left", "clear": "tie"},
        "improvement": "Exactly 24 hours, on average.",
    }
    assert call(ana, "POST", f"/slots/{pair['slot']}/vote", vote)[0] == 200
    stored = Vote.objects.get()
    assert stored.criteria == {"correct": stored.left_is, "clear": "tie"}
    assert stored.reasons == ["Safer"]
    assert stored.improvement.messages[-1]["content"] == "Exactly 24 hours, on average."
    assert stored.improvement.origin == "edit"
