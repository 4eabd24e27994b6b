"""create_app(settings): the only place that joins the parts."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
import structlog
from litestar import Litestar

from app import logs, vector_index
from app.api import browsers, metrics, openapi, trail
from app.api.admission import admission
from app.api.authentication import Authentication
from app.api.edge import edge
from app.api.error_responses import respond
from app.api.metering import STORE_EVERY_SECONDS, Metering, add_rate_headers
from app.api.request import PARTS, ApiRequest, Parts
from app.api.router import ROUTERS
from app.api.threads import Workers
from app.services import integrity, maintenance, operations, tokens, upkeep, vectors
from app.services.chunker import ChatAddress, ChatChunker, Chunker
from app.services.readiness import Readiness
from app.services.search import Searching
from app.services.tokens import Signing
from app.settings import Settings
from app.store import migrations
from app.store.database import Database
from app.store.fulltext import sqlite

_log = structlog.get_logger(__name__)

STAMPS_EVERY_SECONDS: Final = 30.0
WRITE_TRIAL_EVERY_SECONDS: Final = 10.0
REAP_EVERY_SECONDS: Final = 3600.0
HEALING_LOOK_EVERY_SECONDS: Final = 10.0
DAILY_LOOK_EVERY_SECONDS: Final = 600.0
PAGE_LOOK_EVERY_SECONDS: Final = 10.0

Run = Callable[[Callable[[], None]], Awaitable[None]]


def create_app(settings: Settings) -> Litestar:
    """Return the server, over a database that is already at head."""
    logs.configure(settings.log_level, settings.log_format)
    database = Database(settings.resolved_database_url)
    workers = Workers()
    index = vector_index.of(settings, database)
    app = Litestar(
        route_handlers=ROUTERS,
        middleware=[admission],
        exception_handlers={Exception: respond},
        after_exception=[trail.refused],
        before_send=[add_rate_headers] if settings.rate_limit_per_min else [],
        cors_config=browsers.allowed_from(settings.cors_origins),
        request_class=ApiRequest,
        request_max_body_size=settings.max_body_bytes,
        openapi_config=openapi.CONFIG,
        lifespan=[_running],
        logging_config=None,
    )
    app.state[PARTS] = Parts(
        database=database,
        workers=workers,
        search=Searching(
            sqlite,
            recency_half_life_days=settings.recency_half_life_days,
            index=index,
        ),
        authentication=Authentication(
            database=database,
            workers=workers,
            signing=_signing(settings),
            lets_local_in=settings.auth_mode == "local-dev" and settings.allow_local_dev_bypass,
        ),
        metering=Metering(database, per_minute=settings.rate_limit_per_min, per_month=settings.monthly_request_cap),
        readiness=Readiness(database),
        auth_mode=settings.auth_mode,
        audit_reads=settings.audit_reads,
        token_ttl_seconds=settings.jwt_ttl_seconds,
        schema_version=migrations.head(),
        openapi_json=msgspec.json.encode(openapi.document(app)),
        vectors=index,
        chunker=_chunker(settings),
        operations=operations.Runner(database, vectors.verbs(database, index) if index else {}),
    )
    app.asgi_handler = metrics.counted(edge(app.asgi_handler))
    return app


def _signing(settings: Settings) -> Signing:
    """Return what signs tokens: the secrets that were set, else one that this data folder keeps."""
    secret, previous = settings.jwt_secret.get_secret_value(), settings.jwt_previous_secret.get_secret_value()
    return Signing(secret or tokens.secret_in(settings.data_dir), previous or None)


def _chunker(settings: Settings) -> Chunker | None:
    """Return the model that cuts conversations; None leaves it to the rules."""
    if settings.chunker == "off":
        return None
    key = settings.chunker_api_key.get_secret_value()
    return ChatChunker(ChatAddress(settings.chunker_url, settings.chunker_model, key))


@asynccontextmanager
async def _running(app: Litestar) -> AsyncGenerator[None, None]:
    """Keep the background tasks alive while the server is; flush what they hold when it stops."""
    parts: Parts = app.state[PARTS]
    flush = partial(upkeep.flush_stamps, parts.database, parts.last_used, parts.authentication.renewed_hashes)
    healing = integrity.Healing(parts.database)
    daily = maintenance.Daily(parts.database)
    tasks = [
        asyncio.create_task(parts.metering.store_every(STORE_EVERY_SECONDS, parts.workers)),
        asyncio.create_task(_every(STAMPS_EVERY_SECONDS, parts.workers.write, flush)),
        asyncio.create_task(_every(WRITE_TRIAL_EVERY_SECONDS, parts.workers.write, parts.readiness.try_writing)),
        asyncio.create_task(_every(REAP_EVERY_SECONDS, parts.workers.write, partial(upkeep.reap, parts.database))),
        asyncio.create_task(_every(HEALING_LOOK_EVERY_SECONDS, parts.workers.read, healing.look)),
        asyncio.create_task(_every(DAILY_LOOK_EVERY_SECONDS, parts.workers.read, daily.look)),
        asyncio.create_task(_every(PAGE_LOOK_EVERY_SECONDS, parts.workers.read, parts.readiness.look_at_pages)),
    ]
    parts.operations.start()
    if parts.vectors:
        parts.vectors.start()
    try:
        yield
    finally:
        healing.stop()
        daily.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await parts.metering.close(parts.workers)
        flush()
        parts.operations.close()
        if parts.chunker:
            parts.chunker.close()
        parts.search.close()
        if parts.vectors:
            parts.vectors.close()
        parts.authentication.close()
        parts.workers.close()
        parts.database.close()


async def _every(seconds: float, run: Run, work: Callable[[], None]) -> None:
    """Do some work in a thread, now and again and again; a failure is logged and tried again the next time."""
    while True:
        try:
            await run(work)
        except Exception:  # noqa: BLE001 - one failed round must not end the rounds to come
            _log.exception("background_work_failed", work=getattr(work, "__name__", str(work)))
        await asyncio.sleep(seconds)
