"""upsert(table): INSERT … ON CONFLICT. PostgreSQL's construct also compiles for SQLite."""

from sqlalchemy.dialects.postgresql import insert as upsert

__all__ = ["upsert"]
