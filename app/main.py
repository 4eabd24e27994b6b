"""create_app(settings): the only place that assembles the parts of the server."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from litestar import Litestar

from app import logs, vector_index
from app.api.http.authentication import Authenticator
from app.api.http.error_responses import handle_exception
from app.api.http.monthly_quota import MonthlyQuota
from app.api.http.rate_limiting import RateLimiter, add_rate_headers
from app.api.http.request import APP_STATE, ApiRequest, AppState
from app.api.http.request_recorder import FLUSH_INTERVAL_SECONDS, RequestRecorder
from app.api.http.thread_pools import ThreadPools
from app.api.middleware import audit, tracing
from app.api.middleware.cors import cors_config
from app.api.middleware.metrics import count_requests
from app.api.middleware.request_checks import check_requests
from app.api.middleware.request_context import add_request_context
from app.api.middleware.tracing import Tracing
from app.api.openapi import document
from app.api.router import ROUTERS
from app.errors import Unavailable
from app.llm.chat import ChatClient, ChatEndpoint
from app.services.identity import tokens
from app.services.identity.tokens import TokenSigner
from app.services.memories.llm_chunker import Chunker, LlmChunker
from app.services.operations import fulltext_check, housekeeping, jobs, maintenance, vectors
from app.services.operations.readiness import Readiness
from app.services.quotas.redis_counter import RedisCounter
from app.services.search.engine import SearchEngine
from app.settings import Settings, Telemetry
from app.store.database import Database
from app.store.fulltext import dialects
from app.store.schema import migrations
from app.vectors.index import Index, VectorIndex
from app.vectors.remote.client import IndexOwnerClient

_log = structlog.get_logger(__name__)

LAST_USED_INTERVAL_SECONDS: Final = 30.0
READINESS_INTERVAL_SECONDS: Final = 10.0
EXPIRY_INTERVAL_SECONDS: Final = 3600.0
FULL_TEXT_CHECK_INTERVAL_SECONDS: Final = 10.0
DAILY_CHECK_INTERVAL_SECONDS: Final = 600.0
"""How often to check whether daily maintenance is due."""

RunInThread = Callable[[Callable[[], None]], Awaitable[None]]
Background = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker process shares with the others: the process that owns the vector index, and the metrics."""

    index_owner: IndexOwnerClient
    metrics_dir: Path


def create_app(settings: Settings, worker: WorkerContext | None = None, telemetry: Telemetry | None = None) -> Litestar:
    """Return the server, over a database that is already migrated.

    Without `worker`, this is the only process, and also runs the background tasks.
    """
    logs.configure(settings.log_level, settings.log_format)
    tracer = tracing.start_tracing(telemetry.spans_url, telemetry.service_name) if telemetry else None
    database, thread_pools = _open_database(settings)
    if worker is None:
        index: Index | None = (own_index := vector_index.of(settings, database))
        background = partial(_tasks_of_one_process, settings, database, own_index, thread_pools)
    else:
        index = vector_index.remote(settings, database, worker.index_owner)
        background = partial(_remote_index, index)
    app = _create_litestar(settings, background, tracer)
    app.state[APP_STATE] = _create_app_state(
        settings,
        database,
        thread_pools,
        index=index,
        metrics_dir=worker.metrics_dir if worker else None,
    )
    traced = tracer.trace_requests(app.asgi_handler) if tracer else app.asgi_handler
    app.asgi_handler = count_requests(add_request_context(traced))
    return app


def app_state(app: Litestar) -> AppState:
    """Return what create_app() assembled for the handlers."""
    state: AppState = app.state[APP_STATE]
    return state


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document as it is committed: independent of the settings of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(_env_file=None, data_dir=Path(folder), vectors="off"))  # type: ignore[call-arg]
        return document.document(app)


def load_token_signer(settings: Settings) -> TokenSigner:
    """Return the signer of access tokens, with the configured secrets or else the generated one in the data folder."""
    secret, previous = settings.jwt_secret.get_secret_value(), settings.jwt_previous_secret.get_secret_value()
    return TokenSigner(secret or tokens.load_signing_secret(settings.data_dir), previous or None)


@asynccontextmanager
async def background_tasks(
    settings: Settings, database: Database, index: VectorIndex | None
) -> AsyncGenerator[None, None]:
    """Run what only one process does, in a process that answers no requests itself."""
    thread_pools = ThreadPools(readers=1, searchers=0)
    try:
        async with _tasks_of_one_process(settings, database, index, thread_pools):
            yield
    finally:
        thread_pools.close()


def _open_database(settings: Settings) -> tuple[Database, ThreadPools]:
    writers = settings.database_connections // 3
    readers = settings.database_connections - writers
    database = Database(settings.resolved_database_url, readers=readers, writers=writers)
    if database.dialect == "sqlite":
        return database, ThreadPools()
    return database, ThreadPools.for_remote_database(readers=readers, writers=writers)


def _create_litestar(settings: Settings, background: Background, tracer: Tracing | None) -> Litestar:
    return Litestar(
        route_handlers=ROUTERS,
        middleware=[check_requests],
        exception_handlers={Exception: handle_exception},
        after_exception=[audit.record_forbidden],
        before_send=[add_rate_headers] if settings.rate_limit_per_min else [],
        cors_config=cors_config(settings.cors_origins),
        request_class=ApiRequest,
        request_max_body_size=settings.max_body_bytes,
        openapi_config=document.CONFIG,
        lifespan=[partial(_lifespan, background=background)],
        on_shutdown=[tracer.close] if tracer else [],
        logging_config=None,
    )


def _create_app_state(
    settings: Settings,
    database: Database,
    thread_pools: ThreadPools,
    *,
    index: Index | None,
    metrics_dir: Path | None,
) -> AppState:
    rate_limiter, monthly_quota = _create_limits(settings)
    return AppState(
        database=database,
        thread_pools=thread_pools,
        authenticator=Authenticator(
            database=database,
            thread_pools=thread_pools,
            token_signer=load_token_signer(settings),
            allow_local_dev=settings.auth_mode == "local-dev" and settings.allow_local_dev_bypass,
        ),
        rate_limiter=rate_limiter,
        monthly_quota=monthly_quota,
        recorder=RequestRecorder(database, thread_pools, rate_limiter=rate_limiter, monthly_quota=monthly_quota),
        readiness=Readiness(database),
        search=SearchEngine(
            dialects.of(database.dialect), recency_half_life_days=settings.recency_half_life_days, index=index
        ),
        auth_mode=settings.auth_mode,
        audit_reads=settings.audit_reads,
        token_ttl_seconds=settings.jwt_ttl_seconds,
        schema_version=migrations.head(),
        vectors=index,
        chunker=_create_chunker(settings),
        metrics_dir=metrics_dir,
    )


def _create_limits(settings: Settings) -> tuple[RateLimiter | None, MonthlyQuota | None]:
    """Return the limits that are configured."""
    redis = RedisCounter(settings.redis_url) if settings.redis_url and settings.rate_limit_per_min else None
    rate_limiter = RateLimiter(settings.rate_limit_per_min, redis) if settings.rate_limit_per_min else None
    return rate_limiter, MonthlyQuota(settings.monthly_request_cap) if settings.monthly_request_cap else None


def _create_chunker(settings: Settings) -> Chunker | None:
    """Return the model that splits conversations; None leaves it to the built-in rules."""
    if settings.chunker == "off":
        return None
    key = settings.chunker_api_key.get_secret_value()
    return LlmChunker(ChatClient(ChatEndpoint(settings.chunker_url, settings.chunker_model, key)))


@asynccontextmanager
async def _tasks_of_one_process(
    settings: Settings, database: Database, index: VectorIndex | None, thread_pools: ThreadPools
) -> AsyncGenerator[None, None]:
    """Run what only one process does: vector index, operations, full-text checks, daily maintenance, expiry."""
    repairer = fulltext_check.FullTextRepairer(database)
    daily = _daily_maintenance(settings, database, index)
    runner = jobs.Runner(database, vectors.handlers(database, index) if index else {})
    delete_expired = partial(housekeeping.delete_expired, database)
    tasks = [
        asyncio.create_task(_repeat(EXPIRY_INTERVAL_SECONDS, thread_pools.write, delete_expired)),
        asyncio.create_task(_repeat(FULL_TEXT_CHECK_INTERVAL_SECONDS, thread_pools.read, repairer.check)),
        asyncio.create_task(_repeat(DAILY_CHECK_INTERVAL_SECONDS, thread_pools.read, daily.run_if_due)),
    ]
    runner.start()
    if index:
        index.start()
    try:
        yield
    finally:
        repairer.stop()
        daily.stop()
        await _cancel(tasks)
        runner.close()
        if index:
            index.close()


@asynccontextmanager
async def _remote_index(index: Index | None) -> AsyncGenerator[None, None]:
    """Stay connected to the process that runs the background tasks."""
    if index:
        index.start()
    try:
        yield
    finally:
        if index:
            index.close()


@asynccontextmanager
async def _lifespan(app: Litestar, *, background: Background) -> AsyncGenerator[None, None]:
    """Run the background tasks while the server runs; close everything when it stops."""
    state = app_state(app)
    try:
        async with background(), _tasks_of_each_process(state):
            yield
    finally:
        state.authenticator.close()
        state.thread_pools.close()
        state.database.close()


@asynccontextmanager
async def _tasks_of_each_process(state: AppState) -> AsyncGenerator[None, None]:
    """Store what this process has buffered, and check whether it can read and write."""
    flush = partial(housekeeping.flush_last_used, state.database, state.last_used, state.authenticator.renewed_hashes)
    write, read = state.thread_pools.write, state.thread_pools.read
    tasks = [
        asyncio.create_task(state.recorder.flush_every(FLUSH_INTERVAL_SECONDS)),
        asyncio.create_task(_repeat(LAST_USED_INTERVAL_SECONDS, write, flush)),
        asyncio.create_task(_repeat(READINESS_INTERVAL_SECONDS, write, state.readiness.try_writing)),
        asyncio.create_task(_repeat(READINESS_INTERVAL_SECONDS, read, state.readiness.check_pages)),
    ]
    try:
        yield
    finally:
        await _cancel(tasks)
        await state.recorder.close()
        with suppress(Unavailable):  # an outage of the database must not keep the rest from closing
            flush()
        if state.chunker:
            state.chunker.close()
        state.search.close()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _daily_maintenance(
    settings: Settings, database: Database, index: VectorIndex | None
) -> maintenance.DailyMaintenance:
    """Return the daily maintenance, which also vacuums an embedded vector index."""
    if index is None or index.mode != "embedded":
        return maintenance.DailyMaintenance(database, audit_days=settings.audit_retention_days)
    return maintenance.DailyMaintenance(
        database, audit_days=settings.audit_retention_days, afterwards=vectors.request_vacuum
    )


async def _repeat(interval_seconds: float, run: RunInThread, work: Callable[[], None]) -> None:
    """Do some work in a thread, periodically; a failure is logged, and the work is tried again in the next round."""
    while True:
        try:
            await run(work)
        except Exception:  # noqa: BLE001 - one failed round must not end the task
            _log.exception("background_work_failed", work=getattr(work, "__name__", str(work)))
        await asyncio.sleep(interval_seconds)
