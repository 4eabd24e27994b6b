"""/v1/usage: how many requests of each kind the team made in a month."""

from functools import partial
from typing import Annotated

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.caller import AUDIT_READ
from app.clock import now_ms
from app.services.quotas import rate_limit, usage

Month = Annotated[
    str | None,
    QueryParameter(
        name="month",
        pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$",
        description="The month in UTC, e.g. `2026-11`; the current month by default.",
    ),
]


class UsageKinds(Wire, frozen=True, kw_only=True):
    """Requests by kind."""

    read: int
    search: int
    write: int
    admin: int


class UsageReply(Wire, frozen=True, kw_only=True):
    """One month's requests of the team, or of the project that the credential is bound to."""

    month: str
    requests: UsageKinds
    total: int


@get("/usage", operation_id="getUsage", scope=AUDIT_READ)
async def get_usage(request: ApiRequest, month: Month = None) -> UsageReply:
    """Count a month's requests of all keys, including revoked ones.

    Requests counted by other processes of the server may appear up to a second late.
    """
    await request.app_state.recorder.flush()
    return await request.app_state.thread_pools.read(partial(_usage, request, month or rate_limit.month(now_ms())))


def _usage(request: ApiRequest, month: str) -> UsageReply:
    with request.app_state.database.read() as connection:  # not request.database: also for keys over quota
        totals = usage.totals(connection, request.caller, month)
    return UsageReply(month=month, requests=UsageKinds(**totals), total=sum(totals.values()))


router = Router("/", route_handlers=[get_usage], tags=["usage"])
