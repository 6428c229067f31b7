"""The agreement report says what the votes say, and knows what it cannot say."""

import pytest
from django.urls import reverse

from apps.accounts.models import Project
from apps.agreement.selectors import votes
from apps.agreement.services import reports
from apps.agreement.tasks import refresh_reports
from tests.agreement.crowd import crowd_write


def test_figures_are_those_computed_by_hand(project: Project) -> None:
    # Pairs of votes that agree: 1 of 1, 1 of 3, 0 of 1  →  mean (1 + 1/3 + 0) / 3 = 4/9.
    crowd_write(project, [["a", "a"], ["a", "a", "b"], ["a", "tie"], ["b"]])
    report = reports.report_refresh(project=project)
    percent = report.figures["statistics"]["percent"]
    assert percent["value"] == pytest.approx(4 / 9)
    assert percent["n_items"] == 3
    assert percent["level"] == "too_few"
    assert report.n_votes == 8
    assert report.figures["n_annotators"] == 3
    assert report.figures["choices"] == {"a": 5, "b": 2, "tie": 1, "both_bad": 0}


def test_a_pattern_counts_what_the_rule_accepts(project: Project) -> None:
    crowd_write(project, [["a"] * 3, ["b"] * 3, ["a", "a", "b"], ["a", "b", "tie"]])
    rows = reports.report_refresh(project=project).figures["splits"]
    assert [(row["pattern"], row["comparisons"], row["accepted"]) for row in rows] == [
        ("3", 2, 2),
        ("2–1", 1, 0),
        ("1–1–1", 1, 0),
    ]


def test_majority_against_gold_counts_vote_ties_half(project: Project) -> None:
    crowd_write(
        project,
        [["a", "a", "a"], ["b", "b", "b"], ["a", "b"], ["a", "a", "a"]],
        golds=["a", "a", "b", ""],
    )
    gold = reports.report_refresh(project=project).figures["decisions"]["gold"]
    assert gold["n"] == 3
    assert gold["majority"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert gold["kept_n"] == 2  # the tie of votes is not accepted; the one without gold is not in
    assert gold["kept"]["value"] == pytest.approx(0.5)


def test_only_the_random_stratum_counts(project: Project) -> None:
    crowd_write(project, [["a", "a"]] * 2)
    crowd_write(project, [["a", "b"]] * 20, stratum="priority")
    assert reports.report_refresh(project=project).figures["statistics"]["percent"]["value"] == 1.0


def test_random_votes_raise_the_alarm(project: Project) -> None:
    # Every split of two voters equally often: exactly chance.
    crowd_write(project, [["a", "a"], ["a", "b"], ["b", "a"], ["b", "b"]] * 25)
    statistics = reports.report_refresh(project=project).figures["statistics"]
    assert statistics["alpha"]["level"] == "critical"
    assert statistics["percent"]["level"] in {"bad", "unsure"}
    # Ties were on offer and nobody chose them: AC1 takes that for agreement.
    assert statistics["ac1"]["low"] > 0
    assert statistics["ac1"]["level"] == "unsure"
    assert "go by alpha here" in statistics["ac1"]["sentence"]


def test_a_report_is_stale_once_newer_votes_exist(project: Project) -> None:
    crowd_write(project, [["a", "a"]])
    assert votes.stale_projects() == [project]
    reports.report_refresh(project=project)
    assert votes.stale_projects() == []
    crowd_write(project, [["b", "b"]])
    assert votes.stale_projects() == [project]


def test_the_page_says_why_it_is_empty(project: Project, ada, signed_in) -> None:
    page = signed_in(ada).get(reverse("agreement:overview", args=[project.slug]))
    assert "No votes to compare yet" in page.content.decode()


def test_the_page_shows_the_figures_and_what_chance_would_pass(
    project: Project, ada, signed_in
) -> None:
    crowd_write(project, [["a", "a", "a"]] * 30 + [["a", "b", "b"]] * 10)
    client = signed_in(ada)
    client.post(reverse("agreement:refresh", args=[project.slug]))
    text = client.get(reverse("agreement:overview", args=[project.slug])).content.decode()
    assert "83.3 %" in text  # (30 · 1 + 10 · 1/3) / 40
    assert "On two-way votes this rule filters nothing" in text
    assert "The rule keeps 30 of 40 comparisons" in text
    csv = client.get(reverse("agreement:splits_csv", args=[project.slug])).getvalue().decode()
    assert csv.splitlines()[1] == '"\'3","3","1.0","30","30"'


def test_undefined_statistics_say_why(project: Project, ada, signed_in) -> None:
    crowd_write(project, [["a", "a"]] * 3)
    reports.report_refresh(project=project)
    text = signed_in(ada).get(reverse("agreement:overview", args=[project.slug])).content.decode()
    assert "every vote is for the same choice" in text


def test_the_api_gives_the_same_figures(project: Project, emil, signed_in) -> None:
    crowd_write(project, [["a", "a"], ["a", "b"]])
    answer = signed_in(emil).get(f"/api/v1/projects/{project.slug}/agreement")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["statistics"]["percent"]["value"] == pytest.approx(0.5)
    assert body["n_votes"] == 4
    assert body["newer_votes"] is False
    assert body["counted"]["left_out"] == {}
    assert body["statistics"]["cohen"]["undefined"].startswith("no two people")
    assert {part["key"] for part in body["slices"]} >= {"time", "topic", "length_gap", "source"}
    assert body["cost"]["money"]["undefined"] == "no price of a vote is stated"
    assert body["position"]["left_rate"]["value"] is None


def test_the_posterior_rule_lets_fewer_coin_flips_through(project: Project) -> None:
    # 61 of 100 pairs of votes agree: a = 0.61, so 2a − 1 = 0.22 and q = 0.7345.
    crowd_write(project, [["a", "a"]] * 61 + [["a", "b"]] * 39)
    chance = reports.report_refresh(project=project).figures["chance"]
    assert chance["accuracy"] == pytest.approx((1 + 0.22**0.5) / 2)
    assert chance["two_way"] == pytest.approx(1.0)
    # Only 4–1, 5–0 and their mirrors pass: 2 · (5 + 1) / 32.
    assert chance["posterior"] == pytest.approx(12 / 32)


def test_the_background_task_computes_what_is_behind(project: Project) -> None:
    crowd_write(project, [["a", "a"]])
    assert refresh_reports() == 1
    assert votes.report_get(project=project) is not None
    assert refresh_reports() == 0
