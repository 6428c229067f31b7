"""A run that asks a server, and stubs that answer it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.workers.recipes.language import Notebook, word_tokenizer
from tests.workers.servers.stub import Stub
from workers.artifacts import Store
from workers.config.server import read_server
from workers.context import RunContext
from workers.contract.jobs import JobSpec
from workers.servers.answers import Served

SECRET = "s3cret-token"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_HOSTS", "127.0.0.1, judge.example")
    monkeypatch.setenv("INFERENCE_TOKEN_LAB", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def stub() -> Iterator[Callable[..., Stub]]:
    made: list[Stub] = []

    def make(reply) -> Stub:
        made.append(Stub(reply))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Asking:
    """One attempt of a run whose answers come from a stub."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.command: str | None = None

    def context(self, attempt: int = 1) -> RunContext:
        spec = JobSpec("r", attempt, "generate", "p", 3, str(self.root / "store"))
        folder = self.root / f"work-{attempt}"
        folder.mkdir(exist_ok=True)
        self.notebook = Notebook(spec)
        return RunContext(
            spec, Store(spec.artifacts_url), folder, self.notebook, stop_signal=lambda: self.command
        )

    def served(self, url: str, *, attempt: int = 1, **fields) -> Served:
        settings = read_server({"url": url, "model": "tiny", "retries": 0} | fields)
        assert settings is not None
        served = Served(self.context(attempt), settings, word_tokenizer())
        served.server._wait = lambda seconds: self.waits.append(seconds)
        self.waits: list[float] = []
        return served

    def logged(self) -> str:
        lines = [e["event"]["lines"] for e in self.notebook.envelopes if e["type"] == "Log"]
        return "\n".join(line for some in lines for line in some)


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)
