"""Figures about single annotators, and leaving somebody's votes out of new datasets."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project, Role, User
from apps.agreement.models import AnnotatorReport
from apps.agreement.selectors import annotators as reads
from apps.agreement.selectors.annotators import annotator_votes
from apps.agreement.services.annotators import (
    annotator_leave_out,
    annotator_reports_refresh,
    annotator_take_in,
)
from apps.agreement.tasks import refresh_reports
from apps.common.errors import DomainError, Missing
from apps.labeling import services
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot, Vote
from tests.agreement.annotator_crowd import person, votes_write
from tests.agreement.crowd import crowd_write
from tests.labeling.pairs import leased, pairs_make
from tests.labeling.pairs import vote as vote_on_next
from tests.people import person_make


def report_of(project: Project, user: User) -> AnnotatorReport:
    annotator_reports_refresh(project=project)
    return AnnotatorReport.objects.get(project=project, user=user)


def test_figures_are_those_counted_by_hand(project: Project, ana: User) -> None:
    # "It depends, …" is the shorter answer of each pair; Ana chooses the left one, then the right.
    pairs_make(project, 3)
    for side, ms in (("left", 1_000), ("left", 9_000), ("right", 3_000)):
        lease = leased(project, ana)
        held = timezone.now() - timedelta(minutes=1)
        Slot.objects.filter(pk=lease.slot).update(leased_at=held)
        services.vote_cast(
            slot=lease.slot, annotator=ana, idempotency_key=lease.key, side=side, active_ms=ms,
            lease_next=False,
        )  # fmt: skip
    report = report_of(project, ana)
    assert report.n_votes == 3
    assert report.figures["median_ms"] == 3_000
    assert report.figures["fast"]["value"] == pytest.approx(1 / 3)
    assert report.figures["left"]["value"] == pytest.approx(2 / 3)
    assert report.figures["agreement"]["undefined"]
    assert report.flags == []


def test_the_longer_answer_is_the_one_with_more_to_read(project: Project, ana: User) -> None:
    pairs_make(project, 2)
    for number in (1, 2):
        lease = leased(project, ana)
        pair = Comparison.objects.get(pk=Slot.objects.get(pk=lease.slot).comparison_id)
        longest = len(pair.response_a.messages[-1]["content"]) > len(
            pair.response_b.messages[-1]["content"]
        )
        choice = ("a" if longest else "b") if number == 1 else ("b" if longest else "a")
        services.vote_cast(slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice=choice)
    assert annotator_votes(project=project).work.longer.tolist() == [1, 0]


def test_a_hidden_repeat_is_compared_with_the_vote_it_repeats(project: Project, ana: User) -> None:
    pairs_make(project, 1)
    first = vote_on_next(project, ana, "a").vote
    other = "b" if first.left_is == "a" else "a"
    slot = Slot.objects.create(
        project=project, comparison_id=first.comparison_id, position=90, kind="repeat",
        state="done", annotator=ana, measures=first, left_is=other,
    )  # fmt: skip
    Vote.objects.create(
        project=project, comparison_id=first.comparison_id, slot=slot, annotator=ana, choice="a",
        chosen=first.chosen, left_is=other, idempotency_key="again", cast_at=timezone.now(),
    )  # fmt: skip
    figures = report_of(project, ana).figures
    assert (figures["self"]["value"], figures["self"]["n"]) == (1.0, 1)
    assert figures["kept_side"] == [0, 1]
    assert AnnotatorReport.objects.get(user=ana).n_votes == 1  # a repeat is no work


def test_only_places_that_decide_count_as_work(project: Project) -> None:
    crowd_write(project, [["a", "a", "b"]] * 4)
    Slot.objects.filter(comparison__in=Comparison.objects.all()[:1]).update(kind="former")
    annotator_reports_refresh(project=project)
    assert set(AnnotatorReport.objects.values_list("n_votes", flat=True)) == {3}


def test_imports_without_times_say_nothing_of_drift(project: Project) -> None:
    who = person("w1")
    votes_write(project, [{"pair": i, "who": who, "choice": "a"} for i in range(3)])
    assert "no times" in report_of(project, who).figures["drift"]["undefined"]


def test_a_report_goes_when_the_votes_have_gone(project: Project) -> None:
    crowd_write(project, [["a", "b"]] * 3)
    annotator_reports_refresh(project=project)
    Slot.objects.filter(annotator__username="crowd-1").update(kind="former")
    annotator_reports_refresh(project=project)
    assert [row.user.username for row in AnnotatorReport.objects.all()] == ["crowd-0"]


def test_a_project_without_votes_has_no_reports(project: Project) -> None:
    assert annotator_reports_refresh(project=project) == 0
    pairs_make(project, 1)
    assert annotator_reports_refresh(project=project) == 0


def test_the_background_keeps_up_with_new_votes(project: Project) -> None:
    crowd_write(project, [["a", "b"]] * 3)
    assert reads.annotators_stale() == [project]
    refresh_reports()
    assert reads.annotators_stale() == []
    assert AnnotatorReport.objects.count() == 2
    crowd_write(project, [["a", "b"]])
    assert reads.annotators_stale() == [project]


def test_figures_of_an_old_shape_are_computed_anew(project: Project, ana: User) -> None:
    pairs_make(project, 1)
    vote_on_next(project, ana)
    report = report_of(project, ana)
    AnnotatorReport.objects.filter(pk=report.pk).update(figures={"version": 0})
    assert not reads.reports_of(project=project).exists()
    assert reads.annotators_stale() == [project]


def test_a_left_clicker_is_flagged_and_nothing_is_done_by_itself(project: Project) -> None:
    lena, hana = person("lena"), person("hana")
    votes_write(
        project,
        [
            {"pair": i, "who": lena, "choice": "a", "left_is": "b" if i < 5 else "a"}
            for i in range(60)
        ]
        + [{"pair": i, "who": hana, "choice": "ab"[i % 2], "left_is": "a"} for i in range(60)],
    )
    flagged = report_of(project, lena)
    assert [flag["kind"] for flag in flagged.flags] == ["left"]
    assert "55 of 60" in flagged.flags[0]["sentence"]
    assert AnnotatorReport.objects.get(user=hana).flags == []
    assert Vote.objects.filter(is_current=True).count() == 120
    assert not Annotator.objects.filter(left_out_at__isnull=False).exists()


def test_fast_is_what_the_project_says(project: Project) -> None:
    who = person("w1")
    LabelingSettings.objects.create(project=project, fast_ms=500)
    votes_write(project, [{"pair": 1, "who": who, "choice": "a", "active_ms": 800}])
    assert report_of(project, who).figures["fast"]["value"] == 0
    LabelingSettings.objects.update(fast_ms=1_000)
    assert report_of(project, who).figures["fast"]["value"] == 1


# --- leaving out ---


def test_leaving_out_is_noted_and_can_be_undone(project: Project, ana: User, ada: User) -> None:
    crowd_write(project, [["a", "a"], ["a"]])
    reports = {row.username: row for row in User.objects.filter(username__startswith="crowd")}
    before = list(Vote.objects.order_by("pk").values_list("pk", "is_current"))
    row = annotator_leave_out(
        project=project, user=reports["crowd-0"], by=ada, reason=" clicks left "
    )
    assert row.left_out_reason == "clicks left"
    at = row.left_out_at
    again = annotator_leave_out(
        project=project, user=reports["crowd-0"], by=ada, reason="clicks left always"
    )
    assert again.left_out_at == at
    assert list(Vote.objects.order_by("pk").values_list("pk", "is_current")) == before
    annotator_take_in(project=project, user=reports["crowd-0"], by=ada)
    row.refresh_from_db()
    assert (row.left_out_at, row.left_out_reason) == (None, "")
    actions = AuditEvent.objects.filter(project=project).order_by("pk")
    assert [event.action for event in actions] == [
        "annotator.left_out",
        "annotator.left_out",
        "annotator.taken_in",
    ]
    assert actions.first().details["reason"] == "clicks left"


@pytest.mark.parametrize("reason", ["", "  ", "x" * 301, "a\x00b"])
def test_leaving_out_needs_a_reason_that_can_be_kept(
    project: Project, ana: User, ada: User, reason: str
) -> None:
    with pytest.raises(DomainError) as caught:
        annotator_leave_out(project=project, user=ana, by=ada, reason=reason)
    assert caught.value.field == "reason"
    assert not Annotator.objects.filter(left_out_at__isnull=False).exists()


def test_people_of_other_projects_are_not_here(project: Project, ada: User, olga: User) -> None:
    with pytest.raises(Missing):
        annotator_leave_out(project=project, user=olga, by=ada, reason="no")
    assert reads.person_of(project=project, user_id=olga.pk) is None


def test_what_leaving_out_reaches_is_said_in_numbers(project: Project) -> None:
    crowd_write(project, [["a", "a"], ["a", "b"], ["a"]])
    user = User.objects.get(username="crowd-0")
    assert reads.reach_of(project=project, user=user) == reads.Reach(3, 3, 1)


def test_differences_name_pairs_where_nobody_else_chose_so(project: Project) -> None:
    pairs = crowd_write(project, [["a", "b", "b"], ["a", "b", "a"], ["a", "b"], ["tie", "a", "b"]])
    user = User.objects.get(username="crowd-0")
    found = reads.differences_of(project=project, user=user)
    assert {(row.comparison.pk, row.choice) for row in found} == {
        (pairs[0].pk, "a"),
        (pairs[3].pk, "tie"),
    }


def test_reviewers_are_annotators_too(project: Project, rita: User) -> None:
    pairs_make(project, 1)
    vote_on_next(project, rita)
    assert report_of(project, rita).n_votes == 1
    ben = person_make("Ben", project, Role.ANNOTATOR)
    assert not AnnotatorReport.objects.filter(user=ben).exists()
