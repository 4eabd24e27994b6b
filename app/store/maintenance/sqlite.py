"""The care of an SQLite file: the contract of this package, gathered from its three subjects."""

from app.store.maintenance.sqlite_compaction import fold_log_in, give_pages_back, merge_full_text, refresh_statistics
from app.store.maintenance.sqlite_faults import (
    damaged_pages,
    differing_objects,
    differs_behind,
    faults,
    free_share,
    is_full_text_in_step,
    is_full_text_whole,
    orphans,
    sizes,
)
from app.store.maintenance.sqlite_rebuilding import rebuild

__all__ = [
    "damaged_pages",
    "differing_objects",
    "differs_behind",
    "faults",
    "fold_log_in",
    "free_share",
    "give_pages_back",
    "is_full_text_in_step",
    "is_full_text_whole",
    "merge_full_text",
    "orphans",
    "rebuild",
    "refresh_statistics",
    "sizes",
]
