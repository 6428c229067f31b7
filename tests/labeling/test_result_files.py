"""What a project found out leaves it with the ids and columns that came in."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.test import Client

from apps.accounts.identity import names_under
from apps.accounts.models import Project, User
from apps.labeling import exports, services
from apps.labeling.models import MODEL_NAME, Comparison, Decision, LabelingSettings, Response, Vote
from apps.labeling.selectors.finding import Wanted
from tests.labeling.pairs import annotators_make

SignIn = Callable[[User], Client]
RESULTS, VOTES = "/p/arguments/comparisons/results/", "/p/arguments/comparisons/votes/"
CHOICES = ("a", "b", "tie")
TALK = [
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "How long is a day?"},
]


@pytest.fixture
def decided(project: Project) -> list[User]:
    """Three rows on one prompt, voted on by two people: q1 for A, q2 for B, q3 split."""
    LabelingSettings.objects.update_or_create(
        project=project,
        defaults={"overlap": 2, "max_overlap": 2, "least_votes": 2, "least_agreeing": 2},
    )
    services.comparisons_import(
        project=project,
        rows=[
            {
                "id": f"q{number}",
                "prompt": TALK,
                "response_a": f"=Twenty-four {number}",
                "response_b": f"It depends {number}",
                "model_a": "model-x",
                "metadata_b": {"model": "model-y"},
                "topic": "time",
                "metadata": {"our_row": number, "note": "ours"},
            }
            for number in (1, 2, 3)
        ],
    )
    people = annotators_make(project, 2)
    wanted = {"q1": "aa", "q2": "bb", "q3": "ab"}
    for place, person in enumerate(people):
        for _ in wanted:
            lease = services.slot_lease_next(project=project, annotator=person)
            name = Comparison.objects.get(pk=lease.comparison).external_id
            services.vote_cast(
                slot=lease.slot,
                annotator=person,
                idempotency_key=lease.key,
                choice=wanted[name][place],
                wall_ms=1_000,
            )
    return people


def body(answer: Any) -> bytes:
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content)


def lines(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body(answer).splitlines()]


def test_results_carry_what_was_imported_and_what_was_decided(
    decided: list[User], rita: User, signed_in: SignIn
) -> None:
    rows = lines(signed_in(rita).get(RESULTS, {"format": "jsonl"}))
    assert [row["external_id"] for row in rows] == ["q1", "q2", "q3"]
    assert [row["outcome"] for row in rows] == ["a", "b", ""]
    assert [row["state"] for row in rows] == ["decided", "decided", "contested"]
    assert [(row["votes_a"], row["votes_b"]) for row in rows] == [(2, 0), (0, 2), (1, 1)]
    assert [row["share"] for row in rows] == [1.0, 1.0, None]
    # each row has its own columns, although they share a prompt
    assert [json.loads(row["metadata"])["our_row"] for row in rows] == [1, 2, 3]
    assert {row["model_a"] for row in rows} == {"model-x"}
    assert {row["model_b"] for row in rows} == {"model-y"}
    assert json.loads(rows[0]["prompt"]) == TALK
    assert (rows[0]["response_a"], rows[0]["topic"]) == ("=Twenty-four 1", "time")
    assert rows[0]["posterior"] is None


def test_a_posterior_is_given_where_a_model_of_the_voters_decides(
    decided: list[User], project: Project, rita: User, signed_in: SignIn
) -> None:
    Decision.objects.filter(comparison__external_id="q2").update(
        decided_by="one_coin", posteriors=[0.1, 0.8, 0.06, 0.04]
    )
    rows = lines(signed_in(rita).get(RESULTS, {"format": "jsonl"}))
    assert [(row["posterior"], row["decided_by"]) for row in rows] == [
        (None, "votes"),
        (0.8, "one_coin"),
        (None, ""),
    ]


def test_the_three_formats_say_the_same(decided: list[User], emil: User, signed_in: SignIn) -> None:
    client = signed_in(emil)
    as_lines = lines(client.get(RESULTS, {"format": "jsonl"}))
    table = pq.read_table(io.BytesIO(body(client.get(RESULTS, {"format": "parquet"}))))
    assert table.to_pylist() == as_lines
    text = body(client.get(RESULTS, {"format": "csv"})).decode()
    as_table = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["external_id"] for row in as_table] == ["q1", "q2", "q3"]
    assert as_table[0]["response_a"] == "'=Twenty-four 1"  # no spreadsheet runs it
    assert json.loads(as_table[0]["prompt"]) == TALK


def test_the_filters_of_the_page_are_those_of_the_files(
    decided: list[User], ada: User, signed_in: SignIn
) -> None:
    client = signed_in(ada)
    page = client.get("/p/arguments/comparisons/", {"winner": "b"}).content.decode()
    assert f"{RESULTS}?format=csv&amp;winner=b" in page
    rows = lines(client.get(RESULTS, {"format": "jsonl", "winner": "b"}))
    assert [row["external_id"] for row in rows] == ["q2"]
    cast = lines(client.get(VOTES, {"format": "jsonl", "winner": "b"}))
    assert [row["external_id"] for row in cast] == ["q2", "q2"]
    assert client.get(RESULTS, {"format": "xml"}).status_code >= 400


def test_every_vote_is_a_row_with_a_name_for_admins_and_a_pseudonym_for_others(
    decided: list[User], ada: User, rita: User, signed_in: SignIn
) -> None:
    named = lines(signed_in(ada).get(VOTES, {"format": "jsonl"}))
    numbered = lines(signed_in(rita).get(VOTES, {"format": "jsonl"}))
    assert len(named) == len(numbered) == 6
    assert {row["annotator"] for row in named} == {person.username for person in decided}
    name_of = names_under(f"votes:{decided[0].memberships.get().project_id}")
    assert {row["annotator"] for row in numbered} == {name_of(p.pk) for p in decided}
    assert {(row["external_id"], row["choice"]) for row in named} == {
        ("q1", "a"),
        ("q2", "b"),
        ("q3", "a"),
        ("q3", "b"),
    }
    stored = dict(Vote.objects.values_list("pk", "wall_ms"))
    assert {row["vote"]: row["wall_ms"] for row in named} == stored
    assert {row["left_is"] for row in named} <= {"a", "b"}
    assert all(row["is_current"] and row["purpose"] == "regular" for row in named)
    table = pq.read_table(io.BytesIO(body(signed_in(ada).get(VOTES, {"format": "parquet"}))))
    assert table.to_pylist() == named


def test_the_api_gives_the_same_files_and_refuses_an_unknown_filter(
    decided: list[User], emil: User, signed_in: SignIn
) -> None:
    client, base = signed_in(emil), "/api/v1/projects/arguments"
    assert lines(client.get(f"{base}/results")) == lines(client.get(RESULTS, {"format": "jsonl"}))
    assert len(lines(client.get(f"{base}/results/votes", {"winner": "a"}))) == 2
    refused = client.get(f"{base}/results", {"state": "finished"})
    assert (refused.status_code, refused.json()["field"]) == (400, "state")


def test_a_file_is_read_in_pieces_that_neither_repeat_nor_miss_a_row(
    decided: list[User], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PART", 2)
    sent = exports.votes_export(project=project, form="jsonl", wanted=Wanted(), with_names=True)
    rows = [json.loads(line) for line in sent.content]
    assert [row["vote"] for row in rows] == sorted({row["vote"] for row in rows})
    assert len(rows) == 6


def test_a_model_has_one_name_in_python_and_in_the_database(project: Project) -> None:
    kinds = [
        ("model", "m-1", {"model": "other"}),
        ("model", "", {"model": "m-2"}),
        ("import", "file.csv", {"model": "m-3"}),
        ("import", "file.csv", {}),
        ("human", "person 3", {"model": "m-4"}),
    ]
    services.comparisons_import(
        project=project,
        rows=[
            {
                "prompt": "Question?",
                "response_a": f"A {number}",
                "response_b": f"B {number}",
                "origin_a": origin,
                "origin_ref_a": reference,
                "metadata_a": metadata,
            }
            for number, (origin, reference, metadata) in enumerate(kinds)
        ],
    )
    table = Response._meta.db_table
    in_sql = Response.objects.extra(select={"named": MODEL_NAME.format(table)})  # noqa: S610 - our own text
    assert {response.named for response in in_sql} == {"m-1", "m-2", "m-3", ""}
    assert all(response.named == response.model_name for response in in_sql)


def test_the_pseudonyms_of_two_projects_share_nothing_and_are_read_back(
    decided: list[User], project: Project, rita: User, signed_in: SignIn
) -> None:
    def names(of: Project) -> set[str]:
        sent = exports.votes_export(project=of, form="jsonl", wanted=Wanted(), with_names=False)
        return {json.loads(line)["annotator"] for line in b"".join(sent.content).splitlines()}

    first = names(project)
    assert first == names(project)
    other = Project.objects.create(slug="other", name="Other")
    key = names_under(f"votes:{other.pk}")
    assert not first & {key(person.pk) for person in decided}
    rows = lines(signed_in(rita).get(VOTES, {"format": "jsonl"}))
    services.comparisons_import(
        project=other,
        rows=[{"id": name, "prompt": name, "response_a": "A.", "response_b": "B."}
              for name in {row["external_id"] for row in rows}],
    )  # fmt: skip
    services.votes_import(project=other, rows=[
        {"comparison": row["external_id"], "annotator": row["annotator"], "choice": row["choice"]}
        for row in rows
    ])  # fmt: skip
    cast = Vote.objects.filter(project=other).values_list("annotator__username", flat=True)
    assert {name.rpartition(".")[2] for name in cast} == first


@pytest.fixture
def written(decided: list[User], project: Project) -> None:
    """Somebody says why, in words that hold an address."""
    LabelingSettings.objects.filter(project=project).update(show_rationale=True, show_improve=True)
    vote = Vote.objects.filter(annotator=decided[0]).earliest("pk")
    services.vote_revise(
        vote=vote.pk,
        annotator=decided[0],
        choice="a",
        idempotency_key="again",
        rationale="Ask grace@hopper.example.io about it.",
        wall_ms=900,
    )


def test_what_people_wrote_leaves_under_a_licence_only(
    written: None, project: Project, ada: User, signed_in: SignIn
) -> None:
    def said(**more: str) -> set[tuple[str, str]]:
        rows = lines(signed_in(ada).get(VOTES, {"format": "jsonl", **more}))
        return {(row["rationale"], row["remarks_licence"]) for row in rows}

    assert said() == {("", "")}
    LabelingSettings.objects.filter(project=project).update(remarks_licence="CC-BY-4.0")
    assert said() == {("", "CC-BY-4.0"), ("Ask grace@hopper.example.io about it.", "CC-BY-4.0")}
    assert said(no_remarks="1") == {("", "")}
    assert said(scrub="1") == {("", "CC-BY-4.0"), ("Ask [e-mail address] about it.", "CC-BY-4.0")}
    LabelingSettings.objects.filter(project=project).update(remarks_licence="")
    last = exports.votes_export(
        project=project, form="jsonl", wanted=Wanted(), with_names=True, is_last=True
    )
    assert b"grace@hopper" in b"".join(last.content)
