"""Requests by key and period: the same table as on SQLite."""

from importlib import import_module

_shared = import_module("migrations.versions.2026_11_30_0003_request_counters")

revision = _shared.revision
down_revision = _shared.down_revision
upgrade = _shared.upgrade
downgrade = _shared.downgrade
