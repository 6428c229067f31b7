"""Comparisons come in all or none, each once, and every error says where."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import Membership, Project, User
from apps.labeling import services
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
from apps.labeling.services import RowsRefused, import_votes
from tests.labeling.pairs import pairs_make, rows_make

GOOD = {"prompt": "Which is larger?", "response_a": "The sun.", "response_b": "The moon."}


def imported(project: Project, *rows: object, **more: object) -> services.ImportReport:
    return services.comparisons_import(project=project, rows=rows, **more)


def test_a_row_becomes_a_prompt_two_responses_and_slots(project: Project) -> None:
    report = imported(
        project,
        GOOD
        | {
            "id": 7,
            "topic": "astronomy",
            "source": "quiz",
            "licence": "CC-BY-4.0",
            "language": "en",
            "gold": "A",
            "model_a": "larger-1",
            "origin_b": "human",
            "metadata": {"page": 3},
        },
        batch="first",
    )
    assert (report.n_created, report.n_prompts, report.n_responses, report.n_slots) == (1, 1, 2, 3)
    comparison = Comparison.objects.select_related("prompt", "response_a", "response_b").get()
    assert comparison.prompt.messages == [{"role": "user", "content": "Which is larger?"}]
    assert comparison.response_a.messages == [{"role": "assistant", "content": "The sun."}]
    assert (comparison.external_id, comparison.gold, comparison.batch) == ("7", "a", "first")
    assert (comparison.prompt.group_key, comparison.prompt.metadata) == ("astronomy", {"page": 3})
    assert (comparison.response_a.origin, comparison.response_a.origin_ref) == ("model", "larger-1")
    assert comparison.response_b.origin == "human"
    assert 0 <= comparison.shuffle < 1
    slots = comparison.slots.order_by("position")
    assert [slot.position for slot in slots] == [1, 2, 3]
    assert {slot.shuffle for slot in slots} == {comparison.shuffle}


def test_a_project_is_ready_for_labeling_after_its_first_import(project: Project) -> None:
    imported(project, GOOD)
    assert LabelingSettings.objects.filter(project=project).exists()
    assert Guideline.objects.get(project=project).version == 1


def test_a_conversation_is_kept_as_messages(project: Project) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "How are you?"},
    ]
    imported(project, GOOD | {"prompt": turns})
    assert Prompt.objects.get().messages == turns


def test_importing_the_same_file_twice_changes_nothing(project: Project) -> None:
    rows = rows_make(5)
    imported(project, *rows)
    before = list(Slot.objects.order_by("id").values())
    report = imported(project, *rows)
    assert (report.n_created, report.n_unchanged) == (0, 5)
    assert list(Slot.objects.order_by("id").values()) == before


def test_rows_without_ids_are_recognised_by_their_texts(project: Project) -> None:
    imported(project, GOOD)
    swapped = GOOD | {"response_a": GOOD["response_b"], "response_b": GOOD["response_a"]}
    report = imported(project, GOOD, swapped, GOOD | {"prompt": "Which is larger?  \r\n"})
    assert (report.n_created, report.n_unchanged) == (0, 3)


def test_two_ids_for_one_pair_are_kept_with_a_warning(project: Project) -> None:
    report = imported(project, GOOD | {"id": "one"}, GOOD | {"id": "two"})
    assert report.n_created == 2
    (warning,) = report.warnings
    assert (warning.row, warning.field, warning.kind) == (2, "id", "duplicate")
    assert "row 1" in warning.message


def test_an_answer_that_differs_in_indentation_is_an_answer_of_its_own(project: Project) -> None:
    report = imported(
        project, GOOD | {"response_a": "if x:\n  y()", "response_b": "if x:\n    y()"}
    )
    assert Response.objects.count() == 2
    assert (report.warnings[0].field, report.warnings[0].kind) == ("response_b", "identical")


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"prompt": None}, "prompt", "is missing"),
        ({"prompt": "  "}, "prompt", "empty"),
        ({"prompt": 3}, "prompt", "text or a list"),
        ({"prompt": [{"role": "robot", "content": "x"}]}, "prompt", "role 'robot'"),
        ({"prompt": [{"role": "user"}]}, "prompt", "no text"),
        ({"prompt": []}, "prompt", "empty list"),
        ({"response_a": None}, "response_a", "is missing"),
        ({"response_b": GOOD["response_a"]}, "response_b", "same text"),
        ({"response_b": "nul \x00"}, "response_b", "NUL"),
        ({"respons_b": "x"}, "respons_b", "not a known field"),
        ({"gold": "c"}, "gold", "one of a, b"),
        ({"origin": "alien"}, "origin", "one of import"),
        ({"stratum": "best"}, "stratum", "one of random"),
        ({"priority": "high"}, "priority", "finite number"),
        ({"priority": float("nan")}, "priority", "finite number"),
        ({"overlap": 9}, "overlap", "from 1 to 5"),
        ({"topic": "x" * 201}, "topic", "at most 200"),
        ({"licence": 4}, "licence", "must be a text"),
        ({"metadata": []}, "metadata", "object"),
        ({"model_a": "one", "origin_ref_a": "two"}, "model_a", "differs"),
        ({"id": "x" * 121}, "id", "at most 120"),
    ],
)
def test_every_error_names_its_row_and_field(
    project: Project, change: dict, field: str, message: str
) -> None:
    with pytest.raises(RowsRefused) as caught:
        imported(project, GOOD, GOOD | {"id": "bad"} | change)
    (problem,) = caught.value.problems
    assert (problem.row, problem.field) == (2, field)
    assert message in problem.message
    assert (caught.value.row, caught.value.field) == (2, field)
    assert not Comparison.objects.exists()
    assert not Prompt.objects.exists()


def test_all_bad_rows_are_listed_at_once(project: Project) -> None:
    with pytest.raises(RowsRefused, match="2 of 3 rows") as caught:
        imported(project, GOOD | {"gold": "x"}, GOOD, "not an object")
    assert [(p.row, p.field) for p in caught.value.problems] == [(1, "gold"), (3, "row")]


def test_bad_rows_can_be_skipped_and_are_reported(project: Project) -> None:
    report = imported(project, GOOD | {"gold": "x"}, GOOD, on_error="skip")
    assert (report.n_rows, report.n_created, report.n_refused) == (2, 1, 1)
    assert report.problems[0].row == 1


def test_the_same_id_twice_in_a_file_is_an_error(project: Project) -> None:
    with pytest.raises(RowsRefused, match=r"row 2, id: .* row 1 "):
        imported(project, GOOD | {"id": "x"}, GOOD | {"id": "x", "prompt": "Another?"})


def test_a_known_id_with_other_texts_is_an_error(project: Project) -> None:
    imported(project, GOOD | {"id": "x"})
    with pytest.raises(RowsRefused) as caught:
        imported(project, GOOD | {"id": "x", "response_a": "Neither."})
    assert (caught.value.row, caught.value.field) == (1, "id")


def test_identical_answers_of_two_origins_can_be_kept_on_request(project: Project) -> None:
    same = GOOD | {"response_b": GOOD["response_a"], "origin_ref_a": "x", "origin_ref_b": "y"}
    with pytest.raises(RowsRefused):
        imported(project, same)
    report = imported(project, same, identical_answers="warn")
    assert report.n_created == 1
    assert "same text" in report.warnings[0].message


def test_the_shuffle_depends_on_the_seed_and_not_on_the_order_of_rows(project: Project) -> None:
    rows = rows_make(20)
    imported(project, *reversed(rows), seed=4)
    order = dict(Comparison.objects.values_list("external_id", "shuffle"))
    assert len(set(order.values())) == 20
    Slot.objects.all().delete()
    Comparison.objects.all().delete()
    imported(project, *rows, seed=4)
    assert dict(Comparison.objects.values_list("external_id", "shuffle")) == order
    Slot.objects.all().delete()
    Comparison.objects.all().delete()
    imported(project, *rows, seed=5)
    assert dict(Comparison.objects.values_list("external_id", "shuffle")) != order


def test_prompts_and_responses_are_stored_once(project: Project) -> None:
    texts = ["one", "two", "three", "four"]
    rows = [
        {"prompt": "Rank these", "response_a": a, "response_b": b}
        for i, a in enumerate(texts)
        for b in texts[i + 1 :]
    ]
    report = imported(project, *rows)
    assert (report.n_created, report.n_prompts, report.n_responses) == (6, 1, 4)


def test_two_thousand_rows_are_imported_in_linear_time(project: Project) -> None:
    started = time.process_time()
    report = imported(project, *rows_make(2200))
    assert report.n_slots == 6600
    assert time.process_time() - started < 60  # 0.7 s on an idle core


def test_plans_are_made_for_what_an_import_brought(project: Project) -> None:
    """Plans kept from a table of a few rows would read all of a large one for each vote."""
    services.comparisons_import(project=project, rows=rows_make(600))
    with connection.cursor() as cursor:
        cursor.execute(
            "select relname, reltuples from pg_class where relname = any(%s)",
            [["labeling_slot", "labeling_task"]],
        )
        assert dict(cursor.fetchall()) == {"labeling_slot": 1800, "labeling_task": 600}


# Past votes come in through the same steps as any vote, once, with their people.

ROWS = [
    {"comparison": "pair-1", "annotator": "w1", "choice": "A"},
    {"comparison": "pair-1", "annotator": "w2", "choice": "a"},
    {"comparison": "pair-1", "annotator": "w3", "choice": "a"},
    {"comparison": "pair-2", "annotator": "w1", "choice": "b"},
    {"comparison": "pair-2", "annotator": "w2", "choice": "tie"},
]


def votes_imported(project: Project, *rows: object, **more: object) -> services.VotesReport:
    return services.votes_import(project=project, rows=rows, **more)


def test_past_votes_are_stored_counted_and_decided(project: Project) -> None:
    pairs_make(project, 2)
    seen: list[tuple[int, int]] = []
    report = votes_imported(project, *ROWS, progress=lambda done, total: seen.append((done, total)))
    assert (report.n_rows, report.n_created, report.n_people) == (5, 5, 3)
    assert seen == [(0, 5), (5, 5)]
    assert Decision.objects.get(comparison__external_id="pair-1").winner == "a"
    assert Comparison.objects.get(external_id="pair-2").n_votes == 2
    vote = Vote.objects.order_by("id").first()
    assert (vote.source, vote.left_is, vote.active_ms, vote.guideline) == ("import", "", None, None)


def test_imported_annotators_are_people_who_cannot_sign_in(project: Project) -> None:
    pairs_make(project, 2)
    votes_imported(project, *ROWS)
    people = User.objects.filter(is_imported=True).order_by("display_name")
    assert [str(person) for person in people] == ["w1", "w2", "w3"]
    assert {(person.is_active, person.password) for person in people} == {(False, "!")}
    assert Membership.objects.filter(user__in=people, role="annotator").count() == 3
    vote = Vote.objects.get(comparison__external_id="pair-2", annotator=people[1])
    assert vote.choice == "tie"


def test_the_same_file_twice_changes_nothing(project: Project) -> None:
    pairs_make(project, 2)
    votes_imported(project, *ROWS)
    before = list(Vote.objects.order_by("id").values())
    report = votes_imported(project, *ROWS)
    assert (report.n_created, report.n_unchanged, report.n_people) == (0, 5, 0)
    assert list(Vote.objects.order_by("id").values()) == before


def test_votes_beyond_the_overlap_get_slots_up_to_the_maximum(project: Project) -> None:
    pairs_make(project, 1, overlap=3, max_overlap=5)
    report = votes_imported(
        project, *({"comparison": "pair-1", "annotator": n, "choice": "a"} for n in range(5))
    )
    assert report.n_created == 5
    comparison = Comparison.objects.get()
    assert (comparison.n_votes, comparison.overlap) == (5, 5)


def test_the_time_of_a_past_vote_is_kept(project: Project) -> None:
    pairs_make(project, 1)
    votes_imported(project, ROWS[0] | {"cast_at": "2024-02-29T12:00:00"})
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
def test_every_error_of_a_vote_names_its_row_and_field(
    project: Project, row: dict, field: str, message: str
) -> None:
    pairs_make(project, 2)
    with pytest.raises(RowsRefused) as caught:
        votes_imported(project, *ROWS, ROWS[0] | row)
    (problem,) = caught.value.problems
    assert (problem.row, problem.field) == (6, field)
    assert message in problem.message
    assert not Vote.objects.exists()
    assert not User.objects.filter(is_imported=True).exists()


def test_more_votes_than_a_comparison_takes_are_refused_by_row(project: Project) -> None:
    pairs_make(project, 1, overlap=3, max_overlap=3)
    rows = [{"comparison": "pair-1", "annotator": n, "choice": "a"} for n in range(4)]
    with pytest.raises(RowsRefused, match="row 4, comparison:"):
        votes_imported(project, *rows)
    report = votes_imported(project, *rows, on_error="skip")
    assert (report.n_created, report.n_refused) == (3, 1)


def past_votes(n_pairs: int, n_people: int, choice: str = "b") -> list[dict[str, str]]:
    return [
        {"comparison": f"pair-{number}", "annotator": f"w{worker}", "choice": choice}
        for worker in range(n_people)
        for number in range(1, n_pairs + 1)
    ]


def test_votes_go_in_parts_that_keep_a_comparison_together(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs_make(project, 40)
    monkeypatch.setattr(import_votes, "BATCH", 50)
    steps: list[int] = []
    report = votes_imported(
        project, *past_votes(40, 3), progress=lambda done, _total: steps.append(done)
    )
    assert steps == [0, 51, 102, 120]
    assert report.n_created == 120
    assert Decision.objects.filter(outcome="accepted", winner="b", n_b=3).count() == 40
    assert Comparison.objects.filter(state="decided", n_votes=3).count() == 40


def test_an_import_of_votes_that_was_cut_off_goes_on_with_every_vote_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs_make(project, 40)
    monkeypatch.setattr(import_votes, "BATCH", 50)
    recount, calls = import_votes.votes_recount, []

    def cut_off(**given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return recount(**given)

    monkeypatch.setattr(import_votes, "votes_recount", cut_off)
    with pytest.raises(KeyboardInterrupt):
        votes_imported(project, *past_votes(40, 3))
    assert Vote.objects.count() == 51
    report = votes_imported(project, *past_votes(40, 3))
    assert (report.n_created, report.n_unchanged) == (69, 51)
    assert Vote.objects.values("comparison", "annotator").distinct().count() == 120
    assert Vote.objects.count() == 120
    assert Decision.objects.filter(winner="b", n_b=3).count() == 40


def test_a_free_place_is_taken_first_and_a_pair_in_hand_stays_with_its_person(
    project: Project, ana: User
) -> None:
    pairs_make(project, 1, overlap=3, max_overlap=5)
    lease = services.slot_lease_next(project=project, annotator=ana)
    votes_imported(project, *past_votes(1, 4))
    assert Comparison.objects.get().overlap == 5
    assert Slot.objects.get(annotator=ana).state == "leased"
    result = services.vote_cast(
        slot=lease.slot, annotator=ana, idempotency_key=lease.key, choice="a"
    )
    assert (result.decision.n_votes, result.decision.winner) == (5, "b")


def test_what_a_person_ruled_is_kept_when_votes_come_in(project: Project, ada: User) -> None:
    first, second = sorted(pairs_make(project, 2), key=lambda pair: pair.external_id)
    services.comparison_adjudicate(comparison=first, choice="a", reason="Seen.", by=ada)
    services.comparison_drop(comparison=second, by=ada)
    votes_imported(project, *past_votes(2, 3), make_room=True)
    decisions = Decision.objects.order_by("comparison__external_id")
    assert [(d.outcome, d.winner, d.n_b) for d in decisions] == [
        ("adjudicated", "a", 3),
        ("dropped", "", 3),
    ]


def test_a_file_may_bring_more_votes_than_the_project_asks_for(project: Project) -> None:
    pairs_make(project, 2, overlap=3, max_overlap=5)
    report = votes_imported(project, *past_votes(1, 10), make_room=True)
    assert (report.n_created, report.n_refused) == (10, 0)
    comparison = Comparison.objects.get(external_id="pair-1")
    assert (comparison.n_votes, comparison.overlap, comparison.state) == (10, 10, "decided")
    assert LabelingSettings.objects.get().max_overlap == 5
    assert Comparison.objects.get(external_id="pair-2").overlap == 3
