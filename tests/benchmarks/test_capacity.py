"""The capacity model: by hand, at its limits, and as docs/scale.md shows it."""

import json
from pathlib import Path

import pytest

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
    with pytest.raises(ValueError, match="no place for the table 'Anything'"):
        marked("", {"Anything": [{"a": 1}]})
