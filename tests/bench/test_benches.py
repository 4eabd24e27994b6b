"""Benchmarks run, small: how fast things are is for a quiet machine, that it can be measured is for this."""

import importlib
import math

import pytest

from tests import postgresql
from tests.conftest import NO_POSTGRESQL

SCALE = 0.0005
NAMES = ("keyword", "operations", "replicas")
"""Those that are done within a quarter of a minute; the others take minutes, however small."""
NEED_POSTGRESQL = {"replicas"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_every_row_has_a_ratio(name: str):
    """A row that could not be measured is no row."""
    if name in NEED_POSTGRESQL and postgresql.binaries() is None:
        pytest.skip(NO_POSTGRESQL)
    rows = importlib.import_module(f"tests.bench.{name}").run(SCALE)

    assert rows
    assert [row.what for row in rows if math.isnan(row.ratio)] == []
    assert [row.measured for row in rows if "FAILED" in row.measured] == []
