"""Backup and restore of the whole server. A backup is verified when it is written, and again before it is restored.

Vectors are a cache: a restored server embeds everything again, unless they are stored with the backup.
"""

import hashlib
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.clock import now_ms
from app.store import usage_lock
from app.store.backup import BackupError, Progress, RestoreTarget, Rows, dialects, files
from app.store.database import dialect_of
from app.store.engines import Dialect
from app.store.schema import migrations
from app.vectors.chroma.folder import FolderLock
from app.vectors.errors import NotInitialized


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stored with a backup: the checksums and row counts that it must have to be complete."""

    version: int = 1
    made_at_epoch: int
    dialect: Dialect = "sqlite"
    revision: str | None
    bytes: int
    sha256: str
    vectors_sha256: str | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class DataLocation:
    """Where a server keeps its data: the database URL of the owner, and the folder of the embedded vectors.

    `server_url` is the server's own database URL, where it connects as another role than the owner.
    """

    url: str
    vectors: Path
    server_url: str = ""

    @property
    def dialect(self) -> Dialect:
        """The kind of the database."""
        return dialect_of(self.url)


def manifest_of(backup: Path) -> Path:
    """Return the path of the manifest of a backup."""
    return backup.with_name(backup.name + ".manifest.json")


def vectors_of(backup: Path) -> Path:
    """Return the path of the vectors of a backup, which exists only if they were included."""
    return backup.with_name(backup.name + ".vectors.tar")


def write(location: DataLocation, backup: Path, *, with_vectors: bool, progress: Progress) -> Manifest:
    """Back up a server, which may be running, into `backup`. Raises BackupError when the copy is incomplete.

    The file gets its name once it has passed all checks: an interrupted backup leaves only a `.part` file.
    """
    backup.parent.mkdir(parents=True, exist_ok=True)
    part = backup.with_name(backup.name + ".part")
    backend = dialects.of(location.dialect)
    rows = backend.copy(location.url, part, progress)
    content = backend.verify(part)
    _require_rows(part, content.rows, rows)
    vectors_sha256 = _pack_vectors(location.vectors, vectors_of(backup)) if with_vectors else None
    manifest = Manifest(
        made_at_epoch=now_ms(),
        dialect=location.dialect,
        revision=content.revision,
        bytes=part.stat().st_size,
        sha256=_sha256(part),
        vectors_sha256=vectors_sha256,
        rows=rows,
    )
    manifest_of(backup).unlink(missing_ok=True)  # a manifest must never describe an older file
    part.replace(backup)
    with files.create_private(manifest_of(backup)) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)))
    files.fsync(backup.parent)
    return manifest


def read(backup: Path, dialect: Dialect) -> Manifest | None:
    """Verify a backup, also against its manifest; return the manifest, or None if there is none. Raises BackupError."""
    manifest = _manifest(backup, dialect)
    _verify(backup, manifest, dialect)
    if manifest is not None and manifest.vectors_sha256 is not None:
        _require_checksum(vectors_of(backup), manifest.vectors_sha256)
    return manifest


def restore(backup: Path, location: DataLocation, *, progress: Callable[[str], None]) -> Manifest | None:
    """Replace the data by a backup. Raises Conflict while the data is in use, BackupError for a damaged backup.

    The new data is checked before and after the swap, and the old data is kept until then. If killed at any moment,
    either the old or the new data is there, complete; running it again completes the restore.
    """

    def on_swapped() -> None:
        _clear_vectors(location.vectors)
        progress("checking the restored data")

    backend = dialects.of(location.dialect)
    with usage_lock.exclusive(location.url):
        progress("checking the backup")
        manifest = _manifest(backup, location.dialect)
        incoming = backend.stage(backup, location.url)
        rows = _verify(incoming, manifest, location.dialect)
        progress("replacing the data")
        backend.swap(incoming, RestoreTarget(location.url, location.server_url or location.url), rows, on_swapped)
        if manifest is not None and manifest.vectors_sha256 is not None:
            progress("unpacking the vectors")
            _require_checksum(vectors_of(backup), manifest.vectors_sha256)
            _unpack_vectors(vectors_of(backup), location.vectors)
    return manifest


def _verify(path: Path, manifest: Manifest | None, dialect: Dialect) -> Rows:
    """Verify a backup for a database of that dialect; return its number of rows by table."""
    if manifest is not None:
        _require_checksum(path, manifest.sha256)
    content = dialects.of(dialect).verify(path)
    if manifest is not None:
        _require_rows(path, content.rows, manifest.rows)
    migrations.require_known(content.revision)
    return content.rows


def _require_rows(path: Path, actual: Rows, expected: Rows) -> None:
    if actual != expected:
        differing = sorted(table for table in expected | actual if expected.get(table) != actual.get(table))
        raise BackupError(f"The row counts of {path.name} differ from its manifest: {', '.join(differing)}.")


def _require_checksum(path: Path, sha256: str) -> None:
    if not path.exists():
        raise BackupError(f"{path.name} is missing.")
    if _sha256(path) != sha256:
        raise BackupError(f"{path.name} was changed or damaged after it was written: its checksum does not match.")


def _manifest(backup: Path, dialect: Dialect) -> Manifest | None:
    path = manifest_of(backup)
    if not path.exists():
        return None
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as cause:
        raise BackupError(f"{path.name} cannot be read: {cause}") from cause
    if manifest.dialect != dialect:
        raise BackupError(f"{backup.name} is a backup of {manifest.dialect}, the database is {dialect}.")
    return manifest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pack_vectors(folder: Path, archive: Path) -> str:
    """Pack the vectors; return the checksum. Raises BackupError while a server uses them: its Chroma may be writing."""
    with _lock_vectors(folder):
        part = archive.with_name(archive.name + ".part")
        with files.create_private(part) as file, tarfile.open(fileobj=file, mode="w") as packed:
            if folder.exists():
                packed.add(folder, arcname="chroma")
        part.replace(archive)
    return _sha256(archive)


def _unpack_vectors(archive: Path, folder: Path) -> None:
    with _lock_vectors(folder), tarfile.open(archive) as packed:
        packed.extractall(folder.parent, filter="data")
        unpacked = folder.parent / "chroma"
        if unpacked != folder and unpacked.exists():
            unpacked.replace(folder)


def _clear_vectors(folder: Path) -> None:
    """Delete the vectors of the old data; the server refills the index automatically."""
    with _lock_vectors(folder):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock_vectors(folder: Path) -> Iterator[None]:
    lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name="backup")
    try:
        lock.acquire()
    except NotInitialized as cause:
        raise BackupError(f"{cause} Stop it, or back up without vectors.") from cause
    try:
        yield
    finally:
        lock.release()
