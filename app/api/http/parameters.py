"""Parameters in paths, queries and headers, with their names on the wire."""

import re
from datetime import datetime
from typing import Annotated, Final

from litestar.params import HeaderParameter, PathParameter, QueryParameter

from app.api.http.schemas import MAX_EPOCH_MS
from app.errors import Invalid
from app.services.shared.paging import MAX_LIMIT

Limit = Annotated[int, QueryParameter(name="limit", ge=1, le=MAX_LIMIT, description="Rows per page.")]
Cursor = Annotated[
    str | None,
    QueryParameter(name="cursor", max_length=2_000, description="The `nextCursor` of the previous page."),
]
ProjectId = Annotated[
    str | None,
    QueryParameter(name="projectId", description="One project. A team key that omits it lists the whole team."),
]
IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="An `ETag` read earlier; 412 if the resource has changed since."),
]
PathId = Annotated[str, PathParameter(description="An id. Treat it as opaque.")]

_EPOCH_MS: Final = re.compile(r"[0-9]{1,15}")
_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def epoch_ms(field: str, text: str | None) -> int | None:
    """Return the epoch milliseconds of a query value in epoch ms or RFC 3339. Raises Invalid."""
    if text is None:
        return None
    if _EPOCH_MS.fullmatch(text) and int(text) <= MAX_EPOCH_MS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text.upper()) if _RFC_3339.fullmatch(text) else None
    except ValueError:  # such as February 31
        moment = None
    if moment is None:
        raise Invalid.field(f"query.{field}", "must be epoch milliseconds or an RFC 3339 time with a UTC offset")
    return round(moment.timestamp() * 1000)
