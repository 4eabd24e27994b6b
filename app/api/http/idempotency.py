"""Idempotency-Key on POSTs that write: the first request does it, a repeat re-reads what those ids hold now."""

import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from litestar import Response
from sqlalchemy import Connection

from app.api.http.request import ApiRequest
from app.errors import Invalid
from app.services.shared import idempotency
from app.services.shared.idempotency import IdempotencyRecord

T = TypeVar("T")

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What a POST did: the ids it made or found, its status, and the reply."""

    ids: list[str]
    status: int
    reply: T
    headers: dict[str, str] = field(default_factory=dict)


def once(
    request: ApiRequest,
    connection: Connection,
    *,
    act: Callable[[], Done[T]],
    recall: Callable[[list[str]], T],
    as_with: Callable[[T, int], T] = lambda reply, _: reply,
) -> Response[T]:
    """Run `act` unless this Idempotency-Key did so already: then answer with what `recall` reads of its ids.

    `as_with` makes of that reply the one that came with the first status, where the ids do not say it all.
    """
    key = _key(request)
    if key is None:
        done = act()
        return Response(done.reply, status_code=done.status, headers=done.headers)
    route, body_hash = f"{request.method} {request.scope['path']}", _hash(request)
    remembered = idempotency.recall(connection, request.caller, key, route=route, body_hash=body_hash)
    if remembered is not None:
        reply = as_with(recall(remembered.ids), remembered.status)
        replayed = {"Idempotent-Replayed": "true", **_location(request, remembered.ids)}
        return Response(reply, status_code=remembered.status, headers=replayed)
    done = act()
    idempotency.remember(connection, request.caller, key, IdempotencyRecord(route, body_hash, done.status, done.ids))
    return Response(done.reply, status_code=done.status, headers=done.headers)


def appending(request: ApiRequest, *alone_in: str) -> AbstractContextManager[Connection]:
    """Begin to add rows for a POST: alone with its Idempotency-Key, and in what is named."""
    key = _key(request)
    own = () if key is None else (f"request {request.caller.key_id} {key}",)
    return request.database.insert(*alone_in, *own)


def _location(request: ApiRequest, ids: list[str]) -> dict[str, str]:
    """Return where a repeated creation can be read: its collection is the first part of the path behind /v1."""
    if not request.route_handler.opt.get("located"):
        return {}
    return {"Location": f"/v1/{request.scope['path'].split('/')[2]}/{ids[0]}"}


def _key(request: ApiRequest) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Invalid.field("Idempotency-Key", "allowed are 1 to 255 printable ASCII characters")
    return key


def _hash(request: ApiRequest) -> str:
    return hashlib.sha256(request.scope["query_string"] + b"\n" + request.raw_body).hexdigest()
