"""Backup and restore of the whole server: a file that is verified when it is written and again before it is used.

Vectors are a cache: a restored server makes them anew, unless they were put beside the backup.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from app.clock import now_ms
from app.errors import AppError
from app.store import copying, migrations, presence
from app.store.copying import Progress
from app.vectors.chroma.folder import FolderLock
from app.vectors.failures import NotInitialized

_READ_BYTES: Final = 1024 * 1024


class BackupError(AppError):
    """The backup, or what it is of, is not whole, or cannot be used here."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is written beside a backup: what it must hold to be whole."""

    version: int = 1
    made_at_epoch: int
    revision: str | None
    bytes: int
    sha256: str
    vectors_sha256: str | None
    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server keeps its data: the database file, and the folder of the embedded vectors."""

    database: Path
    vectors: Path

    @property
    def url(self) -> str:
        """The address of the database."""
        return f"sqlite:///{self.database}"


def manifest_of(backup: Path) -> Path:
    """Return where the manifest of a backup is."""
    return backup.with_name(backup.name + ".manifest.json")


def vectors_of(backup: Path) -> Path:
    """Return where the vectors of a backup are, if they were asked for."""
    return backup.with_name(backup.name + ".vectors.tar")


def write(place: Place, backup: Path, *, with_vectors: bool, progress: Progress) -> Manifest:
    """Back the server up into `backup`, while it may go on serving; BackupError when the copy is not whole.

    The file gets its name once it has passed its checks: an interrupted backup leaves only a `.part` behind.
    """
    if not place.database.exists():
        raise BackupError(f"There is no database at {place.database}.")
    backup.parent.mkdir(parents=True, exist_ok=True)
    part = backup.with_name(backup.name + ".part")
    rows = copying.copy(place.database, part, progress)
    _require_whole(part, rows)
    vectors_sha256 = _pack_vectors(place.vectors, vectors_of(backup)) if with_vectors else None
    manifest = Manifest(
        made_at_epoch=now_ms(),
        revision=migrations.current(f"sqlite:///{part}"),
        bytes=part.stat().st_size,
        sha256=_sha256(part),
        vectors_sha256=vectors_sha256,
        rows=rows,
    )
    manifest_of(backup).unlink(missing_ok=True)  # a manifest must never stand beside the file of another time
    part.replace(backup)
    _write_private(manifest_of(backup), msgspec.json.format(msgspec.json.encode(manifest)))
    copying.sync(backup.parent)
    return manifest


def read(backup: Path) -> Manifest | None:
    """Check a backup against its manifest and itself; return the manifest, None when there is none beside it."""
    manifest = _checked(backup, _manifest(backup))
    if manifest is not None and manifest.vectors_sha256 is not None:
        _require_checksum(vectors_of(backup), manifest.vectors_sha256)
    return manifest


def restore(backup: Path, place: Place, *, progress: Callable[[str], None]) -> Manifest | None:
    """Put a backup in the place of the data; Conflict while anybody uses them.

    The new file is checked before it takes the old one's place and after; the old one stays beside it until then.
    Killed at any moment, the place holds the old data or the new, whole; run again, it ends the same.
    """
    with presence.alone(place.url):
        progress("checking the backup")
        incoming = place.database.with_name(place.database.name + ".restoring")
        _copy_private(backup, incoming)
        manifest = _checked(incoming, _manifest(backup))
        progress("putting it in place")
        with _old_aside(place.database):
            _clear_vectors(place.vectors)
            _remove_sidecars(place.database)
            incoming.replace(place.database)
            copying.sync(place.database.parent)
            progress("checking it in place")
            migrations.upgrade(place.url)
            _require_whole(place.database, None)
        if manifest is not None and manifest.vectors_sha256 is not None:
            progress("unpacking the vectors")
            _require_checksum(vectors_of(backup), manifest.vectors_sha256)
            _unpack_vectors(vectors_of(backup), place.vectors)
    return manifest


@contextmanager
def _old_aside(database: Path) -> Iterator[None]:
    """Keep what stands under another name, put it back when the new one fails, remove it when all is well."""
    old = database.with_name(database.name + ".before-restore")
    if database.exists() and not old.exists():  # there is one: an interrupted run kept the original
        _fold_log_in(database)
        os.link(database, old)
    try:
        yield
    except Exception:
        if old.exists() and not old.samefile(database):
            _remove_sidecars(database)
            old.replace(database)
        old.unlink(missing_ok=True)
        raise
    old.unlink(missing_ok=True)


def _fold_log_in(database: Path) -> None:
    """Bring what only the log holds into the file. One that is too damaged for that is replaced as it is."""
    with contextlib.suppress(sqlite3.DatabaseError):
        connection = sqlite3.connect(database, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()


def _remove_sidecars(database: Path) -> None:
    """Remove the log and its index: beside another database they would be replayed into it."""
    for suffix in ("-wal", "-shm", "-journal"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _checked(path: Path, manifest: Manifest | None) -> Manifest | None:
    if manifest is not None:
        _require_checksum(path, manifest.sha256)
    _require_whole(path, manifest.rows if manifest else None)
    migrations.require_known(migrations.current(f"sqlite:///{path.absolute()}"))
    return manifest


def _require_whole(path: Path, rows: dict[str, int] | None) -> None:
    if found := copying.faults(path):
        raise BackupError(f"{path.name} is not whole: {found[0]}")
    if rows is not None and (counted := copying.rows_of(path)) != rows:
        differing = sorted(table for table in rows | counted if rows.get(table) != counted.get(table))
        raise BackupError(f"{path.name} has other rows than its manifest says, in {', '.join(differing)}.")


def _require_checksum(path: Path, sha256: str) -> None:
    if not path.exists():
        raise BackupError(f"{path.name} is missing.")
    if _sha256(path) != sha256:
        raise BackupError(f"{path.name} was changed or damaged since it was written: its checksum differs.")


def _manifest(backup: Path) -> Manifest | None:
    path = manifest_of(backup)
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as cause:
        raise BackupError(f"{path.name} cannot be read: {cause}") from cause


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that its owner alone may read; on leaving it is on the disk."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_private(path: Path, content: bytes) -> None:
    with _private(path) as file:
        file.write(content)


def _copy_private(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reading, _private(target) as made:
        shutil.copyfileobj(reading, made, _READ_BYTES)


def _pack_vectors(folder: Path, archive: Path) -> str:
    """Pack the vectors; BackupError while a server has them, whose Chroma would write meanwhile."""
    with _having(folder):
        part = archive.with_name(archive.name + ".part")
        with _private(part) as file, tarfile.open(fileobj=file, mode="w") as packed:
            if folder.exists():
                packed.add(folder, arcname="chroma")
        part.replace(archive)
    return _sha256(archive)


def _unpack_vectors(archive: Path, folder: Path) -> None:
    with _having(folder), tarfile.open(archive) as packed:
        packed.extractall(folder.parent, filter="data")
        unpacked = folder.parent / "chroma"
        if unpacked != folder and unpacked.exists():
            unpacked.replace(folder)


def _clear_vectors(folder: Path) -> None:
    """Remove the vectors of the old data: the server fills the index again by itself."""
    with _having(folder):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _having(folder: Path) -> Iterator[None]:
    lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name="backup")
    try:
        lock.acquire()
    except NotInitialized as cause:
        raise BackupError(f"{cause} Stop it, or leave the vectors out.") from cause
    try:
        yield
    finally:
        lock.release()
