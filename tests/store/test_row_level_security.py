"""The second wall: what the server's role may see and do in PostgreSQL, whatever the services forget."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import CheckViolation, InsufficientPrivilege
from psycopg.rows import dict_row
from sqlalchemy import make_url, select

from app.caller import server_owner
from app.services.memories import memories
from app.services.memories.memories import NewMemory
from app.services.operations import jobs
from app.store import scope
from app.store.models import memory_sources, usage_counters
from app.store.scope import TENANT_TABLES
from tests.conftest import Server, Tenant, servers
from tests.postgresql import OWNER, SERVER, Cluster
from tests.stores import PostgresqlStores

WALLED = sorted({*TENANT_TABLES, "vector_outbox", "memory_items_fts"})
OF_NO_TEAM = {
    "alembic_version",
    "audit_retention",
    "copied_from",
    "idempotency_records",
    "installed_objects",
    "request_counters",
}
"""Tables without a row of a team's: ids and counts of keys, which are looked up before a team is known."""
REFUSED = (InsufficientPrivilege, CheckViolation)
"""A policy's word, or that of a guard that looks for a row which the policy hides."""


@dataclass(frozen=True)
class Walls:
    """A database with rows of two teams in every table, and connections of the roles."""

    cluster: Cluster
    database: str
    a: Tenant
    b: Tenant

    def connect(self, role: str = SERVER, team: str | None = None) -> psycopg.Connection[Any]:
        """Return a connection that acts for a team, or that has never said for whom."""
        connection = self.cluster.connect(role, self.database)
        connection.row_factory = dict_row  # type: ignore[assignment]
        if team is not None:
            connection.execute("SELECT set_config('cmem.team_id', %s, false)", [team])
        return connection

    def psql(self, script: str) -> list[str]:
        """Run a script with PostgreSQL's own client as the server's role; return the lines that it prints."""
        command = [self.cluster.programs / "psql", "-XqtA", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        where = ["-h", str(self.cluster.folder), "-U", SERVER, self.database]
        done = subprocess.run([*command, *where], input=script, capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.split()


def team_column(table: str) -> str:
    return "id" if table == "teams" else "team_id"


def run(connection: psycopg.Connection[Any], statement: str, *values: object, **names: str) -> psycopg.Cursor[Any]:
    """Execute a statement with names of tables and columns filled in."""
    composed = sql.SQL(statement).format(**{name: sql.Identifier(text) for name, text in names.items()})  # type: ignore[arg-type]
    return connection.execute(composed, values)


def teams_in(connection: psycopg.Connection[Any], table: str) -> set[str | None]:
    """Return whose rows of a table are seen."""
    rows = run(connection, "SELECT DISTINCT {team} AS team FROM {table}", table=table, team=team_column(table))
    return {row["team"] for row in rows}


@pytest.fixture(scope="module")
def stores(cluster: Cluster) -> PostgresqlStores:
    return PostgresqlStores(cluster)


@pytest.fixture(scope="module")
def server(stores: PostgresqlStores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers(stores, tmp_path_factory.mktemp("walls")) as start:
        yield start()


def fill(server: Server, tenant: Tenant, word: str) -> None:
    """Leave a row in every table of a team."""
    session = tenant.http.post("/v1/sessions/start", json={"projectId": tenant.project_id}).json()["session"]["id"]
    event = {"projectId": tenant.project_id, "eventType": "e", "sourceType": "api", "occurredAtEpoch": 1, "payload": {}}
    memory = {"content": f"{word} content", "serverSessionId": session}
    replies = [
        tenant.http.post("/v1/events", json={**event, "serverSessionId": session}),
        tenant.http.post(f"/v1/teams/{tenant.team_id}/members", json={"userId": f"{word}@team", "role": "member"}),
        tenant.post_memory(**memory),
    ]
    assert [reply.status_code for reply in replies] == [201, 201, 201], [reply.text for reply in replies]
    memory_id = replies[-1].json()["memory"]["id"]
    source = {"source_type": "import", "origin": "o", "legacy_table": "t", "legacy_id": "1", "metadata": {}}
    place = {"team_id": tenant.team_id, "project_id": tenant.project_id}
    with server.database.write() as connection:
        jobs.create(connection, tenant.caller, "none", project_id=tenant.project_id, arguments={})
        row = {"id": f"source {word}", "memory_item_id": memory_id, "created_at_epoch": 1, **source, **place}
        connection.execute(memory_sources.insert().values(row))
        used = {"key_id": word, "month": "2000-01", "kind": "read", "team_id": tenant.team_id, "count": 1}
        connection.execute(usage_counters.insert().values(used))


@pytest.fixture
def walls(stores: PostgresqlStores, server: Server, as_team: Callable[[str], Tenant]) -> Walls:
    """Two fresh teams with a row in every table; words are the team's own."""
    database = make_url(server.settings.database_url).database or ""
    made = Walls(stores.cluster, database, as_team("a"), as_team("b"))
    fill(server, made.a, f"apple{made.a.team_id}")
    fill(server, made.b, f"banana{made.b.team_id}")
    with made.connect(team="*") as connection:
        for table in WALLED:
            assert {made.a.team_id, made.b.team_id} <= teams_in(connection, table), f"{table} was not filled"
    return made


# ---- what is seen


def test_psql_without_a_team_sees_no_row_of_any_table(walls: Walls):
    """Neither when nothing was said, nor when it was said for nobody."""
    counts = "".join(f"SELECT count(*) FROM {table};\n" for table in WALLED)
    assert walls.psql(counts) == ["0"] * len(WALLED)
    assert walls.psql(f"SET cmem.team_id = '';\n{counts}") == ["0"] * len(WALLED)


def test_psql_with_a_team_sees_only_rows_of_that_team(walls: Walls):
    """And of every table at least one."""
    told = f"BEGIN; SET LOCAL cmem.team_id = '{walls.a.team_id}';\n"
    asked = "".join(f"SELECT DISTINCT {team_column(table)} FROM {table};\n" for table in WALLED)
    assert walls.psql(f"{told}{asked}") == [walls.a.team_id] * len(WALLED)


def test_a_team_that_was_set_for_a_transaction_is_forgotten_with_it(walls: Walls):
    """What one request may see is nothing to the next on the same connection."""
    with walls.connect() as connection:
        with connection.transaction():
            connection.execute("SELECT set_config('cmem.team_id', %s, true)", [walls.a.team_id])
            assert teams_in(connection, "memory_items") == {walls.a.team_id}
        assert teams_in(connection, "memory_items") == set()


# ---- what is done


@pytest.mark.parametrize("table", WALLED)
def test_no_row_can_be_written_into_another_team(walls: Walls, table: str):
    """Neither inserted there, nor moved there, nor changed or deleted there."""
    team = team_column(table)
    with walls.connect(team="*") as everyone:
        foreign = run(everyone, "SELECT * FROM {table} WHERE {team} = %s", walls.b.team_id, table=table, team=team)
        row = foreign.fetchone()
        before = whole(everyone, table, walls.b)
    with walls.connect(team=walls.a.team_id) as connection:
        columns, values = (
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join([sql.Placeholder()] * len(row)),
        )
        insert = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})")
        with pytest.raises(REFUSED):
            connection.execute(insert.format(sql.Identifier(table), columns, values), list(row.values()))
        with pytest.raises(REFUSED):
            run(connection, "UPDATE {table} SET {team} = %s", walls.b.team_id, table=table, team=team)
        for change in ("UPDATE {table} SET {team} = {team} WHERE {team} = %s", "DELETE FROM {table} WHERE {team} = %s"):
            assert touched(connection, change, walls.b.team_id, table=table, team=team) == 0
    with walls.connect(team="*") as everyone:
        assert whole(everyone, table, walls.b) == before


def whole(connection: psycopg.Connection[Any], table: str, tenant: Tenant) -> list[dict[str, Any]]:
    """Return all rows of a team in a table."""
    query = "SELECT * FROM {table} WHERE {team} = %s ORDER BY 1, 2"
    return run(connection, query, tenant.team_id, table=table, team=team_column(table)).fetchall()


def touched(connection: psycopg.Connection[Any], statement: str, *values: object, **names: str) -> int:
    """Return how many rows a statement touched; none when it is not allowed at all."""
    try:
        return run(connection, statement, *values, **names).rowcount
    except InsufficientPrivilege:
        return 0


def test_the_functions_that_look_over_the_wall_show_and_change_nothing_foreign(walls: Walls):
    """What searches and what indexes run as their owner, and ask for the team themselves."""
    find, beside = (f"SELECT * FROM cmem_hits_in_{column}(%s, %s::tsquery)" for column in ("own", "beside"))
    counted = "SELECT number FROM cmem_count_in_own(%s, %s::tsquery, 10)"
    listed = "SELECT cmem_find_in_own(%s, %s::tsquery, 10, true) AS found"
    with walls.connect(team=walls.a.team_id) as a, walls.connect(team=walls.b.team_id) as b, walls.connect() as nobody:
        asked = [[walls.b.project_id], f"'banana{walls.b.team_id.replace('-', '')}' | 'content'"]
        assert len(b.execute(find, asked).fetchall()) == 1
        for stranger in (a, nobody):
            assert stranger.execute(find, asked).fetchall() == []
            assert stranger.execute(beside, asked).fetchall() == []
            assert stranger.execute(counted, asked).fetchone() == {"number": 0}
            assert stranger.execute(listed, asked).fetchone() == {"found": None}
            stranger.execute("SELECT cmem_index_anew(0, NULL)")
        assert len(b.execute(find, asked).fetchall()) == 1


# ---- what the role is


def test_the_servers_role_owns_nothing_and_bypasses_nothing(walls: Walls):
    """It is no superuser, has no BYPASSRLS, makes no roles, and is a member of no role that may more."""
    with walls.connect() as connection:
        role = connection.execute("SELECT * FROM pg_roles WHERE rolname = current_user").fetchone()
        owned = connection.execute("SELECT relname FROM pg_class WHERE relowner = current_user::regrole").fetchall()
        more = connection.execute("SELECT roleid FROM pg_auth_members WHERE member = current_user::regrole").fetchall()
    powers = ("rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb", "rolreplication")
    assert [power for power in powers if role[power]] == []
    assert (owned, more) == ([], [])


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE {table} CASCADE",
        "DROP POLICY tenant ON {table}",
        "ALTER POLICY tenant ON {table} USING (true)",
        "CREATE POLICY mine ON {table} USING (true)",
        "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "DROP TABLE {table} CASCADE",
    ],
)
def test_the_servers_role_cannot_take_the_wall_down(walls_standing: Walls, statement: str):
    """That takes the owner, of whichever table."""
    with walls_standing.connect(team="*") as connection:
        for table in WALLED:
            with pytest.raises(InsufficientPrivilege):
                run(connection, statement, table=table)


@pytest.fixture
def walls_standing(stores: PostgresqlStores, server: Server) -> Walls:
    """The same without teams in it: for what is refused whoever asks."""
    database = make_url(server.settings.database_url).database or ""
    return Walls(stores.cluster, database, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "statement",
    [
        f"SET ROLE {OWNER}",
        f"SET SESSION AUTHORIZATION {OWNER}",
        "SET session_replication_role = replica",
        "CREATE FUNCTION pg_temp.mine() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT 1::text';"
        f" ALTER FUNCTION pg_temp.mine() OWNER TO {OWNER}",
        "ALTER FUNCTION cmem_hits_in_own SECURITY INVOKER",
        "CREATE TABLE mine (id text)",
    ],
)
def test_the_servers_role_cannot_become_more(walls_standing: Walls, statement: str):
    """Neither another role, nor one that no trigger sees."""
    with walls_standing.connect() as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(statement.encode())


def test_switching_row_security_off_shows_nothing_either(walls: Walls):
    """PostgreSQL refuses the query instead of answering without the policy."""
    with walls.connect(team=walls.a.team_id) as connection:
        connection.execute("SET row_security = off")
        with pytest.raises(InsufficientPrivilege):
            connection.execute("SELECT * FROM memory_items")


# ---- no table is forgotten


def policies(connection: psycopg.Connection[Any]) -> dict[str, tuple[bool, bool, int]]:
    """Return of each table whether its wall stands, whether for its owner too, and how many policies it has."""
    rows = connection.execute(
        "SELECT relname, relrowsecurity, relforcerowsecurity,"
        " (SELECT count(*) FROM pg_policy WHERE polrelid = c.oid) AS policies"
        " FROM pg_class AS c WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace"
    )
    return {row["relname"]: (row["relrowsecurity"], row["relforcerowsecurity"], row["policies"]) for row in rows}


def unwalled(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the tables that hold something of a team, and that anybody sees."""
    found = policies(connection)
    return {name for name, (stands, _, count) in found.items() if not stands or not count} - OF_NO_TEAM


def test_every_table_has_a_wall_or_is_known_to_need_none(walls_standing: Walls):
    """A migration that adds a table has to say which; its owner is bound like anybody else."""
    with walls_standing.connect(OWNER) as connection:
        assert unwalled(connection) == set()
        forced = {name for name, (_, is_forced, _) in policies(connection).items() if is_forced}
        with_team = connection.execute(
            "SELECT DISTINCT table_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND column_name = 'team_id'"
        )
        assert {row["table_name"] for row in with_team} & OF_NO_TEAM == set()
    # the functions that search read this one as its owner, and ask for the team themselves
    assert forced == set(WALLED) - {"memory_items_fts"}


def test_a_table_that_a_migration_forgets_is_found(walls_standing: Walls):
    """With a team's rows or without."""
    with walls_standing.connect(OWNER) as connection, connection.transaction(force_rollback=True):
        connection.execute("CREATE TABLE forgotten (id text, team_id text)")
        assert unwalled(connection) == {"forgotten"}


def test_functions_that_run_as_their_owner_are_few_and_bound_to_their_schema(walls_standing: Walls):
    """A search_path of the caller's could slip other tables under them."""
    with walls_standing.connect() as connection:
        rows = connection.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND pronamespace = current_schema()::regnamespace"
        ).fetchall()
    assert {row["proname"] for row in rows} == {
        "cmem_count_in_own",
        *(f"cmem_{verb}_in_{column}" for verb in ("hits", "find") for column in ("own", "beside")),
        "cmem_index_anew",
        *(f"trg_memory_items_fts_{verb}" for verb in ("insert", "update", "delete")),
    }
    assert [row for row in rows if not any(each.startswith("search_path=") for each in row["proconfig"])] == []


# ---- a service that forgets


FORGETFUL = (
    "audit",
    "events",
    "exporting",
    "keys",
    "listing",
    "members",
    "memories",
    "projects",
    "related",
    "sessions",
    "teams",
    "timeline",
    "usage",
)


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services whose owned() selects everything, and that fill prepared statements with nobody's team."""

    def everything(table: scope.Selectable, _caller: object, *columns: Any) -> Any:
        return select(*(columns or (table,)))

    for name in FORGETFUL:
        monkeypatch.setattr(f"app.services.{name}.owned", everything)


def test_a_service_that_forgets_the_team_shows_nothing_foreign(walls: Walls, forgotten: None):
    """Whatever is listed, by whichever route: nothing of it is the other team's."""
    a, b = walls.a, walls.b
    listed = (
        *(f"/v1/{noun}" for noun in ("memories", "projects", "sessions", "events", "keys", "teams", "audit")),
        f"/v1/projects/{a.project_id}/export",
        f"/v1/teams/{a.team_id}/members",
        f"/v1/timeline?projectId={a.project_id}&query=content",
        "/v1/usage?month=2000-01",
    )
    for path in listed:
        reply = a.http.get(path)
        assert reply.status_code == 200, reply.text
        assert foreign_in(reply.text, b) == [], path
    assert a.http.get("/v1/memories").json()["memories"][0]["teamId"] == a.team_id


def test_a_service_that_forgets_the_team_cannot_be_asked_for_what_is_foreign(walls: Walls, forgotten: None):
    """By id it is not there, for reading and for changing."""
    a, b = walls.a, walls.b
    memory_id = b.http.get("/v1/memories").json()["memories"][0]["id"]
    session_id = b.http.get("/v1/sessions").json()["sessions"][0]["id"]
    for thing in (
        *(f"projects/{b.project_id}{what}" for what in ("", "/stats", "/export")),
        *(f"memories/{memory_id}{what}" for what in ("", "/sources")),
        f"sessions/{session_id}",
    ):
        assert a.http.get(f"/v1/{thing}").status_code == 404, thing
    assert a.http.delete(f"/v1/memories/{memory_id}").status_code == 404
    assert a.http.patch(f"/v1/memories/{memory_id}", json={"title": "mine"}).status_code == 404
    assert a.http.patch(f"/v1/projects/{b.project_id}", json={"name": "mine"}).status_code == 404
    assert b.http.get(f"/v1/memories/{memory_id}").json()["memory"]["title"] is None


def test_a_prepared_statement_that_is_given_another_team_finds_nothing(walls: Walls, monkeypatch: pytest.MonkeyPatch):
    """Search and reading by id ask in the name of the other team, on behalf of this one."""
    a, b = walls.a, walls.b
    memory_id = b.http.get("/v1/memories").json()["memories"][0]["id"]
    for name in ("memories", "search", "sessions", "projects", "events"):
        monkeypatch.setattr(f"app.services.{name}.parameters", lambda _: scope.parameters(b.caller))
    assert a.http.get(f"/v1/memories/{memory_id}").status_code == 404
    search = a.http.post("/v1/search", json={"projectId": b.project_id, "query": "content"})
    assert (search.status_code, foreign_in(search.text, b)) == (403, [])


def foreign_in(text: str, tenant: Tenant) -> list[str]:
    """Return what of another team stands in a reply."""
    return [mark for mark in (tenant.team_id, tenant.project_id, "banana") if mark in text]


# ---- what it costs


def plan(connection: psycopg.Connection[Any], statement: str, project_id: str) -> list[str]:
    """Return the lines of the plan of a search in a project, made as cmem_hits_in_own() makes its own."""
    connection.execute("SET enable_seqscan = off")
    rows = connection.execute(f"EXPLAIN {statement}".encode(), [project_id])
    return [row["QUERY PLAN"].strip() for row in rows]


def test_search_uses_the_index_where_the_policy_alone_would_not(walls: Walls, server: Server):
    """`@@` is not leakproof: under a policy it is asked of every row, and cmem_hits_in_own() goes around that."""
    caller = server_owner().within(walls.a.team_id)
    with server.database.write() as connection:
        new = [
            NewMemory(project_id=walls.a.project_id, kind="manual", type="manual", narrative=f"common word{number}")
            for number in range(3_000)
        ]
        memories.add_batch(connection, caller, new)
    query = "SELECT seq FROM memory_items_fts WHERE project_id = %s AND own @@ '''word77'''::tsquery"
    with walls.connect(OWNER, walls.a.team_id) as owner:
        owner.execute("ANALYZE memory_items_fts")
        by_index = plan(owner, query, walls.a.project_id)
    with walls.connect(team=walls.a.team_id) as connection, connection.transaction():
        by_policy = plan(connection, query, walls.a.project_id)
        scans = "SELECT pg_stat_get_xact_numscans('ix_memory_items_fts_own'::regclass) AS scans"
        before = connection.execute(scans).fetchone()["scans"]
        found = connection.execute(
            "SELECT * FROM cmem_hits_in_own(%s, '''word77'''::tsquery)", [[walls.a.project_id]]
        ).fetchall()
        after = connection.execute(scans).fetchone()["scans"]
    assert any(line.startswith("Index Cond") and "@@" in line for line in by_index)
    assert any(line.startswith("Filter") and "@@" in line for line in by_policy)
    assert not any(line.startswith("Index Cond") and "@@" in line for line in by_policy)
    assert (len(found), after - before) == (1, 1)
