"""upsert(table): INSERT … ON CONFLICT. PostgreSQL's construct compiles for SQLite, too."""

from sqlalchemy.dialects.postgresql import insert as upsert

__all__ = ["upsert"]
