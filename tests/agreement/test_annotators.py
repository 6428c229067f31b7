"""Figures about single annotators, and leaving somebody's votes out of new datasets."""

import csv
import io
import random
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEvent, Membership, Project, Role, User
from apps.agreement.models import AnnotatorReport
from apps.agreement.screens import annotator_charts as charts
from apps.agreement.selectors import annotators as reads
from apps.agreement.selectors.annotators import annotator_votes
from apps.agreement.selectors.values import values_controls
from apps.agreement.services.annotators import (
    annotator_leave_out,
    annotator_reports_refresh,
    annotator_take_in,
)
from apps.agreement.tasks import refresh_reports
from apps.common.errors import DomainError, Missing
from apps.labeling import services
from apps.labeling.models import Annotator, Comparison, LabelingSettings, Slot, Vote
from tests.agreement.crowd import crowd_write, person, votes_write
from tests.labeling.pairs import leased, pairs_make, tasks_make
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
            slot=lease.slot,
            annotator=ana,
            idempotency_key=lease.key,
            side=side,
            active_ms=ms,
            lease_next=False,
        )
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
        pair = Comparison.objects.get(pk=Slot.objects.get(pk=lease.slot).task_id)
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
        project=project,
        task_id=first.comparison_id,
        position=90,
        kind="repeat",
        state="done",
        annotator=ana,
        measures_id=first.pk,
        left_is=other,
    )
    Vote.objects.create(
        project=project,
        comparison_id=first.comparison_id,
        slot=slot,
        annotator=ana,
        choice="a",
        chosen=first.chosen,
        left_is=other,
        idempotency_key="again",
        cast_at=timezone.now(),
    )
    figures = report_of(project, ana).figures
    assert (figures["self"]["value"], figures["self"]["n"]) == (1.0, 1)
    assert figures["kept_side"] == [0, 1]
    assert AnnotatorReport.objects.get(user=ana).n_votes == 1  # a repeat is no work


def test_only_places_that_decide_count_as_work(project: Project) -> None:
    crowd_write(project, [["a", "a", "b"]] * 4)
    Slot.objects.filter(task__in=Comparison.objects.all()[:1]).update(kind="former")
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


def test_figures_of_an_old_shape_are_computed_again(project: Project, ana: User) -> None:
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


# The pages about annotators: what they say, to whom, and what admins can do there.


@pytest.fixture
def team(project: Project) -> dict[str, User]:
    """Lena clicks left, Hana is like the others, Nora has just begun."""
    people = {name: person(name, imported=False) for name in ("lena", "hana", "nora")}
    for name, user in people.items():
        user.display_name = name.title()
        user.save(update_fields=["display_name"])
        Membership.objects.create(project=project, user=user, role=Role.ANNOTATOR)
    start = timezone.now()
    rows = []
    for i in range(60):
        moment = start - timezone.timedelta(minutes=i)
        side = "ab"[i % 2]
        rows += [
            {
                "pair": i,
                "who": people["lena"],
                "choice": side,
                "active_ms": 1500 + 100 * i,
                "left_is": side if i > 3 else "ab"[1 - i % 2],
                "cast_at": moment,
            },
            {
                "pair": i,
                "who": people["hana"],
                "choice": "ab"[i // 2 % 2],
                "active_ms": 9000,
                "left_is": "a",
                "cast_at": moment,
            },
        ]
    rows.append({"pair": 0, "who": people["nora"], "choice": "tie"})
    votes_write(project, rows)
    annotator_reports_refresh(project=project)
    return people


def text_of(client, name: str, *args, **query) -> str:
    answer = client.get(reverse(f"agreement:{name}", args=args), query)
    assert answer.status_code == 200
    if answer.streaming:
        return b"".join(answer.streaming_content).decode()
    return answer.content.decode()


def test_an_empty_project_says_why(project: Project, ada, signed_in) -> None:
    assert 'data-empty="users"' in text_of(signed_in(ada), "annotators", project.slug)


def test_the_list_names_flags_first_and_says_who_is_too_new(
    project: Project, ada, signed_in, team
) -> None:
    text = text_of(signed_in(ada), "annotators", project.slug)
    assert text.index("Lena") < text.index("Hana") < text.index("Nora")
    assert "left bias" in text
    assert text.count('"faint">too few') == 1
    assert "93.3 %" in text  # 56 of 60
    assert "3 people" in text


def test_reviewers_and_engineers_see_numbers(project: Project, rita, emil, signed_in, team) -> None:
    for reader in (rita, emil):
        client = signed_in(reader)
        lena = team["lena"].pk
        pages = [
            text_of(client, "annotators", project.slug),
            text_of(client, "annotators_csv", project.slug),
            text_of(client, "annotator", project.slug, lena),
            text_of(client, "annotator_csv", project.slug, lena),
        ]
        for page in pages:
            assert "Lena" not in page
            assert "lena" not in page
        assert f"Annotator {lena}" in pages[0]
        assert 'value="leave_out"' not in pages[2]
        # A name does not find anybody, or searching would tell.
        assert "Nobody matches" in text_of(client, "annotators", project.slug, q="lena")
        found = text_of(client, "annotators", project.slug, q=f"annotator {lena}")
        assert "1 person" in found


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"show": "flagged"}, ["Lena"]),
        ({"show": "early"}, ["Nora"]),
        ({"show": "paused"}, ["Hana"]),
        ({"show": "out"}, ["Nora"]),
        ({"least": "60", "sort": "name"}, ["Hana", "Lena"]),
        ({"q": "HAN"}, ["Hana"]),
        ({"sort": "left"}, ["Lena", "Hana", "Nora"]),
        ({"sort": "fast"}, ["Lena", "Hana", "Nora"]),
        ({"sort": "nonsense"}, ["Lena", "Hana", "Nora"]),
        ({"least": "-3"}, ["Lena", "Hana", "Nora"]),
    ],
)
def test_filters_and_orders(project: Project, ada, signed_in, team, query, names) -> None:
    Membership.objects.filter(user=team["hana"]).update(paused_reason="on leave")
    Annotator.objects.create(
        project=project, user=team["nora"], left_out_at=timezone.now(), left_out_reason="new"
    )
    lines = text_of(signed_in(ada), "annotators_csv", project.slug, **query)
    assert [row["annotator"] for row in csv.DictReader(io.StringIO(lines))] == names
    text = text_of(signed_in(ada), "annotators", project.slug, **query)
    places = [text.index(name) for name in names]
    assert places == sorted(places)


def test_the_csv_holds_numbers_and_guards_formulas(project: Project, ada, signed_in, team) -> None:
    User.objects.filter(pk=team["lena"].pk).update(display_name='=HYPERLINK("x")')
    rows = csv.DictReader(io.StringIO(text_of(signed_in(ada), "annotators_csv", project.slug)))
    first = next(iter(rows))
    assert first["annotator"].startswith("'=")
    assert float(first["left_value"]) == pytest.approx(56 / 60)
    assert first["flags"] == "left bias"


def test_a_persons_page_shows_the_evidence_and_what_is_missing(
    project: Project, ada, signed_in, team
) -> None:
    text = text_of(signed_in(ada), "annotator", project.slug, team["lena"].pk)
    assert "56 of 60" in text
    figures = AnnotatorReport.objects.get(user=team["lena"]).figures
    assert figures["self"]["undefined"] in text
    assert "Not fitted yet" in text
    assert "60 votes on 60" in text
    assert text.count('class="chart evidence') == 3
    for name, icon in (("nora", "info"), ("hana", "circle-check")):
        page = signed_in(ada).get(
            reverse("agreement:annotator", args=[project.slug, team[name].pk])
        )
        assert page.context["verdict"].icon == icon


def test_who_cannot_label_is_not_to_be_paused(project: Project, ada, emil, signed_in, team) -> None:
    client = signed_in(ada)
    link = "Pause, limits"
    assert link in text_of(client, "annotator", project.slug, team["lena"].pk)
    assert link not in text_of(client, "annotator", project.slug, emil.pk)
    User.objects.filter(pk=team["hana"].pk).update(is_active=False, is_imported=True)
    assert link not in text_of(client, "annotator", project.slug, team["hana"].pk)


def test_somebody_without_votes_has_a_page_that_says_so(
    project: Project, ada, ana, signed_in
) -> None:
    assert 'data-empty="user"' in text_of(signed_in(ada), "annotator", project.slug, ana.pk)


def test_people_of_another_project_are_unknown_here(project: Project, ada, olga, signed_in) -> None:
    client = signed_in(ada)
    for name in ("annotator", "annotator_csv"):
        address = reverse(f"agreement:{name}", args=[project.slug, olga.pk])
        assert client.get(address).status_code == 404
    address = reverse("agreement:annotator_datasets", args=[project.slug, olga.pk])
    assert client.post(address, {"reason": "x"}).status_code == 404
    assert not Annotator.objects.filter(left_out_at__isnull=False).exists()


def test_an_admin_leaves_out_and_takes_in_again(project: Project, ada, signed_in, team) -> None:
    client, lena = signed_in(ada), team["lena"]
    address = reverse("agreement:annotator_datasets", args=[project.slug, lena.pk])
    refused = client.post(address, {"reason": " "})
    assert refused.status_code == 422
    assert not Annotator.objects.filter(user=lena, left_out_at__isnull=False).exists()
    client.post(address, {"reason": "clicks left"})
    assert Annotator.objects.get(user=lena).left_out_reason == "clicks left"
    text = text_of(client, "annotator", project.slug, lena.pk)
    assert "“clicks left”" in text
    assert "left out" in text_of(client, "annotators", project.slug)
    client.post(address, {"action": "take_in"})
    assert Annotator.objects.get(user=lena).left_out_at is None
    assert Vote.objects.filter(annotator=lena, is_current=True).count() == 60


def test_computing_again_takes_in_new_votes(project: Project, rita, signed_in, team) -> None:
    votes_write(project, [{"pair": 1000, "who": team["nora"], "choice": "a"}])
    signed_in(rita).post(reverse("agreement:annotators_refresh", args=[project.slug]))
    assert AnnotatorReport.objects.get(user=team["nora"]).n_votes == 2


def test_the_pages_of_labeling_lead_to_the_figures(project: Project, ada, signed_in, team) -> None:
    client = signed_in(ada)
    many = client.get(reverse("labeling:annotators", args=[project.slug])).content.decode()
    assert reverse("agreement:annotators", args=[project.slug]) in many
    one = reverse("labeling:annotator", args=[project.slug, team["lena"].pk])
    page = client.get(one).content.decode()
    assert reverse("agreement:annotator", args=[project.slug, team["lena"].pk]) in page


def test_bars_of_speed_count_every_answer(project: Project, team) -> None:
    figures = AnnotatorReport.objects.get(user=team["lena"]).figures
    chart = charts.speed_chart(figures).histogram
    # 1.5 to 7.4 s in steps of 0.1 s; 1.5 to 1.9 s are the five under the limit of 2 s.
    assert figures["fast"]["value"] == pytest.approx(5 / 60)
    [(limit, _)] = chart.marks
    [group] = chart.groups
    fast = [bar.title for bar in group.bars if bar.x + bar.width <= limit + 0.1 and bar.height]
    assert fast == ["Answers, 1.41 to 2: 8.3 %"]
    assert sum(float(share.removesuffix(" %")) for _, [share] in chart.rows) == pytest.approx(
        100, abs=0.5
    )
    assert sum(row["n"] for row in charts.chart_rows(figures) if "answers" in row["figure"]) == 60


def test_without_a_limit_nothing_is_fast(project: Project, ada, signed_in, team) -> None:
    LabelingSettings.objects.create(project=project, fast_ms=0)
    annotator_reports_refresh(project=project)
    text = text_of(signed_in(ada), "annotator", project.slug, team["lena"].pk)
    assert "in under" not in text
    chart = charts.speed_chart(AnnotatorReport.objects.get(user=team["lena"]).figures)
    assert chart.histogram.marks == []


def test_a_chart_without_numbers_is_none(project: Project, team) -> None:
    figures = AnnotatorReport.objects.get(user=team["nora"]).figures
    assert charts.speed_chart(figures) is None
    assert charts.time_chart(figures) is None


# Gradings and rankings: known answers, hidden repeats and audits come as they do among pairs.


def grade_all(project: Project, who: User, grades: dict[str, list[int]], *, audits=False) -> None:
    """Answer what is handed out until nothing is, by the tasks' own ids."""
    give = services.slot_lease_audit if audits else services.slot_lease_next
    for _ in range(120):
        lease = give(project=project, annotator=who)
        if not isinstance(lease, services.Lease):
            return
        slot = Slot.objects.select_related("task").get(pk=lease.slot)
        values = grades.get(slot.task.external_id, [2, 4, 6])
        services.vote_cast(
            slot=lease.slot,
            annotator=who,
            idempotency_key=lease.key,
            values=[values[place - 1] for place in slot.shown],
            lease_next=False,
        )
    raise AssertionError("it never ends")


def test_gold_repeats_and_audits_of_gradings_are_handed_out_and_counted(
    project: Project, ana: User, rita: User, ada: User, signed_in
) -> None:
    random.seed(1)  # what is handed out is drawn: a repeat comes 20 answers later at the earliest
    shares = {"gold_share": 0.2, "repeat_share": 0.3, "random_share": 0.5}
    tasks_make(project, n=40, overlap=1, settings=shares | {"audit_rate": 1.0})
    tasks_make(project, n=4, gold=[2, 4, 6], name="known")
    grade_all(project, ana, {"known-3": [6, 4, 2]})  # one of four she gets the wrong way round
    found = values_controls(project=project, user=ana)
    assert (found["gold"].n, found["gold"].value) == (4, 0.75)
    n_repeats = Slot.objects.filter(kind="repeat", annotator=ana, state="done").count()
    assert n_repeats
    assert (found["repeats"].n, found["repeats"].value) == (n_repeats, 1.0)
    assert found["audits"].n == 0

    wrong = {f"task-{number}": [7, 1, 1] for number in range(1, 7)}
    grade_all(project, rita, wrong, audits=True)
    found = values_controls(project=project, user=ana)
    audited = Slot.objects.filter(kind="audit", annotator=rita, state="done")
    assert audited.count() == found["audits"].n == 40
    assert found["audits"].value == 34 / 40

    page = signed_in(ada).get(f"/p/{project.slug}/agreement/annotators/{ana.pk}/")
    bases = [line.basis for line in page.context["lines"]]
    assert bases == ["4 answers", f"{n_repeats} repeats", "40 audits"]
    sent = signed_in(ada).get(f"/p/{project.slug}/agreement/annotators/{ana.pk}/figures.csv")
    assert b'"values_gold","0.75"' in b"".join(sent.streaming_content)
