"""The pages around the statistics: their numbers as files, their words for whoever may not act."""

import csv
import io

import pytest
from django.urls import reverse

from apps.accounts.models import Project
from apps.agreement.models import AgreementReport
from apps.agreement.selectors import votes
from apps.agreement.services import reports
from apps.labeling.models import LabelingSettings
from tests.agreement.crowd import crowd_write


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
    assert "An admin can state what a vote costs" in main
    assert settings in signed_in(ada).get(address).content.decode().split("<main")[1]
