"""The agreement report says what the votes say, and knows what it cannot say."""

import csv
import io
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.agreement.models import AgreementReport
from apps.agreement.reports.published import ANCHORS
from apps.agreement.selectors import votes
from apps.agreement.services import reports
from apps.agreement.services.dimensions import calendar
from apps.agreement.services.pairing import people_with_most_in_common, two_people
from apps.agreement.tasks import refresh_reports
from apps.labeling.models import (
    Comparison,
    Decision,
    Guideline,
    LabelingSettings,
    Prompt,
    Response,
    Slot,
    Vote,
)
from measures.agreement import pair_counts, pair_votes
from tests.agreement.crowd import crowd_write
from tests.database import as_superuser


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
    assert "alpha" in statistics["ac1"]["sentence"]


def test_a_report_is_stale_once_newer_votes_exist(project: Project) -> None:
    crowd_write(project, [["a", "a"]])
    assert votes.stale_projects() == [project]
    reports.report_refresh(project=project)
    assert votes.stale_projects() == []
    crowd_write(project, [["b", "b"]])
    assert votes.stale_projects() == [project]


def test_the_page_says_why_it_is_empty(project: Project, ada, signed_in) -> None:
    page = signed_in(ada).get(reverse("agreement:overview", args=[project.slug]))
    assert 'data-empty="chart-column"' in page.content.decode()


def test_the_page_shows_the_figures_and_what_chance_would_pass(
    project: Project, ada, signed_in
) -> None:
    crowd_write(project, [["a", "a", "a"]] * 30 + [["a", "b", "b"]] * 10)
    client = signed_in(ada)
    client.post(reverse("agreement:refresh", args=[project.slug]))
    text = client.get(reverse("agreement:overview", args=[project.slug])).content.decode()
    assert "83.3 %" in text  # (30 · 1 + 10 · 1/3) / 40
    assert "this rule filters nothing" in text
    assert "30 of 40" in text
    csv = client.get(reverse("agreement:splits_csv", args=[project.slug])).getvalue().decode()
    assert csv.splitlines()[1] == '"\'3","3","1.0","30","30"'


def test_undefined_statistics_say_why(project: Project, ada, signed_in) -> None:
    crowd_write(project, [["a", "a"]] * 3)
    figures = reports.report_refresh(project=project).figures
    text = signed_in(ada).get(reverse("agreement:overview", args=[project.slug])).content.decode()
    assert figures["statistics"]["alpha"]["undefined"] in text


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
    assert body["cost"]["money"]["undefined"]
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


# The matrix shows who agrees with whom, and a cell leads to exactly what they differ on.


@pytest.fixture
def crowd(project: Project) -> list[User]:
    """Three people: 0 and 1 agree on 12 of 16; 2 is against 0 throughout and was in 12 times."""
    crowd_write(project, [["a", "a", "b"]] * 12 + [["a", "tie"]] * 4)
    text = [{"role": "user", "content": "Which one?"}]
    Prompt.objects.filter(project=project).update(brief=text)
    Response.objects.filter(prompt__project=project).update(brief=text)
    return list(User.objects.filter(username__startswith="crowd-").order_by("pk"))


def test_cells_count_common_comparisons_and_the_same_choice(project: Project, crowd) -> None:
    found = reports.report_refresh(project=project).figures["matrix"]
    cells = {
        frozenset((found["people"][row], found["people"][column])): (n, same)
        for row, column, n, same in found["cells"]
    }
    a, b, c = (user.pk for user in crowd)
    assert cells == {
        frozenset((a, b)): (16, 12),
        frozenset((a, c)): (12, 0),
        frozenset((b, c)): (12, 0),
    }
    assert found["people"][-1] == c  # who agrees least with the others comes last


def test_a_cell_and_the_page_behind_it_say_the_same(project: Project, crowd) -> None:
    two = two_people(project=project, first=crowd[0].pk, second=crowd[1].pk)
    assert (two.share.n, two.share.value) == (16, 0.75)
    assert two.table[0][0] == 12
    assert two.table[0][2] == 4  # the first chose A where the second saw a tie
    turned = two_people(project=project, first=crowd[1].pk, second=crowd[0].pk)
    assert turned.table[2][0] == 4


def test_the_list_holds_what_they_differ_on_and_nothing_else(
    project: Project, crowd, ada, signed_in
) -> None:
    reports.report_refresh(project=project)
    client = signed_in(ada)
    address = reverse("agreement:disagreements", args=[project.slug, crowd[0].pk, crowd[1].pk])
    page = client.get(address).content.decode()
    differing = set(
        Comparison.objects.filter(votes__choice="tie").values_list("pk", flat=True).distinct()
    )
    for key in Comparison.objects.filter(project=project).values_list("pk", flat=True):
        link = reverse("labeling:comparison", args=[project.slug, key])
        assert (link in page) == (key in differing)
    none = client.get(address + "?first=b&second=a").content.decode()
    assert "No comparison matches." in none


def test_names_are_for_admins(project: Project, crowd, ada, rita, signed_in) -> None:
    reports.report_refresh(project=project)
    addresses = [
        reverse("agreement:matrix", args=[project.slug]),
        reverse("agreement:disagreements", args=[project.slug, crowd[0].pk, crowd[1].pk]),
        reverse("agreement:matrix", args=[project.slug]) + "?q=crowd",
    ]
    for address in addresses:
        assert "crowd-0" in signed_in(ada).get(address).content.decode()
        seen = signed_in(rita).get(address).content.decode()
        assert "crowd-" not in seen.replace('value="crowd"', "")
        assert f"Annotator {crowd[0].pk}" in seen
    csv = signed_in(rita).get(reverse("agreement:matrix_csv", args=[project.slug]))
    assert "crowd-" not in csv.getvalue().decode()


def test_people_of_another_project_are_not_found(project: Project, crowd, ada, signed_in) -> None:
    other = Project.objects.create(slug="other", name="Other")
    crowd_write(other, [["a", "a", "a", "b"]])
    stranger = User.objects.get(username="crowd-3")
    client = signed_in(ada)
    for pair in ((crowd[0].pk, stranger.pk), (crowd[0].pk, crowd[0].pk), (crowd[0].pk, 10**8)):
        address = reverse("agreement:disagreements", args=[project.slug, *pair])
        assert client.get(address).status_code == 404
    page = client.get(
        reverse("agreement:matrix", args=[project.slug]) + f"?people={crowd[0].pk},{stranger.pk}"
    )
    assert "crowd-3" not in page.content.decode()


def test_chosen_people_are_shown_and_others_found(project: Project, crowd, ada, signed_in) -> None:
    reports.report_refresh(project=project)
    address = reverse("agreement:matrix", args=[project.slug])
    people = f"{crowd[0].pk},{crowd[2].pk},x,99999999999"
    page = signed_in(ada).get(f"{address}?people={people}&q=crowd-1").content.decode()
    assert "0.0 % (0–24 %), n = 12" in page
    assert "crowd-0 and crowd-1" not in page
    assert f"?people={crowd[0].pk},{crowd[2].pk},{crowd[1].pk}" in page.replace("%2C", ",")


def test_votes_outside_the_random_stratum_do_not_count(project: Project, crowd) -> None:
    crowd_write(project, [["a", "b"]] * 5, stratum="priority")
    assert two_people(project=project, first=crowd[0].pk, second=crowd[1].pk).share.n == 16


def test_of_a_large_crowd_those_who_have_met_are_chosen() -> None:
    # 100 busy people who each voted alone, and 8 who all voted on the same five comparisons.
    items = [*range(100, 1100), *(item for item in range(5) for _ in range(8))]
    people = [*(n % 100 for n in range(1000)), *(100 + n for _ in range(5) for n in range(8))]
    counts = pair_counts(pair_votes(items, people, [0] * len(items)), n_annotators=108)
    assert people_with_most_in_common(counts, 108, most=30).tolist() == list(range(100, 108))


# The pages around the statistics: their numbers as files, their words for whoever may not act.


@pytest.fixture
def counted(project: Project) -> Project:
    LabelingSettings.objects.create(project=project, vote_price=0.25, currency="USD")
    crowd_write(project, [["a", "a", "a"]] * 30 + [["a", "b", "b"]] * 10)
    reports.report_refresh(project=project)
    return project


def rows_of(client, name: str, project: Project) -> list[dict[str, str]]:
    answer = client.get(reverse(f"agreement:{name}", args=[project.slug]))
    assert answer["Content-Type"].startswith("text/csv")
    assert project.slug in answer["Content-Disposition"]
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode())))


def test_the_files_hold_the_numbers_of_the_pages(counted: Project, emil, signed_in) -> None:
    client = signed_in(emil)
    statistics = {row["statistic"]: row for row in rows_of(client, "statistics_csv", counted)}
    assert float(statistics["Percent agreement"]["value"]) == pytest.approx(5 / 6)
    assert statistics["Percent agreement"]["comparisons"] == "40"
    assert float(statistics["Money (USD)"]["value"]) == pytest.approx(30.0)
    assert statistics["Left chosen, answers equally good"]["undefined"]
    slices = rows_of(client, "slices_csv", counted)
    assert {row["kind"] for row in slices} >= {"time", "topic", "length_gap", "source"}
    matrix = rows_of(client, "matrix_csv", counted)
    assert sorted(int(row["agreeing"]) for row in matrix) == [30, 30, 40]
    assert all(row["comparisons"] == "40" for row in matrix)


def test_a_report_of_an_older_version_is_computed_again(counted: Project, ada, signed_in) -> None:
    AgreementReport.objects.update(figures={"statistics": {}})
    assert votes.report_get(project=counted) is None
    assert votes.stale_projects() == [counted]
    for name in ("overview", "slices", "matrix"):
        page = signed_in(ada).get(reverse(f"agreement:{name}", args=[counted.slug]))
        assert "Not computed yet" in page.content.decode()


def test_a_report_that_takes_long_is_left_alone_for_a_while(counted: Project) -> None:
    crowd_write(counted, [["a", "a"]])
    assert votes.stale_projects() == [counted]
    report = AgreementReport.objects.get()
    report.figures["seconds"] = 30.0
    report.save()
    assert votes.stale_projects() == []


def test_only_who_may_set_the_price_is_sent_there(counted: Project, ada, rita, signed_in) -> None:
    LabelingSettings.objects.update(vote_price=0)
    reports.report_refresh(project=counted)
    address = reverse("agreement:overview", args=[counted.slug])
    settings = reverse("labeling:settings", args=[counted.slug])
    main = signed_in(rita).get(address).content.decode().split("<main")[1]
    assert settings not in main
    assert settings in signed_in(ada).get(address).content.decode().split("<main")[1]


# Slices: the right votes in each, the planted bad one named, and no other.


def dimension(project: Project, key: str) -> list[dict]:
    found = reports.report_refresh(project=project).figures["slices"]["dimensions"]
    return next(part for part in found if part["key"] == key)["slices"]


def votes_changed(votes, **values) -> None:
    """Votes are kept as they were cast, by a trigger; here they are made up to begin with."""
    with as_superuser():
        votes.update(**values)


def topics_given(comparisons, topic) -> None:
    for number, comparison in enumerate(comparisons):
        Prompt.objects.filter(pk=comparison.prompt_id).update(topic=topic(number))


def coins(n: int, agreement: float, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        first = draw.choice("ab")
        other = {"a": "b", "b": "a"}[first]
        rows.append([first, first if draw.random() < agreement else other])
    return rows


def test_a_planted_bad_topic_is_named_and_no_other(project: Project, ada, signed_in) -> None:
    good = crowd_write(project, coins(120, 0.85, 1))
    topics_given(good, lambda n: f"topic {n % 3}")
    topics_given(crowd_write(project, coins(50, 0.4, 2)), lambda n: "=the bad one")
    rows = dimension(project, "topic")
    assert [row["label"] for row in rows if row["gap"]["is_worse"]] == ["=the bad one"]
    client = signed_in(ada)
    page = client.get(reverse("agreement:slices", args=[project.slug])).content.decode()
    assert "“=the bad one”" in page
    csv = client.get(reverse("agreement:slices_csv", args=[project.slug])).getvalue().decode()
    assert '"\'=the bad one"' in csv  # no formula for a spreadsheet


def test_clean_topics_are_not_named(project: Project, ada, signed_in) -> None:
    made = crowd_write(project, coins(140, 0.7, 3))
    topics_given(made, lambda n: f"topic {n % 4}")
    assert not [row for row in dimension(project, "topic") if row["gap"]["is_worse"]]
    page = signed_in(ada).get(reverse("agreement:slices", args=[project.slug]))
    assert not page.context["worse"]


def test_rare_topics_are_taken_together(project: Project) -> None:
    made = crowd_write(project, [["a", "a"]] * 40)
    topics_given(made, lambda n: "common" if n < 20 else f"rare {n}")
    rows = dimension(project, "topic")
    assert [(row["label"], row["n_items"]) for row in rows] == [("common", 20), ("20 others", 20)]
    assert rows[1]["gap"]["untested"] == "several values together"


def test_votes_under_one_guideline_version_are_compared_with_each_other(project: Project) -> None:
    versions = [
        Guideline.objects.create(project=project, version=n, body="Choose.") for n in (1, 2)
    ]
    crowd_write(project, [["a", "b", "b"]] * 10)
    votes = Vote.objects.filter(project=project)
    votes_changed(votes.filter(slot__position=1), guideline=versions[0])
    votes_changed(votes.filter(slot__position__gt=1), guideline=versions[1])
    rows = dimension(project, "guideline")
    assert [(row["label"], row["n_items"]) for row in rows] == [("version 1", 0), ("version 2", 10)]
    assert rows[0]["percent"]["value"] is None
    assert rows[1]["percent"]["value"] == 1.0  # across versions they differ, within they do not


def test_a_comparison_belongs_to_the_time_of_its_first_vote(project: Project) -> None:
    crowd_write(project, [["a", "b", "a"]] * 4)
    then = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday
    votes = Vote.objects.filter(project=project)
    votes_changed(votes, cast_at=then)
    votes_changed(votes.filter(slot__position=3), cast_at=then + timedelta(days=40))
    assert [(row["label"], row["n_items"]) for row in dimension(project, "time")] == [
        ("2026-03-02", 4)
    ]


@pytest.mark.parametrize(
    ("days", "unit", "first", "last"),
    [
        (10, "day", "2026-01-01", "2026-01-10"),
        (100, "week", "2025-12-29", "2026-04-06"),  # the Monday before
        (400, "month", "2026-01-01", "2027-02-01"),
        (2_000, "quarter", "2026-01-01", "2031-04-01"),
        (5_000, "year", "2026-01-01", "2039-01-01"),
    ],
)
def test_time_is_cut_as_fits_its_span(days: int, unit: str, first: str, last: str) -> None:
    span = np.datetime64("2026-01-01") + np.arange(days)
    found, starts = calendar(span)
    assert (found, str(starts[0]), str(starts[-1])) == (unit, first, last)


def test_sources_are_pairs_whichever_was_a(project: Project) -> None:
    made = crowd_write(project, [["a", "a"]] * 24)
    for number, comparison in enumerate(made):
        names = ("small", "large") if number % 2 else ("large", "small")
        sides = zip((comparison.response_a_id, comparison.response_b_id), names, strict=True)
        for key, name in sides:
            Response.objects.filter(pk=key).update(origin="model", origin_ref=name)
    (row,) = dimension(project, "source")
    assert (row["label"], row["n_items"]) == ("large and small", 24)


def test_the_page_tells_what_annotators_wrote_about_ambiguous_prompts(
    project: Project, rita, signed_in
) -> None:
    split, _ = crowd_write(project, [["a", "b"], ["a", "a"]])
    Decision.objects.create(
        comparison=split, project=project, outcome="needs_votes", n_a=1, n_b=1, share=0.5
    )
    votes_changed(
        Vote.objects.filter(project=project, choice="b"),
        rationale="Both are <fine>.",
        flags=["prompt_unclear"],
    )
    Prompt.objects.filter(project=project).update(brief=[{"role": "user", "content": "Why?"}])
    reports.report_refresh(project=project)
    page = signed_in(rita).get(reverse("agreement:slices", args=[project.slug])).content.decode()
    assert "Both are &lt;fine&gt;." in page
    assert "prompt unclear" in page
    assert "crowd-" not in page  # no word of who wrote it


def test_one_vote_has_pages_that_say_what_is_missing(project: Project, ada, signed_in) -> None:
    crowd_write(project, [["a"]])
    Prompt.objects.filter(project=project).update(brief=[{"role": "user", "content": "Why?"}])
    reports.report_refresh(project=project)
    client = signed_in(ada)
    for name, words in (
        ("overview", "no comparison has two votes"),
        ("slices", "There is nothing to compare yet"),
        ("matrix", "No two people have a comparison in common"),
    ):
        page = client.get(reverse(f"agreement:{name}", args=[project.slug]))
        assert words in page.content.decode(), name


# Agreement sees the votes that nobody asked for because of what others had said.


def figures(project: Project) -> dict:
    return reports.report_refresh(project=project).figures


def extra(comparison: Comparison) -> None:
    """Make the comparison's last slot one that was added while it was contested."""
    slot = comparison.slots.order_by("-position")[0]
    Slot.objects.filter(pk=slot.pk).update(priority=comparison.priority + 1)


def second_look(comparison: Comparison, kind: str, choice: str) -> None:
    """A repeat or audit vote on the first vote of a comparison."""
    first = comparison.votes.order_by("id")[0]
    slot = Slot.objects.create(
        project=comparison.project,
        task=comparison,
        position=9,
        kind=kind,
        state="done",
        annotator=first.annotator if kind == "repeat" else comparison.votes.last().annotator,
        measures_id=first.pk,
    )
    Vote.objects.create(
        project=comparison.project,
        comparison=comparison,
        slot=slot,
        annotator=slot.annotator,
        choice=choice,
        chosen={"a": comparison.response_a, "b": comparison.response_b}[choice],
        idempotency_key=f"{kind}-{comparison.pk}",
        cast_at=first.cast_at,
    )


def test_extra_votes_are_left_out_and_counted(project: Project) -> None:
    for comparison in crowd_write(project, [["a", "b", "a"]] * 12):
        extra(comparison)
    found = figures(project)
    assert found["statistics"]["percent"]["value"] == 0.0  # the first two differ
    assert found["counted"]["left_out"] == {"extra": 12}
    assert found["counted"]["n_votes"] == 24


@pytest.mark.parametrize(("other", "level"), [("tie", "unsure"), ("b", "bad")])
def test_ties_alone_raise_no_alarm(project: Project, other: str, level: str) -> None:
    crowd_write(project, [["a", "a"]] * 40 + [["a", other]] * 60)
    statistics = figures(project)["statistics"]
    assert (statistics["percent"]["value"], statistics["percent"]["level"]) == (0.4, level)


def test_random_votes_raise_the_alarm_though_contested_pairs_got_more_votes(
    project: Project,
) -> None:
    # Three coins; where they do not agree, two more, as the queue asks for them. With all votes
    # in, agreement would look like 0.59 and Fleiss' kappa like 0.17.
    draw = random.Random(1)
    rows = []
    for _ in range(160):
        row = [draw.choice("ab") for _ in range(3)]
        rows.append(row if len(set(row)) == 1 else [*row, draw.choice("ab"), draw.choice("ab")])
    for comparison in crowd_write(project, rows):
        slots = comparison.slots.filter(position__gt=3)
        slots.update(priority=comparison.priority + 1)
    statistics = figures(project)["statistics"]
    assert statistics["percent"]["level"] == "bad"
    assert statistics["alpha"]["level"] == "critical"
    assert statistics["percent"]["value"] == pytest.approx(0.5, abs=0.05)


def test_a_second_round_counts_with_the_votes_of_the_first(project: Project) -> None:
    (comparison,) = crowd_write(project, [["a", "b", "b", "b", "b"]])
    comparison.slots.filter(position__lte=2).update(kind=Slot.Kind.FORMER)
    found = figures(project)
    assert found["statistics"]["percent"]["value"] == 0.0
    assert found["counted"]["left_out"] == {"round": 3}
    assert found["cost"]["by_purpose"] == {
        "first": 2,
        "repeat": 0,
        "audit": 0,
        "gold": 0,
        "round": 3,
        "extra": 0,
    }


def test_where_labeling_stops_early_the_first_two_votes_count(project: Project) -> None:
    LabelingSettings.objects.create(project=project, stop_early=True)
    crowd_write(project, [["a", "b", "b"]] * 3 + [["a", "a"]] * 3)
    found = figures(project)
    assert found["statistics"]["percent"]["value"] == 0.5
    assert found["counted"]["left_out"] == {"later": 3}


def test_repeats_audits_gold_and_priority_have_their_own_reasons(
    project: Project, ada, signed_in
) -> None:
    one, two = crowd_write(project, [["a", "a"]] * 2)
    second_look(one, "repeat", "b")
    second_look(two, "repeat", "b")
    crowd_write(project, [["a", "b"]], stratum="gold")
    crowd_write(project, [["a", "b"]], stratum="priority")
    found = figures(project)
    assert found["counted"]["left_out"] == {"repeat": 2, "gold": 2, "priority": 2}
    assert found["statistics"]["percent"]["value"] == 1.0
    page = signed_in(ada).get(reverse("agreement:overview", args=[project.slug]))
    assert [n for n, _ in page.context["which_votes"]["left_out"]] == [2, 2, 2]


def test_twice_the_votes_cost_twice_for_the_same_kept_pairs(project: Project) -> None:
    LabelingSettings.objects.create(project=project, vote_price=0.5)
    crowd_write(project, [["a", "a"]] * 5)
    once = figures(project)["cost"]
    assert once["money"]["value"] == pytest.approx(5.0)
    crowd_write(project, [["a", "a"]] * 5)
    twice = figures(project)["cost"]
    assert twice["money"]["value"] == pytest.approx(2 * once["money"]["value"])
    assert twice["money_per_kept"]["value"] is None


def test_every_published_anchor_is_a_share_with_a_source() -> None:
    assert len({anchor.name for anchor in ANCHORS}) == len(ANCHORS)
    for anchor in ANCHORS:
        assert 0.5 < anchor.agreement < 1
        assert anchor.margin is None or 0 < anchor.margin < 0.1
        assert anchor.source[-4:].isdigit()
