"""What the load benchmarks measure and check by."""

import ast
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps.accounts.models import Project, User
from apps.labeling import services
from apps.labeling.models import Comparison, Slot
from benchmarks import __main__ as bench
from benchmarks.capacity_world.gpus import (
    Gpu,
    Model,
    Traffic,
    decode_tokens_per_s,
    ppo_step,
    scoring_gpus,
    serving_gpus,
)
from benchmarks.capacity_world.people import Crowd, Measured, load_of
from benchmarks.capacity_world.tables import TABLES, marked
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
    assert [read.name for read in found] == ["ELIGIBILITY_LOCK", "DRAW"]
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
    with pytest.raises(AssertionError, match="of votes': 2"):
        projects.checked(project, stored)


# The capacity model: by hand, at its limits, and as docs/scale.md shows it.


ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks/capacity_world/measured.json"
ROUND = Measured(
    vote_web_ms=4,
    vote_postgres_ms=2,
    vote_redis_ms=0.1,
    vote_redis_commands=10,
    vote_wal_bytes=5_000,
    vote_stored_bytes=1_000,
    batch_web_ms=5,
    batch_postgres_ms=1,
    batch_redis_commands=2,
    batch_wal_bytes=10_000,
    batch_points=500,
    million_points_bytes=4e6,
)
# A thousand operations and a hundred bytes a second, all of it reached.
TOY = Gpu("toy", 1_000, 1_000, 100, flops_reached=1, bandwidth_reached=1)


def test_servers_for_a_round_number_of_people_are_what_one_gets_by_hand() -> None:
    load = load_of(ROUND, Crowd(1_500, at_once=1.0, comes=1.0), runs=0)
    assert Crowd(1_500, 1.0, 1.0).votes_per_s == pytest.approx(100)
    assert load.web_cores == pytest.approx(0.8), "100 votes × 4 ms, half of a core's time"
    assert load.postgres_cores == pytest.approx(0.4)
    assert load.postgres_wal_mb_s == pytest.approx(0.5)
    assert load.redis_commands_s == pytest.approx(1_000)
    assert load.postgres_gb_day == pytest.approx(1_500 * 240 * 6 * 1_000 / 1e9)


def test_a_hundred_runs_ask_for_events_and_not_for_web_cores() -> None:
    load = load_of(ROUND, Crowd(0, 0.0, 0.0), runs=100)
    assert load.web_cores == 0
    assert load.event_cores == pytest.approx(20 * 5 / 1000 / 0.5), "a batch every five seconds"
    assert load.redis_commands_s == pytest.approx(100 * 4 + 20 * 2)


def test_generation_is_bound_by_memory_with_few_answers_and_by_operations_with_many() -> None:
    narrow = Model("m", parameters=100, kv_bytes=0.001, weight_bytes=2)
    one = decode_tokens_per_s(TOY, narrow, 1, most_rows=1)
    assert one == pytest.approx(1 / 2, rel=0.01), "200 bytes of weights at 100 a second"
    many = decode_tokens_per_s(TOY, narrow, 1, most_rows=1_000)
    assert many == pytest.approx(1_000 / 200), "200 operations a token"
    assert decode_tokens_per_s(TOY, Model("big", 1_000, 1), 1) == 0, "weights that do not fit"


def test_a_cache_and_a_share_save_what_they_say() -> None:
    model = Model("m", parameters=100, kv_bytes=0.1)
    whole, half = Traffic(10, 3, 2), Traffic(10, 3, 2, cached=0.5)
    assert serving_gpus(TOY, model, half) == pytest.approx(serving_gpus(TOY, model, whole) / 2)
    assert scoring_gpus(TOY, model, whole, share=0.1) == pytest.approx(10 * 0.1 * 5 * 200 / 1_000)


def test_four_epochs_cost_four_updates_and_nothing_else() -> None:
    model = Model("m", parameters=100, kv_bytes=0.1)
    one, four = (
        ppo_step(TOY, model, model, answers=2, prompt=3, answer=2, epochs=epochs)
        for epochs in (1, 4)
    )
    assert four.update == pytest.approx(4 * one.update) == pytest.approx(4 * 10 * 600 / 1_000)
    assert four.whole - four.update == pytest.approx(one.whole - one.update)


def test_the_page_shows_what_the_model_says_of_the_figures_on_record() -> None:
    found = Measured(**json.loads(RECORD.read_text()))
    page = (ROOT / "docs/scale.md").read_text()
    assert marked(page, {title: make(found) for title, make in TABLES.items()}) == page


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="'Anything'"):
        marked("", {"Anything": [{"a": 1}]})
