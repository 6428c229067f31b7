"""What `make test-system` compares at the end of its hour of faults finds what is planted here."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import pytest

from tests.system.checks import (
    Import,
    StoredText,
    StoredVote,
    attempt_faults,
    import_faults,
    step_faults,
    text_faults,
    unfinished,
    vote_faults,
    witness_faults,
)
from tests.system.faults import FAULTS, ON_DISKS, schedule

STORED = [StoredVote(pk, slot=100 + pk, person=pk % 4, comparison=pk // 4) for pk in range(1, 41)]
TOLD = [vote.pk for vote in STORED]
VALUES = [1 / step for step in range(1, 31)]
POINTS = list(enumerate(VALUES, 1))


def test_what_is_whole_is_not_complained_of() -> None:
    assert vote_faults(random.Random(1).sample(TOLD, len(TOLD)), STORED) == []
    assert step_faults("run", POINTS, VALUES) == []
    assert witness_faults("run", [{"what": "start", "attempt": 1}, {"what": "end"}]) == []
    assert import_faults([Import("a", "done", 40, 40), Import("b", "failed", 40, 0)]) == []
    assert unfinished("runs", {"a": "finished"}, {"finished"}) == []


WRITTEN = [StoredText(n, 1, f"words {n}", "accepted", 50 + n) for n in range(1, 9)]
SUBMITTED = [(one.text, one.version, one.words) for one in WRITTEN]
ACCEPTED = [one.text for one in WRITTEN]


@pytest.mark.parametrize(
    ("submitted", "accepted", "stored", "words"),
    [
        (SUBMITTED, ACCEPTED, WRITTEN[1:], "acknowledged and not stored as sent: 1"),
        (SUBMITTED[1:], ACCEPTED, WRITTEN, "never acknowledged: 1"),
        ([(1, 1, "words"), *SUBMITTED[1:]], ACCEPTED, WRITTEN, "not stored as sent: 1"),
        (SUBMITTED, ACCEPTED, [*WRITTEN, replace(WRITTEN[0], version=2)], "two versions: 1 (1)"),
        (SUBMITTED, ACCEPTED, [replace(WRITTEN[0], text=9), *WRITTEN], "words stored twice: 1"),
        (SUBMITTED, ACCEPTED, [replace(WRITTEN[0], prompt=None), *WRITTEN[1:]], "not a prompt: 1"),
        (SUBMITTED, ACCEPTED[1:], WRITTEN, "nobody was told: 1 (1)"),
        (SUBMITTED, ACCEPTED, [*WRITTEN[1:], replace(WRITTEN[0], prompt=52)], "two texts: 1 (52)"),
    ],
)
def test_texts_that_were_lost_or_doubled_are_named(
    submitted: Sequence[tuple[int, int, str]],
    accepted: Sequence[int],
    stored: Sequence[StoredText],
    words: str,
) -> None:
    assert text_faults(SUBMITTED, ACCEPTED, WRITTEN) == []
    assert words in " | ".join(text_faults(submitted, accepted, stored))


@pytest.mark.parametrize(
    ("told", "stored", "words"),
    [
        (TOLD, STORED[1:], "acknowledged and not stored: 1 (1)"),
        (TOLD[1:], STORED, "were never acknowledged: 1 (1)"),
        ([*TOLD, 7], STORED, "acknowledged twice: 1 (7)"),
        ([*TOLD, 99], [*STORED, replace(STORED[4], pk=99)], "slots with two votes: 1 (105)"),
        (
            [*TOLD, 99],
            [*STORED, replace(STORED[4], pk=99, slot=999)],
            "people with two votes on a comparison: 1 ((1, 1))",
        ),
    ],
)
def test_a_lost_and_a_doubled_vote_are_named(
    told: Sequence[int], stored: Sequence[StoredVote], words: str
) -> None:
    assert any(words in one for one in vote_faults(told, stored))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda points: points[:9] + points[10:], "steps lost: 1 (10)"),
        (lambda points: [*points[:9], points[8], *points[9:]], "steps doubled: 1 (9)"),
        (lambda points: [*points[:9], (10, 0.7), *points[10:]], "undisturbed run's: 1 (10)"),
        (lambda points: [points[1], points[0], *points[2:]], "out of order"),
        (lambda points: [], "no step was stored"),
    ],
)
def test_a_lost_a_doubled_and_a_changed_step_are_named(
    plant: Callable[[list[tuple[int, float]]], list[tuple[int, float]]], words: str
) -> None:
    assert any(words in one for one in step_faults("run", plant(POINTS), VALUES))


def test_points_that_were_said_once_and_stored_twice_are_named() -> None:
    assert attempt_faults("run/1", 30, 30) == attempt_faults("run/2", None, 9) == []
    assert attempt_faults("run/1", 30, 31) == ["run/1: 31 points stored of 30 that were said"]


def test_a_second_trainer_half_an_import_and_a_run_without_an_end_are_named() -> None:
    met = [{"what": "start", "attempt": 1}, {"what": "overlap", "attempt": 2}]
    assert witness_faults("run", met) == ["run: attempts that began while another trained: 1 (2)"]
    halves = [Import("a", "failed", 40, 17), Import("b", "done", 40, 39), Import("c", "done", 1, 0)]
    assert len(import_faults(halves)) == 3
    assert unfinished("runs", {"a": "running", "b": "finished"}, {"finished"}) == [
        "runs without an end: 1 (a)"
    ]


def test_each_turn_of_a_schedule_has_every_part_once_and_a_seed_says_which_fault() -> None:
    faults = (*FAULTS, *ON_DISKS)
    parts = {fault.part for fault in faults}
    turns = [
        list(islice(schedule(faults, seed=5), n, n + len(parts)))
        for n in range(0, 4 * len(parts), len(parts))
    ]
    assert all({one.part for one in turn} == parts for turn in turns)
    met = {(one.part, one.how) for turn in turns for one in turn}
    assert met == {(one.part, one.how) for one in faults}, "four turns, at most four faults a part"
    again, other = (list(islice(schedule(faults, seed=n), len(parts))) for n in (5, 6))
    assert again == turns[0] != other
