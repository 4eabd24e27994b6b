"""/v1/projects/{id}/retention: which memories are removed, and when."""

from typing import Annotated, Literal

import msgspec
from litestar import Router, get, put
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http.parameters import PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Label, Wire
from app.api.http.thread_pools import reading, writing
from app.caller import TEAM_ADMIN
from app.services.deletion import retention
from app.services.deletion.retention_rules import MAX_RULES, Days, Rule, Word


class RetentionRule(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """A rule removes the memories that meet all of its conditions. Pinned memories are never removed.

    `keepLast` spares the newest memories of the rule's kinds and types. `expireWhen` lists words, in any script;
    memories that contain one are removed once they are older than `afterDays`. At least one of `maxAgeDays`,
    `keepLast` and `expireWhen` is required.
    """

    kinds: list[Literal["observation", "summary", "prompt", "manual"]] | None = None
    types: list[Label] | None = None
    max_age_days: Days | None = None
    keep_last: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    expire_when: Annotated[list[Word], Meta(min_length=1, max_length=100)] | None = None
    after_days: Annotated[int, Meta(ge=0, le=36_500)] | None = None


class Retention(Wire, frozen=True, kw_only=True):
    """The retention rules of a project. Without rules, nothing is ever removed."""

    rules: Annotated[list[RetentionRule], Meta(max_length=MAX_RULES)]


@get("/projects/{project_id:str}/retention", operation_id="getRetention", scope=TEAM_ADMIN)
@reading
def get_retention(request: ApiRequest, project_id: PathId) -> Retention:
    """Get the retention rules of a project."""
    with request.database.read() as connection:
        return _reply(retention.get(connection, request.caller, project_id))


@put("/projects/{project_id:str}/retention", operation_id="setRetention", scope=TEAM_ADMIN)
@writing
def set_retention(request: ApiRequest, project_id: PathId, data: JSONBody[Retention]) -> Retention:
    """Replace the retention rules of a project. The server applies them daily."""
    rules = [Rule(**msgspec.structs.asdict(rule)) for rule in data.rules]
    with request.database.write() as connection:
        return _reply(retention.put(connection, request.caller, project_id, rules))


router = Router("/", route_handlers=[get_retention, set_retention], tags=["projects"])


def _reply(rules: list[Rule]) -> Retention:
    return Retention(rules=[RetentionRule(**msgspec.structs.asdict(rule)) for rule in rules])
