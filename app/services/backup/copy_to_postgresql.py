"""Copies everything into an empty PostgreSQL database. Ids are kept, interruptions resumed, and the result verified.

Triggers build full text and statistics. Vectors are not part of a database: the outbox lists those to be created.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final, Literal

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.errors import Conflict, Invalid
from app.services.operations import fulltext_check
from app.store.database import Database, dialect_of
from app.store.maintenance import dialects
from app.store.models import metadata, vector_outbox
from app.store.postgresql_copy import fingerprint
from app.store.postgresql_copy import source as copy_source
from app.store.postgresql_copy import target as copy_target
from app.store.postgresql_copy.coercion import RowCoercer, Values
from app.store.postgresql_copy.fingerprint import Fingerprint, ReplacedRow
from app.store.postgresql_copy.plan import OUTBOX, STEPS, TABLES, Step
from app.store.schema import migrations

Vectors = Literal["keep", "rebuild"]
"""keep: go on using the same collections, and copy the outbox. rebuild: embed every memory again."""

Progress = Callable[[str, int, int], None]
"""Called with the current step, the rows processed, and their total."""

_BATCH_ROWS: Final = 1_000
_BATCH_CHARACTERS: Final = 4_000_000
_MAX_REJECTED: Final = 1_000
_START_OVER: Final = "empty the target with `cmem-server db downgrade base` as its owner, and copy again"


class TableReport(msgspec.Struct, kw_only=True):
    """The rows of a table in the source, how many this run copied, and whether source and target are the same."""

    rows: int
    hash: str
    copied: int = 0
    same: bool | None = None


class CopyReport(msgspec.Struct, kw_only=True, rename="camel"):
    """What a copy did. `finished_before`: nothing was left to copy. `replaced` lists only the first rows."""

    dry_run: bool = False
    finished_before: bool = False
    vectors: Vectors
    tables: dict[str, TableReport]
    replaced_rows: int
    replaced: list[ReplacedRow]
    refused: list[str] = []
    faults: list[str] = []

    @property
    def ok(self) -> bool:
        """Say whether the target is intact and equals the source, as far as they were compared."""
        return not self.refused and not self.faults and all(table.same is not False for table in self.tables.values())


def prepare(url: str, server_role: str | None) -> None:
    """Migrate an empty database, as its owner, and grant the server's role its privileges."""
    require_postgresql(url)
    if migrations.current(url) is None:
        migrations.upgrade(url)
    migrations.require_head(url)
    if server_role is not None:
        migrations.grant_to(url, server_role)


def require_postgresql(url: str) -> None:
    """Raise Invalid unless the URL is one of PostgreSQL."""
    if dialect_of(url) != "postgresql":
        raise Invalid.field("--to", "must have the form postgresql+psycopg://OWNER:PASSWORD@HOST/DATABASE")


def rehearse(source: Database, target: Database, *, vectors: Vectors, progress: Progress) -> CopyReport:
    """Report what would be copied, and which values would have to be replaced. The target may have no tables yet."""
    with copy_source.snapshot(source) as reading:
        expected = _fingerprint(reading, progress)
    report = _report(expected, vectors, dry_run=True)
    if migrations.current(target.url) is not None:
        migrations.require_head(target.url)
        report.finished_before = _is_finished(target, expected.identity)
    return report


def copy(source: Database, target: Database, *, vectors: Vectors, progress: Progress) -> CopyReport:
    """Copy what is missing, then compare everything. Raises Conflict when the target holds anything else."""
    with _only_copy(target):
        with copy_source.snapshot(source) as reading:
            expected = _fingerprint(reading, progress)
            report = _report(expected, vectors)
            report.finished_before = _is_finished(target, expected.identity)
            if not report.finished_before:
                _CopyRun(reading, target, expected, report, progress).run()
        _verify(target, expected, report, progress)
        return report


@contextmanager
def _only_copy(target: Database) -> Iterator[None]:
    with target.advisory_lock("copy", wait=False) as is_locked:
        if not is_locked:
            raise Conflict("Another copy into this database is running.")
        yield


def _is_finished(target: Database, identity: str) -> bool:
    """Say whether this copy was completed before. Raises Conflict when the target holds anything else."""
    with target.read() as connection:
        copied_identity = copy_target.copied_from(connection)
        if copied_identity is None and (tables := copy_target.non_empty_tables(connection)):
            raise Conflict(f"The target is not empty: it has rows in {', '.join(tables)}. Nothing was changed.")
        if copied_identity not in (None, identity):
            raise Conflict(
                "The target holds a copy of another database, or of this one as it was before it changed. "
                f"Nothing was changed; to discard it, {_START_OVER}."
            )
        return copy_target.is_finished(connection)


def _fingerprint(reading: Connection, progress: Progress) -> Fingerprint:
    total = sum(copy_source.count(reading, table) for table in fingerprint.COMPARED_TABLES)
    return fingerprint.compute(reading, _row_counter(progress, "reading", total))


def _row_counter(progress: Progress, what: str, total: int) -> Callable[[int], None]:
    done = 0

    def report_rows(rows: int) -> None:
        nonlocal done
        done += rows
        progress(what, done, total)

    return report_rows


def _report(expected: Fingerprint, vectors: Vectors, *, dry_run: bool = False) -> CopyReport:
    compared = TABLES if vectors == "rebuild" else fingerprint.COMPARED_TABLES
    checksums = {table.name: expected.checksums[table.name] for table in compared}
    return CopyReport(
        dry_run=dry_run,
        vectors=vectors,
        tables={name: TableReport(rows=checksum.rows, hash=checksum.text) for name, checksum in checksums.items()},
        replaced_rows=expected.replaced_rows,
        replaced=expected.replaced,
    )


class _CopyRun:
    """Copies the rows batch by batch; each batch records the progress in its own transaction."""

    def __init__(
        self, reading: Connection, target: Database, expected: Fingerprint, report: CopyReport, progress: Progress
    ) -> None:
        self._reading = reading
        self._target = target
        self._fingerprint = expected
        self._report = report
        self._report_rows = _row_counter(progress, "copying", sum(table.rows for table in report.tables.values()))

    def run(self) -> None:
        with self._target.write() as connection:
            copy_target.begin(connection, self._fingerprint.identity)
            done = copy_target.copied_rows(connection)
        for step in STEPS:
            self._copy_step(step, done.get(step.name, 0))
        self._finish()
        dialects.of(self._target.dialect).merge_full_text(self._target, lambda: None)

    def _copy_step(self, step: Step, done: int) -> None:
        self._report_rows(done if step.where is None else 0)
        with self._batches(step, offset=done) as batches:
            for batch in batches:
                done += len(batch)
                self._write(step, batch, done)
                self._report_rows(len(batch) if step.where is None else 0)

    @contextmanager
    def _batches(self, step: Step, *, offset: int = 0) -> Iterator[Iterator[list[Values]]]:
        coercer = RowCoercer(step.columns)
        stream = copy_source.stream(self._reading, step.table, step.columns, where=step.where, offset=offset)
        with closing(stream) as rows:
            yield _batches(coercer.coerce(row)[0] for row in rows)

    def _write(self, step: Step, batch: Sequence[Values], done: int) -> None:
        """Write a batch; if PostgreSQL rejects it, split it in halves until the rejected row is found."""
        try:
            with copy_target.writing(self._target) as connection:
                step.write(connection, batch)
                copy_target.record_progress(connection, self._fingerprint.identity, step.name, done)
        except DBAPIError as rejection:
            if len(batch) == 1:
                self._record_rejection(step, batch[0], rejection)
                return
            middle = len(batch) // 2
            self._write(step, batch[:middle], done - len(batch) + middle)
            self._write(step, batch[middle:], done)
        else:
            self._report.tables[step.table.name].copied += len(batch) if step.where is None else 0

    def _record_rejection(self, step: Step, values: Values, rejection: DBAPIError) -> None:
        names = [column.name for column in step.columns]
        key = " ".join(str(values[names.index(column.name)]) for column in step.table.primary_key)
        self._report.refused.append(f"{step.name} {key}: {str(rejection.orig).splitlines()[0]}")
        if len(self._report.refused) >= _MAX_REJECTED:
            raise Conflict(f"PostgreSQL rejects too many rows, the last one being {self._report.refused[-1]}")

    def _finish(self) -> None:
        """Copy the outbox and set the sequences, in one transaction, once all rows are copied."""
        with copy_target.writing(self._target) as connection:
            if self._report.vectors == "keep":
                copy_target.clear_outbox(connection, but=self._fingerprint.replaced_memories)
                self._copy_outbox(connection)
            for table in copy_target.SEQUENCED_TABLES:
                copy_target.advance_sequence(
                    connection, table.name, copy_source.highest_assigned_seq(self._reading, table)
                )
            copy_target.finish(connection, self._fingerprint.identity)

    def _copy_outbox(self, connection: Connection) -> None:
        with self._batches(OUTBOX) as batches:
            for batch in batches:
                OUTBOX.write(connection, batch)
                self._report.tables[OUTBOX.name].copied += len(batch)


def _batches(rows: Iterable[Values]) -> Iterator[list[Values]]:
    batch: list[Values] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += sum(len(value) for value in row if isinstance(value, str))
        if len(batch) >= _BATCH_ROWS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _verify(target: Database, expected: Fingerprint, report: CopyReport, progress: Progress) -> None:
    """Compare the checksums of both databases, and check the consistency of the target."""
    report_rows = _row_counter(progress, "verifying", expected.rows)
    ignored = set(expected.replaced_memories)
    with copy_source.snapshot(target) as connection:
        for name, table in report.tables.items():
            if name != vector_outbox.name or not report.finished_before:  # after a copy, the servers process it
                actual = fingerprint.table_checksum(connection, metadata.tables[name], report_rows, but=ignored)
                table.same = actual == expected.checksums[name]
        if not report.finished_before:
            report.faults += copy_target.find_derived_faults(connection, all_enqueued=report.vectors == "rebuild")
    progress("checking", expected.rows, expected.rows)
    report.faults += fulltext_check.faults(target)
    if report.finished_before and not report.ok:
        report.faults.append(
            "The copy was completed before: what differs was rejected then, or has been written since."
        )
