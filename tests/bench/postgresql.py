"""PostgreSQL compared with SQLite over HTTP, and what other projects and row-level security cost there."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path

from sqlalchemy import make_url

from app.clock import new_id
from app.store.scope import TENANT_TABLES
from tests import postgresql
from tests.bench import api, keyword, load, texts
from tests.bench.harness import Row, Store, serving
from tests.databases import PostgresqlDatabases

_CONNECTIONS = 16
_ROUNDS = 5
"""Both are measured in turn, so that other load on the machine affects both; the medians are compared."""
_ROW_SECURITY = (*sorted(TENANT_TABLES), "vector_outbox")


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    programs = postgresql.binaries()
    if programs is None:
        raise SystemExit("PostgreSQL's programs (initdb, pg_ctl) are not installed")
    with tempfile.TemporaryDirectory() as folder, postgresql.running(programs, durable=True) as cluster:
        databases = PostgresqlDatabases(cluster)
        sizes = {"small": max(50, int(2_000 * scale)), "large": max(100, int(100_000 * scale))}
        pairs = {name: _pair(databases, Path(folder) / name, rows) for name, rows in sizes.items()}
        with ExitStack() as stack:
            for store in (store for pair in pairs.values() for store in pair):
                stack.enter_context(closing(store.database))
            for _, on_postgresql in pairs.values():
                _analyse(databases, on_postgresql)
            return [
                *_one_memory(*pairs["small"], scale),
                *_searches(*pairs["large"], scale),
                *_row_security(databases, pairs["small"][1], scale),
                *keyword.with_other_projects(pairs["small"][1], scale, partial(_analyse, databases, pairs["small"][1])),
            ]


def _pair(databases: PostgresqlDatabases, folder: Path, rows: int) -> tuple[Store, Store]:
    """Create the same memories on both; SQLite comes first."""
    folder.mkdir()
    on_postgresql = folder / "pg"
    return api.filled(folder / "sqlite", rows), api.filled(on_postgresql, rows, databases.url(on_postgresql))


def _analyse(databases: PostgresqlDatabases, store: Store) -> None:
    """Do what autovacuum eventually does after many inserts."""
    with databases.cluster.connect(database=_name(store)) as connection:
        connection.execute("VACUUM (ANALYZE)")


def _name(store: Store) -> str:
    return make_url(store.database.url).database or ""


@contextmanager
def _both(one: Store, other: Store) -> Iterator[list[tuple[Store, str]]]:
    with serving(one.folder, **one.settings) as first, serving(other.folder, **other.settings) as second:
        yield [(one, first.url), (other, second.url)]


def _compared(
    what: str, served: list[tuple[Store, str]], requests: dict[str, list[bytes]], *, target: str, each: int
) -> Row:
    """Compare the median rate of the second server with that of the first."""
    rates: dict[str, list[float]] = {url: [] for _, url in served}
    failures = 0
    for turn in range(_ROUNDS + 1):
        for _, url in served:
            mine = requests[url][turn * each : (turn + 1) * each] or requests[url]
            done = load.run(url, mine, count=each, connections=_CONNECTIONS)
            failures += done.failures
            rates[url] += [done.per_second] if turn else []  # the first round is a warm-up
    first, second = (sorted(rates[url])[_ROUNDS // 2] for _, url in served)
    failed = f", {failures} FAILED" if failures else ""
    return Row(what, f"{second:,.0f}/s{failed}", f"{first:,.0f}/s", second / first, target)


def _one_memory(sqlite: Store, on_postgresql: Store, scale: float) -> list[Row]:
    each = max(50, int(1_500 * scale))
    with _both(sqlite, on_postgresql) as served:
        gets = {url: _gets(store) for store, url in served}
        writes = max(50, each // 3)
        changed = writes * (_ROUNDS + 1)
        posts = {url: api.posts(store, changed, seed=7) for store, url in served}
        patches = {
            url: [_patch(store, memory_id) for _, memory_id in zip(range(changed), cycle(api.some_ids(store, 500)))]
            for store, url in served
        }
        return [
            _compared("GET on PostgreSQL against SQLite", served, gets, target="≥ 0.6", each=each),
            _compared("POST", served, posts, target="≥ 0.6", each=writes),
            _compared("PATCH", served, patches, target="≥ 0.6", each=writes),
        ]


def _gets(store: Store) -> list[bytes]:
    return [load.request("GET", f"/v1/memories/{each}", key=store.api_key) for each in api.some_ids(store, 200)]


def _patch(store: Store, memory_id: str) -> bytes:
    body = json.dumps({"title": new_id()}).encode()
    return load.request("PATCH", f"/v1/memories/{memory_id}", key=store.api_key, body=body)


def _searches(sqlite: Store, on_postgresql: Store, scale: float) -> list[Row]:
    each = max(20, int(200 * scale))
    size = f"{api.count(on_postgresql):,} rows"
    with _both(sqlite, on_postgresql) as served:
        kinds = {"common words": texts.common_queries(), "rare words": texts.rare_queries()}
        return [
            _compared(
                f"keyword search at {size}, {kind}",
                served,
                {url: [keyword.search(store, query) for query in queries] for store, url in served},
                target="≥ 0.5",
                each=each,
            )
            for kind, queries in kinds.items()
        ]


def _row_security(databases: PostgresqlDatabases, store: Store, scale: float) -> list[Row]:
    """Compare the same database with its policies disabled and enabled."""
    each = max(50, int(1_500 * scale))
    gets = _gets(store)
    searches = [keyword.search(store, query) for query in texts.queries()]
    rates: dict[tuple[bool, str], list[float]] = {}
    with serving(store.folder, **store.settings) as server:
        for turn in range(2 * _ROUNDS + 2):
            is_on = turn % 2 == 1
            _switch_policies(databases, store, is_on)
            for what, requests, count in (("GET", gets, each), ("search", searches, max(20, each // 8))):
                rate = load.run(server.url, requests, count=count, connections=_CONNECTIONS).per_second
                rates.setdefault((is_on, what), []).extend([rate] if turn > 1 else [])
    secured, without = (
        {what: sorted(rates[is_on, what])[_ROUNDS // 2] for what in ("GET", "search")} for is_on in (True, False)
    )
    targets = {"GET": "≥ 0.85", "search": "≥ 0.83"}
    return [
        Row(
            f"{what} with row-level security",
            f"{secured[what]:,.0f}/s",
            f"without {without[what]:,.0f}/s",
            secured[what] / without[what],
            target,
        )
        for what, target in targets.items()
    ]


def _switch_policies(databases: PostgresqlDatabases, store: Store, is_on: bool) -> None:
    verb = "ENABLE" if is_on else "DISABLE"
    with databases.cluster.connect(database=_name(store)) as connection:
        for table in _ROW_SECURITY:
            connection.execute(f"ALTER TABLE {table} {verb} ROW LEVEL SECURITY".encode())
