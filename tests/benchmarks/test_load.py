"""What the load benchmarks measure and check by."""

import ast
import os
import random
import subprocess
import sys
import time

import pytest

from apps.accounts.models import Project, User
from apps.labeling import services
from apps.labeling.models import Comparison, Slot
from benchmarks import __main__ as bench
from benchmarks.load import projects, stages
from benchmarks.load.cpu import Servers
from benchmarks.load.players import opinion
from tests.labeling.pairs import pairs_make, vote


def test_every_benchmark_that_is_listed_has_a_description_and_a_main() -> None:
    names = bench.listed()
    assert {"agreement", "labeling", "labeling_cycle", "labeling_scale"} <= set(names)
    for name, words in names.items():
        tree = ast.parse((bench.FOLDER / f"{name}.py").read_text())
        assert "main" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert words.endswith("."), name


def test_a_step_is_not_charged_for_the_steps_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(stages.time, "thread_time", lambda: now)

    def pass_seconds(seconds: float) -> None:
        nonlocal now
        now += seconds

    counted = stages.Stages()
    inner = counted.timed("inner", lambda: pass_seconds(0.002))

    def work() -> None:
        pass_seconds(0.005)
        inner()
        inner()

    counted.timed("outer", work)()
    assert counted.spent == pytest.approx({"inner": 4.0, "outer": 5.0})


def test_a_wrapped_function_is_itself_again_afterwards() -> None:
    counted, plain = stages.Stages(), time.gmtime
    with counted.wrapping({"clock": ("time.gmtime",)}):
        assert time.gmtime is not plain
        time.gmtime()
    assert time.gmtime is plain
    assert set(counted.spent) == {"clock"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_cpu_of_a_process_includes_that_of_its_children() -> None:
    """The shell does nothing; its child works until it has used 0.2 s of CPU, and then ends."""
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    shell = subprocess.Popen(
        ["sh", "-c", f"'{sys.executable}' -c '{burn}'; echo done; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    servers = Servers(web=shell.pid, postgres=os.getpid(), redis=shell.pid)
    before = servers.used()
    assert shell.stdout.readline() == b"done\n"
    spent = servers.used().since(before)
    shell.communicate(b"\n")
    assert 150 <= spent.web <= 2000
    assert spent.busy >= 100
    assert spent.server == spent.web + spent.postgres + spent.redis


def test_the_statements_of_a_hand_out_are_explained_and_nothing_is_kept(
    project: Project, ana: User
) -> None:
    from benchmarks.labeling_world.explain import reads

    pairs_make(project, 3)
    found = reads(lambda: services.slot_lease_next(project=project, annotator=ana))
    assert [read.name for read in found] == ["SEAT", "DRAW"]
    assert all(0 < read.buffers < 1000 and read.milliseconds > 0 for read in found)
    assert not Slot.objects.filter(state="leased").exists()


def test_annotators_mostly_agree_on_the_longer_answer_whichever_side_it_is_on() -> None:
    draw = random.Random(1)
    for longer, lengths in (("left", (9, 3)), ("right", (3, 9))):
        said = [opinion(draw, *lengths) for _ in range(1000)]
        assert 650 < said.count(longer) < 750
        assert 50 < said.count("tie") < 150


def test_a_vote_that_was_not_acknowledged_or_not_stored_stops_the_benchmark(
    project: Project, ana: User
) -> None:
    pairs_make(project, 3)
    stored = [vote(project, ana).vote.pk for _ in range(2)]
    assert projects.checked(project, stored) == {"votes": 2, "faults": 0}
    for told in (stored[:1], [*stored, 10**9], [*stored, stored[0]]):
        with pytest.raises(AssertionError, match="acknowledged"):
            projects.checked(project, told)
    Comparison.objects.filter(n_votes=1).update(n_votes=2)
    with pytest.raises(AssertionError, match="'a wrong count of votes': 2"):
        projects.checked(project, stored)
