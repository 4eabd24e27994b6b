"""Copies everything into an empty PostgreSQL: ids kept, resumed where it was interrupted, verified in the end.

Full text and statistics follow by triggers. Vectors are no part of a database: the outbox says which are to be made.
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
from app.store.postgresql_copy import fingerprint as stocks
from app.store.postgresql_copy import source as reader
from app.store.postgresql_copy import target as place
from app.store.postgresql_copy.coercion import Fitting, Values
from app.store.postgresql_copy.fingerprint import Replaced, Stock
from app.store.postgresql_copy.plan import OUTBOX, STEPS, TABLES, Step
from app.store.schema import migrations

Vectors = Literal["keep", "rebuild"]
"""keep: the same collections serve on, and what waited waits on. rebuild: every memory is mirrored anew."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many rows are, and of how many."""

_BATCH_ROWS: Final = 1_000
_BATCH_CHARACTERS: Final = 4_000_000
_MOST_REFUSED: Final = 1_000
_ANEW: Final = "empty the target with `cmem-server db downgrade base` as its owner, and copy again"


class TableReport(msgspec.Struct, kw_only=True):
    """What the source has of a table, what this run copied of it, and whether the target now has the same."""

    rows: int
    hash: str
    copied: int = 0
    same: bool | None = None


class Report(msgspec.Struct, kw_only=True, rename="camel"):
    """What a copy did; `finished_before`: there was nothing left to copy. `replaced` names the first rows only."""

    dry_run: bool = False
    finished_before: bool = False
    vectors: Vectors
    tables: dict[str, TableReport]
    replaced_rows: int
    replaced: list[Replaced]
    refused: list[str] = []
    faults: list[str] = []

    @property
    def ok(self) -> bool:
        """Say whether the target is whole and holds what the source does, as far as that was looked at."""
        return not self.refused and not self.faults and all(table.same is not False for table in self.tables.values())


def prepare(url: str, server_role: str | None) -> None:
    """Make an empty database ready to take a copy in, as the role that owns it; let the server's role use it."""
    require_postgresql(url)
    if migrations.current(url) is None:
        migrations.upgrade(url)
    migrations.require_head(url)
    if server_role is not None:
        migrations.grant_to(url, server_role)


def require_postgresql(url: str) -> None:
    """Raise Invalid for an address that is no PostgreSQL's."""
    if dialect_of(url) != "postgresql":
        raise Invalid.field("--to", "write it as postgresql+psycopg://OWNER:PASSWORD@HOST/DATABASE")


def rehearse(source: Database, target: Database, *, vectors: Vectors, progress: Progress) -> Report:
    """Say what a copy would hold and what it would have to replace; the target may still be without any table."""
    with reader.snapshot(source) as reading:
        stock = _stock(reading, progress)
    report = _report(stock, vectors, dry_run=True)
    if migrations.current(target.url) is not None:
        migrations.require_head(target.url)
        report.finished_before = _is_finished(target, stock.identity)
    return report


def copy(source: Database, target: Database, *, vectors: Vectors, progress: Progress) -> Report:
    """Copy what is not there yet, then compare all of it. Conflict when the target holds anything else."""
    with _only_copy(target):
        with reader.snapshot(source) as reading:
            stock = _stock(reading, progress)
            report = _report(stock, vectors)
            report.finished_before = _is_finished(target, stock.identity)
            if not report.finished_before:
                _Run(reading, target, stock, report, progress).all()
        _verify(target, stock, report, progress)
        return report


@contextmanager
def _only_copy(target: Database) -> Iterator[None]:
    with target.alone("copy", wait=False) as is_alone:
        if not is_alone:
            raise Conflict("Another copy into this database is running.")
        yield


def _is_finished(target: Database, identity: str) -> bool:
    """Say whether this copy was brought to its end before; Conflict when the target holds anything else."""
    with target.read() as connection:
        begun = place.copied_from(connection)
        if begun is None and (tables := place.holds_rows(connection)):
            raise Conflict(f"The target is not empty: it has rows in {', '.join(tables)}. Nothing was touched.")
        if begun not in (None, identity):
            raise Conflict(
                "The target holds a copy of another database, or of this one as it was before it changed. "
                f"Nothing was touched; if it may go, {_ANEW}."
            )
        return place.is_finished(connection)


def _stock(reading: Connection, progress: Progress) -> Stock:
    total = sum(reader.count(reading, table) for table in stocks.COUNTED)
    return stocks.take(reading, _telling(progress, "reading", total))


def _telling(progress: Progress, what: str, total: int) -> Callable[[int], None]:
    done = 0

    def tell(rows: int) -> None:
        nonlocal done
        done += rows
        progress(what, done, total)

    return tell


def _report(stock: Stock, vectors: Vectors, *, dry_run: bool = False) -> Report:
    compared = TABLES if vectors == "rebuild" else stocks.COUNTED
    digests = {table.name: stock.digests[table.name] for table in compared}
    return Report(
        dry_run=dry_run,
        vectors=vectors,
        tables={name: TableReport(rows=digest.rows, hash=digest.text) for name, digest in digests.items()},
        replaced_rows=stock.replaced_rows,
        replaced=stock.replaced,
    )


class _Run:
    """Carries the rows over, batch by batch; each notes with itself how far the copy has come."""

    def __init__(self, reading: Connection, target: Database, stock: Stock, report: Report, progress: Progress) -> None:
        self._reading = reading
        self._target = target
        self._stock = stock
        self._report = report
        self._tell = _telling(progress, "copying", sum(table.rows for table in report.tables.values()))

    def all(self) -> None:
        with self._target.write() as connection:
            place.begin(connection, self._stock.identity)
            done = place.places(connection)
        for step in STEPS:
            self._step(step, done.get(step.name, 0))
        self._finish()
        dialects.of(self._target.dialect).merge_full_text(self._target, lambda: None)

    def _step(self, step: Step, done: int) -> None:
        self._tell(done if step.where is None else 0)
        with self._batches(step, behind=done) as batches:
            for batch in batches:
                done += len(batch)
                self._put(step, batch, done)
                self._tell(len(batch) if step.where is None else 0)

    @contextmanager
    def _batches(self, step: Step, *, behind: int = 0) -> Iterator[Iterator[list[Values]]]:
        fitting = Fitting(step.columns)
        stream = reader.stream(self._reading, step.table, step.columns, where=step.where, behind=behind)
        with closing(stream) as rows:
            yield _batches(fitting.fit(row)[0] for row in rows)

    def _put(self, step: Step, batch: Sequence[Values], done: int) -> None:
        """Write a batch; where something in it is refused, each half for itself, until it is known which row."""
        try:
            with place.writing(self._target) as connection:
                step.put(connection, batch)
                place.note(connection, self._stock.identity, step.name, done)
        except DBAPIError as refusal:
            if len(batch) == 1:
                self._refuse(step, batch[0], refusal)
                return
            middle = len(batch) // 2
            self._put(step, batch[:middle], done - len(batch) + middle)
            self._put(step, batch[middle:], done)
        else:
            self._report.tables[step.table.name].copied += len(batch) if step.where is None else 0

    def _refuse(self, step: Step, values: Values, refusal: DBAPIError) -> None:
        names = [column.name for column in step.columns]
        key = " ".join(str(values[names.index(column.name)]) for column in step.table.primary_key)
        self._report.refused.append(f"{step.name} {key}: {str(refusal.orig).splitlines()[0]}")
        if len(self._report.refused) >= _MOST_REFUSED:
            raise Conflict(f"PostgreSQL refuses too many rows: {self._report.refused[-1]}")

    def _finish(self) -> None:
        """Do what only a whole copy can have, at once."""
        with place.writing(self._target) as connection:
            if self._report.vectors == "keep":
                place.clear_outbox(connection, but=self._stock.replaced_memories)
                self._put_outbox(connection)
            for table in place.NUMBERED:
                place.number_behind(connection, table.name, reader.highest_given(self._reading, table))
            place.finish(connection, self._stock.identity)

    def _put_outbox(self, connection: Connection) -> None:
        with self._batches(OUTBOX) as batches:
            for batch in batches:
                OUTBOX.put(connection, batch)
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


def _verify(target: Database, stock: Stock, report: Report, progress: Progress) -> None:
    """Compare the digests of both sides, and let the target say whether it is whole."""
    tell = _telling(progress, "verifying", stock.rows)
    left_out = set(stock.replaced_memories)
    with reader.snapshot(target) as connection:
        for name, table in report.tables.items():
            if name != vector_outbox.name or not report.finished_before:  # later it is worked off by the servers
                arrived = stocks.digest(connection, metadata.tables[name], tell, but=left_out)
                table.same = arrived == stock.digests[name]
        if not report.finished_before:
            report.faults += place.derived_faults(connection, all_enqueued=report.vectors == "rebuild")
    progress("checking", stock.rows, stock.rows)
    report.faults += fulltext_check.faults(target)
    if report.finished_before and not report.ok:
        report.faults.append("The copy had come to its end before: what differs was refused then, or written since.")
