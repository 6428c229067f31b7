"""What a live run lets others read of its answers, and how they are read."""

import json

import pytest

from tests.workers.checks.conftest import Case
from tests.workers.recipes.language import Notebook, Outcome
from workers.artifacts import ArtifactError
from workers.checks.kept import read_kept
from workers.context import RunContext
from workers.contract.events import RecipeError
from workers.ppo.checkpoint import KEPT_S, PAUSE_S, Kept


def test_the_answers_of_a_run_are_published_with_every_checkpoint(
    case: Case, trained: Outcome
) -> None:
    saved = [one for one in trained.all("ArtifactSaved") if one["name"] == "rollouts.jsonl"]
    assert [len(list(case.store.lines(one["uri"]))) for one in saved] == [64, 128]
    for one in saved:  # each still is what it was named by
        case.store.get_file(one["uri"], sha256=one["sha256"], cache=case.root)


def test_older_ones_make_room_after_a_while_and_nothing_is_published_twice(case: Case) -> None:
    spec = case.spec("publishing", "ppo", {})
    notebook = Notebook(spec)
    folder = case.root / "publishing"
    folder.mkdir()
    time = [0.0]
    context = RunContext(spec, case.store, folder, notebook, clock=lambda: time[0])
    kept = Kept(10)

    def saved() -> list[dict]:
        return [envelope["event"] for envelope in notebook.envelopes]

    kept.publish(context)
    assert saved() == [], "there is nothing yet"
    for step, moment in enumerate((0.0, 1.0, PAUSE_S, PAUSE_S + KEPT_S + 1.0)):
        time[0] = moment
        kept.add([{"step": step}])
        for _ in range(2):
            kept.publish(context, pause_s=PAUSE_S)
    assert len(saved()) == 3, "the second came too soon"
    there = [case.store.exists(one["uri"]) for one in saved()]
    assert there == [False, False, True]
    with pytest.raises(ArtifactError, match="missing"):
        case.store.get_file(saved()[0]["uri"], sha256=saved()[0]["sha256"], cache=folder)
    kept.add([{"step": 9}])
    kept.publish(context)
    assert len(saved()) == 4, "the end does not wait"


def test_kept_answers_are_named_by_step_and_place_and_bad_lines_by_their_number(
    case: Case, kept: list[dict]
) -> None:
    spec = case.spec("reading", "check", {}, rollouts="rollouts")
    context = RunContext(spec, case.store, case.root)
    rows = read_kept(context, last=40)
    assert [row.id for row in rows[:2]] == ["3/24", "3/25"]
    assert (rows[-1].id, rows[-1].reward) == ("4/31", kept[-1]["reward"])
    case.put_file("bad", [*kept[:3], {"step": 1}])
    context = RunContext(case.spec("bad", "check", {}, rollouts="bad"), case.store, case.root)
    with pytest.raises(RecipeError, match="line 4: is no kept answer"):
        read_kept(context, last=40)
    case.put_file("torn", kept[:2])
    ref = case.refs["torn"]
    path = case.root / "store" / ref.uri
    path.write_text(path.read_text() + json.dumps(kept[2])[:20])
    with pytest.raises(RecipeError) as raised:
        read_kept(
            RunContext(case.spec("torn", "check", {}, rollouts="torn"), case.store, case.root),
            last=40,
        )
    assert raised.value.kind == "damaged_input"
