"""Every benchmark runs, small: how fast things are is for a quiet machine, that it can be measured is for this."""

import importlib

import pytest

from tests import postgresql
from tests.bench.__main__ import NAMES
from tests.conftest import NO_POSTGRESQL

SCALE = 0.0005
MEASURED_ELSEWHERE = {"workers"}
NEED_POSTGRESQL = {"postgresql", "replicas"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in MEASURED_ELSEWHERE])
def test_it_runs_and_every_row_has_a_ratio(name: str):
    """A row that could not be measured is no row."""
    if name in NEED_POSTGRESQL and postgresql.binaries() is None:
        pytest.skip(NO_POSTGRESQL)
    rows = importlib.import_module(f"tests.bench.{name}").run(SCALE)

    assert rows
    assert [row.what for row in rows if not row.ratio >= 0] == []
    assert [row.measured for row in rows if "FAILED" in row.measured] == []
