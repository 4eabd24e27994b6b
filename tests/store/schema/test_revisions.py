"""The revision of a database, without Alembic."""

from pathlib import Path

from app.store.schema import migrations, revisions
from tests.databases import Databases


def test_newest_revision_is_the_one_of_alembic():
    """File names are read instead of scripts, and must lead to the same revision."""
    assert revisions.newest() == migrations.head()


def test_a_database_is_at_head_when_it_is_migrated(databases: Databases, tmp_path: Path):
    """An older revision is not."""
    databases.url(tmp_path)
    url = databases.owner_url(tmp_path)

    assert (revisions.current(url), revisions.is_at_head(url)) == (migrations.head(), True)

    migrations.downgrade(url, "0001")
    assert (revisions.current(url), revisions.is_at_head(url)) == ("0001", False)
    databases.drop(tmp_path)


def test_a_missing_file_has_no_revision_and_is_not_created(tmp_path: Path):
    """Looking changes nothing."""
    assert revisions.current(f"sqlite:///{tmp_path / 'none' / 'cmem.db'}") is None
    assert list(tmp_path.iterdir()) == []
