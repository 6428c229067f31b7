"""Files of what was written or labelled elsewhere become datasets, whole or not at all."""

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import Conflict, DomainError
from apps.labeling import dispatch, services
from apps.labeling.forms.imports import ImportSettingsForm
from apps.labeling.models import Comparison, ImportJob, Vote
from apps.labeling.screens import imports as import_screens
from apps.labeling.services import comparisons_import
from apps.snapshots import exports
from apps.snapshots.models import Snapshot
from apps.snapshots.selectors.snapshots import recipe_over_defaults
from apps.snapshots.services import importing
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.importing import snapshot_import
from apps.snapshots.storage import artifact_store
from apps.training.models import RunInput
from apps.training.services import run_launch
from tests.labeling.conftest import inline_parsing
from tests.training.conftest import wire  # noqa: F401 — a fixture
from tests.training.test_launching import model
from workers.data.snapshot import (
    evaluation_splits,
    read_demonstrations,
    read_judged_answers,
    read_judged_steps,
    read_preferences,
    read_prompts,
)
from workers.environments.tasks import task_rows
from workers.environments.worlds import tasks_of

__all__ = ["inline_parsing"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("inline_parsing", "wire")]
State = ImportJob.State
Upload = Callable[..., ImportJob]


@pytest.fixture(autouse=True)
def _nobody_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "import_send", lambda job: True)


@pytest.fixture
def upload(project: Project, emil: User) -> Upload:
    def make(makes: str, rows: list[dict[str, Any]] | bytes, name: str = "rows.jsonl") -> ImportJob:
        text = "".join(json.dumps(row) + "\n" for row in rows) if isinstance(rows, list) else rows
        content = text.encode() if isinstance(text, str) else text
        return services.import_job_create(
            project=project, by=emil, file_name=name, chunks=[content], makes=makes
        )

    return make


def run(job: ImportJob) -> ImportJob:
    services.import_job_run(job=job.pk)
    job.refresh_from_db()
    return job


def checked(job: ImportJob) -> ImportJob:
    services.import_job_check(job=job)
    return run(job)


def frozen(job: ImportJob, **start: str) -> Snapshot:
    services.import_job_start(job=job, **start)
    run(job)
    assert job.state == State.DONE, job.error
    return Snapshot.objects.get(pk=job.result["snapshot"])


def folder(snapshot: Snapshot, settings: Any) -> Path:
    return Path(settings.ARTIFACTS_URL) / snapshot.uri


def every(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        row
        for split in snapshot.counts["rows"]
        for row in artifact_store().lines(f"{snapshot.uri}/{split}.jsonl")
    ]


def table(rows: list[dict[str, Any]]) -> bytes:
    """A Parquet file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def sheet(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


PAIRS = [
    {"prompt": f"Is {n} even?", "chosen": f"Yes or no: {n % 2 == 0}.", "rejected": f"Who knows {n}"}
    for n in range(40)
]


def test_prompts_come_from_csv_with_their_columns_mapped(upload: Upload, settings: Any) -> None:
    rows = [{"question": f"What is {n} + {n}?", "answer": 2 * n, "hard": n % 2} for n in range(30)]
    job = checked(upload("prompts", sheet(rows), "sums.csv"))
    assert job.preview["mapping"] == {"prompt": "question", "answer": "answer"}
    assert job.check_report["n_created"] == 30
    assert not Snapshot.objects.exists()
    made = frozen(job, name="Sums")
    assert (made.name, made.kind, made.state) == ("Sums", "prompts", "frozen")
    assert sum(made.counts["rows"].values()) == 30
    assert set(made.counts["rows"]) > {"train"}
    one = read_prompts(folder(made, settings))[0]
    assert int(one.answer) == 2 * int(one.messages[0]["content"].split()[2])
    assert {json.loads(row["metadata"])["hard"] for row in every(made)} == {"0", "1"}


def test_demonstrations_come_as_pairs_of_columns_or_as_conversations(
    upload: Upload, settings: Any
) -> None:
    pairs = [{"instruction": f"Say {n}.", "output": f"{n}!", "split": "train"} for n in range(4)]
    pairs.append({"instruction": "Say it.", "output": "It.", "split": "test"})
    made = frozen(checked(upload("demonstrations", table(pairs), "d.parquet")))
    assert made.counts["rows"] == {"train": 4, "public_test": 1}
    assert read_demonstrations(folder(made, settings))[0].response == "0!"
    talks = [
        {"conversations": [{"from": "human", "value": f"Hi {n}"}, {"from": "gpt", "value": "Ho"}]}
        for n in range(3)
    ]
    job = checked(upload("demonstrations", talks))
    assert job.preview["missing"] == []
    assert {row["messages"][1]["content"] for row in every(frozen(job))} == {"Ho"}


def test_preferences_labelled_elsewhere_have_no_votes_and_train_dpo_and_rewards(
    project: Project, upload: Upload, settings: Any
) -> None:
    made = frozen(checked(upload("preferences", table(PAIRS), "pairs.parquet")))
    assert (made.kind, made.is_imported) == ("preferences", True)
    assert not Comparison.objects.exists()
    assert not Vote.objects.exists()
    card = json.loads((folder(made, settings) / "card.json").read_text())
    assert (card["labelled"], card["file"]) == ("elsewhere", "pairs.parquet")
    rows = read_preferences(folder(made, settings))
    assert {row.votes for row in rows} == {0}
    assert all(row.chosen.startswith("Yes or no") for row in rows)
    assert {row["chosen_side"] for row in every(made)} == {"a", "b"}
    sft = model(project, "sft")
    for kind in ("dpo", "kto", "reward"):
        inputs = {"data": made, "sft": sft}
        assert run_launch(
            project=project, kind=kind, name=kind, config={"preset": "lora"}, inputs=inputs
        ).pk


REWARD_BENCH = [
    {
        "prompt": f"Question {n * n + 7}?",
        "chosen": f"Right, {n}.",
        "chosen_model": "human",
        "rejected": f"Wrong, {n}.",
        "rejected_model": "gpt-4",
        "subset": ("refusals", "maths", "chat")[n % 3],
        "id": n,
    }
    for n in range(30)
]


def test_a_reward_model_suite_in_rewardbenchs_form_is_held_out_with_its_categories(
    upload: Upload, settings: Any
) -> None:
    job = upload("preferences", table(REWARD_BENCH), "filtered.parquet")
    services.import_job_configure(job=job, constants={"split": "test"})
    checked(job)
    assert job.preview["mapping"]["category"] == "subset"
    made = frozen(job, name="RewardBench")
    assert made.counts["rows"] == {"train": 0, "public_test": 30}
    assert made.counts["categories"] == 3
    rows = read_preferences(folder(made, settings), "public_test")
    by_chosen = {row.chosen: row.category for row in rows}
    assert by_chosen == {row["chosen"]: row["subset"] for row in REWARD_BENCH}
    assert rows[0].sources == ("human", "gpt-4")
    assert len({row.group for row in rows}) == 30, "a category ties no rows together"


def test_the_form_of_an_import_holds_a_whole_suite_out(
    project: Project, upload: Upload, emil: User, signed_in: Callable[..., Client]
) -> None:
    job = upload("preferences", REWARD_BENCH)
    run(job)
    form = ImportSettingsForm(preview=job.preview, chosen=job.settings, makes="preferences")
    assert form["held_out"].initial is False
    assert form["map_category"].initial == "subset"
    sent = {name: form[name].initial or "" for name in form.fields} | {"held_out": "on", "seed": 0}
    page = signed_in(emil).post(f"/p/{project.slug}/imports/{job.pk}/settings/", sent)
    assert page.status_code in (200, 302)
    job.refresh_from_db()
    assert job.settings["constants"] == {"split": "test"}


@pytest.mark.parametrize("category", ["x" * 81, ["a"], True])
def test_a_bad_category_is_refused_by_row(project: Project, category: Any) -> None:
    rows = [
        {"prompt": f"{n}?", "response_a": "a", "response_b": "b", "gold": "a", "category": "fine"}
        for n in range(3)
    ]
    rows[1]["category"] = category
    with pytest.raises(DomainError) as refused:
        snapshot_import(project=project, kind="preferences", name="bad", rows=rows)
    assert (refused.value.row, refused.value.field) == (2, "category")


def test_scores_say_which_answer_is_chosen(upload: Upload) -> None:
    answers = [{"text": text, "score": score} for text, score in (("a", 1), ("b", 3), ("c", 2))]
    rows = [{"prompt": f"Why {n}?", "completions": answers} for n in range(3)]
    (row, *_) = every(frozen(checked(upload("preferences", rows))))
    assert [row[name][0]["content"] for name in ("chosen", "rejected")] == ["b", "a"]
    assert json.loads(row["metadata"]) == {"chosen_score": 3.0, "rejected_score": 1.0}


def test_ties_are_left_out_and_counted(upload: Upload) -> None:
    rows = [
        {"prompt": f"Why {n}?", "response_a": "x", "response_b": "y", "label": word}
        for n, word in enumerate(("a", "b", "tie", "a"))
    ]
    made = frozen(checked(upload("preferences", rows)))
    assert made.counts["dropped"] == {"neither answer is preferred": 1}
    assert sum(made.counts["rows"].values()) == 3


def test_single_answers_say_whether_they_are_desirable_and_train_kto_alone(
    project: Project, upload: Upload, settings: Any
) -> None:
    rows = [
        {"prompt": f"Why {n}?", "completion": "So.", "label": word}
        for n, word in enumerate(("true", False, "Yes", 0))
    ]
    made = frozen(checked(upload("unpaired", rows)))
    assert made.kind == "unpaired"
    assert sorted(row["label"] for row in every(made)) == [False, False, True, True]
    files = ("train", *evaluation_splits(folder(made, settings)))
    read = [row for name in files for row in read_judged_answers(folder(made, settings), name)]
    assert sorted((row.desirable, row.response) for row in read) == [
        *[(False, "So.")] * 2,
        *[(True, "So.")] * 2,
    ]
    launch = partial(run_launch, project=project, name="one", config={"preset": "lora"})
    inputs = {"data": made, "sft": model(project, "sft")}
    assert launch(kind="kto", inputs=inputs).pk
    with pytest.raises(DomainError, match="not a snapshot of unpaired") as refusal:
        launch(kind="dpo", inputs=inputs)
    assert refusal.value.field == "inputs.data"


def test_tasks_of_an_environment_are_prompts_whose_final_state_is_kept(
    project: Project, settings: Any
) -> None:
    rows = task_rows("files", count=12, seed=0)
    made = snapshot_import(project=project, kind="prompts", name="tasks", rows=rows)
    files = ("train", *evaluation_splits(folder(made, settings)))
    read = [
        one
        for name in files
        if (folder(made, settings) / f"{name}.jsonl").stat().st_size
        for one in read_prompts(folder(made, settings), name)
    ]
    assert len(tasks_of(read, "files")) == 12
    broken = rows[0] | {"check": {"category": "c", "test": "final_state", "value": {"end": {}}}}
    with pytest.raises(DomainError, match="none of start, files") as refused:
        snapshot_import(project=project, kind="prompts", name="broken", rows=[rows[1], broken])
    assert (refused.value.row, refused.value.field) == (2, "check")


STEPS = {"prompt": "Why?", "completions": ["So.", "Then."], "labels": [1, 0]}


def test_judged_steps_train_process_reward_models_alone_which_start_no_reward_model(
    project: Project, upload: Upload, settings: Any
) -> None:
    said = [
        {"role": "assistant", "content": "Ask."},
        {"role": "tool", "content": "43"},
        {"role": "assistant", "content": "44."},
    ]
    rows = [
        STEPS | {"prompt": "Why 0?"},
        STEPS | {"prompt": "Why 1?", "labels": [None, True], "roles": ["assistant", "assistant"]},
        {"prompt": "Why 2?", "completions": said, "labels": [True, True, False]},
        {"prompt": "Why 3?", "completions": json.dumps(["So."]), "labels": "[false]"},
    ]
    made = frozen(checked(upload("stepwise", rows)))
    assert made.kind == "stepwise"
    files = ("train", *evaluation_splits(folder(made, settings)))
    read = [one for name in files for one in read_judged_steps(folder(made, settings), name)]
    assert sorted((one.prompt[0]["content"], one.labels) for one in read) == [
        ("Why 0?", (True, False)),
        ("Why 1?", (None, True)),
        ("Why 2?", (True, None, False)),  # what a tool says is no step of the model's
        ("Why 3?", (False,)),
    ]
    loaded = load_dataset("json", data_files=str(folder(made, settings) / "train.jsonl"))["train"]
    assert set(loaded.column_names) >= {"prompt", "completions", "labels", "roles"}
    launch = partial(run_launch, project=project, name="one")
    trained = launch(
        kind="process_reward",
        config={"preset": "pretrained"},
        inputs={"data": made, "sft": model(project, "sft")},
    )
    with pytest.raises(DomainError, match="not a snapshot of stepwise"):
        launch(
            kind="reward",
            config={"preset": "pretrained"},
            inputs={"data": made, "sft": model(project, "sft")},
        )
    preset = {"preset": "pretrained"}
    for kind, role, config in (
        ("assess", "reward", {}),
        ("assess", "judge", {}),
        ("reward", "base", preset),
    ):
        with pytest.raises(DomainError, match="not a process_reward run's") as refusal:
            launch(kind=kind, config=config, inputs={role: trained})
        assert refusal.value.field == f"inputs.{role}"


def test_steps_leave_in_trls_stepwise_form(project: Project) -> None:
    row = {
        "prompt": "Why?",
        "completions": ["Ask.", "43", "44.", "And so on."],
        "labels": [True, None, False, None],
        "roles": ["assistant", "tool", "assistant", "assistant"],
    }
    made = snapshot_import(project=project, kind="stepwise", name="steps", rows=[row])
    sent = exports.snapshot_export(snapshot=made, shape="stepwise", split="train").content
    (told,) = map(json.loads, b"".join(sent).splitlines())
    assert told["prompt"] == "Why?\n\n"
    assert told["completions"] == ["Ask.", "tool: 43\n\n44."]
    assert told["labels"] == [True, False]


def test_a_file_cannot_mean_two_things_by_its_labels(project: Project) -> None:
    rows = [STEPS, STEPS | {"prompt": "So?", "labels": [1, -1]}]
    with pytest.raises(DomainError, match="rows 1 and 2") as refused:
        snapshot_import(project=project, kind="stepwise", name="both", rows=rows)
    assert (refused.value.row, refused.value.field) == (2, "labels")


@pytest.mark.parametrize(
    ("makes", "good", "bad", "field", "words"),
    [
        ("prompts", {"question": "Why?"}, {"question": ""}, "question", "is missing"),
        (
            "prompts",
            {"question": "Why?", "split": "dev"},
            {"question": "So?", "split": "held"},
            "split",
            "must be one of",
        ),
        (
            "demonstrations",
            {"ask": "Why?", "output": "So."},
            {"ask": "And?", "output": ""},
            "output",
            "is missing",
        ),
        (
            "unpaired",
            {"prompt": "Why?", "completion": "So.", "label": 1},
            {"prompt": "Why?", "completion": "No.", "label": "maybe"},
            "label",
            "must be true or false",
        ),
        ("stepwise", STEPS, STEPS | {"labels": [1]}, "labels", "1 labels for 2 steps"),
        ("stepwise", STEPS, STEPS | {"labels": [1, "maybe"]}, "labels", "true, false or null"),
        ("stepwise", STEPS, STEPS | {"labels": [None, None]}, "labels", "marks no step"),
        (
            "preferences",
            PAIRS[0],
            {"prompt": "Why?", "chosen": "x", "rejected": "x"},
            "rejected",
            "same text",
        ),
    ],
)
def test_a_bad_row_is_named_with_its_column_and_the_others_can_go_in(
    upload: Upload,
    makes: str,
    good: dict[str, Any],
    bad: dict[str, Any],
    field: str,
    words: str,
) -> None:
    other = good | {next(iter(good)): "Something else?"}
    if "split" in other:
        other["split"] = "train"
    job = upload(makes, [good, bad, other])
    if makes == "demonstrations":
        services.import_job_configure(job=job, mapping={"prompt": "ask", "response": "output"})
    checked(job)
    (found,) = import_screens.findings(job)
    assert (found["row"], found["field"]) == (2, field)
    assert words in found["message"]
    assert (job.check_report["n_created"], job.check_report["n_refused"]) == (2, 1)
    services.import_job_start(job=job)
    assert run(job).state == State.FAILED
    assert f"row 2, {field}" in job.error
    assert not Snapshot.objects.exists()
    assert sum(frozen(job, on_error="skip").counts["rows"].values()) == 2


def test_training_rows_that_another_dataset_holds_out_are_refused_or_left_out(
    project: Project, upload: Upload
) -> None:
    """Planted: two prompts of the file are held out elsewhere, one of them word for word."""
    long = " ".join(f"word{n}" for n in range(40))
    held = [{"prompt": f"{long} end", "split": "test"}, {"prompt": "Is 3 even?", "split": "dev"}]
    other = [{"prompt": "Something else?", "split": "train"}, *held]
    snapshot_import(project=project, kind="prompts", name="Exam", rows=other)
    rows = [row | {"split": "train"} for row in PAIRS]
    rows += [{"prompt": f"{long} END.", "chosen": "a", "rejected": "b", "split": "train"}]
    rows += [{"prompt": "A new one?", "chosen": "a", "rejected": "b", "split": "test"}]
    job = upload("preferences", rows)
    checked(job)
    (one,) = job.check_report["overlap"]
    assert (one["name"], one["rows"]) == ("Exam", 2)
    with pytest.raises(Conflict, match="2 training rows ask what 'Exam'") as refused:
        services.import_job_start(job=job)
    assert (refused.value.code, refused.value.field) == ("held_out_elsewhere", "overlap")
    made = frozen(job, overlap="skip")
    assert made.counts["rows"] == {"train": 39, "public_test": 1}
    assert made.counts["dropped"] == {"its prompt is held out in Exam": 2}


def test_two_halves_of_a_file_share_no_prompt_and_its_reward_and_judge_no_row(
    project: Project, upload: Upload
) -> None:
    halves = []
    for half in ("first", "second"):
        job = upload("preferences", PAIRS)
        services.import_job_configure(job=job, half=half)
        halves.append(frozen(checked(job)))
    asked = [{json.dumps(row["prompt"]) for row in every(one)} for one in halves]
    assert not asked[0] & asked[1]
    assert len(asked[0] | asked[1]) == 40
    prompts = snapshot_import(
        project=project, kind="prompts", name="p", rows=[{"prompt": "x"}, {"prompt": "y"}]
    )
    reward, judge, same = (model(project, "reward") for _ in range(3))
    for one, data in ((reward, halves[0]), (judge, halves[1]), (same, halves[0])):
        RunInput.objects.create(run=one.run, role="data", snapshot=data)
    given = {"prompts": prompts, "policy": model(project, "ppo"), "sft": model(project, "sft")}
    given["reward"] = reward
    launch = {"project": project, "kind": "evaluate", "name": "e", "config": {}}
    assert run_launch(**launch, inputs=given | {"judge": judge}).pk
    with pytest.raises(DomainError, match="labelled elsewhere") as refused:
        run_launch(**launch, inputs=given | {"judge": same})
    assert (refused.value.code, refused.value.field) == ("judge_not_held_out", "inputs.judge")


def test_a_worker_killed_before_the_end_leaves_no_dataset_and_the_import_goes_on(
    upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = checked(upload("prompts", [{"prompt": f"Why {n}?"} for n in range(5)]))
    services.import_job_start(job=job)

    def killed(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as at_the_end:
        at_the_end.setattr(importing, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            services.import_job_run(job=job.pk)
    assert not Snapshot.objects.filter(state="frozen").exists()
    ImportJob.objects.update(state=State.INTERRUPTED)  # as the sweep says of a killed worker
    job.refresh_from_db()
    made = frozen(job)
    assert list(Snapshot.objects.all()) == [made]
    with pytest.raises(Conflict, match="in already"):
        services.import_job_start(job=job)
    with pytest.raises(Conflict, match="immutable"):
        services.import_job_undo(job=job, by=made.created_by)


@pytest.mark.django_db(transaction=True)
def test_an_import_of_a_dead_connection_is_interrupted_and_frozen_once(upload: Upload) -> None:
    job = checked(upload("prompts", [{"prompt": "Why?"}, {"prompt": "What?"}]))
    services.import_job_start(job=job)
    ImportJob.objects.filter(pk=job.pk).update(state=State.RUNNING, attempt=job.attempt + 1)
    params = connection.get_connection_params()
    names = ("dbname", "user", "host", "port", "password")
    worker = psycopg.connect(**{k: v for k, v in params.items() if k in names})
    worker.execute("select pg_advisory_lock(%s)", [job.number])
    assert services.import_jobs_sweep() == 0
    worker.close()
    for _ in range(50):
        if services.import_jobs_sweep():
            break
    job.refresh_from_db()
    assert job.state == State.INTERRUPTED
    assert frozen(job).counts["rows"] == {"train": 1, "dev": 1}


def test_the_api_uploads_checks_and_freezes(project: Project, emil: User, client: Client) -> None:
    client.force_login(emil)
    base = f"/api/v1/projects/{project.slug}/imports"
    file = SimpleUploadedFile("p.csv", sheet([{"prompt": f"Why {n}?"} for n in range(9)]))
    job = client.post(base, {"file": file, "makes": "prompts"}).json()
    assert (job["makes"], job["preview"]["layout"]) == ("prompts", "prompts")

    def post(step: str, **body: Any) -> Any:
        return client.post(f"{base}/{job['id']}/{step}", body, content_type="application/json")

    assert post("check").status_code == 202
    services.import_job_run(job=job["id"])
    assert client.get(f"{base}/{job['id']}").json()["check_report"]["n_created"] == 9
    assert post("start", name="Nine").status_code == 202
    services.import_job_run(job=job["id"])
    result = client.get(f"{base}/{job['id']}").json()["result"]
    assert Snapshot.objects.get(pk=result["snapshot"]).name == "Nine"
    assert post("undo").status_code == 409


def test_the_pages_lead_from_the_file_to_the_dataset(
    project: Project, emil: User, client: Client
) -> None:
    client.force_login(emil)
    start = f"/p/{project.slug}/datasets/import/"
    assert start in client.get(f"/p/{project.slug}/datasets/").content.decode()
    assert client.post(start, {"makes": "prompts"}).status_code == 422
    file = SimpleUploadedFile("pairs.parquet", table(PAIRS))
    page = client.post(start, {"makes": "preferences", "file": file}, follow=True)
    job = ImportJob.objects.get()
    assert page.context["preview_table"] is None
    address = f"/p/{project.slug}/imports/{job.pk}/"
    fields = {f.html_name: f.value() for f in page.context["form"] if f.value() not in (None, "")}
    client.post(f"{address}settings/", {**fields, "action": "check"})
    run(job)
    assert "Freeze 40 rows" in client.get(address).content.decode()
    client.post(f"{address}do/", {"action": "start", "on_error": "refuse", "name": "Bought"})
    run(job)
    assert "See the dataset" in client.get(address).content.decode()
    made = Snapshot.objects.get()
    shown = client.get(f"/p/{project.slug}/datasets/{made.pk}/").content.decode()
    for words in ("Bought", "nobody voted here", "pairs.parquet", "by the hash of the group"):
        assert words in shown
    assert "pairs.parquet" in client.get(start).content.decode()
    assert "pairs.parquet" not in client.get(f"/p/{project.slug}/imports/").content.decode()
    for page in ("lineage/", "export/", "rows/"):
        assert client.get(f"/p/{project.slug}/datasets/{made.pk}/{page}").status_code == 200
    assert client.get(f"/p/{project.slug}/datasets/{made.pk}/report/").status_code == 404
    assert client.get(f"/p/{project.slug}/ready/").status_code == 200


def test_published_labels_are_frozen_without_a_vote(
    project: Project, emil: User, client: Client, settings: Any
) -> None:
    rows = [
        {"prompt": f"Is {n} even?", "response_a": f"Yes {n}", "response_b": f"No {n}", "gold": gold}
        for n, gold in enumerate(("a", "b", "", "tie", "b", "a", "b", "a", "b", "a", "b", "a"))
    ]
    comparisons_import(project=project, rows=rows)
    client.force_login(emil)
    page = client.get(f"/p/{project.slug}/datasets/new/").content.decode()
    assert "11 published labels" in page
    form = client.get(f"/p/{project.slug}/datasets/new/?by=published").context["form"]
    assert form["decide_by"].value() == "published"
    recipe = recipe_over_defaults(project=project, data={"decide_by": "published"})
    made = snapshot_freeze(project=project, name="Labels", recipe=recipe, user=emil)
    assert made.counts["decided_by"] == {"label": 10}
    assert made.counts["dropped"] == {"decided: tie": 1, "no published label": 1}
    assert made.counts["chance_keep_rate"] is None
    written = (
        row
        for split in ("train", "dev", "public_test", "smoke")
        if split in made.counts["rows"]
        for row in artifact_store().lines(f"{made.uri}/{split}.jsonl")
    )
    for row in written:
        n = int(row["prompt"][0]["content"].split()[1])
        assert row["chosen"][0]["content"] == f"{'Yes' if rows[n]['gold'] == 'a' else 'No'} {n}"
        assert (row["votes"], row["confidence"]) == (0, 1.0)
    assert set(made.rows.exclude(split="").values_list("decided_by", flat=True)) == {"label"}
    shown = client.get(f"/p/{project.slug}/datasets/{made.pk}/").content.decode()
    assert "nobody voted" in shown
