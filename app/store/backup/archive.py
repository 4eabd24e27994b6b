"""What `pg_restore` reads out of an archive: definitions as text, and rows as they go to COPY."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

import psycopg

from app.store.backup import Content
from app.store.backup.programs import printed, program

Section = Literal["pre-data", "data", "post-data"]

_COPY: Final = re.compile(rb"COPY (?:.+\.)?(\w+) \(")
_END: Final = b"\\.\n"
_REVISION_OF: Final = "alembic_version"
_NOT_FOR_US: Final = re.compile(rb"^(?:\\(?:un)?restrict .*|SET transaction_timeout .*)$", re.MULTILINE)
"""Newer programs write these: for psql alone, and for newer servers."""


def content(path: Path) -> Content:
    """Read every row of an archive, and count them."""
    rows: dict[str, int] = {}
    revision = None
    with _section(path, "data") as lines:
        for statement, following in _statements(lines):
            if (copied := _COPY.match(statement)) is None:
                continue
            table = copied.group(1).decode()
            last, rows[table] = _counted(following)
            revision = last.strip().decode() if table == _REVISION_OF and last else revision
    return Content(dict(sorted(rows.items())), revision)


def load(connection: psycopg.Connection[Any], path: Path, schema: str) -> None:
    """Make what an archive holds of a schema, in the connection's transaction, whose settings are as before."""
    connection.execute(_definitions(path, "pre-data", schema))
    with _section(path, "data", schema) as lines, connection.cursor() as cursor:
        for statement, following in _statements(lines):
            if _COPY.match(statement) is None:
                cursor.execute(statement)
                continue
            with cursor.copy(statement) as copy:
                for row in following:
                    copy.write(row)
    connection.execute(_definitions(path, "post-data", schema))
    connection.execute("RESET ALL")


@contextmanager
def _section(path: Path, section: Section, schema: str | None = None) -> Iterator[Iterable[bytes]]:
    of_schema = [] if schema is None else [f"--schema={schema}"]
    options = ["--no-owner", "--no-privileges", "--file=-", f"--section={section}", *of_schema]
    with printed([program("pg_restore"), *options, str(path)]) as lines:
        yield lines


def _definitions(path: Path, section: Section, schema: str) -> bytes:
    with _section(path, section, schema) as lines:
        return _NOT_FOR_US.sub(b"", b"".join(lines))


def _statements(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Iterator[bytes]]]:
    """Yield each statement of the rows' section, a line each, with the rows that follow a COPY, to be read first."""
    remaining = iter(lines)
    for line in remaining:
        if line.startswith((b"COPY ", b"SELECT ")):
            yield line, takewhile(lambda row: row != _END, remaining)


def _counted(rows: Iterator[bytes]) -> tuple[bytes | None, int]:
    """Return the last row, and how many there are."""
    last, count = None, 0
    for last in rows:  # noqa: B007 - the last one is wanted
        count += 1
    return last, count
