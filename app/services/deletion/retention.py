"""Retention: what a project's rules say may go. What a dry run counts is what the run then removes."""

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
from app.store.scope import every, owned

_DAY_MS: Final = 86_400_000
_TEXTS: Final = ("title", "subtitle", "text", "narrative", "facts", "concepts")
_WITHOUT_SPACES: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_M: Final = memory_items.c


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one project's rules removed, or would remove: by rule, in their order, and in all."""

    project_id: str
    removed: int
    by_rule: tuple[int, ...]


def get(connection: Connection, caller: Caller, project_id: str) -> list[Rule]:
    """Return the rules of a project; none means that nothing is ever removed."""
    caller.require(TEAM_ADMIN)
    statement = owned(projects_table, caller, projects_table.c.retention).where(projects_table.c.id == project_id)
    row = connection.execute(statement).first()
    if row is None:
        raise NotFound("project")
    return retention_rules.read(row.retention)


def put(connection: Connection, caller: Caller, project_id: str, rules: list[Rule]) -> list[Rule]:
    """Replace the rules of a project. Nothing is removed before the next run."""
    caller.require(TEAM_ADMIN)
    projects.get(connection, caller, project_id)
    kept = retention_rules.stored(retention_rules.checked(rules))
    this = projects_table.c.id == project_id
    connection.execute(update(projects_table).where(this).values(retention=kept, updated_at_epoch=now_ms()))
    entries.record(connection, caller, "retention.update", target=("project", project_id), project_id=project_id)
    return rules


def run(database: Database, caller: Caller, project_id: str, *, dry_run: bool) -> Outcome:
    """Apply a project's rules once; interrupted, the next run goes on. Each batch is a transaction with its entry."""
    caller.require(TEAM_ADMIN)
    with database.read() as connection:
        rules = get(connection, caller, project_id)
        doomed = _doomed(connection, caller, project_id, rules, now_ms())
    seqs = sorted(set().union(*doomed))
    removed = len(seqs)
    if not dry_run:
        removed = bulk_delete.remove_by_key(
            database, caller, project_id, seqs, action="retention.run", unless=_M.pinned.is_(True)
        )
    return Outcome(project_id, removed, tuple(map(len, doomed)))


def run_all(database: Database, *, team_id: str | None = None, dry_run: bool = False) -> Iterator[Outcome]:
    """Apply the rules of every project that has some, of one team or of all: for the server and its commands."""
    columns = projects_table.c.team_id, projects_table.c.id
    with_rules = every(projects_table, *columns).where(projects_table.c.retention != [])
    with database.read() as connection:
        found = connection.execute(with_rules.order_by(projects_table.c.id)).all()
    for owner_id, project_id in found:
        if team_id in (None, owner_id):
            yield run(database, server_owner().within(owner_id), project_id, dry_run=dry_run)


def _doomed(connection: Connection, caller: Caller, project_id: str, rules: Sequence[Rule], now: int) -> list[set[int]]:
    """Return the keys of what goes, by rule."""
    return [_doomed_by(connection, caller, project_id, rule, now) for rule in rules]


def _doomed_by(connection: Connection, caller: Caller, project_id: str, rule: Rule, now: int) -> set[int]:
    wanted = owned(memory_items, caller, _M.seq).where(_M.project_id == project_id, _M.pinned.is_(False))
    if rule.kinds is not None:
        wanted = wanted.where(_M.kind.in_(rule.kinds))
    if rule.types is not None:
        wanted = wanted.where(_M.type.in_(rule.types))
    kept = _newest(connection, wanted, rule.keep_last) if rule.keep_last is not None else set()
    days = max(rule.max_age_days or 0, rule.after_days or 0)
    if days:
        wanted = wanted.where(_is_older_than(now - days * _DAY_MS))
    if rule.expire_when is not None:
        return _holding(connection, wanted, rule.expire_when) - kept
    return set(connection.scalars(wanted)) - kept


def _newest(connection: Connection, wanted: Select[Any], count: int) -> set[int]:
    return set(connection.scalars(wanted.order_by(_M.created_at_epoch.desc(), _M.seq.desc()).limit(count)))


def _is_older_than(epoch_ms: int) -> ColumnElement[bool]:
    """Say whether a memory is older than that. One that was imported counts from its import: it must not go at once."""
    source = memory_sources.c
    came_later = select(source.id).where(source.memory_item_id == _M.id, source.created_at_epoch >= epoch_ms)
    return (_M.created_at_epoch < epoch_ms) & ~came_later.exists()


def _holding(connection: Connection, wanted: Select[Any], words: Sequence[str]) -> set[int]:
    """Return the keys of those memories that hold one of the words, as a word where the script has words."""
    holds = re.compile("|".join(_pattern(_plain(word.strip())) for word in words))
    rows = connection.execute(wanted.add_columns(*(_M[name] for name in _TEXTS)).execution_options(yield_per=500))
    return {row[0] for row in rows if holds.search(_plain("\n".join(_parts(row[1:]))))}


def _parts(values: Sequence[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (part for part in value if isinstance(part, str))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _pattern(word: str) -> str:
    """Return a pattern for a word: bounded, unless its script writes words without spaces."""
    before = r"(?<!\w)" if word[0].isalnum() and not _WITHOUT_SPACES.match(word[0]) else ""
    after = r"(?!\w)" if word[-1].isalnum() and not _WITHOUT_SPACES.match(word[-1]) else ""
    return before + re.escape(word) + after
