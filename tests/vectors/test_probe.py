"""The health probe: stages with their durations, or the one that failed."""

from pathlib import Path

from tests.databases import Databases
from tests.vectors.library import opened


def test_probe_runs_every_stage(databases: Databases, tmp_path: Path):
    """Connect, list, embed, query: each with its duration."""
    with opened(databases, tmp_path) as library:
        library.add(narrative="It tells of things.")
        library.index.mirror.drain()
        probed = library.index.probe()
    assert (probed.ok, probed.stage, probed.error) == (True, "done", None)
    assert list(probed.milliseconds) == ["connect", "list", "embed", "query"]


def test_probe_names_the_stage_that_failed(databases: Databases, tmp_path: Path):
    """A folder that cannot be used fails the connect stage."""
    (tmp_path / "chroma").write_text("not a folder")
    with opened(databases, tmp_path) as library:
        probed = library.index.probe()
    assert (probed.ok, probed.stage) == (False, "connect")
    assert "cannot be used" in probed.error
