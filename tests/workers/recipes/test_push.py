"""Pushing to a hub, of which a few addresses stand in: with the worker's token, or refused."""

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.workers.recipes.language import Outcome, Workshop

SECRET = "hf_a_secret_of_the_worker"
CARD = '---\nlicense: "mit"\n---\n\n# Mine\n'


@dataclass
class Hub:
    """What was asked of it, and what it holds after a commit."""

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    uploads: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    status: int = 200


def handler_of(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_PUT(self) -> None:
            hub.uploads[self.path.rpartition("/")[2]] = self.body()
            self.answer({})

        def do_POST(self) -> None:
            body = self.body()
            hub.asked.append((self.command, self.path))
            hub.tokens.add(self.headers.get("authorization", ""))
            if hub.status != 200:
                self.answer({"error": "You have no rights here"}, hub.status)
            elif self.path == "/api/repos/create":
                hub.made = json.loads(body)
                self.answer({"url": f"{hub.url}/org/mine"})
            elif self.path == "/api/validate-yaml":
                self.answer({"warnings": [], "errors": []})
            elif self.path == "/api/models/org/mine/preupload/main":
                self.answer({"files": [self.mode(file) for file in json.loads(body)["files"]]})
            elif self.path == "/org/mine.git/info/lfs/objects/batch":
                self.answer({"objects": [self.place(one) for one in json.loads(body)["objects"]]})
            elif self.path == "/api/models/org/mine/commit/main":
                for line in map(json.loads, body.splitlines()):
                    self.commit(line["key"], line["value"])
                url = f"{hub.url}/org/mine/commit/1"
                self.answer({"commitUrl": url, "commitOid": "1", "success": True})
            else:
                self.answer({"error": "unknown"}, 404)

        def mode(self, file: dict[str, Any]) -> dict[str, Any]:
            large = file["path"].endswith(".safetensors")
            mode = "lfs" if large else "regular"
            return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}

        def place(self, wanted: dict[str, Any]) -> dict[str, Any]:
            return wanted | {"actions": {"upload": {"href": f"{hub.url}/lfs/{wanted['oid']}"}}}

        def commit(self, key: str, value: dict[str, Any]) -> None:
            if key == "file":
                hub.files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                hub.files[value["path"]] = hub.uploads[value["oid"]]

        def body(self) -> bytes:
            if "chunked" not in self.headers.get("transfer-encoding", ""):
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            found = b""
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def answer(self, value: dict[str, Any], status: int = 200) -> None:
            text = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """In the environment of workers that are started from here."""
    hub = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(hub)) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": SECRET,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
        }.items():
            monkeypatch.setenv(name, value)
        yield hub
        server.shutdown()


@pytest.fixture(scope="module")
def shop(workshop: Workshop) -> Workshop:
    for name, files in {
        "mine": {
            "config.json": "{}",
            "model.safetensors": "weights",
            "resume/optimizer.pt": "state",
            "adapter/adapter_model.safetensors": "lora",
            "adapter/adapter_config.json": "{}",
            "tokenizer.json": "{}",
        },
        "theirs": {"config.json": "{}", "model.safetensors": "base", "LICENSE": "MIT License"},
    }.items():
        folder = workshop.root / "pushed" / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        workshop._put(name, folder, "checkpoint")
    return workshop


def push(shop: Workshop, run: str, **config: Any) -> Outcome:
    spec = shop.spec(
        run, "push", {"repo": "org/mine", "card": CARD} | config, model="mine", base="theirs"
    )
    return shop.run(spec)


def nothing_tells(shop: Workshop, secret: str) -> bool:
    texts = (path for path in (shop.root / "work").rglob("*") if path.is_file())
    return not any(secret in path.read_text(errors="replace") for path in texts)


def test_what_a_download_holds_is_pushed_with_the_workers_token(shop: Workshop, hub: Hub) -> None:
    outcome = push(shop, "push-merged")
    assert outcome.summary == {
        "step": 0,
        "repo": "org/mine",
        "url": f"{hub.url}/org/mine/commit/1",
        "files": 5,
    }
    assert hub.files == {
        "README.md": CARD.encode(),
        "LICENSE": b"MIT License",
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "tokenizer.json": b"{}",
    }
    assert (hub.made["name"], hub.made["organization"]) == ("mine", "org")
    assert hub.made.get("private") is True or hub.made.get("visibility") == "private"
    assert hub.tokens == {f"Bearer {SECRET}"}
    hub.files.clear()
    push(shop, "push-adapter", part="adapter", private=False)
    assert hub.files["adapter_model.safetensors"] == b"lora"
    assert "model.safetensors" not in hub.files
    assert nothing_tells(shop, SECRET)


@pytest.mark.parametrize(
    ("environment", "status", "kind", "words"),
    [
        ({"HF_TOKEN": ""}, 200, "push_refused", "set HF_TOKEN"),
        ({"HF_HUB_OFFLINE": "1"}, 200, "push_refused", "HF_HUB_OFFLINE=0"),
        ({}, 403, "push_refused", "refuses 'org/mine'"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, 200, "hub_unreachable", "does not answer"),
    ],
)
def test_a_push_is_refused_by_name(
    shop: Workshop,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    status: int,
    kind: str,
    words: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    hub.status = status
    outcome = push(shop, f"refused-{kind}-{status}-{len(words)}")
    (failed,) = outcome.all("Failed")
    assert (failed["kind"], words in failed["message"]) == (kind, True), failed
    assert not hub.files
    assert nothing_tells(shop, SECRET)
