"""The client covers the labeling API, by the server's own OpenAPI document."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

from concord_client import AsyncClient, Client, operations, types
from config.api import api

# Operations of labeling that the client leaves out, and why.
LEFT_OUT: dict[tuple[str, str], str] = {}

COVERED = [
    operations.next_pair("p"),
    operations.vote(1, {}),
    operations.skip(1, ""),
    operations.revise(1, {}),
    operations.guidelines("p"),
    operations.acknowledge("p", 1),
    operations.import_comparisons(
        "p", [], batch="", seed=0, on_error="refuse", identical_answers="refuse"
    ),
    operations.import_votes("p", [], on_error="refuse"),
    operations.decisions_page("p", after=0, limit=1, outcome=""),
    operations.settings("p"),
    operations.settings_update("p", {}),
]
ANSWERS = {
    "AsksOut": types.Asks,
    "CriterionOut": types.Criterion,
    "DecisionOut": types.Decision,
    "DecisionsOut": types.DecisionsPage,
    "GuidelineOut": types.Guidelines,
    "ImportReportOut": types.ImportReport,
    "LabelingSettingsOut": types.LabelingSettings,
    "MessageOut": types.Message,
    "NextOut": types.Next,
    "NothingOut": types.Nothing,
    "PairOut": types.Pair,
    "RevisionOut": types.Revision,
    "RowProblemOut": types.RowProblem,
    "VoteOut": types.Vote,
    "VotesReportOut": types.VotesReport,
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return api.get_openapi_schema()


def labeling(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if "labeling" in operation.get("tags", ())
    }


def test_every_operation_of_labeling_is_in_the_client_or_left_out_with_a_reason(
    document: dict[str, Any],
) -> None:
    covered = {(operation.method, operation.template) for operation in COVERED}
    assert covered | set(LEFT_OUT) == labeling(document)
    assert covered & set(LEFT_OUT) == set()
    made = [name for name, value in vars(operations).items() if inspect.isfunction(value)]
    here = [name for name in made if vars(operations)[name].__module__ == operations.__name__]
    assert len(set(here) - {"ballot"}) == len(COVERED)


def test_both_clients_have_the_same_methods() -> None:
    both = [
        {name for name in vars(client) if not name.startswith("_")}
        for client in (AsyncClient, Client)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("schema", ANSWERS)
def test_every_field_of_an_answer_has_a_name_in_the_client(
    schema: str, document: dict[str, Any]
) -> None:
    sent = set(document["components"]["schemas"][schema]["properties"])
    named = {field.name for field in fields(ANSWERS[schema])} - {"extra"}
    assert named == sent


def test_every_field_of_a_ballot_can_be_given(document: dict[str, Any]) -> None:
    taken = set(document["components"]["schemas"]["VoteIn"]["properties"])
    given = set(operations.Answer.__annotations__) | {"side", "choice", "idempotency_key"}
    assert given == taken
