"""Which model is better: the page, its files and the API, on a crowd with planted strengths."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.agreement.models import AgreementReport
from apps.labeling.models import Comparison
from tests.agreement.crowd import models_write

SignIn = Callable[[User], Client]
PATH = "/p/arguments/results/"
API = "/api/v1/projects/arguments/ranking"


def text(answer: Any) -> str:
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def table(answer: Any) -> list[dict[str, str]]:
    assert answer.status_code == 200
    body = b"".join(answer.streaming_content).decode()
    return list(csv.DictReader(io.StringIO(body, newline="")))


def test_the_page_says_which_model_is_better(
    project: Project, rita: User, signed_in: SignIn
) -> None:
    models_write(project)
    page = text(signed_in(rita).get(PATH))
    assert "strong is the best of 3 models" in page
    rows = [page.index(f'<th scope="row">{name}</th>') for name in ("strong", "middle", "weak")]
    assert rows == sorted(rows)
    assert 'class="votes-bar"' in page
    assert "law" in page
    controlled = text(signed_in(rita).get(PATH, {"controlled": "1"}))
    assert "What was taken out" in controlled
    assert "What was taken out" not in page


def test_the_numbers_are_those_of_a_count_by_hand(
    project: Project, emil: User, signed_in: SignIn
) -> None:
    models_write(project)
    client = signed_in(emil)
    counted: dict[tuple[str, str], int] = {}
    for one in Comparison.objects.filter(project=project):
        for vote in one.votes.all():
            names = one.response_a.origin_ref, one.response_b.origin_ref
            winner, loser = names if vote.choice == "a" else names[::-1]
            key = (winner, loser) if vote.choice in "ab" else (vote.choice, *sorted(names))
            counted[key] = counted.get(key, 0) + 1
    for row in table(client.get(f"{PATH}pairs.csv")):
        pair = (row["model"], row["against"])
        assert int(row["wins"]) == counted[pair]
        assert int(row["losses"]) == counted[pair[::-1]]
        assert int(row["ties"]) == counted["tie", *sorted(pair)]
        assert int(row["both_bad"]) == counted["both_bad", *sorted(pair)]
        assert float(row["low"]) < float(row["win_rate"]) < float(row["high"])
    ranked = table(client.get(f"{PATH}ranking.csv"))
    order = [row["model"] for row in ranked if not row["topic"] and not row["controlled"]]
    assert order == ["strong", "middle", "weak"]
    assert {row["model"] for row in ranked if row["topic"] == "law"} == set(order)


def test_the_api_gives_the_same_as_json(project: Project, ada: User, signed_in: SignIn) -> None:
    models_write(project)
    got = signed_in(ada).get(API).json()
    assert got["as_voted"]["reason"] == got["controlled"]["reason"] == ""
    assert [row["model"] for row in got["as_voted"]["models"]] == ["strong", "middle", "weak"]
    assert [row["rank_best"] for row in got["as_voted"]["models"]] == [1, 2, 3]
    assert [row["name"] for row in got["controlled"]["controls"]] == ["side", "length"]
    first = got["as_voted"]["models"][0]
    assert first["strength_low"] < first["strength"] < first["strength_high"]
    assert len(got["pairs"]) == 3
    assert got["votes_without_models"] == 0


def test_with_few_people_the_page_gives_numbers_and_says_why_they_have_no_interval(
    project: Project, rita: User, signed_in: SignIn
) -> None:
    models_write(project, people=3)
    page = text(signed_in(rita).get(PATH))
    assert "3 people have voted and intervals need 5" in page
    assert "no interval says how surely" in page


def test_rows_without_models_are_told_what_to_import(
    project: Project, emil: User, rita: User, signed_in: SignIn
) -> None:
    models_write(project, pairs=20, named=False)
    page = text(signed_in(emil).get(PATH))
    assert "No row names its models" in page
    assert "/p/arguments/imports/" in page
    assert "No row names its models" in text(signed_in(rita).get(PATH))
    got = signed_in(emil).get(API).json()
    assert (got["as_voted"]["reason"], got["pairs"], got["votes_without_models"]) == (
        "no_votes",
        [],
        40,
    )


def test_without_votes_the_page_says_what_it_waits_for(
    project: Project, rita: User, signed_in: SignIn
) -> None:
    assert "No votes to compare yet" in text(signed_in(rita).get(PATH))
    assert table(signed_in(rita).get(f"{PATH}ranking.csv")) == []


def test_a_report_from_before_is_computed_again(project: Project, rita: User, signed_in) -> None:
    models_write(project, pairs=30)
    AgreementReport.objects.update(figures={"version": 2})
    assert "Not computed yet" in text(signed_in(rita).get(PATH))
    answer = signed_in(rita).post("/p/arguments/agreement/refresh/", {"page": "results"})
    assert (answer.status_code, answer.url) == (302, PATH)
    assert "Pairs of models" in text(signed_in(rita).get(PATH))


@pytest.mark.parametrize("controlled", ["", "1"])
def test_every_header_and_figure_has_a_name(
    project: Project, rita: User, signed_in: SignIn, controlled: str
) -> None:
    models_write(project)
    page = text(signed_in(rita).get(PATH, {"controlled": controlled}))
    assert page.count("<th ") == page.count('scope="col"') + page.count('scope="row"')
    assert page.count('role="img"') == page.count('role="img" aria-label')
    assert " style=" not in page
