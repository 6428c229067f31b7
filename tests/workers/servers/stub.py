"""A hostile inference server in this process: answers as its script says, over real sockets."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


def completion(*texts: str, model: str = "stub", reason: str = "stop", **fields: Any) -> Body:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        for i, text in enumerate(texts)
    ]
    return {"choices": choices, "model": model, "usage": {"completion_tokens": 3}} | fields


class Stub:
    """`reply(body, k)`: what to do with the k-th request, from 0. A function of this class, such as
    `text`, `status` or `cut`, makes what it returns."""

    def __init__(self, reply: Callable[[Body, int], "Reply"]) -> None:
        self.bodies: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.at_once = self.most_at_once = 0
        self.version: str | None = None  # what GET /version answers, if anything
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub._lock:
                    k = len(stub.bodies)
                    stub.bodies.append(body | {"path": self.path})
                    stub.headers.append(dict(self.headers))
                    stub.at_once += 1
                    stub.most_at_once = max(stub.most_at_once, stub.at_once)
                try:
                    reply(body, k)(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with stub._lock:
                        stub.at_once -= 1

            def do_GET(self) -> None:
                known = self.path == "/version" and stub.version is not None
                body = json.dumps({"version": stub.version}).encode()
                raw(body, status=200 if known else 404)(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


Reply = Callable[[BaseHTTPRequestHandler], None]


def raw(data: bytes, *, kind: str = "application/json", status: int = 200, **more: str) -> Reply:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in more.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return send


def text(*texts: str, **fields: Any) -> Reply:
    return raw(json.dumps(completion(*texts, **fields)).encode())


def events(
    *pieces: str,
    reason: str | None = "stop",
    then: Callable[[int], object] = lambda n: None,
    **last: Any,
) -> Reply:
    """An answer in pieces; `then` is called with how many were sent, after each."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Connection", "close")
        handler.end_headers()

        def say(data: str) -> None:
            handler.wfile.write(f"data: {data}\n\n".encode())
            handler.wfile.flush()

        handler.wfile.write(b": a comment\n\n")
        for n, piece in enumerate(pieces, start=1):
            say(json.dumps({"model": "stub", "choices": [{"delta": {"content": piece}}]}))
            then(n)
        end = {"choices": [{"delta": {}, "finish_reason": reason}], "model": "stub"}
        say(json.dumps(end | last))
        say("[DONE]")
        handler.close_connection = True

    return send


def status(code: int, told: str = "", **headers: str) -> Reply:
    return raw(told.encode(), kind="text/plain", status=code, **headers)


def slow(seconds: float, then: Reply) -> Reply:
    def send(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        then(handler)

    return send


def dripping(seconds: float) -> Reply:
    """A byte now and then: no single read is late, the whole answer is."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.02)
        handler.close_connection = True

    return send


def never_begun(seconds: float) -> Reply:
    """A header now and then, and never an end of them."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.wfile.write(b"X-Soon: yes\r\n")
            handler.wfile.flush()
            time.sleep(0.02)
        handler.close_connection = True

    return send


def cut(handler: BaseHTTPRequestHandler) -> None:
    """The connection is reset in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()
    handler.close_connection = True
