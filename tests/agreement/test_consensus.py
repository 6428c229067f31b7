"""A fit reaches the votes' own transactions, decides again what moved, and says how sure it is."""

from collections.abc import Callable

import numpy as np
import pytest
from django.db.models import F
from django.test import Client

from apps.accounts.models import Project, User
from apps.agreement.models import ConsensusReport
from apps.agreement.selectors.decisions import projects_to_decide, projects_to_fit, rule_preview
from apps.agreement.selectors.slices import crowd_of
from apps.agreement.selectors.votes import int_columns
from apps.agreement.services.consensus import (
    consensus_compare,
    consensus_refresh,
    decide_by_switch,
    method_in_use,
)
from apps.agreement.tasks import refresh_consensus
from apps.common.errors import Conflict
from apps.labeling.models import (
    Annotator,
    Comparison,
    Consensus,
    Decision,
    LabelingSettings,
    Slot,
    Vote,
)
from apps.labeling.services.redeciding import policy_of
from measures.consensus import fit
from tests.agreement.large_crowd import crowd_write, people_write, spammed_votes


@pytest.fixture
def spammed(project: Project) -> Project:
    """150 pairs, 5 votes each, 12 people, 4 of whom flip coins; half of the answers are known."""
    votes, truth = spammed_votes(
        n_items=150, n_people=12, per_item=5, spammers=4, accuracy=0.85, seed=3
    )
    people = people_write(project, 12)
    golds = [label if item % 2 else -1 for item, label in enumerate(truth)]
    crowd_write(project, people, votes, golds=golds)
    LabelingSettings.objects.create(project=project, show_tie=False, show_both_bad=False)
    return project


def test_columns_come_out_as_they_are_in_the_database(spammed: Project) -> None:
    vote, comparison = int_columns(
        "select id, comparison_id from labeling_vote where project_id = %(p)s order by id",
        {"p": spammed.pk},
        n=2,
    )
    assert list(zip(vote, comparison, strict=True)) == list(
        Vote.objects.order_by("pk").values_list("pk", "comparison_id")
    )
    with pytest.raises(ValueError, match="holds a null"):
        int_columns("select null::bigint where %(p)s <> ''", {"p": "x"}, n=1)


def test_the_crowd_holds_what_decides_and_nothing_else(spammed: Project) -> None:
    crowd = crowd_of(project=spammed)
    assert (len(crowd.votes), crowd.votes.n_items, crowd.votes.n_annotators) == (750, 150, 12)
    assert crowd.votes.known.tolist() == [True, True, False, False]
    assert (crowd.golds >= 0).sum() == 75
    some = Vote.objects.order_by("pk")[:20].values_list("slot_id", flat=True)
    Slot.objects.filter(pk__in=list(some)).update(kind=Slot.Kind.FORMER)
    assert len(crowd_of(project=spammed).votes) == 730


def test_a_fit_knows_the_coin_flippers_and_leaves_its_matrices_with_them(spammed: Project) -> None:
    done = consensus_refresh(project=spammed, method="one_coin")
    assert done is not None
    learned = list(Annotator.objects.order_by("user_id").values_list("reliability", "confusion"))
    assert max(q for q, _ in learned[:4]) < 0.7 < min(q for q, _ in learned[4:])
    assert all(len(matrix) == 16 for _, matrix in learned)
    stored = Decision.objects.order_by("pk")
    crowd = crowd_of(project=spammed)
    assert np.allclose(
        [decision.posteriors for decision in stored],
        fit("one_coin", crowd.votes).posteriors,
        atol=1e-3,
    )
    # counting decides still: outcomes are what they were
    assert done.redecided.n_changed == 0
    assert set(stored.values_list("decided_by", flat=True)) == {"votes"}


def test_a_second_fit_starts_where_the_first_ended(
    spammed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    consensus_refresh(project=spammed, method="dawid_skene")
    before = list(Annotator.objects.order_by("pk").values_list("reliability", flat=True))
    from apps.agreement.services import consensus

    starts = []
    monkeypatch.setattr(
        consensus, "fit", lambda method, votes, start: starts.append(start) or fit(method, votes)
    )
    again = consensus_refresh(project=spammed, method="dawid_skene")
    assert starts[0] is not None
    assert again is not None
    assert again.redecided.n_changed == 0
    after = list(Annotator.objects.order_by("pk").values_list("reliability", flat=True))
    assert after == pytest.approx(before, abs=0.01)
    consensus_refresh(project=spammed, method="mace")
    assert starts[1] is None  # another model's matrices are no start


@pytest.mark.parametrize("method", ["one_coin", "dawid_skene", "mace"])
def test_choices_that_were_offered_and_never_made_decide_nothing(
    spammed: Project, ada: User, method: str
) -> None:
    decided = []
    for shown in (False, True):
        LabelingSettings.objects.update(show_tie=shown, show_both_bad=shown)
        decide_by_switch(project=spammed, by=ada, decide_by=method)
        rows = Decision.objects.order_by("comparison_id")
        decided.append(list(rows.values_list("outcome", "winner", "posteriors")))
        report = consensus_compare(project=spammed)
        decided[-1].append(report.figures["reason"])
    assert decided[0] == decided[1]


def test_switching_to_a_model_decides_again_by_its_posterior(spammed: Project, ada: User) -> None:
    switched = decide_by_switch(
        project=spammed, by=ada, decide_by="one_coin", least_posterior=0.95, max_overlap=5
    )
    assert switched.before == {"accepted": 150}  # 3 of 5 two-way votes always agree
    assert switched.after["contested"] > 5
    for decision in Decision.objects.all():
        top = max(decision.posteriors)
        assert (decision.outcome == "accepted") == (top >= 0.95)
        assert decision.decided_by == "one_coin"
    right = {"before": 0, "n": 0}
    for comparison in Comparison.objects.exclude(gold="").select_related("decision"):
        if comparison.decision.winner:
            right["n"] += 1
            right["before"] += comparison.decision.winner == comparison.gold
    assert right["before"] / right["n"] > 0.95  # what is kept is what can be trusted
    back = decide_by_switch(project=spammed, by=ada, decide_by="votes")
    assert back.after == {"accepted": 150}


def test_a_model_is_refused_while_votes_are_few(project: Project, ada: User) -> None:
    people = people_write(project, 3)
    crowd_write(project, people, [(i, k, 0) for i in range(10) for k in range(3)])
    with pytest.raises(Conflict, match=r"500 .* 30\b") as refused:
        decide_by_switch(project=project, by=ada, decide_by="mace")
    assert refused.value.code == "too_few_votes"
    assert not Consensus.objects.exists()


def test_the_comparison_says_what_each_way_keeps_and_what_chance_would(spammed: Project) -> None:
    report = consensus_compare(project=spammed)
    assert report is not None
    ways = {row["method"]: row for row in report.figures["ways"]}
    assert set(ways) == {"votes", "one_coin", "dawid_skene", "mace"}
    assert ways["votes"]["chance"] == 1.0  # five two-way votes always hold three that agree
    assert 0 < ways["one_coin"]["chance"] < 0.6
    assert ways["one_coin"]["gold"]["n"] == 75
    assert ways["one_coin"]["gold"]["kept"]["value"] > ways["votes"]["gold"]["kept"]["value"]
    assert report.figures["recommended"] in ways
    assert method_in_use(project=spammed) in ("one_coin", "dawid_skene", "mace")
    assert Consensus.objects.get().last_vote_id == Vote.objects.latest("pk").pk


def test_nothing_is_fitted_without_votes(project: Project) -> None:
    assert consensus_refresh(project=project) is None
    assert consensus_compare(project=project) is None


def test_the_schedule_fits_what_is_behind_and_then_rests(spammed: Project, ada: User) -> None:
    assert [(p.pk, every) for p, every in projects_to_fit()] == [(spammed.pk, True)]
    assert refresh_consensus() == 1
    assert ConsensusReport.objects.get().n_votes == 750
    assert projects_to_fit() == []
    assert refresh_consensus() == 0
    # one vote is taken back: the fit is behind, and the comparison of all ways is not
    gone = Vote.objects.earliest("pk")
    Vote.objects.filter(pk=gone.pk).update(is_current=False)
    Comparison.objects.filter(pk=gone.comparison_id).update(n_votes=F("n_votes") - 1)
    assert [(p.pk, every) for p, every in projects_to_fit()] == [(spammed.pk, False)]


def test_a_vote_that_decides_nothing_does_not_keep_the_fit_behind(spammed: Project) -> None:
    former = Vote.objects.earliest("pk")
    Slot.objects.filter(pk=former.slot_id).update(kind=Slot.Kind.FORMER)
    Comparison.objects.filter(pk=former.comparison_id).update(n_votes=F("n_votes") - 1)
    refresh_consensus()
    assert Consensus.objects.get().n_votes == 749
    assert projects_to_fit() == []


def test_the_schedule_decides_by_a_rule_that_was_changed_elsewhere(spammed: Project) -> None:
    consensus_compare(project=spammed)
    refresh_consensus()
    LabelingSettings.objects.update(least_share=1.0)
    assert projects_to_decide() == [spammed]
    assert refresh_consensus() == 1
    assert projects_to_decide() == []
    assert 0 < Decision.objects.filter(outcome="accepted").count() < 100


def test_a_fit_that_was_killed_half_way_is_begun_again(
    spammed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.agreement.services import consensus

    consensus_compare(project=spammed)
    assert projects_to_fit() == []

    def killed(**_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(consensus, "decisions_redo", killed)
        with pytest.raises(SystemExit):
            consensus_refresh(project=spammed, method="mace")
    assert [(p.pk, every) for p, every in projects_to_fit()] == [(spammed.pk, False)]
    assert refresh_consensus() == 1
    assert projects_to_fit() == []


def test_a_fit_that_ends_after_the_project_switched_is_not_stored(
    spammed: Project, ada: User
) -> None:
    decide_by_switch(project=spammed, by=ada, decide_by="mace")
    assert consensus_refresh(project=spammed, method="one_coin") is None
    assert Consensus.objects.get().method == "mace"
    assert set(Decision.objects.values_list("decided_by", flat=True)) == {"mace"}
    decide_by_switch(project=spammed, by=ada, decide_by="dawid_skene")
    assert set(Decision.objects.values_list("decided_by", flat=True)) == {"dawid_skene"}


# The decisions page shows what a rule would do before it does it, and admins apply it.

URL = "/p/arguments/agreement/decisions/"
RULE = {
    "decide_by": "votes",
    "least_votes": "3",
    "least_agreeing": "3",
    "least_share": "60",
    "least_posterior": "90",
    "max_overlap": "5",
}


@pytest.fixture
def five_votes(project: Project) -> Project:
    """4 pairs with 5–0, 4–1, 3–2 and 2–2–1; the first and the third have gold A and B."""
    people = people_write(project, 5)
    columns = ([0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 2])
    votes = [
        (item, person, c) for item, cast in enumerate(columns) for person, c in enumerate(cast)
    ]
    crowd_write(project, people, votes, golds=[0, -1, 1, -1])
    LabelingSettings.objects.create(project=project)
    return project


def test_a_preview_counts_what_a_rule_keeps_and_what_would_change(five_votes: Project) -> None:
    policy = policy_of(project=five_votes)
    shown = rule_preview(project=five_votes, policy=policy)
    assert (shown.n, shown.kept, shown.accepted_now) == (4, 3, 3)
    assert (shown.newly_accepted, shown.taken_back, shown.flipped) == (0, 0, 0)
    assert shown.chance == 1.0  # five flips always hold three that agree
    assert shown.gold is not None
    assert (shown.gold.value, shown.gold.n) == (0.5, 2)  # right on the first, wrong on the third
    from dataclasses import replace

    stricter = rule_preview(project=five_votes, policy=replace(policy, least_share=0.7))
    assert (stricter.kept, stricter.taken_back) == (2, 1)
    # 5–0 or 4–1 among 32 outcomes: 2 · (1 + 5) / 32
    assert stricter.chance == pytest.approx(0.375)
    assert stricter.gold is not None
    assert (stricter.gold.value, stricter.gold.n) == (1.0, 1)


def test_the_page_warns_of_a_rule_that_filters_nothing(
    five_votes: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    html = signed_in(ada).get(URL).content.decode()
    assert 'badge bad">100.0 %' in html
    assert "Apply rule" in html
    stricter = signed_in(ada).get(URL, RULE | {"least_share": "70"}).content.decode()
    assert "37.5 %" in stricter
    assert "1 no longer accepted" in stricter


def test_looking_gives_the_rule_an_address_without_the_token(
    five_votes: Project, emil: User, signed_in: Callable[[User], Client]
) -> None:
    sent = RULE | {"action": "look", "csrfmiddlewaretoken": "secret"}
    address = signed_in(emil).post(URL + "apply/", sent).headers["Location"]
    assert address.startswith(f"{URL}?decide_by=votes")
    assert "secret" not in address
    assert "Apply rule" not in signed_in(emil).get(address).content.decode()


def test_only_admins_apply_a_rule(
    five_votes: Project, emil: User, ada: User, signed_in: Callable[[User], Client]
) -> None:
    sent = RULE | {"action": "apply", "least_share": "70"}
    assert signed_in(emil).post(URL + "apply/", sent).status_code == 403
    assert LabelingSettings.objects.get().least_share == 0.6
    page = signed_in(ada).post(URL + "apply/", sent, follow=True).content.decode()
    assert "2 comparisons accepted, 3 before" in page
    assert Decision.objects.filter(outcome="accepted").count() == 2


def test_errors_stand_at_their_field_and_nothing_changes(
    five_votes: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    answer = browser.post(URL + "apply/", RULE | {"action": "apply", "max_overlap": "2"})
    assert answer.status_code == 422
    assert "Maximum votes (" in answer.content.decode()
    few = browser.post(URL + "apply/", RULE | {"action": "apply", "decide_by": "mace"})
    assert few.status_code == 422
    assert list(few.context["form"].errors) == ["decide_by"]
    for bad in ({"least_share": "x"}, {"least_votes": "9" * 30}, {"decide_by": "oracle"}):
        assert browser.get(URL, RULE | bad).status_code == 200
        assert "note bad" in browser.get(URL + "preview/", RULE | bad).content.decode()
    # where a model has no posterior yet, votes are counted: that must work as well
    bad = {"decide_by": "one_coin", "least_agreeing": "8", "max_overlap": "5"}
    assert "Maximum votes (5)" in browser.get(URL, RULE | bad).content.decode()
    assert Decision.objects.filter(outcome="accepted").count() == 3


def test_the_ways_are_compared_on_the_page_and_as_csv(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    votes, truth = spammed_votes(
        n_items=130, n_people=10, per_item=5, spammers=3, accuracy=0.85, seed=5
    )
    crowd_write(project, people_write(project, 10), votes, golds=truth)
    LabelingSettings.objects.create(project=project)
    browser = signed_in(ada)
    assert "Not compared yet" in browser.get(URL).content.decode()
    consensus_compare(project=project)
    html = browser.get(URL).content.decode()
    for words in ("Counted votes", "One-coin Dawid–Skene", "MACE", "current", "130 comparisons"):
        assert words in html
    assert html.count("<circle") > 20  # the reliability diagrams
    rows = b"".join(browser.get("/p/arguments/agreement/decisions.csv")).decode().splitlines()
    assert len(rows) == 5
    shown = rule_preview_of_model(project)
    assert 0 < shown.kept < 130
    assert 0 < (shown.chance or 0) < 0.7


def rule_preview_of_model(project: Project):
    from dataclasses import replace

    return rule_preview(
        project=project, policy=replace(policy_of(project=project), decide_by="mace")
    )


def test_a_project_without_votes_says_so(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    for page in (browser.get(URL), browser.get(URL + "preview/", RULE | {"decide_by": "mace"})):
        assert (page.status_code, page.context["preview"]) == (200, [])
    answer = browser.post(URL + "compare/", follow=True)
    assert [said.level_tag for said in answer.context["messages"]] == ["error"]


def test_a_program_previews_a_rule_and_applies_it(
    five_votes: Project, ada: User, emil: User, signed_in: Callable[[User], Client]
) -> None:
    url = "/api/v1/projects/arguments/decisions/"
    program = signed_in(emil)
    shown = program.post(url + "preview", {"least_share": 0.7}, "application/json").json()
    assert (shown["outcomes"]["accepted"], shown["taken_back"]) == (2, 1)
    assert shown["gold"]["value"] == 1.0
    bad = program.post(url + "preview", {"max_overlap": 1}, "application/json")
    assert (bad.status_code, bad.json()["field"]) == (400, "max_votes")
    for beyond in ({"max_overlap": 10**30}, {"least_share": 5e-324}, {"least_posterior": 0.4}):
        bad = program.post(url + "preview", beyond, "application/json")
        assert (bad.status_code, bad.json()["field"]) == (400, *beyond)
    refused = program.post(url + "rule", {"least_share": 0.7}, "application/json")
    assert refused.status_code == 403
    done = signed_in(ada).post(url + "rule", {"least_share": 0.7}, "application/json").json()
    assert (done["before"]["accepted"], done["after"]["accepted"]) == (3, 2)
    few = signed_in(ada).post(url + "rule", {"decide_by": "mace"}, "application/json")
    assert (few.status_code, few.json()["code"]) == (409, "too_few_votes")
    assert program.get(url + "ways").status_code == 404
    ways = program.post(url + "ways", {}, "application/json").json()
    assert [way["method"] for way in ways["ways"]] == ["votes", "one_coin", "dawid_skene", "mace"]
    assert ways["proposed"] == ""
    assert ways["fit"]["n_votes"] == 20
    assert (ways["trusted"], ways["caution"]) == (False, None)
    assert ways["trust"]
