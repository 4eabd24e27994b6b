"""Install every table and index: the same statements as on SQLite, the indexes that find one row last."""

from importlib import import_module

from alembic import op

_shared = import_module("migrations.versions.2026_11_30_0001_first_tables")

revision = _shared.revision
down_revision = _shared.down_revision
downgrade = _shared.downgrade

# Until a table has statistics, the planner takes every index that has a condition for equally good, and of those the
# one made last: that would be one of the lists, whose whole project is then read to find a single row.
_FIND_ONE_ROW = (
    (
        "ALTER TABLE memory_items DROP CONSTRAINT uq_memory_items_project_id_dedup_scope_kind_content_hash",
        "ALTER TABLE memory_items ADD CONSTRAINT uq_memory_items_project_id_dedup_scope_kind_content_hash"
        " UNIQUE (project_id, dedup_scope, kind, content_hash)",
    ),
    (
        "ALTER TABLE agent_events DROP CONSTRAINT uq_agent_events_project_id_event_hash",
        "ALTER TABLE agent_events ADD CONSTRAINT uq_agent_events_project_id_event_hash UNIQUE (project_id, event_hash)",
    ),
)


def upgrade() -> None:
    """Install what SQLite has, then make anew what is to be last."""
    _shared.upgrade()
    for drop, make in _FIND_ONE_ROW:
        op.execute(drop)
        op.execute(make)
