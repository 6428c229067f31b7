"""What one project may have of a machine at once, whichever web process is asked."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apps.common import turns
from apps.common.admission import HEAVY, PAGE, VOTE
from apps.common.errors import TooMany
from apps.common.slots import slot_taken
from apps.common.turns import Turn

PROJECT = 7_001  # of no other test


@pytest.fixture(autouse=True)
def _few_and_no_patience(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(turns, "_voting", lambda: tmp_path)
    monkeypatch.setattr(turns, "_told", {})
    monkeypatch.setattr(turns, "PATIENCE_S", 0.0)
    monkeypatch.setattr(turns, "MOST_PAGES", 1)
    monkeypatch.setattr(turns, "MOST_HEAVY", 1)


@contextmanager
def turn(kind: str, project: int = PROJECT) -> Iterator[Turn]:
    taken = Turn(kind)
    try:
        taken.take(person=1, project=project)
        yield taken
    finally:
        taken.give_back()


def test_one_project_has_few_places_and_another_has_its_own():
    with turn(HEAVY), turn(HEAVY, PROJECT + 1), turn(PAGE):
        refused = pytest.raises(TooMany, match="to this project")
        with refused, turn(HEAVY):
            pass
    with turn(HEAVY):
        pass


def test_votes_need_no_place():
    with turn(PAGE), turn(VOTE), turn(VOTE), pytest.raises(TooMany), turn(PAGE):
        pass


def test_while_people_vote_in_another_project_pages_have_fewer_places(monkeypatch, tmp_path):
    monkeypatch.setattr(turns, "MOST_PAGES", 2)
    monkeypatch.setattr(turns, "MOST_BESIDE_VOTES", 1)
    with turn(VOTE), turn(PAGE), turn(PAGE):
        pass  # votes of one's own
    with turn(VOTE, PROJECT + 1), turn(PAGE), pytest.raises(TooMany), turn(PAGE):
        pass
    long_ago = time.time() - turns.VOTES_LAST_S - 1
    os.utime(tmp_path / str(PROJECT + 1), (long_ago, long_ago))
    with turn(PAGE), turn(PAGE):
        pass


def test_a_request_whose_project_is_checked_twice_has_one_place():
    with turn(PAGE) as taken:
        taken.take(person=1, project=PROJECT)


def test_places_of_a_process_that_was_killed_are_free(tmp_path):
    """The other process is real: it takes the only place and says so."""
    program = (
        "import time; from apps.common.slots import slot_taken;"
        "print(slot_taken('killed', 1, wait=0), flush=True); time.sleep(600)"
    )
    other = subprocess.Popen(
        (sys.executable, "-c", program),
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline().strip().isdigit()
        assert slot_taken("killed", 1, wait=0) is None
        other.send_signal(signal.SIGKILL)
        other.wait()
        place = slot_taken("killed", 1, wait=0)
        assert place is not None
        os.close(place)
    finally:
        other.kill()
        other.wait()
        if other.stdout is not None:
            other.stdout.close()


def test_a_full_disk_stops_no_page(monkeypatch, caplog):
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(turns, "slot_taken", full)
    with turn(PAGE), turn(HEAVY), turn(HEAVY):
        assert "not counted" in caplog.text


@pytest.mark.django_db
def test_pages_and_downloads_take_places_of_the_machine_and_outsiders_none(
    ada, olga, project, signed_in
):
    page, file = f"/p/{project.slug}/overview/", f"/p/{project.slug}/disputes/rulings.csv"
    client = signed_in(ada)
    with turn(PAGE, project.pk):  # of another web process
        assert client.get(page).status_code == 429
        assert b"".join(client.get(file).streaming_content)  # what is heavy has its own
        assert client.get(f"/p/{project.slug}/label/").status_code != 429
        assert signed_in(olga).get(page).status_code == 404
    assert client.get(page).status_code == 200
    rows = client.get(file)
    with pytest.raises(TooMany), turn(HEAVY, project.pk):
        pass  # until the last row is sent
    b"".join(rows.streaming_content)
    with turn(HEAVY, project.pk):
        pass
