"""Reads an archive of `pg_dump` through `pg_restore`: definitions as SQL text, and rows in the format of COPY."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

import psycopg

from app.store.backup import BackupContent
from app.store.backup.programs import find_program, stream_output

Section = Literal["pre-data", "data", "post-data"]

_COPY: Final = re.compile(rb"COPY (?:.+\.)?(\w+) \(")
_END: Final = b"\\.\n"
_REVISION_TABLE: Final = "alembic_version"
_UNSUPPORTED: Final = re.compile(rb"^(?:\\(?:un)?restrict .*|SET transaction_timeout .*)$", re.MULTILINE)
"""Lines that newer versions of pg_restore write, which only psql or newer servers understand."""


def read_content(path: Path) -> BackupContent:
    """Read and count every row of an archive."""
    rows: dict[str, int] = {}
    revision = None
    with _section(path, "data") as lines:
        for statement, following in _statements(lines):
            if (copied := _COPY.match(statement)) is None:
                continue
            table = copied.group(1).decode()
            last, rows[table] = _count(following)
            revision = last.strip().decode() if table == _REVISION_TABLE and last else revision
    return BackupContent(dict(sorted(rows.items())), revision)


def load(connection: psycopg.Connection[Any], path: Path, schema: str) -> None:
    """Create what an archive holds of a schema, in the connection's transaction; its settings are reset."""
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
    with stream_output([find_program("pg_restore"), *options, str(path)]) as lines:
        yield lines


def _definitions(path: Path, section: Section, schema: str) -> bytes:
    with _section(path, section, schema) as lines:
        return _UNSUPPORTED.sub(b"", b"".join(lines))


def _statements(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Iterator[bytes]]]:
    """Yield each statement of the data section, and the rows after a COPY, which must be consumed before the next."""
    remaining = iter(lines)
    for line in remaining:
        if line.startswith((b"COPY ", b"SELECT ")):
            yield line, takewhile(lambda row: row != _END, remaining)


def _count(rows: Iterator[bytes]) -> tuple[bytes | None, int]:
    """Return the last row, and the number of rows."""
    last, count = None, 0
    for last in rows:  # noqa: B007 - the last row is returned
        count += 1
    return last, count
