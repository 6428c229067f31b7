"""A changed rule reaches what is decided already, and leaves alone what people ruled."""

from datetime import timedelta

import numpy as np
import pytest
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling import services
from apps.labeling.models import (
    Annotator,
    Comparison,
    Consensus,
    DecideBy,
    Decision,
    LabelingSettings,
    Slot,
)
from apps.labeling.services.redeciding import decisions_behind, decisions_redo
from tests.labeling.pairs import annotators_make, pairs_make, vote
from tests.people import person_make


def coin(q: float) -> list[float]:
    return [q, 1 - q, 0, 0, 1 - q, q, 0, 0, *[0.25] * 8]


def fitted(project: Project, q: float = 0.75, method: str = DecideBy.ONE_COIN) -> Consensus:
    return Consensus.objects.create(
        project=project,
        method=method,
        priors=[0.5, 0.5, 0, 0],
        confusion=coin(q),
        fitted_at=timezone.now() - timedelta(minutes=1),
    )


def voted(project: Project, choices: list[str], **settings: object) -> Comparison:
    """One comparison with these votes, cast one after another."""
    (comparison,) = pairs_make(project, 1, **({"max_overlap": len(choices)} | settings))
    for person, choice in zip(annotators_make(project, len(choices)), choices, strict=True):
        vote(project, person, choice)
    return comparison


def test_a_stricter_rule_takes_back_what_no_longer_holds(project: Project, ada: User) -> None:
    comparison = voted(project, ["a", "a", "a", "b", "b"], overlap=5)
    assert Decision.objects.get().outcome == "accepted"
    services.labeling_settings_update(project=project, by=ada, least_share=0.8)
    decision = Decision.objects.get()
    assert (decision.outcome, decision.winner) == ("contested", "")
    assert "a share of 0.8" in decision.reason
    comparison.refresh_from_db()
    assert comparison.state == Comparison.State.CONTESTED
    services.labeling_settings_update(project=project, by=ada, least_share=0.6)
    assert Decision.objects.get().winner == "a"
    assert not decisions_behind(project=project)


def test_a_rule_that_allows_more_votes_asks_for_one_more(project: Project, ada: User) -> None:
    comparison = voted(project, ["a", "b", "tie"], overlap=3)
    person_make("Fourth", project, "annotator")
    assert Decision.objects.get().outcome == "contested"
    services.labeling_settings_update(project=project, by=ada, max_overlap=6)
    comparison.refresh_from_db()
    assert (comparison.state, comparison.overlap) == ("open", 4)
    assert Slot.objects.filter(task=comparison, state="free").count() == 1
    # and takes it back when it is not needed any more
    services.labeling_settings_update(
        project=project, by=ada, least_votes=1, least_agreeing=1, least_share=0.3
    )
    assert Decision.objects.get().outcome == "needs_votes"  # three choices with one vote each


def test_what_a_person_ruled_stays_whatever_the_rule(project: Project, ada: User) -> None:
    voted(project, ["a", "a", "a"], overlap=3)
    Decision.objects.update(outcome="adjudicated", winner="b")
    services.labeling_settings_update(project=project, by=ada, least_share=1)
    assert (Decision.objects.get().outcome, Decision.objects.get().winner) == ("adjudicated", "b")


def test_posteriors_decide_once_a_model_is_fitted(project: Project, ada: User) -> None:
    voted(project, ["a", "a", "a", "b", "b"], overlap=5)
    with pytest.raises(DomainError, check=lambda e: e.code == "not_fitted") as refused:
        services.labeling_settings_update(project=project, by=ada, decide_by="one_coin")
    assert refused.value.field == "decide_by"
    fitted(project)
    key = Comparison.objects.get().pk
    done = decisions_redo(
        project=project, posteriors=(np.array([key]), np.array([[0.75, 0.25, 0.0, 0.0]]))
    )
    assert (done.n, done.n_changed, done.written) == (1, 0, 1)
    services.labeling_settings_update(project=project, by=ada, decide_by="one_coin")
    decision = Decision.objects.get()
    assert (decision.outcome, decision.decided_by) == ("contested", "one_coin")
    assert decision.posteriors == pytest.approx([0.75, 0.25, 0, 0])
    assert "75.0 %" in decision.reason


def test_a_vote_is_absorbed_with_what_is_known_of_its_annotator(project: Project) -> None:
    """Odds for A: 3 (an unknown voter, q = 3/4), then 9 (q = 9/10): 27 to 1."""
    pairs_make(project, 1, decide_by="one_coin", least_votes=2, max_overlap=5)
    fitted(project)
    first, second = annotators_make(project, 2)
    Annotator.objects.filter(user=second).update(confusion=coin(0.9), reliability=0.9)
    result = vote(project, first, "a")
    assert result.decision.outcome == "needs_votes"
    assert Decision.objects.get().posteriors == pytest.approx([0.75, 0.25, 0, 0])
    vote(project, second, "a")
    decision = Decision.objects.get()
    assert decision.posteriors == pytest.approx([27 / 28, 1 / 28, 0, 0])
    assert (decision.outcome, decision.winner, decision.decided_by) == (
        "accepted",
        "a",
        "one_coin",
    )


def test_easy_pairs_stop_before_all_votes_are_in_where_the_project_says_so(
    project: Project,
) -> None:
    pairs_make(
        project, 1, decide_by="one_coin", least_votes=2, overlap=4, max_overlap=6, stop_early=True
    )
    fitted(project, q=0.9)
    first, second = annotators_make(project, 2)
    vote(project, first, "a")
    vote(project, second, "a")
    assert Slot.objects.filter(state="free").count() == 0
    comparison = Comparison.objects.get()
    assert (comparison.state, comparison.overlap) == ("decided", 2)


def test_a_contested_pair_asks_on_up_to_the_maximum(project: Project) -> None:
    pairs_make(project, 1, decide_by="one_coin", least_votes=2, overlap=2, max_overlap=3)
    fitted(project)
    people = annotators_make(project, 3)
    vote(project, people[0], "a")
    vote(project, people[1], "b")
    assert Comparison.objects.get().overlap == 3
    vote(project, people[2], "a")
    assert Decision.objects.get().outcome == "contested"  # 3 to 1 is 0.75
    assert Comparison.objects.get().overlap == 3


def test_votes_are_counted_where_the_fit_is_of_another_model(project: Project) -> None:
    pairs_make(project, 1, decide_by="mace", max_overlap=3)
    fitted(project)
    for person in annotators_make(project, 3):
        vote(project, person, "a")
    decision = Decision.objects.get()
    assert (decision.outcome, decision.decided_by) == ("accepted", "votes")
    assert decision.posteriors[0] == pytest.approx(27 / 28)  # shown, and not what decided


def test_a_comparison_that_was_voted_on_meanwhile_keeps_what_its_vote_decided(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.labeling.services import redeciding

    voted(project, ["a", "a", "a"], overlap=3)
    LabelingSettings.objects.update(least_share=1.0)
    read = redeciding._read

    def read_before_another_vote(*args: object) -> object:
        known = read(*args)
        Decision.objects.update(n_b=1, reason="by the vote")
        return known

    monkeypatch.setattr(redeciding, "_read", read_before_another_vote)
    decisions_redo(project=project)
    assert Decision.objects.get().reason == "by the vote"


def test_a_posterior_is_said_in_words_most_probable_first(project: Project) -> None:
    voted(project, ["a", "a", "tie"], overlap=3)
    decision = Decision.objects.get()
    assert (decision.by_choice, decision.posterior_words) == (None, "")
    decision.posteriors = [0.2, 0.001, 0.799, 0.0]
    assert decision.posterior_words == "Tie 79.9 %, A is better 20.0 %"
    assert list(decision.by_choice or {}) == ["tie", "a", "b", "both_bad"]


def test_a_vote_after_a_ruling_changes_counts_and_nothing_else(project: Project) -> None:
    late = person_make("Late", project, "annotator")
    comparison = voted(project, ["a", "b"], overlap=5, max_overlap=5)
    Decision.objects.update(outcome="adjudicated", winner="b", reason="ruled")
    Comparison.objects.update(state=Comparison.State.DECIDED)
    vote(project, late, "a")
    decision = Decision.objects.get()
    assert (decision.outcome, decision.winner, decision.reason) == ("adjudicated", "b", "ruled")
    assert (decision.n_a, decision.n_b) == (2, 1)
    comparison.refresh_from_db()
    assert (comparison.state, comparison.overlap, comparison.n_votes) == ("decided", 5, 3)


def test_votes_do_not_decide_what_waits_for_a_person(project: Project, ana: User) -> None:
    (comparison,) = pairs_make(project, 1, overlap=1, max_overlap=3, least_votes=1)
    lease = services.slot_lease_next(project=project, annotator=ana)
    Comparison.objects.update(state=Comparison.State.REVIEW, review_reason="names its model")
    services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a")
    decision = Decision.objects.get()
    assert (decision.outcome, decision.winner) == ("needs_review", "")
    assert decision.reason.endswith(": names its model")
    comparison.refresh_from_db()
    assert comparison.state == "review"
