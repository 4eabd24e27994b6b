"""/v1/projects/{id}/export and /import: everything of a project, out and in as a stream of lines."""

import re
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

from litestar import Router, get, post
from litestar.response import Stream

from app.api.http import strict_json
from app.api.http.parameters import PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.caller import TEAM_ADMIN
from app.errors import Unavailable
from app.services.projects import projects
from app.services.transfer import exporting, importing, ndjson
from app.services.transfer.transfer_records import Record
from app.store.records import Project

NDJSON: Final = "application/x-ndjson"
_IS_NDJSON: Final = re.compile(r"^application/x-ndjson\s*(;\s*charset=\"?utf-8\"?\s*)?$", re.IGNORECASE)
_MOST_EXPORTS: Final = 2
"""Each keeps a snapshot, and with it one of the readers' connections, for as long as its client takes."""
_open_exports: Final[set[str]] = set()


class ImportReport(Wire, frozen=True, kw_only=True):
    """What an import did, in sessions, events and memories: each is in exactly one of the counts."""

    created: int
    skipped: int
    failed: int


@get("/projects/{project_id:str}/export", operation_id="exportProject", scope=TEAM_ADMIN, produces=NDJSON)
async def export_project(request: ApiRequest, project_id: PathId) -> Stream:
    """Take a project out: its sessions, events, memories, sources and rules, as of one moment, one JSON a line."""
    if len(_open_exports) >= _MOST_EXPORTS:
        raise Unavailable("Other exports are running; try again when they are done.", retry_after_seconds=10)
    wanted = await request.parts.workers.write(partial(_chosen, request, project_id))
    return Stream(_stream(request, wanted), media_type=NDJSON)


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
    """Bring an export of one project into this one. The same file again creates nothing."""
    work = request.parts.workers.write
    await request.parts.workers.read(partial(_require, request, project_id))
    run = importing.Import(request.database, request.caller, into_project_id=project_id)
    try:
        batches = ndjson.Batches(_decode, run.report)
        async for piece in request.stream():
            for batch in batches.feed(piece):
                await work(partial(run.take, batch))
        for batch in batches.rest():
            await work(partial(run.take, batch))
        report = run.finish()
    finally:
        run.close()
    return ImportReport(created=report.created, skipped=report.skipped, failed=report.failed)


router = Router("/", route_handlers=[export_project, import_project], tags=["projects"])


def _chosen(request: ApiRequest, project_id: str) -> list[Project]:
    with request.database.write() as connection:
        wanted = exporting.chosen(connection, request.caller, project_id)
        exporting.note(connection, request.caller, wanted)
    return wanted


def _require(request: ApiRequest, project_id: str) -> None:
    with request.database.read() as connection:
        projects.get(connection, request.caller, project_id)


def _decode(line: bytes) -> Record:
    decoded: Record = strict_json.decode(line, Record)
    return decoded


async def _stream(request: ApiRequest, wanted: list[Project]) -> AsyncGenerator[bytes, None]:
    """Read the next piece when the client has taken the last one; the snapshot ends with the stream."""
    chunks = exporting.chunks(request.database, request.caller, wanted)
    request_id = request.scope["state"]["request_id"]
    _open_exports.add(request_id)
    try:
        while piece := await request.parts.workers.read(partial(next, chunks, b"")):
            yield piece
    finally:
        chunks.close()
        _open_exports.discard(request_id)
