"""/v1/projects/{id}/export and /import: a whole project as a stream of NDJSON."""

import re
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

from litestar import Router, get, post
from litestar.response import Stream

from app.api.http.parameters import PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.caller import TEAM_ADMIN
from app.errors import Unavailable
from app.services.projects import projects
from app.services.shared import strict_json
from app.services.transfer import exporting, importing, ndjson
from app.services.transfer.transfer_records import Record
from app.store.records import Project

NDJSON: Final = "application/x-ndjson"
_IS_NDJSON: Final = re.compile(r"^application/x-ndjson\s*(;\s*charset=\"?utf-8\"?\s*)?$", re.IGNORECASE)
_MAX_EXPORTS: Final = 2
"""Each holds a snapshot, and with it a reader connection, until its client has received everything."""
_open_exports: Final[set[str]] = set()


class ImportReport(Wire, frozen=True, kw_only=True):
    """The result of an import. Each session, event and memory is in exactly one of the counts."""

    created: int
    skipped: int
    failed: int


@get("/projects/{project_id:str}/export", operation_id="exportProject", scope=TEAM_ADMIN, produces=NDJSON)
async def export_project(request: ApiRequest, project_id: PathId) -> Stream:
    """Export a project as of one moment: sessions, events, memories, sources and rules, one JSON object per line."""
    if len(_open_exports) >= _MAX_EXPORTS:
        raise Unavailable("Too many exports are running. Try again when one has finished.", retry_after_seconds=10)
    projects_to_export = await request.app_state.thread_pools.write(partial(_record_export, request, project_id))
    return Stream(_stream(request, projects_to_export), media_type=NDJSON)


@post(
    "/projects/{project_id:str}/import",
    operation_id="importProject",
    scope=TEAM_ADMIN,
    status_code=200,
    media=_IS_NDJSON,
    consumes=NDJSON,
    errors=(404, 409, 415),
    request_max_body_size=None,
)
async def import_project(request: ApiRequest, project_id: PathId) -> ImportReport:
    """Import the export of a project into this one. Importing the same file again creates nothing."""
    in_writer = request.app_state.thread_pools.write
    await request.app_state.thread_pools.read(partial(_require, request, project_id))
    run = importing.Import(request.database, request.caller, into_project_id=project_id)
    try:
        batches = ndjson.Batches(_decode, run.report)
        async for chunk in request.stream():
            for batch in batches.feed(chunk):
                await in_writer(partial(run.import_batch, batch))
        for batch in batches.rest():
            await in_writer(partial(run.import_batch, batch))
        report = run.finish()
    finally:
        run.close()
    return ImportReport(created=report.created, skipped=report.skipped, failed=report.failed)


router = Router("/", route_handlers=[export_project, import_project], tags=["projects"])


def _record_export(request: ApiRequest, project_id: str) -> list[Project]:
    with request.database.write() as connection:
        selected = exporting.select_projects(connection, request.caller, project_id)
        exporting.record_export(connection, request.caller, selected)
    return selected


def _require(request: ApiRequest, project_id: str) -> None:
    with request.database.read() as connection:
        projects.get(connection, request.caller, project_id)


def _decode(line: bytes) -> Record:
    decoded: Record = strict_json.decode(line, Record)
    return decoded


async def _stream(request: ApiRequest, selected: list[Project]) -> AsyncGenerator[bytes, None]:
    """Read a chunk whenever the client has taken the previous one; the snapshot ends with the stream."""
    chunks = exporting.chunks(request.database, request.caller, selected)
    request_id = request.scope["state"]["request_id"]
    _open_exports.add(request_id)
    try:
        while chunk := await request.app_state.thread_pools.read(partial(next, chunks, b"")):
            yield chunk
    finally:
        chunks.close()
        _open_exports.discard(request_id)
