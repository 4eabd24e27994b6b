"""Alembic's environment: app.store.schema.migrations passes the connection, and owns the transaction and the lock."""

from typing import Any

from alembic import context

from app.store.models import metadata


def _is_ours(name: str | None, kind: str, _: Any) -> bool:
    """Hide full text and our bookkeeping tables, which are not models: autogenerate would drop them."""
    hidden = ("memory_items_fts", "installed_objects", "copied_from")
    return not (kind == "table" and name is not None and name.startswith(hidden))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    include_name=_is_ours,
)
context.run_migrations()
