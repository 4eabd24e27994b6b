"""Floors: the minimum cost of a request on this machine, without any of our code in between."""

import os
import socket
import sqlite3
from pathlib import Path

import msgspec
import uvicorn
from litestar import Litestar, get

from app.api.routes.memories import MemoryReply
from app.store.engines.sqlite import configure


def connect(path: Path) -> sqlite3.Connection:
    """Return a plain sqlite3 connection with our settings."""
    connection = sqlite3.connect(path, isolation_level=None)
    configure(connection)
    return connection


def copied_row(connection: sqlite3.Connection, memory_id: str) -> tuple[list[str], list[object]]:
    """Return the columns and values of a stored memory, except its key, to write more like it."""
    cursor = connection.execute("SELECT * FROM memory_items WHERE id = ?", (memory_id,))
    names = [column[0] for column in cursor.description]
    values = list(cursor.fetchone())
    return names[1:], values[1:]


def empty_server() -> None:
    """Serve one handler that returns the JSON in FLOOR_REPLY, as bare as Litestar goes."""
    reply = msgspec.json.decode(os.environ["FLOOR_REPLY"], type=MemoryReply)

    @get("/")
    async def handler() -> MemoryReply:
        return reply

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(Litestar([handler], openapi_config=None), log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    empty_server()
