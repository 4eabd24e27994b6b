"""create_app(settings): the only place that joins the parts."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from litestar import Litestar

from app import logs, vector_index
from app.api.http.authentication import Authentication
from app.api.http.error_responses import respond
from app.api.http.rate_limiting import STORE_EVERY_SECONDS, Metering, add_rate_headers
from app.api.http.request import PARTS, ApiRequest, Parts
from app.api.http.thread_pools import Workers
from app.api.middleware import audit, cors, metrics, tracing
from app.api.middleware.request_checks import admission
from app.api.middleware.request_context import edge
from app.api.openapi import document
from app.api.router import ROUTERS
from app.errors import Unavailable
from app.services.identity import tokens
from app.services.identity.tokens import Signing
from app.services.memories.llm_chunker import ChatAddress, ChatChunker, Chunker
from app.services.operations import fulltext_check, housekeeping, jobs, maintenance, vectors
from app.services.operations.readiness import Readiness
from app.services.quotas.redis_counter import SharedCounts
from app.services.search.engine import Searching
from app.settings import Settings, Telemetry
from app.store.database import Database
from app.store.fulltext import dialects
from app.store.schema import migrations
from app.vectors.index import Index, VectorIndex
from app.vectors.remote.client import Keeper

_log = structlog.get_logger(__name__)

STAMPS_EVERY_SECONDS: Final = 30.0
WRITE_TRIAL_EVERY_SECONDS: Final = 10.0
REAP_EVERY_SECONDS: Final = 3600.0
HEALING_LOOK_EVERY_SECONDS: Final = 10.0
DAILY_LOOK_EVERY_SECONDS: Final = 600.0
PAGE_LOOK_EVERY_SECONDS: Final = 10.0

Run = Callable[[Callable[[], None]], Awaitable[None]]
Background = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Share:
    """What makes this process one of several: who does what is done once, and where they count together."""

    keeper: Keeper
    tallies: Path


def create_app(settings: Settings, share: Share | None = None, telemetry: Telemetry | None = None) -> Litestar:
    """Return the server, over a database that is already at head. Without a share it does everything by itself."""
    logs.configure(settings.log_level, settings.log_format)
    spans = tracing.begin(telemetry.spans_url, telemetry.service_name) if telemetry else None
    writers = settings.database_connections // 3
    readers = settings.database_connections - writers
    database = Database(settings.resolved_database_url, readers=readers, writers=writers)
    workers = Workers() if database.dialect == "sqlite" else Workers.far_away(readers=readers, writers=writers)
    if share is None:
        index: Index | None = (kept := vector_index.of(settings, database))
        background = partial(keeping_house, settings, database, workers, kept)
    else:
        index = vector_index.following(settings, database, share.keeper)
        background = partial(_following, index)
    app = Litestar(
        route_handlers=ROUTERS,
        middleware=[admission],
        exception_handlers={Exception: respond},
        after_exception=[audit.refused],
        before_send=[add_rate_headers] if settings.rate_limit_per_min else [],
        cors_config=cors.allowed_from(settings.cors_origins),
        request_class=ApiRequest,
        request_max_body_size=settings.max_body_bytes,
        openapi_config=document.CONFIG,
        lifespan=[partial(_running, background=background)],
        on_shutdown=[spans.close] if spans else [],
        logging_config=None,
    )
    app.state[PARTS] = Parts(
        database=database,
        workers=workers,
        search=Searching(
            dialects.of(database.dialect),
            recency_half_life_days=settings.recency_half_life_days,
            index=index,
        ),
        authentication=Authentication(
            database=database,
            workers=workers,
            signing=signing(settings),
            lets_local_in=settings.auth_mode == "local-dev" and settings.allow_local_dev_bypass,
        ),
        metering=Metering(
            database,
            per_minute=settings.rate_limit_per_min,
            per_month=settings.monthly_request_cap,
            shared=SharedCounts(settings.redis_url) if settings.redis_url else None,
        ),
        readiness=Readiness(database),
        auth_mode=settings.auth_mode,
        audit_reads=settings.audit_reads,
        token_ttl_seconds=settings.jwt_ttl_seconds,
        schema_version=migrations.head(),
        openapi_json=msgspec.json.encode(document.document(app)),
        vectors=index,
        chunker=_chunker(settings),
        tallies=share.tallies if share else None,
    )
    app.asgi_handler = metrics.counted(edge(spans.traced(app.asgi_handler) if spans else app.asgi_handler))
    return app


def signing(settings: Settings) -> Signing:
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
async def keeping_house(
    settings: Settings, database: Database, workers: Workers, index: VectorIndex | None
) -> AsyncGenerator[None, None]:
    """Do what is done once, however many processes answer: the mirror, operations, healing, daily care, reaping."""
    healing = fulltext_check.Healing(database)
    daily = _daily(settings, database, index)
    runner = jobs.Runner(database, vectors.verbs(database, index) if index else {})
    tasks = [
        asyncio.create_task(_every(REAP_EVERY_SECONDS, workers.write, partial(housekeeping.reap, database))),
        asyncio.create_task(_every(HEALING_LOOK_EVERY_SECONDS, workers.read, healing.look)),
        asyncio.create_task(_every(DAILY_LOOK_EVERY_SECONDS, workers.read, daily.look)),
    ]
    runner.start()
    if index:
        index.start()
    try:
        yield
    finally:
        healing.stop()
        daily.stop()
        await _cancelled(tasks)
        runner.close()
        if index:
            index.close()


@asynccontextmanager
async def _following(index: Index | None) -> AsyncGenerator[None, None]:
    """Do nothing of that, but keep in touch with who does."""
    if index:
        index.start()
    try:
        yield
    finally:
        if index:
            index.close()


@asynccontextmanager
async def _running(app: Litestar, *, background: Background) -> AsyncGenerator[None, None]:
    """Keep the background tasks alive while the server is; flush what they hold when it stops."""
    parts: Parts = app.state[PARTS]
    try:
        async with background(), _each_process_for_itself(parts):
            yield
    finally:
        parts.authentication.close()
        parts.workers.close()
        parts.database.close()


@asynccontextmanager
async def _each_process_for_itself(parts: Parts) -> AsyncGenerator[None, None]:
    """Store what this process counts and stamps, and try whether it can read and write."""
    flush = partial(housekeeping.flush_stamps, parts.database, parts.last_used, parts.authentication.renewed_hashes)
    tasks = [
        asyncio.create_task(parts.metering.store_every(STORE_EVERY_SECONDS, parts.workers)),
        asyncio.create_task(_every(STAMPS_EVERY_SECONDS, parts.workers.write, flush)),
        asyncio.create_task(_every(WRITE_TRIAL_EVERY_SECONDS, parts.workers.write, parts.readiness.try_writing)),
        asyncio.create_task(_every(PAGE_LOOK_EVERY_SECONDS, parts.workers.read, parts.readiness.look_at_pages)),
    ]
    try:
        yield
    finally:
        await _cancelled(tasks)
        await parts.metering.close(parts.workers)
        with suppress(Unavailable):  # a database that is away must not keep the rest from ending
            flush()
        if parts.chunker:
            parts.chunker.close()
        parts.search.close()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _daily(settings: Settings, database: Database, index: VectorIndex | None) -> maintenance.Daily:
    """Return what a day asks for; a vector folder of ours is vacuumed, too."""
    if index is None or index.mode != "embedded":
        return maintenance.Daily(database, audit_days=settings.audit_retention_days)
    return maintenance.Daily(database, audit_days=settings.audit_retention_days, afterwards=vectors.request_vacuum)


async def _every(seconds: float, run: Run, work: Callable[[], None]) -> None:
    """Do some work in a thread, now and again and again; a failure is logged and tried again the next time."""
    while True:
        try:
            await run(work)
        except Exception:  # noqa: BLE001 - one failed round must not end the rounds to come
            _log.exception("background_work_failed", work=getattr(work, "__name__", str(work)))
        await asyncio.sleep(seconds)
