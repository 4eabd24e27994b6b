"""The whole route table on one screen."""

from litestar import Router

from app.api import (
    audit,
    auth,
    context,
    conversations,
    events,
    forgetting,
    health,
    keys,
    members,
    memories,
    metrics,
    openapi,
    projects,
    related,
    retention,
    search,
    sessions,
    teams,
    timeline,
    transfer,
    usage,
    vectors,
)

V1 = Router(
    "/v1",
    route_handlers=[
        projects.router,
        transfer.router,
        retention.router,
        forgetting.router,
        sessions.router,
        events.router,
        memories.router,
        conversations.router,
        related.router,
        search.router,
        context.router,
        timeline.router,
        auth.router,
        teams.router,
        members.router,
        keys.router,
        audit.router,
        usage.router,
        vectors.router,
    ],
)
ROUTERS = [health.router, metrics.router, openapi.router, V1]
