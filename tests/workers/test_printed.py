"""What a trainer prints is reported as it comes, in bounds and without secrets."""

from pathlib import Path

import pytest

from workers.contract.events import Event, Log
from workers.printed import LONGEST_LINE, MOST_BYTES, MOST_LINES, Printed
from workers.redaction import redacted


@pytest.fixture
def told() -> list[Event]:
    return []


def lines(told: list[Event]) -> list[str]:
    assert all(isinstance(event, Log) and event.level == "output" for event in told)
    return [line for event in told if isinstance(event, Log) for line in event.lines]


def test_whole_lines_come_once_and_a_torn_one_when_it_ends(
    tmp_path: Path, told: list[Event]
) -> None:
    path = tmp_path / "trainer.log"
    printed = Printed(path, told.append)
    printed.look()  # nothing was printed yet
    path.write_text("first\nsec")
    printed.look()
    assert lines(told) == ["first"]
    with path.open("a") as file:
        file.write("ond\n\n 1%|#  |\r100%|###|\nTraceback: no end")
    printed.look()
    printed.stop()
    assert lines(told) == ["first", "second", "100%|###|", "Traceback: no end"]


def test_a_loop_that_prints_fills_neither_a_batch_nor_the_database(
    tmp_path: Path, told: list[Event]
) -> None:
    path = tmp_path / "trainer.log"
    printed = Printed(path, told.append)
    for _ in range(40):
        with path.open("a") as file:
            file.write(f"{'x' * 2 * LONGEST_LINE}\n" * 2 * MOST_LINES)
        printed.look()
    assert max(len(event.lines) for event in told if isinstance(event, Log)) <= MOST_LINES + 2
    assert sum(map(len, lines(told))) < MOST_BYTES + (MOST_LINES + 2) * LONGEST_LINE
    assert "alone" in lines(told)[-1]


@pytest.mark.parametrize(
    "text", ["token hunter2hunter2", "hf_abcdefghijk", "Bearer abcdefghij", "redis://me:pw123@box"]
)
def test_secrets_are_left_out(text: str) -> None:
    said = redacted(text, {"REWARD_TOKEN": "hunter2hunter2", "HOME": "/home/emil"})
    path = "BACKUP_KEY_FILE=/etc/concord/backup.key cannot be read"
    assert redacted(path, {"BACKUP_KEY_FILE": "/etc/concord/backup.key"}) == path
    assert "[secret]" in said
    assert not any(word in said for word in ("hunter2", "abcdefghij", "pw123"))
