"""Keyset pagination: a total order, newest first, and an opaque cursor bound to the team and the filters."""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta
from sqlalchemy import ColumnElement, Connection, Select, tuple_

from app.caller import Caller
from app.errors import Invalid
from app.store.records import Record

R = TypeVar("R", bound=Record)

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """The rows of one page, and the cursor of the next page; None on the last one."""

    rows: list[R]
    next_cursor: str | None


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The position where a page ended: the values of the order's columns, and a digest of what it is valid for."""

    at: list[Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")]]
    bound_to: str


def binding(caller: Caller, filters: Any) -> str:
    """Return a digest of the caller's scope and the filters: a cursor is valid for no other list."""
    material = msgspec.json.encode([caller.team_id, caller.project_id, filters], order="deterministic")
    return hashlib.sha256(material).hexdigest()[:16]


def encode(cursor: Cursor) -> str:
    """Return the text of a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def decode(text: str, bound_to: str) -> list[int | float | str]:
    """Return the values of a cursor's position; Invalid when it is malformed or belongs to another list."""
    try:
        padded = text + "=" * (-len(text) % 4)
        cursor = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Cursor)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        cursor = None
    if cursor is None or cursor.bound_to != bound_to:
        raise Invalid.field("cursor", "not a cursor of this list; use the nextCursor of its last response")
    return cursor.at


def page(
    connection: Connection,
    statement: Select[Any],
    record: type[R],
    order: tuple[ColumnElement[Any], ColumnElement[Any]],
    *,
    limit: int,
    cursor: str | None,
    bound_to: str,
    oldest_first: bool = False,
) -> Page[R]:
    """Return one page of `statement`, newest first by `order`: a time and a unique column, both selected.

    Raises Invalid when the cursor is malformed or belongs to another list.
    """
    if cursor is not None:
        at = decode(cursor, bound_to)
        if [type(value) for value in at] != [column.type.python_type for column in order]:
            raise Invalid.field("cursor", "not a cursor of this list")
        position = tuple_(*order)
        statement = statement.where(position > tuple_(*at) if oldest_first else position < tuple_(*at))
    by = order if oldest_first else [column.desc() for column in order]
    rows = [record(*row) for row in connection.execute(statement.order_by(*by).limit(limit + 1))]
    if len(rows) <= limit:
        return Page(rows, None)
    last = rows[limit - 1]
    ended_at = [getattr(last, column.key or "") for column in order]
    return Page(rows[:limit], encode(Cursor(ended_at, bound_to)))
