"""The time and new ids."""

import time
import uuid

import pytest

from app import clock


def test_time_is_in_milliseconds():
    """It agrees with the clock of the system."""
    assert abs(clock.now_ms() / 1000 - time.time()) < 5


def test_new_id_is_a_lower_case_uuid7():
    """Version and variant are where RFC 9562 has them."""
    text = clock.new_id()
    parsed = uuid.UUID(text)

    assert (str(parsed), parsed.version, parsed.variant) == (text, 7, uuid.RFC_4122)


def test_ids_sort_by_the_millisecond_of_their_creation(monkeypatch: pytest.MonkeyPatch):
    """As texts, which is how the database compares them."""
    moments = [0, 1, 255, 1_779_235_200_000, 1_779_235_200_001, 2**48 - 1]
    ids = []
    for moment in moments:
        monkeypatch.setattr(clock, "now_ms", lambda moment=moment: moment)
        ids.append(clock.new_id())

    assert sorted(ids) == ids
    assert [int(text.replace("-", "")[:12], 16) for text in ids] == moments


def test_ids_of_one_millisecond_differ(monkeypatch: pytest.MonkeyPatch):
    """74 bits of each are random."""
    monkeypatch.setattr(clock, "now_ms", lambda: 1)

    assert len({clock.new_id() for _ in range(10_000)}) == 10_000
