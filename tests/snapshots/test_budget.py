"""A label budget: from what is stated and the project's own figures to pairs, money and days."""

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, User
from apps.agreement.services.annotators import annotator_reports_refresh
from apps.agreement.services.reports import report_refresh
from apps.common.errors import Conflict, DomainError
from apps.labeling.models import Comparison, LabelingSettings
from apps.snapshots.models import SelectionReplay
from apps.snapshots.selectors.selection import depth_words, nearest_point
from apps.snapshots.services import selection
from apps.snapshots.services.budget import Wanted, budget_of
from apps.snapshots.services.selection import selection_replay_start
from apps.snapshots.tasks import replay_selections
from tests.labeling.pairs import annotators_make, pairs_make, vote, votes_age
from tests.snapshots.conftest import crowd_make

pytestmark = pytest.mark.django_db

PAGE = "/p/arguments/ready/budget/"
API = "/api/v1/projects/arguments/label-budget"
REPLAYS = "/api/v1/projects/arguments/selection-replays"


@pytest.fixture
def unsure(project: Project) -> list[Comparison]:
    """600 pairs of 100 debates with five votes each, seven in ten for the longer argument."""
    return crowd_make(project, debates=100, longer=0.7)


@pytest.fixture
def working(project: Project) -> Project:
    """Twelve pairs, of which Ana and Ben answered all a moment ago, six seconds each."""
    pairs_make(project, 12)
    for person in annotators_make(project, 2):
        for _ in range(12):
            vote(project, person)
    votes_age(days=0.001)
    return project


def cell(way: str, votes: int, value: float, low: float, high: float) -> dict[str, object]:
    verdict = "better" if high < 0 else "worse" if low > 0 else "no_evidence"
    above = {"value": value, "low": low, "high": high}
    return {"way": way, "votes": votes, "verdict": verdict, "log_loss_above": above}


SINGLE = {"way": "single", "votes": 1_000, "verdict": "", "log_loss_above": None}


def test_the_recommendation_quotes_its_interval_and_none_is_made_where_nothing_is_clear() -> None:
    worse, unsure = (
        cell("majority_4", 1_000, 0.0043, 0.001, 0.008),
        cell("soft_3", 1_000, 0.002, -0.001, 0.005),
    )
    words = depth_words({"cells": [SINGLE, worse, unsure]}, 1_000)
    assert "one vote each on more pairs" in words
    assert "the majority of 4 votes by 0.0043 (0.0010 to 0.0080)" in words
    assert "no difference clear of 0 from 3 votes with a soft label" in words
    words = depth_words({"cells": [SINGLE, unsure]}, 1_000)
    assert words.startswith("No difference clear of 0 here")
    assert "0.0020 (−0.0010 to 0.0050)" in words
    better = cell("soft_3", 1_000, -0.003, -0.005, -0.001)
    words = depth_words({"cells": [SINGLE, worse, better]}, 1_000)
    assert words.startswith("Ask for 3 votes with a soft label")
    assert "by 0.0030 (0.0010 to 0.0050)" in words
    assert nearest_point({"points": [500, 1_000, 2_000]}, 1_300) == 1_000
    assert nearest_point({"points": [500, 1_000, 2_000]}, 10**6) == 2_000


def test_votes_buy_pairs_and_pairs_cost_votes(project: Project) -> None:
    by_votes = budget_of(project=project, wanted=Wanted(votes=1_000, price=0.5, currency="CHF"))
    assert [(one.votes, one.pairs, one.money) for one in by_votes.lines] == [
        (1_000, pairs, 500.0) for pairs in (1_000, 333, 333, 250, 250)
    ]
    by_pairs = budget_of(project=project, wanted=Wanted(pairs=100, price=0.5))
    assert [(one.votes, one.pairs) for one in by_pairs.lines] == [
        (100 * depth, 100) for depth in (1, 3, 3, 4, 4)
    ]
    assert {one.measured for one in by_votes.lines} == {None}
    assert by_votes.words == ""


def test_no_price_is_invented(working: Project, emil: User, signed_in) -> None:
    bare = budget_of(project=working, wanted=Wanted(votes=100))
    assert {one.money for one in bare.lines} == {None}
    page = signed_in(emil).get(PAGE, {"votes": 100}).content.decode()
    assert "no money is shown" in page
    assert ">Money<" not in page
    wage = budget_of(project=working, wanted=Wanted(votes=100, wage=18.0))
    assert wage.price.vote == pytest.approx(18 * 6 / 3600), "six seconds a vote"
    LabelingSettings.objects.filter(project=working).update(vote_price=0.2, currency="USD")
    stated = budget_of(project=working, wanted=Wanted(votes=100))
    assert (stated.price.vote, stated.price.currency, stated.price.source) == (
        0.2,
        "USD",
        "settings",
    )
    assert "20.00 USD" in signed_in(emil).get(PAGE, {"votes": 100}).content.decode()


def test_a_wage_without_a_timed_vote_gives_no_price(project: Project) -> None:
    found = budget_of(project=project, wanted=Wanted(votes=10, wage=18.0))
    assert (found.price.vote, found.price.missing) == (None, "no_times")


def test_the_day_follows_from_the_pace_and_a_standstill_has_none(
    working: Project, emil: User, signed_in
) -> None:
    """24 votes of two people in one day; then the same, four days later, and three weeks."""
    fresh = budget_of(project=working, wanted=Wanted(votes=240))
    assert (fresh.pace.people, fresh.daily.per_day.value) == (2, 24)
    assert fresh.lines[0].done.days == pytest.approx(10)
    assert fresh.lines[0].done.soonest is None, "one day has no range"
    by = timezone.now().date() + timedelta(days=5)
    told = budget_of(project=working, wanted=Wanted(votes=240, by=by)).by
    assert told is not None
    assert 5 * 24 <= told.votes <= 6 * 24, "until the end of that day"
    votes_age(days=3)
    assert budget_of(project=working, wanted=Wanted()).daily.per_day.value == 6
    votes_age(days=17)
    old = budget_of(project=working, wanted=Wanted(votes=240))
    assert len(old.pace.daily) == 21
    assert {one.done.why_not for one in old.lines} == {"none_lately"}
    page = signed_in(emil).get(PAGE, {"votes": 240, "by": f"{by}"}).content.decode()
    assert "not at the present pace: no votes in the last 14 days" in page


def test_imported_votes_are_no_pace_but_their_people_count(
    project: Project, crowd: list[Comparison]
) -> None:
    found = budget_of(project=project, wanted=Wanted(votes=100))
    assert (list(found.pace.daily), found.lines[0].done.why_not) == ([], "no_votes")
    assert (found.people.crowd.people, found.people.crowd.votes) == (20, 5 * len(crowd))
    assert found.people.crowd.effective == pytest.approx(20, abs=2)


def test_agreement_and_differences_between_people_are_read_where_they_were_computed(
    project: Project, unsure: list[Comparison], emil: User, signed_in
) -> None:
    before = budget_of(project=project, wanted=Wanted(votes=400))
    assert (before.agreeing.percent, before.people.errors) == (None, None)
    assert "few" in (before.people.between.undefined or "")
    assert before.lines[-1].labelled is None
    report_refresh(project=project)
    annotator_reports_refresh(project=project)
    found = budget_of(project=project, wanted=Wanted(votes=400))
    assert found.agreeing.percent is not None
    assert found.agreeing.percent.value == pytest.approx(0.7**2 + 0.3**2, abs=0.02)
    assert found.agreeing.two_way == found.agreeing.percent.value
    unanimous = found.lines[-1]
    assert unanimous.labelled_from == "agreement"
    assert unanimous.labelled is not None
    assert 0.15 < unanimous.labelled < 0.35
    assert found.people.between.value == pytest.approx(0, abs=0.03), "they draw alike"
    assert found.people.errors is not None
    now, votes, people = found.people.errors
    assert votes <= now
    assert people <= now
    page = signed_in(emil).get(PAGE, {"votes": 400}).content.decode()
    assert "Two votes on a pair agree" in page
    assert "Differences between people" in page


def test_the_depth_is_replayed_by_the_scheduler_and_the_plan_quotes_it(
    project: Project, unsure: list[Comparison], emil: User, signed_in
) -> None:
    client = signed_in(emil)
    page = client.get(PAGE, {"votes": 250}).content.decode()
    assert "not measured here yet" in page
    assert "Start the replay" in page
    started = client.post(f"{PAGE}replay/", {"query": "votes=250&price=0.1"})
    assert started["Location"] == f"{PAGE}?votes=250&price=0.1"
    row = SelectionReplay.objects.get()
    assert (row.kind, row.state, row.created_by) == ("depth", "queued", emil)
    assert AuditEvent.objects.filter(action="depth.replay_started").count() == 1
    assert "A replay is under way" in client.get(PAGE).content.decode()
    assert replay_selections() == 1
    row.refresh_from_db()
    assert row.state == "finished", row.error
    assert row.verdict in ("depth", "breadth", "no_evidence")
    assert (row.result["n"], row.result["deepest"], row.result["points"]) == (600, 4, [250])
    found = budget_of(project=project, wanted=Wanted(votes=250))
    assert found.words
    assert [one.labelled_from for one in found.lines] == ["replay"] * 5
    page = client.get(PAGE, {"votes": 250}).content.decode()
    assert "not measured here yet" not in page
    for one in row.result["cells"]:
        assert f"{one['log_loss']:.4f}" in page
    told = client.get(API, {"votes": 250, "price": 0.1}).json()
    assert told["words"] == found.words
    assert told["words"] in page
    assert told["lines"][0]["measured"]["log_loss"] == row.result["cells"][0]["log_loss"]
    assert told["lines"][3]["money"] == 25.0
    assert replay_selections() == 0


def test_the_two_kinds_of_replay_do_not_wait_for_each_other(
    project: Project, crowd: list[Comparison], emil: User, signed_in, monkeypatch
) -> None:
    monkeypatch.setattr(selection, "LEAST_PAIRS", 50)
    first = selection_replay_start(project=project, by=emil, most_per_prompt=2)
    client = signed_in(emil)
    made = client.post(REPLAYS, {"kind": "depth"}, content_type="application/json")
    assert (made.status_code, made.json()["kind"]) == (202, "depth")
    again = client.post(REPLAYS, {"kind": "depth"}, content_type="application/json")
    assert again.json()["id"] == made.json()["id"], "one of a kind at a time"
    with pytest.raises(Conflict):
        selection_replay_start(project=project, by=emil)
    assert {row["kind"] for row in client.get(REPLAYS).json()} == {"selection", "depth"}
    only = client.get(REPLAYS, {"kind": "depth"}).json()
    assert [row["id"] for row in only] == [made.json()["id"]]
    shown = client.get("/p/arguments/ready/selection/").content.decode()
    assert first.pk in shown
    assert made.json()["id"] not in shown
    assert replay_selections() == 2
    (read,) = client.get(REPLAYS, {"kind": "depth"}).json()
    assert (read["verdict"], read["state"]) == ("refused", "finished")
    assert "only 72 pairs" in read["words"]
    page = client.get(PAGE).content.decode()
    assert "only 72 pairs" in page
    assert budget_of(project=project, wanted=Wanted(votes=9)).replay is None, "nothing measured"


def test_too_few_votes_are_said_before_a_replay_is_queued(
    project: Project, crowd: list[Comparison], emil: User, signed_in
) -> None:
    with pytest.raises(DomainError) as refused:
        selection_replay_start(project=project, by=emil, kind="depth")
    assert refused.value.code == "few_voted_pairs"
    page = signed_in(emil).get(PAGE).content.decode()
    assert refused.value.message in page
    assert "Start the replay" not in page


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({"votes": 0}, "votes"),
        ({"pairs": 10**9}, "pairs"),
        ({"votes": 5, "pairs": 5}, "pairs"),
        ({"votes": 5, "price": -1}, "price"),
        ({"votes": 5, "wage": 0}, "wage"),
        ({"votes": 5, "price": 1, "wage": 9}, "wage"),
        ({"votes": 5, "price": 1, "currency": "far too long a word"}, "currency"),
        ({"votes": 5, "by": "2020-01-01"}, "by"),
    ],
)
def test_what_is_not_possible_is_refused_at_its_field(
    project: Project, emil: User, signed_in, stated: dict[str, object], field: str
) -> None:
    client = signed_in(emil)
    refused = client.get(API, stated)
    assert (refused.status_code, refused.json()["field"]) == (400, field)
    page = client.get(PAGE, stated)
    assert page.status_code == 422
    assert list(page.context["form"].errors) == [field]
    assert "Ways of asking" not in page.content.decode()


@pytest.mark.parametrize(
    ("body", "field"),
    [({"kind": "width"}, "kind"), ({"kind": "depth", "most_per_prompt": 2}, "most_per_prompt")],
)
def test_a_replay_that_there_is_not_is_refused_at_its_field(
    project: Project, emil: User, signed_in, body: dict[str, object], field: str
) -> None:
    refused = signed_in(emil).post(REPLAYS, body, content_type="application/json")
    assert (refused.status_code, refused.json()["field"]) == (400, field)


def test_without_votes_stated_it_is_the_queue_that_is_planned(
    project: Project, emil: User, signed_in
) -> None:
    client = signed_in(emil)
    assert "the queue wants none" in client.get(PAGE).content.decode()
    pairs_make(project, 12)
    cache.clear()  # how far the votes are is kept for some seconds
    found = client.get(API).json()
    assert found["lines"][0]["votes"] == 12 * LabelingSettings.objects.get().overlap
    assert any("votes that the queue wants" in note for note in found["notes"])
    assert "Plan a label budget" in client.get("/p/arguments/ready/").content.decode()
    assert PAGE in client.get("/p/arguments/ready/selection/").content.decode()
