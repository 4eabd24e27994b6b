"""Install every table and index: the same statements as on SQLite."""

from importlib import import_module

_shared = import_module("migrations.versions.2026_11_30_0001_first_tables")

revision = _shared.revision
down_revision = _shared.down_revision
upgrade = _shared.upgrade
downgrade = _shared.downgrade
