"""The command line against a running server."""

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import Project, User
from apps.training.models import Run
from concord import cli
from tests.clients.test_live import PAIRS, comparisons, token_of, worker
from tests.labeling.conftest import inline_parsing
from tests.web.world import metrics_add

__all__ = ["inline_parsing", "worker"]

pytestmark = pytest.mark.usefixtures("transactional_db")
Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(
    live_server: LiveServer,
    project: Project,
    emil: User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Typed:
    """(exit code, standard output, standard error) of a command line of Emil's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("CONCORD_URL", live_server.url)
    monkeypatch.setenv("CONCORD_TOKEN", token_of(emil, "read", "write", "train"))
    monkeypatch.setenv("CONCORD_PROJECT", project.slug)

    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main(words)
        return code, *capsys.readouterr()

    return run


def test_a_run_is_launched_listed_waited_for_and_stopped(typed: Typed, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"steps": 9}')
    code, out, _ = typed(
        *("runs", "launch", "drill", "--name", "mine", "--config", str(config)),
        *("--set", "steps:=3", "--seed", "4", "--json"),
    )
    run = json.loads(out)
    assert (code, run["name"], run["config"]["steps"], run["seed"]) == (0, "mine", 3, 4)
    code, out, _ = typed("runs", "list", "--kind", "drill")
    heading, line = out.splitlines()
    assert heading.split() == ["id", "kind", "state", "step", "name"]
    assert line.split() == [run["id"], "drill", "queued", "0", "mine"]
    code, out, err = typed("runs", "wait", run["id"], "--every", "0.01", "--timeout", "0.02")
    assert (code, out) == (5, "")
    assert "is queued after 0.02 s" in err
    metrics_add(Run.objects.get(), 1, [1, 2], loss=[2.5, None])
    code, out, _ = typed("runs", "metrics", run["id"], "loss")
    assert [line.split() for line in out.splitlines()] == [
        ["step", "loss"],
        ["1", "2.5"],
        ["2", "-"],
    ]
    code, out, _ = typed("runs", "metrics", run["id"], "--json")
    assert json.loads(out)[0] == {"step": 1, "loss": 2.5}
    code, out, _ = typed("runs", "stop", run["id"], "--without-saving")
    assert (code, out.split()[1]) == (0, "drill")
    Run.objects.update(
        state="failed",
        ended_at=timezone.now(),
        failure_kind="oom",
        failure_message="Out of memory.",
    )
    code, out, err = typed("runs", "wait", run["id"])
    assert (code, out, err) == (3, "", "concord: oom: drill 'mine': Out of memory.\n")


def test_a_refusal_names_the_field_and_ends_with_one(typed: Typed) -> None:
    code, out, err = typed("runs", "launch", "ppo", "--set", "kl_coef=much")
    assert (code, out) == (1, "")
    assert err.startswith("concord: 422 ")
    assert "(field config.kl_coef)" in err
    code, _, err = typed("runs", "launch", "ppo", "--set", "kl_coef=much", "--json")
    assert (code, json.loads(err)["field"]) == (1, "config.kl_coef")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs", "launch", "drill", "--set", "steps"), "--set: 'steps' is not KEY=VALUE"),
        (("runs", "launch", "drill", "--set", "steps:=x"), "the value of steps is not JSON"),
        (("runs", "launch", "drill", "--config", "nowhere.json"), "nowhere.json"),
        (("call", "POST", "/projects", "--output", "x"), "--output: only of a GET"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_two(
    typed: Typed, words: tuple[str, ...], said: str
) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_without_a_site_a_token_or_a_project_the_variable_is_named(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONCORD_PROJECT", "CONCORD_TOKEN", "CONCORD_URL"):
        monkeypatch.delenv(name)
        code, _, err = typed("runs", "list")
        assert (code, name in err) == (2, True)


def test_a_server_that_is_not_there_ends_with_four(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCORD_URL", "http://127.0.0.1:9")
    code, _, err = typed("projects")
    assert (code, "unreachable" in err) == (4, True)


@pytest.mark.usefixtures("worker")
def test_a_file_becomes_a_dataset_and_bad_rows_are_listed(typed: Typed, tmp_path: Path) -> None:
    file = tmp_path / "even.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    code, out, _ = typed("datasets", "import", str(file), "--name", "Even")
    assert (code, out.split()[1:3]) == (0, ["preferences", "Even:"])
    code, out, _ = typed("datasets", "list", "--json")
    (made,) = json.loads(out)
    to = tmp_path / "train.csv"
    code, out, _ = typed(
        *("datasets", "export", made["id"], str(to), "--split", "train", "--format", "csv")
    )
    assert (code, out.strip()) == (0, str(to))
    assert len(to.read_text().splitlines()) > 10
    file.write_text('{"prompt": "Which?", "chosen": "This.", "rejected": null}\n')
    code, out, err = typed("datasets", "import", str(file))
    assert (code, out) == (1, "")
    assert "(field rejected, row 1)" in err
    assert "\n  row 1, rejected: " in err
    code, out, _ = typed("datasets", "import", str(comparisons(tmp_path)), "--makes", "comparisons")
    assert (code, out) == (0, "3 comparisons imported\n")


def test_every_operation_is_listed_and_called(
    typed: Typed, project: Project, tmp_path: Path
) -> None:
    code, out, _ = typed("operations", "fleet")
    assert (code, out.splitlines()[1].split()[:2]) == (0, ["GET", "/projects/{slug}/fleet"])
    code, out, _ = typed("call", "get", f"/projects/{project.slug}/runs", "limit:=1")
    assert (code, json.loads(out)["count"]) == (0, 0)
    code, out, _ = typed(
        *("call", "post", f"/projects/{project.slug}/runs", "kind=drill", "name=called", "seed:=7")
    )
    assert (code, json.loads(out)["seed"]) == (0, 7)
    to = tmp_path / "results.csv"
    path = f"/projects/{project.slug}/results"
    code, out, err = typed("call", "GET", path, "format=csv")
    assert (code, "not_json" in err) == (1, True)
    code, out, _ = typed("call", "GET", path, "format=csv", "--output", str(to))
    assert (code, out.strip()) == (0, str(to))
    assert to.read_text().startswith("\ufeff") or "," in to.read_text()


def test_login_keeps_the_token_for_its_user_alone_and_only_for_its_site(
    typed: Typed,
    live_server: LiveServer,
    project: Project,
    emil: User,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("CONCORD_TOKEN", "CONCORD_URL"):
        monkeypatch.delenv(name)
    token = token_of(emil, "read")
    for sent, wanted in (("ccd_wrong", 1), (token, 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(sent + "\n"))
        code, out, err = typed("login", live_server.url)
        assert code == wanted, err
        assert sent not in out + err
    kept = tmp_path / "settings" / "concord" / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    code, out, _ = typed("projects")
    assert (code, out.splitlines()[1].split()[0]) == (0, project.slug)
    monkeypatch.setenv("CONCORD_URL", "http://127.0.0.1:9")
    code, _, err = typed("projects")
    assert (code, "CONCORD_TOKEN is not set" in err) == (2, True)
    assert typed("logout")[0] == 0
    assert not kept.exists()


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "concord", "--help"], capture_output=True, text=True, check=True
    )
    for word in (
        "login",
        "projects",
        "datasets",
        "runs",
        "models",
        "operations",
        "call",
        "Exit codes",
    ):
        assert word in done.stdout
    assert "--token" not in done.stdout


def test_a_script_that_never_closes_its_client_ends_without_a_warning(
    live_server: LiveServer, project: Project, emil: User
) -> None:
    script = (
        "import os; from concord import Client; "
        f"print(Client({live_server.url!r}, os.environ['TOKEN']).projects()[0].slug)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TOKEN": token_of(emil, "read")},
    )
    assert (done.stdout.strip(), done.stderr) == (project.slug, "")
