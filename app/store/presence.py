"""Who uses a database: any number of servers and commands together, or one that puts another in its place, alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from app.errors import Conflict
from app.store.locks import FileLock


@contextmanager
def using(url: str) -> Iterator[None]:
    """Be one of those who use the database; Conflict while somebody replaces it."""
    with _held(url, exclusively=False, refusal="The database is being restored; try again when that is done."):
        yield


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Be the only one; Conflict while a server or a command uses the database."""
    refusal = "A server or another command uses this database: stop it first."
    with _held(url, exclusively=True, refusal=refusal):
        yield


@contextmanager
def _held(url: str, *, exclusively: bool, refusal: str) -> Iterator[None]:
    if not url.startswith("sqlite"):  # a database server looks after itself
        yield
        return
    path = Path(make_url(url).database or "")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}-users.lock"))
    try:
        if not lock.join(exclusively=exclusively):
            raise Conflict(refusal)
        yield
    finally:
        lock.close()
