"""Backup and restore of the whole server: a file that is verified when it is written and again before it is used.

Vectors are a cache: a restored server makes them anew, unless they were put beside the backup.
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
from app.store.backup import Address, BackupError, Progress, Rows, dialects, files
from app.store.database import dialect_of
from app.store.engines import Dialect
from app.store.schema import migrations
from app.vectors.chroma.folder import FolderLock
from app.vectors.errors import NotInitialized


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is written beside a backup: what it must hold to be whole."""

    version: int = 1
    made_at_epoch: int
    dialect: Dialect = "sqlite"
    revision: str | None
    bytes: int
    sha256: str
    vectors_sha256: str | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server keeps its data: the database as its owner reaches it, and the folder of the embedded vectors.

    `server_url` is the database as the server reaches it, where that is as another role.
    """

    url: str
    vectors: Path
    server_url: str = ""

    @property
    def dialect(self) -> Dialect:
        """Which kind of database it is."""
        return dialect_of(self.url)


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
    backup.parent.mkdir(parents=True, exist_ok=True)
    part = backup.with_name(backup.name + ".part")
    copying = dialects.of(place.dialect)
    rows = copying.copy(place.url, part, progress)
    found = copying.content(part)
    _require_rows(part, found.rows, rows)
    vectors_sha256 = _pack_vectors(place.vectors, vectors_of(backup)) if with_vectors else None
    manifest = Manifest(
        made_at_epoch=now_ms(),
        dialect=place.dialect,
        revision=found.revision,
        bytes=part.stat().st_size,
        sha256=_sha256(part),
        vectors_sha256=vectors_sha256,
        rows=rows,
    )
    manifest_of(backup).unlink(missing_ok=True)  # a manifest must never stand beside the file of another time
    part.replace(backup)
    with files.private(manifest_of(backup)) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)))
    files.sync(backup.parent)
    return manifest


def read(backup: Path, dialect: Dialect) -> Manifest | None:
    """Check a backup against its manifest and itself; return the manifest, None when there is none beside it."""
    manifest = _manifest(backup, dialect)
    _checked(backup, manifest, dialect)
    if manifest is not None and manifest.vectors_sha256 is not None:
        _require_checksum(vectors_of(backup), manifest.vectors_sha256)
    return manifest


def restore(backup: Path, place: Place, *, progress: Callable[[str], None]) -> Manifest | None:
    """Put a backup in the place of the data; Conflict while anybody uses them.

    The new data are checked before they take the old ones' place and after; the old ones are kept until then.
    Killed at any moment, the place holds the old data or the new, whole; run again, it ends the same.
    """

    def in_place() -> None:
        _clear_vectors(place.vectors)
        progress("checking it in place")

    copying = dialects.of(place.dialect)
    with usage_lock.alone(place.url):
        progress("checking the backup")
        manifest = _manifest(backup, place.dialect)
        incoming = copying.brought(backup, place.url)
        rows = _checked(incoming, manifest, place.dialect)
        progress("putting it in place")
        copying.replace(incoming, Address(place.url, place.server_url or place.url), rows, in_place)
        if manifest is not None and manifest.vectors_sha256 is not None:
            progress("unpacking the vectors")
            _require_checksum(vectors_of(backup), manifest.vectors_sha256)
            _unpack_vectors(vectors_of(backup), place.vectors)
    return manifest


def _checked(path: Path, manifest: Manifest | None, dialect: Dialect) -> Rows:
    """Check what is to be put into a database of that dialect; return its rows by table."""
    if manifest is not None:
        _require_checksum(path, manifest.sha256)
    found = dialects.of(dialect).content(path)
    if manifest is not None:
        _require_rows(path, found.rows, manifest.rows)
    migrations.require_known(found.revision)
    return found.rows


def _require_rows(path: Path, found: Rows, expected: Rows) -> None:
    if found != expected:
        differing = sorted(table for table in expected | found if expected.get(table) != found.get(table))
        raise BackupError(f"{path.name} has other rows than its manifest says, in {', '.join(differing)}.")


def _require_checksum(path: Path, sha256: str) -> None:
    if not path.exists():
        raise BackupError(f"{path.name} is missing.")
    if _sha256(path) != sha256:
        raise BackupError(f"{path.name} was changed or damaged since it was written: its checksum differs.")


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
    """Pack the vectors; BackupError while a server has them, whose Chroma would write meanwhile."""
    with _having(folder):
        part = archive.with_name(archive.name + ".part")
        with files.private(part) as file, tarfile.open(fileobj=file, mode="w") as packed:
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
