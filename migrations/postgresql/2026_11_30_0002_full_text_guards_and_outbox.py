"""Install what no table definition can say: full text, guards, statistics, the outbox, and who may see which row.

Everything is done by triggers and policies, so that every writer is caught, also one at a psql prompt.
"""

from alembic import op

from migrations.postgresql_0002.finding import FINDING
from migrations.postgresql_0002.full_text import FULL_TEXT
from migrations.postgresql_0002.guards import GUARDS
from migrations.postgresql_0002.keeping import EXISTING_ROWS, OUTBOX, STATEMENT_TRIGGERS, STATISTICS
from migrations.postgresql_0002.walls import TEAM_TABLES, WALLS

revision = "0002"
down_revision = "0001"

# Whose copy this database is, and how many rows of each step of it are here: for `db copy`, which can be interrupted.
_COPIED_FROM = ("CREATE TABLE copied_from (step TEXT PRIMARY KEY, source TEXT NOT NULL, rows BIGINT NOT NULL)",)


def upgrade() -> None:
    for statement in (
        *FULL_TEXT,
        *FINDING,
        *STATISTICS,
        *OUTBOX,
        *STATEMENT_TRIGGERS,
        *GUARDS,
        *EXISTING_ROWS,
        *WALLS,
        *_COPIED_FROM,
    ):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    run = op.get_bind().exec_driver_sql
    run("DROP TABLE copied_from")
    for table in ("teams", *TEAM_TABLES):
        run(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        run(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        run(f"DROP POLICY tenant ON {table}")
    functions = (*FULL_TEXT, *FINDING, *STATISTICS, *OUTBOX, *GUARDS)
    names = [text.split("CREATE FUNCTION ")[1].split("(")[0] for text in functions if "CREATE FUNCTION " in text]
    for name in reversed(names):
        run(f"DROP FUNCTION {name} CASCADE")
    run("DROP TABLE memory_items_fts")
    run("DROP TEXT SEARCH DICTIONARY cmem_porter")
    run("DELETE FROM project_statistics")
