"""Rows as structs."""

from types import NoneType
from typing import Any, get_args

import msgspec
import pytest

from app.store import models, records
from app.store.json_column import Json
from app.store.records import Memory, Record

TABLES = {
    records.Team: models.teams,
    records.Member: models.team_members,
    records.Project: models.projects,
    records.ApiKey: models.api_keys,
    records.Session: models.server_sessions,
    records.Event: models.agent_events,
    records.Memory: models.memory_items,
    records.Source: models.memory_sources,
    records.AuditEntry: models.audit_log,
}


@pytest.mark.parametrize("record", TABLES, ids=lambda record: record.__name__)
def test_nullable_columns_are_fields_that_may_be_none(record: type[Record]):
    """JSON columns are the exception: they read NULL as an empty value."""
    columns = records.columns(TABLES[record], record)
    optional = {field.name for field in msgspec.structs.fields(record) if NoneType in get_args(field.type)}

    assert {column.name for column in columns if column.nullable and not isinstance(column.type, Json)} == optional


def test_key_that_is_shown_has_neither_secret_nor_hash():
    """The struct has no place for them."""
    assert not {name for name in records.ApiKey.__struct_fields__ if "secret" in name or "hash" in name}


@pytest.mark.parametrize(
    ("texts", "content"),
    [
        ({"narrative": "n", "text": "t", "title": "h"}, "n"),
        ({"narrative": "", "text": "t", "title": "h"}, "t"),
        ({"narrative": None, "text": None, "title": "h"}, "h"),
        ({"narrative": None, "text": "", "title": ""}, None),
    ],
)
def test_content_of_a_memory_is_its_first_text(texts: dict[str, Any], content: str | None):
    """An empty text does not count."""
    blank = dict.fromkeys(Memory.__struct_fields__)

    assert Memory(**{**blank, **texts}).content == content  # type: ignore[arg-type]
