"""Idempotency-Key on POSTs that write: the first request does the work, a repeat returns what its ids hold now."""

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
class PostResult(Generic[T]):
    """The result of a POST: the ids that it created or found, and its reply."""

    ids: list[str]
    status: int
    reply: T
    headers: dict[str, str] = field(default_factory=dict)


def run_once(
    request: ApiRequest,
    connection: Connection,
    *,
    perform: Callable[[], PostResult[T]],
    replay: Callable[[list[str]], T],
    for_status: Callable[[T, int], T] = lambda reply, _: reply,
) -> Response[T]:
    """Call `perform`, unless an earlier request with this Idempotency-Key did: then reply with `replay` of its ids.

    `for_status` adapts the replayed reply to the first status, where the ids alone do not determine it. Raises
    IdempotencyMismatch when the key was used for a different request.
    """
    key = _key(request)
    if key is None:
        result = perform()
        return Response(result.reply, status_code=result.status, headers=result.headers)
    route, body_hash = f"{request.method} {request.scope['path']}", _body_hash(request)
    record = idempotency.recall(connection, request.caller, key, route=route, body_hash=body_hash)
    if record is not None:
        reply = for_status(replay(record.ids), record.status)
        headers = {"Idempotent-Replayed": "true", **_location(request, record.ids)}
        return Response(reply, status_code=record.status, headers=headers)
    result = perform()
    idempotency.remember(
        connection, request.caller, key, IdempotencyRecord(route, body_hash, result.status, result.ids)
    )
    return Response(result.reply, status_code=result.status, headers=result.headers)


def begin_insert(request: ApiRequest, *lock_names: str) -> AbstractContextManager[Connection]:
    """Begin an insert for a POST. Requests with a lock name or an Idempotency-Key in common run one at a time."""
    key = _key(request)
    own_lock = () if key is None else (f"request {request.caller.key_id} {key}",)
    return request.database.insert(*lock_names, *own_lock)


def _location(request: ApiRequest, ids: list[str]) -> dict[str, str]:
    """Return the Location of what the first request created: its collection is the first part of the path after /v1."""
    if not request.route_handler.opt.get("located"):
        return {}
    return {"Location": f"/v1/{request.scope['path'].split('/')[2]}/{ids[0]}"}


def _key(request: ApiRequest) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Invalid.field("Idempotency-Key", "must be 1 to 255 printable ASCII characters, without spaces")
    return key


def _body_hash(request: ApiRequest) -> str:
    return hashlib.sha256(request.scope["query_string"] + b"\n" + request.raw_body).hexdigest()
