"""The rows that the vector mirror reads, and its outbox: what has changed and is not in the index yet."""

from typing import Any

from app.store.records import Record


class MemoryText(Record, frozen=True):
    """What of a memory is embedded, and what its documents say of it."""

    id: str
    team_id: str
    project_id: str
    version: int
    kind: str
    type: str
    title: str | None
    subtitle: str | None
    narrative: str | None
    text: str | None
    facts: list[Any]
    created_at_epoch: int
    legacy_observation_id: int | None
