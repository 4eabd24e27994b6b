"""All routes of the server, on one screen."""

from litestar import Router

from app.api.openapi import document
from app.api.routes import (
    audit,
    auth,
    context,
    conversations,
    deletion,
    events,
    health,
    keys,
    members,
    memories,
    memory_lists,
    metrics,
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
        deletion.router,
        sessions.router,
        events.router,
        memories.router,
        memory_lists.router,
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
ROUTERS = [health.router, metrics.router, document.router, V1]
