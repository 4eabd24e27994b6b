"""JSON columns: what was written is read, and damage reads as empty."""

from typing import Any

import pytest
from sqlalchemy import Column, Connection, MetaData, Table, Text, insert, select

from app.store.database import Database
from app.store.json_column import Json

TABLE = Table("boxes", MetaData(), Column("name", Text), Column("content", Json()), Column("list", Json(list)))
RAW = Table("boxes", MetaData(), *(Column(name, Text) for name in ("name", "content", "list")))


@pytest.fixture
def connection(database: Database):
    with database.write() as opened:
        opened.exec_driver_sql("CREATE TEMPORARY TABLE boxes (name text, content text, list text)")
        yield opened


def read(connection: Connection) -> tuple[Any, Any]:
    content, items = connection.execute(select(TABLE.c.content, TABLE.c.list)).one()
    return content, items


def test_value_is_read_as_it_was_written(connection: Connection):
    """The stored text keeps other scripts readable."""
    value = {"名前": ["東京", 1.5, None, {"deep": True}], "large": 2**60}
    connection.execute(insert(TABLE).values(name="a", content=value, list=[value]))

    assert read(connection) == (value, [value])
    assert "東京" in connection.execute(select(RAW.c.content)).scalar_one()


def test_null_and_empty_text_read_as_the_empty_value(connection: Connection):
    """An older program may have left either."""
    connection.execute(insert(RAW).values(name="a", content=None, list=""))

    assert read(connection) == ({}, [])


@pytest.mark.parametrize("damaged", ['{"a": ', "plain text", "[1]", "NaN"])
def test_damaged_text_reads_as_empty_and_is_logged_without_its_content(
    connection: Connection, logged: list[dict[str, Any]], damaged: str
):
    """So is valid JSON of another type."""
    connection.execute(insert(RAW).values(name="a", content=damaged, list="[]"))

    assert read(connection) == ({}, [])
    assert [(line["event"], line["characters"]) for line in logged] == [("damaged_json_column", len(damaged))]
    assert damaged not in str(logged)
