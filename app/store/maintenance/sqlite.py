"""Maintains an SQLite file: the contract of this package, assembled from its three modules."""

from app.store.maintenance.sqlite_compaction import (
    checkpoint_log,
    merge_full_text,
    refresh_statistics,
    release_free_pages,
)
from app.store.maintenance.sqlite_faults import (
    damaged_pages,
    differing_objects,
    faults,
    free_and_total,
    is_full_text_intact,
    is_full_text_plausible,
    next_memory_differs,
    orphans,
    sizes,
)
from app.store.maintenance.sqlite_rebuilding import rebuild

__all__ = [
    "checkpoint_log",
    "damaged_pages",
    "differing_objects",
    "faults",
    "free_and_total",
    "is_full_text_intact",
    "is_full_text_plausible",
    "merge_full_text",
    "next_memory_differs",
    "orphans",
    "rebuild",
    "refresh_statistics",
    "release_free_pages",
    "sizes",
]
