"""The pages about annotators: what they say, to whom, and what admins can do there."""

import csv
import io

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role, User
from apps.agreement.models import AnnotatorReport
from apps.agreement.screens import annotator_charts as charts
from apps.agreement.services.annotators import annotator_reports_refresh
from apps.labeling.models import Annotator, LabelingSettings, Vote
from tests.agreement.annotator_crowd import person, votes_write


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
                "pair": i, "who": people["lena"], "choice": side, "active_ms": 1500 + 100 * i,
                "left_is": side if i > 3 else "ab"[1 - i % 2], "cast_at": moment,
            },
            {
                "pair": i, "who": people["hana"], "choice": "ab"[i // 2 % 2], "active_ms": 9000,
                "left_is": "a", "cast_at": moment,
            },
        ]  # fmt: skip
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
    assert "Nobody has voted yet" in text_of(signed_in(ada), "annotators", project.slug)


def test_the_list_names_flags_first_and_says_who_is_too_new(
    project: Project, ada, signed_in, team
) -> None:
    text = text_of(signed_in(ada), "annotators", project.slug)
    assert text.index("Lena") < text.index("Hana") < text.index("Nora")
    assert "left-clicker" in text
    assert "too few votes to say" in text
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
        assert "Leave them out" not in pages[2]
        # A name does not find anybody, or searching would tell.
        assert "Nobody fits" in text_of(client, "annotators", project.slug, q="lena")
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
    assert first["flags"] == "left-clicker"


def test_a_persons_page_shows_the_evidence_and_what_is_missing(
    project: Project, ada, signed_in, team
) -> None:
    text = text_of(signed_in(ada), "annotator", project.slug, team["lena"].pk)
    assert "Chose the answer on the left in 56 of 60 votes" in text
    assert "they answered no hidden repeat" in text
    assert "Not fitted yet" in text
    assert "Leaves out 60 votes on 60 comparisons" in text
    assert text.count('class="chart narrow"') == 3
    early = text_of(signed_in(ada), "annotator", project.slug, team["nora"].pk)
    assert "Too few votes to say anything yet" in early
    honest = text_of(signed_in(ada), "annotator", project.slug, team["hana"].pk)
    assert "Nothing stands out" in honest


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
    assert "No votes to look at yet" in text_of(signed_in(ada), "annotator", project.slug, ana.pk)


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
    chart = charts.speed_chart(figures)
    # 1.5 to 7.4 s in steps of 0.1 s; 1.5 to 1.9 s are the five under the limit of 2 s.
    assert figures["fast"]["value"] == pytest.approx(5 / 60)
    fast = [bar for bar in chart.bins if bar.fast and bar.height]
    assert [bar.title for bar in fast] == ["1.41 to 2 s: 5"]
    slow = [bar.x for bar in chart.bins if not bar.fast]
    assert max(bar.x for bar in fast) < chart.limit_x <= min(slow)
    assert sum(row["n"] for row in charts.chart_rows(figures) if "answers" in row["figure"]) == 60


def test_without_a_limit_nothing_is_fast(project: Project, ada, signed_in, team) -> None:
    LabelingSettings.objects.create(project=project, fast_ms=0)
    annotator_reports_refresh(project=project)
    text = text_of(signed_in(ada), "annotator", project.slug, team["lena"].pk)
    assert "Settings name no limit" in text
    assert "in under" not in text
    chart = charts.speed_chart(AnnotatorReport.objects.get(user=team["lena"]).figures)
    assert chart.limit_x is None


def test_a_chart_without_numbers_is_none(project: Project, team) -> None:
    figures = AnnotatorReport.objects.get(user=team["nora"]).figures
    assert charts.speed_chart(figures) is None
    assert charts.time_chart(figures) is None
