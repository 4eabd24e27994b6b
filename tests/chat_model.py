"""A chat completions endpoint on loopback that replaces a language model."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

PATIENCE_SECONDS = 20.0


@dataclass
class Model:
    """Answers with `content` and `status` once `may_answer` is set, and records its requests."""

    url: str = ""
    content: str = '{"starts": [0, 1]}'
    status: int = 200
    drip_seconds: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    was_asked: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)
    has_ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving() -> Iterator[Model]:
    """Serve a model until the block ends."""
    model = Model()
    model.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            model.requests.append(msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"]))))
            model.keys.append(self.headers["Authorization"])
            model.was_asked.set()
            model.may_answer.wait(PATIENCE_SECONDS)
            body = msgspec.json.encode({"choices": [{"message": {"role": "assistant", "content": model.content}}]})
            self.send_response(model.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for byte in body:
                if model.drip_seconds and model.has_ended.wait(model.drip_seconds):
                    return
                self.wfile.write(bytes([byte]))

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield model
    finally:
        model.has_ended.set()
        model.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join(timeout=PATIENCE_SECONDS)
