"""The command line of each launcher."""

import sys
from pathlib import Path

import pytest

from tests.workers.attempt import drill_spec
from workers.launchers import UnknownLauncher, hears_signals, trainer_argv


def argv(launcher: str) -> list[str]:
    spec = drill_spec(Path("/tmp"), {}, launcher=launcher)  # noqa: S108 — a name, nothing is opened
    return trainer_argv(spec, Path("/w/job.json"), Path("/w"), silence_s=27.0)


def test_a_plain_trainer_is_one_python_process_that_counts_on_its_supervisor() -> None:
    expected = "-m workers.train /w/job.json --workdir /w --lifeline 27.0"
    assert argv("plain") == [sys.executable, *expected.split()]


def test_torchrun_starts_a_rank_per_gpu_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    words = argv("torchrun")
    assert words[:4] == [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    assert words[words.index("--nproc-per-node") + 1] == "gpu"
    assert words[-2:] == ["--lifeline", "0"], "ranks share one lifeline and see only its end"
    monkeypatch.setenv("TRAINER_PROCESSES", "2")
    assert "2" in argv("torchrun")


def test_an_unknown_launcher_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownLauncher, match=r"launcher 'ray' is none of plain, torchrun"):
        argv("ray")


def test_only_a_plain_trainer_is_sent_signals() -> None:
    folder = Path("/w")
    assert hears_signals(drill_spec(folder, {}))
    assert not hears_signals(drill_spec(folder, {}, launcher="torchrun"))
