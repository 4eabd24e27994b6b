"""/metrics: counters and gauges of the server, for Prometheus."""

from litestar import Response, Router, get
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.api.http.request import ApiRequest
from app.api.http.thread_pools import reading
from app.caller import SERVER_ADMIN
from app.services.operations.metrics import ServerMetrics


@get("/metrics", operation_id="getMetrics", scope=SERVER_ADMIN, produces="text/plain")
@reading
def get_metrics(request: ApiRequest) -> Response[bytes]:
    """Return counters and gauges in the text format of Prometheus."""
    metrics = ServerMetrics(request.database, request.app_state.metrics_dir)
    return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)


router = Router("/", route_handlers=[get_metrics], tags=["health"])
