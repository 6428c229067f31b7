"""Past votes come in through the same steps as any vote, once, with their people."""

from datetime import UTC, datetime

import pytest

from apps.accounts.models import Membership, Project, User
from apps.labeling import services
from apps.labeling.models import Comparison, Decision, Vote
from apps.labeling.services import RowsRefused
from tests.labeling.pairs import pairs_make

ROWS = [
    {"comparison": "pair-1", "annotator": "w1", "choice": "A"},
    {"comparison": "pair-1", "annotator": "w2", "choice": "a"},
    {"comparison": "pair-1", "annotator": "w3", "choice": "a"},
    {"comparison": "pair-2", "annotator": "w1", "choice": "b"},
    {"comparison": "pair-2", "annotator": "w2", "choice": "tie"},
]


def imported(project: Project, *rows: object, **more: object) -> services.VotesReport:
    return services.votes_import(project=project, rows=rows, **more)


def test_past_votes_are_stored_counted_and_decided(project: Project) -> None:
    pairs_make(project, 2)
    seen: list[tuple[int, int]] = []
    report = imported(project, *ROWS, progress=lambda done, total: seen.append((done, total)))
    assert (report.n_rows, report.n_created, report.n_people) == (5, 5, 3)
    assert seen == [(5, 5)]
    assert Decision.objects.get(comparison__external_id="pair-1").winner == "a"
    assert Comparison.objects.get(external_id="pair-2").n_votes == 2
    vote = Vote.objects.order_by("id").first()
    assert (vote.source, vote.left_is, vote.active_ms, vote.guideline) == ("import", "", None, None)


def test_imported_annotators_are_people_who_cannot_sign_in(project: Project) -> None:
    pairs_make(project, 2)
    imported(project, *ROWS)
    people = User.objects.filter(is_imported=True).order_by("display_name")
    assert [str(person) for person in people] == ["w1", "w2", "w3"]
    assert {(person.is_active, person.password) for person in people} == {(False, "!")}
    assert Membership.objects.filter(user__in=people, role="annotator").count() == 3
    vote = Vote.objects.get(comparison__external_id="pair-2", annotator=people[1])
    assert vote.choice == "tie"


def test_the_same_file_twice_changes_nothing(project: Project) -> None:
    pairs_make(project, 2)
    imported(project, *ROWS)
    before = list(Vote.objects.order_by("id").values())
    report = imported(project, *ROWS)
    assert (report.n_created, report.n_unchanged, report.n_people) == (0, 5, 0)
    assert list(Vote.objects.order_by("id").values()) == before


def test_votes_beyond_the_overlap_get_slots_up_to_the_maximum(project: Project) -> None:
    pairs_make(project, 1, overlap=3, max_overlap=5)
    report = imported(
        project, *({"comparison": "pair-1", "annotator": n, "choice": "a"} for n in range(5))
    )
    assert report.n_created == 5
    comparison = Comparison.objects.get()
    assert (comparison.n_votes, comparison.overlap) == (5, 5)


def test_the_time_of_a_past_vote_is_kept(project: Project) -> None:
    pairs_make(project, 1)
    imported(project, ROWS[0] | {"cast_at": "2024-02-29T12:00:00"})
    assert Vote.objects.get().cast_at == datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ({"comparison": "pair-9"}, "comparison", "'pair-9'"),
        ({"annotator": ""}, "annotator", "missing"),
        ({"choice": "c"}, "choice", "one of a, b"),
        ({"choice": None}, "choice", "one of a, b"),
        ({"choice": "b"}, "choice", "already voted 'a'"),
        ({"annotator": "w9", "cast_at": "yesterday"}, "cast_at", "not a time"),
        ({"annotator": "w9", "cast_at": "2999-01-01T00:00:00Z"}, "cast_at", "future"),
        ({"annotator": "w9", "strength": 7}, "strength", "1 (slightly)"),
        ({"annotator": "w9", "side": "left"}, "side", "not a known field"),
    ],
)
def test_every_error_names_its_row_and_field(
    project: Project, row: dict, field: str, message: str
) -> None:
    pairs_make(project, 2)
    with pytest.raises(RowsRefused) as caught:
        imported(project, *ROWS, ROWS[0] | row)
    (problem,) = caught.value.problems
    assert (problem.row, problem.field) == (6, field)
    assert message in problem.message
    assert not Vote.objects.exists()
    assert not User.objects.filter(is_imported=True).exists()


def test_more_votes_than_a_comparison_takes_are_refused_by_row(project: Project) -> None:
    pairs_make(project, 1, overlap=3, max_overlap=3)
    rows = [{"comparison": "pair-1", "annotator": n, "choice": "a"} for n in range(4)]
    with pytest.raises(RowsRefused, match=r"row 4, comparison: is full"):
        imported(project, *rows)
    report = imported(project, *rows, on_error="skip")
    assert (report.n_created, report.n_refused) == (3, 1)


def test_a_thousand_votes_go_in_transactions_of_five_hundred(project: Project) -> None:
    pairs_make(project, 400)
    rows = [
        {"comparison": f"pair-{number}", "annotator": worker, "choice": "b"}
        for number in range(1, 401)
        for worker in ("w1", "w2", "w3")
    ]
    steps: list[int] = []
    report = imported(project, *rows, progress=lambda done, _total: steps.append(done))
    assert steps == [500, 1000, 1200]
    assert report.n_created == 1200
    assert Decision.objects.filter(winner="b").count() == 400
