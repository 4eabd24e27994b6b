"""Retention deletes what has expired, keeps pinned memories and other projects, and its dry run is exact."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from app.clock import now_ms
from app.errors import Invalid
from app.services.deletion import retention
from app.services.deletion.retention_rules import Rule
from app.services.projects.projects import DELETE_BATCH_ROWS
from app.store.models import memory_sources
from tests import ROOT
from tests.databases import Databases
from tests.services import library
from tests.services.library import Library

DAY_MS = 86_400_000


@pytest.fixture
def books(databases: Databases, tmp_path: Path) -> Iterator[Library]:
    with library.opened(databases, tmp_path) as opened:
        yield opened


def aged(days: float, **fields) -> dict:
    return {"created_at_epoch": now_ms() - round(days * DAY_MS), **fields}


def rule(books: Library, *rules: Rule, project_id: str | None = None) -> None:
    with books.database.write() as connection:
        retention.put(connection, books.caller, project_id or books.project_id, list(rules))


def run(books: Library, *, dry_run: bool = False) -> retention.RetentionOutcome:
    return retention.run(books.database, books.caller, books.project_id, dry_run=dry_run)


def left(books: Library) -> list[str]:
    sql = "SELECT narrative FROM memory_items WHERE project_id = :project ORDER BY created_at_epoch, seq"
    with books.database.read() as connection:
        return list(connection.scalars(text(sql), {"project": books.project_id}))


def test_nothing_expires_without_rules(books: Library):
    """However old it is."""
    books.remember("old", **aged(5_000))

    assert (run(books).removed, left(books)) == (0, ["old"])


def test_memories_older_than_max_age_expire(books: Library):
    """By their own time, not by when they were stored."""
    books.remember_all([{"narrative": "old", **aged(31)}, {"narrative": "young", **aged(29)}])
    rule(books, Rule(max_age_days=30))

    assert (run(books).removed, left(books)) == (1, ["young"])


def test_rule_may_be_limited_to_kinds_and_types(books: Library):
    """Others are kept, however old."""
    for kind in ("prompt", "summary"):
        for type_ in ("chat", "decision"):
            books.remember(f"{kind} {type_}", kind=kind, type=type_, **aged(100))
    rule(books, Rule(kinds=["prompt"], types=["chat"], max_age_days=30))

    run(books)

    assert left(books) == ["prompt decision", "summary chat", "summary decision"]


def test_pinned_memories_never_expire(books: Library):
    """Whatever the rule."""
    books.remember("deprecated but pinned", pinned=True, **aged(1_000))
    rule(books, Rule(max_age_days=1), Rule(keep_last=1), Rule(expire_when=["deprecated"]))

    assert run(books).removed == 0


def test_keep_last_keeps_the_newest(books: Library):
    """By time, whatever the order in which they were stored."""
    books.remember_all([{"narrative": f"day {day}", **aged(day)} for day in (3, 1, 2, 5, 4)])
    rule(books, Rule(keep_last=2))

    assert (run(books).removed, left(books)) == (3, ["day 2", "day 1"])


def test_every_condition_of_a_rule_must_be_met(books: Library):
    """keepLast spares what maxAgeDays alone would delete."""
    books.remember_all([{"narrative": f"day {day}", **aged(day)} for day in (100, 90, 80, 1)])
    rule(books, Rule(max_age_days=30, keep_last=2))

    assert (run(books).removed, left(books)) == (2, ["day 80", "day 1"])


@pytest.mark.parametrize(
    ("word", "gone", "stays"),
    [
        ("deprecated", "This API is Deprecated.", "undeprecated forever"),
        ("已下架", "该商品已下架，不再销售", "该商品已上架"),
        ("устарело", "Это УСТАРЕЛО давно", "неустарелость"),
        ("廃止", "この機能は廃止されました", "この機能は有効です"),
        ("end of life", "Reached END OF LIFE.", "end of lifetime"),
        ("C++", "we dropped C++ here", "we kept C here"),
        ("ＥＯＬ", "It is EOL now", "geology"),
        ("취소", "주문이취소되었다", "주문 완료"),
    ],
)
def test_words_in_any_script_expire_a_memory(books: Library, word: str, gone: str, stays: str):
    """As whole words where the script has words; width and case do not matter."""
    books.remember_all([{"narrative": gone, **aged(40)}, {"narrative": stays, **aged(40)}])
    rule(books, Rule(expire_when=[word], after_days=30))

    assert (run(books).removed, left(books)) == (1, [stays])


def test_words_expire_a_memory_only_after_some_days(books: Library):
    """A fresh note about something deprecated is news."""
    books.remember("deprecated today", **aged(29))
    rule(books, Rule(expire_when=["deprecated"], after_days=30))

    assert run(books).removed == 0


def test_imported_memories_do_not_expire_on_arrival(books: Library):
    """They age from their import."""
    memory = books.remember("from long ago", **aged(3_000))
    with books.database.write() as connection:
        connection.execute(
            memory_sources.insert().values(
                id="s",
                team_id=memory.team_id,
                project_id=memory.project_id,
                memory_item_id=memory.id,
                source_type="import",
                origin="claude-mem:1",
                legacy_table="observations",
                legacy_id="1",
                metadata={},
                created_at_epoch=now_ms() - DAY_MS,
            )
        )
    rule(books, Rule(max_age_days=30))

    assert run(books).removed == 0


def test_other_projects_are_not_affected(books: Library):
    """Each has its own rules."""
    other = books.add_project("other")
    books.remember("old there", project_id=other, **aged(100))
    rule(books, Rule(max_age_days=30))

    list(retention.run_all(books.database))

    assert books.narratives("old there", project_ids=(other,)) == ["old there"]


def test_dry_run_counts_what_the_run_then_deletes(books: Library):
    """By rule and in total, for 1,500 random memories and several rules at once."""
    chance = random.Random(7)
    kinds = ("observation", "summary", "prompt", "manual")
    books.remember_all(
        [
            aged(
                chance.randrange(200),
                narrative=f"{number} {chance.choice(('deprecated', '已下架', 'fine'))}",
                kind=chance.choice(kinds),
                pinned=chance.random() < 0.1,
            )
            for number in range(1_500)
        ]
    )
    rule(
        books,
        Rule(kinds=["prompt"], max_age_days=90),
        Rule(kinds=["summary"], keep_last=50),
        Rule(expire_when=["deprecated", "已下架"], after_days=60),
    )

    expected = run(books, dry_run=True)
    before = len(left(books))
    done = run(books)

    assert expected == done
    assert before - len(left(books)) == done.removed > 300
    assert run(books).removed == 0


def test_run_is_audited_with_its_counts(books: Library):
    """Each batch writes its count in its own transaction."""
    books.remember_all([{"narrative": f"{number}", **aged(100)} for number in range(2 * DELETE_BATCH_ROWS + 100)])
    rule(books, Rule(max_age_days=30))
    run(books)

    with books.database.read() as connection:
        sql = "SELECT count FROM audit_log WHERE action = 'retention.run' ORDER BY seq"
        assert list(connection.exec_driver_sql(sql).scalars()) == [DELETE_BATCH_ROWS, DELETE_BATCH_ROWS, 100]


def test_killed_run_is_completed_by_the_next_one(books: Library, tmp_path: Path):
    """kill -9 after the first batch; the second run deletes the rest."""
    books.remember_all([{"narrative": f"{number}", **aged(100)} for number in range(2 * DELETE_BATCH_ROWS)])
    books.remember("young")
    rule(books, Rule(max_age_days=30))
    script = (
        "import os, sys; from app.services.deletion import bulk_delete, retention\n"
        "from app.store.database import Database\n"
        "delete = bulk_delete.delete_rows\n"
        "def once(*args, **kwargs):\n"
        "    os.path.exists(sys.argv[2]) and os.kill(os.getpid(), 9)\n"
        "    open(sys.argv[2], 'w').close(); return delete(*args, **kwargs)\n"
        "bulk_delete.delete_rows = once; list(retention.run_all(Database(sys.argv[1])))"
    )
    marker = tmp_path / "first batch is done"
    died = subprocess.run(
        [sys.executable, "-c", script, books.database.url, str(marker)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )

    assert (died.returncode, len(left(books))) == (-signal.SIGKILL, DELETE_BATCH_ROWS + 1)
    assert (run(books).removed, left(books)) == (DELETE_BATCH_ROWS, ["young"])


@pytest.mark.parametrize(
    "invalid", [Rule(), Rule(kinds=["prompt"]), Rule(after_days=3), Rule(max_age_days=3, after_days=3)]
)
def test_rule_that_would_delete_everything_is_rejected(books: Library, invalid: Rule):
    """It needs a condition, and afterDays only qualifies expireWhen."""
    with pytest.raises(Invalid):
        rule(books, invalid)
