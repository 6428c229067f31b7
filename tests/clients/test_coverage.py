"""The client covers the labeling API, by the server's own OpenAPI document."""

import inspect
from dataclasses import fields
from typing import Any

import pytest
from ninja import Schema

from concord_client import AsyncClient, Client, operations, types
from config.api import api

# Operations of labeling that the client leaves out, by the beginning of their path, and why.
LEFT_OUT = {
    "/projects/{slug}/imports": "files are for the wizard and the command; programs send rows",
    "/projects/{slug}/ratings": "ratings and rankings come with a client of their own",
    "/rating-slots/": "ratings and rankings come with a client of their own",
    "/ratings/": "ratings and rankings come with a client of their own",
}

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
    left_out = {one for one in labeling(document) if one[1].startswith(tuple(LEFT_OUT))}
    assert covered & left_out == set()
    assert covered == labeling(document) - left_out
    made = [name for name, value in vars(operations).items() if inspect.isfunction(value)]
    here = [name for name in made if vars(operations)[name].__module__ == operations.__name__]
    assert len(set(here) - {"ballot"}) == len(COVERED)


def test_both_clients_have_the_same_methods() -> None:
    both = [
        {name for name in vars(client) if not name.startswith("_")}
        for client in (AsyncClient, Client)
    ]
    assert both[0] == both[1]


def test_no_two_schemas_of_the_api_share_a_name() -> None:
    """The document keeps one per name, so one of the two operations would be described wrongly."""
    places: dict[str, set[str]] = {}
    waiting = list(Schema.__subclasses__())
    while waiting:
        schema = waiting.pop()
        waiting += schema.__subclasses__()
        if schema.__module__.startswith("apps."):
            places.setdefault(schema.__name__, set()).add(schema.__module__)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


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
