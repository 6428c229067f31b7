"""`manage.py import_comparisons`: what it says, where, and with which exit code."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import Project, User
from apps.labeling import services
from apps.labeling.api.imports import ImportSettingsIn
from apps.labeling.formats import Options
from apps.labeling.forms.imports import ImportSettingsForm
from apps.labeling.management.commands.import_comparisons import Command
from apps.labeling.models import Comparison, Task

GOOD = {"ask": "Why?", "one": "So.", "two": "Because."}
pytestmark = pytest.mark.usefixtures("inline_parsing")
COLUMNS = ["--map", "prompt=ask", "--map", "response_a=one", "--map", "response_b=two"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    rows = [GOOD, GOOD | {"ask": "How?", "two": None}, GOOD | {"ask": "Who?", "one": "I am Bard."}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(file: Path, *words: str) -> tuple[str, str, int]:
    """(standard output, standard error, exit code)."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(
            "import_comparisons",
            str(file),
            "--project",
            "arguments",
            *words,
            stdout=out,
            stderr=err,
        )
    except CommandError as error:
        return out.getvalue(), f"{err.getvalue()}{error}", error.returncode
    return out.getvalue(), err.getvalue(), 0


def test_a_bad_row_refuses_the_file_and_is_named(project: Project, file: Path) -> None:
    _, err, code = run(file, *COLUMNS)
    assert code == 1
    assert "error: row 2, two:" in err
    assert "warning: row 3, one:" in err
    assert "so nothing was" in err
    assert not Comparison.objects.exists()


def test_bad_rows_can_be_left_out(project: Project, file: Path) -> None:
    out, _, code = run(file, *COLUMNS, "--on-error", "skip", "--set", "licence=CC0")
    assert code == 0
    assert "2 comparisons are new" in out
    assert set(Comparison.objects.values_list("prompt__licence", "batch")) == {
        ("CC0", "rows.jsonl")
    }


def test_a_dry_run_writes_nothing_and_reports_as_json(project: Project, file: Path) -> None:
    out, _, code = run(file, *COLUMNS, "--dry-run", "--json", "--on-error", "skip")
    report = json.loads(out)
    assert code == 0
    assert (report["n_created"], report["n_refused"]) == (2, 1)
    assert report["warnings"] == {"model_name": 1}
    assert not Comparison.objects.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "prompt: Choose the column"),
        (["--map", "prompt=asked"], "there is no column 'asked'"),
        (["--map", "prompt"], "FIELD=VALUE"),
        (["--format", "parquet"], "Parquet"),
    ],
)
def test_what_cannot_be_used_ends_with_code_two(
    project: Project, file: Path, words: list[str], message: str
) -> None:
    _, err, code = run(file, *words)
    assert code == 2
    assert message in err


def test_a_project_or_a_file_that_is_not_there_is_said(project: Project, tmp_path: Path) -> None:
    assert "no file" in run(tmp_path / "none")[1]
    with pytest.raises(CommandError, match="no project 'elsewhere'"):
        call_command("import_comparisons", str(tmp_path), "--project", "elsewhere")


def test_past_votes_of_an_export_come_with_it(project: Project, tmp_path: Path) -> None:
    result: list[dict[str, Any]] = [{"type": "pairwise", "value": {"selected": "right"}}]
    task = {
        "id": 1,
        "data": {"prompt": "Why?", "text1": "So.", "text2": "Because."},
        "annotations": [{"completed_by": n, "result": result} for n in range(7)],
    }
    path = tmp_path / "export.json"
    path.write_text(json.dumps([task]))
    out, _, code = run(path)
    assert code == 0
    assert "created 7" in out
    assert "at most 7 on one" in out
    assert Comparison.objects.get().n_votes == 7


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """One prompt with three answers."""
    path = tmp_path / "answers.jsonl"
    completions = [{"response": text} for text in ("So.", "Because.", "Nobody knows.")]
    path.write_text(json.dumps({"prompt": "Why?", "completions": completions}) + "\n")
    return path


@pytest.mark.parametrize(
    ("words", "task"),
    [
        ((), ("grade", 1, 10, "")),
        (("--grade-low", "0", "--grade-low-label", "useless"), ("grade", 0, 10, "useless")),
    ],
)
def test_answers_are_graded_on_the_scale_of_the_project_or_of_the_command(
    project: Project, ada: User, answers: Path, words: tuple[str, ...], task: tuple[Any, ...]
) -> None:
    services.labeling_settings_update(project=project, by=ada, task_kind="grade", grade_high=10)
    out, err, code = run(answers, *words)
    assert (code, "1 tasks are new" in out) == (0, True), err
    assert list(Task.objects.values_list("kind", "low", "high", "low_label")) == [task]
    assert not Comparison.objects.exists()


def test_the_command_may_say_what_answers_become(
    project: Project, ada: User, answers: Path
) -> None:
    services.labeling_settings_update(project=project, by=ada, task_kind="grade")
    _, err, code = run(answers, "--pairing", "all")
    assert (code, Comparison.objects.count()) == (0, 3), err
    assert not Task.objects.exclude(kind="pair").exists()


def test_a_scale_that_is_none_is_refused_at_its_option(project: Project, answers: Path) -> None:
    chosen = ("--pairing", "grade", "--grade-low", "5", "--grade-high", "5")
    _, err, code = run(answers, *chosen)
    assert code == 2
    assert "grade_high" in err
    assert not Task.objects.exclude(kind="pair").exists()


def test_page_api_and_command_ask_the_same_of_several_answers() -> None:
    asked = {
        name for name in Options.__dataclass_fields__ if name.startswith(("grade_", "pairing"))
    }
    command = vars(Command().create_parser("manage.py", "x").parse_args(["f", "--project", "p"]))
    assert len(asked) == 5
    assert asked <= set(ImportSettingsIn.model_fields)
    assert asked <= set(command)
    assert asked <= set(ImportSettingsForm.base_fields)
