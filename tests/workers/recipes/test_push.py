"""To a hub and back, of which a few addresses stand in: with the worker's token, or refused."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.workers.recipes.language import Outcome, Workshop, tiny_llama, word_tokenizer

SECRET = "hf_a_secret_of_the_worker"
COMMIT = "c" * 40
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

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            """What a download asks: which files there are, then each of them."""
            hub.asked.append((self.command, self.path))
            hub.tokens.add(self.headers.get("authorization", ""))
            path = self.path.partition("?")[0]
            _, found, name = path.partition(f"/org/mine/resolve/{COMMIT}/")
            if path == "/api/models/org/mine/revision/main":
                files = [{"rfilename": name} for name in hub.files]
                self.answer({"id": "org/mine", "sha": COMMIT, "siblings": files})
            elif path.startswith("/api/models/org/mine/tree/"):
                files = [
                    {"type": "file", "path": name, "size": len(data), "oid": name}
                    for name, data in hub.files.items()
                ]
                self.answer(files)
            elif found and name in hub.files:
                self.send_response(200)
                self.send_header("x-repo-commit", COMMIT)
                self.send_header("etag", f'"{hashlib.sha256(hub.files[name]).hexdigest()}"')
                self.send_header("content-length", str(len(hub.files[name])))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(hub.files[name])
            else:
                self.send_response(404)
                self.send_header("x-error-code", "RepoNotFound")
                self.send_header("content-length", "0")
                self.end_headers()

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
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """In the environment of workers that are started from here, with nothing fetched before."""
    hub = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(hub)) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": SECRET,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "hub"),
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


def registered(shop: Workshop, run: str, model: str) -> Outcome:
    return shop.run(shop.spec(run, "register_policy", {"model": model}))


def test_a_model_is_fetched_by_its_id_without_pickles_or_code(
    shop: Workshop, hub: Hub, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    tiny_llama(3).save_pretrained(there)
    word_tokenizer().save_pretrained(there)
    hub.files = {path.name: path.read_bytes() for path in there.iterdir()}
    hub.files |= {"pytorch_model.bin": b"a pickle", "modeling_own.py": b"raise SystemExit"}
    hub.files["README.md"] = b"---\nlicense: mit\n---\n"
    outcome = registered(shop, "from-hub", "org/mine")
    (saved,) = outcome.all("CheckpointSaved")
    folder = shop.store.get_tree(
        saved["uri"], sha256=saved["sha256"], cache=shop.root / "looked_at"
    )
    own, theirs = load_file(folder / "model.safetensors"), load_file(there / "model.safetensors")
    assert own.keys() == theirs.keys()
    assert all(own[name].equal(theirs[name]) for name in own)
    asked = " ".join(path for _, path in hub.asked)
    assert "config.json" in asked
    assert not {"pytorch_model.bin", "modeling_own.py"} & set(asked.replace("/", " ").split())
    assert hub.tokens == {f"Bearer {SECRET}"}
    assert nothing_tells(shop, SECRET)


@pytest.mark.parametrize(
    ("model", "offline", "words"),
    [
        ("org/nobody", "0", "'org/nobody' cannot be fetched from the hub; check the id"),
        ("org/mine", "1", "'org/mine' cannot be fetched from the hub"),
    ],
)
def test_a_fetch_that_cannot_be_is_refused_by_name(
    shop: Workshop, hub: Hub, monkeypatch: pytest.MonkeyPatch, model: str, offline: str, words: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    outcome = registered(shop, f"not-from-hub-{offline}", model)
    (failed,) = outcome.all("Failed")
    assert (failed["kind"], words in failed["message"]) == ("model_refused", True), failed
