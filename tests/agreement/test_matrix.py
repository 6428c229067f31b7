"""The matrix shows who agrees with whom, and a cell leads to exactly what they differ on."""

import pytest
from django.urls import reverse

from apps.accounts.models import Project, User
from apps.agreement.services import reports
from apps.agreement.services.pairing import people_with_most_in_common, two_people
from apps.labeling.models import Comparison, Prompt, Response
from measures.agreement import pair_counts, pair_votes
from tests.agreement.crowd import crowd_write


@pytest.fixture
def crowd(project: Project) -> list[User]:
    """Three people: 0 and 1 agree on 12 of 16; 2 is against 0 throughout and was in 12 times."""
    crowd_write(project, [["a", "a", "b"]] * 12 + [["a", "tie"]] * 4)
    text = [{"role": "user", "content": "Which one?"}]
    Prompt.objects.filter(project=project).update(messages=text)
    Response.objects.filter(prompt__project=project).update(messages=text)
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
    assert "No comparison fits." in none


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
