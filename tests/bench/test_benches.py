"""Small runs of the benchmarks: they complete and measure every row. Speed is for `make bench` on a quiet machine."""

import importlib
import math

import pytest

from tests import postgresql
from tests.conftest import NO_POSTGRESQL

SCALE = 0.0005
NAMES = ("keyword", "operations", "replicas")
"""The benchmarks that take at most fifteen seconds at this scale; the others take minutes at any scale."""
NEED_POSTGRESQL = {"replicas"}


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_measures_every_row(name: str):
    """A row without a ratio, or with a failure, means that the benchmark is broken."""
    if name in NEED_POSTGRESQL and postgresql.binaries() is None:
        pytest.skip(NO_POSTGRESQL)
    rows = importlib.import_module(f"tests.bench.{name}").run(SCALE)

    assert rows
    assert [row.what for row in rows if math.isnan(row.ratio)] == []
    assert [row.measured for row in rows if "FAILED" in row.measured] == []
