"""Alembic's environment: app.store.migrations hands in the connection, and owns the transaction and the locks."""

from typing import Any

from alembic import context

from app.store.models import metadata


def _is_ours(name: str | None, kind: str, _: Any) -> bool:
    """Hide the full-text table and its shadow tables, which autogenerate would want to drop."""
    return not (kind == "table" and name is not None and name.startswith("memory_items_fts"))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    include_name=_is_ours,
)
context.run_migrations()
