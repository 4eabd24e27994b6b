"""Files that only their owner can read, on disk before they count as written."""

import os
from pathlib import Path

import pytest

from app.store.backup import files


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size that each file had when it was flushed to disk."""
    sizes: list[int] = []
    fsync = os.fsync

    def record(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    return sizes


def test_new_file_is_private_and_flushed_with_its_content(tmp_path: Path, synced: list[int]):
    """Whatever the umask allows others to read."""
    before = os.umask(0)
    try:
        with files.create_private(tmp_path / "backup") as file:
            file.write(b"content")
    finally:
        os.umask(before)

    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert synced == [len(b"content")]


def test_existing_file_is_replaced_and_not_written_to(tmp_path: Path):
    """A file that others could read, or a link to one elsewhere, gives nothing away."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    (tmp_path / "backup").symlink_to(elsewhere)
    with files.create_private(tmp_path / "backup") as file:
        file.write(b"content")

    assert elsewhere.read_bytes() == b"untouched"
    assert (tmp_path / "backup").read_bytes() == b"content"
    assert not (tmp_path / "backup").is_symlink()


def test_copy_is_private_in_a_new_folder(tmp_path: Path, synced: list[int]):
    """The permissions of the source do not matter."""
    source, target = tmp_path / "source", tmp_path / "new" / "folder" / "target"
    source.write_bytes(b"x" * 3_000_000)
    source.chmod(0o644)
    files.copy_private(source, target)

    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    assert synced == [3_000_000]


def test_folder_can_be_flushed(tmp_path: Path, synced: list[int]):
    """After a rename, it is the folder that must reach the disk; no handle stays open."""
    handles = len(os.listdir("/proc/self/fd"))
    files.fsync(tmp_path)

    assert len(synced) == 1
    assert len(os.listdir("/proc/self/fd")) == handles
