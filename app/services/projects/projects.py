"""Projects: what a team works on; the boundary of searches and of project keys."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, or_, select, update

from app.caller import MEMORIES_WRITE, TEAM_ADMIN, Caller
from app.clock import new_id, now_ms
from app.errors import Conflict, Forbidden, NotFound
from app.services.audit import entries
from app.services.shared import paging, slugs
from app.store.models import agent_events, memory_items, projects
from app.store.prepared import PreparedStatement
from app.store.records import Project, columns
from app.store.scope import owned, owned_template, parameters

_COLUMNS: Final = columns(projects, Project)
_IN_SCOPE: Final = PreparedStatement(
    owned_template(projects, projects.c.id).where(projects.c.id == bindparam("id")), str
)

DELETE_BATCH_ROWS: Final = 250
"""Rows deleted per transaction: a single cascade over 50,000 memories would hold the write lock for seconds."""


def create(
    connection: Connection,
    caller: Caller,
    *,
    name: str,
    slug: str | None = None,
    root_path: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Project:
    """Create a project in the caller's team. Forbidden for a project key, Conflict when slug or root path is taken."""
    caller.require(MEMORIES_WRITE)
    if caller.project_id is not None or caller.team_id is None:
        raise Forbidden("Only a team key can create projects.")
    if slug is not None:
        _require_free(connection, caller, "slug", projects.c.slug == slugs.require_valid(slug))
    if root_path is not None:
        _require_free(connection, caller, "rootPath", projects.c.root_path == root_path)
    slug = slug or slugs.make_unique(
        name, fallback="project", is_taken=lambda candidate: _is_taken(connection, caller, projects.c.slug == candidate)
    )
    now = now_ms()
    project = Project(new_id(), caller.team_id, name, slug, root_path, metadata or {}, now, now)
    row = {key: getattr(project, key) for key in Project.__struct_fields__}
    connection.execute(insert(projects).values(**row, retention=[]))
    entries.record(connection, caller, "project.create", target=("project", project.id), project_id=project.id)
    return project


def get(connection: Connection, caller: Caller, project_id: str) -> Project:
    """Return a project in the caller's scope; NotFound otherwise."""
    row = connection.execute(owned(projects, caller, *_COLUMNS).where(projects.c.id == project_id)).first()
    if row is None:
        raise NotFound("project")
    return Project(*row)


def find(connection: Connection, caller: Caller, id_or_slug: str) -> Project:
    """Return a project in the caller's scope by id or slug; NotFound otherwise."""
    matches = or_(projects.c.id == id_or_slug, projects.c.slug == id_or_slug)
    row = connection.execute(owned(projects, caller, *_COLUMNS).where(matches)).first()
    if row is None:
        raise NotFound("project")
    return Project(*row)


def require(connection: Connection, caller: Caller, project_id: str) -> None:
    """Raise Forbidden unless the given project is in the caller's scope.

    The error is the same for another team's project and for one that does not exist.
    """
    caller.require_project(project_id)
    if _IN_SCOPE.first(connection, {**parameters(caller), "id": project_id}) is None:
        raise Forbidden("The projectId is outside what this credential may use.")


def in_scope(connection: Connection, caller: Caller, requested: Sequence[str]) -> tuple[str, ...]:
    """Return the projects that a request applies to: the requested ones, or by default all in the caller's scope.

    Raises Forbidden when a requested one is outside the caller's scope.
    """
    for project_id in requested:
        require(connection, caller, project_id)
    if requested:
        return tuple(requested)
    return tuple(connection.scalars(owned(projects, caller, projects.c.id).order_by(projects.c.id)))


def list_page(connection: Connection, caller: Caller, *, limit: int, cursor: str | None) -> paging.Page[Project]:
    """Return the projects in the caller's scope, newest first."""
    return paging.page(
        connection,
        owned(projects, caller, *_COLUMNS),
        Project,
        (projects.c.created_at_epoch, projects.c.id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, "projects"),
    )


def list_all(connection: Connection, caller: Caller) -> list[Project]:
    """Return every project in the caller's scope, oldest first."""
    oldest_first = (projects.c.created_at_epoch, projects.c.id)
    rows = connection.execute(owned(projects, caller, *_COLUMNS).order_by(*oldest_first))
    return [Project(*row) for row in rows]


def change(connection: Connection, caller: Caller, project_id: str, changes: dict[str, Any]) -> Project:
    """Update name, slug, root_path or metadata; fields absent from `changes` are kept.

    Raises Conflict when slug or root path is taken.
    """
    caller.require(TEAM_ADMIN)
    existing = get(connection, caller, project_id)
    others = projects.c.id != project_id
    if (slug := changes.get("slug")) is not None:
        _require_free(connection, caller, "slug", others & (projects.c.slug == slugs.require_valid(slug)))
    if (root_path := changes.get("root_path")) is not None:
        _require_free(connection, caller, "rootPath", others & (projects.c.root_path == root_path))
    if not changes:
        return existing
    connection.execute(
        update(projects).where(projects.c.id == existing.id).values(**changes, updated_at_epoch=now_ms())
    )
    entries.record(connection, caller, "project.update", target=("project", project_id), project_id=project_id)
    return get(connection, caller, project_id)


def newest_memory_seq(connection: Connection, caller: Caller, project_id: str) -> int:
    """Return the highest `seq` of a project's memories, 0 when it has none."""
    caller.require(TEAM_ADMIN)
    get(connection, caller, project_id)
    of_project = owned(memory_items, caller, func.max(memory_items.c.seq)).where(
        memory_items.c.project_id == project_id
    )
    return connection.scalar(of_project) or 0


def delete_memory_batch(connection: Connection, caller: Caller, project_id: str, *, up_to_seq: int) -> int:
    """Delete up to DELETE_BATCH_ROWS memories of a project, none inserted after `up_to_seq`; return how many."""
    caller.require(TEAM_ADMIN)
    get(connection, caller, project_id)
    of_project = (memory_items.c.project_id == project_id) & (memory_items.c.seq <= up_to_seq)
    batch = owned(memory_items, caller, memory_items.c.seq).where(of_project).limit(DELETE_BATCH_ROWS)
    return connection.execute(delete(memory_items).where(memory_items.c.seq.in_(batch.scalar_subquery()))).rowcount


def delete_event_batch(connection: Connection, caller: Caller, project_id: str) -> int:
    """Delete up to DELETE_BATCH_ROWS events of a project; return how many."""
    caller.require(TEAM_ADMIN)
    get(connection, caller, project_id)
    of_project = agent_events.c.project_id == project_id
    batch = owned(agent_events, caller, agent_events.c.id).where(of_project).limit(DELETE_BATCH_ROWS)
    return connection.execute(delete(agent_events).where(agent_events.c.id.in_(batch.scalar_subquery()))).rowcount


def remove(connection: Connection, caller: Caller, project_id: str) -> None:
    """Delete a project and all its data."""
    caller.require(TEAM_ADMIN)
    get(connection, caller, project_id)
    connection.execute(delete(projects).where(projects.c.id == project_id))
    entries.record(connection, caller, "project.delete", target=("project", project_id), project_id=project_id)


def _require_free(connection: Connection, caller: Caller, field: str, taken: ColumnElement[bool]) -> None:
    if _is_taken(connection, caller, taken):
        raise Conflict(f"Another project of this team already has this {field}.")


def _is_taken(connection: Connection, caller: Caller, taken: ColumnElement[bool]) -> bool:
    return connection.scalar(select(owned(projects, caller).where(taken).exists())) or False
