"""Blocked phrases in the answers of runs: found in samples and in files, each once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.evaluation.models import FlaggedAnswer
from apps.labeling.services import labeling_settings_update
from apps.training.models import Run
from apps.training.services import scanning
from apps.training.services.scanning import answers_of, run_scan, scans_sweep
from tests.training.reports import report
from tests.training.test_constitution import file_put
from workers.contract import Finished, Opened, Sample

ASKED = [{"role": "user", "content": "How are you?"}]
BAD = "I love you, truly."
OPENED = Opened(total_steps=10, environment={})


@pytest.fixture
def phrases(project: Project, ada: User) -> None:
    labeling_settings_update(project=project, by=ada, constraint_phrases=["I love you"])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(scanning, "task_send", lambda task, job: found.append(job))
    return found


def ended(project: Project, kind: str = "ppo", **config: Any) -> Run:
    run = Run.objects.create(project=project, name="one", kind=kind, attempt=1, config=config)
    Run.objects.filter(pk=run.pk).update(state="finished", ended_at=run.created_at)
    run.refresh_from_db()
    return run


@pytest.mark.usefixtures("phrases")
def test_a_sample_with_a_blocked_phrase_is_flagged_as_it_arrives(run: Run) -> None:
    good = Sample(3, "random", ASKED, "Fine.", baseline="Well.")
    report(run, OPENED, good, Sample(4, "high", ASKED, BAD, baseline="I LOVE YOU too"))
    found = {(one.response, one.kind, one.reason) for one in FlaggedAnswer.objects.all()}
    reason = "Blocked phrase “I love you”"
    assert found == {(BAD, "rule", reason), ("I LOVE YOU too", "rule", reason)}
    assert FlaggedAnswer.objects.get(response=BAD).sample is not None


@pytest.mark.usefixtures("phrases")
@pytest.mark.parametrize(
    ("kind", "name", "row"),
    [
        ("evaluate", "outputs.jsonl", {"response": "ok", "other_response": BAD}),
        ("assess", "outputs.jsonl", {"response": BAD}),
        ("ppo", "audit.jsonl", {"response": "ok", "baseline": BAD}),
        ("grpo", "rollouts.jsonl", {"response": BAD, "step": 4}),
        ("generate", "blocked.jsonl", {"response": BAD, "reason": "rule x"}),
        (
            "generate",
            "candidates.jsonl",
            {"response_a": {"text": "ok"}, "response_b": {"text": BAD}},
        ),
        ("generate", "revisions.jsonl", {"chosen": [{"role": "assistant", "content": BAD}]}),
    ],
)
def test_every_file_of_answers_is_looked_through(
    project: Project, artifacts: Path, kind: str, name: str, row: dict[str, Any]
) -> None:
    run = ended(project, kind)
    file_put(
        run, artifacts, name, [{"prompt": ASKED, "response": "Fine."}, {"prompt": ASKED} | row]
    )
    assert run_scan(run_id=run.pk) == 1
    [flagged] = FlaggedAnswer.objects.all()
    assert (flagged.response, flagged.prompt, flagged.kind) == (BAD, ASKED, "rule")
    assert flagged.step == row.get("step", 0)
    run.refresh_from_db()
    assert run.scanned_at is not None


@pytest.mark.usefixtures("phrases")
def test_a_run_is_looked_through_once_and_an_answer_is_one_entry(
    project: Project, artifacts: Path
) -> None:
    run = ended(project)
    for name in ("audit.jsonl", "rollouts.jsonl"):
        file_put(run, artifacts, name, [{"prompt": ASKED, "response": BAD}] * 3)
    run_scan(run_id=run.pk)
    assert FlaggedAnswer.objects.count() == 1
    assert run_scan(run_id=run.pk) == 0
    Run.objects.filter(pk=run.pk).update(scanned_at=None)
    run_scan(run_id=run.pk)
    assert FlaggedAnswer.objects.count() == 1


@pytest.mark.usefixtures("phrases")
def test_pairs_that_go_to_people_are_held_there_and_do_not_come_twice(
    project: Project, artifacts: Path
) -> None:
    run = ended(project, "generate", to_people=True)
    row = {"prompt": ASKED, "response_a": {"text": BAD}, "response_b": {"text": "ok"}}
    file_put(run, artifacts, "candidates.jsonl", [row])
    assert run_scan(run_id=run.pk) == 0


@pytest.mark.usefixtures("phrases")
def test_a_file_that_is_gone_or_damaged_is_passed_over(project: Project, artifacts: Path) -> None:
    run = ended(project)
    gone = file_put(run, artifacts, "audit.jsonl", [{"prompt": ASKED, "response": BAD}])
    (artifacts / gone.uri).unlink()
    damaged = file_put(run, artifacts, "outputs.jsonl", [{"prompt": ASKED, "response": BAD}])
    (artifacts / damaged.uri).write_text('{"response": "other"}\n')
    file_put(run, artifacts, "rollouts.jsonl", [{"prompt": ASKED, "response": BAD}])
    assert run_scan(run_id=run.pk) == 1


@pytest.mark.usefixtures("phrases")
def test_a_phrase_that_is_everywhere_does_not_bury_the_inbox(
    project: Project, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "MOST_FLAGGED", 3)
    run = ended(project)
    rows = [{"prompt": ASKED, "response": f"{BAD} {k}"} for k in range(9)]
    file_put(run, artifacts, "rollouts.jsonl", rows)
    assert run_scan(run_id=run.pk) == 3
    run.refresh_from_db()
    assert run.scanned_at is not None


@pytest.mark.usefixtures("phrases")
def test_a_run_that_ends_is_sent_and_one_that_was_missed_is_swept(
    run: Run, sent: list[str], commits: Callable[..., Any]
) -> None:
    with commits():
        report(run, OPENED, Finished(step=1))
    assert sent == [run.pk]
    run.refresh_from_db()
    assert run.scanned_at is None
    assert scans_sweep() == 0, "it has just been sent"
    missed = ended(run.project)
    Run.objects.filter(pk=missed.pk).update(ended_at="2026-01-01T00:00:00Z")
    assert scans_sweep() == 1
    assert sent == [run.pk, missed.pk]
    scans_sweep()
    assert sent == [run.pk, missed.pk], "not again within two minutes"


def test_without_phrases_nothing_is_sent(
    run: Run, sent: list[str], commits: Callable[..., Any]
) -> None:
    with commits():
        report(run, OPENED, Finished(step=1))
    run.refresh_from_db()
    assert sent == []
    assert run.scanned_at == run.ended_at


def test_the_texts_that_a_model_wrote_are_found_in_any_row() -> None:
    row = {"prompt": "not this", "response": "a", "chosen": [{"content": "b"}], "rejected": []}
    assert list(answers_of(row | {"response_a": 7, "baseline": None})) == ["a", "b"]
