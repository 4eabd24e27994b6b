"""Retention: deletes what a project's rules have expired. A dry run counts exactly what a run then deletes."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, select, update

from app.caller import TEAM_ADMIN, Caller, server_owner
from app.clock import now_ms
from app.errors import NotFound
from app.services.audit import entries
from app.services.deletion import bulk_delete, retention_rules
from app.services.deletion.retention_rules import Rule
from app.services.projects import projects
from app.store.database import Database
from app.store.models import memory_items, memory_sources
from app.store.models import projects as projects_table
from app.store.scope import owned, unscoped

_DAY_MS: Final = 86_400_000
_TEXTS: Final = ("title", "subtitle", "text", "narrative", "facts", "concepts")
_WITHOUT_SPACES: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_M: Final = memory_items.c


@dataclass(frozen=True, slots=True)
class RetentionOutcome:
    """What the rules of a project deleted, or would delete: in total, and by rule in their order."""

    project_id: str
    removed: int
    by_rule: tuple[int, ...]


def get(connection: Connection, caller: Caller, project_id: str) -> list[Rule]:
    """Return the rules of a project; without rules nothing is ever deleted. Raises NotFound."""
    caller.require(TEAM_ADMIN)
    statement = owned(projects_table, caller, projects_table.c.retention).where(projects_table.c.id == project_id)
    row = connection.execute(statement).first()
    if row is None:
        raise NotFound("project")
    return retention_rules.from_json(row.retention)


def put(connection: Connection, caller: Caller, project_id: str, rules: list[Rule]) -> list[Rule]:
    """Replace the rules of a project. Nothing is deleted before the next run. Raises Invalid and NotFound."""
    caller.require(TEAM_ADMIN)
    projects.get(connection, caller, project_id)
    stored = retention_rules.to_json(retention_rules.validated(rules))
    this = projects_table.c.id == project_id
    connection.execute(update(projects_table).where(this).values(retention=stored, updated_at_epoch=now_ms()))
    entries.record(connection, caller, "retention.update", target=("project", project_id), project_id=project_id)
    return rules


def run(database: Database, caller: Caller, project_id: str, *, dry_run: bool) -> RetentionOutcome:
    """Apply a project's rules once; after an interruption, the next run continues.

    Each batch is a transaction with its own audit entry.
    """
    caller.require(TEAM_ADMIN)
    with database.read() as connection:
        rules = get(connection, caller, project_id)
        expired = _expired(connection, caller, project_id, rules, now_ms())
    seqs = sorted(set().union(*expired))
    removed = len(seqs)
    if not dry_run:
        removed = bulk_delete.remove_by_key(
            database, caller, project_id, seqs, action="retention.run", unless=_M.pinned.is_(True)
        )
    return RetentionOutcome(project_id, removed, tuple(map(len, expired)))


def run_all(database: Database, *, team_id: str | None = None, dry_run: bool = False) -> Iterator[RetentionOutcome]:
    """Apply the rules of every project that has any, of one team or of all: for the server and its commands."""
    columns = projects_table.c.team_id, projects_table.c.id
    with_rules = unscoped(projects_table, *columns).where(projects_table.c.retention != [])
    with database.read() as connection:
        rows = connection.execute(with_rules.order_by(projects_table.c.id)).all()
    for owning_team_id, project_id in rows:
        if team_id in (None, owning_team_id):
            yield run(database, server_owner().within(owning_team_id), project_id, dry_run=dry_run)


def _expired(
    connection: Connection, caller: Caller, project_id: str, rules: Sequence[Rule], now_ms: int
) -> list[set[int]]:
    """Return the `seq` of each expired memory, by rule."""
    return [_expired_by(connection, caller, project_id, rule, now_ms) for rule in rules]


def _expired_by(connection: Connection, caller: Caller, project_id: str, rule: Rule, now_ms: int) -> set[int]:
    statement = owned(memory_items, caller, _M.seq).where(_M.project_id == project_id, _M.pinned.is_(False))
    if rule.kinds is not None:
        statement = statement.where(_M.kind.in_(rule.kinds))
    if rule.types is not None:
        statement = statement.where(_M.type.in_(rule.types))
    kept = _newest(connection, statement, rule.keep_last) if rule.keep_last is not None else set()
    days = max(rule.max_age_days or 0, rule.after_days or 0)
    if days:
        statement = statement.where(_is_older_than(now_ms - days * _DAY_MS))
    if rule.expire_when is not None:
        return _containing(connection, statement, rule.expire_when) - kept
    return set(connection.scalars(statement)) - kept


def _newest(connection: Connection, statement: Select[Any], count: int) -> set[int]:
    return set(connection.scalars(statement.order_by(_M.created_at_epoch.desc(), _M.seq.desc()).limit(count)))


def _is_older_than(epoch_ms: int) -> ColumnElement[bool]:
    """Say whether a memory is older than a time. Imported ones age from their import, or they would expire at once."""
    source = memory_sources.c
    imported_later = select(source.id).where(source.memory_item_id == _M.id, source.created_at_epoch >= epoch_ms)
    return (_M.created_at_epoch < epoch_ms) & ~imported_later.exists()


def _containing(connection: Connection, statement: Select[Any], words: Sequence[str]) -> set[int]:
    """Return the `seq` of the memories that contain one of the words, as a whole word where the script has words."""
    pattern = re.compile("|".join(_pattern(_plain(word.strip())) for word in words))
    rows = connection.execute(statement.add_columns(*(_M[name] for name in _TEXTS)).execution_options(yield_per=500))
    return {row[0] for row in rows if pattern.search(_plain("\n".join(_strings(row[1:]))))}


def _strings(values: Sequence[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (part for part in value if isinstance(part, str))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _pattern(word: str) -> str:
    """Return a pattern for a word, with word boundaries unless its script writes words without spaces."""
    before = r"(?<!\w)" if word[0].isalnum() and not _WITHOUT_SPACES.match(word[0]) else ""
    after = r"(?!\w)" if word[-1].isalnum() and not _WITHOUT_SPACES.match(word[-1]) else ""
    return before + re.escape(word) + after
