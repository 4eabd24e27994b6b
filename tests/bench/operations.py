"""Import, export, backup and deletion: rows and megabytes per second, and memory use."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from app.caller import server_owner
from app.services.backup import backup
from app.services.backup.backup import DataLocation
from app.services.deletion import bulk_delete
from app.services.identity import teams
from app.services.memories import memories
from app.services.operations import maintenance
from app.services.projects import sessions
from app.services.transfer import exporting
from app.store.backup import files
from app.store.fulltext import MemoryFilters
from tests.bench import harness, texts
from tests.bench.harness import Row, Store
from tests.legacy import builders

_IN_SESSION = 100
_MB = 1024 * 1024


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = _filled(folder / "store", max(1_000, int(20_000 * scale)))
        rows = [*_transfer(store, folder), *_backup(store, folder), *_deletion(store)]
        rows.append(_legacy(folder, max(2_000, int(100_000 * scale))))
        store.database.close()
    return rows


def _filled(folder: Path, count: int) -> Store:
    """Create a store with memories in sessions of a hundred."""
    folder.mkdir()
    store = harness.prepared(folder)
    source = texts.memories(count)
    for start in range(0, count, _IN_SESSION):
        with store.database.write() as connection:
            new_session = sessions.NewSession(project_id=store.project_id, external_session_id=f"run {start}")
            session, _ = sessions.start(connection, store.caller, new_session)
            for fields in (next(source) for _ in range(min(_IN_SESSION, count - start))):
                new = memories.NewMemory(project_id=store.project_id, server_session_id=session.id, **fields)
                memories.insert_once(connection, store.caller, new)
    return store


def _transfer(store: Store, folder: Path) -> list[Row]:
    count = _count(store)
    file = folder / "export.ndjson"
    with store.database.read() as connection:
        selected = exporting.select_projects(connection, store.caller, store.project_id)
    with file.open("wb") as out:
        seconds_out = _seconds(lambda: [out.write(piece) for piece in _chunks(store, selected)])
    floor_out = count / _seconds(lambda: _plain_export(store.database.path))
    with store.database.write() as connection:
        teams.create(connection, server_owner(), name="other", slug="other")
    seconds_in, peak_in = _imported(file, store.folder)
    half = folder / "half.ndjson"
    _cut(file, half, count // 4)
    with store.database.write() as connection:
        teams.create(connection, server_owner(), name="third", slug="third")
    _, peak_half = _imported(half, store.folder, team="third")
    floor_in = count / _seconds(lambda: _plain_inserts(store.database.path, folder / "plain.db"))
    size = f"{count:,} memories"
    return [
        Row(
            f"export of {size}",
            f"{count / seconds_out:,.0f} rows/s",
            f"plain SELECT and JSON {floor_out:,.0f}/s",
            count / seconds_out / floor_out,
            "≥ 0.3",
        ),
        Row(
            f"import of {size}",
            f"{count / seconds_in:,.0f} rows/s",
            f"plain INSERTs {floor_in:,.0f}/s",
            count / seconds_in / floor_in,
            "≥ 0.2",
        ),
        Row(
            "  its memory",
            f"{peak_in:.0f} MiB",
            f"a quarter of the rows {peak_half:.0f} MiB",
            peak_in / peak_half,
            "≤ 1.1",
        ),
    ]


def _chunks(store: Store, selected: list) -> Iterator[bytes]:
    return exporting.chunks(store.database, store.caller, selected)


def _imported(file: Path, data_dir: Path, team: str = "other") -> tuple[float, float]:
    """Import a file with the command; return its seconds and peak memory in MiB."""
    program = "import resource, runpy, sys, atexit; sys.argv = ['app', *sys.argv[1:]]\n"
    program += "atexit.register(lambda: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))\n"
    program += "runpy.run_module('app', run_name='__main__')"
    command = [sys.executable, "-c", program, "import", str(file), "--team", team]
    environment = {**os.environ, "CMEM_DATA_DIR": str(data_dir)}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    match = re.search(r"peak (\d+)", done.stdout)
    assert match is not None
    return time.perf_counter() - started, int(match.group(1)) / 1024


def _cut(file: Path, part: Path, memories_kept: int) -> None:
    """Write an export with only the first memories: fewer lines, the same format."""
    kept = 0
    with file.open() as lines, part.open("w") as out:
        for line in lines:
            kept += line.startswith('{"record":"memory"')
            if kept <= memories_kept or not line.startswith('{"record":"memory"'):
                out.write(line)


def _backup(store: Store, folder: Path) -> list[Row]:
    location = DataLocation(store.database.url, store.folder / "chroma")
    size = store.database.path.stat().st_size / _MB
    seconds = _seconds(lambda: backup.write(location, folder / "b.db", with_vectors=False, progress=lambda *_: None))
    copied = _seconds(lambda: _plain_copy(store.database.path, folder / "copy.db"))
    restored = DataLocation(f"sqlite:///{folder / 'restored' / 'cmem.db'}", folder / "restored" / "chroma")
    back = _seconds(lambda: backup.restore(folder / "b.db", restored, progress=lambda _: None))
    return [
        Row(
            f"backup of {size:.0f} MB, verified",
            f"{size / seconds:,.0f} MB/s",
            f"plain copy {size / copied:,.0f} MB/s",
            copied / seconds,
            "printed",
        ),
        Row(
            "restore, verified",
            f"{size / back:,.0f} MB/s",
            f"plain copy {size / copied:,.0f} MB/s",
            copied / back,
            "printed",
        ),
    ]


def _deletion(store: Store) -> list[Row]:
    count = _count(store)
    filters = MemoryFilters(kinds=("observation",))
    seconds = _seconds(lambda: bulk_delete.remove_matching(store.database, store.caller, (), filters, dry_run=False))
    before = store.database.path.stat().st_size
    maintained = _seconds(lambda: maintenance.run(store.database))
    shrunk = store.database.path.stat().st_size
    return [
        Row("deletion by filter", f"{count / seconds:,.0f} rows/s", "", 0.0, "printed"),
        Row(
            "maintenance after it",
            f"{maintained:.1f} s",
            f"file {before / _MB:.0f} → {shrunk / _MB:.0f} MB",
            shrunk / before,
            "≤ 0.7",
        ),
    ]


def _legacy(folder: Path, count: int) -> Row:
    """Import a claude-mem database with the command."""
    path = folder / "claude-mem.db"
    with closing(builders.create(path)) as connection:
        connection.execute("BEGIN")
        for number, fields in enumerate(texts.memories(count, seed=3)):
            run_ = f"run-{number // _IN_SESSION}"
            if number % _IN_SESSION == 0:
                builders.add_session(connection, run_)
            builders.add_observation(
                connection,
                fields["title"],
                memory_session_id=f"memory-{run_}",
                narrative=fields["narrative"],
                facts=json.dumps(fields["facts"]),
                created_at_epoch=builders.MARCH + number,
            )
        connection.execute("COMMIT")
    (folder / "legacy").mkdir()
    store = harness.prepared(folder / "legacy")
    environment = {**os.environ, "CMEM_DATA_DIR": str(store.folder)}
    command = [sys.executable, "-m", "app", "legacy", "import", str(path), "--team", "bench", "--json"]
    started = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    seconds = time.perf_counter() - started
    store.database.close()
    target = 60 * count / 100_000
    return Row(f"legacy import of {count:,}", f"{seconds:.1f} s", f"target {target:.0f} s", seconds / target, "≤ 1")


def _plain_export(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for row in connection.execute("SELECT * FROM memory_items"):
            json.dumps(row)


def _plain_inserts(path: Path, target: Path) -> None:
    """Copy the rows into a database with the same schema, in transactions of the same size, and nothing else."""
    shutil.copyfile(path, target)
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(memory_items)")]
        rows = connection.execute("SELECT * FROM memory_items LIMIT 20000").fetchall()
        connection.execute("DELETE FROM memory_items")
        marks = ", ".join("?" * len(columns))
        for start in range(0, len(rows), 250):
            connection.execute("BEGIN")
            connection.executemany(f"INSERT INTO memory_items VALUES ({marks})", rows[start : start + 250])
            connection.execute("COMMIT")


def _plain_copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)
    files.fsync(target)


def _count(store: Store) -> int:
    with store.database.read() as connection:
        sql = "SELECT count(*) FROM memory_items WHERE project_id = ?"
        return int(connection.exec_driver_sql(sql, (store.project_id,)).scalar_one())


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
