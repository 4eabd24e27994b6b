"""A map on disk behaves like one in memory."""

import threading
from contextlib import closing

from app.store.engines.disk_map import DiskMap


def test_entries_are_found_and_replaced():
    """An unknown key returns the default."""
    with closing(DiskMap()) as entries:
        entries.set("old", "1")
        entries.set("old", "2")

        assert (entries.get("old", ""), entries.get("unknown", "default")) == ("2", "default")


def test_another_thread_may_continue():
    """The batches of an import run in whichever thread is free."""
    with closing(DiskMap()) as entries:
        writer = threading.Thread(target=entries.set, args=("key", "value"))
        writer.start()
        writer.join()

        assert entries.get("key", "") == "value"
