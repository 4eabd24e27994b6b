"""Counters of this process's indexing work, for /metrics."""

from typing import Final

from prometheus_client import Counter

EMBEDDED_MEMORIES: Final = Counter("cmem_embedded_memories", "Memories whose texts were embedded.")
EMBEDDED_TEXTS: Final = Counter("cmem_embedded_texts", "Texts that were embedded: one or more of a memory.")
EMBEDDING_SECONDS: Final = Counter("cmem_embedding_seconds", "Time that embedding memories took.")
EMBEDDING_FAILURES: Final = Counter("cmem_embedding_failures", "Batches that could not be embedded.")
