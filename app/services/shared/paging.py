"""Lists by keyset: newest first, a total order, and an opaque cursor bound to the team and the filters."""

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
    """Rows of one page, and the cursor of the next one, None at the end."""

    rows: list[R]
    next_cursor: str | None


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: values of the order's columns, and what the cursor is bound to."""

    at: list[Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")]]
    bound_to: str


def binding(caller: Caller, filters: Any) -> str:
    """Return a digest of the caller's reach and the filters: a cursor holds for no other."""
    material = msgspec.json.encode([caller.team_id, caller.project_id, filters], order="deterministic")
    return hashlib.sha256(material).hexdigest()[:16]


def encode(place: Place) -> str:
    """Return the cursor text of a place."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode(cursor: str, bound_to: str) -> list[int | float | str]:
    """Return the place's values; Invalid when the cursor is malformed or was made for another list."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Place)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        place = None
    if place is None or place.bound_to != bound_to:
        raise Invalid.field("cursor", "not a cursor of this list; take the nextCursor of its last reply")
    return place.at


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
    """Run `statement` newest first by `order` (a time and a unique column, both selected), one page of it."""
    if cursor is not None:
        at = decode(cursor, bound_to)
        if [type(value) for value in at] != [column.type.python_type for column in order]:
            raise Invalid.field("cursor", "not a cursor of this list")
        place = tuple_(*order)
        statement = statement.where(place > tuple_(*at) if oldest_first else place < tuple_(*at))
    by = order if oldest_first else [column.desc() for column in order]
    rows = [record(*row) for row in connection.execute(statement.order_by(*by).limit(limit + 1))]
    if len(rows) <= limit:
        return Page(rows, None)
    last = rows[limit - 1]
    ended_at = [getattr(last, column.key or "") for column in order]
    return Page(rows[:limit], encode(Place(ended_at, bound_to)))
