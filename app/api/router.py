"""The whole route table on one screen."""

from litestar import Router

from app.api import context, events, health, memories, openapi, projects, search, sessions, vectors

V1 = Router(
    "/v1",
    route_handlers=[
        projects.router,
        sessions.router,
        events.router,
        memories.router,
        search.router,
        context.router,
        vectors.router,
    ],
)
ROUTERS = [health.router, openapi.router, V1]
