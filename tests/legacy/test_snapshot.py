"""A private copy is complete, and leaves no trace on the source."""

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from app.legacy import snapshot
from tests.legacy import builders


def folder_state(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def titles(database: Path) -> list[str]:
    connection = sqlite3.connect(database)
    try:
        return [title for (title,) in connection.execute("SELECT title FROM observations ORDER BY id")]
    finally:
        connection.close()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    return folder / "claude-mem.db"


@pytest.fixture
def private(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    return folder


@pytest.fixture
def with_log(source, tmp_path):
    """A database whose second row is only in the write-ahead log, as after a crash."""
    made = tmp_path / "made.db"
    connection = builders.create(made)
    builders.add_observation(connection, "checkpointed")
    connection.execute("PRAGMA wal_checkpoint(truncate)")
    builders.add_observation(connection, "in the log")
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{made}{suffix}", f"{source}{suffix}")
    connection.close()
    return source


def test_committed_rows_of_the_log_are_in_the_copy(with_log, private):
    """The write-ahead log is part of the database."""
    assert titles(snapshot.take(with_log, private)) == ["checkpointed", "in the log"]


def test_log_is_found_through_a_symbolic_link(with_log, private, tmp_path):
    """It is next to the file that the link points to."""
    link = tmp_path / "link.db"
    link.symlink_to(with_log)
    assert titles(snapshot.take(link, private)) == ["checkpointed", "in the log"]


def test_source_folder_is_not_changed(with_log, private):
    """Neither the database nor its log changes, and no file is created."""
    before = folder_state(with_log.parent)
    titles(snapshot.take(with_log, private))
    assert folder_state(with_log.parent) == before


def test_source_without_a_log_gets_no_log(source, private):
    """A cleanly closed database stays the only file in its folder."""
    builders.sample(source)
    snapshot.take(source, private)
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def test_uncommitted_row_is_not_in_the_copy(with_log, private):
    """A transaction that is open during the copy is not part of it."""
    writer = sqlite3.connect(with_log, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    builders.add_observation(writer, "not yet")
    copied = titles(snapshot.take(with_log, private))
    writer.execute("ROLLBACK")
    writer.close()
    assert copied == ["checkpointed", "in the log"]


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_autocheckpoint = 8")
for number in range(1_000_000):
    connection.execute("INSERT INTO observations (title, narrative) VALUES (?, ?)", (f"row {number}", "x" * 3000))
    if number == 20:
        print("writing", flush=True)
"""


def test_copy_taken_under_a_busy_writer_is_intact(source, private):
    """A program that constantly writes and checkpoints neither breaks the copy nor is disturbed by it."""
    builders.create(source).close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, source], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        copies = []
        for number in range(5):
            folder = private / str(number)
            folder.mkdir()
            copies.append(snapshot.take(source, folder))
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
    for copy in copies:
        connection = sqlite3.connect(copy)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        assert titles(copy) == [f"row {number}" for number in range(len(titles(copy)))]


def test_source_that_keeps_changing_is_rejected(source, private, monkeypatch):
    """A file that changes during every attempt is an error, not a torn copy."""
    builders.sample(source)
    copy_file = shutil.copyfile

    def copy_during_a_write(origin: Path, target: Path) -> None:
        copy_file(origin, target)
        with source.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(shutil, "copyfile", copy_during_a_write)
    with pytest.raises(snapshot.SourceBusy):
        snapshot.take(source, private, timeout_seconds=0.2)
