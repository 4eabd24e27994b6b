"""An embeddings endpoint on loopback that counts the texts it embeds."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

DIMENSIONS = 16


class Endpoint(NamedTuple):
    """Its URL, and how often each text was embedded."""

    url: str
    texts: Counter[str]


@contextmanager
def serving() -> Iterator[Endpoint]:
    """Serve until the block ends; the same text has the same vector."""
    texts: Counter[str] = Counter()
    counting = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            inputs = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            with counting:
                texts.update(inputs)
            data = [{"index": place, "embedding": _vector(text)} for place, text in enumerate(inputs)]
            body = msgspec.json.encode({"data": data})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_address[1]}/v1", texts)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _vector(text: str) -> list[float]:
    chance = random.Random(text)
    return [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
