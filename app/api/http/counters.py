"""What is counted besides requests, for /metrics. Process-wide, as Prometheus has it."""

from typing import Final

from prometheus_client import Counter

SEARCHES: Final = Counter(
    "cmem_searches", "Searches by how they were answered, and why not by meaning.", ("strategy", "degraded", "reason")
)
ARGON2_CHECKS: Final = Counter("cmem_argon2_checks", "Slow checks of a secret: one for each key and process.")
