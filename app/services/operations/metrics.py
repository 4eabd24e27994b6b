"""Everything a server exposes to Prometheus: its counters, and gauges that are read from the database at each scrape.

Where several processes answer requests, each writes its counters to files of its own in one folder, and whichever
process is scraped adds them up.
"""

from collections.abc import Iterable
from pathlib import Path

from prometheus_client import REGISTRY, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from app.services.operations import gauges
from app.store.database import Database


class ServerMetrics(Collector):
    """All metrics of a server. `metrics_dir` is the folder with the files of its processes; None: there is only one."""

    def __init__(self, database: Database, metrics_dir: Path | None) -> None:
        self._database = database
        self._metrics_dir = metrics_dir

    def collect(self) -> Iterable[Metric]:
        """Yield the counters, then a gauge for each number in the database."""
        yield from self._counters().collect()
        for name, description, value in gauges.read(self._database):
            yield GaugeMetricFamily(f"cmem_{name}", description, value)

    def _counters(self) -> Collector:
        if self._metrics_dir is None:
            return REGISTRY
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, str(self._metrics_dir))  # type: ignore[no-untyped-call]
        return registry
